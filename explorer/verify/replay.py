"""Replay a program with symbolic contributions.

A value is either one rank's input chunk or a sum: the chunk's offset and the bit set of the ranks
in it. Adding a rank twice, or chunks of different offsets, gives a value that no later step can
make right (there is no subtraction), so it is marked with the step that made it. Values are
numbered: inputs first, then one number per chunk added, with :func:`sum_bytes` bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from explorer.verify.spec import Memory, Spec
from explorer.verify.structure import Links
from sim.program import (
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Op,
    Program,
)

IntArray = npt.NDArray[np.int64]
ValueArray = npt.NDArray[np.int32]

NEVER = -1
"""Value of a cell that nothing was written to."""
GARBAGE = -2
"""Value copied from such a cell."""

TWICE, MIXED, UNSET = 1, 2, 3
"""Why a sum is wrong: a rank counts twice, chunks differ, a term is garbage."""

_REDUCE, _NOP = int(Op.REDUCE), int(Op.NOP)


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Memory after a program has run.

    Parameters
    ----------
    inputs
        Number of input values (rank · input size + offset).
    cell
        int32: value of every cell.
    chunk, bits, fault, step, twice
        Of every sum: offset, uint64 ``[sums, ceil(R/64)]`` of ranks, why it is wrong (0: it is
        not), the step that made it or its first fault, and a rank that counts twice.
    unset_step, unset_cell
        Reads of cells that nothing was written to.
    """

    inputs: int
    cell: ValueArray
    chunk: IntArray
    bits: npt.NDArray[np.uint64]
    fault: npt.NDArray[np.int8]
    step: IntArray
    twice: npt.NDArray[np.int32]
    unset_step: IntArray
    unset_cell: IntArray


def sum_bytes(ranks: int) -> int:
    """Bytes that a replay holds per chunk added."""
    return 8 * -(-ranks // 64) + 21


def replay(program: Program, links: Links, spec: Spec, memory: Memory, order: IntArray) -> Replay:
    """Run the steps in ``order`` on symbolic values.

    Parameters
    ----------
    order
        Every step once, each after all that it waits for.
    """
    rank = program.tb_rank[program.step_block()].astype(np.int64)
    cnt = program.cnt.astype(np.int64)
    src = memory.cells_of(rank, program.src_buf.astype(np.int64), program.src_off)
    dst = memory.cells_of(rank, program.dst_buf.astype(np.int64), program.dst_off)
    sends = OP_SENDS[program.op]
    receives = OP_RECEIVES[program.op]
    reads = OP_READS_SRC[program.op]
    out_first = np.concatenate(([0], np.cumsum(np.where(sends, cnt, 0))))
    adds = (receives & reads) | (program.op == Op.REDUCE)
    sums = int(cnt[adds].sum())
    words = -(-program.ranks // 64)
    per_rank = spec.input_size if spec.name != "custom" else int(program.i_chunks.max(initial=0))
    cell = np.full(memory.cells, NEVER, dtype=np.int32)
    for r in range(program.ranks):
        if spec.gives_input(r):
            size = per_rank if spec.name != "custom" else int(program.i_chunks[r])
            first = memory.base[r, 0]
            cell[first : first + size] = r * per_rank + np.arange(size)
    chunk = np.empty(sums, dtype=np.int64)
    bits = np.zeros((sums, words), dtype=np.uint64)
    fault = np.zeros(sums, dtype=np.int8)
    made = np.empty(sums, dtype=np.int64)
    twice = np.empty(sums, dtype=np.int32)
    unset = _replay(
        order,
        program.op,
        src,
        dst,
        cnt,
        sends,
        receives,
        reads,
        OP_WRITES_DST[program.op],
        links.sender,
        out_first,
        per_rank,
        program.ranks * per_rank,
        cell,
        chunk,
        bits,
        fault,
        made,
        twice,
        np.empty(out_first[-1], dtype=np.int32),
    )
    inputs = program.ranks * per_rank
    return Replay(inputs, cell, chunk, bits, fault, made, twice, unset[:, 0], unset[:, 1])


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _replay(  # noqa: PLR0912, PLR0915 - one kernel, so that nothing is boxed between its parts
    order: IntArray,
    op: npt.NDArray[np.int8],
    src: IntArray,
    dst: IntArray,
    cnt: IntArray,
    sends: npt.NDArray[np.bool_],
    receives: npt.NDArray[np.bool_],
    reads: npt.NDArray[np.bool_],
    writes: npt.NDArray[np.bool_],
    sender: IntArray,
    out_first: IntArray,
    per_rank: int,
    inputs: int,
    cell: ValueArray,
    chunk: IntArray,
    bits: npt.NDArray[np.uint64],
    fault: npt.NDArray[np.int8],
    made: IntArray,
    twice: npt.NDArray[np.int32],
    wire: ValueArray,
) -> IntArray:
    sums = 0
    words = bits.shape[1]
    unset = np.empty((1 << 10, 2), np.int64)  # more than a report keeps
    unset_count = 0
    both = np.zeros(2, np.int64)
    for step in order:
        if op[step] == _NOP:
            continue
        for c in range(cnt[step]):
            terms = 0
            if receives[step]:
                both[0] = wire[out_first[sender[step]] + c]
                terms = 1
            for operand in range(2):
                if operand == 0:
                    if not reads[step]:
                        continue
                    at = src[step] + c
                else:
                    if op[step] != _REDUCE:
                        continue
                    at = dst[step] + c
                value = np.int64(cell[at])
                if value == NEVER:
                    if unset_count < len(unset):
                        unset[unset_count, 0] = step
                        unset[unset_count, 1] = at
                        unset_count += 1
                    value = np.int64(GARBAGE)
                both[terms] = value
                terms += 1
            result = both[0]
            if terms == 2:
                result = inputs + sums
                made[sums] = step
                for t in range(2):
                    value = both[t]
                    if value < 0:
                        one_fault, one_chunk = UNSET, chunk[sums] if t else -1
                    elif value < inputs:
                        one_fault, one_chunk = 0, value % per_rank
                    else:
                        one_fault, one_chunk = fault[value - inputs], chunk[value - inputs]
                        if one_fault != 0 and fault[sums] == 0:
                            made[sums] = made[value - inputs]
                            twice[sums] = twice[value - inputs]
                    if fault[sums] == 0:
                        fault[sums] = one_fault
                    if t == 0:
                        chunk[sums] = one_chunk
                    elif fault[sums] == 0 and one_chunk != chunk[sums]:
                        fault[sums] = MIXED
                    if value >= inputs:
                        for w in range(words):
                            same = bits[sums, w] & bits[value - inputs, w]
                            if fault[sums] == 0 and same:
                                fault[sums] = TWICE
                                twice[sums] = 64 * w
                                while not same & np.uint64(1):
                                    same >>= np.uint64(1)
                                    twice[sums] += 1
                            bits[sums, w] |= bits[value - inputs, w]
                    elif value >= 0:
                        rank = value // per_rank
                        one = np.uint64(1) << np.uint64(rank % 64)
                        if fault[sums] == 0 and bits[sums, rank // 64] & one:
                            fault[sums] = TWICE
                            twice[sums] = rank
                        bits[sums, rank // 64] |= one
                sums += 1
            if writes[step]:
                cell[dst[step] + c] = result
            if sends[step]:
                wire[out_first[step] + c] = result
    return unset[:unset_count]
