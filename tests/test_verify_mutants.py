"""Every mutant of a right program that brute force shows to be harmful is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from verify_interpreter import harmful
from verify_programs import right_programs

from explorer.verify.program import verify_program
from sim.program import OP_READS_SRC, OP_RECEIVES, OP_SENDS, OP_WRITES_DST, Op, Program

PROGRAMS = right_programs()


def take(program: Program, picks: list[int]) -> Program:
    """The program with exactly these steps of it, in this order within their blocks."""
    block = program.step_block()
    picks = sorted(picks, key=lambda s: block[s])
    new = {}
    for position, step in enumerate(picks):
        new.setdefault(step, position)
    deps = [
        sorted(
            new[d]
            for d in program.dep_step[program.dep_first[s] : program.dep_first[s + 1]]
            if d in new
        )
        for s in picks
    ]
    steps = np.array(picks, dtype=np.int64)
    fields = {
        k: getattr(program, k)[steps]
        for k in ("op", "src_buf", "src_off", "dst_buf", "dst_off", "cnt")
    }
    counts = np.bincount(block[steps], minlength=program.blocks)
    return replace(
        program,
        tb_first=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        dep_first=np.concatenate(([0], np.cumsum([len(d) for d in deps]))).astype(np.int64),
        dep_step=np.array([d for ds in deps for d in ds], dtype=np.int64),
        **fields,
    )


def changed(program: Program, name: str, index: int, value: int) -> Program:
    array = getattr(program, name).copy()
    array[index] = value
    return replace(program, **{name: array})


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """All single changes of a few kinds."""
    everything = list(range(program.steps))
    block = program.step_block()
    for d in range(len(program.dep_step)):
        keep = np.delete(np.arange(len(program.dep_step)), d)
        first = program.dep_first - (program.dep_first > d)
        yield (
            f"drop dependency {d}",
            replace(program, dep_step=program.dep_step[keep], dep_first=first),
        )
    for s in everything:
        op = program.op[s]
        if OP_READS_SRC[op]:
            for by in (-1, 1):
                yield f"source {by}", changed(program, "src_off", s, program.src_off[s] + by)
            for buffer in range(3):
                if buffer != program.src_buf[s]:
                    yield f"source buffer {s}", changed(program, "src_buf", s, buffer)
        if OP_WRITES_DST[op]:
            for by in (-1, 1):
                yield f"target {by}", changed(program, "dst_off", s, program.dst_off[s] + by)
            for buffer in range(3):
                if buffer != program.dst_buf[s]:
                    yield f"target buffer {s}", changed(program, "dst_buf", s, buffer)
        if s + 1 < program.steps and block[s] == block[s + 1]:
            order = everything.copy()
            order[s], order[s + 1] = s + 1, s
            yield f"swap {s}", take(program, order)
        yield f"drop step {s}", take(program, [x for x in everything if x != s])
        if not (OP_SENDS[op] or OP_RECEIVES[op]):
            yield f"repeat {s}", take(program, sorted([*everything, s]))
            other = Op.COPY if op == Op.REDUCE else Op.REDUCE
            yield f"operation {s}", changed(program, "op", s, other)
        if op == Op.RECV_REDUCE_COPY:
            yield f"store {s}", changed(program, "op", s, Op.RECV)
        yield f"count {s}", changed(program, "cnt", s, program.cnt[s] + 1)
    for t in range(program.blocks):
        for name in ("tb_send", "tb_recv"):
            peer = int(getattr(program, name)[t])
            if peer >= 0:
                other = (peer + 1) % program.ranks
                yield f"{name} {t}", changed(program, name, t, other)
    if program.max_bytes is not None:
        yield "any size", replace(program, max_bytes=None)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_right_programs_pass_and_brute_force_agrees(program: Program) -> None:
    report = verify_program(program, strict=program.in_place)
    assert report.ok, report.errors
    assert harmful(program, runs=20) is None


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_harmful_mutants_are_refused(program: Program) -> None:
    found = list(mutants(program))
    seen: Counter[str] = Counter()
    for number, (what, mutant) in enumerate(found):
        harm = harmful(mutant, runs=8, seed=number)
        report = verify_program(mutant)
        assert not (harm and report.ok), f"{what}: {harm}"
        codes = {e.code for e in report.errors}
        if codes <= {"RESULT"}:
            # Without a race one run says it all, so the verdicts must agree.
            assert ("RESULT" in codes) == (harm is not None), f"{what}: {harm}, {report.errors}"
        seen[harm or "harmless"] += 1
    assert seen["wrong"] + seen["hang"] + seen["crash"] >= 10, seen


def test_a_dropped_dependency_of_any_program_is_a_race() -> None:
    program = next(p for p in PROGRAMS if p.name == "ar_pairs")
    dropped = [m for what, m in mutants(program) if what.startswith("drop dependency")]
    assert len(dropped) == 3 * (2 + 2)  # on each rank two receives and twice the sum are awaited
    for mutant in dropped:
        assert verify_program(mutant).errors[0].code == "RACE"
