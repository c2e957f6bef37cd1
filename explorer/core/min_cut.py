"""Minimum cut of a small capacitated graph, by Dinic's algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

TOLERANCE = 1e-12
"""Share of the largest capacity below which what is left of an arc counts as nothing."""


def min_cut(
    vertices: int,
    arcs: Sequence[tuple[int, int, float]],
    source: int,
    sink: int,
    *,
    near_sink: bool = False,
) -> list[int]:
    """Arcs whose removal separates the sink from the source, of least total capacity.

    Parameters
    ----------
    vertices
        Number of vertices.
    arcs
        (tail, head, capacity) of every arc.
    source, sink
        Vertices to separate.
    near_sink
        Of several minimum cuts give the one nearest the sink, not the source.

    Returns
    -------
    list
        Indices of the cut arcs, sorted. Rounding may cost minimality by a share of
        :data:`TOLERANCE`, never the separation.

    References
    ----------
    Dinitz, "Algorithm for solution of a problem of maximum flow in networks with power
    estimation", 1970.

    Examples
    --------
    >>> min_cut(3, [(0, 1, 5.0), (1, 2, 3.0)], 0, 2)
    [1]
    """
    if near_sink:
        turned = [(b, a, capacity) for a, b, capacity in arcs]
        return min_cut(vertices, turned, sink, source)
    flow = _Flow(vertices, arcs)
    while (level := flow.levels(source))[sink] >= 0:
        flow.block(source, sink, level)
    return [i for i, (a, b, _) in enumerate(arcs) if level[a] >= 0 > level[b]]


class _Flow:
    def __init__(self, vertices: int, arcs: Sequence[tuple[int, int, float]]) -> None:
        self.out: list[list[int]] = [[] for _ in range(vertices)]
        self.head: list[int] = []
        self.left: list[float] = []
        self.nothing = TOLERANCE * max((capacity for *_, capacity in arcs), default=0.0)
        for a, b, capacity in arcs:
            for tail, head, amount in ((a, b, capacity), (b, a, 0.0)):
                self.out[tail].append(len(self.head))
                self.head.append(head)
                self.left.append(amount)

    def levels(self, source: int) -> list[int]:
        """Hops from the source over arcs with capacity left; -1 where there is no way."""
        level = [-1] * len(self.out)
        level[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for arc in self.out[vertex]:
                if self.left[arc] > self.nothing and level[self.head[arc]] < 0:
                    level[self.head[arc]] = level[vertex] + 1
                    queue.append(self.head[arc])
        return level

    def block(self, source: int, sink: int, level: list[int]) -> None:
        """Send along shortest paths until each has a full arc."""
        following = [0] * len(self.out)
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                amount = min(self.left[arc] for arc in path)
                for arc in path:
                    self.left[arc] -= amount
                    self.left[arc ^ 1] += amount
                full = next(i for i, arc in enumerate(path) if self.left[arc] <= self.nothing)
                vertex = self.head[path[full] ^ 1]
                del path[full:]
                continue
            arcs = self.out[vertex]
            while following[vertex] < len(arcs):
                arc = arcs[following[vertex]]
                if self.left[arc] > self.nothing and level[self.head[arc]] == level[vertex] + 1:
                    break
                following[vertex] += 1
            else:
                if not path:
                    return
                vertex = self.head[path.pop() ^ 1]
                following[vertex] += 1
                continue
            path.append(arc)
            vertex = self.head[arc]
