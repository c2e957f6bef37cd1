"""Programs that cannot go on: the waiting cycle or chain, word for word on both engines."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_machines import full, random_case, ring_allgather

from sim.errors import Deadlock, LimitReached
from sim.program import Op, ProgramBuilder
from sim.simulate import ENGINES, simulate


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def stuck(b: ProgramBuilder, engine: str, ranks: int = 2, **options) -> Deadlock:
    program = b.build(name="case", collective="custom", nchunks=1, **options)
    with pytest.raises(Deadlock) as caught:
        simulate(program, full(ranks), 1.0, engine=engine)
    return caught.value


def test_both_receive_first(engine):
    b = ProgramBuilder(2)
    for rank in range(2):
        block = b.block(rank, send=1 - rank, recv=1 - rank)
        b.step(block, Op.RECV)
        b.step(block, Op.SEND)
    error = stuck(b, engine)
    assert error.time_us == 0.0
    assert error.cycle == (
        "gpu 0 tb 0 step 0 waits for data from gpu 1 tb 0 step 1",
        "gpu 1 tb 0 step 0 waits for data from gpu 0 tb 0 step 1",
    )


def mutual_sends() -> ProgramBuilder:
    b = ProgramBuilder(2)
    for rank in range(2):
        block = b.block(rank, send=1 - rank, recv=1 - rank)
        for op in [Op.SEND] * 3 + [Op.RECV] * 3:
            b.step(block, op)
    return b


def test_mutual_sends_beyond_the_slots(engine):
    error = stuck(mutual_sends(), engine)
    assert error.time_us == 4.0  # two messages of 2 us each
    assert error.cycle == (
        "gpu 0 tb 0 step 2 waits for a slot that gpu 1 tb 0 step 3 frees",
        "gpu 1 tb 0 step 2 waits for a slot that gpu 0 tb 0 step 3 frees",
    )


def test_mutual_sends_within_the_slots(engine):
    program = mutual_sends().build(name="c", collective="custom", nchunks=1, protocol="LL")
    assert simulate(program, full(2), 1.0, engine=engine).time_us == 6.0


def test_dependencies_in_a_circle_over_messages(engine):
    b = ProgramBuilder(2)
    for rank in range(2):
        send, recv = b.block(rank, send=1 - rank), b.block(rank, recv=1 - rank)
        b.step(send, Op.SEND, after=[b.step(recv, Op.RECV)])
    assert stuck(b, engine).cycle == (
        "gpu 0 tb 0 step 0 waits for gpu 0 tb 1 step 0",
        "gpu 0 tb 1 step 0 waits for data from gpu 1 tb 0 step 0",
        "gpu 1 tb 0 step 0 waits for gpu 1 tb 1 step 0",
        "gpu 1 tb 1 step 0 waits for data from gpu 0 tb 0 step 0",
    )


def test_fused_step_waits_for_its_slot_after_it_received(engine):
    # 0 sends three to 1, which passes them on to 2, which never takes one
    b = ProgramBuilder(3)
    send, relay = b.block(0, send=1), b.block(1, recv=0, send=2)
    for _ in range(3):
        b.step(send, Op.SEND)
        b.step(relay, Op.RECV_COPY_SEND)
    assert stuck(b, engine, 3).cycle == (
        "gpu 1 tb 0 step 2 waits for a slot of its connection to gpu 2 on channel 0, "
        "of which no block receives",
    )


def test_cycle_is_named_without_the_way_into_it(engine):
    # 0 waits for 1, which waits for 2, which waits for 1
    b = ProgramBuilder(3)
    b.step(b.block(0, recv=1), Op.RECV)
    one, two = b.block(1, send=2, recv=2), b.block(2, send=1, recv=1)
    out = b.block(1, send=0)
    got = b.step(one, Op.RECV)
    b.step(one, Op.SEND)
    b.step(two, Op.RECV)
    b.step(two, Op.SEND)
    b.step(out, Op.SEND, after=[got])
    assert stuck(b, engine, 3).cycle == (
        "gpu 1 tb 0 step 0 waits for data from gpu 2 tb 0 step 1",
        "gpu 2 tb 0 step 0 waits for data from gpu 1 tb 0 step 1",
    )


def test_receive_of_a_message_that_is_never_sent(engine):
    b = ProgramBuilder(2)
    send, recv = b.block(0, send=1), b.block(1, recv=0)
    b.step(send, Op.SEND)
    b.step(recv, Op.RECV)
    lost = b.step(recv, Op.RECV)
    b.step(b.block(1), Op.COPY, after=[lost])
    error = stuck(b, engine)
    assert error.time_us == 2.0
    assert error.cycle == (
        "gpu 1 tb 0 step 1 waits for message 2 from gpu 0 on channel 0, "
        "of which gpu 0 tb 0 sends only 1",
    )


def test_chain_that_ends_where_nobody_sends(engine):
    b = ProgramBuilder(2)
    b.step(b.block(0, send=1), Op.SEND, after=[b.step(b.block(0, recv=1, channel=3), Op.RECV)])
    b.step(b.block(1, recv=0), Op.RECV)
    assert stuck(b, engine).cycle == (
        "gpu 0 tb 0 step 0 waits for gpu 0 tb 1 step 0",
        "gpu 0 tb 1 step 0 waits for message 1 from gpu 1 on channel 3, of which no block sends",
    )


def test_sends_beyond_the_slots_that_nobody_takes(engine):
    b = ProgramBuilder(2)
    send = b.block(0, send=1)
    for _ in range(4):
        b.step(send, Op.SEND)
    b.step(b.block(1, recv=0), Op.RECV)
    assert stuck(b, engine).cycle == (
        "gpu 0 tb 0 step 3 waits for a slot of its connection to gpu 1 on channel 0, "
        "of which gpu 1 tb 0 receives only 1",
    )


def test_message_of_a_long_cycle_is_short():
    b = ProgramBuilder(40)
    for rank in range(40):
        block = b.block(rank, send=(rank + 1) % 40, recv=(rank - 1) % 40)
        b.step(block, Op.RECV)
        b.step(block, Op.SEND)
    error = stuck(b, "compiled", 40)
    assert len(error.cycle) == 40
    assert str(error).endswith("; … and 32 more")


@given(seed=st.integers(0, 2**32), ranks=st.integers(2, 5), messages=st.integers(2, 40))
@settings(max_examples=300)
def test_engines_get_stuck_alike(seed, ranks, messages):
    """Steps of a block in another order: often a deadlock, else a program like any other."""
    program, machine, chunk_bytes = random_case(seed, ranks, messages)
    outcomes = []
    for engine in ENGINES:
        try:
            result = simulate(shuffled(program, seed), machine, chunk_bytes, engine=engine)
            outcomes.append(result.step_end_us.tobytes())
        except Deadlock as error:
            outcomes.append((error.time_us, error.cycle))
    assert outcomes[0] == outcomes[1]


def shuffled(program, seed):
    random = Random(seed)
    order = np.arange(program.steps)
    for block in random.sample(range(program.blocks), random.randint(1, min(3, program.blocks))):
        part = order[program.tb_first[block] : program.tb_first[block + 1]]
        part[:] = random.sample(part.tolist(), len(part))
    return replace(program, op=program.op[order], cnt=program.cnt[order])


@pytest.mark.parametrize("limit", [0, 11])
def test_transfers_beyond_the_limit(engine, limit):
    with pytest.raises(LimitReached, match=f"more than max_transfers = {limit} transfers"):
        simulate(ring_allgather(4), full(4), 1.0, engine=engine, max_transfers=limit)
    full_run = simulate(ring_allgather(4), full(4), 1.0, engine=engine, max_transfers=12)
    assert full_run.transfers == 12


def test_seconds_beyond_the_limit(engine):
    with pytest.raises(LimitReached, match=r"max_seconds = 0\.0 passed after"):
        simulate(ring_allgather(64), full(64), 1.0, engine=engine, max_seconds=0.0)
