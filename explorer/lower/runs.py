"""Runs: pieces of scratch whose place is decided late, so that neighbours can still be chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from explorer.lower.memory import CELL_BITS

IntArray = npt.NDArray[np.int64]

_OFFSET = (1 << CELL_BITS) - 1


class Runs:
    """Runs of scratch cells, each with a fixed order inside.

    A run belongs to one rank and is never used twice, so cells need no ordering between uses.
    Runs of one rank can be joined while nothing else depends on where they lie.

    Parameters
    ----------
    ranks
        Number of ranks; run j is space ``2 * ranks + j`` of a cell.
    """

    def __init__(self, ranks: int) -> None:
        self._first = 2 * ranks
        self._rank: list[int] = []
        self._size: list[int] = []
        self._joined: dict[int, int] = {}

    def new(self, rank: int, size: int) -> int:
        """First cell of a new run."""
        self._rank.append(rank)
        self._size.append(size)
        return (self._first + len(self._rank) - 1) << CELL_BITS

    def holds(self, cell: int) -> bool:
        """Whether a cell is scratch."""
        return cell >> CELL_BITS >= self._first

    def place(self, cell: int) -> int:
        """The cell under the name of the run that its own was joined into."""
        while self._joined:
            space = cell >> CELL_BITS
            start = self._joined.get(space)
            if start is None:
                break
            cell = start + (cell & _OFFSET)
        return cell

    def size(self, cell: int) -> int:
        """Cells in the run of a cell from :meth:`place`."""
        return self._size[(cell >> CELL_BITS) - self._first]

    def join(self, rank: int, firsts: Sequence[int]) -> int:
        """Lay runs, given by their first cells, side by side; the first cell of the whole."""
        whole = self.new(rank, sum(self.size(f) for f in firsts))
        at = whole
        for first in firsts:
            self._joined[first >> CELL_BITS] = at
            at += self.size(first)
        return whole

    def offsets(self) -> IntArray:
        """Scratch offset of every run on its rank, int64: runs lie in the order of their making."""
        start = np.zeros(len(self._rank), dtype=np.int64)
        used: dict[int, int] = {}
        for j, (rank, size) in enumerate(zip(self._rank, self._size, strict=True)):
            if j + self._first not in self._joined:
                start[j] = used.get(rank, 0)
                used[rank] = int(start[j]) + size
        # a run is joined into one made later, so going backwards meets the whole before its parts
        for space in sorted(self._joined, reverse=True):
            into = self._joined[space]
            start[space - self._first] = start[(into >> CELL_BITS) - self._first] + (into & _OFFSET)
        return start
