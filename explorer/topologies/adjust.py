"""Rates that the user knows better than the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies.fabric import network_nics, rewire
from explorer.topologies.fields import TOO_FAST_GBS
from explorer.topologies.wiring import Port, Wiring
from explorer.units import beta_us_per_mib


def with_rates(
    topology: Topology,
    *,
    nvlink_gbs: float | None = None,
    pcie_gbs: float | None = None,
    nic_gbs: float | None = None,
) -> Topology:
    """Replace assumed rates.

    Parameters
    ----------
    topology
        A machine with costs per byte.
    nvlink_gbs
        Of one NVLink or xGMI lane; links have it times their lanes.
    pcie_gbs
        Of 16 PCIe lanes, for every PCIe link.
    nic_gbs
        Of every link that leaves a node or runs between switches of the network.

    Raises
    ------
    InputError
        If a rate is out of range, or nothing has such links.
    """
    asked = {
        "--nvlink": (nvlink_gbs, ("nvlink", "xgmi")),
        "--pcie": (pcie_gbs, ("pcie",)),
        "--nic": (nic_gbs, ("network",)),
    }
    notes = list(topology.notes)
    links = list(topology.links)
    for option, (gbs, kinds) in asked.items():
        if gbs is None:
            continue
        if not 0 < gbs < TOO_FAST_GBS:
            raise InputError(Problem(option, f"got {gbs:g} GB/s, which no link carries"))
        if not any(link.kind in kinds for link in links):
            raise InputError(Problem(option, f"{topology.name} has no {' or '.join(kinds)} link"))
        links = [
            replace(
                link,
                beta_us_per_mib=beta_us_per_mib(gbs * (link.lanes if option == "--nvlink" else 1)),
            )
            if link.kind in kinds
            else link
            for link in links
        ]
        per = " per lane" if option == "--nvlink" else ""
        notes.append(f"{option} {gbs:g} GB/s{per}, in place of what the source says or assumes")
    return replace(topology, links=tuple(links), notes=tuple(notes))


def with_leaves(
    topology: Topology, *, rails: bool, per_leaf: int | None, oversubscription: float
) -> Topology:
    """Replace the network between nodes by leaf switches and a spine.

    Parameters
    ----------
    topology
        A machine of several nodes with NICs.
    rails
        NIC i of every node on leaf i; else all NICs of a node on one leaf.
    per_leaf
        Nodes below a leaf; None for all (then without rails there is one leaf and no spine).
    oversubscription
        NICs below a leaf for every uplink it has; 1 blocks nothing.

    Raises
    ------
    InputError
        If there is one node only, or the numbers do not fit.
    """
    nics = network_nics(topology)
    if len(nics) < 2:
        option = "--rails" if rails else "--oversubscription"
        raise InputError(
            Problem(option, f"{topology.name} has no network between nodes; give --nodes")
        )
    if not 1 <= oversubscription <= 64:
        raise InputError(
            Problem("--oversubscription", f"got {oversubscription:g}, expected 1 to 64")
        )
    size = len(nics) if per_leaf is None else per_leaf
    if not 1 <= size <= len(nics):
        raise InputError(Problem("--leaf", f"got {size} nodes per leaf, expected 1 to {len(nics)}"))
    hosts: dict[str, tuple[Port, ...]] = {}
    below: dict[str, list[float]] = {}
    for k, (node, own) in enumerate(nics.items()):
        ports = []
        for i, nic in enumerate(own):
            leaf = f"rail{i}" if rails else f"leaf{k // size}"
            if rails and size < len(nics):
                leaf = f"leaf{k // size}.rail{i}"
            ports.append(Port(f"nic{i}", leaf, nic.gbs))
            below.setdefault(leaf, []).append(nic.gbs)
        hosts[f"node{node}"] = tuple(ports)
    trunks: dict[tuple[str, str], tuple[float | None, ...]] = {}
    if len(below) > 1:
        for leaf, rates in below.items():
            cables = max(1, int(len(rates) / oversubscription))
            trunks[leaf, "spine"] = (max(rates),) * cables
    elif oversubscription > 1:
        raise InputError(
            Problem(
                "--oversubscription", "one leaf switch has no uplinks; give --leaf NODES or --rails"
            )
        )
    what = "rails" if rails else f"{len(below)} leaf switches"
    note = f"network by request: {what}, {size} nodes each, {oversubscription:g} to 1 at the leaves"
    wiring = Wiring("--rails" if rails else "--leaf", hosts, trunks, (note,))
    return rewire(topology, wiring)


def parse_gpus(text: str) -> Sequence[int]:
    """Read ``0-3,6`` as ranks.

    Raises
    ------
    InputError
        If it is no such list.
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 12:
            raise InputError(Problem("--gpus", f"got {text[:40]!r}, expected ranks such as 0-3,6"))
        ranks += range(int(first), int(last if dash else first) + 1)
        if len(ranks) > 1 << 16:
            raise InputError(Problem("--gpus", f"{text[:40]!r} names too many ranks"))
    return sorted(set(ranks))
