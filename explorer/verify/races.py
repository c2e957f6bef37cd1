"""Races: whether any two accesses to a chunk, one of them a write, are ordered.

Happens-before is order in a block, dependencies, and messages (a send before its receive); FIFO
back-pressure does not count. The accesses to each cell are visited in one order in which the
program can run. If every read is ordered after the last write before it, and every write after the
reads since the last write (or after that write), then by transitivity all conflicting accesses are
ordered; so the number of questions is linear in the number of accesses, as in FastTrack
(Flanagan and Freund, PLDI 2009, section 3). Vector clocks answer them, for a group of blocks at a
time so that they take at most :data:`CLOCK_BYTES` (or 32 bytes per step where that is more).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from explorer.verify.names import Index, Names, address
from explorer.verify.report import FINDINGS_PER_CODE, Ledger
from explorer.verify.spec import Memory
from explorer.verify.structure import Links
from sim.program import OP_READS_DST, OP_READS_SRC, OP_WRITES_DST, Program

IntArray = npt.NDArray[np.int64]

CLOCK_BYTES = 64 << 20
"""Memory for vector clocks."""

_KIND = ("read after write", "write after read", "write after write")


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Pairs of steps of one rank that must be ordered.

    Parameters
    ----------
    earlier, later
        int64 ``[Q]``: steps, ``earlier`` first in the order of the replay.
    cell, kind
        int64 ``[Q]``: a cell both access, and how (index into read-after-write, write-after-read,
        write-after-write).
    """

    earlier: IntArray
    later: IntArray
    cell: IntArray
    kind: IntArray


def check_races(
    program: Program,
    links: Links,
    memory: Memory,
    order: IntArray,
    names: Names,
    origin: IntArray,
    ledger: Ledger,
    prefix: str,
) -> None:
    """Report unordered conflicting accesses.

    Parameters
    ----------
    order
        Every step once, each after all that it waits for.
    names, origin
        Names of the steps as written, and the step as written of each step.
    prefix
        Put before every message.
    """
    rank = program.tb_rank[program.step_block()]
    src, dst = _cells(program, memory)
    questions = _ask(program, memory, order, src, dst)
    ordered = happens_before(program, links, order, questions.earlier, questions.later)
    unordered = np.flatnonzero(~ordered)
    if len(unordered) > FINDINGS_PER_CODE:
        ledger.more("RACE", len(unordered) - FINDINGS_PER_CODE)
    for i in unordered[:FINDINGS_PER_CODE]:
        a, b = int(questions.earlier[i]), int(questions.later[i])
        offset = int(questions.cell[i] - memory.base[rank[b], 0])
        where = _shared(program, memory, int(rank[b]), int(questions.cell[i]), b, offset)
        ledger.error(
            "RACE",
            names.step(origin[b]),
            f"{prefix}{_KIND[questions.kind[i]]} of {where} on gpu {rank[b]}:"
            f" nothing orders {names.op(origin[b])} here after {names.op(origin[a])} of"
            f" {names.short(origin[a])}",
        )


def check_overlaps(
    program: Program, memory: Memory, names: Names, ledger: Ledger, prefix: str
) -> None:
    """Report steps that read what they overwrite: the result would depend on the message size."""
    src, dst = _cells(program, memory)
    both = OP_READS_SRC[program.op] & OP_WRITES_DST[program.op]
    for step in np.flatnonzero(both & (src != dst) & (np.abs(src - dst) < program.cnt)):
        ledger.error(
            "RACE",
            names.step(step),
            f"{prefix}reads {_operand(program, step, src=True)} and writes"
            f" {_operand(program, step, src=False)}, which overlap",
        )


def _cells(program: Program, memory: Memory) -> tuple[IntArray, IntArray]:
    """First cell of every step's source and target."""
    rank = program.tb_rank[program.step_block()]
    return (
        memory.cells_of(rank, program.src_buf, program.src_off),
        memory.cells_of(rank, program.dst_buf, program.dst_off),
    )


def _operand(program: Program, step: Index, *, src: bool) -> str:
    buffer = program.src_buf if src else program.dst_buf
    offset = program.src_off if src else program.dst_off
    return address(int(buffer[step]), int(offset[step]), int(program.cnt[step]))


def _shared(program: Program, memory: Memory, rank: int, cell: int, step: int, offset: int) -> str:
    for buffers, offsets in (
        (program.dst_buf, program.dst_off),
        (program.src_buf, program.src_off),
    ):
        buffer, first = int(buffers[step]), int(offsets[step])
        at = cell - int(memory.base[rank, buffer])
        if 0 <= first <= at < first + int(program.cnt[step]):
            return address(buffer, at)
    return f"cell {offset}"


def _ask(
    program: Program, memory: Memory, order: IntArray, src: IntArray, dst: IntArray
) -> Questions:
    cnt = program.cnt.astype(np.int64)
    reads, writes = OP_READS_SRC[program.op], OP_WRITES_DST[program.op]
    read_count = int(cnt[reads].sum()) + int(cnt[OP_READS_DST[program.op]].sum())
    found = _conflicts(
        order,
        program.step_block().astype(np.int64),
        src,
        dst,
        cnt,
        reads,
        OP_READS_DST[program.op],
        writes,
        memory.cells,
        read_count,
        2 * read_count + int(cnt[writes].sum()),
    )
    # Many cells ask about the same two steps; one of them is enough.
    key = found[:, 0] * program.steps + found[:, 1]
    _, first = np.unique(key, return_index=True)
    found = found[np.sort(first)]
    return Questions(found[:, 0], found[:, 1], found[:, 2], found[:, 3])


def happens_before(
    program: Program, links: Links, order: IntArray, earlier: IntArray, later: IntArray
) -> npt.NDArray[np.bool_]:
    """Whether each step ``earlier[i]`` is over before ``later[i]`` begins, bool ``[Q]``."""
    block = program.step_block().astype(np.int64)
    asked = np.unique(block[earlier])
    width = max(8, CLOCK_BYTES // (4 * max(program.steps, 1)))
    answer = np.zeros(len(earlier), dtype=np.bool_)
    by_block = np.argsort(block[earlier], kind="stable")
    sorted_blocks = block[earlier][by_block]
    for start in range(0, len(asked), width):
        group = asked[start : start + width]
        column = np.full(program.blocks, -1, dtype=np.int64)
        column[group] = np.arange(len(group))
        low = np.searchsorted(sorted_blocks, group[0])
        high = np.searchsorted(sorted_blocks, group[-1], side="right")
        chosen = by_block[low:high]
        clock = np.zeros((program.steps, len(group)), dtype=np.int32)
        _tick(
            order,
            block,
            program.tb_first,
            program.dep_first,
            program.dep_step,
            links.sender,
            column,
            clock,
        )
        local = earlier[chosen] - program.tb_first[block[earlier[chosen]]]
        answer[chosen] = clock[later[chosen], column[block[earlier[chosen]]]] > local
    return answer


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _tick(
    order: IntArray,
    block: IntArray,
    tb_first: IntArray,
    dep_first: IntArray,
    dep_step: IntArray,
    sender: IntArray,
    column: IntArray,
    clock: npt.NDArray[np.int32],
) -> None:
    """Fill the clock of every step: how many steps of each column's block are over by its end."""
    width = clock.shape[1]
    for step in order:
        mine = clock[step]
        if step > tb_first[block[step]]:
            mine[:] = clock[step - 1]
        if sender[step] >= 0:
            other = clock[sender[step]]
            for w in range(width):
                mine[w] = max(mine[w], other[w])
        for d in range(dep_first[step], dep_first[step + 1]):
            other = clock[dep_step[d]]
            for w in range(width):
                mine[w] = max(mine[w], other[w])
        if column[block[step]] >= 0:
            mine[column[block[step]]] = step - tb_first[block[step]] + 1


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _conflicts(
    order: IntArray,
    block: IntArray,
    src: IntArray,
    dst: IntArray,
    cnt: IntArray,
    reads: npt.NDArray[np.bool_],
    reads_dst: npt.NDArray[np.bool_],
    writes: npt.NDArray[np.bool_],
    cells: int,
    read_limit: int,
    limit: int,
) -> IntArray:
    """Pairs (earlier step, later step, cell, kind) of different blocks that must be ordered."""
    last_write = np.full(cells, -1, np.int64)
    head = np.full(cells, -1, np.int64)  # reads since the last write, linked lists
    reader = np.empty(read_limit, np.int64)
    link = np.empty(read_limit, np.int64)
    used = 0
    found = np.empty((limit, 4), np.int64)
    count = 0
    for step in order:
        for operand in range(2):
            if not (reads[step] if operand == 0 else reads_dst[step]):
                continue
            first = src[step] if operand == 0 else dst[step]
            for cell in range(first, first + cnt[step]):
                write = last_write[cell]
                if write >= 0 and block[write] != block[step]:
                    found[count] = (write, step, cell, 0)
                    count += 1
                if head[cell] >= 0 and block[reader[head[cell]]] == block[step]:
                    reader[head[cell]] = step  # later in the same block: ordered after the other
                else:
                    reader[used] = step
                    link[used] = head[cell]
                    head[cell] = used
                    used += 1
        if writes[step]:
            for cell in range(dst[step], dst[step] + cnt[step]):
                write = last_write[cell]
                if head[cell] < 0 and write >= 0 and block[write] != block[step]:
                    found[count] = (write, step, cell, 2)
                    count += 1
                at = head[cell]
                while at >= 0:
                    if block[reader[at]] != block[step]:
                        found[count] = (reader[at], step, cell, 1)
                        count += 1
                    at = link[at]
                head[cell] = -1
                last_write[cell] = step
    return found[:count]
