"""What lowering does to the time of a plan, told by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lower_schedules import (
    network_of,
    random_graph,
    random_schedule,
    recursive_doubling,
    ring_allgather,
    ring_allreduce,
    schedule_of,
)

from explorer.combine.compose import compose
from explorer.combine.reverse import reverse
from explorer.core.collective import COLLECTIVES, Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.lower import UNLIMITED, lower, lowerings
from explorer.lower.pace import paced
from explorer.lower.sends import grouped
from explorer.units import MIB
from sim.program import Op, Program
from sim.simulate import simulate


def time_us(program: Program, graph: RankGraph, schedule: Schedule) -> float:
    return simulate(
        program,
        network_of(graph),
        schedule.chunk_bytes,
        cost_model=schedule.cost_model.value,
        engine="compiled",
    ).time_us


def planned(seed: int, ports: bool, cost_model: CostModel, largest: int) -> tuple:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 8))
    name = COLLECTIVES[seed % len(COLLECTIVES)]
    collective = Collective(name, ranks, int(rng.integers(1, 4)))
    graph = random_graph(rng, ranks, ports=ports)
    return graph, random_schedule(
        rng, graph, collective, largest=largest, cost_model=cost_model, chunk_bytes=1 << 15
    )


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    largest=st.integers(1, 6),
    placement=st.sampled_from(["out", "in", "both"]),
)
def test_program_keeps_a_plan_that_starts_sends_at_events_of_their_own_rank(
    seed, largest, placement
):
    # without shared ports a send starts when its data arrives or its edge is free: own events
    graph, schedule = planned(seed, False, CostModel.EXCLUSIVE, largest)
    for variant in ("anchored", "fused", "paced"):
        program = lower(schedule, graph, placement=placement, variant=variant)
        measured = time_us(program, graph, schedule)
        if variant == "paced":
            # the same order is open to it, but it may find a shorter one
            assert measured <= schedule.makespan_us * (1 + 1e-9)
        else:
            assert measured == pytest.approx(schedule.makespan_us, rel=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), largest=st.integers(1, 3))
def test_further_connections_carry_what_one_has_too_few_slots_for(seed, largest):
    graph, schedule = planned(seed, False, CostModel.PIPELINED, largest)
    program = lower(schedule, graph, variant="anchored-parallel", limits=UNLIMITED)
    assert time_us(program, graph, schedule) == pytest.approx(schedule.makespan_us, rel=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), largest=st.integers(1, 4))
def test_paced_plan_has_the_time_its_program_has(seed, largest):
    graph, schedule = planned(seed, True, CostModel.EXCLUSIVE, largest)
    plan = paced(
        grouped(schedule, graph),
        graph,
        cost_model=schedule.cost_model,
        chunk_bytes=schedule.chunk_bytes,
        slots=2,
    )
    program = lower(schedule, graph, variant="paced", limits=UNLIMITED)
    assert time_us(program, graph, schedule) == pytest.approx(plan.end_us.max(), rel=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), largest=st.integers(1, 3), chunks=st.integers(1, 3))
def test_paced_plan_has_the_time_its_program_has_where_many_things_happen_at_once(
    seed, largest, chunks
):
    # equal links: whole rounds of messages end together, up to rounding
    graph = switch_graph(6, alpha_us=0.7)
    gather = random_schedule(
        np.random.default_rng(seed), graph, Collective("allgather", 6, chunks), largest=largest
    )
    schedule = reverse(gather, graph)
    plan = paced(
        grouped(schedule, graph),
        graph,
        cost_model=schedule.cost_model,
        chunk_bytes=schedule.chunk_bytes,
        slots=2,
    )
    program = lower(schedule, graph, variant="paced", limits=UNLIMITED)
    assert time_us(program, graph, schedule) == pytest.approx(plan.end_us.max(), rel=1e-9)


def test_sends_of_gathered_chunks_are_anchored_too():
    # rank 0's second send starts when its first is over, and copies chunks it always had
    rows = [
        (0, 1, 1, 0, False, 0.0, 1.0),
        (0, 2, 0, 1, False, 1.0, 3.0),
        (0, 2, 2, 1, False, 1.0, 3.0),
        (0, 1, 0, 2, False, 3.0, 5.0),
        (0, 1, 2, 2, False, 3.0, 5.0),
        (0, 2, 1, 3, False, 5.0, 6.0),
    ]
    program = lower(schedule_of(Collective("broadcast", 3, 3), rows))
    send = int(np.flatnonzero((program.op == Op.SEND) & (program.cnt == 2))[1])
    assert program.tb_send[program.step_block()[send]] == 2
    waits = program.dep_step[program.dep_first[send] : program.dep_first[send + 1]]
    assert [program.where(int(s)) for s in waits] == ["gpu 0 tb 0 step 0"]


def test_best_lowering_of_a_reversed_plan_is_near_the_plan():
    # Reversed, ends of sends have become starts, mostly at events of other ranks.
    rng = np.random.default_rng(3)
    graph = switch_graph(8)
    gather = random_schedule(rng, graph, Collective("allgather", 8, 2), largest=2)
    scatter = reverse(gather, graph)
    total = compose(scatter, gather, graph)
    for schedule in (scatter, total):
        ratio = {
            name: time_us(program, graph, schedule) / schedule.makespan_us
            for name, program in lowerings(schedule, graph)
        }
        assert ratio["paced"] < ratio["plain"]
        assert min(ratio.values()) < 1.1


def switch_graph(ranks: int, alpha_us: float = 1.0) -> RankGraph:
    """Every pair over one switch: a port out and a port in per rank."""
    pairs = [(s, d) for s in range(ranks) for d in range(ranks) if s != d]
    return RankGraph(
        ranks=ranks,
        node_of=np.zeros(ranks, np.int32),
        src=np.array([s for s, _ in pairs], np.int32),
        dst=np.array([d for _, d in pairs], np.int32),
        alpha_us=np.full(len(pairs), alpha_us),
        beta_us_per_mib=np.full(len(pairs), 16.0),
        resource_first=np.arange(0, 2 * len(pairs) + 1, 2),
        resource=np.array([x for s, d in pairs for x in (s, ranks + d)], np.int32),
        resources=tuple([f"out{r}" for r in range(ranks)] + [f"in{r}" for r in range(ranks)]),
    )


def unit_graph(schedule: Schedule) -> RankGraph:
    """Edges of a schedule at 0.5 us and 0.5 us per chunk, each a resource of its own."""
    pairs = sorted(set(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True)))
    return RankGraph(
        ranks=schedule.collective.ranks,
        node_of=np.zeros(schedule.collective.ranks, np.int32),
        src=np.array([s for s, _ in pairs], np.int32),
        dst=np.array([d for _, d in pairs], np.int32),
        alpha_us=np.full(len(pairs), 0.5),
        beta_us_per_mib=np.full(len(pairs), 0.5 * MIB / schedule.chunk_bytes),
        resource_first=np.arange(len(pairs) + 1),
        resource=np.arange(len(pairs), dtype=np.int32),
        resources=tuple(f"{s}->{d}" for s, d in pairs),
    )


@pytest.mark.parametrize(
    ("schedule", "rounds"),
    [
        (ring_allgather(6), 5),
        (ring_allgather(4, 3), 9),
        (ring_allreduce(5), 8),
        (recursive_doubling(4, 1), None),
    ],
    ids=["ring 6", "ring 4x3", "ring allreduce", "recursive doubling"],
)
def test_rings_take_a_round_per_chunk(schedule, rounds):
    graph = unit_graph(schedule)
    for placement in ("out", "in"):
        for name, program in lowerings(schedule, graph, placement=placement):
            # a message of 4 chunks takes 0.5 + 4 * 0.5 us, and there are two rounds
            expected = 2 * 2.5 if rounds is None else rounds
            assert time_us(program, graph, schedule) == pytest.approx(expected), name


def test_group_pays_one_alpha_although_its_chunks_lie_apart():
    # chunks 0 and 2 of three travel together: 1 us + 2 chunks of 1 us, twice
    collective = Collective("broadcast", 3, 3)
    chunk = MIB
    rows = [
        (0, 1, 0, 0, False, 0.0, 3.0),
        (0, 1, 2, 0, False, 0.0, 3.0),
        (0, 1, 1, 1, False, 3.0, 5.0),
        (1, 2, 0, 2, False, 3.0, 6.0),
        (1, 2, 2, 2, False, 3.0, 6.0),
        (1, 2, 1, 3, False, 6.0, 8.0),
    ]
    schedule = schedule_of(collective, rows, chunk_bytes=chunk)
    graph = RankGraph(
        3,
        np.zeros(3, np.int32),
        np.array([0, 1], np.int32),
        np.array([1, 2], np.int32),
        np.array([1.0, 1.0]),
        np.array([1.0, 1.0]),
        np.array([0, 1, 2]),
        np.array([0, 1], np.int32),
        ("0->1", "1->2"),
    )
    program = lower(schedule, graph)
    assert sorted(program.cnt[program.op == 0].tolist()) == [1, 1, 2, 2]
    assert time_us(program, graph, schedule) == 8.0
