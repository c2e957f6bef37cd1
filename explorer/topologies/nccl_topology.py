"""Reader of NCCL's and RCCL's topology XML: the PCIe tree with its speeds, NVLinks and NICs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.nccl_system import NcclSystem, PciDevice, read_nccl_system
from explorer.topologies.nvidia_smi import checked_nodes
from explorer.topologies.nvlinks import NvLinks, add_nvlinks
from explorer.topologies.pcie_server import Nic, PcieServer, join_nodes
from explorer.topologies.source import Source
from explorer.topologies.xml_tree import root_tag

SLOW_PCIE_GBS = 3.0
"""A GPU, NIC or switch below this is a virtual machine's fiction, or a lane is broken."""
NET_MBIT = (1e4, 2e4, 2.5e4, 4e4, 5e4, 5.6e4, 1e5, 2e5, 4e5, 8e5)
"""Port rates of InfiniBand and Ethernet in Mb/s, as NCCL writes them."""


def looks_like_nccl_xml(source: Source) -> bool:
    """Whether a file's first element is ``<system>`` or ``<graphs>``."""
    return root_tag(source) in ("system", "graphs")


def read_nccl_topology(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a topology from NCCL's XML.

    Parameters
    ----------
    source
        The file; it describes one node, or several with ``host_hash``.
    nodes
        How many equal ones; None for what the file says.
    sized
        Not used: costs are per byte.

    Raises
    ------
    InputError
        If it is cut, contradicts itself, does not say what its PCI devices are, or holds graphs.
    """
    if root_tag(source) == "graphs":
        raise InputError(
            Problem(
                source.name,
                "this is an NCCL graph file (NCCL_GRAPH_DUMP_FILE): the rings and trees NCCL chose,"
                " not the machine; expected a <system> from NCCL_TOPO_DUMP_FILE",
            )
        )
    system = read_nccl_system(source)
    if system.cut is not None:
        raise InputError(
            Problem(
                system.cut.where,
                f"{system.cut.message}; the file is cut after {len(system.gpus)} GPUs, what is"
                " missing is unknown",
            )
        )
    return nccl_machine(source, system, nodes, None)


def nccl_machine(
    source: Source, system: NcclSystem, nodes: int | None, nvlinks: NvLinks | None
) -> Topology:
    """Build a machine.

    Parameters
    ----------
    source
        For its name.
    system
        What the file says.
    nodes
        ``--nodes``.
    nvlinks
        NVLinks known from elsewhere, for a template that has none.
    """
    hosts = sorted({cpu.element.attributes.get("host_hash", "") for cpu in system.cpus})
    if len(hosts) > 1 and nodes not in (None, len(hosts)):
        raise InputError(
            Problem("--nodes", f"got {nodes}, {source.name} describes {len(hosts)} hosts itself")
        )
    domain = len(hosts) > 1 and _share_switches(system)
    count = 1 if domain else len(hosts) if len(hosts) > 1 else checked_nodes(nodes)
    machine = Assembly(source.stem, count)
    builder = _Machine(source, machine, system)
    nics: list[Nic] = []
    if len(hosts) > 1:
        nics = builder.hosts(hosts, domain)
    else:
        for node in range(count):
            gpus = [machine.gpu(node) for _ in system.gpus]
            if nvlinks is not None:
                add_nvlinks(machine, node, gpus, nvlinks)
            nics += builder.node(node, dict(enumerate(gpus)), system.cpus)
    if count > 1 and not nics:
        raise InputError(
            Problem(source.name, f"{count} nodes, but the file has no NIC, so they cannot meet")
        )
    join_nodes(machine, nics)
    return machine.build((*builder.knowledge(nvlinks), *system.notes, *builder.notes))


class _Machine:
    """Adds nodes; notes what was assumed, once."""

    def __init__(self, source: Source, machine: Assembly, system: NcclSystem) -> None:
        self.source = source
        self.machine = machine
        self.system = system
        self.rank = {gpu.busid: i for i, gpu in enumerate(system.gpus)}
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def _note(self, text: str) -> None:
        self._notes.setdefault(text)

    def _once(self, mark: str, text: str) -> None:
        """Note the first of its sort."""
        if not any(mark in note for note in self._notes):
            self._note(text)

    def knowledge(self, nvlinks: NvLinks | None) -> tuple[str, ...]:
        """Say what the file cannot know."""
        lines = [
            "NCCL's XML knows the PCIe tree, its speeds, NVLinks and NICs; it knows no latencies"
            " and no network, and NCCL's own bandwidths per lane are not in it",
            f"assumed: alphas NVLink {generations.NVLINK_ALPHA_US} us, a GPU's PCIe hop"
            f" {generations.GPU_PCIE_ALPHA_US} us, other PCIe hops {generations.PCIE_ALPHA_US} us,"
            f" CPU to CPU {generations.SOCKET_ALPHA_US} us; nodes in a network that does not block",
        ]
        if self.system.template and nvlinks is None:
            lines.append(
                "warning: a template without <gpu>: NCCL finds NVLinks at run time, so nothing here"
                " says that there are none; give `nvidia-smi topo -m` of the machine as a second"
                " file, or a dump made with NCCL_TOPO_DUMP_FILE"
            )
        return tuple(lines)

    def hosts(self, hashes: Sequence[str], domain: bool) -> list[Nic]:
        """Add the hosts of a file that names several; all are one node if NVSwitches join them."""
        below = [
            [c for c in self.system.cpus if c.element.attributes.get("host_hash", "") == host]
            for host in hashes
        ]
        host_of = {busid: k for k, cpus in enumerate(below) for busid in _gpus_below(cpus)}
        ranks = {
            i: self.machine.gpu(0 if domain else host_of[gpu.busid])
            for i, gpu in enumerate(self.system.gpus)
        }
        if domain:
            self._note(
                f"{len(hashes)} hosts whose GPUs share NVSwitches count as one node (an NVLink"
                " domain)"
            )
        nics: list[Nic] = []
        for k, cpus in enumerate(below):
            server = PcieServer(self.machine, 0 if domain else k, f"h{k}." if domain else "")
            own = {r: d for r, d in ranks.items() if host_of[self.system.gpus[r].busid] == k}
            nics += self._tree(server, own, cpus)
            if not domain:
                self._lanes(k, own, ranks)
        if domain:
            self._lanes(0, ranks, ranks)
        return nics

    def node(self, node: int, gpus: Mapping[int, int], cpus: Sequence[PciDevice]) -> list[Nic]:
        """Add one node; returns its NICs."""
        nics = self._tree(PcieServer(self.machine, node), gpus, cpus)
        self._lanes(node, gpus, gpus)
        return nics

    def _tree(
        self, server: PcieServer, gpus: Mapping[int, int], cpus: Sequence[PciDevice]
    ) -> list[Nic]:
        """Add CPUs and what hangs below."""
        nics: list[Nic] = []
        for cpu in cpus:
            self._below(server, server.socket(), cpu, gpus, nics)
        first = cpus[0].element.attributes
        model = first.get("modelid", "")
        gbs = generations.socket_gbs(
            first.get("vendor", ""), first.get("arch", ""), int(model) if model.isdecimal() else 0
        )
        if len(cpus) > 1:
            server.join_sockets(gbs)
            self._note(
                f"assumed: {gbs:g} GB/s between two CPUs, as NCCL counts"
                f" {first.get('vendor') or 'an unknown vendor'}"
            )
        return nics

    def _below(
        self,
        server: PcieServer,
        parent: int,
        device: PciDevice,
        gpus: Mapping[int, int],
        nics: list[Nic],
    ) -> None:
        """Add what hangs below a CPU or switch."""
        own_gpus: list[tuple[int, float]] = []
        own_nics: list[tuple[int, float]] = []
        for child in device.children:
            gbs = self._pcie_gbs(child)
            if child.kind == "switch":
                switch = server.switch(parent, gbs)
                self._below(server, switch, child, gpus, nics)
            elif child.kind == "gpu" and child.busid in self.rank:
                own_gpus.append((gpus[self.rank[child.busid]], gbs))
            elif child.kind == "nic":
                number = len(nics)
                nic = self.machine.device(f"{server.prefix}nic{number}", "nic", server.node)
                own_nics.append((nic, gbs))
                nics.append(Nic(nic, self._nic_gbs(child, number)))
        if own_gpus or own_nics:
            rate = self._pcie_gbs(device) if device.kind == "switch" else 0.0
            rate = rate or max(gbs for _, gbs in (*own_gpus, *own_nics))
            if server.leaves(parent, own_gpus, own_nics, rate):
                self._note(
                    "assumed: where several GPUs see several NICs on one switch, GPU i uses NIC"
                    " i * nics / gpus, as NCCL spreads them"
                )

    def _pcie_gbs(self, device: PciDevice) -> float:
        """Rate of a device's PCIe link."""
        attributes = device.element.attributes
        generation = generations.pcie_generation(attributes.get("link_speed", ""))
        width = attributes.get("link_width", "")
        lanes = int(width) if width.isdecimal() and len(width) < 4 else 0
        if generation is None:
            self._note(
                "assumed: PCIe 3.0 where link_speed is empty or unknown, as NCCL does, and 16 lanes"
                " where link_width is 0"
            )
        gbs = generations.PCIE_X16_GBS[generation or 3] * min(lanes or 16, 16) / 16
        if gbs < SLOW_PCIE_GBS and device.kind != "other":
            self._note(
                f"warning: line {device.element.line}: {device.busid} has a PCIe link of {gbs:g}"
                " GB/s, which is implausible; virtual machines often report such"
            )
        return gbs

    def _nic_gbs(self, nic: PciDevice, number: int) -> float:
        """Rate of a NIC, all its ports together."""
        if nic.net_mbit:
            ports = len(nic.names)
            if ports > 1:
                self._once(
                    "NICs of several ports",
                    f"NICs of several ports, as nic{number} with {', '.join(nic.names)}, are read"
                    f" as one of their sum, {nic.net_mbit / 8e3:g} GB/s",
                )
            each = nic.net_mbit / ports
            if each not in NET_MBIT:
                self._once(
                    "a port speed",
                    f"warning: line {nic.element.line}: a port speed of {each:g} Mb/s is no rate of"
                    " InfiniBand or Ethernet; taken as it is",
                )
            return nic.net_mbit / 8e3
        generation = generations.pcie_generation(nic.element.attributes.get("link_speed", "")) or 3
        gbs = generations.NIC_GBS[max(3, generation)]
        self._note(
            f"assumed: {gbs:g} GB/s per NIC, the usual one for PCIe {generation}.0; the file does"
            " not say (use --nic)"
        )
        return gbs

    def _lanes(self, node: int, gpus: Mapping[int, int], every: Mapping[int, int]) -> None:
        """Add NVLinks and xGMI links of a node's GPUs."""
        plane = -1
        lost = 0
        for rank, own in sorted(gpus.items()):
            gpu = self.system.gpus[rank]
            ports = [lane for lane in gpu.lanes if lane.to_switch]
            if ports:
                if plane < 0:
                    plane = self.machine.device("nvswitch0", "nvswitch", node)
                count = sum(lane.count for lane in ports)
                gbs = count * self._lane_gbs(gpu, "nvlink")
                alpha = generations.NVLINK_ALPHA_US / 2
                self.machine.both(own, plane, "nvlink", alpha, gbs, count)
            for lane in gpu.lanes:
                other = self.rank.get(lane.target)
                if lane.to_switch:
                    continue
                if other is None:
                    lost += 1
                elif other != rank:
                    gbs = lane.count * self._lane_gbs(gpu, lane.tag)
                    alpha = generations.NVLINK_ALPHA_US
                    self.machine.one_way(own, every[other], lane.tag, alpha, gbs, lane.count)
        if lost:
            self._note(f"{lost} NVLinks go to GPUs that are not in the file; they are left out")
        self._self_links(gpus)

    def _self_links(self, gpus: Mapping[int, int]) -> None:
        """Read NVLinks whose target is their own GPU as bridges between pairs.

        Azure's template of NC A100 v4 writes so; its GPUs are bridged 0-1 and 2-3.
        """
        own = {
            rank: lane
            for rank in sorted(gpus)
            for lane in self.system.gpus[rank].lanes
            if lane.target == self.system.gpus[rank].busid
        }
        ranks = sorted(own)
        if not ranks:
            return
        line = own[ranks[0]].line
        counts = {lane.count for lane in own.values()}
        if len(ranks) % 2 or len(counts) > 1:
            raise InputError(
                Problem(self.source.at(line), f"an NVLink of GPU {ranks[0]} ends at itself")
            )
        pairs = list(zip(ranks[::2], ranks[1::2], strict=True))
        for a, b in pairs:
            lane = own[a]
            gbs = lane.count * self._lane_gbs(self.system.gpus[a], lane.tag)
            alpha = generations.NVLINK_ALPHA_US
            self.machine.both(gpus[a], gpus[b], lane.tag, alpha, gbs, lane.count)
        names = ", ".join(f"{a}-{b}" for a, b in pairs)
        self._note(
            f"warning: line {line}: NVLinks end at their own GPU; assumed to be bridges between"
            f" consecutive GPUs, {names}, as NC A100 v4 has them"
        )

    def _lane_gbs(self, gpu: PciDevice, tag: str) -> float:
        if tag == "xgmi":
            gcn = gpu.gpu.get("gcn", "")
            gbs = generations.xgmi_lane_gbs(gcn)
            self._note(f"{gbs:g} GB/s per xGMI lane and direction, from gcn {gcn or 'missing'}")
            return gbs
        text = gpu.gpu.get("sm", "")
        sm = int(text) if text.isdecimal() and len(text) < 5 else 80
        gbs = generations.nvlink_lane_gbs(sm)
        self._note(f"{gbs:g} GB/s per NVLink and direction, from sm {text or 'missing'}")
        return gbs


def _share_switches(system: NcclSystem) -> bool:
    """Whether GPUs of two hosts name the same NVSwitch."""
    host: dict[str, str] = {}
    for cpu in system.cpus:
        own = cpu.element.attributes.get("host_hash", "")
        busids = set(_gpus_below([cpu]))
        for gpu in system.gpus:
            if gpu.busid in busids:
                for lane in gpu.lanes:
                    if lane.to_switch and host.setdefault(lane.target, own) != own:
                        return True
    return False


def _gpus_below(devices: Sequence[PciDevice]) -> list[str]:
    found: list[str] = []
    for device in devices:
        if device.kind == "gpu":
            found.append(device.busid)
        found += _gpus_below(device.children)
    return found
