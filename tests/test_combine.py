"""Reverse, retime and compose, against a replay of their own and hand-made schedules."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.combine.compose import compose
from explorer.combine.retime import conflicts, retime
from explorer.combine.reverse import reverse
from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.schedule import Schedule, Symmetry
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.units import MIB
from explorer.verify.schedule import verify_schedule

EXCLUSIVE, PIPELINED = CostModel.EXCLUSIVE, CostModel.PIPELINED


def ring(ranks: int, alpha: float = 1.0, beta: float = 2.0, back: float = 2.0) -> Topology:
    """Ring in both directions; ``back`` is the beta of r -> r-1."""
    devices = tuple(Device(f"gpu{r}", "gpu") for r in range(ranks))
    links = [Link(r, (r + 1) % ranks, "generic", alpha, beta) for r in range(ranks)]
    links += [Link((r + 1) % ranks, r, "generic", alpha, back) for r in range(ranks)]
    return Topology("ring", devices, tuple(links))


def star(ranks: int, alpha: float = 0.5, beta: float = 2.0) -> Topology:
    """One port per rank and direction on a switch."""
    devices = (*(Device(f"gpu{r}", "gpu") for r in range(ranks)), Device("switch0", "switch"))
    links = [Link(r, ranks, "generic", alpha, beta) for r in range(ranks)]
    links += [Link(ranks, r, "generic", alpha, beta) for r in range(ranks)]
    return Topology("star", devices, tuple(links))


def build(
    kind: Collective,
    sends: list[tuple[int, int, int, float, float]],
    *,
    model: CostModel = EXCLUSIVE,
    groups: list[int] | None = None,
    symmetry: tuple[Symmetry, ...] = (),
) -> Schedule:
    """Schedule of (chunk, src, dst, start, end) sends of one MiB."""
    chunk, src, dst = (np.array([s[i] for s in sends], dtype=np.int32) for i in range(3))
    return Schedule(
        kind,
        MIB,
        model,
        src,
        dst,
        chunk,
        np.array(groups if groups is not None else range(len(sends)), dtype=np.int32),
        np.full(len(sends), kind.reduces, dtype=np.bool_),
        np.array([s[3] for s in sends]),
        np.array([s[4] for s in sends]),
        symmetry,
    ).sorted()


def ring_allgather(graph: RankGraph, *, chunks: int = 1, model: CostModel = EXCLUSIVE) -> Schedule:
    """Every chunk goes round, one round after the other, in rounds of 100 us; then retimed."""
    ranks = graph.ranks
    sends = []
    for t in range((ranks - 1) * chunks):
        hop, k = t // chunks, t % chunks
        for r in range(ranks):
            owner = (r - hop) % ranks
            sends.append((owner * chunks + k, r, (r + 1) % ranks, 100.0 * t, 100.0 * t + 50))
    return retime(build(Collective("allgather", ranks, chunks), sends, model=model), graph)


def random_allgather(graph: RankGraph, seed: int, chunks: int) -> Schedule:
    """Random trees, random order: at each step any useful send, one at a time."""
    rng = np.random.default_rng(seed)
    kind = Collective("allgather", graph.ranks, chunks)
    held = {(r, c) for r in range(graph.ranks) for c in kind.input_chunks(r).tolist()}
    sends: list[tuple[int, int, int, float, float]] = []
    while True:
        useful = [
            (c, int(u), int(v))
            for u, v in zip(graph.src, graph.dst, strict=True)
            for c in range(kind.chunk_count)
            if (u, c) in held and (v, c) not in held
        ]
        if not useful:
            break
        c, u, v = useful[int(rng.integers(len(useful)))]
        held.add((v, c))
        t = 10.0 * len(sends)
        sends.append((c, u, v, t, t + 9.0))
    return retime(build(kind, sends), graph)


def check(schedule: Schedule, graph: RankGraph) -> None:
    """Replay the sends by time: values, resources, durations."""
    kind = schedule.collective
    edge = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(graph.src, graph.dst, strict=True))}
    chunks_of = Counter(schedule.group.tolist())
    slack = 1e-9 * (1 + schedule.makespan_us)
    held: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    state: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for c in range(kind.chunk_count):
        for r in kind.sources(c):
            state[r, c] = Counter([r])
    events = []
    for i in range(schedule.sends):
        u, v, g = int(schedule.src[i]), int(schedule.dst[i]), int(schedule.group[i])
        e = edge[u, v]
        alpha = float(graph.alpha_us[e])
        transfer = chunks_of[g] * schedule.chunk_bytes / MIB * float(graph.beta_us_per_mib[e])
        start, end = float(schedule.start_us[i]), float(schedule.end_us[i])
        assert end - start == pytest.approx(alpha + transfer, abs=slack)
        busy = alpha + transfer if schedule.cost_model is EXCLUSIVE else transfer
        for resource in graph.resources_of(e).tolist():
            held[resource][g] = (start, start + busy)
        events.append((end - slack, 0, i))
        events.append((start, 1, i))
    for spans in held.values():
        ordered = sorted(spans.values())
        for (_, free), (start, _) in pairwise(ordered):
            assert start >= free - slack
    carried: dict[int, Counter[int]] = {}
    for _, is_start, i in sorted(events):
        c = int(schedule.chunk[i])
        if is_start:
            carried[i] = Counter(state[int(schedule.src[i]), c])
            assert carried[i], f"send {i}: rank {schedule.src[i]} does not hold chunk {c}"
        elif schedule.reduce[i]:
            state[int(schedule.dst[i]), c] += carried[i]
        else:
            state[int(schedule.dst[i]), c] = carried[i]
    for c in range(kind.chunk_count):
        for r in kind.destinations(c):
            assert state[r, c] == Counter(kind.sources(c)), (r, c)
    assert verify_schedule(schedule, graph) == []


def test_retime_of_a_ring_is_the_textbook_time() -> None:
    graph = rank_graph(ring(5))
    # 4 rounds of alpha + beta · 1 MiB
    schedule = ring_allgather(graph)
    check(schedule, graph)
    assert schedule.makespan_us == 4 * (1.0 + 2.0)
    # pipelined: the link is busy 2 us per chunk, alpha is paid by waiting for data only
    piped = ring_allgather(graph, chunks=2, model=PIPELINED)
    check(piped, graph)
    assert piped.makespan_us == 8 * 2.0 + 1.0


def test_retime_keeps_the_order_on_a_shared_port_and_charges_a_group_one_alpha() -> None:
    graph = rank_graph(star(3))
    kind = Collective("broadcast", 3, 2)
    # both chunks to 1 as one message, then to 2 one by one; order on the egress port as planned
    sends = [
        (0, 0, 1, 10.0, 20.0),
        (1, 0, 1, 10.0, 20.0),
        (1, 0, 2, 30.0, 40.0),
        (0, 0, 2, 50.0, 60.0),
    ]
    got = retime(build(kind, sends, groups=[0, 0, 1, 2]), graph)
    check(got, graph)
    rows = sorted(zip(got.start_us, got.end_us, got.dst, got.chunk, strict=True))
    assert rows == [(0, 5, 1, 0), (0, 5, 1, 1), (5, 8, 2, 1), (8, 11, 2, 0)]


def test_retime_of_its_own_result_changes_nothing() -> None:
    graph = rank_graph(star(6))
    schedule = random_allgather(graph, 3, 2)
    again = retime(schedule, graph)
    for field in ("src", "dst", "chunk", "group", "start_us", "end_us"):
        assert np.array_equal(getattr(schedule, field), getattr(again, field)), field


def test_retime_refuses_a_chunk_that_is_not_there() -> None:
    graph = rank_graph(ring(3))
    sends = [(0, 1, 2, 0.0, 3.0), (0, 0, 1, 3.0, 6.0)]
    with pytest.raises(InputError, match="rank 1 sends chunk 0 to 2 but does not hold it then"):
        retime(build(Collective("broadcast", 3), sends), graph)


def test_retime_names_missing_edges_and_broken_groups() -> None:
    graph = rank_graph(ring(4))
    with pytest.raises(InputError, match="from 0 to 2, the graph has no such edge"):
        retime(build(Collective("broadcast", 4), [(0, 0, 2, 0.0, 3.0)]), graph)
    split = build(
        Collective("broadcast", 4, 2), [(0, 0, 1, 0.0, 3.0), (1, 0, 3, 0.0, 3.0)], groups=[7, 7]
    )
    with pytest.raises(InputError, match="group 0: its sends differ"):
        retime(split, graph)
    with pytest.raises(InputError, match="for 4 ranks, the graph has 5"):
        retime(build(Collective("broadcast", 4), [(0, 0, 1, 0.0, 3.0)]), rank_graph(ring(5)))


def test_retime_keeps_sums_apart_from_what_arrives_later() -> None:
    # 0 and 1 exchange their parts of chunk 0 at the same time, after 0 has sent chunk 1 to 2. The
    # part of 1 has no other reason to wait, but if it came early, 0 would send it back to 1.
    graph = rank_graph(star(3))
    sends = [(1, 0, 2, 0.0, 3.0), (0, 0, 1, 5.0, 8.0), (0, 1, 0, 5.0, 8.0)]
    got = retime(build(Collective("allreduce", 3), sends), graph)
    assert got.start_us.tolist() == [0.0, 3.0, 3.0]
    # in flight when 0 begins to send: fine at the old costs, impossible at those of the graph
    sends = [(1, 0, 2, 0.0, 3.0), (0, 0, 1, 5.0, 8.0), (0, 1, 0, 4.0, 7.0)]
    with pytest.raises(InputError, match="chunk 0 would reach rank 0 from 1 before"):
        retime(build(Collective("allreduce", 3), sends), graph)


def test_empty_schedule_passes_through_everything() -> None:
    graph = rank_graph(Topology("one", (Device("gpu0", "gpu"),), ()))
    gather = build(Collective("allgather", 1), [])
    assert retime(gather, graph).sends == 0
    scatter = reverse(gather, graph)
    assert scatter.collective.name == "reducescatter"
    assert compose(scatter, gather, graph).makespan_us == 0.0


@pytest.mark.parametrize("model", [EXCLUSIVE, PIPELINED])
def test_reverse_of_a_ring_allgather_is_a_reduce_scatter_of_equal_time(model: CostModel) -> None:
    graph = rank_graph(ring(5))
    gather = ring_allgather(graph, chunks=2, model=model)
    scatter = reverse(gather, graph)
    check(scatter, graph)
    assert scatter.makespan_us == gather.makespan_us
    back = reverse(scatter, graph)
    check(back, graph)
    assert back.collective == gather.collective
    assert back.makespan_us == pytest.approx(gather.makespan_us, rel=1e-12)


def test_reverse_of_broadcast_is_reduce_to_the_same_root() -> None:
    graph = rank_graph(ring(4))
    kind = Collective("broadcast", 4, 1, root=2)
    sends = [(0, 2, 3, 0.0, 3.0), (0, 2, 1, 0.0, 3.0), (0, 3, 0, 3.0, 6.0)]
    got = reverse(build(kind, sends), graph)
    check(got, graph)
    assert got.collective == Collective("reduce", 4, 1, root=2)
    rows = sorted(zip(got.start_us, got.src, got.dst, strict=True))
    assert rows == [(0, 0, 3), (3, 1, 2), (3, 3, 2)]
    assert got.reduce.all()


def test_reverse_on_asymmetric_links_is_retimed() -> None:
    # r -> r+1 takes 1 + 2, r+1 -> r takes 1 + 8
    graph = rank_graph(ring(4, back=8.0))
    gather = ring_allgather(graph)
    scatter = reverse(gather, graph)
    check(scatter, graph)
    assert gather.makespan_us == 3 * 3.0
    assert scatter.makespan_us == 3 * 9.0


def test_reverse_refuses_what_is_no_tree() -> None:
    graph = rank_graph(ring(3))
    kind = Collective("broadcast", 3)
    twice = [(0, 0, 1, 0.0, 3.0), (0, 0, 2, 0.0, 3.0), (0, 2, 1, 3.0, 6.0)]
    with pytest.raises(InputError, match="rank 1 receives chunk 0 more than once"):
        reverse(build(kind, twice), graph)
    own = [(0, 0, 1, 0.0, 3.0), (0, 1, 0, 3.0, 6.0), (0, 0, 2, 0.0, 3.0)]
    with pytest.raises(InputError, match="rank 0 receives chunk 0, which is its own"):
        reverse(build(kind, own), graph)
    with pytest.raises(InputError, match="alltoall cannot be reversed"):
        reverse(build(Collective("alltoall", 3), []), graph)
    one_way = graph.subgraph(graph.dst == (graph.src + 1) % 3)
    sends = [(0, 0, 1, 0.0, 3.0), (0, 1, 2, 3.0, 6.0)]
    with pytest.raises(InputError, match="from 1 to 0, the graph has no such edge"):
        reverse(build(kind, sends), one_way)


def test_compose_sequential_and_overlapped() -> None:
    # ring: every link is busy all the time, nothing can overlap
    graph = rank_graph(ring(5))
    gather = ring_allgather(graph)
    scatter = reverse(gather, graph)
    both = compose(scatter, gather, graph)
    check(both, graph)
    assert both.collective == Collective("allreduce", 5)
    assert both.makespan_us == 2 * gather.makespan_us


def test_compose_fills_gaps() -> None:
    # a line 0 - 1 - 2, a round is 3 us. ReduceScatter: chunk 1 to the middle, then 0 and 2 to the
    # middle, then on to their owners. The sum of chunk 1 is whole after one round and the links out
    # of the middle are idle in the second: its gather fits in there, 5 rounds instead of 6.
    line = Topology(
        "line",
        tuple(Device(f"gpu{r}", "gpu") for r in range(3)),
        tuple(Link(u, v, "generic", 1.0, 2.0) for u, v in ((0, 1), (1, 0), (1, 2), (2, 1))),
    )
    graph = rank_graph(line)
    rounds = [
        [(0, 0, 1), (2, 2, 1)],
        [(0, 1, 2), (2, 1, 0)],
        [(1, 1, 0), (1, 1, 2)],
    ]
    sends = [(*s, 3.0 * i, 3.0 * i + 3) for i, row in enumerate(rounds) for s in row]
    gather = build(Collective("allgather", 3), sends)
    both = compose(reverse(gather, graph), gather, graph)
    check(both, graph)
    assert gather.makespan_us == 3 * 3.0
    assert both.makespan_us == 5 * 3.0
    middle = both.chunk == 1
    assert sorted(both.start_us[middle & ~both.reduce].tolist()) == [3.0, 3.0]


def test_compose_refuses_what_does_not_fit() -> None:
    graph = rank_graph(ring(4))
    gather = ring_allgather(graph)
    with pytest.raises(InputError) as caught:
        compose(gather, replace(gather, chunk_bytes=8), graph)
    text = str(caught.value)
    assert "first schedule: got allgather, expected reducescatter" in text
    assert "differ in chunk bytes: 1048576 and 8" in text


def test_symmetry_survives_only_where_it_holds() -> None:
    graph = rank_graph(ring(4))
    turn = Symmetry(np.array([1, 2, 3, 0], dtype=np.int32), np.array([1, 2, 3, 0], dtype=np.int32))
    gather = replace(ring_allgather(graph), symmetry=(turn,))
    assert len(retime(gather, graph).symmetry) == 1
    assert len(compose(reverse(gather, graph), gather, graph).symmetry) == 1
    # one slow link: the rotation is no symmetry of the times any more
    slow = replace(graph, beta_us_per_mib=graph.beta_us_per_mib * np.where(graph.src == 0, 3, 1))
    assert retime(gather, slow).symmetry == ()


@given(
    seed=st.integers(0, 10_000),
    ranks=st.integers(2, 5),
    chunks=st.integers(1, 2),
    switched=st.booleans(),
)
def test_random_trees_stay_valid(seed: int, ranks: int, chunks: int, switched: bool) -> None:
    graph = rank_graph(star(ranks) if switched or ranks == 2 else ring(ranks, back=5.0))
    gather = random_allgather(graph, seed, chunks)
    check(gather, graph)
    assert not conflicts(gather, graph)
    scatter = reverse(gather, graph)
    check(scatter, graph)
    both = compose(scatter, gather, graph)
    check(both, graph)
    assert both.makespan_us <= scatter.makespan_us + gather.makespan_us + 1e-9


def test_large_schedule_is_exact() -> None:
    # 300 ranks, 89,700 sends: ring AllGather takes R - 1 rounds
    graph = rank_graph(ring(300))
    gather = ring_allgather(graph)
    assert gather.sends == 300 * 299
    assert gather.makespan_us == 299 * 3.0
    both = compose(reverse(gather, graph), gather, graph)
    assert both.makespan_us == 2 * 299 * 3.0
