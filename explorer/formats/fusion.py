"""Fusion of reductions by the loaders: where it happens, and where it would change a program.

A loader fuses consecutive ``re`` steps of one block when source buffer, destination buffer and
destination offset agree, the later one waits for nothing and nobody waits for the earlier one
(microsoft/msccl ``src/graph/topo.cc``, Azure/msccl-executor-nccl ``msccl_parser.cc``). The fused
step reads all sources before it writes, and uses the last count for all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program import Buffer, Op, Program

BoolArray = npt.NDArray[np.bool_]


def fusible(program: Program, raised: BoolArray) -> BoolArray:
    """Whether each step is fused into the next one, bool ``[S]``.

    Parameters
    ----------
    program
        Any program.
    raised
        Whether each step carries ``hasdep``, bool ``[S]``.
    """
    joins = np.zeros(program.steps, np.bool_)
    if program.steps < 2:
        return joins
    block = program.step_block()
    same = np.diff(block) == 0
    for column in (program.src_buf, program.dst_buf, program.dst_off):
        same &= column[:-1] == column[1:]
    reductions = (program.op[:-1] == Op.REDUCE) & (program.op[1:] == Op.REDUCE)
    free = np.diff(program.dep_first)[1:] == 0
    joins[:-1] = same & reductions & free & ~raised[:-1]
    return joins


def fusion_breaks(program: Program, raised: BoolArray, longest: int | None) -> BoolArray:
    """Steps that need ``hasdep`` only to stay apart from the next one, bool ``[S]``.

    Apart are reductions of different counts, those that read what the run writes, and what
    would make a run longer than the loader's array. Nobody waits for such a flag.

    Parameters
    ----------
    program, raised
        As for :func:`fusible`.
    longest
        Longest run the loader can take; None for any.
    """
    breaks = np.zeros(program.steps, np.bool_)
    length, previous = 1, -2
    for i in np.flatnonzero(fusible(program, raised)).tolist():
        length = length if i == previous + 1 else 1
        apart = program.cnt[i] != program.cnt[i + 1] or _reads_target(program, i + 1)
        if apart or length == longest:
            breaks[i] = True
            length = 1
        else:
            length += 1
        previous = i
    return breaks


def fused_counts(program: Program, raised: BoolArray) -> npt.NDArray[np.int32]:
    """Count that every step has after fusion: the last one of its run, int32 ``[S]``."""
    counts = program.cnt.copy()
    for i in np.flatnonzero(fusible(program, raised))[::-1].tolist():
        counts[i] = counts[i + 1]
    return counts


def _reads_target(program: Program, step: int) -> bool:
    source, target = int(program.src_buf[step]), int(program.dst_buf[step])
    if source != target:
        # input and output may be one memory
        return program.in_place and Buffer.SCRATCH not in (source, target)
    return abs(int(program.src_off[step]) - int(program.dst_off[step])) < int(program.cnt[step])
