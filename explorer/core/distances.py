"""Arcs: a directed graph as arrays, with shortest distances from many ranks at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

BLOCK = 1 << 18
"""Numbers that one sweep over a block of starts holds: they should fit a processor cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Arcs:
    """Directed graph whose vertices include the ranks.

    Parameters
    ----------
    vertices
        Number of vertices.
    src, dst
        int32 ``[A]``: ends of the arcs.
    rank_vertex
        int32 ``[R]``: vertex of every rank.
    """

    vertices: int
    src: IntArray
    dst: IntArray
    rank_vertex: IntArray

    def reached(self, rank: int, *, backward: bool = False) -> npt.NDArray[np.bool_]:
        """Whether each rank can be reached from a rank, or can reach it; bool ``[R]``."""
        ends = (self.dst, self.src) if backward else (self.src, self.dst)
        seen = np.zeros(self.vertices, dtype=np.bool_)
        seen[self.rank_vertex[rank]] = True
        count = 0
        while count < (count := int(seen.sum())):
            seen[ends[1][seen[ends[0]]]] = True
        return seen[self.rank_vertex]

    def distances(self, weight: FloatArray, ranks: IntArray) -> FloatArray:
        """Shortest distances, float64 ``[len(ranks), vertices]``; infinite where there is no way.

        Parameters
        ----------
        weight
            float64 ``[A]``, none negative.
        ranks
            int32: where to start.

        Notes
        -----
        Bellman-Ford on all starts together: as many sweeps as the longest shortest path has arcs.
        """
        order = np.argsort(self.dst, kind="stable")
        src, cost = self.src[order], weight[order, None]
        into, first = np.unique(self.dst[order], return_index=True)
        result = np.full((self.vertices, len(ranks)), np.inf)
        result[self.rank_vertex[ranks], np.arange(len(ranks))] = 0.0
        columns = max(1, BLOCK // max(len(src), 1))
        for start in range(0, len(ranks) if len(src) else 0, columns):
            # A copy with a row per vertex: rows are gathered whole.
            part = np.ascontiguousarray(result[:, start : start + columns])
            while True:
                best = np.minimum.reduceat(part[src] + cost, first, axis=0)
                old = part[into]
                if not (best < old).any():
                    break
                part[into] = np.minimum(old, best)
            result[:, start : start + columns] = part
        return result.T

    def reversed(self) -> Arcs:
        """The graph with all arcs turned round."""
        return Arcs(self.vertices, self.dst, self.src, self.rank_vertex)
