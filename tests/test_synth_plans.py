"""Plans of synthesis: known machines, exhaustive search, and what holds for any machine."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.core.collective import Collective, Sizing
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.core.sketch import Sketch
from explorer.errors import InfeasibleError, InputError
from explorer.synth.reductions import reversed_graph
from explorer.synth.registry import SYNTHESIZERS, synthesize
from tests.synth_instances import (
    CHUNK,
    DATA,
    EXCLUSIVE,
    PIPELINED,
    Known,
    graph_of,
    least_makespan,
    plan,
    ring,
    switch,
)

SKETCHES = DATA / "sketches"
RELAYED = Sketch("sk1", senders=((0, 1),))


def relayed(nodes: int) -> Sketch:
    """TACCL's sk1-ndv2 for any number of nodes."""
    return replace(RELAYED, symmetry=((8, 8 * nodes),))


@pytest.mark.parametrize(
    "known",
    [
        # TACCL proves 69; a GPU has 6 of the 7 chunks it needs by 46, in multiples of 23.
        Known("topo-ndv2-1MB.json", 1, SKETCHES / "taccl_sk1-ndv2-n1.json", "allgather", 69.0),
        # The NIC: 8 chunks of 105 in three messages of 2.6; then 69 for the last in the node.
        Known("topo-ndv2-1MB.json", 2, SKETCHES / "taccl_sk1-ndv2-n2.json", "allgather", 916.8),
        # 24 chunks in five messages, 69.
        Known("topo-ndv2-1MB.json", 4, SKETCHES / "taccl_sk1-ndv2-n4.json", "allgather", 2602.0),
        Known("topo-ndv2-1MB.json", 8, relayed(8), "allgather", 5972.4),
        # A GPU takes 62 chunks of 8 through its port.
        Known("topo-dgx2-1MB.json", 2, SKETCHES / "taccl_sk1-dgx2-n2.json", "allgather", 496.0),
        Known("topo-dgx2-1MB.json", 1, SKETCHES / "taccl_sk-dgx2-n1.json", "allgather", 240.0),
        # Bruck in the node (4 · 30 + 15 · 1), after 260 + 20.5 between the nodes.
        Known("topo-dgx2-1KB.json", 2, SKETCHES / "taccl_sk2-dgx2-n2.json", "allgather", 415.5),
        # The NIC: 64 chunks of 105 in three messages; the last ones end at the gateway.
        Known("topo-ndv2-1MB.json", 2, SKETCHES / "taccl_sk1-ndv2-n2.json", "alltoall", 6727.8),
        Known("topo-dgx2-1KB.json", 2, SKETCHES / "taccl_sk2-dgx2-n2.json", "alltoall", 991.5),
        Known("topo-ndv2-1MB.json", 2, SKETCHES / "taccl_sk1-ndv2-n2.json", "reducescatter", 916.8),
        Known("topo-dgx2-1MB.json", 2, SKETCHES / "taccl_sk1-dgx2-n2.json", "allreduce", 992.0),
    ],
    ids=lambda k: f"{k.topology[5:-5]}-x{k.nodes}-{k.collective}",
)
def test_known_machines_are_planned_as_well_as_ever(known: Known) -> None:
    found = known.solve()
    assert found.schedule.makespan_us <= known.at_most * (1 + 1e-9)
    assert not found.limited
    for stage in found.stages:
        if stage.bound is not None and "/" not in stage.name:
            assert stage.bound <= found.schedule.makespan_us * (1 + 1e-9)


def test_the_step_model_proves_what_the_start_misses() -> None:
    stages = {s.name: s for s in Known(
        "topo-ndv2-1MB.json", 1, SKETCHES / "taccl_sk1-ndv2-n1.json", "allgather", 69.0
    ).solve().stages}  # fmt: skip
    assert stages["start"].objective == 92.0
    stepped = stages["stepped"]
    assert (stepped.status, stepped.objective, stepped.bound) == ("optimal", 69.0, 69.0)
    assert stages["routing"].status == "skipped: the schedule meets the lower bound"


def test_routing_proves_a_bound_that_counts_what_follows_the_nic() -> None:
    # 840 for the bytes, 2.6 for one message at least, 69 from the receiving GPU to the farthest.
    found = Known(
        "topo-ndv2-1MB.json", 2, SKETCHES / "taccl_sk1-ndv2-n2.json", "allgather", 916.8
    ).solve()
    (routing,) = [s for s in found.stages if s.name == "routing"]
    assert routing.status == "optimal"
    assert routing.objective == pytest.approx(911.6)
    assert routing.bound == pytest.approx(911.6, rel=1e-4)


def random_graph(random: np.random.Generator) -> RankGraph:
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b and random.random() < 0.8]
    edges = [
        (a, b, float(random.choice([0, 0, 1, 2])), float(random.choice([1, 2, 3])))
        for a, b in pairs
    ]
    return graph_of(3, edges, ports=bool(random.random() < 0.5))


@pytest.mark.parametrize("seed", range(10))
def test_three_ranks_as_short_as_an_exhaustive_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    name = ("allgather", "broadcast")[seed % 2]
    cost_model = PIPELINED if seed % 5 == 4 else EXCLUSIVE
    chunks = 1 if name == "allgather" else int(random.integers(1, 4))
    while True:
        graph = random_graph(random)
        try:
            found = plan(graph, name, chunks=chunks, cost_model=cost_model)
        except InfeasibleError:
            continue
        break
    best = found.schedule.makespan_us
    collective = Collective(name, 3, chunks)
    assert least_makespan(graph, collective, cost_model, best + 1e-3) == pytest.approx(best)
    assert all(s.bound is None or s.bound <= best + 1e-9 for s in found.stages)


@st.composite
def problems(draw: st.DrawFn) -> tuple[RankGraph, str, int, int, object]:
    """A strongly connected random graph and a collective."""
    ranks = draw(st.integers(2, 6))
    number = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    cost = st.sampled_from([0.25, 1.0, 1.5, 7.0])
    around = {(r, (r + 1) % ranks) for r in range(ranks)}
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    chosen = around | set(draw(st.lists(st.sampled_from(pairs), max_size=12)))
    edges = [(a, b, draw(number), draw(cost)) for a, b in sorted(chosen)]
    split = draw(st.integers(1, ranks))
    nodes = [0] * split + [1] * (ranks - split)
    graph = graph_of(ranks, edges, ports=draw(st.booleans()), nodes=nodes)
    name = draw(
        st.sampled_from(
            ["allgather", "alltoall", "broadcast", "reducescatter", "reduce", "allreduce"]
        )
    )
    model = draw(st.sampled_from([EXCLUSIVE, PIPELINED]))
    return graph, name, draw(st.integers(1, 2)), draw(st.integers(0, ranks - 1)), model


@pytest.mark.parametrize("method", sorted(SYNTHESIZERS))
@settings(max_examples=12)
@given(problems())
def test_any_plan_is_valid_and_no_shorter_than_its_bounds(
    method: str, problem: tuple[RankGraph, str, int, int, object]
) -> None:
    graph, name, chunks, root, model = problem
    collective = Collective(name, graph.ranks, chunks)
    found = plan(
        graph,
        name,
        chunks=chunks,
        root=root if collective.rooted else 0,
        cost_model=model,  # type: ignore[arg-type]
        method=method,
    )
    assert found.candidates
    for stage in found.stages:
        if stage.bound is not None and "/" not in stage.name:
            assert stage.bound <= found.schedule.makespan_us * (1 + 1e-9)


def test_simple_machines_have_the_obvious_optimum() -> None:
    # Ring of five: two steps each way. Switch of six: five chunks through every port.
    assert plan(ring(5, 0.5, 2.0), "allgather").schedule.makespan_us == 5.0
    assert plan(switch(6, 0.0, 2.0), "allgather").schedule.makespan_us == 10.0
    # Large latency: Bruck's 1 + 2 + 4 chunks in three messages, not seven messages.
    assert plan(switch(8, 100.0, 1.0), "allgather").schedule.makespan_us == 307.0
    # A broadcast in four chunks down a chain of three: 1 + 4.
    chain = graph_of(3, [(0, 1, 0, 1), (1, 2, 0, 1), (2, 1, 0, 1), (1, 0, 0, 1)])
    assert plan(chain, "broadcast", chunks=4).schedule.makespan_us == 5.0
    assert plan(chain, "reduce", chunks=4).schedule.makespan_us == 5.0


def test_nothing_moves_on_one_rank_and_chunks_that_stay_are_not_sent() -> None:
    alone = plan(graph_of(1, []), "allgather")
    assert (alone.schedule.sends, alone.schedule.makespan_us) == (0, 0.0)
    assert plan(graph_of(1, []), "allreduce").schedule.sends == 0
    assert plan(switch(3), "alltoall").schedule.sends == 6


def same(one: Schedule, other: Schedule) -> bool:
    fields = ("src", "dst", "chunk", "group", "reduce", "start_us", "end_us")
    return all(getattr(one, f).tobytes() == getattr(other, f).tobytes() for f in fields)


def test_the_same_input_gives_the_same_bytes() -> None:
    graph = graph_of(
        6,
        [(a, b, 0.5, 1.0 + (a * b) % 3) for a in range(6) for b in range(6) if a != b],
        nodes=[0, 0, 0, 1, 1, 1],
    )
    runs = [plan(graph, "allgather", chunks=2, seed=3) for _ in range(2)]
    assert len(runs[0].candidates) == len(runs[1].candidates)
    for one, other in zip(runs[0].candidates, runs[1].candidates, strict=True):
        assert same(one, other)
    plain = [[(s.name, s.status, s.objective, s.bound, s.nodes) for s in r.stages] for r in runs]
    assert plain[0] == plain[1]


def test_a_time_limit_still_gives_a_schedule_and_says_so() -> None:
    found = plan(switch(8, 0.3, 1.0), "allgather", chunks=3, time_limit_s=1e-6)
    assert found.limited
    assert found.schedule.makespan_us > 0
    assert "time limit" in {stage.status for stage in found.stages}


def test_ctrl_c_keeps_the_best_schedule() -> None:
    # Every arc of a switch of 14 with 2 chunks makes routing take seconds.
    edges = [(a, b, 0.3, 1.0 + (a * b) % 5) for a in range(14) for b in range(14) if a != b]
    graph = graph_of(14, edges, ports=True)
    plan(ring(3), "allgather")  # the kernel is compiled before the clock starts
    press = threading.Timer(0.4, signal.raise_signal, [signal.SIGINT])
    press.start()
    found = plan(graph, "allgather", chunks=2)
    press.join()
    assert found.limited
    assert "interrupted" in {stage.status for stage in found.stages}


def test_a_sketch_can_limit_the_solver() -> None:
    found = plan(switch(8, 0.3, 1.0), "allgather", chunks=3, sketch=Sketch("s", time_limit_s=1e-6))
    assert found.limited


def test_candidates_differ() -> None:
    found = Known(
        "topo-dgx2-1MB.json", 2, SKETCHES / "taccl_sk1-dgx2-n2.json", "allgather", 496.0
    ).solve()
    assert len(found.candidates) > 1
    for i, one in enumerate(found.candidates):
        assert not any(same(one, other) for other in found.candidates[i + 1 :])


def test_symmetry_of_a_sketch_is_claimed_by_the_schedule() -> None:
    found = plan(ring(6), "allgather", sketch=Sketch("s", symmetry=((1, 6),)))
    assert found.schedule.makespan_us == 3.0
    assert [g.rank.tolist() for g in found.schedule.symmetry] == [[1, 2, 3, 4, 5, 0]]


def test_chunks_leave_their_node_by_the_relay() -> None:
    # Two nodes of two; both ranks have a link out, the sketch sends all through rank 1.
    edges = [(a, b, 0, 1) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))]
    edges += [(a, b, 1, 4) for a in (0, 1) for b in (2, 3)]
    edges += [(b, a, 1, 4) for a in (0, 1) for b in (2, 3)]
    graph = graph_of(4, edges, nodes=[0, 0, 1, 1])
    found = plan(graph, "allgather", sketch=Sketch("s", relay_of=(1, 1)))
    for schedule in found.candidates:
        crossing = schedule.src // 2 != schedule.dst // 2
        own = schedule.chunk // 2 == schedule.src // 2
        assert set(schedule.src[crossing & own].tolist()) == {1, 3}


def test_unreachable_ranks_are_named_before_anything_is_solved() -> None:
    graph = graph_of(3, [(0, 1, 0, 1), (1, 0, 0, 1)])
    with pytest.raises(InfeasibleError, match="ranks 0-1 cannot reach 2"):
        plan(graph, "allgather")
    one_way = graph_of(3, [(0, 1, 0, 1), (1, 2, 0, 1)])
    assert plan(one_way, "broadcast").schedule.makespan_us == 2.0
    with pytest.raises(InfeasibleError, match="rank 2 cannot reach ranks 0-1"):
        plan(one_way, "broadcast", root=2)
    with pytest.raises(InfeasibleError, match="rank 0 cannot reach ranks 1-2"):
        plan(one_way, "reduce", root=0)


def test_a_node_may_need_the_other_one_to_reach_its_own_ranks() -> None:
    # 1 and 2 share a node, but 2 reaches 1 over 0 only.
    graph = graph_of(3, [(0, 1, 0, 1), (1, 2, 0, 1), (2, 0, 0, 1)], nodes=[0, 1, 1])
    assert plan(graph, "allgather").schedule.makespan_us == 2.0


def test_relays_that_cut_chunks_off_are_infeasible() -> None:
    # Rank 0's chunks may leave through rank 1 only, which no link of the node reaches.
    edges = [(1, 0, 0, 1), (0, 2, 0, 1), (1, 2, 0, 1), (2, 0, 0, 1), (3, 2, 0, 1), (2, 3, 0, 1)]
    edges += [(2, 1, 0, 1)]
    graph = graph_of(4, edges, nodes=[0, 0, 1, 1])
    with pytest.raises(InfeasibleError, match="rank 0 cannot reach"):
        plan(graph, "allgather", sketch=Sketch("s", relay_of=(1, 1)))


def test_words_are_checked() -> None:
    with pytest.raises(InputError, match="did you mean 'milp'"):
        plan(ring(3), "allgather", method="mlip")
    with pytest.raises(InputError, match="the collective has 4 ranks, the graph 3"):
        synthesize(ring(3), Collective("allgather", 4), CHUNK, EXCLUSIVE, None)


def test_sizes_scale_the_bytes_and_not_the_latency() -> None:
    graph = switch(4, 1.0, 8.0)
    small = plan(graph, "allgather", amount=Sizing(None, None, 1 << 17))
    # An eighth of a MiB: Bruck, 2 messages and 3 chunks of 1 us.
    assert small.schedule.makespan_us == 2 * 1.0 + 3 * 1.0


def test_the_reversed_graph_is_its_own_inverse() -> None:
    graph = graph_of(3, [(0, 1, 1, 2), (1, 2, 0, 3), (2, 0, 0, 1), (2, 1, 2, 5)], ports=True)
    back = reversed_graph(reversed_graph(graph))
    assert back.src.tolist() == graph.src.tolist()
    assert back.beta_us_per_mib.tolist() == graph.beta_us_per_mib.tolist()
    assert back.resource.tolist() == graph.resource.tolist()
    once = reversed_graph(graph)
    edge = once.edge_index()[1, 0]
    assert (once.alpha_us[edge], once.beta_us_per_mib[edge]) == (1.0, 2.0)
    assert [once.resources[r] for r in once.resources_of(edge)] == ["out0", "in1"]
