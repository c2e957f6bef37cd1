"""Levels: the nodes of a machine as a two-level algorithm sees them.

Where GPUs of a node reach the network over different links (several NICs), GPUs of equal place on
their nodes form *rails* that talk side by side. Where all share one, the node has two *doors*: the
GPU nearest to the NIC sends for all, and another one as near, if there is one, receives for all, so
that neither GPU's own link to the NIC carries both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.baselines.ring_order import node_groups
from explorer.core.topology import Route, Topology

SLACK = 1.5
"""How much wider than the NIC a link must be to be fit for passing on what the NIC delivers."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Parameters
    ----------
    ranks
        Its ranks, ascending.
    leave, enter
        Ranks that send to and receive from other nodes where the node has one NIC.
    direct
        Whether all pairs inside have links of their own of equal width (or a switch), so that
        direct exchange is the best; else rings follow the widest links.
    beta_us_per_mib
        Inverse bandwidth of the way out.
    """

    ranks: tuple[int, ...]
    leave: int
    enter: int
    direct: bool
    beta_us_per_mib: float


@dataclass(frozen=True, slots=True)
class Levels:
    """All nodes.

    Parameters
    ----------
    nodes
        By node number.
    rails
        Whether GPUs of equal place talk over NICs of their own.
    """

    nodes: tuple[Node, ...]
    rails: bool


def find_levels(topology: Topology) -> Levels:
    """Find the nodes, their doors and whether there are rails."""
    groups = node_groups(topology)
    out, into = _ways(topology)
    nodes, rails = [], len({len(group) for group in groups}) == 1
    for ranks in groups:
        leaving = [x for x in ranks if x in out]
        entering = [x for x in ranks if x in into]
        leave = min(leaving, key=lambda x: (_width(out[x]), x), default=ranks[0])
        nearest = [x for x in entering if _width(into[x]) == min(_width(into[y]) for y in entering)]
        enter = next((x for x in nearest if x != leave), leave) if nearest else ranks[0]
        uplinks = {_uplink(topology, out[x]) for x in leaving}
        rails = rails and len(uplinks) > 1 and leaving == entering == ranks
        beta = out[leave].beta_us_per_mib if leaving else math.inf
        nodes.append(Node(tuple(ranks), leave, enter, _is_direct(topology, ranks), beta))
    return Levels(tuple(nodes), rails)


def tree_from(topology: Topology, node: Node, root: int, *, up: bool) -> list[tuple[int, int]]:
    """Tree over a node that keeps up with its NIC and is as flat as that allows.

    A rank adopts further ones as long as none of its links has to carry more than the NIC delivers
    in the same time; hops over links hardly wider than the NIC (the host's own PCIe) are not used
    where others connect all.

    Parameters
    ----------
    up
        Whether data flows to the root.

    Returns
    -------
    list
        (parent, child) pairs, parents first.
    """
    if len(node.ranks) == 1:
        return []
    hops = _hops(topology, node.ranks, up=up)
    nic = node.beta_us_per_mib
    widths = sorted({route.beta_us_per_mib for row in hops.values() for route in row.values()})
    enough = max((w for w in widths if w * SLACK <= nic), default=0.0)
    width = next(
        w for w in widths if w >= enough and _reaches_all(topology, hops, root, w, math.inf)
    )
    bound = max(nic, width)
    while not _reaches_all(topology, hops, root, width, bound):
        bound *= 2
    return _adopted(topology, hops, root, width, bound)


def connected_inside(topology: Topology, ranks: Sequence[int]) -> bool:
    """Whether the ranks of a node reach each other without leaving it."""
    return all(
        _reaches_all(topology, _hops(topology, ranks, up=up), ranks[0], math.inf, math.inf)
        for up in (False, True)
    )


Hops = dict[int, dict[int, Route]]
"""Way between parent and child, in the direction of the data."""


def _hops(topology: Topology, ranks: Sequence[int], *, up: bool) -> Hops:
    hops: Hops = {u: {} for u in ranks}
    for u in ranks:
        for v, route in topology.routes_from(u).items():
            if v in hops:
                parent, child = (v, u) if up else (u, v)
                hops[parent][child] = route
    return hops


def _reaches_all(topology: Topology, hops: Hops, root: int, width: float, bound: float) -> bool:
    return len(_adopted(topology, hops, root, width, bound)) == len(hops) - 1


def _adopted(
    topology: Topology, hops: Hops, root: int, width: float, bound: float
) -> list[tuple[int, int]]:
    """Breadth-first tree over hops up to a width that loads no link above the bound."""
    load: dict[int, int] = {}
    tree, seen, queue = [], {root}, [root]
    for u in queue:
        order = sorted(hops[u].items(), key=lambda item: (_width(item[1]), item[0]))
        for v, route in order:
            if v in seen or route.beta_us_per_mib > width:
                continue
            if any(
                (load.get(k, 0) + 1) * topology.links[k].beta_us_per_mib > bound
                for k in route.links
            ):
                continue
            for k in route.links:
                load[k] = load.get(k, 0) + 1
            tree.append((u, v))
            seen.add(v)
            queue.append(v)
    return tree


def _ways(topology: Topology) -> tuple[dict[int, Route], dict[int, Route]]:
    """Best direct route out of the own node, and into it, of every rank that has one."""
    node = topology.node_of.tolist()
    out: dict[int, Route] = {}
    into: dict[int, Route] = {}
    for u in range(topology.ranks):
        for v, route in sorted(topology.routes_from(u).items()):
            if node[u] == node[v]:
                continue
            if u not in out or _width(route) < _width(out[u]):
                out[u] = route
            if v not in into or _width(route) < _width(into[v]):
                into[v] = route
    return out, into


def _width(route: Route) -> tuple[float, int, float]:
    """Order of routes: widest, shortest, quickest."""
    return route.beta_us_per_mib, len(route.links), route.alpha_us


def _uplink(topology: Topology, route: Route) -> int:
    """Link over which a route leaves its node."""
    own = topology.devices[topology.gpus[route.src]].node
    return next(k for k in route.links if topology.devices[topology.links[k].dst].node != own)


def _is_direct(topology: Topology, ranks: Sequence[int]) -> bool:
    rows = _hops(topology, ranks, up=False)
    widths = {route.beta_us_per_mib for row in rows.values() for route in row.values()}
    return all(len(row) == len(ranks) - 1 for row in rows.values()) and len(widths) <= 1
