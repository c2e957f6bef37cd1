"""Small programs whose times anyone can work out by hand, on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from sim_machines import full, network, pairs_of, ring_allgather, switch

from sim.network import COST_MODELS
from sim.program import Op, ProgramBuilder
from sim.result import Bottleneck
from sim.simulate import ENGINES, simulate


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def built(b: ProgramBuilder, **options):
    return b.build(name="case", collective="custom", nchunks=1, **options)


def times(program, machine, chunk_bytes=1.0, **options):
    """(start, end of hold, arrival) of every transfer by name of its step."""
    result = simulate(program, machine, chunk_bytes, **options)
    rows = zip(result.step, result.start_us, result.busy_end_us, result.arrive_us, strict=True)
    return {program.where(step): (a, b, c) for step, a, b, c in rows}


def test_ring_allgather_of_4_on_a_switch(engine):
    # each of 3 rounds: 1 + 2 bytes * 1 us
    result = simulate(ring_allgather(4), switch(4), 2.0, engine=engine)
    assert result.time_us == 9.0
    assert result.transfers == 12
    assert result.start_us.tolist() == [0.0] * 4 + [3.0] * 4 + [6.0] * 4
    assert result.resource_busy_us.tolist() == [9.0] * 8
    assert result.bottleneck() == Bottleneck("gpu0->switch", "gpu0 -> switch", 1.0)


def test_ring_allgather_of_4_pipelined(engine):
    # a rank passes on only what has arrived, so a round still takes 1 + 2; ports are idle for 1
    result = simulate(ring_allgather(4), switch(4), 2.0, engine=engine, cost_model="pipelined")
    assert result.time_us == 9.0
    assert result.bottleneck() == Bottleneck("gpu0->switch", "gpu0 -> switch", 6.0 / 9.0)


@pytest.mark.parametrize("cost_model", COST_MODELS)
def test_all_pairs_on_a_switch_fill_the_ports(engine, cost_model):
    # by offset, 7 perfect permutations one after the other: alpha 1 + 3 bytes, or only 3
    b = ProgramBuilder(8)
    for src, dst in pairs_of(8):
        b.step(b.block(src, send=dst), Op.SEND)
        b.step(b.block(dst, recv=src), Op.RECV)
    result = simulate(built(b), switch(8), 3.0, engine=engine, cost_model=cost_model)
    assert result.time_us == (28.0 if cost_model == "exclusive" else 22.0)


def test_consecutive_sends_of_a_block(engine):
    b = ProgramBuilder(2)
    send, recv = b.block(0, send=1), b.block(1, recv=0)
    for _ in range(2):
        b.step(send, Op.SEND, cnt=2)
        b.step(recv, Op.RECV, cnt=2)
    one, two = "gpu 0 tb 0 step 0", "gpu 0 tb 0 step 1"
    program = built(b)
    assert times(program, full(2), engine=engine) == {one: (0, 3, 3), two: (3, 6, 6)}
    assert times(program, full(2), engine=engine, cost_model="pipelined") == {
        one: (0, 2, 3),
        two: (2, 4, 5),
    }


@pytest.mark.parametrize(("protocol", "third"), [("Simple", (10, 12, 12)), ("LL", (4, 6, 6))])
def test_sender_without_a_slot_waits_for_the_receiver(engine, protocol, third):
    # rank 1 takes the first message only when rank 2's 9 bytes are there, at 10
    b = ProgramBuilder(3)
    late = b.step(b.block(1, recv=2), Op.RECV, cnt=9)
    b.step(b.block(2, send=1), Op.SEND, cnt=9)
    send, recv = b.block(0, send=1), b.block(1, recv=0)
    for i in range(3):
        b.step(send, Op.SEND)
        b.step(recv, Op.RECV, after=[late] if i == 0 else [])
    found = times(built(b, protocol=protocol), full(3), engine=engine)
    assert found["gpu 0 tb 0 step 1"] == (2, 4, 4)
    assert found["gpu 0 tb 0 step 2"] == third


def test_fused_step_frees_its_slot_before_it_sends(engine):
    # rank 1 passes on over a link that takes 10; its first step takes message 0 at 2 already, so
    # message 2 finds a slot at 4, but message 3 waits until the second step takes message 1 at 12
    b = ProgramBuilder(3)
    send, relay, recv = b.block(0, send=1), b.block(1, recv=0, send=2), b.block(2, recv=1)
    for _ in range(4):
        b.step(send, Op.SEND)
        b.step(relay, Op.RECV_COPY_SEND)
        b.step(recv, Op.RECV)
    slow = network(3, {(0, 1): (["a"], 1.0, 1.0), (1, 2): (["b"], 9.0, 1.0)})
    found = times(built(b), slow, engine=engine)
    starts = [found[f"gpu 0 tb 0 step {i}"][0] for i in range(4)]
    assert starts == [0, 2, 4, 12]
    assert [found[f"gpu 1 tb 0 step {i}"][0] for i in range(4)] == [2, 12, 22, 32]


def test_ties_go_by_offset(engine):
    b = ProgramBuilder(4)
    for src in range(3):
        b.step(b.block(src, send=3), Op.SEND)
        b.step(b.block(3, recv=src), Op.RECV)
    found = times(built(b), switch(4), engine=engine)
    assert [found[f"gpu {src} tb 0 step 0"][0] for src in (2, 1, 0)] == [0, 2, 4]


def test_ties_go_by_channel(engine):
    b = ProgramBuilder(2)
    for channel in (2, 0, 1):
        b.step(b.block(0, send=1, channel=channel), Op.SEND)
        b.step(b.block(1, recv=0, channel=channel), Op.RECV)
    found = times(built(b), full(2), engine=engine)
    assert [found[f"gpu 0 tb {tb} step 0"][0] for tb in (1, 2, 0)] == [0, 2, 4]


def test_ties_go_by_index_in_the_block_then_by_source(engine):
    # offset 1 everywhere, one bus; rank 0's send is its second step
    bus = network(3, {(r, (r + 1) % 3): (["bus"], 1.0, 1.0) for r in range(3)})
    b = ProgramBuilder(3)
    for rank in range(3):
        block = b.block(rank, send=(rank + 1) % 3)
        if rank == 0:
            b.step(block, Op.COPY)
        b.step(block, Op.SEND)
        b.step(b.block(rank, recv=(rank - 1) % 3), Op.RECV)
    found = times(built(b), bus, engine=engine)
    starts = [found[f"gpu {r} tb 0 step {s}"][0] for r, s in ((1, 0), (2, 0), (0, 1))]
    assert starts == [0, 2, 4]


def test_who_was_ready_first_goes_first_whatever_the_offset(engine):
    # rank 1 keeps the port of rank 3 until 2; rank 0 gets ready at 1 (offset 3), rank 2 at 2
    # (offset 1), by messages over links of their own
    links = {(src, 3): (["in3"], 1.0, 1.0) for src in range(3)}
    links |= {(3, 0): (["x"], 1.0, 0.0), (3, 2): (["y"], 2.0, 0.0)}
    b = ProgramBuilder(4)
    for src in (0, 2):
        b.step(b.block(3, send=src), Op.SEND)
        got = b.step(b.block(src, recv=3), Op.RECV)
        b.step(b.block(src, send=3), Op.SEND, after=[got])
    b.step(b.block(1, send=3), Op.SEND)
    for src in range(3):
        b.step(b.block(3, recv=src), Op.RECV)
    found = times(built(b), network(4, links), engine=engine)
    starts = {name: found[name][0] for name in found if not name.startswith("gpu 3")}
    assert starts == {"gpu 1 tb 0 step 0": 0, "gpu 0 tb 1 step 0": 2, "gpu 2 tb 1 step 0": 4}


def test_a_waiting_send_holds_nobody_back(engine):
    # 0 -> 1 waits for "a", which 2 -> 3 holds, and does not keep "b" from 1 -> 3
    links = {(2, 3): (["a"], 10.0, 0.0), (0, 1): (["a", "b"], 1.0, 0.0), (1, 3): (["b"], 4.0, 0.0)}
    b = ProgramBuilder(4)
    for channel, (src, dst) in enumerate([(2, 3), (0, 1), (1, 3)]):
        # the channel puts 2 -> 3 before 0 -> 1, which has the same offset
        b.step(b.block(src, send=dst, channel=channel), Op.SEND)
        b.step(b.block(dst, recv=src, channel=channel), Op.RECV)
    found = times(built(b), network(4, links), engine=engine)
    assert found["gpu 1 tb 1 step 0"] == (0, 4, 4)
    assert found["gpu 0 tb 0 step 0"] == (10, 11, 11)


def test_resources_are_taken_together_or_not_at_all(engine):
    # at 3, 0 -> 1 gets ready and "a" is free, but "b" only from 5 on: meanwhile "a" serves 2 -> 3,
    # which gets ready at 4
    links = {
        (0, 1): (["a", "b"], 1.0, 0.0),
        (0, 2): (["a"], 3.0, 0.0),
        (1, 2): (["b"], 5.0, 0.0),
        (2, 1): (["c"], 4.0, 0.0),
        (2, 3): (["a"], 0.5, 0.0),
    }
    b = ProgramBuilder(4)
    at_3 = b.step(b.block(0, send=2), Op.SEND)
    b.step(b.block(0, send=1), Op.SEND, after=[at_3])
    b.step(b.block(1, send=2), Op.SEND)
    at_4 = b.step(b.block(2, send=1), Op.SEND)
    b.step(b.block(2, send=3), Op.SEND, after=[at_4])
    for src, dst in links:
        b.step(b.block(dst, recv=src), Op.RECV)
    found = times(built(b), network(4, links), engine=engine)
    assert found["gpu 2 tb 1 step 0"] == (4, 4.5, 4.5)
    assert found["gpu 0 tb 1 step 0"] == (5, 6, 6)


def test_messages_without_cost_loop_within_one_instant(engine):
    result = simulate(ring_allgather(5), switch(5, 0.0, 0.0), 1.0, engine=engine)
    assert result.time_us == 0.0
    assert result.transfers == 20
    assert result.bottleneck().utilisation == 0.0


def test_a_port_freed_at_once_serves_the_next_at_the_same_instant(engine):
    # both to rank 2 at 0: offset 1 costs nothing, then offset 2 starts, still at 0
    links = {(1, 2): (["in2"], 0.0, 0.0), (0, 2): (["in2"], 5.0, 0.0)}
    b = ProgramBuilder(3)
    for src in range(2):
        b.step(b.block(src, send=2), Op.SEND)
        b.step(b.block(2, recv=src), Op.RECV)
    found = times(built(b), network(3, links), engine=engine)
    assert found == {"gpu 1 tb 0 step 0": (0, 0, 0), "gpu 0 tb 0 step 0": (0, 5, 5)}


def test_a_delay_too_small_to_move_the_clock_is_over_in_the_same_instant(engine):
    # 1e20 + 1 == 1e20: when 0 -> 1 ends, its message is there too, so that 1 -> 2 (offset 1) and
    # 0 -> 2 (offset 2), which waits for the same send, are both ready when starts are decided
    links = {pair: (["bus"], 0.0, 1.0) for pair in ((0, 2), (1, 2))}
    links[0, 1] = (["x"], 1.0, 1.0)
    b = ProgramBuilder(3)
    sent = b.step(b.block(0, send=1), Op.SEND)
    b.step(b.block(0, send=2), Op.SEND, after=[sent])
    got = b.step(b.block(1, recv=0), Op.RECV)
    b.step(b.block(1, send=2), Op.SEND, after=[got])
    for src in range(2):
        b.step(b.block(2, recv=src), Op.RECV)
    found = times(built(b), network(3, links), 1e20, engine=engine, cost_model="pipelined")
    assert found["gpu 1 tb 1 step 0"][0] == 1e20
    assert found["gpu 0 tb 1 step 0"][0] == 2e20


def test_local_steps_take_no_time(engine):
    b = ProgramBuilder(2)
    got = b.step(b.block(1, recv=0), Op.RECV)
    copied = b.step(b.block(1), Op.COPY, after=[got])
    b.step(b.block(1), Op.REDUCE, after=[copied])
    b.step(b.block(0, send=1), Op.SEND)
    result = simulate(built(b), full(2), 4.0, engine=engine)
    assert result.step_end_us.tolist() == [5.0] * 4


@pytest.mark.parametrize("steps", [0, 1])
def test_programs_without_a_transfer(engine, steps):
    b = ProgramBuilder(1)
    for _ in range(steps):
        b.step(b.block(0), Op.COPY)
    result = simulate(built(b), full(1), 1.0, engine=engine)
    assert result.time_us == 0.0
    assert result.transfers == 0
    assert result.bottleneck() is None


def test_messages_that_nobody_receives_are_no_error(engine):
    b = ProgramBuilder(2)
    block = b.block(0, send=1)
    for _ in range(2):
        b.step(block, Op.SEND)
    for cost_model in COST_MODELS:
        result = simulate(built(b), full(2), 1.0, engine=engine, cost_model=cost_model)
        assert result.transfers == 2


def test_transfers_are_sorted_by_start_then_step(engine):
    result = simulate(ring_allgather(6), full(6), 1.0, engine=engine)
    order = np.lexsort((result.step, result.start_us))
    assert (order == np.arange(result.transfers)).all()


def test_result_says_how_it_was_simulated(engine):
    result = simulate(ring_allgather(3), full(3), 1.0, engine=engine, cost_model="pipelined")
    assert (result.engine, result.fidelity, result.cost_model) == (engine, "ideal", "pipelined")
    assert result.seconds > 0
