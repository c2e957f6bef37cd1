"""The ``<system>`` of NCCL's topology XML as nouns, checked; see ``nccl_topology``.

NCCL writes it with ``NCCL_TOPO_DUMP_FILE`` and reads it with ``NCCL_TOPO_FILE``
(``src/graph/xml.cc``); RCCL's has ``<xgmi>`` in place of ``<nvlink>``. Cloud vendors ship templates
that name PCI devices only; NCCL fills in GPUs, NICs and NVLinks when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from explorer.errors import InputError, Problem
from explorer.topologies.source import Source
from explorer.topologies.xml_tree import Element, parse_xml

GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
NIC_CLASSES = ("0x0200", "0x0207")
SWITCH_CLASSES = ("0x0680",)
"""PCI classes: display and 3D controllers, accelerators; Ethernet, InfiniBand; NVSwitch."""


@dataclass(frozen=True, slots=True)
class LaneTo:
    """Lanes from a GPU to a device: ``target`` is its bus id, ``tag`` nvlink or xgmi."""

    tag: str
    target: str
    count: int
    to_switch: bool
    line: int


@dataclass(slots=True)
class PciDevice:
    """A PCI device, or a CPU (``busid`` empty).

    Parameters
    ----------
    kind
        ``cpu``, ``switch``, ``gpu`` or ``nic``.
    element
        Where its attributes stand.
    lanes
        A GPU's NVLinks or xGMI links.
    gpu
        Attributes of its ``<gpu>``; empty in a template.
    net_mbit
        A NIC's ports together, in Mb/s; 0 if the file does not say.
    """

    kind: str
    busid: str
    element: Element
    children: list[PciDevice] = field(default_factory=list)
    lanes: list[LaneTo] = field(default_factory=list)
    gpu: dict[str, str] = field(default_factory=dict)
    net_mbit: float = 0.0
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NcclSystem:
    """A machine as NCCL sees it.

    Parameters
    ----------
    cpus
        NUMA nodes with what hangs below.
    gpus
        GPUs in the order of their ranks.
    template
        Whether no GPU has a ``<gpu>``: then NVLinks are not in the file.
    cut
        What ended the file early; None for a whole one.
    notes
        Oddities.
    """

    cpus: tuple[PciDevice, ...]
    gpus: tuple[PciDevice, ...]
    template: bool
    cut: Problem | None
    notes: tuple[str, ...]

    def pair_lanes(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Lanes of every ordered pair of GPUs that has direct ones, with the line."""
        rank = {gpu.busid: i for i, gpu in enumerate(self.gpus)}
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for i, gpu in enumerate(self.gpus):
            for lane in gpu.lanes:
                other = rank.get(lane.target)
                if other is not None and other != i:
                    before = found.get((i, other), (0, lane.line))
                    found[i, other] = (before[0] + lane.count, before[1])
        return found

    def gpu_lanes(self) -> dict[int, tuple[int, int]]:
        """Lanes of every GPU that has any, all together, with a line."""
        return {
            i: (sum(lane.count for lane in gpu.lanes), gpu.lanes[0].line)
            for i, gpu in enumerate(self.gpus)
            if gpu.lanes
        }


def read_nccl_system(source: Source) -> NcclSystem:
    """Read a ``<system>``; a cut file gives what stands before the cut.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    root, cut = parse_xml(source)
    reader = _Reader(source)
    for child in root.children:
        if child.tag == "cpu":
            reader.cpus.append(reader.device(child, "cpu"))
    system = reader.finish(cut)
    if reader.problems:
        raise InputError(reader.problems)
    return system


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.cpus: list[PciDevice] = []
        self.gpus: list[PciDevice] = []
        self._lines: dict[str, int] = {}

    def problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.source.at(line), message))

    def whole(self, element: Element, key: str, default: int) -> int:
        """Take a whole number."""
        text = element.attributes.get(key, "")
        if not text:
            return default
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 12:
            return int(text)
        self.problem(element.line, f"<{element.tag}> {key}: got {text!r}, expected a whole number")
        return default

    def device(self, element: Element, kind: str) -> PciDevice:
        """Take a ``<cpu>`` or ``<pci>`` with what is inside."""
        busid = element.attributes.get("busid", "").lower()
        device = PciDevice(kind, busid, element)
        if kind != "cpu":
            if not busid:
                self.problem(element.line, "<pci> without busid")
            elif busid in self._lines:
                self.problem(
                    element.line,
                    f"busid {busid} is given twice, first in line {self._lines[busid]}",
                )
            self._lines.setdefault(busid, element.line)
        for child in element.children:
            if child.tag == "pci":
                device.children.append(self.device(child, "switch"))
            elif child.tag == "gpu":
                self._gpu(device, child)
            elif child.tag == "nic":
                self._nic(device, child)
        if kind != "cpu":
            device.kind = self._kind(device)
        if device.kind == "gpu":
            self.gpus.append(device)
        return device

    def _kind(self, device: PciDevice) -> str:
        if device.gpu:
            return "gpu"
        if device.names:
            return "nic"
        pci_class = device.element.attributes.get("class", "")
        if device.children:
            return "switch"
        if pci_class.startswith(GPU_CLASSES):
            return "gpu"
        if pci_class.startswith(NIC_CLASSES):
            return "nic"
        if not pci_class:
            self.problem(
                device.element.line,
                f"PCI device {device.busid} has no class, so nothing says whether it is a GPU or a"
                " NIC (NCCL finds out at run time); expected a dump made with NCCL_TOPO_DUMP_FILE",
            )
        return "other"

    def _gpu(self, device: PciDevice, element: Element) -> None:
        device.gpu = dict(element.attributes) or {"dev": ""}
        self.whole(element, "rank", 0)
        self.whole(element, "dev", 0)
        for child in element.children:
            if child.tag not in ("nvlink", "xgmi"):
                continue
            count = self.whole(child, "count", 1)
            if not 0 < count <= 64:
                self.problem(child.line, f"<{child.tag}> count: got {count}, expected 1 to 64")
                continue
            target = child.attributes.get("target", "").lower()
            to_switch = child.attributes.get("tclass", "").startswith(SWITCH_CLASSES)
            device.lanes.append(LaneTo(child.tag, target, count, to_switch, child.line))

    def _nic(self, device: PciDevice, element: Element) -> None:
        """Take the ports of a NIC; below a CPU it becomes a device of its own."""
        nets = [child for child in element.children if child.tag == "net"]
        nic = device
        if device.kind == "cpu":
            nic = PciDevice("nic", "", element)
            device.children.append(nic)
        for net in nets:
            speed = self.whole(net, "speed", 0)
            name = net.attributes.get("name", "") or "net"
            nic.names.append(name)
            if speed <= 0:
                self.notes.append(f"line {net.line}: {name} says speed {speed}; NCCL takes 10000")
                speed = 10_000
            nic.net_mbit += speed
        if not nets:
            nic.names.append("nic")

    def finish(self, cut: Problem | None) -> NcclSystem:
        """Order the GPUs and check that lanes agree at both ends."""
        template = not any(gpu.gpu for gpu in self.gpus)
        if not self.gpus and not self.problems and cut is None:
            self.problems.append(Problem(self.source.name, "<system> without GPUs"))
        if template:
            gpus = sorted(self.gpus, key=lambda gpu: gpu.busid)
        else:
            absent = [gpu for gpu in self.gpus if not gpu.gpu]
            if absent:
                names = ", ".join(gpu.busid for gpu in absent)
                self.notes.append(
                    f"{names}: GPUs by their PCI class, but without <gpu>, so no rank uses them"
                )
            gpus = sorted((gpu for gpu in self.gpus if gpu.gpu), key=_rank)
        ranks = [gpu.gpu["rank"] for gpu in gpus if gpu.gpu.get("rank")]
        twice = (
            sorted({rank for rank in ranks if ranks.count(rank) > 1})
            if len(set(ranks)) < len(ranks)
            else []
        )
        for rank in twice:
            lines = [gpu.element.line for gpu in gpus if gpu.gpu.get("rank") == rank]
            self.problem(lines[-1], f"rank {rank} is given twice, first in line {lines[0]}")
        system = NcclSystem(tuple(self.cpus), tuple(gpus), template, cut, ())
        if cut is None:
            self._check_lanes(system)
        return NcclSystem(system.cpus, system.gpus, template, cut, tuple(self.notes))

    def _check_lanes(self, system: NcclSystem) -> None:
        lanes = system.pair_lanes()
        for (i, j), (count, line) in sorted(lanes.items()):
            back, other = lanes.get((j, i), (0, line))
            if count == back or (i > j and back):
                continue
            self.problem(
                line,
                f"GPU {i} has {count} links to GPU {j}, which has {back} to it"
                + (f" (line {other})" if back else "")
                + "; a link has two ends",
            )


def _rank(gpu: PciDevice) -> tuple[int, str]:
    text = gpu.gpu.get("rank") or gpu.gpu.get("dev") or "0"
    digits = text.removeprefix("-")
    return (int(text) if digits.isascii() and digits.isdecimal() else 0), gpu.busid
