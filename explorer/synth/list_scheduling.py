"""List scheduling: at every event, start what is ready on what is free, best first.

One kernel serves two uses. Given routes it orders their sends; given more edges than needed it
also routes, as TACOS does [1]_: a chunk goes to whichever rank still lacks it. A message starts
at an event only, holds all resources of its edge together, and where messages cost latency
several waiting chunks may share one. Under a symmetry all images of a message start together.

Times are integers (ticks), so that events meant to coincide do; exact times are computed from the
order afterwards (:mod:`explorer.synth.timing`).

References
----------
.. [1] W. Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed
   Machine Learning", MICRO 2024, section IV.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from explorer.synth.event_heap import pop, push
from explorer.synth.kernel_types import (
    DIRTY,
    HEAP,
    MAKESPAN,
    MESSAGES,
    NEVER,
    REFUSED,
    ROUND,
    SCANNED,
    SENDS,
    Images,
    IntArray,
    LongArray,
    Machine,
    Options,
    Plan,
    State,
    Weights,
)

Sent = tuple[IntArray, LongArray, LongArray, LongArray, IntArray]
"""Edge, start, end, first chunk of each message, and the chunks."""

SLACK = np.int64(64)
"""Ticks within which events count as simultaneous: costs are rounded to ticks, so sums that meet
exactly may miss one another by a few."""


@njit(cache=True)  # type: ignore[untyped-decorator]
def _noise(a: int, b: int, seed: int) -> float:
    """Hash two numbers and a seed to [0, 1) (splitmix64)."""
    x = (
        np.uint64(a) * np.uint64(0x9E3779B97F4A7C15)
        + np.uint64(b) * np.uint64(0xD1B54A32D192ED03)
        + np.uint64(seed) * np.uint64(0x8CB92BA72F3D8DD7)
    )
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return float(x >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)  # type: ignore[untyped-decorator]
def _is_free(machine: Machine, state: State, edge: int, t: int) -> bool:
    for j in range(machine.res_first[edge], machine.res_first[edge + 1]):
        if state.free_at[machine.res[j]] > t:
            return False
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _comes_sooner(
    machine: Machine, plan: Plan, state: State, edge: int, chunk: int, t: int
) -> bool:
    """Whether another edge of the node could bring the chunk to the same rank earlier."""
    v = machine.dst[edge]
    mine = t + machine.alpha[edge] + machine.unit[edge]
    for i in range(machine.into_first[v], machine.into_first[v + 1]):
        other = machine.into[i]
        if other == edge or machine.inter[other]:
            continue
        start = plan.arrival[machine.src[other], chunk]
        if start >= mine:
            continue
        start = max(start, t)
        for j in range(machine.res_first[other], machine.res_first[other + 1]):
            start = max(start, state.free_at[machine.res[j]])
        if start + machine.alpha[other] + machine.unit[other] < mine:
            return True
    return False


@njit(cache=True)  # type: ignore[untyped-decorator]
def _gather(
    machine: Machine,
    plan: Plan,
    state: State,
    weights: Weights,
    options: Options,
    edge: int,
    t: int,
) -> int:
    """Collect the chunks that could cross an edge now, with scores; returns how many.

    Chunks that its receiver has or is getting are dropped from the plan for good.
    """
    u = machine.src[edge]
    v = machine.dst[edge]
    node = machine.node_of[v]
    inter = machine.inter[edge]
    refuse = options.refuse and machine.slow[edge] and not inter
    first = plan.first[edge]
    kept = first
    found = 0
    for i in range(first, state.last[edge]):
        c = plan.chunk[i]
        if plan.arrival[v, c] < NEVER:
            continue
        tail = plan.tail[i]
        plan.chunk[kept] = c
        plan.tail[kept] = tail
        kept += 1
        if plan.arrival[u, c] > t:
            continue
        if inter and state.entries[node, c] >= options.max_entries:
            continue
        if refuse and _comes_sooner(machine, plan, state, edge, c, t):
            state.counters[REFUSED] += 1
            continue
        score = (
            weights.tail * tail
            - weights.copies * state.copies[node, c]
            + weights.noise * _noise(edge, c, options.seed)
        )
        if inter and plan.source[c] == u:
            score += weights.own
        state.scores[found] = score
        state.useful[found] = kept - 1
        found += 1
    state.counters[SCANNED] += state.last[edge] - first + 1
    state.last[edge] = kept
    return found


@njit(cache=True)  # type: ignore[untyped-decorator]
def _how_many(
    machine: Machine, plan: Plan, state: State, options: Options, edge: int, found: int
) -> int:
    """Chunks to send in one message, of ``found`` that wait."""
    if machine.alpha[edge] == 0:
        return 1
    take = int(np.ceil(options.take_fraction * found))
    if not machine.inter[edge]:
        return max(1, min(take, options.inside_cap, found))
    u = machine.src[edge]
    if plan.leaving[u] > 0:
        keep = options.reserve
        if options.reserve_last_hops:
            keep = 0
            for i in range(found):
                if plan.tail[state.useful[i]] <= 0:
                    keep += 1
        if plan.leaving[u] > keep and plan.leaving[u] - take < keep:
            take = plan.leaving[u] - keep
    return max(1, min(take, options.take_cap, found))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _edge_score(
    machine: Machine,
    plan: Plan,
    state: State,
    weights: Weights,
    options: Options,
    edge: int,
    found: int,
) -> float:
    u = machine.src[edge]
    v = machine.dst[edge]
    score = state.scores[:found].max() + weights.need * plan.need[v]
    if machine.alpha[edge] > 0:
        cap = options.take_cap if machine.inter[edge] else options.inside_cap
        score += weights.size * min(found, cap)
    if machine.inter[edge]:
        score += weights.inter
    # Ties go to the nearest rank ahead, so that senders alike choose receivers that differ.
    rotation = (v - u) % len(machine.out_first)
    return float(score - weights.cost * machine.cost[edge] - 1e-9 * rotation)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _initial_state(machine: Machine, plan: Plan) -> State:
    n_edges = len(machine.src)
    n_ranks, n_chunks = plan.arrival.shape
    n_nodes = int(machine.node_of.max()) + 1
    state = State(
        np.zeros(len(machine.using_first) - 1, np.int64),
        np.zeros((n_nodes, n_chunks), np.int32),
        np.zeros((n_nodes, n_chunks), np.int32),
        plan.first[1:].copy(),
        np.zeros(n_chunks, np.float64),
        np.zeros(n_chunks, np.int32),
        np.zeros(2 * n_edges + 4, np.int64),
        np.zeros(2 * n_edges + 4, np.int64),
        np.zeros(n_edges, np.int32),
        np.full(n_edges, -1, np.int64),
        np.ones(n_ranks, np.bool_),
        np.zeros(8, np.int64),
    )
    for c in range(n_chunks):
        node = machine.node_of[plan.source[c]]
        state.copies[node, c] = 1
        state.entries[node, c] = 1
    return state


@njit(cache=True)  # type: ignore[untyped-decorator]
def _mark(images: Images, state: State, edges: IntArray) -> None:
    """Look at these edges at the next event."""
    counters = state.counters
    counters[SCANNED] += len(edges)
    for edge in edges:
        f = images.edge_rep[edge]
        if state.stamp[f] != counters[ROUND]:
            state.stamp[f] = counters[ROUND]
            state.dirty[counters[DIRTY]] = f
            counters[DIRTY] += 1


@njit(cache=True)  # type: ignore[untyped-decorator]
def _start(
    machine: Machine,
    images: Images,
    plan: Plan,
    state: State,
    options: Options,
    edge: int,
    found: int,
    t: int,
    limit: int,
    sent: Sent,
) -> bool:
    """Start a message over an edge, with all its images; false when it would pass the limit."""
    m_edge, m_start, m_end, m_first, m_chunk = sent
    counters = state.counters
    take = _how_many(machine, plan, state, options, edge, found)
    chosen = np.argsort(-state.scores[:found], kind="mergesort")[:take]
    length = take * machine.unit[edge]
    end = t + machine.alpha[edge] + length
    if end >= limit:
        return False
    release = t + length if machine.pipelined else end
    counters[MAKESPAN] = max(counters[MAKESPAN], end)
    counters[HEAP] = push(
        state.heap_time, state.heap_item, counters[HEAP], release, np.int64(2 * edge)
    )
    if end != release:
        counters[HEAP] = push(
            state.heap_time, state.heap_item, counters[HEAP], end, np.int64(2 * edge + 1)
        )
    for g in range(len(images.edge)):
        f = images.edge[g, edge]
        v = machine.dst[f]
        node = machine.node_of[v]
        message = counters[MESSAGES]
        m_edge[message] = f
        m_start[message] = t
        m_end[message] = end
        m_first[message] = counters[SENDS]
        counters[MESSAGES] += 1
        for i in range(take):
            c = images.chunk[g, plan.chunk[state.useful[chosen[i]]]]
            m_chunk[counters[SENDS]] = c
            counters[SENDS] += 1
            plan.arrival[v, c] = end
            state.copies[node, c] += 1
            if machine.inter[f]:
                state.entries[node, c] += 1
        plan.need[v] -= take
        if machine.inter[f]:
            plan.leaving[machine.src[f]] -= take
        for j in range(machine.res_first[f], machine.res_first[f + 1]):
            state.free_at[machine.res[j]] = release
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _start_ready(
    machine: Machine,
    images: Images,
    plan: Plan,
    weights: Weights,
    options: Options,
    state: State,
    own_events: bool,
    t: int,
    limit: int,
    sent: Sent,
) -> bool:
    """Start what can start at ``t``, best first; false when a message would pass the limit."""
    counters = state.counters
    total = counters[DIRTY]
    candidates = np.zeros(total, np.int32)
    score = np.zeros(total, np.float64)
    n_candidates = 0
    edges = np.sort(state.dirty[:total])
    counters[DIRTY] = 0
    counters[ROUND] += 1
    for e in edges:
        if own_events and not state.own_event[images.rank_rep[machine.src[e]]]:
            continue
        if not _is_free(machine, state, e, t):
            continue
        refused = counters[REFUSED]
        found = _gather(machine, plan, state, weights, options, e, t)
        if counters[REFUSED] > refused:
            # What it waits for may never come: look again whatever happens next.
            _mark(images, state, np.array([e]))
        if found:
            candidates[n_candidates] = e
            score[n_candidates] = _edge_score(machine, plan, state, weights, options, e, found)
            n_candidates += 1
    for k in np.argsort(-score[:n_candidates], kind="mergesort"):
        e = candidates[k]
        if not _is_free(machine, state, e, t):
            continue
        found = _gather(machine, plan, state, weights, options, e, t)
        if found and not _start(machine, images, plan, state, options, e, found, t, limit, sent):
            return False
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _advance(machine: Machine, images: Images, state: State) -> np.int64:
    """Go to the next event time: free resources, note ranks with an event of their own."""
    counters = state.counters
    t: np.int64 = state.heap_time[0]
    together = t + SLACK
    state.own_event[:] = False
    while counters[HEAP] > 0 and state.heap_time[0] <= together:
        t = state.heap_time[0]
        e = state.heap_item[0] >> 1
        late = state.heap_item[0] & 1
        counters[HEAP] = pop(state.heap_time, state.heap_item, counters[HEAP])
        u = machine.src[e]
        v = machine.dst[e]
        if late == 0:
            state.own_event[images.rank_rep[u]] = True
            _mark(images, state, machine.out[machine.out_first[u] : machine.out_first[u + 1]])
            for j in range(machine.res_first[e], machine.res_first[e + 1]):
                r = machine.res[j]
                _mark(
                    images,
                    state,
                    machine.using[machine.using_first[r] : machine.using_first[r + 1]],
                )
        if late == 1 or not machine.pipelined or machine.alpha[e] == 0:
            state.own_event[images.rank_rep[v]] = True
            _mark(images, state, machine.out[machine.out_first[v] : machine.out_first[v + 1]])
    return t


@njit(cache=True)  # type: ignore[untyped-decorator]
def schedule(
    machine: Machine,
    images: Images,
    plan: Plan,
    weights: Weights,
    options: Options,
    limit: int,
    sent: Sent,
) -> tuple[np.int64, np.int64, np.int64]:
    """Schedule until nothing can start any more.

    Parameters
    ----------
    machine, images, plan, weights, options
        See the classes above. ``plan`` is used up; needed chunks whose arrival is still NEVER
        afterwards were not delivered.
    limit
        Given up as soon as a message would end at or after this tick.
    sent
        Output arrays: edge, start, end, first chunk of each message, and the chunks.

    Returns
    -------
    tuple
        Messages, makespan (NEVER when given up), plan entries looked at.
    """
    state = _initial_state(machine, plan)
    counters = state.counters
    everything = np.arange(len(machine.src)).astype(np.int32)
    _mark(images, state, everything)
    t = np.int64(0)
    own_events = options.own_events
    while True:
        if not _start_ready(
            machine, images, plan, weights, options, state, own_events, t, limit, sent
        ):
            return counters[MESSAGES], NEVER, counters[SCANNED]
        own_events = options.own_events
        if counters[HEAP] > 0:
            t = _advance(machine, images, state)
        elif own_events:
            # Ranks that wait for a receiver's port may have had their last event of their own.
            before = counters[MESSAGES]
            _mark(images, state, everything)
            if not _start_ready(
                machine, images, plan, weights, options, state, False, t, limit, sent
            ):
                return counters[MESSAGES], NEVER, counters[SCANNED]
            if counters[MESSAGES] == before:
                break
            t = _advance(machine, images, state)
        else:
            break
    sent[3][counters[MESSAGES]] = counters[SENDS]
    return counters[MESSAGES], counters[MAKESPAN], counters[SCANNED]
