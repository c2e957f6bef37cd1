"""A machine as text: who hangs on which switch, and the rates between GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from explorer.core.sketch import rank_ranges
from explorer.core.topology import Link, Topology
from explorer.units import gbs_of_beta

MAX_MATRIX = 32
"""Most GPUs of a node whose links are drawn as a matrix."""

_NUMBERED = re.compile(r"(.*?)(\d+)")


def picture(topology: Topology) -> str:
    """Draw the nodes, alike ones once, and the network between them."""
    touching: list[list[Link]] = [[] for _ in topology.devices]
    for link in topology.links:
        touching[link.src].append(link)
        touching[link.dst].append(link)
    members: dict[int, list[int]] = {}
    for i, device in enumerate(topology.devices):
        members.setdefault(device.node, []).append(i)
    drawn: dict[str, list[int]] = {}
    for node in sorted(set(topology.node_of.tolist())):
        drawn.setdefault(_node(topology, touching, members[node]), []).append(node)
    parts = []
    for text, nodes in drawn.items():
        title = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {rank_ranges(nodes)}, alike"
        parts.append(f"{title}\n{text}")
    network = _network(topology, touching, members.get(-1, []))
    return "\n\n".join([*parts, f"between nodes\n{network}"] if network else parts)


def cost_text(topology: Topology, alpha: float, beta: float) -> str:
    """Write a cost: ``25 GB/s, 0.7 us``, or per chunk in a profile's own units."""
    if topology.time_unit == "profile":
        return f"{beta:g} per chunk" + (f" + {alpha:g}" if alpha else "")
    return f"{gbs_of_beta(beta):.4g} GB/s, {alpha:.4g} us"


def _node(topology: Topology, touching: list[list[Link]], members: list[int]) -> str:
    """Draw one node with its GPUs numbered from 0."""
    gpus = [i for i in members if topology.devices[i].kind == "gpu"]
    others = [i for i in members if topology.devices[i].kind != "gpu"]
    names = {gpu: f"gpu{i}" for i, gpu in enumerate(gpus)}
    names |= {i: topology.devices[i].name.rpartition("/")[2] for i in others}
    lines = _matrix(topology, touching, gpus)
    for i in others:
        lines += _around(topology, touching[i], i, names, others)
    return "\n".join(lines) if lines else "  " + ", ".join(names.values())


def _around(
    topology: Topology,
    links: Sequence[Link],
    device: int,
    names: dict[int, str],
    centres: Sequence[int],
) -> list[str]:
    """Lines ``switch -- others: cost`` for one of the centres, by cost and direction.

    Of two centres the first says what joins them.
    """
    earlier = {centre for centre in centres if centre < device}
    costs: dict[int, list[tuple[float, float] | None]] = {}
    for link in links:
        other = link.dst if link.src == device else link.src
        if other in names and other not in earlier:
            pair = costs.setdefault(other, [None, None])
            pair[link.src == device] = (link.alpha_us, link.beta_us_per_mib)
    groups: dict[tuple[object, ...], list[str]] = {}
    for other, pair in costs.items():
        groups.setdefault(tuple(pair), []).append(names[other])
    lines = []
    for (into, out), others in groups.items():
        shown = [cost_text(topology, *cost) for cost in (into, out) if isinstance(cost, tuple)]
        arrow = "--" if into is not None and out is not None else "<-" if out is None else "->"
        both = f"in {shown[0]}; out {shown[1]}" if len(set(shown)) == 2 else shown[0]
        lines.append(f"  {names[device]} {arrow} {_ranges(others)}: {both}")
    return lines


def _matrix(topology: Topology, touching: list[list[Link]], gpus: list[int]) -> list[str]:
    """Rates of direct links between the GPUs of a node, rows sending to columns."""
    column = {gpu: i for i, gpu in enumerate(gpus)}
    direct = [k for gpu in gpus for k in touching[gpu] if k.src == gpu and k.dst in column]
    if not direct:
        return []
    profile = topology.time_unit == "profile"
    if len(gpus) > MAX_MATRIX:
        costs = sorted({(k.alpha_us, k.beta_us_per_mib) for k in direct})
        kinds = "; ".join(cost_text(topology, *cost) for cost in costs[:3])
        more = " and more" if len(costs) > 3 else ""
        return [f"  {len(gpus)} GPUs, {len(direct)} links between them: {kinds}{more}"]
    cells = [["."] * len(gpus) for _ in gpus]
    for link in direct:
        beta = link.beta_us_per_mib
        text = f"{beta:.4g}" if profile else f"{gbs_of_beta(beta):.3g}"
        cells[column[link.src]][column[link.dst]] = text
    heads = [f"gpu{i}" for i in range(len(gpus))]
    width = max(len(text) for row in [heads, *cells] for text in row)
    unit = "per chunk" if profile else "GB/s"
    alphas = sorted({k.alpha_us for k in direct})
    latency = "" if profile else f", {alphas[0]:g} us"
    if not profile and len(alphas) > 1:
        latency = f", {alphas[0]:g} to {alphas[-1]:g} us"
    lines = [f"  direct links, {unit}{latency}; rows send to columns"]
    for head, row in zip(["", *heads], [heads, *cells], strict=True):
        lines.append("  " + " ".join(text.rjust(width) for text in (head, *row)))
    return lines


def _network(topology: Topology, touching: list[list[Link]], members: list[int]) -> str:
    """Lines for the devices between nodes, and for links that join GPUs of two nodes."""
    devices = topology.devices
    names = {i: device.name for i, device in enumerate(devices)}
    lines = []
    for i in members:
        lines += _around(topology, touching[i], i, names, members)
    lines += [
        f"  {names[k.src]} -> {names[k.dst]}: {cost_text(topology, k.alpha_us, k.beta_us_per_mib)}"
        for k in topology.links
        if devices[k.src].node != devices[k.dst].node
        and min(devices[k.src].node, devices[k.dst].node) >= 0
    ]
    return "\n".join(lines)


def _ranges(names: Iterable[str]) -> str:
    """Shorten names of equal stem to ranges: ``gpu0-3, nic0``."""
    stems: dict[str, list[int]] = {}
    plain = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            stems.setdefault(match.group(1), []).append(int(match.group(2)))
    parts = [f"{stem}{part}" for stem, found in stems.items() for part in _spans(found)]
    return ", ".join([*parts, *plain])


def _spans(numbers: list[int]) -> list[str]:
    return rank_ranges(sorted(numbers)).split(", ")
