"""Findings of verify_program: each with a program small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from verify_programs import (
    I,
    O,
    S,
    allgather_doubling,
    allgather_ring,
    allreduce_pairs,
    allreduce_pairs_measured,
    allreduce_ring,
    alltoall_direct,
    chain,
    reducescatter_in_place,
    right_programs,
)

from explorer.core.collective import Collective
from explorer.errors import VerificationError
from explorer.verify.program import safe_max_bytes, verify_program
from sim.program import Op, Program, ProgramBuilder

MIB = 1 << 20


def pair(**how) -> tuple[ProgramBuilder, list[int]]:
    """Two ranks with one block each, connected both ways."""
    b = ProgramBuilder(2)
    return b, [b.block(r, send=1 - r, recv=1 - r) for r in range(2)]


def finish(b: ProgramBuilder, collective: str = "allgather", nchunks: int = 2, **how) -> Program:
    return b.build(name="small", collective=collective, nchunks=nchunks, **how)


def found(program: Program, **how) -> dict[str, str]:
    """Message of the last error of each code."""
    return {e.code: f"{e.where}: {e.message}" for e in verify_program(program, **how).errors}


def test_the_collective_asked_for_is_compared() -> None:
    program = allgather_ring(4)
    assert verify_program(program, Collective("allgather", 4)).ok
    for other in (
        Collective("allgather", 4, 2),
        Collective("allgather", 8),
        Collective("allreduce", 4),
    ):
        assert set(found(program, collective=other)) == {"COLLECTIVE"}
    custom = replace(program, collective="custom")
    assert verify_program(custom, Collective("allgather", 4)).ok
    assert "RESULT" in found(custom, collective=Collective("alltoall", 4))
    assert verify_program(custom).ok  # nothing to compare with


def test_a_root_is_checked_and_inferred_where_none_is_given() -> None:
    for name in ("broadcast", "reduce"):
        program = chain(4, name, 2)
        assert verify_program(program, Collective(name, 4, 2, root=2)).ok
        assert "COLLECTIVE" in found(program, collective=Collective(name, 4, 2, root=1))
        assert verify_program(replace(program, root=-1)).ok
        moved = found(replace(program, root=1))
        assert ("RESULT" if name == "reduce" else "UNSET") in moved


def test_one_rank_needs_nothing_in_place_and_a_copy_out_of_place() -> None:
    nothing = finish(ProgramBuilder(1), "allreduce", 1, in_place=True, out_of_place=False)
    assert verify_program(nothing).ok
    lacking = replace(nothing, in_place=False, out_of_place=True)
    assert found(lacking)["RESULT"].endswith("rank 0 output slot 0 never written")
    b = ProgramBuilder(1)
    b.step(b.block(0), Op.COPY, src=(I, 0), dst=(O, 0))
    assert verify_program(finish(b, "allreduce", 1)).ok


def test_wrong_slot_is_named() -> None:
    """Shapes fit, the data does not (case C20)."""
    b, blocks = pair()
    for r, t in enumerate(blocks):
        b.step(t, Op.SEND, src=(I, 0))
        b.step(t, Op.COPY, src=(I, 0), dst=(O, r))
        b.step(t, Op.RECV, dst=(O, 0))
    message = found(finish(b, buffer_chunks=(1, 2)))["RESULT"]
    assert "rank 0 output slot 1 never written; slot 0 written twice" in message
    assert "holds gpu 1 i[0], not gpu 0 i[0]" in message


def test_chained_reduction_into_one_slot_counts_twice() -> None:
    """The same contribution reduced a second time (case C21)."""
    program = allreduce_ring(6)
    assert verify_program(program).ok
    b, blocks = pair()
    for t in blocks:
        b.step(t, Op.SEND, src=(I, 0))
        b.step(t, Op.SEND, src=(I, 0))
        b.step(t, Op.RECV_REDUCE_COPY, src=(I, 0), dst=(O, 0))
        b.step(t, Op.RECV_REDUCE_COPY, src=(O, 0), dst=(O, 0))
    message = found(finish(b, "allreduce", 1))["RESULT"]
    assert "a sum of chunk 0 in which gpu1 tb0 step3 counts rank 0 twice" in message


def test_mixed_chunks_and_partial_sums_are_described() -> None:
    b, blocks = pair()
    for t in blocks:
        b.step(t, Op.SEND, src=(I, 1))
        b.step(t, Op.RECV_REDUCE_COPY, src=(I, 0), dst=(O, 0))
        b.step(t, Op.COPY, src=(I, 1), dst=(O, 1))
    message = found(finish(b, "allreduce"))["RESULT"]
    assert "slot 0 holds a sum in which gpu1 tb0 step1 mixes different chunks" in message
    assert "slot 1 holds gpu 1 i[1], not the sum of chunk 1 over all 2 ranks" in message


def test_sums_over_more_than_64_ranks() -> None:
    program = allreduce_ring(70)
    assert verify_program(program).ok
    last = int(program.tb_first[1]) - 1  # rank 0's last receive
    dst = program.dst_off.copy()
    dst[last] = (dst[last] + 1) % 70
    assert "RESULT" in found(replace(program, dst_off=dst))


def test_reading_what_was_never_written() -> None:
    b = ProgramBuilder(1)
    t = b.block(0)
    b.step(t, Op.COPY, src=(S, 0), dst=(O, 0))
    message = found(finish(b, "allreduce", 1))
    assert "reads s[0] of gpu 0, which nothing was written to" in message["UNSET"]
    assert "slot 0 holds garbage" in message["RESULT"]


def test_in_place_aliases_follow_the_collective() -> None:
    """AllGather's input lies in its output, ReduceScatter's output in its input."""
    assert verify_program(allgather_ring(4, in_place=True)).ok
    assert verify_program(reducescatter_in_place(4)).ok
    for program in (allgather_ring(4, in_place=True), reducescatter_in_place(4)):
        assert not verify_program(replace(program, in_place=False, out_of_place=True)).ok
    both = replace(alltoall_direct(3), in_place=True)
    assert verify_program(both).ok  # every block sends a slot before it receives into it
    b = ProgramBuilder(2)
    for r in range(2):
        b.step(b.block(r), Op.COPY, src=(I, r), dst=(O, r))
        b.step(b.block(r, send=1 - r), Op.SEND, src=(I, 1 - r))
        b.step(b.block(r, recv=1 - r), Op.RECV, dst=(O, 1 - r))
    report = verify_program(finish(b, "alltoall", in_place=True))
    assert {e.code for e in report.errors} == {"RACE"}
    assert "in place: write after read of o[1] on gpu 0" in report.errors[0].message


def test_a_program_that_serves_no_call() -> None:
    program = replace(allgather_ring(2), out_of_place=False)
    assert set(found(program)) == {"PLACEMENT"}


def test_the_callers_input_is_const_out_of_place() -> None:
    b = ProgramBuilder(1)
    t = b.block(0)
    b.step(t, Op.COPY, src=(I, 0), dst=(O, 0))
    b.step(t, Op.COPY, src=(O, 0), dst=(I, 0))
    program = finish(b, "allreduce", 1)
    report = verify_program(program)
    assert report.ok
    assert [w.code for w in report.warnings] == ["INPUT"]
    assert set(found(program, strict=True)) == {"INPUT"}


def test_only_the_root_of_a_reduce_has_an_output() -> None:
    b = ProgramBuilder(2)
    s, t = b.block(0, send=1), b.block(1, recv=0)
    b.step(s, Op.COPY, src=(I, 0), dst=(O, 0))
    b.step(s, Op.SEND, src=(O, 0))
    b.step(t, Op.RECV_REDUCE_COPY, src=(I, 0), dst=(O, 0))
    program = finish(b, "reduce", 1, root=1)
    assert [w.code for w in verify_program(program).warnings] == ["OUTPUT"]
    assert set(found(program, strict=True)) == {"OUTPUT"}


def test_both_receive_before_they_send() -> None:
    """Case C19: the waiting cycle is named."""
    b, blocks = pair()
    for r, t in enumerate(blocks):
        b.step(t, Op.RECV, dst=(O, 1 - r))
        b.step(t, Op.SEND, src=(I, 0))
        b.step(t, Op.COPY, src=(I, 0), dst=(O, r))
    program = finish(b)
    assert "gpu0 tb0 step0 <-> gpu1 tb0 step0" in found(program)["DEADLOCK"]
    assert "any number of slots" in found(program)["DEADLOCK"]
    assert safe_max_bytes(program) == 0


def test_cycle_through_dependencies() -> None:
    b = ProgramBuilder(1)
    one, two = b.block(0), b.block(0)
    first = b.step(one, Op.COPY, src=(I, 0), dst=(S, 0))
    second = b.step(two, Op.COPY, src=(I, 0), dst=(O, 0), after=[first])
    b.depend(first, second)
    assert (
        "gpu0 tb0 step0 <-> gpu0 tb1 step0 (waiting for a dependency)"
        in (found(finish(b, "allreduce", 1))["DEADLOCK"])
    )


@pytest.mark.parametrize(("protocol", "slots"), [("Simple", 2), ("LL", 8), ("LL128", 8)])
def test_mutual_sends_beyond_the_slots_hang(protocol: str, slots: int) -> None:
    for count in (slots, slots + 1):
        b, blocks = pair()
        for r, t in enumerate(blocks):
            for k in range(count):
                b.step(t, Op.SEND, src=(I, k))
            for k in range(count):
                b.step(t, Op.COPY, src=(I, k), dst=(O, r * count + k))
                b.step(t, Op.RECV, dst=(O, (1 - r) * count + k))
        program = finish(b, "allgather", 2 * count, protocol=protocol)
        assert verify_program(program).ok == (count == slots)
        if count > slots:
            step = f"gpu0 tb0 step{slots} <-> gpu1 tb0 step{slots} (waiting for a free slot)"
            assert step in found(program)["DEADLOCK"]
        assert safe_max_bytes(program) == (None if count == slots else 0)


def test_recursive_doubling_hangs_above_8_mib() -> None:
    """4 chunks sent first fit 2 slots while 2 chunks fit a slot: 1 MiB a chunk (msccl_xml 4.6)."""
    program = allgather_doubling(8)
    assert safe_max_bytes(program) == 8 * MIB
    message = found(program)["DEADLOCK"]
    assert "hangs above 8388608 bytes (8M)" in message
    assert verify_program(replace(program, max_bytes=8 * MIB)).ok
    assert not verify_program(replace(program, max_bytes=8 * MIB + 8)).ok
    at_size = verify_program(program, size_bytes=8 * MIB)
    assert at_size.ok
    assert [w.code for w in at_size.warnings] == ["DEADLOCK"]
    assert "runs 16777216" in found(program, size_bytes=16 * MIB)["DEADLOCK"]
    smaller = {"Simple": MIB}
    assert safe_max_bytes(program, slot_bytes=smaller) == 4 * MIB


@pytest.mark.parametrize(("instances", "largest"), [(2, 64 * MIB), (8, 256 * MIB)])
def test_size_at_which_the_measured_all_pairs_allreduce_stopped(
    instances: int, largest: int
) -> None:
    """8 MI300X: runs complete up to 64 and 256 MiB and time out at the next doubling."""
    program = allreduce_pairs_measured(8, instances)
    assert safe_max_bytes(program) == largest
    assert verify_program(replace(program, max_bytes=largest)).ok
    assert not verify_program(program, size_bytes=2 * largest).ok


def test_more_chunks_than_a_step_can_move() -> None:
    b, blocks = pair()
    for r, t in enumerate(blocks):
        b.step(t, Op.SEND, src=(I, 0), cnt=72)
        b.step(t, Op.COPY, src=(I, 0), dst=(O, r * 72), cnt=72)
        b.step(t, Op.RECV, dst=(O, (1 - r) * 72), cnt=72)
    report = verify_program(finish(b, "allgather", 144, max_bytes=1 << 10))
    assert report.ok
    assert {w.code for w in report.warnings} == {"LIMIT"}


def test_fused_steps_of_several_messages_alternate() -> None:
    """The first forwarded chunk comes back before the last one is sent, once messages are split."""
    b = ProgramBuilder(2)
    out, back = b.block(0, send=1), b.block(0, recv=1)
    b.step(out, Op.SEND, src=(I, 0), cnt=2)
    b.step(b.block(1, send=0, recv=0), Op.RECV_COPY_SEND, dst=(S, 0), cnt=2)
    b.step(back, Op.RECV, dst=(I, 1), cnt=2)
    program = finish(b, "custom", 3, buffer_chunks=(3, 3))
    message = found(program)["RACE"]
    assert "write after read of i[1] on gpu 0" in message
    assert "r here after s of gpu0 tb0 step0" in message
    assert verify_program(replace(program, max_bytes=3 * MIB)).ok  # one message carries both


def test_back_pressure_does_not_order_accesses() -> None:
    """The third send fills a slot that the first receive has freed; nothing to rely on."""
    b = ProgramBuilder(2)
    sender, receiver = b.block(0, send=1), b.block(1, recv=0)
    sent = [b.step(sender, Op.SEND, src=(I, 0)) for _ in range(3)]
    for k in range(3):
        b.step(receiver, Op.RECV, dst=(S, k))
    b.step(b.block(0, send=1, channel=1), Op.SEND, src=(I, 0), after=sent[2:])
    b.step(b.block(1, recv=0, channel=1), Op.RECV, dst=(S, 0))
    assert "write after write of s[0] on gpu 1" in found(finish(b, "custom", 1))["RACE"]


def test_messages_order_accesses_through_other_ranks() -> None:
    """Rank 0 overwrites what it sent once the echo of it is back: no dependency needed."""
    b = ProgramBuilder(2)
    out, back = b.block(0, send=1), b.block(0, recv=1, channel=1)
    b.step(out, Op.SEND, src=(I, 0))
    echo = b.step(b.block(1, recv=0), Op.RECV, dst=(S, 0))
    b.step(b.block(1, send=0, channel=1), Op.SEND, src=(S, 0), after=[echo])
    b.step(back, Op.RECV, dst=(I, 0))
    assert verify_program(finish(b, "custom", 1)).ok


def test_a_step_that_reads_what_it_overwrites() -> None:
    b = ProgramBuilder(1)
    b.step(b.block(0), Op.COPY, src=(I, 0), dst=(I, 1), cnt=2)
    program = finish(b, "custom", 3, buffer_chunks=(3, 3))
    assert "reads i[0..1] and writes i[1..2], which overlap" in found(program)["RACE"]


def test_structure_findings() -> None:
    """One change each to a right program, and the code it must be found under."""
    program = allreduce_pairs(3)

    def with_(name: str, index: int, value: int) -> Program:
        array = getattr(program, name).copy()
        array[index] = value
        return replace(program, **{name: array})

    assert "expected -1 or 0 to 2" in found(with_("tb_send", 0, 3))["PEER"]
    assert "own rank" in found(with_("tb_send", 0, 0))["PEER"]
    assert "the block has no send peer" in found(with_("tb_send", 0, -1))["PEER"]
    assert "connects channels 0 to 0" in found(with_("tb_channel", 0, 1))["CHANNEL"]
    assert "as tb 0 does" in found(with_("tb_send", 1, 1))["CONNECTION"]
    assert "cnt is 0" in found(with_("cnt", 0, 0))["COUNT"]
    assert "but i_chunks is 3" in found(with_("src_off", 0, 3))["BOUNDS"]
    assert "reads i[2..3], but i_chunks is 3" in found(with_("cnt", 2, 2))["BOUNDS"]
    longer = replace(program, i_chunks=program.i_chunks + 1)
    src = longer.src_off.copy()
    src[0] = 3
    assert "that buffer of allreduce has 3 chunks" in found(replace(longer, src_off=src))["BOUNDS"]
    assert "ids are 0 to k-1" in found(with_("tb_id", 4, 5))["BLOCK"]
    assert "protocol is 'simple'" in found(replace(program, protocol="simple"))["PROTOCOL"]
    assert (
        "did you mean 'allreduce'" in found(replace(program, collective="allreduc"))["COLLECTIVE"]
    )
    assert (
        "multiple of 3" in found(replace(program, collective="alltoall", nchunks=4))["COLLECTIVE"]
    )


def test_unpaired_messages() -> None:
    b, blocks = pair()
    b.step(blocks[0], Op.SEND, src=(I, 0))
    assert "sends 1 messages to gpu 1 on channel 0, which receives 0" in found(finish(b))["PAIRING"]
    b.step(blocks[1], Op.RECV, dst=(O, 0), cnt=2)
    assert "takes 2 chunks of message 0" in found(finish(b))["PAIRING"]


def test_dependencies_without_meaning() -> None:
    program = allgather_ring(2)  # three steps on each rank: cpy, s, r

    def waiting(step: int, on: int) -> Program:
        first = np.zeros(7, dtype=np.int64)
        first[step + 1 :] = 1
        return replace(program, dep_first=first, dep_step=np.array([on], dtype=np.int64))

    assert "never cross gpus" in found(waiting(0, 4))["DEPENDENCY"]
    assert "which never comes" in found(waiting(0, 2))["DEADLOCK"]
    assert [w.code for w in verify_program(waiting(2, 0)).warnings] == ["DEPENDENCY"]
    assert "dep_step" in found(waiting(0, 6))["SHAPE"]
    op = program.op.copy()
    op[0] = Op.NOP
    two = replace(waiting(1, 0), op=op, tb_first=np.array([0, 1, 3, 6]))
    two = replace(
        two,
        tb_rank=np.array([0, 0, 1], dtype=np.int32),
        tb_id=np.array([0, 1, 0], dtype=np.int32),
        tb_send=np.array([-1, 1, 0], dtype=np.int32),
        tb_recv=np.array([-1, 1, 0], dtype=np.int32),
        tb_channel=np.zeros(3, dtype=np.int32),
    )
    assert "a nop: nops raise no flag" in found(two)["DEPENDENCY"]


def test_arrays_that_do_not_fit_are_refused_not_indexed() -> None:
    program = allgather_ring(3)
    for broken in (
        replace(program, cnt=program.cnt[:-1]),
        replace(program, tb_first=program.tb_first[::-1].copy()),
        replace(program, src_buf=program.src_buf + 3),
        replace(program, tb_rank=program.tb_rank[::-1].copy()),
    ):
        assert set(found(broken)) == {"SHAPE"}
    with pytest.raises(VerificationError, match="expected"):
        safe_max_bytes(replace(program, cnt=program.cnt[:-1]))


def test_what_needs_too_much_memory_is_refused() -> None:
    program = replace(allreduce_ring(2), nchunks=1 << 30)
    assert "this checker takes 2147483648" in found(program)["SIZE"]


def test_findings_are_bounded_and_counted() -> None:
    program = allreduce_ring(40)
    report = verify_program(replace(program, src_off=program.src_off + 1000))
    bounds = [e for e in report.errors if e.code == "BOUNDS"]
    assert len(bounds) == 21
    assert bounds[-1].message == f"and {40 * (1 + 38 + 1) - 20} more"
    with pytest.raises(VerificationError, match="i_chunks"):
        report.require()


def test_reports_are_the_same_every_time() -> None:
    for program in right_programs():
        broken = replace(program, in_place=True, out_of_place=True, max_bytes=None)
        assert verify_program(broken) == verify_program(broken)
