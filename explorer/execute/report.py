"""What an execution found."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.errors import Finding

SHOWN = 8
"""Wrong elements and waiting thread blocks that are named."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An element that differs from what the collective's definition gives.

    Parameters
    ----------
    rank
        Rank it is on.
    buffer
        ``output``, or ``input`` where an out-of-place program changed its caller's input.
    offset
        Element in the buffer.
    chunk
        Chunk of the buffer that holds it.
    got, expected
        Values; sums are modulo 2^32.
    """

    rank: int
    buffer: str
    offset: int
    chunk: int
    got: int
    expected: int

    def __str__(self) -> str:
        return (
            f"gpu {self.rank} {self.buffer} element {self.offset} (chunk {self.chunk}):"
            f" got {self.got}, expected {self.expected}"
        )


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """Result of running a program for real.

    Parameters
    ----------
    ok
        Whether it ended and everything is right.
    ranks, processes
        Ranks, and the processes they ran in.
    placement
        ``in`` or ``out``.
    size_bytes
        Size that ran, as nccl-tests counts it.
    elements
        4-byte elements compared, over all ranks.
    iterations
        Times the program looped over its chunks.
    max_error
        Largest absolute difference; 0 when all elements are right.
    wrong
        Number of wrong elements.
    mismatches
        The first of them.
    findings
        Everything that is not right: ``RESULT`` ``INPUT`` (wrong elements), ``DEADLOCK``
        ``TIMEOUT`` (the waiting thread blocks), ``MESSAGE`` (two ends disagree about one),
        ``UNPAIRED`` (messages nobody received). Empty exactly when ok.
    seconds
        Wall-clock time from the start of the first thread block to the end of the last one.
    """

    ok: bool
    ranks: int
    processes: int
    placement: str
    size_bytes: int
    elements: int
    iterations: int
    max_error: int
    wrong: int
    mismatches: tuple[Mismatch, ...]
    findings: tuple[Finding, ...]
    seconds: float
