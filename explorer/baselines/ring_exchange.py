"""Ring exchange: AllToAll along a ring in both directions, every chunk the shorter way round.

A rank first puts what goes one way in the order of distance. In each round it passes on what has
come from behind, less the first block, which has arrived: bundles of R/2, R/2 − 1, …, 1 blocks. The
chunks then cross R²/8 times every link in each direction, which is the least, since the distances
from one rank to all others add up to R²/4.
"""

from __future__ import annotations

from collections.abc import Sequence

from explorer.baselines.buffers import Address
from explorer.baselines.writer import Writer
from sim.program import Buffer


def exchange(writer: Writer, order: Sequence[int]) -> None:
    """Write AllToAll along a ring.

    Two bundles per rank and direction lie in scratch, one that is sent and one that comes in.
    """
    ranks = len(order)
    ways = [
        _Way(writer, order, sign, reach)
        for sign, reach in ((1, ranks // 2), (-1, (ranks - 1) // 2))
        if reach
    ]
    # in place the results replace the input: all of it must be put aside before
    for way in ways:
        way.put_aside()
    for t in range(1, ranks // 2 + 1):
        for way in ways:
            way.go(t)
    buffers, c = writer.buffers, writer.per_rank
    for r in order:
        writer.copy(r, buffers.source(r, r * c), buffers.result(r, r * c), c)


class _Way:
    """One direction: to the ranks up to ``reach`` places ahead."""

    def __init__(self, writer: Writer, order: Sequence[int], sign: int, reach: int) -> None:
        self._writer = writer
        self._order = order
        self._sign = sign
        self._reach = reach
        size = reach * writer.per_rank
        self._bundles = [[writer.scratch(r, size), writer.scratch(r, size)] for r in order]

    def put_aside(self) -> None:
        """Copy the blocks for this direction, nearest first."""
        writer, c = self._writer, self._writer.per_rank
        for i, rank in enumerate(self._order):
            for t in range(1, self._reach + 1):
                source = writer.buffers.source(rank, self._at(i, t) * c)
                writer.copy(rank, source, self._bundle(i, 0, t - 1), c)

    def go(self, t: int) -> None:
        """Pass bundles on to the next rank and take out what has arrived."""
        writer, c = self._writer, self._writer.per_rank
        if t > self._reach:
            return
        now, then = (t - 1) % 2, t % 2
        # the first block of an incoming bundle has arrived and stays behind
        skip = 0 if t == 1 else 1
        for i, rank in enumerate(self._order):
            peer = self._at(i, 1)
            j = (i + self._sign) % len(self._order)
            source, target = self._bundle(i, now, skip), self._bundle(j, then, 0)
            writer.move(rank, peer, source, target, (self._reach - t + 1) * c)
        for i, rank in enumerate(self._order):
            origin = self._at(i, -t)
            target = writer.buffers.result(rank, origin * c)
            writer.copy(rank, self._bundle(i, then, 0), target, c, recv=self._at(i, -1))

    def _at(self, i: int, distance: int) -> int:
        return self._order[(i + self._sign * distance) % len(self._order)]

    def _bundle(self, i: int, which: int, block: int) -> Address:
        return int(Buffer.SCRATCH), self._bundles[i][which] + block * self._writer.per_rank
