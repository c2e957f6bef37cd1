"""Collective: which chunks exist, where they lie at the start, where they must lie at the end.

nccl-tests' conventions. With R ranks and C chunks per rank, chunk ids are

- allgather, reducescatter, allreduce: ``owner * C + k`` (R·C chunks). AllGather starts at the
  owner, ReduceScatter ends at the owner, AllReduce starts and ends everywhere; in the last two
  every rank contributes to every chunk.
- alltoall: ``(src * R + dst) * C + k`` (R·R·C chunks).
- broadcast, reduce: ``k`` (C chunks), from or to the root.

The address of a chunk in the input or output buffer of a rank is an offset in chunks; the whole
buffer (nccl-tests' size) has :attr:`Collective.nchunks` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.errors import InputError, Problem, nearest
from explorer.units import ELEMENT_BYTES, MIB

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
"""Keys of the collectives."""

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation on R ranks.

    Parameters
    ----------
    name
        One of :data:`COLLECTIVES`.
    ranks
        R, at least 1.
    chunks_per_rank
        C, at least 1.
    root
        Root of broadcast and reduce; 0 elsewhere.
    """

    name: str
    ranks: int
    chunks_per_rank: int = 1
    root: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.name not in COLLECTIVES:
            problems.append(
                Problem("collective", f"got {self.name!r}, {nearest(self.name, COLLECTIVES)}")
            )
        if self.ranks < 1:
            problems.append(Problem("ranks", f"got {self.ranks}, expected at least 1"))
        if self.chunks_per_rank < 1:
            problems.append(Problem("chunks", f"got {self.chunks_per_rank}, expected at least 1"))
        if not 0 <= self.root < max(self.ranks, 1):
            problems.append(Problem("root", f"got {self.root}, expected 0 to {self.ranks - 1}"))
        if problems:
            raise InputError(problems)

    @property
    def reduces(self) -> bool:
        """Whether chunks are summed over ranks."""
        return self.name in ("reducescatter", "allreduce", "reduce")

    @property
    def rooted(self) -> bool:
        """Whether it has a root."""
        return self.name in ("broadcast", "reduce")

    @property
    def nchunks(self) -> int:
        """Chunks the whole buffer is cut into (``nchunksperloop``)."""
        return self.chunks_per_rank * (1 if self.rooted else self.ranks)

    @property
    def chunk_count(self) -> int:
        """Number of chunk ids."""
        return self.nchunks * (self.ranks if self.name == "alltoall" else 1)

    def sources(self, chunk: int) -> tuple[int, ...]:
        """Ranks that hold (a contribution to) the chunk at the start."""
        if self.reduces:
            return tuple(range(self.ranks))
        if self.name == "broadcast":
            return (self.root,)
        if self.name == "alltoall":
            return (chunk // (self.ranks * self.chunks_per_rank),)
        return (chunk // self.chunks_per_rank,)

    def destinations(self, chunk: int) -> tuple[int, ...]:
        """Ranks that must hold the (fully reduced) chunk at the end."""
        if self.name == "reduce":
            return (self.root,)
        if self.name == "reducescatter":
            return (chunk // self.chunks_per_rank,)
        if self.name == "alltoall":
            return (chunk // self.chunks_per_rank % self.ranks,)
        return tuple(range(self.ranks))

    def input_chunks(self, rank: int) -> IntArray:
        """Chunk id at each offset of the rank's input buffer, int32."""
        c, per = self.chunks_per_rank, self.nchunks
        if self.name == "allgather":
            return np.arange(rank * c, (rank + 1) * c, dtype=np.int32)
        if self.name == "alltoall":
            return np.arange(rank * per, (rank + 1) * per, dtype=np.int32)
        return np.arange(per, dtype=np.int32)

    def output_chunks(self, rank: int) -> IntArray:
        """Chunk id at each offset of the rank's output buffer, int32."""
        c, per = self.chunks_per_rank, self.nchunks
        if self.name == "reducescatter":
            return np.arange(rank * c, (rank + 1) * c, dtype=np.int32)
        if self.name == "alltoall":
            source, k = np.divmod(np.arange(per, dtype=np.int32), c)
            return ((source * self.ranks + rank) * c + k).astype(np.int32)
        return np.arange(per, dtype=np.int32)

    def in_place_shift(self, rank: int) -> tuple[int, int]:
        """Offsets of input and output in the one memory they share when called in place.

        Input address ``k`` is memory cell ``k + shift[0]``, output address ``k`` is memory cell
        ``k + shift[1]``. AllGather: input k is output r·C+k; ReduceScatter: the reverse.
        """
        own = rank * self.chunks_per_rank
        if self.name == "allgather":
            return (own, 0)
        if self.name == "reducescatter":
            return (0, own)
        return (0, 0)

    def busbw_factor(self) -> float:
        """Factor from algbw to busbw (nccl-tests PERFORMANCE.md)."""
        if self.name == "allreduce":
            return 2 * (self.ranks - 1) / self.ranks
        if self.rooted:
            return 1.0
        return (self.ranks - 1) / self.ranks


@dataclass(frozen=True, slots=True)
class Sizing:
    """How many bytes run.

    Parameters
    ----------
    requested_bytes
        What was asked, None in a profile's own units.
    size_bytes
        What runs: whole chunks of whole elements; None in a profile's own units.
    chunk_bytes
        Bytes of one chunk; one MiB in a profile's own units, where costs are per chunk.
    """

    requested_bytes: int | None
    size_bytes: int | None
    chunk_bytes: int

    @property
    def chunk_mib(self) -> float:
        """Chunk size in MiB."""
        return self.chunk_bytes / MIB


def sizing(collective: Collective, size_bytes: int | None) -> Sizing:
    """Round a size down to whole chunks of whole elements.

    Examples
    --------
    >>> sizing(Collective("allgather", 12), 1 << 20).size_bytes
    1048560
    """
    return sizing_of(collective.nchunks, size_bytes)


def sizing_of(nchunks: int, size_bytes: int | None) -> Sizing:
    """Round a size down to ``nchunks`` equal chunks of whole elements."""
    if size_bytes is None:
        return Sizing(None, None, MIB)
    chunk = size_bytes // (nchunks * ELEMENT_BYTES) * ELEMENT_BYTES
    return Sizing(size_bytes, chunk * nchunks, chunk)


def bandwidths_gbs(
    collective: Collective, size_bytes: int | None, time_us: float | None
) -> tuple[float | None, float | None]:
    """Algbw and busbw in GB/s; None where size or time is none or zero, or for a single rank."""
    if not size_bytes or not time_us or collective.ranks < 2:
        return None, None
    algbw = size_bytes / (time_us * 1e3)
    return algbw, algbw * collective.busbw_factor()
