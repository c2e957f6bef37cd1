"""What ``explorer topology list`` and ``show`` say of machines, as rows and as text."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.sketch import rank_ranges
from explorer.core.topology import Topology
from explorer.topologies.load import load_topology, read_topology
from explorer.topologies.picture import cost_text, picture
from explorer.topologies.registry import BUILDERS, EXAMPLE_SHAPES, system_names, systems_folder
from explorer.units import gbs_of_beta


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A machine that can be asked for by name.

    Parameters
    ----------
    name
        With the shape it takes after a colon: ``mesh:AxB[xC]``.
    summary
        One line.
    example
        What the counts are of.
    ranks, nodes, links
        Counts of the example; links are counted per direction.
    notes
        Sources of its constants, and what is a guess.
    """

    name: str
    summary: str
    example: str
    ranks: int
    nodes: int
    links: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One direction of a link.

    Parameters
    ----------
    src, dst
        Names of its ends.
    kind, lanes
        As in the topology.
    alpha_us, beta_us_per_mib
        Its costs; in a profile's own units per chunk.
    gbs
        Its rate in GB/s; None in a profile's own units.
    """

    src: str
    dst: str
    kind: str
    lanes: int
    alpha_us: float
    beta_us_per_mib: float
    gbs: float | None


def machine_table() -> list[MachineRow]:
    """Rows of all builders, then of the shipped machine files."""
    rows = []
    for name, builder in BUILDERS.items():
        example = f"{name}:{EXAMPLE_SHAPES[name]}" if builder.shape_help else name
        title = f"{name}:{builder.shape_help}" if builder.shape_help else name
        rows.append(_row(title, builder.summary, example, load_topology(example)))
    for name in system_names():
        topology = read_topology(systems_folder() / f"{name}.yaml")
        rows.append(_row(name, topology.notes[0] if topology.notes else "", name, topology))
    return rows


def _row(name: str, summary: str, example: str, topology: Topology) -> MachineRow:
    counts = (topology.ranks, topology.nodes, len(topology.links))
    return MachineRow(name, summary, example, *counts, topology.notes)


def link_table(topology: Topology) -> list[LinkRow]:
    """Every direction of every link, in the topology's order."""
    profile = topology.time_unit == "profile"
    return [
        LinkRow(
            topology.devices[link.src].name,
            topology.devices[link.dst].name,
            link.kind,
            link.lanes,
            link.alpha_us,
            link.beta_us_per_mib,
            None if profile else gbs_of_beta(link.beta_us_per_mib),
        )
        for link in topology.links
    ]


def nic_table(topology: Topology) -> dict[int, str]:
    """NIC over which each rank reaches other nodes; ranks that have none are left out."""
    found: dict[int, str] = {}
    for rank in range(topology.ranks):
        routes = topology.routes_from(rank)
        home = topology.node_of[rank]
        far = (routes[dst] for dst in sorted(routes) if topology.node_of[dst] != home)
        route = next(far, None)
        if route is None:
            continue
        passed = (topology.devices[topology.links[i].dst] for i in route.links)
        nic = next((device.name for device in passed if device.kind == "nic"), None)
        if nic is not None:
            found[rank] = nic
    return found


def idle_nics(topology: Topology) -> list[str]:
    """NICs of a machine of several nodes that no rank uses."""
    if topology.nodes < 2:
        return []
    used = set(nic_table(topology).values())
    sends = {topology.devices[link.src].name for link in topology.links if link.kind == "network"}
    nics = {device.name for device in topology.devices if device.kind == "nic"}
    return sorted((nics & sends) - used)


def route_text(topology: Topology, src: int, dst: int) -> str:
    """Say how a rank reaches another: the devices on the way, alpha and rate.

    Examples
    --------
    >>> route_text(load_topology("switch:4"), 0, 2)
    'gpu0 > switch0 > gpu2: 50 GB/s, 0.5 us'
    """
    route = topology.route(src, dst)
    if route is None:
        return f"gpu{src} cannot reach gpu{dst}"
    names = [f"gpu{src}", *(topology.devices[topology.links[i].dst].name for i in route.links)]
    cost = cost_text(topology, route.alpha_us, route.beta_us_per_mib)
    relays = f", over gpus {rank_ranges(sorted(route.relays))}" if route.relays else ""
    return f"{' > '.join(names)}: {cost}{relays}"


def show_text(topology: Topology) -> str:
    """Describe a machine for people: counts, notes, picture, and who uses which NIC."""
    unit = "us" if topology.time_unit == "us" else "its own units per chunk"
    lines = [
        f"{topology.name}: {topology.ranks} ranks on {topology.nodes} nodes,"
        f" {len(topology.links)} links (each direction counts), times in {unit}",
        *(f"  note: {note}" for note in topology.notes),
        "",
        picture(topology),
    ]
    nics = _nic_lines(topology)
    return "\n".join([*lines, *(["", "NIC used to reach other nodes", *nics] if nics else [])])


def _nic_lines(topology: Topology) -> list[str]:
    """Who uses which NIC, GPUs numbered from 0 in every node, alike nodes once."""
    users: dict[int, dict[str, list[int]]] = {}
    local: dict[int, int] = {}
    table = nic_table(topology)
    for rank, node in enumerate(topology.node_of.tolist()):
        local[node] = local.get(node, -1) + 1
        if rank in table:
            nic = table[rank].removeprefix(f"n{node}/")
            users.setdefault(node, {}).setdefault(nic, []).append(local[node])
    alike: dict[str, list[int]] = {}
    for node, nics in users.items():
        parts = [
            f"{nic} {'shared by gpus' if len(gpus) > 1 else 'gpu'} {rank_ranges(gpus)}"
            for nic, gpus in nics.items()
        ]
        alike.setdefault("; ".join(parts), []).append(node)
    lines = [
        f"  node{'s' if len(nodes) > 1 else ''} {rank_ranges(nodes)}: {text}"
        for text, nodes in alike.items()
    ]
    return [*lines, *(f"  {nic}: unused" for nic in idle_nics(topology))]
