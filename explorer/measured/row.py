"""Row: one measured time. Remark: what a reader has to say. Reading: all of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from explorer.measured.debug import DebugFacts

MARKS = {
    "zero-size": "no byte was moved: the time is that of a launch, or of nothing",
    "single-rank": "one rank moves nothing over a link: the time is that of a copy, or of nothing",
    "wrong-values": "the run found wrong elements in the result",
    "inconsistent": "size, count, time and bandwidth of the row do not belong together",
    "warm-up": "the first time of a run, several times the ones beside it",
    "library-fallback": "the program was not used at this size: the library's own algorithm ran",
    "run-stopped": "the run ended in a failure at a later size",
}
"""What a row may be marked with, and why."""

NOT_FOR_FITS = frozenset(MARKS) - {"run-stopped"}
"""Marks of rows that say nothing about the machine or the program."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time of one collective at one size.

    Parameters
    ----------
    file, line
        Where it stands.
    collective
        Key of the collective (``allreduce``, …, also ``sendrecv``, ``gather``, ``scatter``); None
        if the file does not say and its columns fit several.
    ranks
        Number of ranks, None if unknown.
    size_bytes
        What nccl-tests calls size.
    placement
        ``out`` or ``in``; None if the file does not say.
    time_us
        Time.
    algbw_gbs, busbw_gbs
        GB/s (1e9) by today's definitions, from size, time and ranks; as printed where the row is
        inconsistent or the ranks are unknown; None for a single rank.
    printed_algbw_gbs, printed_busbw_gbs
        As printed; None where the file has none.
    count, dtype, redop, root
        Columns of nccl-tests; None where absent.
    wrong
        Wrong elements found; None if not checked.
    tolerance
        The old ``error`` column: largest deviation of a value, not a count.
    nodes
        Number of nodes, None if unknown.
    algorithm, protocol, channels, instances
        What ran, where the file says.
    variant
        ``library`` or the name of the program or library where a file compares several.
    marks
        Words of :data:`MARKS`, sorted.
    """

    file: str
    line: int
    collective: str | None
    ranks: int | None
    size_bytes: int
    placement: str | None
    time_us: float
    algbw_gbs: float | None = None
    busbw_gbs: float | None = None
    printed_algbw_gbs: float | None = None
    printed_busbw_gbs: float | None = None
    count: int | None = None
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    wrong: int | None = None
    tolerance: float | None = None
    nodes: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    instances: int | None = None
    variant: str | None = None
    marks: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it may be compared with a prediction or enter a fit."""
        return not NOT_FOR_FITS.intersection(self.marks)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something a reader has to say about a file.

    Parameters
    ----------
    line
        Line it is about, 0 for the whole file.
    kind
        ``refused`` (the line is not used), ``failure`` (the run reports one), ``conflict`` (two
        places disagree), ``assumed`` (derived, not stated) or ``note``.
    message
        What.
    """

    line: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds.

    Parameters
    ----------
    file
        Its name.
    format
        What it was recognised as.
    rows
        Measured times, in the order of the file.
    remarks
        In the order of the lines.
    debug
        What NCCL_DEBUG lines say, None without any.
    """

    file: str
    format: str
    rows: tuple[Row, ...] = ()
    remarks: tuple[Remark, ...] = ()
    debug: DebugFacts | None = field(default=None)


NOTHING = "no measurements found"
"""Stands in the remarks of every file without rows."""
