"""Hamilton: a cycle or path through all vertices whose busiest link is as idle as possible.

A hop from one vertex to another goes over links; a link that carries m paths of bandwidth one has
load m·beta. The threshold on that load is found by bisection, each time with a depth-first search
of limited size. Large sparse graphs (tori, meshes) defeat such a search, so where it gives up, a
set of cycles that covers all vertices is found by matching and its cycles are joined by exchanging
two hops at a time [1]_.

References
----------
.. [1] R. Karp, "A Patching Algorithm for the Nonsymmetric Traveling-Salesman Problem", SIAM J.
   Computing 8 (1979).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

EXPANSIONS = 4000
"""Vertices that a depth-first search puts on its path before it gives up, or 8 per vertex."""

ENDS_TRIED = 8
"""Ends that are tried for a path that almost closes to a cycle."""

OPEN = -1
"""End of a path that may end anywhere."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A direct way between two vertices.

    Parameters
    ----------
    links
        What it occupies.
    alpha_us
        Its latency: of hops that are equally wide, the quicker one is tried first.
    """

    links: tuple[int, ...]
    alpha_us: float


class Hamilton:
    """Search for cycles and paths over given hops.

    Parameters
    ----------
    hops
        ``hops[u][v]``, None where there is none.
    beta
        Inverse bandwidth of every link.
    load
        Paths that every link carries already.
    """

    def __init__(
        self, hops: Sequence[Sequence[Hop | None]], beta: Sequence[float], load: Sequence[int]
    ) -> None:
        self._hops = hops
        self._beta = beta
        self._load = load
        self._size = len(hops)
        self._weight = [[None if h is None else self._alone(h) for h in row] for row in hops]

    def cycle(self) -> list[int] | None:
        """Best cycle found, from vertex 0 on; None when there is none."""
        return self._best(0, None)

    def path(self, start: int, end: int = OPEN) -> list[int] | None:
        """Best path found between two vertices."""
        return self._best(start, end)

    def near_cycle(self) -> list[int] | None:
        """Path from vertex 0 that ends as near to it as was found, where there is no cycle."""
        distance, frontier = {0: 0}, [0]
        while frontier:
            reached = [
                u
                for u in range(self._size)
                if u not in distance and any(self._hops[u][v] is not None for v in frontier)
            ]
            distance.update(dict.fromkeys(reached, distance[frontier[0]] + 1))
            frontier = reached
        near = sorted((d, u) for u, d in distance.items() if d > 1)
        for _, end in near[:ENDS_TRIED]:
            order = self.path(0, end)
            if order is not None:
                return order
        return self.path(0)

    def _alone(self, hop: Hop) -> float:
        return max((self._beta[k] * (self._load[k] + 1) for k in hop.links), default=0.0)

    def _best(self, start: int, end: int | None) -> list[int] | None:
        if self._size == 1:
            return [0]
        low = self._least(start, end)
        used = sorted({k for row in self._hops for h in row if h is not None for k in h.links})
        steps = {
            self._beta[k] * (self._load[k] + m) for k in used for m in range(1, self._size + 1)
        }
        limits = sorted({low} | {s for s in steps if s > low})
        first = self._within(limits[0], start, end)
        if first is not None:
            return first
        found = None
        bad, good = 0, len(limits)
        while good - bad > 1:
            middle = (bad + good) // 2
            order = self._within(limits[middle], start, end)
            if order is None:
                bad = middle
            else:
                found, good = order, middle
        return found

    def _least(self, start: int, end: int | None) -> float:
        """No order is below this: every vertex is left and entered once."""
        least = 0.0
        for u in range(self._size):
            out = [w for w in self._weight[u] if w is not None]
            into = [row[u] for row in self._weight if row[u] is not None]
            if end is None or u != end != OPEN:
                least = max(least, min(out, default=0.0))
            if end is None or u != start:
                least = max(least, min((w for w in into if w is not None), default=0.0))
        return least

    def _within(self, limit: float, start: int, end: int | None) -> list[int] | None:
        """Order on which no link is loaded above the limit, or None."""
        onward = [self._onward(u, limit) for u in range(self._size)]
        return _Descent(self, onward, limit, start, end).run() or self._patched(
            onward, limit, start, end
        )

    def _onward(self, u: int, limit: float) -> list[int]:
        """Next vertices within the limit: widest first, then quickest, then by number."""
        n = self._size
        row = self._hops[u]
        keys = [
            (self._weight[u][v] or 0.0, hop.alpha_us, (v - u) % n, v)
            for v, hop in enumerate(row)
            if hop is not None and (self._weight[u][v] or 0.0) <= limit
        ]
        return [v for *_, v in sorted(keys)]

    def _patched(
        self, onward: list[list[int]], limit: float, start: int, end: int | None
    ) -> list[int] | None:
        """Order from a cover by cycles; a path is a cycle over a hop from its end to its start."""
        allowed = [set(row) for row in onward]
        if end is not None:
            for u in range(self._size):
                if end in (OPEN, u):
                    allowed[u].add(start)
                else:
                    allowed[u].discard(start)
            if end != OPEN:
                allowed[end] = {start}
        n = self._size
        numbered = list(enumerate(allowed))
        for rows in (
            [sorted(row) for row in allowed],
            [sorted(r, key=[(v - u) % n for v in range(n)].__getitem__) for u, r in numbered],
            [sorted(row, reverse=True) for row in allowed],
        ):
            order = _join(_cover(rows), allowed, start)
            if order and self._carries(order, limit, closed=end is None):
                return order
        return None

    def _carries(self, order: list[int], limit: float, *, closed: bool) -> bool:
        """Whether the loads stay within the limit where hops share links."""
        used: dict[int, int] = {}
        pairs = list(zip(order, [*order[1:], order[0]], strict=True))
        for u, v in pairs if closed else pairs[:-1]:
            hop = self._hops[u][v]
            if hop is None:
                return False
            for k in hop.links:
                used[k] = used.get(k, 0) + 1
                if self._beta[k] * (self._load[k] + used[k]) > limit:
                    return False
        return True

    def fits(self, u: int, v: int, used: dict[int, int], limit: float) -> bool:
        """Whether a hop fits beside what an unfinished order uses already."""
        hop = self._hops[u][v]
        return hop is not None and all(
            self._beta[k] * (self._load[k] + used.get(k, 0) + 1) <= limit for k in hop.links
        )

    def use(self, u: int, v: int, used: dict[int, int], change: int) -> None:
        """Count the links of a hop."""
        hop = self._hops[u][v]
        for k in hop.links if hop is not None else ():
            used[k] = used.get(k, 0) + change


class _Descent:
    """Depth-first search for one limit."""

    def __init__(
        self, search: Hamilton, onward: list[list[int]], limit: float, start: int, end: int | None
    ) -> None:
        self._search = search
        self._onward = onward
        self._limit = limit
        self._end = end
        self._order = [start]
        self._visited = {start}
        self._used: dict[int, int] = {}

    def run(self) -> list[int] | None:
        """An order, or None when there is none or the search gave up."""
        size = len(self._onward)
        budget = max(EXPANSIONS, 8 * size)
        stack: list[Iterator[int]] = [self._next()]
        while stack and budget:
            if len(self._order) == size and self._ends_well():
                return self._order
            v = next(stack[-1], None)
            if v is None:
                stack.pop()
                self._back()
                continue
            budget -= 1
            self._search.use(self._order[-1], v, self._used, 1)
            self._order.append(v)
            self._visited.add(v)
            stack.append(self._next())
        return None

    def _next(self) -> Iterator[int]:
        """Vertices that may follow, judged when they are asked for."""
        u = self._order[-1]
        last = len(self._order) == len(self._onward) - 1
        for v in self._onward[u]:
            if v in self._visited or (v == self._end and not last):
                continue
            if self._search.fits(u, v, self._used, self._limit):
                yield v

    def _back(self) -> None:
        v = self._order.pop()
        self._visited.discard(v)
        if self._order:
            self._search.use(self._order[-1], v, self._used, -1)

    def _ends_well(self) -> bool:
        u = self._order[-1]
        if self._end is None:
            return self._search.fits(u, self._order[0], self._used, self._limit)
        return self._end in (OPEN, u)


def _cover(onward: list[list[int]]) -> list[int] | None:
    """Successor of every vertex so that all lie on cycles: a perfect matching, or None."""
    size = len(onward)
    following, before = [-1] * size, [-1] * size
    for root in range(size):
        # breadth-first augmenting path from root to a vertex without predecessor
        came: dict[int, int] = {}
        frontier, free = [root], -1
        while frontier and free < 0:
            steps = [(u, v) for u in frontier for v in onward[u] if v != u]
            frontier = []
            for u, v in steps:
                if v in came:
                    continue
                came[v] = u
                if before[v] < 0:
                    free = v
                    break
                frontier.append(before[v])
        if free < 0:
            return None
        while free >= 0:
            u = came[free]
            before[free] = u
            following[u], free = free, following[u]
    return following


def _join(following: list[int] | None, allowed: list[set[int]], start: int) -> list[int] | None:
    """Join the cycles of a cover to the one through ``start``; None when that gets stuck.

    Another cycle is put into a hop u → v where it has neighbours y, x with hops u → y and x → v; it
    is run through backwards where that is needed and possible.
    """
    if following is None:
        return None
    cycle_of: dict[int, list[int]] = {}
    for u in (start, *range(len(following))):
        if u not in cycle_of:
            cycle = [u]
            while following[cycle[-1]] != u:
                cycle.append(following[cycle[-1]])
            cycle_of.update(dict.fromkeys(cycle, cycle))
    order, at = cycle_of[start], 0
    joined = set(order)
    while at < len(order):
        u, v = order[at], order[(at + 1) % len(order)]
        fitting = (
            turned
            for y in sorted(allowed[u] - joined)
            for turned in _turns(cycle_of[y], y, allowed)
            if v in allowed[turned[-1]]
        )
        turned = next(fitting, None)
        if turned is None:
            at += 1
        else:
            order[at + 1 : at + 1] = turned
            joined.update(turned)
    return order if len(order) == len(following) else None


def _turns(cycle: list[int], first: int, allowed: list[set[int]]) -> Iterator[list[int]]:
    """The cycle from one of its vertices on, and backwards if its hops allow that."""
    i = cycle.index(first)
    yield cycle[i:] + cycle[:i]
    if all(u in allowed[v] for u, v in zip(cycle, [*cycle[1:], cycle[0]], strict=True)):
        yield cycle[i::-1] + cycle[:i:-1]
