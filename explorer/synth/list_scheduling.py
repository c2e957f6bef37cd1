"""List scheduling: at every event, start what is ready on what is free, best first.

One kernel serves three uses. Given routes it orders their sends; given more edges than needed it
also routes, as TACOS does [1]_: a chunk goes to whichever rank still lacks it; given trees that
collect, a rank sends its sum on when all parts have come. A message starts at an event only, holds
all resources of its edge together, and where messages cost latency several waiting chunks may
share one. Under a symmetry all images of a message start together.

Times are integers (ticks), so that events meant to coincide do; exact times are computed from the
order afterwards (:mod:`explorer.synth.timing`). All compiled functions are in this file: numba
notices a change only in the file of the function that it keeps on disk.

References
----------
.. [1] W. Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed
   Machine Learning", MICRO 2024, section IV.
"""

from __future__ import annotations

import numpy as np

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
    FloatArray,
    Images,
    IntArray,
    LongArray,
    Machine,
    Options,
    Plan,
    Sent,
    State,
    Weights,
    inner,
    kernel,
)

SLACK = np.int64(64)
"""Ticks within which events count as simultaneous: costs are rounded to ticks, so sums that meet
exactly may miss one another by a few."""


@inner
def _push(time: LongArray, item: LongArray, count: int, t: int, x: int) -> int:
    """Insert into a binary heap of (time, item) kept in two arrays; returns its new size."""
    i = count
    while i > 0:
        parent = (i - 1) >> 1
        if time[parent] < t or (time[parent] == t and item[parent] <= x):
            break
        time[i] = time[parent]
        item[i] = item[parent]
        i = parent
    time[i] = t
    item[i] = x
    return count + 1


@inner
def _pop(time: LongArray, item: LongArray, count: int) -> int:
    """Remove the root of the heap, whose values were read before; returns its new size."""
    count -= 1
    t = time[count]
    x = item[count]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        right = child + 1
        if right < count and (
            time[right] < time[child] or (time[right] == time[child] and item[right] < item[child])
        ):
            child = right
        if t < time[child] or (t == time[child] and x <= item[child]):
            break
        time[i] = time[child]
        item[i] = item[child]
        i = child
    time[i] = t
    item[i] = x
    return count


@inner
def _sort(score: FloatArray, item: IntArray, count: int) -> None:
    """Heap sort, highest score first, ties by item; numpy's sorts take seconds to compile."""
    for end in range(count, 1, -1):
        first = count // 2 - 1 if end == count else 0
        for root in range(first, -1, -1):
            i = root
            while True:
                last = i
                for child in range(2 * i + 1, min(2 * i + 3, end)):
                    a, b = score[child], score[last]
                    if a < b or (a == b and item[child] > item[last]):
                        last = child
                if last == i:
                    break
                score[i], score[last] = score[last], score[i]
                item[i], item[last] = item[last], item[i]
                i = last
        score[0], score[end - 1] = score[end - 1], score[0]
        item[0], item[end - 1] = item[end - 1], item[0]


@inner
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


@inner
def _is_free(machine: Machine, state: State, edge: int, t: int) -> bool:
    for j in range(machine.res_first[edge], machine.res_first[edge + 1]):
        if state.free_at[machine.res[j]] > t:
            return False
    return True


@inner
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


@inner
def _gather(
    machine: Machine, plan: Plan, state: State, weights: Weights, options: Options, edge: int,
    t: int,
) -> int:  # fmt: skip
    """Collect the chunks that could cross an edge now, with scores; returns how many.

    Chunks that need not cross it any more are dropped from the plan for good.
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
        if (plan.waiting[u, c] < 0) if options.sums else (plan.arrival[v, c] < NEVER):
            continue
        tail = plan.tail[i]
        plan.chunk[kept] = c
        plan.tail[kept] = tail
        kept += 1
        if plan.arrival[u, c] > t or plan.waiting[u, c] > 0:
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


@inner
def _best_first(state: State, found: int, take: int) -> None:
    """Move the best ``take`` of the useful plan entries to the front."""
    for i in range(take):
        best = i
        for j in range(i + 1, found):
            if state.scores[j] > state.scores[best]:
                best = j
        score, entry = state.scores[best], state.useful[best]
        for j in range(best, i, -1):
            state.scores[j] = state.scores[j - 1]
            state.useful[j] = state.useful[j - 1]
        state.scores[i] = score
        state.useful[i] = entry


@inner
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


@inner
def _too_few(machine: Machine, plan: Plan, options: Options, edge: int, found: int) -> bool:
    """Whether a message between nodes should wait for more chunks."""
    u = machine.src[edge]
    return bool(
        machine.inter[edge]
        and machine.alpha[edge] > 0
        and found < min(options.wait_for, plan.leaving[u])
    )


@inner
def _edge_score(
    machine: Machine, plan: Plan, state: State, weights: Weights, options: Options, edge: int,
    found: int,
) -> float:  # fmt: skip
    u = machine.src[edge]
    v = machine.dst[edge]
    score = state.scores[0]
    for i in range(1, found):
        score = max(score, state.scores[i])
    score += weights.need * plan.need[v] - weights.cost * machine.cost[edge]
    if machine.alpha[edge] > 0:
        cap = options.take_cap if machine.inter[edge] else options.inside_cap
        score += weights.size * min(found, cap)
    if machine.inter[edge]:
        score += weights.inter
    # Ties go to the nearest rank ahead, so that senders alike choose receivers that differ.
    return float(score - 1e-9 * ((v - u) % (len(machine.out_first) - 1)))


@inner
def _mark(images: Images, state: State, edges: IntArray, first: int, last: int) -> None:
    """Look at these edges at the next event."""
    counters = state.counters
    counters[SCANNED] += last - first
    for i in range(first, last):
        f = images.edge_rep[edges[i]]
        if state.stamp[f] != counters[ROUND]:
            state.stamp[f] = counters[ROUND]
            state.dirty[counters[DIRTY]] = f
            counters[DIRTY] += 1


@inner
def _record(
    machine: Machine, images: Images, plan: Plan, state: State, sums: bool, edge: int, take: int,
    t: int, end: int, release: int, sent: Sent,
) -> None:  # fmt: skip
    """Put a message over an edge, with all its images, into the state and the output."""
    counters = state.counters
    for g in range(len(images.edge)):
        f = images.edge[g, edge]
        u = machine.src[f]
        v = machine.dst[f]
        node = machine.node_of[v]
        message = counters[MESSAGES]
        sent.edge[message] = f
        sent.start[message] = t
        sent.end[message] = end
        sent.first[message] = counters[SENDS]
        counters[MESSAGES] += 1
        for i in range(take):
            c = images.chunk[g, plan.chunk[state.useful[i]]]
            sent.chunk[counters[SENDS]] = c
            counters[SENDS] += 1
            state.copies[node, c] += 1
            if machine.inter[f]:
                state.entries[node, c] += 1
            if sums:
                plan.waiting[u, c] = -1
                plan.waiting[v, c] -= 1
                plan.arrival[v, c] = max(plan.arrival[v, c], end)
            else:
                plan.arrival[v, c] = end
        plan.need[v] -= take
        if machine.inter[f]:
            plan.leaving[u] -= take
        for j in range(machine.res_first[f], machine.res_first[f + 1]):
            state.free_at[machine.res[j]] = release


@inner
def _start_ready(
    machine: Machine, images: Images, plan: Plan, weights: Weights, options: Options, state: State,
    strict: bool, t: int, limit: int, sent: Sent,
) -> bool:  # fmt: skip
    """Start what can start at ``t``, best first; false when a message would pass the limit.

    When not ``strict``, senders neither wait for events of their own nor for fuller messages.
    """
    counters = state.counters
    total = counters[DIRTY]
    for k in range(total):
        state.looking[k] = state.dirty[k]
    counters[DIRTY] = 0
    counters[ROUND] += 1
    candidates = 0
    for k in range(total):
        e = state.looking[k]
        own = state.own_event[images.rank_rep[machine.src[e]]]
        if strict and options.own_events and not own:
            continue
        if not _is_free(machine, state, e, t):
            continue
        refused = counters[REFUSED]
        found = _gather(machine, plan, state, weights, options, e, t)
        if counters[REFUSED] > refused:
            # What it waits for may never come: look again whatever happens next.
            _mark(images, state, state.looking, k, k + 1)
        if found:
            state.candidate[candidates] = e
            score = _edge_score(machine, plan, state, weights, options, e, found)
            state.ranking[candidates] = score
            candidates += 1
    _sort(state.ranking, state.candidate, candidates)
    for k in range(candidates):
        e = state.candidate[k]
        if not _is_free(machine, state, e, t):
            continue
        found = _gather(machine, plan, state, weights, options, e, t)
        if found == 0 or (strict and _too_few(machine, plan, options, e, found)):
            continue
        take = _how_many(machine, plan, state, options, e, found)
        _best_first(state, found, take)
        release = t + take * machine.unit[e]
        end = release + machine.alpha[e]
        if end >= limit:
            return False
        if not machine.pipelined:
            release = end
        counters[MAKESPAN] = max(counters[MAKESPAN], end)
        counters[HEAP] = _push(state.heap_time, state.heap_item, counters[HEAP], release, 2 * e)
        if end != release:
            counters[HEAP] = _push(state.heap_time, state.heap_item, counters[HEAP], end, 2 * e + 1)
        _record(machine, images, plan, state, options.sums, e, take, t, end, release, sent)
    return True


@inner
def _advance(machine: Machine, images: Images, state: State) -> int:
    """Go to the next event time: free resources, note ranks with an event of their own."""
    counters = state.counters
    t = state.heap_time[0]
    together = t + SLACK
    for rank in range(len(state.own_event)):
        state.own_event[rank] = False
    while counters[HEAP] > 0 and state.heap_time[0] <= together:
        t = state.heap_time[0]
        e = state.heap_item[0] >> 1
        late = state.heap_item[0] & 1
        counters[HEAP] = _pop(state.heap_time, state.heap_item, counters[HEAP])
        u = machine.src[e]
        v = machine.dst[e]
        if late == 0:
            state.own_event[images.rank_rep[u]] = True
            _mark(images, state, machine.out, machine.out_first[u], machine.out_first[u + 1])
            for j in range(machine.res_first[e], machine.res_first[e + 1]):
                r = machine.res[j]
                _mark(
                    images, state, machine.using, machine.using_first[r], machine.using_first[r + 1]
                )
        if late == 1 or not machine.pipelined or machine.alpha[e] == 0:
            state.own_event[images.rank_rep[v]] = True
            _mark(images, state, machine.out, machine.out_first[v], machine.out_first[v + 1])
    return int(t)


@kernel
def schedule(
    machine: Machine, images: Images, plan: Plan, weights: Weights, options: Options,
    state: State, limit: int, sent: Sent,
) -> int:  # fmt: skip
    """Schedule until nothing can start any more; returns the makespan, NEVER when given up.

    ``plan`` and ``state`` are used up (see :mod:`explorer.synth.kernel_types`): the counters tell
    messages, sends and plan entries looked at; needed chunks whose arrival is still NEVER were not
    delivered. Given up as soon as a message would end at or after ``limit``.
    """
    counters = state.counters
    edges = len(machine.src)
    _mark(images, state, machine.out, 0, edges)
    t = 0
    strict = True
    while True:
        before = counters[MESSAGES]
        if not _start_ready(machine, images, plan, weights, options, state, strict, t, limit, sent):
            return int(NEVER)
        if counters[HEAP] > 0:
            strict = True
            t = _advance(machine, images, state)
        elif strict:
            # What a rank waits for may never come: a port's end is no event of its own.
            strict = False
            _mark(images, state, machine.out, 0, edges)
        elif counters[MESSAGES] == before:
            break
    sent.first[counters[MESSAGES]] = counters[SENDS]
    return int(counters[MAKESPAN])
