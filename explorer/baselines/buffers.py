"""Buffers: at which address a rank reads and writes a chunk, for every placement of a call.

In place, input and output are one memory. A program that serves in-place calls only names one of
them, as msccl-tools does (``msccl/language/collectives.py``): the output for AllGather, the input
for all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.collective import Collective
from sim.program import Buffer

PLACEMENTS = ("in", "out", "both")
"""Which calls a program serves: in place, out of place, or either."""

Address = tuple[int, int]
"""(buffer, offset in chunks)."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Addresses of chunks on their ranks.

    Chunks are the ids of :class:`~explorer.core.collective.Collective`; for AllToAll they are the
    offset in the buffer, peer · C + k.

    Parameters
    ----------
    collective
        With the chunks that the program has.
    placement
        One of :data:`PLACEMENTS`.
    """

    collective: Collective
    placement: str

    def source(self, rank: int, chunk: int) -> Address:
        """Where the caller put (the rank's contribution to) the chunk."""
        gathers = self.collective.name == "allgather"
        if self.placement == "in":
            return (Buffer.OUTPUT if gathers else Buffer.INPUT), chunk
        own = rank * self.collective.chunks_per_rank
        return Buffer.INPUT, chunk - own if gathers else chunk

    def result(self, rank: int, chunk: int) -> Address:
        """Where the chunk must be at the end."""
        if self.placement == "in":
            return self.source(rank, chunk)
        own = rank * self.collective.chunks_per_rank
        scatters = self.collective.name == "reducescatter"
        return Buffer.OUTPUT, chunk - own if scatters else chunk

    def held(self, rank: int, chunk: int) -> Address:
        """Where a rank reads a chunk to pass it on: its own one of AllGather from the input.

        So nothing waits for the copy of the own chunk to the output. Write that copy last: where
        the program serves both kinds of calls it waits for the sends, which in place read what it
        writes.
        """
        kind = self.collective
        if kind.name in ("allgather", "broadcast") and rank in kind.sources(chunk):
            return self.source(rank, chunk)
        return self.result(rank, chunk)

    def cell(self, rank: int, address: Address) -> Address:
        """Memory cell of an address: equal cells are equal memory in a call the program serves."""
        buffer, offset = address
        if buffer == Buffer.SCRATCH or self.placement == "out":
            return address
        return Buffer.INPUT, offset + self.collective.in_place_shift(rank)[buffer]
