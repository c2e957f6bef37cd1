"""Random valid schedules for the tests of lowering, from a greedy that plans one tree per chunk."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.units import MIB
from sim.network import Network


def random_graph(rng: np.random.Generator, ranks: int, *, ports: bool = False) -> RankGraph:
    """A strongly connected graph: a ring and some more edges; with ports, ends are shared too."""
    pairs = {(r, (r + 1) % ranks) for r in range(ranks)} if ranks > 1 else set()
    pairs |= {(d, s) for s, d in pairs if rng.random() < 0.7}
    for s in range(ranks):
        pairs |= {(s, d) for d in range(ranks) if d != s and rng.random() < 0.3}
    edges = sorted(pairs)
    names = [f"{s}->{d}" for s, d in edges]
    held = [[i] for i in range(len(edges))]
    if ports:
        names += [f"out{r}" for r in range(ranks)] + [f"in{r}" for r in range(ranks)]
        held = [[i, len(edges) + s, len(edges) + ranks + d] for i, (s, d) in enumerate(edges)]
    return RankGraph(
        ranks=ranks,
        node_of=np.zeros(ranks, np.int32),
        src=np.array([s for s, _ in edges], np.int32),
        dst=np.array([d for _, d in edges], np.int32),
        alpha_us=rng.choice([0.5, 1.0, 2.0], len(edges)),
        beta_us_per_mib=rng.choice([10.0, 20.0, 40.0], len(edges)),
        resource_first=np.concatenate(([0], np.cumsum([len(h) for h in held]))).astype(np.int64),
        resource=np.array([r for h in held for r in h], np.int32),
        resources=tuple(names),
    )


def network_of(graph: RankGraph) -> Network:
    """The same machine for the simulator."""
    return Network(
        ranks=graph.ranks,
        resources=graph.resources,
        path_src=graph.src,
        path_dst=graph.dst,
        alpha_us=graph.alpha_us,
        beta_us_per_byte=graph.beta_us_per_mib / MIB,
        path_first=graph.resource_first,
        path_resource=graph.resource,
    )


@dataclass
class _Task:
    """One chunk over one edge, once the tasks before it are done."""

    chunk: int
    edge: int
    reduce: bool
    missing: int = 0
    then: list[_Task] = field(default_factory=list)


def random_schedule(
    rng: np.random.Generator,
    graph: RankGraph,
    collective: Collective,
    *,
    largest: int = 1,
    chunk_bytes: int = 1 << 16,
    cost_model: CostModel = CostModel.EXCLUSIVE,
) -> Schedule:
    """Plan every chunk on random trees, starting messages of up to ``largest`` chunks greedily.

    A message starts at the instant at which its data, its edge or (with ports) a port became free.
    """
    tasks = [t for c in range(collective.chunk_count) for t in _tasks(rng, graph, collective, c)]
    return _planned(rng, graph, collective, tasks, largest, chunk_bytes, cost_model)


def _tasks(
    rng: np.random.Generator, graph: RankGraph, collective: Collective, chunk: int
) -> list[_Task]:
    """Tasks of one chunk: up a tree to one rank, down a tree from one rank, or both."""
    name = collective.name
    tasks: list[_Task] = []
    up: list[_Task] = []
    if collective.reduces:
        root = int(rng.integers(graph.ranks)) if name == "allreduce" else 0
        if name != "allreduce":
            root = collective.destinations(chunk)[0]
        parent = _tree(rng, graph, root, backwards=True)
        by_rank = {s: _Task(chunk, e, True) for s, e in parent.items()}
        for s, task in by_rank.items():
            above = by_rank.get(int(graph.dst[parent[s]]))
            if above is None:
                up.append(task)
            else:
                task.then.append(above)
                above.missing += 1
        tasks += by_rank.values()
        if name != "allreduce":
            return tasks
    else:
        root = collective.sources(chunk)[0]
    wanted = set(collective.destinations(chunk)) - {root}
    parent = _tree(rng, graph, root, backwards=False)
    needed: set[int] = set()
    for leaf in wanted:
        rank = leaf
        while rank != root and rank not in needed:
            needed.add(rank)
            rank = int(graph.src[parent[rank]])
    by_rank = {d: _Task(chunk, parent[d], False) for d in sorted(needed)}
    for d, task in by_rank.items():
        before = by_rank.get(int(graph.src[parent[d]]))
        for first in [before] if before is not None else up:
            first.then.append(task)
            task.missing += 1
    return tasks + list(by_rank.values())


def _tree(
    rng: np.random.Generator, graph: RankGraph, root: int, *, backwards: bool
) -> dict[int, int]:
    """Random spanning tree: the edge to (or from) every rank but the root."""
    far, near = (graph.src, graph.dst) if backwards else (graph.dst, graph.src)
    edge_of: dict[int, int] = {}
    reached = {root}
    while len(reached) < graph.ranks:
        open_edges = [e for e in range(graph.edges) if near[e] in reached and far[e] not in reached]
        e = int(rng.choice(open_edges))
        edge_of[int(far[e])] = e
        reached.add(int(far[e]))
    return edge_of


def _planned(
    rng: np.random.Generator,
    graph: RankGraph,
    collective: Collective,
    tasks: list[_Task],
    largest: int,
    chunk_bytes: int,
    cost_model: CostModel,
) -> Schedule:
    ready: dict[tuple[int, bool], list[_Task]] = {}
    for task in tasks:
        if not task.missing:
            ready.setdefault((task.edge, task.reduce), []).append(task)
    busy = [False] * len(graph.resources)
    rows: list[tuple[int, int, int, int, bool, float, float]] = []
    events: list[tuple[float, int, str, object]] = []
    now, number, group = 0.0, 0, 0

    def start(key: tuple[int, bool]) -> None:
        nonlocal number, group
        edge, reduce = key
        waiting = ready[key]
        size = min(len(waiting), int(rng.integers(1, largest + 1)))
        chosen = [waiting.pop(int(rng.integers(len(waiting)))) for _ in range(size)]
        transfer = size * chunk_bytes / MIB * float(graph.beta_us_per_mib[edge])
        alpha = float(graph.alpha_us[edge])
        release = now + cost_model.busy_us(alpha, transfer)
        # the order of additions the simulator has, so that equal instants are equal floats
        end = release if cost_model is CostModel.EXCLUSIVE else release + alpha
        for r in graph.resources_of(edge).tolist():
            busy[r] = True
        heapq.heappush(events, (release, number, "release", edge))
        heapq.heappush(events, (end, number + 1, "arrive", chosen))
        number += 2
        ends = int(graph.src[edge]), int(graph.dst[edge])
        rows.extend((*ends, task.chunk, group, reduce, now, end) for task in chosen)
        group += 1

    while True:
        for edge, reduces in rng.permutation(sorted(ready)).tolist() if ready else []:
            key = (edge, bool(reduces))
            if ready[key] and not any(busy[r] for r in graph.resources_of(key[0]).tolist()):
                start(key)
        if not events:
            break
        now = events[0][0]
        while events and events[0][0] == now:
            _, _, kind, what = heapq.heappop(events)
            if kind == "release":
                for r in graph.resources_of(what).tolist():
                    busy[r] = False
                continue
            for task in what:
                for after in task.then:
                    after.missing -= 1
                    if not after.missing:
                        ready.setdefault((after.edge, after.reduce), []).append(after)
    return schedule_of(collective, rows, chunk_bytes, cost_model)


def schedule_of(
    collective: Collective,
    rows: list[tuple[int, int, int, int, bool, float, float]],
    chunk_bytes: int = 1 << 16,
    cost_model: CostModel = CostModel.EXCLUSIVE,
) -> Schedule:
    """Schedule of rows (src, dst, chunk, group, reduce, start, end)."""
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 7
    types = (np.int32, np.int32, np.int32, np.int32, np.bool_, np.float64, np.float64)
    arrays = [np.array(c, t) for c, t in zip(columns, types, strict=True)]
    return Schedule(collective, chunk_bytes, cost_model, *arrays).sorted()


def recursive_doubling(ranks: int, chunks_per_rank: int) -> Schedule:
    """AllReduce: in round i ranks r and r xor 2^i exchange and add all they have, at once."""
    collective = Collective("allreduce", ranks, chunks_per_rank)
    rows = [
        (r, r ^ 1 << i, c, i * ranks + r, True, float(i), i + 1.0)
        for i in range(ranks.bit_length() - 1)
        for r in range(ranks)
        for c in range(collective.chunk_count)
    ]
    return schedule_of(collective, rows)


def one_shot(ranks: int, chunks_per_rank: int) -> Schedule:
    """AllReduce: everybody sends its contribution to everybody at once; far ones take longer."""
    collective = Collective("allreduce", ranks, chunks_per_rank)
    rows = [
        (r, (r + k) % ranks, c, k * ranks + r, True, 0.0, 1.0 + k)
        for k in range(1, ranks)
        for r in range(ranks)
        for c in range(collective.chunk_count)
    ]
    return schedule_of(collective, rows)


def ring_allgather(ranks: int, chunks_per_rank: int = 1) -> Schedule:
    """Every rank passes on what it got last; one chunk per message and unit of time."""
    rows = [
        (r, (r + 1) % ranks, (r - t) % ranks * chunks_per_rank + k, -1, False, 0.0, 0.0)
        for t in range(ranks - 1)
        for k in range(chunks_per_rank)
        for r in range(ranks)
    ]
    timed = [
        (*row[:3], i, False, float(i // ranks), i // ranks + 1.0) for i, row in enumerate(rows)
    ]
    return schedule_of(Collective("allgather", ranks, chunks_per_rank), timed)


def ring_allreduce(ranks: int) -> Schedule:
    """Sums travel once around the ring, then totals do."""
    rows = []
    for t in range(2 * (ranks - 1)):
        for r in range(ranks):
            reduces = t < ranks - 1
            chunk = (r - t) % ranks if reduces else (r + 1 - (t - ranks + 1)) % ranks
            rows.append((r, (r + 1) % ranks, chunk, len(rows), reduces, float(t), t + 1.0))
    return schedule_of(Collective("allreduce", ranks), rows)
