"""Recursive doubling and halving: log2 R rounds with partners at distances of powers of two.

References
----------
R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
MPICH", IJHPCA 2005: AllGather by recursive doubling (section 3.1), ReduceScatter by recursive
halving (3.2), AllReduce by both with the fold for other rank counts (3.3, 3.5).
"""

from __future__ import annotations

from explorer.baselines.baseline import Baseline, only
from explorer.baselines.buffers import Address
from explorer.baselines.direct import copy_own
from explorer.baselines.writer import Writer
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from sim.program import Buffer

_ONLY = only("allgather", "reducescatter", "allreduce")


def _refuses(collective: Collective, topology: Topology) -> str | None:
    del topology
    ranks = collective.ranks
    if ranks & (ranks - 1) and collective.name in ("allgather", "reducescatter"):
        return f"recursive needs a power of two, got {ranks}"
    return _ONLY(collective, "recursive")


def _write(writer: Writer, topology: Topology) -> None:
    del topology
    kind = writer.collective
    cube = _Cube(writer)
    if kind.reduces:
        cube.fold()
        cube.halve()
    if kind.name != "reducescatter":
        cube.double()
        cube.unfold()


class _Cube:
    """The 2^m ranks that take part, and the chunks each of them stands for.

    Position p of the cube has the chunks ``bounds[p]`` … ``bounds[p + 1] - 1``.
    """

    def __init__(self, writer: Writer) -> None:
        kind = writer.collective
        self.size = 1 << (kind.ranks.bit_length() - 1)
        self.extra = kind.ranks - self.size
        # of the first 2·extra ranks only the even ones take part
        self.ranks = [2 * p if p < self.extra else p + self.extra for p in range(self.size)]
        self.bounds = [p * kind.nchunks // self.size for p in range(self.size + 1)]
        self.writer = writer

    def span(self, first: int, positions: int) -> tuple[int, int]:
        """First chunk and number of chunks of some positions."""
        low = self.bounds[first]
        return low, self.bounds[first + positions] - low

    def fold(self) -> None:
        """Add the odd ranks' parts to those of the even ranks before them."""
        writer, buffers = self.writer, self.writer.buffers
        for u, v in self._outside():
            src, local, dst = buffers.source(u, 0), buffers.source(v, 0), buffers.result(v, 0)
            writer.fold(u, v, src, local, dst, writer.collective.nchunks)

    def unfold(self) -> None:
        """Give the odd ranks the result."""
        buffers = self.writer.buffers
        for u, v in self._outside():
            count = self.writer.collective.nchunks
            self.writer.move(v, u, buffers.result(v, 0), buffers.result(u, 0), count)

    def _outside(self) -> list[tuple[int, int]]:
        return [(2 * p + 1, 2 * p) for p in range(self.extra)]

    def halve(self) -> None:
        """Leave every position with the sum of its chunks."""
        writer = self.writer
        sums = [_Sums(writer, rank, folded=p < self.extra) for p, rank in enumerate(self.ranks)]
        distance = self.size // 2
        while distance:
            folds = []
            for p in range(self.size):
                q = p ^ distance
                low, count = self.span(q - q % distance, distance)
                last = distance == 1
                folds.append((p, q, sums[p].at(low), sums[q].at(low), low, count, last))
            for p, q, src, local, low, count, last in folds:
                dst = sums[q].place(low, count, last=last)
                writer.fold(self.ranks[p], self.ranks[q], src, local, dst, count)
            distance //= 2

    def double(self) -> None:
        """Give every position the chunks of all."""
        writer, buffers = self.writer, self.writer.buffers
        distance = 1
        while distance < self.size:
            for p in range(self.size):
                u, v = self.ranks[p], self.ranks[p ^ distance]
                low, count = self.span(p - p % distance, distance)
                src = buffers.held(u, low) if distance == 1 else buffers.result(u, low)
                writer.move(u, v, src, buffers.result(v, low), count)
            if distance == 1 and writer.collective.name == "allgather":
                copy_own(writer)
            distance *= 2


class _Sums:
    """Where a rank keeps the sums that become fewer with each round.

    At first that is the input. Sums of AllReduce go to the result at once; for ReduceScatter,
    whose result holds the last ones only, they stay in scratch until then.
    """

    def __init__(self, writer: Writer, rank: int, *, folded: bool) -> None:
        self._writer = writer
        self._rank = rank
        self._base: Address | None = writer.buffers.result(rank, 0) if folded else None
        self._low = 0

    def at(self, chunk: int) -> Address:
        """Where the sum of a chunk is now."""
        if self._base is None:
            return self._writer.buffers.source(self._rank, chunk)
        return self._base[0], self._base[1] + chunk - self._low

    def place(self, low: int, count: int, *, last: bool) -> Address:
        """Where the sums of this round go; they are there from now on."""
        writer = self._writer
        if last or writer.collective.name == "allreduce":
            self._base, self._low = writer.buffers.result(self._rank, low), low
        elif self._base is None:
            self._base = (int(Buffer.SCRATCH), writer.scratch(self._rank, count))
            self._low = low
        return self.at(low)


RECURSIVE = Baseline(
    "recursive",
    "recursive doubling and halving, log2 R rounds; powers of two, AllReduce any rank count",
    _refuses,
    _write,
)
