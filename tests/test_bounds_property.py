"""No schedule beats a bound: random machines, random simple schedules replayed on their links."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.core.bounds import bounds
from explorer.core.collective import COLLECTIVES, Collective, sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.sketch import unreachable_ranks
from explorer.core.topology import Device, Link, Topology
from explorer.units import MIB

TRIES = 8
"""Random schedules per machine, of which the best is compared."""


class Replay:
    """Sends one message after another, each as early as its data and its links allow."""

    def __init__(self, topology: Topology, graph: RankGraph, chunk_mib: float, model: str) -> None:
        self.topology, self.chunk, self.model = topology, chunk_mib, model
        self.cost = {
            (int(s), int(d)): (float(a), float(b), tuple(graph.resources_of(e).tolist()))
            for e, (s, d, a, b) in enumerate(
                zip(graph.src, graph.dst, graph.alpha_us, graph.beta_us_per_mib, strict=True)
            )
        }
        self.free = [0.0] * len(topology.links)

    def send(self, src: int, dst: int, ready: float, chunks: int = 1) -> float:
        if (src, dst) in self.cost:
            alpha, beta, links = self.cost[src, dst]
        else:
            route = self.topology.route(src, dst)
            assert route is not None
            alpha, beta, links = route.alpha_us, route.beta_us_per_mib, route.links
        start = max([ready, *(self.free[i] for i in links)])
        transfer = chunks * self.chunk * beta
        busy = transfer if self.model == "pipelined" else alpha + transfer
        for i in links:
            self.free[i] = start + busy
        return start + alpha + transfer

    def tree(self, root: int, rng: random.Random, *, towards: bool) -> list[tuple[int, int]]:
        """(parent, child) pairs of a random tree from the root (or towards it), parents first."""
        edges = [(d, s) if towards else (s, d) for s, d in self.cost]
        rng.shuffle(edges)
        seen, pairs = {root}, []
        while len(seen) < self.topology.ranks:
            pair = next((a, b) for a, b in edges if a in seen and b not in seen)
            seen.add(pair[1])
            pairs.append(pair)
        return pairs


def spread(replay: Replay, root: int, ready: float, rng: random.Random) -> float:
    have = {root: ready}
    for parent, child in replay.tree(root, rng, towards=False):
        have[child] = replay.send(parent, child, have[parent])
    return max(have.values())


def collect(replay: Replay, root: int, rng: random.Random) -> float:
    ready = dict.fromkeys(range(replay.topology.ranks), 0.0)
    for parent, child in reversed(replay.tree(root, rng, towards=True)):
        ready[parent] = max(ready[parent], replay.send(child, parent, ready[child]))
    return ready[root]


def route_pair(replay: Replay, src: int, dst: int, chunks: int, relay: bool) -> float:
    """Over the fewest edges, store and forward; or in one message over GPUs."""
    if relay and (src, dst) not in replay.cost:
        return replay.send(src, dst, 0.0, chunks)
    paths = [(src,)]
    while paths[0][-1] != dst:
        path = paths.pop(0)
        paths += [(*path, d) for s, d in replay.cost if s == path[-1] and d not in path]
    time = 0.0
    for a, b in zip(paths[0], paths[0][1:], strict=False):
        time = replay.send(a, b, time, chunks)
    return time


def some_schedule(replay: Replay, kind: Collective, rng: random.Random, relay: bool) -> float:
    chunks = list(range(kind.chunk_count))
    rng.shuffle(chunks)
    times = [0.0]
    if kind.name == "alltoall":
        pairs = [(s, d) for s in range(kind.ranks) for d in range(kind.ranks) if s != d]
        rng.shuffle(pairs)
        for src, dst in pairs:
            grouped = rng.random() < 0.5
            for _ in range(1 if grouped else kind.chunks_per_rank):
                count = kind.chunks_per_rank if grouped else 1
                times.append(route_pair(replay, src, dst, count, relay))
        return max(times)
    for chunk in chunks:
        root = kind.root if kind.rooted else chunk // kind.chunks_per_rank
        if kind.name in ("allgather", "broadcast"):
            times.append(spread(replay, root, 0.0, rng))
        elif kind.name in ("reducescatter", "reduce"):
            times.append(collect(replay, root, rng))
        else:
            root = rng.randrange(kind.ranks)
            times.append(spread(replay, root, collect(replay, root, rng), rng))
    return max(times)


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    gpus = draw(st.integers(2, 5))
    switches = draw(st.integers(0, 3))
    nodes = draw(st.integers(1, 2))
    devices = [Device(f"gpu{i}", "gpu", i * nodes // gpus) for i in range(gpus)]
    devices += [
        Device(f"s{i}", "switch", draw(st.integers(-1, nodes - 1))) for i in range(switches)
    ]
    cost = st.tuples(st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([1.0, 2.0, 3.5, 40.0]))
    links: dict[tuple[int, int], tuple[float, float]] = {}
    for i in range(gpus):
        links[i, (i + 1) % gpus] = draw(cost)
    if switches:
        for i in draw(st.sets(st.integers(0, gpus - 1))):
            links[i, gpus] = draw(cost)
            links[gpus, i] = draw(cost)
    count = len(devices)
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    for a, b in draw(st.lists(ends, max_size=10)):
        if a != b:
            links[a, b] = draw(cost)
    return Topology(
        "random",
        tuple(devices),
        tuple(Link(a, b, "generic", alpha, beta) for (a, b), (alpha, beta) in links.items()),
    )


def check(
    topology: Topology,
    kind: Collective,
    model: str,
    seed: int,
    graph: RankGraph | None,
    whole: bool,
) -> None:
    amount = sizing(kind, kind.nchunks * MIB // 4)
    used = graph if graph is not None else rank_graph(topology)
    bound = bounds(topology, kind, amount, CostModel(model), graph, whole_chunks=whole)
    reached = min(
        some_schedule(
            Replay(topology, used, amount.chunk_mib, model),
            kind,
            random.Random(seed + i),
            relay=graph is None and i % 2 == 0,
        )
        for i in range(TRIES)
    )
    assert bound.bound_us <= reached * (1 + 1e-9), bound
    assert bound.bound_us >= max(bound.latency_us, bound.bandwidth_us) * (1 - 1e-9)


@pytest.mark.parametrize("name", COLLECTIVES)
@settings(max_examples=100)
@given(
    machines(),
    st.integers(1, 3),
    st.sampled_from(["exclusive", "pipelined"]),
    st.booleans(),
    st.integers(0, 1 << 16),
)
def test_no_schedule_of_a_machine_beats_its_bound(
    name: str, topology: Topology, chunks: int, model: str, whole: bool, seed: int
) -> None:
    kind = Collective(
        name, topology.ranks, chunks, seed % topology.ranks if "e" in name[-4:] else 0
    )
    if unreachable_ranks(rank_graph(topology)):
        return
    check(topology, kind, model, seed, None, whole)


@pytest.mark.parametrize("name", COLLECTIVES)
@settings(max_examples=100)
@given(
    machines(),
    st.integers(1, 3),
    st.sampled_from(["exclusive", "pipelined"]),
    st.booleans(),
    st.integers(0, 1 << 16),
)
def test_no_schedule_on_some_edges_beats_their_bound(
    name: str, topology: Topology, chunks: int, model: str, whole: bool, seed: int
) -> None:
    kind = Collective(name, topology.ranks, chunks, seed % topology.ranks)
    graph = rank_graph(topology)
    rng = np.random.default_rng(seed)
    slower = graph.beta_us_per_mib * rng.choice([1.0, 2.0], graph.edges)
    part = replace(graph, beta_us_per_mib=slower).subgraph(rng.random(graph.edges) < 0.8)
    if unreachable_ranks(part):
        return
    check(topology, kind, model, seed, part, whole)


def brute_force(arcs: Sequence[tuple[int, int, float]], vertices: int) -> float:
    """Least capacity over all vertex sets that hold 0 and not 1."""
    best = float("inf")
    for mask in range(1 << vertices):
        if mask & 1 and not mask & 2:
            cut = sum(c for a, b, c in arcs if mask >> a & 1 and not mask >> b & 1)
            best = min(best, cut)
    return best


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.1, 1.0, 2.5])),
        max_size=14,
    ),
    st.booleans(),
)
def test_min_cut_is_minimal_and_separates(
    arcs: list[tuple[int, int, float]], near_sink: bool
) -> None:
    from explorer.core.min_cut import min_cut

    found = set(min_cut(6, arcs, 0, 1, near_sink=near_sink))
    assert sum(arcs[i][2] for i in found) == pytest.approx(brute_force(arcs, 6))
    left = [(a, b, c) for i, (a, b, c) in enumerate(arcs) if i not in found]
    assert brute_force(left, 6) == 0.0
