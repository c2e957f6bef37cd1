"""Steps: what lowering has decided to run, one row per step, in the plan's order of events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from explorer.lower.memory import CELL_BITS
from explorer.lower.runs import Runs
from sim.program import Buffer

IntArray = npt.NDArray[np.int64]


class Side(IntEnum):
    """Which thread block of a rank a step belongs to."""

    SENDER = 0
    RECEIVER = 1
    LOCAL = 2


class StepList:
    """Collects steps; addresses are cells, -1 where unused."""

    def __init__(self) -> None:
        self.op: list[int] = []
        self.rank: list[int] = []
        self.src: list[int] = []
        self.dst: list[int] = []
        self.cnt: list[int] = []
        self.message: list[int] = []
        self.side: list[int] = []
        self.tick: list[int] = []

    def add(
        self, op: int, rank: int, src: int, dst: int, cnt: int, message: int, side: int, tick: int
    ) -> int:
        """Append a step; its number."""
        self.op.append(op)
        self.rank.append(rank)
        self.src.append(src)
        self.dst.append(dst)
        self.cnt.append(cnt)
        self.message.append(message)
        self.side.append(side)
        self.tick.append(tick)
        return len(self.op) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps with their addresses.

    Parameters
    ----------
    op, rank, cnt
        int64 ``[S]``.
    src_buf, src_off, dst_buf, dst_off
        int64 ``[S]``: addresses; offset -1 (and buffer 0) where unused.
    message, instance
        int64 ``[S]``: message a step belongs to, -1 for copies of own chunks; its instance.
    side
        int64 ``[S]``: values of :class:`Side`.
    tick
        int64 ``[S]``: when the plan has it done; -1 is before everything.
    send, receive
        int64 ``[M]``: the steps at which every message leaves and arrives.
    order
        int64 ``[N]``: columns of the messages in the order in which their chunks travel.
    """

    op: IntArray
    rank: IntArray
    cnt: IntArray
    src_buf: IntArray
    src_off: IntArray
    dst_buf: IntArray
    dst_off: IntArray
    message: IntArray
    instance: IntArray
    side: IntArray
    tick: IntArray
    send: IntArray
    receive: IntArray
    order: IntArray

    @property
    def count(self) -> int:
        """Number of steps S."""
        return len(self.op)


def placed(cell: IntArray, ranks: int, runs: Runs) -> tuple[IntArray, IntArray]:
    """Buffers and offsets of cells."""
    space, offset = cell >> CELL_BITS, cell & ((1 << CELL_BITS) - 1)
    scratch = space >= 2 * ranks
    start = np.append(runs.offsets(), 0)
    at = np.where(scratch, space - 2 * ranks, len(start) - 1)
    buffer = np.where(scratch, int(Buffer.SCRATCH), space & 1)
    unused = cell < 0
    return np.where(unused, 0, buffer), np.where(unused, -1, offset + start[at])
