"""Trees: which of the chosen sends are needed, and when each could arrive at best."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from explorer.synth.instance import Instance
from explorer.synth.paths import INFINITE

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def grown_trees(
    instance: Instance, edge: IntArray, chunk: IntArray
) -> tuple[IntArray, IntArray] | None:
    """Shortest-path trees within some sends: every needing rank once, no send that leads nowhere.

    Returns
    -------
    tuple or None
        Edges and chunks, sorted by (chunk, edge); None when some rank that needs a chunk is not
        reached.
    """
    graph = instance.graph
    heads, lengths = graph.dst.tolist(), instance.arrive_us.tolist()
    tails = graph.src.tolist()
    order = np.lexsort((edge, chunk))
    sorted_chunk = chunk[order]
    bounds = np.searchsorted(sorted_chunk, np.arange(instance.chunks + 1))
    edges_of = edge[order].tolist()
    picked_edge: list[int] = []
    picked_chunk: list[int] = []
    for c in np.flatnonzero(instance.needs.any(axis=1)).tolist():
        out: dict[int, list[int]] = {}
        for e in edges_of[bounds[c] : bounds[c + 1]]:
            out.setdefault(tails[e], []).append(e)
        into = _shortest_tree(int(instance.source[c]), out, heads, lengths)
        used: set[int] = set()
        for rank in np.flatnonzero(instance.needs[c]).tolist():
            r = rank
            while r != instance.source[c]:
                if r not in into:
                    return None
                if into[r] in used:
                    break
                used.add(into[r])
                r = tails[into[r]]
        picked_edge += sorted(used)
        picked_chunk += [c] * len(used)
    return np.array(picked_edge, dtype=np.int32), np.array(picked_chunk, dtype=np.int32)


def _shortest_tree(
    source: int, out: dict[int, list[int]], heads: list[int], lengths: list[float]
) -> dict[int, int]:
    """Edge into each rank that is reached, on a shortest path."""
    best = {source: 0.0}
    into: dict[int, int] = {}
    heap = [(0.0, source)]
    while heap:
        d, rank = heapq.heappop(heap)
        if d > best[rank]:
            continue
        for e in out.get(rank, ()):
            reached = d + lengths[e]
            if reached < best.get(heads[e], INFINITE):
                best[heads[e]] = reached
                into[heads[e]] = e
                heapq.heappush(heap, (reached, heads[e]))
    return into


def arrival_times(instance: Instance, edge: IntArray, chunk: IntArray) -> FloatArray:
    """Time each chunk takes to each rank along some trees without waiting, float64 ``[C, R]``.

    INFINITE where a tree does not go.
    """
    graph = instance.graph
    at = np.full((instance.chunks, graph.ranks), INFINITE)
    at[np.arange(instance.chunks), instance.source] = 0.0
    for _ in range(graph.ranks):
        reached = at[chunk, graph.src[edge]] + instance.arrive_us[edge]
        sooner = reached < at[chunk, graph.dst[edge]]
        if not sooner.any():
            break
        at[chunk[sooner], graph.dst[edge[sooner]]] = reached[sooner]
    return at
