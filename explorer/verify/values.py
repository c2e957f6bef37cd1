"""Values: compare what a program's outputs hold in the end with what its collective says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.verify.names import Names, address, ranges
from explorer.verify.replay import (
    MIXED,
    NEVER,
    TWICE,
    UNSET,
    IntArray,
    Replay,
    ValueArray,
    replay,
)
from explorer.verify.report import Ledger
from explorer.verify.spec import Memory, Spec
from explorer.verify.structure import Links
from sim.program import OP_WRITES_DST, Program


def check_values(
    program: Program,
    links: Links,
    spec: Spec,
    memory: Memory,
    order: IntArray,
    names: Names,
    ledger: Ledger,
    prefix: str,
) -> None:
    """Replay a program and check what it reads and what its outputs hold at the end.

    Parameters
    ----------
    prefix
        Put before every message, such as ``in place: ``.
    """
    done = replay(program, links, spec, memory, order)
    if spec.rooted and spec.root < 0:
        spec = spec.with_root(_find_root(spec, memory, done))
        if not all(spec.gives_input(r) for r in range(spec.ranks)):
            done = replay(program, links, spec, memory, order)
    _check_reads(program, spec, memory, done, names, ledger, prefix)
    if spec.name != "custom":
        _check_outputs(program, spec, memory, done, names, ledger, prefix)


def _find_root(spec: Spec, memory: Memory, done: Replay) -> int:
    """Root of a file that names none: the one with which most of its outputs are right."""
    votes = np.zeros(spec.ranks, dtype=np.int64)
    for rank in range(spec.ranks):
        got = _outputs(spec, memory, done, rank)
        if spec.name == "broadcast":
            inputs = got[(got >= 0) & (got < done.inputs)]
            np.add.at(votes, inputs // spec.input_size, 1)
        else:
            votes[rank] = np.count_nonzero(_right(spec.with_root(rank), done, rank, got))
    return int(votes.argmax())


def _outputs(spec: Spec, memory: Memory, done: Replay, rank: int) -> ValueArray:
    first = int(memory.base[rank, 1])
    return done.cell[first : first + spec.output_size]


def _right(spec: Spec, done: Replay, rank: int, got: ValueArray) -> npt.NDArray[np.bool_]:
    source, offset = spec.expected(rank)
    if spec.ranks == 1:
        source = np.zeros_like(source)
    right: npt.NDArray[np.bool_] = got == source * spec.input_size + offset
    if spec.sums and spec.ranks > 1:
        everyone = _all_ranks(spec.ranks)
        full = (done.fault == 0) & (done.bits == everyone).all(axis=1)
        number = got.astype(np.int64) - done.inputs
        right = number >= 0
        right[right] = full[number[right]] & (done.chunk[number[right]] == offset[right])
    return right


def _all_ranks(ranks: int) -> npt.NDArray[np.uint64]:
    whole, rest = divmod(ranks, 64)
    words = [(1 << 64) - 1] * whole + ([(1 << rest) - 1] if rest else [])
    return np.array(words, dtype=np.uint64)


def _check_reads(
    program: Program,
    spec: Spec,
    memory: Memory,
    done: Replay,
    names: Names,
    ledger: Ledger,
    prefix: str,
) -> None:
    block = program.step_block()
    for step, cell in zip(done.unset_step.tolist(), done.unset_cell.tolist(), strict=True):
        rank = int(program.tb_rank[block[step]])
        where = _address_of(memory, rank, cell, program, step)
        ledger.add(
            "UNSET",
            names.step(step),
            f"{prefix}{names.op(step)} reads {where} of gpu {rank}, which nothing was written to",
            error=spec.name != "custom" or where.startswith("s"),
        )


def _address_of(memory: Memory, rank: int, cell: int, program: Program, step: int) -> str:
    for buffer, offset in (
        (int(program.src_buf[step]), int(program.src_off[step])),
        (int(program.dst_buf[step]), int(program.dst_off[step])),
    ):
        at = cell - int(memory.base[rank, buffer])
        if offset >= 0 and offset <= at < offset + int(program.cnt[step]):
            return address(buffer, at)
    return f"cell {cell}"


def _check_outputs(
    program: Program,
    spec: Spec,
    memory: Memory,
    done: Replay,
    names: Names,
    ledger: Ledger,
    prefix: str,
) -> None:
    writes: npt.NDArray[np.int32] | None = None
    for rank in range(spec.ranks):
        if not spec.takes_output(rank):
            continue
        got = _outputs(spec, memory, done, rank)
        wrong = np.flatnonzero(~_right(spec, done, rank, got))
        if not len(wrong):
            continue
        if writes is None:
            writes = _count_writes(program, memory)
        never = [int(k) for k in wrong if got[k] == NEVER]
        parts = []
        if never:
            parts.append(f"slot{'s' * (len(never) > 1)} {ranges(never)} never written")
        source, offset = spec.expected(rank)
        others = [int(k) for k in wrong if got[k] != NEVER]
        for k in others[:4]:
            times = int(writes[int(memory.base[rank, 1]) + k])
            often = "twice" if times == 2 else f"{times} times"
            text = f"slot {k} written {often}: it" if times > 1 else f"slot {k}"
            want = (
                f"the sum of chunk {offset[k]} over all {spec.ranks} ranks"
                if source[k] < 0
                else f"gpu {source[k]} i[{offset[k]}]"
            )
            parts.append(f"{text} holds {_describe(spec, done, int(got[k]), names)}, not {want}")
        if len(others) > 4:
            parts.append(f"{len(others) - 4} more slots are wrong")
        ledger.error("RESULT", f"gpu {rank}", f"{prefix}rank {rank} output " + "; ".join(parts))


def _describe(spec: Spec, done: Replay, value: int, names: Names) -> str:
    if value < 0:
        return "garbage"
    if value < done.inputs:
        rank, offset = divmod(value, spec.input_size)
        return f"gpu {rank} i[{offset}]"
    number = value - done.inputs
    present = [r for r in range(spec.ranks) if int(done.bits[number, r // 64]) >> (r % 64) & 1]
    fault, step = int(done.fault[number]), int(done.step[number])
    if fault == TWICE:
        return (
            f"a sum of chunk {done.chunk[number]} in which {names.short(step)} counts"
            f" rank {done.twice[number]} twice"
        )
    if fault == MIXED:
        return f"a sum in which {names.short(step)} mixes different chunks"
    if fault == UNSET:
        return f"a sum in which {names.short(step)} adds garbage"
    return f"the sum of chunk {done.chunk[number]} over ranks {ranges(present)}"


def _count_writes(program: Program, memory: Memory) -> npt.NDArray[np.int32]:
    counts = np.zeros(memory.cells + 1, dtype=np.int32)
    writing = np.flatnonzero(OP_WRITES_DST[program.op])
    rank = program.tb_rank[program.step_block()[writing]].astype(np.int64)
    cells = memory.cells_of(
        rank, program.dst_buf[writing].astype(np.int64), program.dst_off[writing]
    )
    np.add.at(counts, cells, 1)
    np.add.at(counts, cells + program.cnt[writing], -1)
    return np.cumsum(counts, dtype=np.int32)
