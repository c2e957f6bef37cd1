"""Addresses, buffers and copies of small plans, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from lower_replay import check
from lower_schedules import ring_allgather, ring_allreduce, schedule_of

from explorer.core.collective import COLLECTIVES, Collective
from explorer.errors import InputError
from explorer.lower import UNLIMITED, local_program, lower, lowerings
from sim.program import BUFFER_TEXT, OP_TEXT, Op, Program


def steps(program: Program, rank: int) -> list[list[str]]:
    """Blocks of a rank, each step as ``op src dst cnt`` with unused addresses as ``-``."""

    def address(buffer: int, offset: int) -> str:
        return "-" if offset < 0 else f"{BUFFER_TEXT[buffer]}{offset}"

    return [
        [
            f"{OP_TEXT[program.op[s]]} {address(program.src_buf[s], program.src_off[s])}"
            f" {address(program.dst_buf[s], program.dst_off[s])} {program.cnt[s]}"
            for s in range(program.tb_first[b], program.tb_first[b + 1])
        ]
        for b in np.flatnonzero(program.tb_rank == rank).tolist()
    ]


def count(program: Program, op: Op) -> int:
    return int((program.op == op).sum())


def test_ring_allgather_out_of_place():
    program = lower(ring_allgather(3))
    # rank 1 sends its own chunk from the input, then forwards chunk 0 from where it arrived
    assert steps(program, 1) == [
        ["s i0 - 1", "s o0 - 1"],
        ["r - o0 1", "r - o2 1"],
        ["cpy i0 o1 1"],
    ]
    # the only dependency: the forward waits for the first receive
    assert [program.where(int(s)) for s in program.dep_step] == [
        f"gpu {r} tb 1 step 0" for r in range(3)
    ]


def test_ring_allgather_in_place_has_no_copy_and_one_name():
    program = lower(ring_allgather(3), placement="in")
    assert steps(program, 1) == [["s o1 - 1", "s o0 - 1"], ["r - o0 1", "r - o2 1"]]
    assert program.i_chunks.tolist() == [0, 0, 0]
    assert program.o_chunks.tolist() == [3, 3, 3]


def test_ring_allreduce_never_writes_the_input_out_of_place():
    program = lower(ring_allreduce(3))
    # sums of rank 0 in the plan: it adds chunk 2, then chunk 1, then gets totals of 0 and 2
    assert steps(program, 0) == [
        ["s i0 - 1", "s o2 - 1", "s o1 - 1", "s o0 - 1"],
        ["rrc i2 o2 1", "rrc i1 o1 1", "r - o0 1", "r - o2 1"],
    ]
    # a total that comes back needs no dependency on the send of the sum it contains
    receives = np.flatnonzero(program.op == Op.RECV)
    assert not np.diff(program.dep_first)[receives].any()


def test_fused_ring_keeps_only_what_is_needed():
    program = lower(ring_allreduce(3), variant="fused")
    assert steps(program, 0) == [
        ["s i0 - 1", "rrs i2 - 1", "rrcs i1 o1 1", "rcs - o0 1", "r - o2 1"]
    ]
    assert program.blocks == 3
    assert not len(program.dep_step)


def test_reducescatter_sums_of_others_stay_in_scratch():
    # 0 -> 1 -> 2 brings chunk 2 home, and so on around
    rows = [
        (r, (r + 1) % 3, (r + 2 - t) % 3, 3 * t + r, True, float(t), t + 1.0)
        for t in range(2)
        for r in range(3)
    ]
    schedule = schedule_of(Collective("reducescatter", 3), rows)
    program = lower(schedule)
    assert steps(program, 0) == [["s i2 - 1", "s s0 - 1"], ["rrc i1 s0 1", "rrc i0 o0 1"]]
    in_place = lower(schedule, placement="in")
    assert steps(in_place, 1) == [["s i0 - 1", "s s0 - 1"], ["rrc i2 s0 1", "rrc i1 i1 1"]]
    assert in_place.i_chunks.tolist() == [3, 3, 3]
    assert not in_place.o_chunks.any()


def test_group_side_by_side_at_both_ends_is_one_step_without_copies():
    rows = [(0, 1, c, 0, False, 0.0, 1.0) for c in range(4)]
    program = lower(schedule_of(Collective("broadcast", 2, 4), rows))
    assert steps(program, 0) == [["s i0 - 4"], ["cpy i0 o0 4"]]
    assert steps(program, 1) == [["r - o0 4"]]


def test_group_apart_is_gathered_once_and_forwarded_from_scratch():
    rows = [
        (s, d, c, g, False, float(g), g + 1.0)
        for g, (s, d) in enumerate([(0, 1), (0, 2), (1, 3)])
        for c in (0, 1, 3)
    ]
    rest = [
        (s, d, 2, 3 + g, False, 3.0 + g, 4.0 + g)
        for g, (s, d) in enumerate([(0, 1), (0, 2), (1, 3)])
    ]
    program = lower(schedule_of(Collective("broadcast", 4, 4), rows + rest))
    assert steps(program, 0)[:2] == [
        ["cpy i0 s0 2", "cpy i3 s2 1", "s s0 - 3", "s i2 - 1"],
        ["s s0 - 3", "s i2 - 1"],
    ]
    assert steps(program, 1) == [
        ["s s0 - 3", "s o2 - 1"],
        ["r - s0 3", "cpy s0 o0 2", "cpy s2 o3 1", "r - o2 1"],
    ]


def test_relay_lays_single_arrivals_out_for_the_group_they_leave_in():
    # AllToAll 0,1,2 -> 3 over relay 4: what 4 sends on in one message arrives side by side
    collective = Collective("alltoall", 5)
    rows, when, group = [], 0.0, 0
    for s in (2, 0, 1):
        rows.append((s, 4, s * 5 + 3, group, False, when, when + 1.0))
        group, when = group + 1, when + 1.0
    rows += [(4, 3, s * 5 + 3, group, False, when, when + 2.0) for s in (0, 1, 2)]
    direct = [
        (s, d, s * 5 + d, 10 + s * 5 + d, False, 0.0, 1.0)
        for s in range(5)
        for d in range(5)
        if s != d and not (d == 3 and s < 3)
    ]
    program = lower(schedule_of(collective, rows + direct))
    sends = [step for block in steps(program, 4) for step in block if step.startswith("s s")]
    assert sends == ["s s0 - 3"]
    assert "r - o0 3" in [step for block in steps(program, 3) for step in block]
    # only everybody's own chunk is copied
    assert count(program, Op.COPY) == 5


def test_sum_of_a_group_apart_moves_to_where_it_arrived():
    # chunks 0 and 2 of a Reduce go 2 -> 1 -> 0 together, chunk 1 after them
    rows = [
        (2, 1, 0, 0, True, 0.0, 1.0),
        (2, 1, 2, 0, True, 0.0, 1.0),
        (2, 1, 1, 1, True, 1.0, 2.0),
        (1, 0, 0, 2, True, 1.0, 2.0),
        (1, 0, 2, 2, True, 1.0, 2.0),
        (1, 0, 1, 3, True, 2.0, 3.0),
    ]
    schedule = schedule_of(Collective("reduce", 3, 3), rows)
    program = lower(schedule)
    assert steps(program, 1) == [
        ["s s0 - 2", "s s2 - 1"],
        ["r - s0 2", "re i0 s0 1", "re i2 s1 1", "rrc i1 s2 1"],
    ]
    assert steps(program, 0) == [
        ["r - s0 2", "re i0 s0 1", "re i2 s1 1", "cpy s0 o0 1", "cpy s1 o2 1", "rrc i1 o1 1"]
    ]


def test_alltoall_in_place_parks_what_comes_before_its_place_is_free():
    # rank 1's chunk arrives at rank 0 at 1 us, but rank 0's own there leaves only at 2 to 3 us
    rows = [(1, 0, 2, 0, False, 0.0, 1.0), (0, 1, 1, 1, False, 2.0, 3.0)]
    schedule = schedule_of(Collective("alltoall", 2), rows)
    assert steps(lower(schedule, placement="in"), 0) == [
        ["s i1 - 1"],
        ["r - s0 1"],
        ["cpy s0 i1 1"],
    ]
    assert steps(lower(schedule), 0) == [["s i1 - 1"], ["r - o1 1"], ["cpy i0 o0 1"]]


def test_instances_work_on_shares_of_every_block():
    program = lower(ring_allgather(3, 2), instances=2)
    assert (program.nchunks, program.channels) == (12, 2)
    # copy p of owner 0's chunk k is chunk 2p + k of its four
    mine = [b for b in np.flatnonzero(program.tb_rank == 1).tolist() if program.tb_recv[b] == 0]
    received = {
        int(program.tb_channel[b]): program.dst_off[
            program.tb_first[b] : program.tb_first[b + 1]
        ].tolist()
        for b in mine
    }
    assert received == {0: [0, 1, 8, 9], 1: [2, 3, 10, 11]}


def test_redundant_deliveries_are_left_out():
    rows = [
        (0, 1, 0, 0, False, 0.0, 1.0),
        (0, 2, 0, 1, False, 0.0, 1.0),
        (1, 2, 0, 2, False, 1.0, 2.0),  # 2 has it
        (2, 0, 0, 3, False, 1.0, 2.0),  # 0 had it from the start
    ]
    program = lower(schedule_of(Collective("broadcast", 3), rows))
    assert count(program, Op.SEND) == 2


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_rank_only_copies(name):
    collective = Collective(name, 1, 80)
    schedule = schedule_of(collective, [])
    program = lower(schedule)
    assert program.cnt.tolist() == [71, 9]
    check(program, collective, in_place=False, seed=1, group=1)
    assert lower(schedule, limits=UNLIMITED).cnt.tolist() == [80]
    assert lower(schedule, placement="in").steps == 0
    assert [v for v, _ in lowerings(schedule, placement="both")] == ["plain"]


def test_several_ranks_without_sends_are_refused():
    empty = schedule_of(Collective("allreduce", 2), [])
    with pytest.raises(InputError, match="no sends on 2 ranks"):
        lower(empty)
    with pytest.raises(InputError, match="expected one rank"):
        local_program(empty.collective)


def broadcast(*rows: tuple) -> object:
    return schedule_of(Collective("broadcast", 3), list(rows))


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (
            broadcast((1, 2, 0, 0, False, 0.0, 1.0)),
            "rank 1 sends chunk 0 at 0 us, before it has it",
        ),
        (broadcast((0, 1, 0, 0, False, 0.0, 1.0)), "no message completes output chunk 0 of rank 2"),
        (broadcast((0, 1, 7, 0, False, 0.0, 1.0)), "chunk 7 from rank 0 to rank 1"),
        (broadcast((0, 0, 0, 0, False, 0.0, 1.0)), "from rank 0 to rank 0"),
        (broadcast((0, 1, 0, 0, False, 1.0, 1.0)), "at 1 to 1 us"),
        (broadcast((0, 1, 0, 0, False, 0.0, 1.0), (0, 2, 0, 0, False, 0.0, 1.0)), "one message"),
        (
            schedule_of(
                Collective("broadcast", 2, 2),
                [(0, 1, 0, 0, False, 0.0, 4.0), (0, 1, 1, 1, False, 1.0, 2.0)],
            ),
            "overtake one another",
        ),
    ],
)
def test_plans_that_cannot_run_are_refused(schedule, text):
    with pytest.raises(InputError, match=text):
        lower(schedule)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"placement": "inn"}, "did you mean 'in'"),
        ({"protocol": "simple"}, "did you mean 'Simple'"),
        ({"variant": "anchord"}, "did you mean 'anchored'"),
        ({"variant": "chained"}, "needs the graph"),
        ({"instances": 0}, "instances: got 0"),
        ({"max_channels": 0}, "max_channels: got 0"),
    ],
)
def test_unknown_options_are_refused(options, text):
    with pytest.raises(InputError, match=text):
        lower(ring_allgather(3), **options)
    if "variant" not in options:
        with pytest.raises(InputError, match=text):
            list(lowerings(ring_allgather(3), **options))


def test_unknown_variants_are_refused():
    with pytest.raises(InputError, match="did you mean 'plain'"):
        list(lowerings(ring_allgather(3), variants=["plan"]))


def test_names_suit_every_runtime():
    program = lower(ring_allgather(3), name="my plan: " + "x" * 80)
    assert program.name == "my-plan--" + "x" * 54
