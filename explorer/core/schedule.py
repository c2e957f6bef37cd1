"""Schedule: which chunk crosses which edge, when, in which message, and whether it reduces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.core.costs import CostModel

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Symmetry:
    """One generator of a symmetry: a permutation of ranks and the chunk permutation it induces.

    Parameters
    ----------
    rank
        int32 ``[R]``: image of each rank.
    chunk
        int32 ``[chunks]``: image of each chunk id.
    """

    rank: IntArray
    chunk: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """An algorithm before lowering.

    Parameters
    ----------
    collective
        What it implements.
    chunk_bytes
        Chunk size the times hold for.
    cost_model
        Cost model the times hold for.
    src, dst, chunk
        int32 ``[N]``: the sends, sorted by (start, src, dst, group, chunk).
    group
        int32 ``[N]``: message of each send. Sends of one message share src, dst, start, end and
        ``reduce``; a message pays one alpha and all its chunks arrive at its end.
    reduce
        bool ``[N]``: the receiver adds the chunk to its own contribution instead of storing it.
    start_us, end_us
        float64 ``[N]``: when the message occupies its edge and when its chunks have arrived
        (under ``pipelined``, alpha after the edge is free again).
    symmetry
        Generators the schedule is invariant under; empty when none is claimed.
    """

    collective: Collective
    chunk_bytes: int
    cost_model: CostModel
    src: IntArray
    dst: IntArray
    chunk: IntArray
    group: IntArray
    reduce: npt.NDArray[np.bool_]
    start_us: FloatArray
    end_us: FloatArray
    symmetry: tuple[Symmetry, ...] = ()

    @property
    def sends(self) -> int:
        """Number of sends N."""
        return len(self.src)

    @property
    def makespan_us(self) -> float:
        """When the last chunk has arrived."""
        return float(self.end_us.max()) if len(self.end_us) else 0.0

    def sorted(self) -> Schedule:
        """The same schedule with its sends in the documented order and groups renumbered by it."""
        order = np.lexsort((self.chunk, self.group, self.dst, self.src, self.start_us))
        group = self.group[order]
        _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
        number = np.argsort(np.argsort(first))
        return replace(
            self,
            src=self.src[order],
            dst=self.dst[order],
            chunk=self.chunk[order],
            group=number[inverse].astype(np.int32),
            reduce=self.reduce[order],
            start_us=self.start_us[order],
            end_us=self.end_us[order],
        )
