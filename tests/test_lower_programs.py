"""Lowered programs do what the collective asks, without races, deadlocks or writes to the input.

Checked by the replay in ``lower_replay`` and by the verifier, which know nothing of lowering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lower_replay import Failure, check
from lower_schedules import (
    one_shot,
    random_graph,
    random_schedule,
    recursive_doubling,
    ring_allgather,
    ring_allreduce,
    schedule_of,
)

from explorer.core.collective import COLLECTIVES, Collective
from explorer.core.costs import CostModel
from explorer.core.schedule import Schedule
from explorer.lower import VARIANTS, BlockLimits, lower, lowerings
from explorer.lower.limits import EVERYWHERE, Limits
from explorer.verify.program import verify_program
from sim.program import Buffer, Op, Program

PLACEMENTS = ("out", "in", "both")
CALLS = {"out": (False,), "in": (True,), "both": (False, True)}
TINY = BlockLimits(blocks=64, steps=6, channels=32, blocks_per_channel=2, count=3)
"""Limits that cut messages and blocks of even small programs."""


def prove(program: Program, collective: Collective, placement: str, seed: int) -> None:
    """Both checkers agree that a program is right, for small and for large chunks."""
    report = verify_program(program, collective)
    assert report.ok, report.errors
    for in_place in CALLS[placement]:
        for group in (1, 71):
            check(program, collective, in_place=in_place, seed=seed, group=group)


def split(collective: Collective, instances: int) -> Collective:
    return Collective(
        collective.name, collective.ranks, collective.chunks_per_rank * instances, collective.root
    )


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[int, Schedule, object, Limits]:
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    name = draw(st.sampled_from(COLLECTIVES))
    ranks = draw(st.integers(2, 8))
    rooted = name in ("broadcast", "reduce")
    chunks = draw(st.integers(1, 6 if rooted else 2))
    collective = Collective(name, ranks, chunks, draw(st.integers(0, ranks - 1)) if rooted else 0)
    graph = random_graph(rng, ranks, ports=draw(st.booleans()))
    schedule = random_schedule(
        rng,
        graph,
        collective,
        largest=draw(st.integers(1, 6)),
        cost_model=draw(st.sampled_from(CostModel)),
    )
    return seed, schedule, graph, draw(st.sampled_from([EVERYWHERE, TINY]))


@settings(max_examples=50)
@given(
    case=random_cases(),
    placement=st.sampled_from(PLACEMENTS),
    instances=st.integers(1, 2),
    protocol=st.sampled_from(["Simple", "LL"]),
    fused_receives=st.booleans(),
)
def test_every_variant_of_a_random_plan_is_right(
    case, placement, instances, protocol, fused_receives
):
    seed, schedule, graph, limits = case
    collective = split(schedule.collective, instances)
    names = []
    for name, program in lowerings(
        schedule,
        graph,
        placement=placement,
        instances=instances,
        protocol=protocol,
        limits=limits,
        fused_receives=fused_receives,
    ):
        names.append(name)
        prove(program, collective, placement, seed)
        if not fused_receives:
            assert set(program.op.tolist()) <= {Op.SEND, Op.RECV, Op.COPY, Op.REDUCE}
    assert names[0] == "anchored"


def special() -> Iterator[tuple[str, Schedule]]:
    for ranks, chunks in ((2, 1), (4, 1), (8, 1), (4, 2)):
        yield f"recursive doubling {ranks}x{chunks}", recursive_doubling(ranks, chunks)
        yield f"one shot {ranks}x{chunks}", one_shot(ranks, chunks)
    yield "ring allgather", ring_allgather(5, 2)
    yield "ring allreduce", ring_allreduce(5)


SPECIAL = dict(special())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("key", SPECIAL)
def test_exchanges_and_rings_are_right(key, placement):
    schedule = SPECIAL[key]
    for _, program in lowerings(schedule, placement=placement):
        prove(program, schedule.collective, placement, seed=7)


def test_exchange_of_more_messages_than_slots_does_not_wait_for_the_other_side():
    # In place, both ranks send what the other one's sum will overwrite: with 8 chunks of slot
    # size, neither send ends before the other side has begun to receive.
    schedule = recursive_doubling(2, 4)
    program = lower(schedule, placement="in", variant="plain")
    check(program, schedule.collective, in_place=True, seed=1, group=1)


def test_replay_finds_a_missing_dependency():
    # the replay of these tests can fail: without its dependencies a relay sends garbage
    schedule = schedule_of(
        Collective("broadcast", 3),
        [(0, 1, 0, 0, False, 0.0, 1.0), (1, 2, 0, 1, False, 1.0, 2.0)],
    )
    program = lower(schedule)
    assert len(program.dep_step) == 1
    broken = replace(
        program, dep_first=np.zeros_like(program.dep_first), dep_step=program.dep_step[:0]
    )
    with pytest.raises(Failure, match="races"):
        check(broken, schedule.collective, in_place=False, seed=0, group=1)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_placements_name_the_buffers_as_msccl_tools_does(name):
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 4)
    schedule = random_schedule(rng, graph, Collective(name, 4, 2), largest=2)
    program = lower(schedule, placement="in")
    assert (program.in_place, program.out_of_place) == (True, False)
    unused = program.i_chunks if name == "allgather" else program.o_chunks
    assert not unused.any()
    both = lower(schedule, placement="both")
    assert (both.in_place, both.out_of_place) == (True, True)
    for program in (both, lower(schedule, placement="out")):
        written = program.dst_off >= 0
        assert not (written & (program.dst_buf == Buffer.INPUT)).any()


def test_programs_repeat_bit_by_bit():
    rng = np.random.default_rng(11)
    graph = random_graph(rng, 6, ports=True)
    schedule = random_schedule(rng, graph, Collective("allreduce", 6, 2), largest=4)
    first, second = (
        [(v, p.dep_step.tolist(), p.dst_off.tolist()) for v, p in lowerings(schedule, graph)]
        for _ in range(2)
    )
    assert first == second
    assert {v for v, *_ in first} <= set(VARIANTS)
