"""Memory: the addresses of a collective's chunks on every rank, for one placement of the call.

A *cell* is one chunk of one buffer as an integer ``space << 32 | offset``, so the next chunk of
the same buffer is cell + 1. Spaces 2r and 2r+1 are the input and output of rank r; later numbers
are runs of scratch (:mod:`explorer.lower.runs`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.errors import InputError, Problem, nearest
from sim.program import Buffer

IntArray = npt.NDArray[np.int64]

PLACEMENTS = ("out", "in", "both")
"""Which calls a program serves: out of place, in place, or either."""

CELL_BITS = 32
"""Bits of the offset in a cell."""


class Memory:
    """Where chunks of the caller's buffers lie.

    Out of place, input and output have their own names. In place, one name is used for the
    memory they share, as msccl-tools does it: output for allgather, input for everything else. For
    ``both``, input and output have their own names and may be the same memory.

    Parameters
    ----------
    collective
        The collective that runs.
    placement
        One of :data:`PLACEMENTS`.

    Raises
    ------
    InputError
        If the placement is none of these.
    """

    def __init__(self, collective: Collective, placement: str) -> None:
        if placement not in PLACEMENTS:
            raise InputError(
                Problem("placement", f"got {placement!r}, {nearest(placement, PLACEMENTS)}")
            )
        self.collective = collective
        self.placement = placement
        ranks = range(collective.ranks)
        self._shift = np.array([collective.in_place_shift(r) for r in ranks], dtype=np.int64)
        inputs = [collective.input_chunks(r) if self._gives(r) else _NONE for r in ranks]
        outputs = [collective.output_chunks(r) if self._takes(r) else _NONE for r in ranks]
        self._input = self._table(inputs, Buffer.INPUT)
        self._output = self._table(outputs, Buffer.OUTPUT)

    @property
    def buffer_chunks(self) -> tuple[int, int]:
        """Chunks of the caller's input and output buffer."""
        c = self.collective
        return len(c.input_chunks(0)), len(c.output_chunks(0))

    @property
    def copies_own(self) -> bool:
        """Whether chunks that start where they must end have to be copied there."""
        return self.placement != "in"

    def output_keys(self) -> IntArray:
        """``rank * chunk_count + chunk`` of every chunk that must end somewhere, sorted."""
        return self._output[0]

    def input_cell(self, rank: IntArray, chunk: IntArray) -> IntArray:
        """Cell of a chunk in a rank's input, -1 where it is not in it."""
        return self._look_up(self._input, rank, chunk)

    def output_cell(self, rank: IntArray, chunk: IntArray) -> IntArray:
        """Cell of a chunk in a rank's output, -1 where it need not end there."""
        return self._look_up(self._output, rank, chunk)

    def aliased_chunk(self, output_cell: IntArray) -> IntArray:
        """Chunk of the input that may share memory with an output cell, -1 for none."""
        found = np.full(len(output_cell), -1, dtype=np.int64)
        if self.placement == "out" or not len(self._input[0]):
            return found
        some = output_cell >= 0
        rank = (output_cell >> CELL_BITS) // 2
        memory = self._memory(output_cell)
        _, cells, by_memory = self._input
        order = np.argsort(by_memory, kind="stable")
        at = np.minimum(np.searchsorted(by_memory[order], memory), len(cells) - 1)
        hit = some & (by_memory[order][at] == memory)
        keys = self._input[0][order][at]
        found[hit] = keys[hit] - rank[hit] * self.collective.chunk_count
        return found

    def addresses(self, rank: IntArray, buffer: IntArray, offset: IntArray) -> IntArray:
        """One integer per chunk of physical memory; the next chunk has the next integer.

        For ``both``, input and output are looked at as if they were the same memory: what is
        ordered then is also ordered when they are not, since input is never written.
        """
        kind = buffer.astype(np.int64)
        place = offset.astype(np.int64)
        if self.placement == "both":
            shared = kind < Buffer.SCRATCH
            place = np.where(shared, place + self._shift[rank, np.minimum(kind, 1)], place)
            kind = np.where(shared, 0, kind)
        return ((rank.astype(np.int64) * 3 + kind) << CELL_BITS) + place

    def _gives(self, rank: int) -> bool:
        return self.collective.name != "broadcast" or rank == self.collective.root

    def _takes(self, rank: int) -> bool:
        return self.collective.name != "reduce" or rank == self.collective.root

    def _table(
        self, chunks: list[npt.NDArray[np.int32]], buffer: Buffer
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Sorted keys ``rank * chunk_count + chunk``, their cells and their shared memory."""
        counts = [len(c) for c in chunks]
        rank = np.repeat(np.arange(len(chunks), dtype=np.int64), counts)
        offset = np.concatenate([np.arange(n, dtype=np.int64) for n in counts])
        named = np.full(len(rank), int(buffer), dtype=np.int64)
        if self.placement == "in":
            kept = Buffer.OUTPUT if self.collective.name == "allgather" else Buffer.INPUT
            offset = offset + self._shift[rank, buffer] - self._shift[rank, kept]
            named[:] = kept
        cells = ((2 * rank + named) << CELL_BITS) | offset
        keys = rank * self.collective.chunk_count + np.concatenate(chunks)
        order = np.argsort(keys, kind="stable")
        return keys[order], cells[order], self._memory(cells[order])

    def _memory(self, cell: IntArray) -> IntArray:
        """Place of caller's cells in the memory that input and output share in place."""
        space, offset = cell >> CELL_BITS, cell & ((1 << CELL_BITS) - 1)
        rank = np.maximum(space, 0) // 2
        place: IntArray = (rank << CELL_BITS) + offset + self._shift[rank, space & 1]
        return place

    def _look_up(
        self, table: tuple[IntArray, IntArray, IntArray], rank: IntArray, chunk: IntArray
    ) -> IntArray:
        keys, cells, _ = table
        wanted = rank.astype(np.int64) * self.collective.chunk_count + chunk
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found: IntArray = np.where(keys[at] == wanted, cells[at], -1)
        return found


_NONE = np.zeros(0, dtype=np.int32)
