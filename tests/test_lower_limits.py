"""Programs keep to what a runtime can load, or say what they exceed."""

from __future__ import annotations

import numpy as np
import pytest
from lower_replay import check
from lower_schedules import (
    random_graph,
    random_schedule,
    recursive_doubling,
    ring_allgather,
    schedule_of,
)

from explorer.core.collective import Collective
from explorer.formats.dialects import exceeded, limits_of
from explorer.lower import EVERYWHERE, UNLIMITED, BlockLimits, fits, lower, lowerings
from sim.program import OP_SENDS, Buffer, Op, ProgramBuilder


def test_long_lanes_go_on_in_further_channels():
    # 100 chunks over one edge: 50 steps to a block are two blocks at either end
    rows = [(0, 1, c, c, False, float(c), c + 1.0) for c in range(100)]
    schedule = schedule_of(Collective("broadcast", 2, 100), rows)
    program = lower(schedule, limits=BlockLimits(steps=50, count=50))
    sizes = np.diff(program.tb_first).tolist()
    assert sizes == [50, 50, 2, 50, 50]
    assert program.tb_channel.tolist() == [0, 1, 0, 0, 1]
    # the second block of each end waits for the first to be done
    assert [program.where(int(s)) for s in program.dep_step] == [
        "gpu 0 tb 0 step 49",
        "gpu 1 tb 0 step 49",
    ]
    check(program, schedule.collective, in_place=False, seed=1, group=1)
    assert np.diff(lower(schedule, limits=UNLIMITED).tb_first).tolist() == [100, 1, 100]


def test_both_ends_of_a_connection_are_cut_at_the_same_message():
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 5)
    schedule = random_schedule(rng, graph, Collective("allreduce", 5, 8), largest=4)
    limits = BlockLimits(steps=16, blocks=200, channels=32, blocks_per_channel=32, count=71)
    program = lower(schedule, graph, limits=limits)
    assert program.channels > 1
    assert not fits(program, limits)
    ends = {}
    block = program.step_block()
    for moves, far in ((OP_SENDS, program.tb_send), (~OP_SENDS, program.tb_recv)):
        for b in np.unique(block[moves[program.op]]).tolist():
            if far[b] >= 0:
                inside = program.op[program.tb_first[b] : program.tb_first[b + 1]]
                pair = (int(program.tb_rank[b]), int(far[b]))
                key = pair if moves is OP_SENDS else pair[::-1]
                length = int(np.isin(inside, [Op.SEND, Op.RECV, Op.RECV_REDUCE_COPY]).sum())
                ends.setdefault((*key, int(program.tb_channel[b])), []).append(length)
    assert all(len(both) == 2 and both[0] == both[1] for both in ends.values())
    check(program, schedule.collective, in_place=False, seed=2, group=1)


def test_large_messages_are_cut_in_even_parts():
    rows = [(0, 1, c, 0, False, 0.0, 4.0) for c in range(150)]
    schedule = schedule_of(Collective("broadcast", 2, 150), rows)
    program = lower(schedule)
    assert program.cnt[program.op == Op.SEND].tolist() == [50, 50, 50]
    assert not fits(program, EVERYWHERE)
    whole = lower(schedule, limits=UNLIMITED)
    assert whole.cnt[whole.op == Op.SEND].tolist() == [150]
    assert [str(f) for f in fits(whole, EVERYWHERE)] == [
        "LIMIT gpu 0 tb 0 step 0: 150 chunks in one step, expected at most 71"
    ]


def test_ranks_with_many_peers_spread_over_channels():
    ranks = 40
    rows = [
        (s, d, s, s * ranks + d, False, float((d - s) % ranks), (d - s) % ranks + 1.0)
        for s in range(ranks)
        for d in range(ranks)
        if s != d
    ]
    schedule = schedule_of(Collective("allgather", ranks), rows)
    program = lower(schedule)
    assert program.channels == 2
    assert {f.where for f in fits(program, EVERYWHERE)} == {"gpu 0"}  # 79 blocks, nothing else
    assert not fits(program, limits_of("msccl"))


def test_channels_that_do_not_suffice_are_reported():
    rows = [(0, 1, c, c, False, float(c), c + 1.0) for c in range(100)]
    schedule = schedule_of(Collective("broadcast", 2, 100), rows)
    program = lower(schedule, max_channels=1)
    assert [str(f) for f in fits(program, EVERYWHERE)] == [
        "LIMIT gpu 0 tb 0: 100 steps with nops, expected at most 64"
    ]


def test_nops_count():
    # a step with three dependencies takes three steps in a file
    b = ProgramBuilder(1)
    after = [b.step(b.block(0), Op.COPY, src=(0, i), dst=(1, i)) for i in range(3)]
    b.step(b.block(0), Op.COPY, src=(Buffer.INPUT, 3), dst=(Buffer.OUTPUT, 3), after=after)
    program = b.build(name="x", collective="custom", nchunks=4)
    assert not fits(program, BlockLimits(steps=3, blocks=4))
    assert [f.where for f in fits(program, BlockLimits(steps=2, blocks=3))] == [
        "gpu 0",
        "gpu 0 tb 3",
    ]


@pytest.mark.parametrize("dialect", ["executor", "msccl", "rccl"])
def test_limits_of_the_file_formats_can_be_used_as_they_are(dialect):
    rng = np.random.default_rng(4)
    graph = random_graph(rng, 6, ports=True)
    schedule = random_schedule(rng, graph, Collective("reducescatter", 6, 6), largest=5)
    limits = limits_of(dialect)
    for name, program in lowerings(
        schedule, graph, limits=limits, fused_receives=dialect != "rccl"
    ):
        assert not fits(program, limits), name
        assert not exceeded(program, dialect), name


def test_message_with_many_pieces_does_not_fill_its_block():
    # every second chunk of 100 in one message: 50 copies at either end stand in blocks of their own
    order = [*range(0, 100, 2), *range(1, 100, 2)]
    rows = [(0, 1, c, i // 50, False, 0.0 + i // 50, 1.0 + i // 50) for i, c in enumerate(order)]
    schedule = schedule_of(Collective("broadcast", 2, 100), rows)
    program = lower(schedule)
    assert not fits(program, EVERYWHERE)
    assert sorted(program.cnt[program.op == Op.SEND].tolist()) == [50, 50]
    check(program, schedule.collective, in_place=False, seed=3, group=1)


def test_further_connections_only_where_a_plan_overfills_one():
    assert [v for v, _ in lowerings(recursive_doubling(4, 2))] == ["anchored"]
    assert "anchored-parallel" not in dict(lowerings(ring_allgather(4)))
