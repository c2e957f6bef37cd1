"""Topology: devices, directed links with alpha-beta costs, and the routes between GPUs.

Every directed physical link is a shared resource: a GPU's link to its NVSwitch is its egress port,
the link back its ingress port, the link from a NIC to the fabric is that NIC's sending side.
Switches (every device that is not a GPU) cut through and do not copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from explorer.errors import InputError, Problem

DEVICE_KINDS = ("gpu", "nvswitch", "pcie", "cpu", "nic", "switch")
"""Kinds of devices; ``switch`` is a network (InfiniBand, Ethernet) or generic switch."""

LINK_KINDS = ("nvlink", "xgmi", "pcie", "socket", "network", "generic")
"""Kinds of links."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, switch, CPU root or NIC.

    Parameters
    ----------
    name
        Unique, e.g. ``gpu3``, ``nvswitch0``, ``nic1``, ``fabric``; on several nodes ``n1/nic0``.
        GPUs are named ``gpu<rank>``.
    kind
        One of :data:`DEVICE_KINDS`.
    node
        Machine it stands in; -1 for the network between machines.
    """

    name: str
    kind: str
    node: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a physical link, and the shared resource it is.

    Parameters
    ----------
    src, dst
        Device indices.
    kind
        One of :data:`LINK_KINDS`.
    alpha_us
        Latency it adds to a message.
    beta_us_per_mib
        Inverse bandwidth of this direction, all lanes together.
    lanes
        Parallel physical lanes it stands for (information only; beta already counts them).
    """

    src: int
    dst: int
    kind: str
    alpha_us: float
    beta_us_per_mib: float
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Route:
    """The way from one GPU to another.

    Parameters
    ----------
    src, dst
        Ranks.
    links
        Indices of the links, in order.
    alpha_us
        Sum of their alphas.
    beta_us_per_mib
        Largest of their betas.
    relays
        Ranks of the GPUs it passes through; empty where switches alone connect the two.
    """

    src: int
    dst: int
    links: tuple[int, ...]
    alpha_us: float
    beta_us_per_mib: float
    relays: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topology:
    """A machine or cluster.

    Parameters
    ----------
    name
        Builder name or the file's own.
    devices, links
        Devices in any order; GPUs become ranks in their order. At most one link per direction
        between two devices: parallel ones are merged before (see :func:`merge_parallel`).
    time_unit
        ``us``, or ``profile`` for a TACCL profile whose costs are per chunk in its own units;
        then ``beta_us_per_mib`` is the cost per chunk and a chunk counts as one MiB.
    nics_per_node
        For profiles only: the divisor of TACCL's inter-node multiplier.
    notes
        Sources of its constants, and what was assumed, one line each.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    time_unit: str = "us"
    nics_per_node: int = 0
    notes: tuple[str, ...] = ()
    _routes: dict[int, dict[int, Route]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        problems = _problems(self.devices, self.links)
        if problems:
            raise InputError([Problem(self.name, p) for p in problems])

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        """Device index of every rank."""
        return tuple(i for i, d in enumerate(self.devices) if d.kind == "gpu")

    @property
    def ranks(self) -> int:
        """Number of GPUs R."""
        return len(self.gpus)

    @cached_property
    def node_of(self) -> npt.NDArray[np.int32]:
        """Node of every rank, int32 ``[R]``."""
        return np.array([self.devices[g].node for g in self.gpus], dtype=np.int32)

    @property
    def nodes(self) -> int:
        """Number of machines that hold GPUs."""
        return len(set(self.node_of.tolist()))

    @cached_property
    def link_names(self) -> tuple[str, ...]:
        """Name of every link as a resource: ``gpu0->nvswitch0``."""
        return tuple(f"{self.devices[k.src].name}->{self.devices[k.dst].name}" for k in self.links)

    def rank_of(self, device: int) -> int:
        """Rank of a device; -1 if it is not a GPU."""
        return self._rank_of.get(device, -1)

    def out_links(self, device: int) -> list[int]:
        """Indices of the links that leave a device, sorted."""
        return self._out[device]

    @cached_property
    def _rank_of(self) -> dict[int, int]:
        return {g: r for r, g in enumerate(self.gpus)}

    @cached_property
    def _closed_nodes(self) -> frozenset[int]:
        """Nodes whose GPUs all reach one another without leaving the node."""
        inside = [k for k in self.links if self.devices[k.src].node == self.devices[k.dst].node]
        ahead: dict[int, list[int]] = {}
        behind: dict[int, list[int]] = {}
        for link in inside:
            ahead.setdefault(link.src, []).append(link.dst)
            behind.setdefault(link.dst, []).append(link.src)
        gpus: dict[int, set[int]] = {}
        for gpu in self.gpus:
            gpus.setdefault(self.devices[gpu].node, set()).add(gpu)
        return frozenset(
            node
            for node, own in gpus.items()
            if own <= _reached(ahead, min(own)) and own <= _reached(behind, min(own))
        )

    @cached_property
    def _out(self) -> list[list[int]]:
        out: list[list[int]] = [[] for _ in self.devices]
        for i, link in enumerate(self.links):
            out[link.src].append(i)
        return out

    def routes_from(self, src: int) -> dict[int, Route]:
        """Routes from a rank to every rank that switches alone (no other GPU) connect it to.

        The widest route wins, then the one with fewest hops, then the lowest alpha, then the
        lowest link indices, so a GPU uses its nearest NIC. Between GPUs of a node that are
        connected inside it (over GPUs or not) no route leaves the node: traffic does not loop
        over a NIC.
        """
        found = self._routes.get(src)
        if found is None:
            found = self._routes[src] = _search(self, src, relay=False)
        return found

    def route(self, src: int, dst: int) -> Route | None:
        """Route between two ranks; over other GPUs where no switch connects them; or None.

        A route over GPUs is charged like one over switches: the message holds all its links.
        """
        direct = self.routes_from(src).get(dst)
        if direct is not None:
            return direct
        return _search(self, src, relay=True, only=dst).get(dst)


def merge_parallel(links: Sequence[Link]) -> tuple[Link, ...]:
    """Merge links of the same direction between the same devices: capacities add up.

    The merged alpha is the smallest. The order is that of first appearance.
    """
    merged: dict[tuple[int, int], Link] = {}
    for link in links:
        key = (link.src, link.dst)
        old = merged.get(key)
        if old is None:
            merged[key] = link
            continue
        both = old.beta_us_per_mib * link.beta_us_per_mib
        total = old.beta_us_per_mib + link.beta_us_per_mib
        merged[key] = Link(
            link.src,
            link.dst,
            old.kind,
            min(old.alpha_us, link.alpha_us),
            both / total if total else 0.0,
            old.lanes + link.lanes,
        )
    return tuple(merged.values())


def _reached(neighbours: dict[int, list[int]], start: int) -> set[int]:
    seen = {start}
    stack = [start]
    while stack:
        for other in neighbours.get(stack.pop(), ()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def _search(topology: Topology, src: int, *, relay: bool, only: int = -1) -> dict[int, Route]:
    """Widest, then shortest routes from a rank by label setting over distinct betas.

    For each bandwidth level from the best down, a breadth-first search over the links at least
    that wide; a GPU reached at a level keeps that route, whose widest link is of that level.
    Levels that reach no new device are skipped.
    """
    start = topology.gpus[src]
    routes: dict[int, Route] = {}
    level: float | None = 0.0
    while level is not None and len(routes) < topology.ranks - 1 and only not in routes:
        into, alphas, following = _breadth_first(topology, start, level, relay)
        paths: dict[int, tuple[int, ...]] = {start: ()}
        for device, i in into.items():
            path = paths[device] = (*paths[topology.links[i].src], i)
            rank = topology._rank_of.get(device)
            if rank is None or rank in routes:
                continue
            relays = _relays(topology, path) if relay else ()
            routes[rank] = Route(src, rank, path, alphas[device], level, relays)
        level = following
    return routes


def _relays(topology: Topology, path: tuple[int, ...]) -> tuple[int, ...]:
    passed = (topology.links[i].dst for i in path[:-1])
    return tuple(topology._rank_of[device] for device in passed if device in topology._rank_of)


def _breadth_first(
    topology: Topology, start: int, level: float, relay: bool
) -> tuple[dict[int, int], dict[int, float], float | None]:
    """Fewest-hop paths over links with beta at most ``level``, ties by alpha, then link indices.

    Returns
    -------
    tuple
        Last link into every device reached (the start apart), parents before children; alpha of
        every device; the next level at which more devices are reached, None where there is none.
    """
    home = topology.devices[start].node
    closed = home in topology._closed_nodes
    into: dict[int, int] = {}
    alphas = {start: 0.0}
    blocked: list[tuple[float, int]] = []
    layer = [start]  # in the order of their paths' link indices
    while layer:
        reached: dict[int, tuple[float, int, int]] = {}
        for order, device in enumerate(layer):
            if not relay and device != start and device in topology._rank_of:
                continue
            alpha = alphas[device]
            from_network = closed and topology.devices[device].node < 0
            for i in topology._out[device]:
                link = topology.links[i]
                other = link.dst
                if other in alphas or (from_network and topology.devices[other].node == home):
                    continue
                if link.beta_us_per_mib > level:
                    blocked.append((link.beta_us_per_mib, other))
                    continue
                label = (alpha + link.alpha_us, order, i)
                old = reached.get(other)
                if old is None or label < old:
                    reached[other] = label
        layer = sorted(reached, key=lambda device: reached[device][1:])
        for device in layer:
            alphas[device], _, into[device] = reached[device]
    following = min((beta for beta, device in blocked if device not in alphas), default=None)
    return into, alphas, following


def _problems(devices: tuple[Device, ...], links: tuple[Link, ...]) -> list[str]:
    problems = []
    names = [d.name for d in devices]
    problems += (
        [f"device {n!r} appears twice" for n in sorted({n for n in names if names.count(n) > 1})]
        if len(set(names)) < len(names)
        else []
    )
    problems += [
        f"device {d.name!r} has unknown kind {d.kind!r}"
        for d in devices
        if d.kind not in DEVICE_KINDS
    ]
    seen = set()
    for link in links:
        if not (0 <= link.src < len(devices) and 0 <= link.dst < len(devices)):
            problems.append(f"link {link.src}->{link.dst} names a device that does not exist")
            continue
        name = f"link {devices[link.src].name}->{devices[link.dst].name}"
        if link.src == link.dst:
            problems.append(f"{name} connects a device with itself")
        if (link.src, link.dst) in seen:
            problems.append(f"{name} appears twice")
        seen.add((link.src, link.dst))
        if not (link.alpha_us >= 0 and np.isfinite(link.alpha_us)):
            problems.append(f"{name} has alpha {link.alpha_us} us, expected a number >= 0")
        if not (link.beta_us_per_mib > 0 and np.isfinite(link.beta_us_per_mib)):
            problems.append(
                f"{name} has beta {link.beta_us_per_mib} us/MiB, expected a number > 0"
                " (leave out dead links)"
            )
    if not any(d.kind == "gpu" for d in devices):
        problems.append("no GPU in it")
    return problems
