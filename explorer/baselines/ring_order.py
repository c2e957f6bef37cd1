"""Ring order: in which order rings visit the ranks of a machine, as wide and as disjoint as can be.

Inside a node a ring follows the widest links. Between nodes it goes from NIC to NIC: it enters a
node at a GPU near the NIC and leaves at another one. Several rings take turns on the links, each
choosing the least loaded ones left: on DGX-1 six rings use every NVLink lane once in each direction
(NCCL's rings on that machine).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from explorer.baselines.hamilton import Hamilton, Hop
from explorer.core.topology import Route, Topology

SEARCHED_NODES = 16
"""Up to so many nodes the order of nodes is searched; above, it is that of their numbers if it can
be."""


def node_groups(topology: Topology) -> list[list[int]]:
    """Ranks of every node, by node number."""
    groups: dict[int, list[int]] = {}
    for rank, node in enumerate(topology.node_of.tolist()):
        groups.setdefault(node, []).append(rank)
    return [groups[node] for node in sorted(groups)]


def ring_orders(
    topology: Topology, count: int, ranks: Sequence[int] | None = None
) -> list[list[int]]:
    """Choose rings, one after the other.

    Parameters
    ----------
    topology
        All of its ranks must reach each other.
    count
        Number of rings.
    ranks
        Only these ranks, which must lie in one node; all ranks when None.

    Returns
    -------
    list
        Ranks in the order of each ring.
    """
    rings = _Rings(topology)
    groups = [list(ranks)] if ranks is not None else node_groups(topology)
    flat = len(groups) == 1 or max(len(group) for group in groups) == 1
    everyone = sorted(rank for group in groups for rank in group)
    return [rings.add(rings.cycle(everyone) if flat else rings.chain(groups)) for _ in range(count)]


class _Rings:
    """Rings chosen so far, as the load they put on each link."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._beta = [link.beta_us_per_mib for link in topology.links]
        self._load = [0] * len(topology.links)

    def add(self, order: list[int]) -> list[int]:
        """Load the links of a ring; returns it."""
        for u, v in zip(order, [*order[1:], order[0]], strict=True):
            if u != v:
                self._use(self._route(u, v))
        return order

    def cycle(self, ranks: list[int]) -> list[int]:
        """Ring over ranks of one node, or of nodes with one GPU each."""
        search = self._search(ranks)
        # where no cycle exists (an odd mesh, a line), its ends are joined over other GPUs
        order = search.cycle() or search.near_cycle()
        return self._nearest(ranks, ranks[0]) if order is None else [ranks[i] for i in order]

    def chain(self, groups: list[list[int]]) -> list[int]:
        """Ring through nodes, each entered and left once."""
        nodes = self._node_order(groups)
        doors = self._doors([groups[k] for k in nodes])
        order: list[int] = []
        for k, (entry, leave) in zip(nodes, doors, strict=True):
            ranks = groups[k]
            path = self._search(ranks).path(ranks.index(entry), ranks.index(leave))
            if path is not None:
                order += [ranks[i] for i in path]
            else:
                inner = [r for r in ranks if r == entry or r != leave]
                order += self._nearest(inner, entry) + [leave] * (leave != entry)
        return order

    def _doors(self, groups: list[list[int]]) -> list[tuple[int, int]]:
        """(Entry, exit) of every node: near the NIC, different where a node has several GPUs."""
        count = len(groups)
        entry, leave = [-1] * count, [-1] * count
        used = list(self._load)
        for k in range(count):
            n = (k + 1) % count
            pairs = [
                (x, y)
                for x in groups[k]
                for y in groups[n]
                if (len(groups[k]) == 1 or x != entry[k]) and (len(groups[n]) == 1 or y != leave[n])
            ]
            found = [
                route
                for x, y in pairs
                if (route := self._topology.routes_from(x).get(y)) is not None
            ]
            best = min(found or [self._route(x, y) for x, y in pairs], key=self._cost(used))
            leave[k], entry[n] = best.src, best.dst
            for link in best.links:
                used[link] += 1
        return list(zip(entry, leave, strict=True))

    def _cost(self, used: list[int]) -> Callable[[Route], tuple[float, int, float, int, int]]:
        def cost(route: Route) -> tuple[float, int, float, int, int]:
            busiest = max(self._beta[k] * (used[k] + 1) for k in route.links)
            return busiest, len(route.links), route.alpha_us, route.src, route.dst

        return cost

    def _node_order(self, groups: list[list[int]]) -> list[int]:
        count = len(groups)
        numbers = list(range(count))
        if count > SEARCHED_NODES and all(
            self._best_between(groups[k], groups[(k + 1) % count]) for k in numbers
        ):
            return numbers
        hops: list[list[Hop | None]] = [[None] * count for _ in numbers]
        beta: list[float] = []
        for a in numbers:
            for b in numbers:
                route = self._best_between(groups[a], groups[b]) if a != b else None
                if route is not None:
                    hops[a][b] = Hop((len(beta),), route.alpha_us)
                    beta.append(route.beta_us_per_mib)
        search = Hamilton(hops, beta, [0] * len(beta))
        return search.cycle() or search.near_cycle() or numbers

    def _best_between(self, ours: list[int], theirs: list[int]) -> Route | None:
        """Widest, then quickest direct route from one node to another."""
        routes = [
            route
            for x in ours
            for y in theirs
            if (route := self._topology.routes_from(x).get(y)) is not None
        ]
        return min(
            routes,
            key=lambda r: (r.beta_us_per_mib, len(r.links), r.alpha_us, r.src, r.dst),
            default=None,
        )

    def _search(self, ranks: list[int]) -> Hamilton:
        hops: list[list[Hop | None]] = []
        for u in ranks:
            routes = self._topology.routes_from(u)
            row = [routes.get(v) if v != u else None for v in ranks]
            hops.append([None if r is None else Hop(r.links, r.alpha_us) for r in row])
        return Hamilton(hops, self._beta, self._load)

    def _nearest(self, ranks: list[int], start: int) -> list[int]:
        """Go on to the nearest rank not yet visited, counted in hops over GPUs."""
        inside = set(ranks)
        near = {u: inside & set(self._topology.routes_from(u)) for u in ranks}
        order, left = [start], inside - {start}
        while left:
            seen, frontier = {order[-1]}, {order[-1]}
            while frontier and not frontier & left:
                frontier = {v for u in frontier for v in near[u]} - seen
                seen |= frontier
            order.append(min(frontier & left or left))
            left.discard(order[-1])
        return order

    def _route(self, u: int, v: int) -> Route:
        route = self._topology.route(u, v)
        if route is None:
            raise AssertionError(f"ranks {u} and {v} were checked to reach each other")
        return route

    def _use(self, route: Route) -> None:
        for link in route.links:
            self._load[link] += 1
