"""Programs run for real: right ones, wrong ones, and ones that hang."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from execute_programs import (
    IN,
    OUT,
    TMP,
    allgather_ring,
    allreduce_ring,
    alltoall_direct,
    broadcast_chain,
    build,
    reducescatter_direct,
    samples,
)
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.collective import Collective
from explorer.errors import InputError
from explorer.execute.definition import Inputs, allocate, expected_output, random_elements
from explorer.execute.pool import Executor
from explorer.execute.run import run_program
from explorer.formats.msccl_xml_read import read_msccl_xml
from sim.program import OP_READS_SRC, OP_WRITES_DST, Op, Program, ProgramBuilder

FILES = Path(__file__).parent / "data" / "formats_xml"


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Executor(processes=2) as executor:
        yield executor


def codes(report: object) -> set[str]:
    return {finding.code for finding in report.findings}  # type: ignore[attr-defined]


# -- the definitions, on numbers one can follow


def test_definitions_by_hand() -> None:
    # rank r holds 10 r + (1, 2, 3) in an input of three elements
    def inputs(rank: int) -> np.ndarray:
        return np.array([10 * rank + k for k in (1, 2, 3)], np.uint32)

    def out(name: str, rank: int) -> list[int] | None:
        got = expected_output(name, 3, 1, rank, inputs)
        return None if got is None else got.tolist()

    assert out("allgather", 2) == [1, 2, 3, 11, 12, 13, 21, 22, 23]
    assert out("allreduce", 0) == [33, 36, 39]
    assert out("reducescatter", 2) == [39]
    assert out("alltoall", 1) == [2, 12, 22]
    assert out("broadcast", 0) == [11, 12, 13]
    assert out("reduce", 1) == [33, 36, 39]
    assert out("reduce", 0) is None


def test_sums_wrap_at_32_bits() -> None:
    got = expected_output("allreduce", 2, 0, 0, lambda _: np.array([0x80000001], np.uint32))
    assert got is not None
    assert got.tolist() == [2]


@pytest.mark.parametrize(("name", "rank"), [("allgather", 1), ("reducescatter", 1)])
def test_in_place_memory_is_ncclss(name: str, rank: int) -> None:
    """AllGather: input is output + rank * count; ReduceScatter: the reverse."""
    values = Inputs(7, 2 * (2 if name == "allgather" else 4), 2)(rank)
    memory = allocate(
        name, 2, rank, nchunks=4, elements=2, scratch=1, in_place=True, values=values, seed=7
    )
    assert memory.input.reshape(-1).tolist() == values.tolist()
    small, big = sorted((memory.input, memory.output), key=len)
    small[0, 0] = 12345
    assert big[2, 0] == 12345
    assert not np.shares_memory(memory.scratch, big)


def test_out_of_place_memory_is_separate() -> None:
    values = Inputs(7, 8, 2)(0)
    memory = allocate(
        "allreduce", 2, 0, nchunks=4, elements=2, scratch=1, in_place=False, values=values, seed=7
    )
    assert not np.shares_memory(memory.input, memory.output)
    assert not np.isin(memory.output, memory.input).any()


def test_long_streams_do_not_repeat() -> None:
    stream = random_elements((1, 2), 3 << 18)
    assert len(np.unique(stream[:: 1 << 18])) == 3
    assert np.array_equal(stream, random_elements((1, 2), 3 << 18))
    assert not np.array_equal(stream[:100], random_elements((1, 3), 100))


# -- right programs


@pytest.mark.parametrize(
    ("name", "placement"),
    # a direct AlltoAll overwrites in place what it has not sent yet
    [(n, p) for n in sorted(samples()) for p in ("in", "out") if (n, p) != ("alltoall", "in")],
)
@pytest.mark.parametrize("ranks", [3, 5])
def test_right_programs_are_right(pool: Executor, ranks: int, name: str, placement: str) -> None:
    program = samples(ranks)[name]
    report = pool.run(program, placement=placement, seed=3)
    assert report.ok, report.findings
    assert report.iterations == 3
    assert report.findings == ()
    buffers = 1 if name == "reduce" else program.ranks
    share = program.ranks if name == "reducescatter" else 1
    assert report.elements == buffers * program.nchunks // share * 12
    assert report.processes == 2


def test_a_process_per_rank() -> None:
    report = run_program(allreduce_ring(4), Collective("allreduce", 4))
    assert report.ok
    assert report.processes == 4


def test_one_rank_and_no_blocks(pool: Executor) -> None:
    b = ProgramBuilder(1)
    b.step(b.block(0), Op.COPY, src=(IN, 0), dst=(OUT, 0))
    assert pool.run(build(b, "self", "allgather", 1, "Simple")).ok
    empty = ProgramBuilder(1).build(
        name="nothing", collective="allreduce", nchunks=1, in_place=True, out_of_place=False
    )
    assert pool.run(empty).ok


@given(elements=st.integers(1, 9), slot=st.integers(1, 40), seed=st.integers(0, 1000))
def test_any_tile_and_message_size(pool: Executor, elements: int, slot: int, seed: int) -> None:
    program = broadcast_chain(3, root=seed % 3, chunks=5)
    report = pool.run(program, elements_per_chunk=elements, slot_bytes=4 * slot, seed=seed)
    assert report.ok
    assert report.iterations == -(-elements // slot)


@pytest.mark.parametrize("jitter", range(3))
def test_delays_do_not_disturb_a_right_program(pool: Executor, jitter: int) -> None:
    for program in (reducescatter_direct(4), allreduce_ring(3)):
        assert pool.run(program, jitter_seed=jitter).ok


def test_a_size_runs_with_the_protocols_slots(pool: Executor) -> None:
    program = allgather_ring(2, "LL")
    report = pool.run(program, size_bytes=(256 << 10) + 3)
    assert report.ok
    assert report.size_bytes == 256 << 10
    assert report.iterations == 4  # chunks of 128 KiB in slots of 32 KiB


def test_published_files(pool: Executor) -> None:
    for name in ("sched__ncv4_ag_hier_4_LL", "tools__ar_ring_4_2_1_Simple", "tecclx__64MB"):
        program = read_msccl_xml(FILES / f"{name}.xml")
        assert pool.run(program).ok, name


# -- wrong programs


def changed(program: Program, step: int, **columns: int) -> Program:
    arrays = {}
    for key, value in columns.items():
        arrays[key] = getattr(program, key).copy()
        arrays[key][step] = value
    return replace(program, **arrays)


def test_a_wrong_offset_is_named(pool: Executor) -> None:
    program = allgather_ring(2)
    received = int(np.flatnonzero(program.op == Op.RECV)[0])
    wrong = changed(program, received, dst_off=0)
    report = pool.run(wrong, placement="out")
    assert not report.ok
    assert codes(report) == {"RESULT"}
    first = report.mismatches[0]
    assert (first.rank, first.buffer, first.offset, first.chunk) == (0, "output", 0, 0)
    inputs = Inputs(0, 12, 2)
    assert (first.got, first.expected) == (inputs(1)[0], inputs(0)[0])
    # chunk 0 overwritten, chunk 1 never written
    assert report.wrong == 24
    assert report.max_error > 0
    assert str(first).startswith("gpu 0 output element 0 (chunk 0): got ")


@given(data=st.data())
def test_any_changed_operand_is_found(pool: Executor, data: st.DataObject) -> None:
    program = data.draw(st.sampled_from([allreduce_ring(3), allgather_ring(3)]))
    step = data.draw(st.integers(0, program.steps - 1))
    columns = []
    if OP_READS_SRC[program.op[step]] and program.collective == "allreduce":
        columns.append("src_off")
    if OP_WRITES_DST[program.op[step]]:
        columns.append("dst_off")
    if not columns:
        return
    column = data.draw(st.sampled_from(columns))
    old = int(getattr(program, column)[step])
    new = data.draw(st.integers(0, 2).filter(lambda v: v != old))
    report = pool.run(changed(program, step, **{column: new}))
    assert not report.ok
    assert "RESULT" in codes(report)


def test_an_op_that_forgets_to_add_is_found(pool: Executor) -> None:
    program = allreduce_ring(3)
    step = int(np.flatnonzero(program.op == Op.RECV_REDUCE_COPY_SEND)[0])
    assert not pool.run(changed(program, step, op=Op.RECV_COPY_SEND)).ok


def test_reading_garbage_is_found(pool: Executor) -> None:
    b = ProgramBuilder(1)
    b.step(b.block(0), Op.COPY, src=(TMP, 0), dst=(OUT, 0))
    assert codes(pool.run(build(b, "garbage", "allreduce", 1, "Simple"))) == {"RESULT"}


def test_a_changed_input_is_found_only_out_of_place(pool: Executor) -> None:
    b = ProgramBuilder(1)
    t = b.block(0)
    b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
    b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 1))
    b.step(t, Op.COPY, src=(IN, 1), dst=(OUT, 1))
    b.step(t, Op.COPY, src=(OUT, 1), dst=(IN, 0))
    program = build(b, "writes_input", "allreduce", 2, "Simple", in_place=False)
    report = pool.run(program)
    assert codes(report) == {"INPUT"}
    assert report.mismatches[0].buffer == "input"


def test_a_missing_dependency_is_found_under_delays(pool: Executor) -> None:
    def relay(wait: bool) -> Program:
        """Rank 1 receives in one block and forwards from another."""
        b = ProgramBuilder(3)
        t = b.block(0, send=1)
        b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
        b.step(t, Op.SEND, src=(IN, 0))
        got = b.step(b.block(1, recv=0), Op.RECV, dst=(OUT, 0))
        b.step(b.block(1, send=2), Op.SEND, src=(OUT, 0), after=[got] if wait else [])
        b.step(b.block(2, recv=1), Op.RECV, dst=(OUT, 0))
        return build(b, "relay", "broadcast", 1, "Simple", root=0, in_place=False)

    assert all(pool.run(relay(True), jitter_seed=s).ok for s in range(4))
    assert not all(pool.run(relay(False), jitter_seed=s).ok for s in range(4))


def test_overwriting_before_it_is_sent_is_found_under_delays(pool: Executor) -> None:
    """A direct AlltoAll in place: what arrives lands on what is still to be sent."""
    program = replace(alltoall_direct(4), in_place=True, out_of_place=False)
    assert not all(pool.run(program, jitter_seed=s).ok for s in range(4))


# -- programs that hang


def ag2_receive_first(cnt: int = 1) -> Program:
    b = ProgramBuilder(2)
    for r in (0, 1):
        t = b.block(r, send=1 - r, recv=1 - r)
        b.step(t, Op.RECV, dst=(OUT, cnt * (1 - r)), cnt=cnt)
        b.step(t, Op.SEND, src=(IN, 0), cnt=cnt)
        b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, cnt * r), cnt=cnt)
    return build(b, "dead", "allgather", 2 * cnt, "Simple")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_deadlock_is_reported_with_who_waits(processes: int) -> None:
    with Executor(processes) as executor:
        report = executor.run(ag2_receive_first(), timeout_s=60)
        assert executor.run(allgather_ring(2)).ok  # the pool goes on
    assert not report.ok
    assert codes(report) == {"DEADLOCK"}
    texts = [f.message for f in report.findings[1:]]
    assert texts == [
        "gpu 0 tb 0 step 0 (r) of iteration 0 waits for a message from gpu 1 on channel 0",
        "gpu 1 tb 0 step 0 (r) of iteration 0 waits for a message from gpu 0 on channel 0",
    ]


def test_a_dependency_cycle_is_a_deadlock(pool: Executor) -> None:
    b = ProgramBuilder(1)
    t, u = b.block(0), b.block(0)
    first = b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
    second = b.step(u, Op.COPY, src=(IN, 0), dst=(OUT, 0), after=[first])
    b.depend(first, second)
    report = pool.run(build(b, "cycle", "allreduce", 1, "Simple"))
    assert codes(report) == {"DEADLOCK"}
    assert "waits for step 0 of tb 1" in report.findings[1].message


def test_slots_decide_whether_mutual_sends_hang(pool: Executor) -> None:
    """Both send k messages before they receive: 2 slots of Simple take 2, 8 of LL take 8."""

    def mutual(protocol: str, cnt: int) -> Program:
        b = ProgramBuilder(2)
        for r in (0, 1):
            t = b.block(r, send=1 - r, recv=1 - r)
            b.step(t, Op.SEND, src=(IN, 0), cnt=cnt)
            b.step(t, Op.RECV, dst=(OUT, cnt * (1 - r)), cnt=cnt)
            b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, cnt * r), cnt=cnt)
        return build(b, "mutual", "allgather", 2 * cnt, protocol)

    for protocol, slots in (("Simple", 2), ("LL", 8), ("LL128", 8)):
        assert pool.run(mutual(protocol, slots)).ok
        report = pool.run(mutual(protocol, slots + 1))
        assert codes(report) == {"DEADLOCK"}
        assert "waits for a free slot to gpu 1 on channel 0" in report.findings[1].message


def test_a_published_file_hangs_above_8_mib(pool: Executor) -> None:
    """4 chunks are 2 messages at 8 MiB (two chunks of 1 MiB to a slot), 4 at 16 MiB; 2 slots."""
    program = read_msccl_xml(FILES / "tools__ag_recdbl_8_1.xml")
    assert pool.run(program, size_bytes=8 << 20).ok
    assert codes(pool.run(program, size_bytes=16 << 20)) == {"DEADLOCK"}


def test_max_bytes_decides_how_a_scaled_run_splits(pool: Executor) -> None:
    program = read_msccl_xml(FILES / "tools__ag_recdbl_8_1.xml")
    assert pool.run(replace(program, max_bytes=8 << 20)).ok
    assert codes(pool.run(replace(program, max_bytes=16 << 20))) == {"DEADLOCK"}


def test_ends_that_disagree(pool: Executor) -> None:
    program = broadcast_chain(2, chunks=2, max_bytes=64)
    half = changed(program, int(np.flatnonzero(program.op == Op.RECV)[0]), cnt=1)
    report = pool.run(half)
    assert codes(report) == {"MESSAGE"}
    assert "expects 1 chunks from gpu 0 on channel 0, the message has 2" in str(report.findings[0])
    assert pool.run(program).ok


def test_messages_nobody_receives(pool: Executor) -> None:
    b = ProgramBuilder(2)
    t = b.block(0, send=1)
    b.step(t, Op.SEND, src=(IN, 0))
    b.step(t, Op.SEND, src=(IN, 0))
    b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
    b.step(b.block(1, recv=0), Op.RECV, dst=(OUT, 0))
    report = pool.run(build(b, "extra", "broadcast", 1, "Simple", root=0), elements_per_chunk=1)
    assert codes(report) == {"UNPAIRED"}
    assert str(report.findings[0]) == "UNPAIRED gpu 0 -> gpu 1 channel 0: 1 messages left"


def test_a_run_stops_at_its_time_limit(pool: Executor) -> None:
    program = allreduce_ring(3)
    report = pool.run(program, elements_per_chunk=4096, slot_bytes=4, jitter_seed=1, timeout_s=0.5)
    assert codes(report) == {"TIMEOUT"}
    assert pool.run(program).ok


# -- inputs that cannot be executed


@pytest.mark.parametrize(
    ("program", "arguments", "text"),
    [
        (allgather_ring(2), {"collective": Collective("allgather", 3)}, "ranks: the program has 2"),
        (allgather_ring(2), {"size_bytes": 7}, "one element per chunk takes 8"),
        (allgather_ring(2), {"size_bytes": 8 << 30}, "are allowed"),
        (alltoall_direct(2), {"placement": "in"}, "the program serves out"),
        (changed(allgather_ring(2), 0, dst_off=2), {}, "gpu 0 tb 0 step 0: addresses o[2:3] of 2"),
        (changed(allgather_ring(2), 0, cnt=0), {}, "cpy of 0 chunks cannot be executed"),
        (replace(allgather_ring(2), collective="custom"), {}, "'custom' has no definition"),
        (replace(allgather_ring(2), nchunks=3), {}, "allgather of 3 chunks on 2 ranks"),
        (replace(allgather_ring(2), protocol="LL64"), {}, "got 'LL64'"),
        (
            changed(allgather_ring(2), 0, tb_send=5),
            {},
            "gpu 0 tb 0: sends with peer 5",
        ),
    ],
)
def test_what_cannot_be_executed(
    pool: Executor, program: Program, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        pool.run(program, **arguments)
    assert text in str(caught.value)


def test_two_blocks_on_one_connection() -> None:
    with Executor(1) as executor, pytest.raises(InputError, match="one block at each end"):
        executor.run(read_msccl_xml(FILES / "two_blocks_one_connection.xml"))


def test_process_count_is_checked() -> None:
    with pytest.raises(InputError, match="expected 1 to 32"):
        Executor(0)
