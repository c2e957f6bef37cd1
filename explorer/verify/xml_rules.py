"""Rules of the file that a Program no longer shows: numbering, nops, flags, fused reductions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.verify.report import Ledger
from explorer.verify.xml_tree import STEP_TYPES, Document

IntArray = npt.NDArray[np.int64]
Columns = dict[str, IntArray]
"""Attributes of the steps, in the order of (gpu, tb, step)."""

_SAME = ("srcbuf", "dstbuf", "dstoff")
_NOP, _RE = STEP_TYPES.index("nop"), STEP_TYPES.index("re")


def reduction_chains(document: Document) -> list[tuple[int, int]]:
    """Runs of ``re`` that runtimes fuse into one operation, as (first step, length) from 2 on."""
    column = {c: np.asarray(document.steps[c]) for c in (*_SAME, "type", "depid", "hasdep")}
    steps = len(column["type"])
    adds = column["type"] == _RE
    joins = np.zeros(steps + 1, dtype=np.bool_)  # with the step before
    joins[1:steps] = adds[1:] & adds[:-1] & (column["depid"][1:] < 0) & (column["hasdep"][:-1] == 0)
    for name in _SAME:
        joins[1:steps] &= column[name][1:] == column[name][:-1]
    joins[[block.first for block in document.blocks]] = False
    starts = np.flatnonzero(~joins[:-1] & joins[1:])
    ends = np.flatnonzero(joins[:-1] & ~joins[1:])
    return list(zip(starts.tolist(), (ends - starts + 1).tolist(), strict=True))


def check_numbering(columns: Columns, first: IntArray, ledger: Ledger) -> None:
    """Step numbers: loaders count for themselves, so other numbers misdirect dependencies."""
    counts = np.diff(first)
    right = np.arange(int(first[-1])) - np.repeat(first[:-1], counts)
    for i in np.flatnonzero(columns["s"] != right):
        ledger.error(
            "STEP",
            f"line {columns['line'][i]}",
            f"s is {columns['s'][i]} where {right[i]} was expected: runtimes number steps"
            " themselves",
        )


def check_nops(columns: Columns, first: IntArray, ledger: Ledger) -> None:
    """Rules that make the runtimes' own step numbers equal ``s``."""
    nop = columns["type"] == _NOP
    free = columns["depid"] < 0
    line = columns["line"]
    for i in np.flatnonzero(nop & free):
        ledger.error("NOP", f"line {line[i]}", "a nop carries exactly one dependency, this none")
    for i in np.flatnonzero(nop & (columns["hasdep"] != 0)):
        ledger.warning("NOP", f"line {line[i]}", "hasdep on a nop does nothing")
    ends = np.zeros(len(nop), dtype=np.bool_)
    ends[first[1:][np.diff(first) > 0] - 1] = True
    for i in np.flatnonzero(nop & ends):
        ledger.error("NOP", f"line {line[i]}", "a block ends in a nop, whose dependency is dropped")
    after = np.flatnonzero(nop[:-1] & ~ends[:-1] & ~nop[1:] & free[1:]) + 1
    for i in after:
        ledger.error(
            "NOP",
            f"line {line[i]}",
            "the step after nops has no dependency of its own: loaders refuse it",
        )


def check_fusion(document: Document, ledger: Ledger) -> None:
    """Fused ``re`` take the last count and read every source before they write."""
    column = document.steps
    for start, length in reduction_chains(document):
        steps = range(start, start + length)
        counts = sorted({column["cnt"][i] for i in steps})
        where = f"line {column['line'][start]}"
        if len(counts) > 1:
            ledger.error(
                "FUSION",
                where,
                f"{length} re steps fuse into one of the last cnt,"
                f" but theirs are {', '.join(map(str, counts))}",
            )
        if column["srcbuf"][start] == column["dstbuf"][start]:
            low = column["dstoff"][start]
            for i in steps[1:]:
                if abs(column["srcoff"][i] - low) < column["cnt"][i]:
                    ledger.error(
                        "FUSION",
                        f"line {column['line'][i]}",
                        "fused with the re before it, whose result it reads before that is written",
                    )


def check_flags(columns: Columns, waiter: IntArray, target: IntArray, ledger: Ledger) -> None:
    """Awaited steps must raise a flag."""
    silent = (columns["hasdep"][target] == 0) & (columns["type"][target] != _NOP)
    for a, b in zip(waiter[silent], target[silent], strict=True):
        ledger.error(
            "HASDEP",
            f"line {columns['line'][b]}",
            f"hasdep is 0, but line {columns['line'][a]} waits for this step: that wait ends late"
            " or never",
        )
