"""Shortest paths between ranks over a graph's edges."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from explorer.core.rank_graph import RankGraph

FloatArray = npt.NDArray[np.float64]

INFINITE = 1e300
"""Distance of a rank that cannot be reached."""


def distances(
    graph: RankGraph, weight: FloatArray, keep: npt.NDArray[np.bool_] | None = None
) -> FloatArray:
    """Least weight from every rank to every rank, float64 ``[R, R]``."""
    return np.array([distances_from(graph, weight, start, keep) for start in range(graph.ranks)])


def distances_from(
    graph: RankGraph,
    weight: FloatArray,
    start: int,
    keep: npt.NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Least weight from one rank to every rank by Dijkstra's method, float64 ``[R]``.

    Parameters
    ----------
    graph
        The edges.
    weight
        float64 ``[E]``, not negative.
    keep
        bool ``[E]``: only these edges; all when None.
    """
    chosen = np.arange(graph.edges) if keep is None else np.flatnonzero(keep)
    first = np.searchsorted(graph.src[chosen], np.arange(graph.ranks + 1)).tolist()
    lengths, heads = weight[chosen].tolist(), graph.dst[chosen].tolist()
    row = [INFINITE] * graph.ranks
    row[start] = 0.0
    heap = [(0.0, start)]
    while heap:
        d, rank = heapq.heappop(heap)
        if d > row[rank]:
            continue
        for i in range(first[rank], first[rank + 1]):
            reached = d + lengths[i]
            if reached < row[heads[i]]:
                row[heads[i]] = reached
                heapq.heappush(heap, (reached, heads[i]))
    return np.array(row)


def edges_out(graph: RankGraph) -> list[list[int]]:
    """Edges leaving each rank."""
    out: list[list[int]] = [[] for _ in range(graph.ranks)]
    for edge, src in enumerate(graph.src.tolist()):
        out[src].append(edge)
    return out


def edges_in(graph: RankGraph) -> list[list[int]]:
    """Edges entering each rank."""
    into: list[list[int]] = [[] for _ in range(graph.ranks)]
    for edge, dst in enumerate(graph.dst.tolist()):
        into[dst].append(edge)
    return into
