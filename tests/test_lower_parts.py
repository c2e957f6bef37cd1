"""Parts of lowering against brute force and small examples."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lower_replay import Failure, check
from lower_schedules import recursive_doubling, ring_allreduce

import explorer.lower.limits
import explorer.lower.local
import explorer.lower.windows
from explorer.core.collective import Collective
from explorer.lower import lower
from explorer.lower.cycles import waits_for_itself
from explorer.lower.implied import without_implied
from explorer.lower.lanes import Lanes, positions
from explorer.lower.lineage import Lineage
from explorer.lower.memory import Memory
from explorer.lower.messages import planned_messages
from explorer.lower.precedence import precedence
from explorer.lower.runs import Runs
from explorer.lower.sends import grouped
from explorer.lower.windows import in_any_order, in_order
from sim.program import Buffer, Op, ProgramBuilder

NOTHING = np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize(
    "module", [explorer.lower.windows, explorer.lower.local, explorer.lower.limits]
)
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def reachable(edges: set[tuple[int, int]], count: int) -> np.ndarray:
    reach = np.zeros((count, count), dtype=bool)
    for a, b in edges:
        reach[a, b] = True
    for k in range(count):
        reach |= reach[:, [k]] & reach[[k], :]
    return reach


@given(st.integers(0, 10**6))
def test_no_order_is_lost_and_no_dependency_is_needless(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 14))
    rank = rng.integers(0, 2, count)
    lane = rank * 4 + rng.integers(0, 4, count)
    waits = [
        sorted(i for i in range(step) if rank[i] == rank[step] and rng.random() < 0.4)
        for step in range(count)
    ]
    lanes = Lanes(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, lane, positions(lane), NOTHING > 0)
    kept = without_implied(waits, lanes, rank)
    inside = {(a, b) for b in range(count) for a in range(b) if lane[a] == lane[b]}
    before = {(a, b) for b, some in enumerate(waits) for a in some}
    after = {(a, b) for b, some in enumerate(kept) for a in some}
    assert after <= before
    whole = reachable(inside | before, count)
    assert (reachable(inside | after, count) == whole).all()
    for edge in after:
        assert (reachable(inside | after - {edge}, count) != whole).any()


def exchange(chunks: int, *, receive_first: bool = False) -> object:
    """Two ranks with one block each that sends and receives."""
    b = ProgramBuilder(2)
    for r in range(2):
        block = b.block(r, send=1 - r, recv=1 - r)
        ops = [Op.RECV, Op.SEND] if receive_first else [Op.SEND, Op.RECV]
        for op in ops:
            address = {"src": (Buffer.INPUT, 0)} if op == Op.SEND else {"dst": (Buffer.OUTPUT, 0)}
            b.step(block, op, cnt=chunks, **address)
    return b.build(name="x", collective="custom", nchunks=chunks)


@pytest.mark.parametrize(
    ("program", "slots", "waits"),
    [
        (exchange(1), 2, False),
        (exchange(2), 2, False),
        (exchange(3), 2, True),  # msccl_xml.md 4.6, case 3: hangs once a slot holds one chunk
        (exchange(8), 8, False),
        (exchange(9), 8, True),
        (exchange(1, receive_first=True), 2, True),  # case 1
    ],
)
def test_cycles_through_slots_are_found(program, slots, waits):
    assert waits_for_itself(program, slots) is waits


def test_cycle_through_dependencies_of_two_ranks_is_found():
    b = ProgramBuilder(2)
    steps = {}
    for r in range(2):
        steps[r, "r"] = b.step(b.block(r, recv=1 - r), Op.RECV, dst=(Buffer.OUTPUT, 0))
        steps[r, "s"] = b.step(b.block(r, send=1 - r), Op.SEND, src=(Buffer.OUTPUT, 0))
    b.depend(steps[0, "s"], steps[0, "r"])
    assert not waits_for_itself(b.build(name="x", collective="custom", nchunks=1), 2)
    b.depend(steps[1, "s"], steps[1, "r"])
    assert waits_for_itself(b.build(name="x", collective="custom", nchunks=1), 2)


@given(st.integers(0, 10**6))
def test_cycle_check_agrees_with_the_replay(seed):
    # one lowered program with two steps of a block exchanged
    rng = np.random.default_rng(seed)
    schedule = ring_allreduce(3) if seed % 2 else recursive_doubling(4, 1)
    program = lower(schedule, placement="in", variant=("plain", "fused")[seed // 2 % 2])
    op, order = program.op, np.arange(program.steps)
    block = int(rng.integers(program.blocks))
    first, last = program.tb_first[block], program.tb_first[block + 1]
    if last - first < 2:
        return
    i, j = first + rng.choice(last - first, 2, replace=False)
    order[[i, j]] = order[[j, i]]
    if (op[i] != op[j]) and not program.tb_send[block] == program.tb_recv[block] == -1:
        return  # would only change which message meets which
    counts = np.diff(program.dep_first)[order]
    back = np.argsort(order)
    deps = [
        back[program.dep_step[program.dep_first[s] : program.dep_first[s + 1]]]
        for s in order.tolist()
    ]
    changed = replace(
        program,
        **{
            name: getattr(program, name)[order]
            for name in ("op", "src_buf", "src_off", "dst_buf", "dst_off", "cnt")
        },
        dep_first=np.concatenate(([0], np.cumsum(counts))),
        dep_step=np.concatenate(deps) if deps else program.dep_step,
    )
    hangs = False
    try:
        check(changed, schedule.collective, in_place=True, seed=seed, group=1)
    except Failure as failure:
        hangs = "deadlock" in str(failure)
        if not hangs:
            return  # a race or a wrong sum stopped the replay before its end
    assert waits_for_itself(changed, 2) is hangs


def test_lineage_knows_what_a_total_contains():
    schedule = ring_allreduce(3)
    memory = Memory(schedule.collective, "out")
    messages = planned_messages(grouped(schedule), memory)
    lineage = Lineage(messages)
    of_chunk = [m for m in range(messages.count) if messages.chunk[messages.first[m]] == 0]
    # 0 -> 1 -> 2 adds up chunk 0, then 2 -> 0 -> 1 spreads it
    assert [(int(messages.src[m]), bool(messages.reduce[m])) for m in of_chunk] == [
        (0, True),
        (1, True),
        (2, False),
        (0, False),
    ]
    first, second, third, fourth = of_chunk
    assert lineage.passed(0, third, first)
    assert lineage.passed(0, fourth, second)
    assert not lineage.passed(0, first, third)


@st.composite
def chunks_in_cells(draw: st.DrawFn) -> list[list[int]]:
    """Up to three cells for each of some chunks; no cell holds two."""
    cells = draw(st.permutations(range(12)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    return [[cells.pop() for _ in range(size)] for size in sizes]


@given(chunks_in_cells())
def test_windows_are_found_exactly_where_there_are_some(cells):
    size = len(cells)
    held = {cell: chunk for chunk, places in enumerate(cells) for cell in places}
    windows = [[held.get(start + i, -1) for i in range(size)] for start in range(12)]
    chosen, found = in_order(cells), in_any_order(cells)
    assert (chosen is not None) is (list(range(size)) in windows)
    assert (found is not None) is any(sorted(w) == list(range(size)) for w in windows)
    if chosen is not None:
        picked = [places[i] for places, i in zip(cells, chosen, strict=True)]
        assert picked == list(range(picked[0], picked[0] + size))
    if found is not None:
        picked = [cells[c][i] for c, i in zip(*found, strict=True)]
        assert picked == list(range(picked[0], picked[0] + size))


def test_joined_runs_lie_side_by_side():
    runs = Runs(ranks=2)
    a, b, c = runs.new(0, 2), runs.new(0, 3), runs.new(1, 1)
    other = runs.new(0, 1)
    whole = runs.join(0, [b, a])
    assert runs.place(a + 1) == whole + 4
    assert runs.place(c) == c
    # rank 0: the run that joined nothing, then b and a; rank 1 has its own scratch
    assert runs.offsets().tolist() == [4, 1, 0, 0, 1]
    assert runs.holds(other)


def test_memory_in_place_shares_what_nccl_shares():
    memory = Memory(Collective("reducescatter", 3, 2), "both")
    rank = np.array([1, 1])
    buffers, offsets = np.array([Buffer.INPUT, Buffer.OUTPUT]), np.array([3, 1])
    # output chunk 1 of rank 1 is input chunk 3
    first, second = memory.addresses(rank, buffers, offsets).tolist()
    assert first == second
    apart = Memory(Collective("reducescatter", 3, 2), "out")
    assert len(set(apart.addresses(rank, buffers, offsets).tolist())) == 2


def test_exchanges_have_no_other_times():
    # both partners read what the other is about to change, at the same time
    assert precedence(grouped(recursive_doubling(4, 1))) is None
    order = precedence(grouped(ring_allreduce(3)))
    assert order is not None
    assert order.arrivals == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
