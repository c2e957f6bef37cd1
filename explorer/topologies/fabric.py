"""A network of switches as links a message can hold: crossbars, and cables that NICs share.

Equal switches side by side (spines, cores) act as one crossbar. A message keeps to one cable, as
static routing in InfiniBand and flow hashing in Ethernet have it. So each NIC gets, level by level,
its share of the cables that leave upward: with 8 NICs and 4 cables, two NICs share a cable and
block each other; with 8 cables each has its own. Merging cables into one fat link instead would let
one message at a time pass it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from explorer.core.topology import Device, Link, Topology, merge_parallel
from explorer.errors import InputError, Problem
from explorer.topologies.wiring import Port, Wiring, check_connected, natural, short_list
from explorer.units import beta_us_per_mib, gbs_of_beta

DEFAULT_GBS = 25.0
"""A NIC or cable where neither the node nor the network says a rate: HDR InfiniBand."""


@dataclass(slots=True)
class Group:
    """Switches that act as one crossbar.

    Parameters
    ----------
    name, switches
        What it is called, and what it is made of.
    children
        Groups below; empty for a leaf.
    up
        Rates of the cables to the group above; None where unknown.
    hosts
        Hosts right below.
    """

    name: str
    switches: list[str]
    children: list[Group] = field(default_factory=list)
    up: list[float | None] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


def tree_of(wiring: Wiring) -> Group:
    """Order the switches of a connected network into levels.

    A leaf is a switch with hosts. Switches one level further from the hosts that share lower
    groups are one group: the spines of a leaf-spine network, the aggregation switches of a pod,
    all cores.

    Raises
    ------
    InputError
        If the network has no host or is in parts.
    """
    check_connected(wiring)
    near: dict[str, set[str]] = {switch: set() for switch in wiring.switches}
    for a, b in wiring.trunks:
        near[a].add(b)
        near[b].add(a)
    leaves: dict[str, list[str]] = {}
    for host, ports in wiring.hosts.items():
        for port in ports:
            below = leaves.setdefault(port.switch, [])
            if host not in below:
                below.append(host)
    level = dict.fromkeys(leaves, 1)
    ring = list(leaves)
    while ring:
        following = []
        for switch in ring:
            for other in sorted(near[switch] - level.keys(), key=natural):
                level[other] = level[switch] + 1
                following.append(other)
        ring = following
    groups = [
        Group(switch, [switch], hosts=leaves[switch]) for switch in sorted(leaves, key=natural)
    ]
    for height in range(2, max(level.values()) + 2):
        groups = _next_level(wiring, groups, [s for s, at in level.items() if at == height])
        if len(groups) == 1:
            break
    if len(groups) > 1:
        raise InputError(Problem(wiring.name, "its switches are in no order of levels"))
    return groups[0]


def _next_level(wiring: Wiring, groups: list[Group], switches: list[str]) -> list[Group]:
    """Put groups that switches of the next level, or cables among themselves, join under one."""
    parent = list(range(len(groups) + len(switches)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    index = {name: i for i, group in enumerate(groups) for name in group.switches}
    index |= {name: len(groups) + i for i, name in enumerate(switches)}
    up: dict[int, list[float | None]] = {}
    for (a, b), cables in wiring.trunks.items():
        if a not in index or b not in index or index[a] == index[b]:
            continue
        for one, other in ((index[a], index[b]), (index[b], index[a])):
            # Downward and among switches of the new level nothing is shared.
            if one < len(groups):
                up.setdefault(one, []).extend(cables)
            parent[max(root(one), root(other))] = min(root(one), root(other))
    members: dict[int, list[int]] = {}
    for i in range(len(parent)):
        members.setdefault(root(i), []).append(i)
    result = []
    for part in members.values():
        own = [i for i in part if i < len(groups)]
        above = sorted((switches[i - len(groups)] for i in part if i >= len(groups)), key=natural)
        if not own:
            continue
        if len(own) == 1 and not above:
            result.append(groups[own[0]])
            continue
        for i in own:
            groups[i].up = sorted(up.get(i, []), key=lambda gbs: -(gbs or 0.0))
        name = above[0] if above else f"{groups[own[0]].name}+"
        if len(above) > 1:
            name = f"{above[0]} to {above[-1]}"
        every = [s for i in own for s in groups[i].switches] + above
        result.append(Group(name, every, [groups[i] for i in own]))
    return result


@dataclass(frozen=True, slots=True)
class NodeNic:
    """A NIC of a node that joins the network: device index, alpha and rate of its port."""

    device: int
    alpha_us: float
    gbs: float


def rewire(topology: Topology, wiring: Wiring, *, name: str | None = None) -> Topology:
    """Replace the network between the nodes of a machine.

    Parameters
    ----------
    topology
        A machine of as many nodes as the wiring has hosts; node k becomes host k. What stands
        between its nodes is dropped; its NICs keep their alpha, and their rate where the wiring
        has none.
    wiring
        The network. A host may have as many ports as the node has NICs, or fewer that each stand
        for equally many NICs.
    name
        Name of the result; None for the topology's.

    Raises
    ------
    InputError
        If hosts and nodes, or ports and NICs, do not fit.
    """
    tree = tree_of(wiring)
    nics = network_nics(topology)
    nodes = sorted(nics)
    if len(nodes) != len(wiring.hosts):
        raise InputError(
            Problem(
                wiring.name,
                f"names {len(wiring.hosts)} hosts, the machine has {len(nodes)} nodes with NICs",
            )
        )
    plan = _Plan(topology, wiring)
    for (host, ports), node in zip(wiring.hosts.items(), nodes, strict=True):
        own = nics[node]
        if len(own) % len(ports):
            raise InputError(
                Problem(
                    wiring.name,
                    f"{host} has {len(ports)} ports, a node of {topology.name} has {len(own)} NICs;"
                    " expected as many, or fewer ports that divide them",
                )
            )
        share = len(own) // len(ports)
        for i, nic in enumerate(own):
            plan.attach(nic, ports[i // share])
    plan.group(tree)
    return plan.build(name, _tree_notes(tree, wiring, nics))


def network_nics(topology: Topology) -> dict[int, list[NodeNic]]:
    """NICs with a way out of their node, by node, in the order of the devices."""
    out: dict[int, list[NodeNic]] = {}
    for link in topology.links:
        src, dst = topology.devices[link.src], topology.devices[link.dst]
        if src.node >= 0 and dst.node < 0 and not src.name.endswith(".rx"):
            nic = NodeNic(link.src, link.alpha_us, gbs_of_beta(link.beta_us_per_mib))
            out.setdefault(src.node, []).append(nic)
    return {node: sorted(own, key=lambda nic: nic.device) for node, own in sorted(out.items())}


@dataclass(frozen=True, slots=True)
class _Station:
    """A place on NICs' way up: where cables end that these NICs share."""

    device: int
    gbs: float
    nics: int


class _Plan:
    """Devices and links of the new network."""

    def __init__(self, topology: Topology, wiring: Wiring) -> None:
        self.topology = topology
        self.wiring = wiring
        keep = [i for i, device in enumerate(topology.devices) if device.node >= 0]
        self.position = {old: new for new, old in enumerate(keep)}
        self.devices = [topology.devices[i] for i in keep]
        self.links = [
            replace(link, src=self.position[link.src], dst=self.position[link.dst])
            for link in topology.links
            if link.src in self.position and link.dst in self.position
        ]
        self._ports: dict[str, list[_Station]] = {}

    def device(self, name: str) -> int:
        # Our YAML reads "a1..a4" as a range.
        self.devices.append(Device(name.replace("..", "-"), "switch", -1))
        return len(self.devices) - 1

    def both(self, a: int, b: int, alpha_us: float, gbs: float) -> None:
        beta = beta_us_per_mib(gbs)
        for src, dst in ((a, b), (b, a)):
            self.links.append(Link(src, dst, "network", alpha_us, beta))

    def attach(self, nic: NodeNic, port: Port) -> None:
        """Give a NIC its port at a switch."""
        switch = port.switch
        gbs = port.gbs or nic.gbs
        name = self.topology.devices[nic.device].name.replace("/", ".")
        station = self.device(f"{switch}/{name}")
        self.both(self.position[nic.device], station, nic.alpha_us, gbs)
        self._ports.setdefault(switch, []).append(_Station(station, gbs, port.nics))

    def group(self, group: Group) -> list[_Station]:
        """Add a group and what is below; returns where the cables upward start."""
        if group.children:
            stations = [top for child in group.children for top in self._cables(child)]
        else:
            stations = self._ports.get(group.name, [])
        if len(stations) > 1:
            crossbar = self.device(group.name)
            for station in stations:
                self.both(station.device, crossbar, 0.0, station.gbs)
        return stations

    def _cables(self, child: Group) -> list[_Station]:
        """Share the cables above a group among the stations in it."""
        stations = self.group(child)
        rates = child.up
        tops: list[_Station] = []
        if not stations or not rates:
            return stations
        tops_count = min(len(rates), len(stations))
        for j, rate in enumerate(rates[:tops_count]):
            own = [s for i, s in enumerate(stations) if i * tops_count // len(stations) == j]
            nics = sum(station.nics for station in own)
            # A message keeps to one cable; only NICs that count as one use several at a time.
            cables = min(len(rates) // tops_count, nics)
            gbs = cables * (rate or max(station.gbs / station.nics for station in own))
            alpha = self.wiring.hop_alpha_us
            top = self.device(f"{child.name}/up{j}")
            start = own[0].device
            if len(own) > 1:
                start = self.device(f"{child.name}/in{j}")
                for station in own:
                    self.both(station.device, start, 0.0, max(gbs, station.gbs))
            self.both(start, top, alpha, gbs)
            tops.append(_Station(top, gbs, nics))
        return tops

    def build(self, name: str | None, notes: Sequence[str]) -> Topology:
        topology = self.topology
        return Topology(
            name or topology.name,
            tuple(self.devices),
            merge_parallel(self.links),
            topology.time_unit,
            topology.nics_per_node,
            (*topology.notes, *self.wiring.notes, *notes),
        )


def _tree_notes(tree: Group, wiring: Wiring, nics: Mapping[int, Sequence[NodeNic]]) -> list[str]:
    """Say what the levels are and where they block."""
    notes = []
    leaves = _leaves(tree)
    if len(leaves) > 1:
        shown = "; ".join(f"{g.name}: {short_list(g.hosts)}" for g in leaves[:8])
        more = f" and {len(leaves) - 8} more" if len(leaves) > 8 else ""
        notes.append(f"{len(leaves)} leaf switches: {shown}{more}")
    ratios: dict[str, list[str]] = {}
    for leaf in leaves:
        ports = sum(
            port.nics * max(1, len(own) // len(wiring.hosts[host]))
            for (host, ports_of), own in zip(wiring.hosts.items(), nics.values(), strict=True)
            for port in ports_of
            if port.switch == leaf.name
        )
        if leaf.up:
            word = (
                "not oversubscribed"
                if len(leaf.up) >= ports
                else (f"oversubscribed {ports / len(leaf.up):g} to 1")
            )
            ratios.setdefault(f"{ports} host ports : {len(leaf.up)} uplinks ({word})", []).append(
                leaf.name
            )
    notes += [f"{short_list(names)}: {text}" for text, names in ratios.items()]
    wide = [g for g in _groups(tree) if g.children and " to " in g.name]
    if wide:
        notes.append(
            f"assumed: {short_list(g.name for g in wide)} act as one switch each, and a message"
            " keeps to one cable; NICs are spread over the cables in their order"
        )
    return notes


def _groups(tree: Group) -> list[Group]:
    return [tree, *(group for child in tree.children for group in _groups(child))]


def _leaves(tree: Group) -> list[Group]:
    return [group for group in _groups(tree) if not group.children]
