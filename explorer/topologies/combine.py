"""Several files about one machine or cluster, joined; what they disagree on is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies.fabric import network_nics, rewire
from explorer.topologies.host_ranks import wiring_topology
from explorer.topologies.ibnetdiscover import looks_like_ibnetdiscover, read_ib_wiring
from explorer.topologies.load import load_topology
from explorer.topologies.measured_matrix import looks_like_matrix, matrix_topology, read_matrix
from explorer.topologies.nccl_system import NcclSystem, read_nccl_system
from explorer.topologies.nccl_topology import looks_like_nccl_xml, nccl_machine
from explorer.topologies.nvidia_smi import smi_lanes
from explorer.topologies.nvidia_smi_matrix import (
    SmiMatrix,
    looks_like_nvidia_smi,
    read_smi_matrix,
)
from explorer.topologies.nvlinks import classify
from explorer.topologies.registry import BUILDERS
from explorer.topologies.slurm_topology import looks_like_slurm, read_slurm_wiring
from explorer.topologies.source import Source, read_source
from explorer.topologies.ufm_cabling import looks_like_ufm_cabling, read_ufm_wiring
from explorer.topologies.wiring import Port, Wiring, check_connected
from explorer.topologies.xml_tree import root_tag

NETWORKS: tuple[tuple[Callable[[Source], bool], Callable[[Source], Wiring]], ...] = (
    (looks_like_slurm, read_slurm_wiring),
    (looks_like_ibnetdiscover, read_ib_wiring),
    (looks_like_ufm_cabling, read_ufm_wiring),
)
"""Recognisers and readers of network descriptions."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """A file about one node: what it says of NVLinks, and where."""

    spec: str
    source: Source | None
    smi: SmiMatrix | None = None
    system: NcclSystem | None = None

    def gpus(self) -> int | None:
        """Number of GPUs, if the file is whole."""
        if self.smi is not None:
            return self.smi.gpus
        if self.system is not None and self.system.cut is None:
            return len(self.system.gpus)
        return None


def combine(
    specs: Sequence[str], nodes: int | None = None, *, prefer: str | None = None
) -> Topology:
    """Read one or several files.

    Parameters
    ----------
    specs
        Builder names and files: one machine (more files of it are compared with the first), or a
        network, or a machine and a network, or two matrices.
    nodes
        ``--nodes``.
    prefer
        Which of ``specs`` wins where files about one machine disagree; None to refuse.

    Raises
    ------
    InputError
        If files do not fit together or, without ``prefer``, disagree; with both values.
    """
    if prefer is not None and prefer not in specs:
        raise InputError(Problem("--prefer", f"got {prefer!r}, expected one of the files"))
    if len(specs) == 1:
        return _load(specs[0], nodes)
    wirings: list[Wiring] = []
    machines: list[_Machine] = []
    matrices: list[Source] = []
    for spec in specs:
        path = Path(spec)
        source = None if spec.partition(":")[0] in BUILDERS else read_source(path)
        wiring = None if source is None else _wiring(source)
        if wiring is not None:
            wirings.append(wiring)
        elif source is not None and looks_like_matrix(source):
            matrices.append(source)
        else:
            machines.append(_machine(spec, source))
    if matrices:
        return _matrices(specs, matrices, bool(wirings or machines))
    wiring = _joined(wirings) if wirings else None
    if not machines and wiring is not None:
        return wiring_topology(wiring, nodes)
    if wiring is None:
        return _one_machine(machines, nodes, prefer)
    check_connected(wiring)
    if nodes not in (None, len(wiring.hosts)):
        raise InputError(
            Problem("--nodes", f"got {nodes}, {wiring.name} names {len(wiring.hosts)} hosts")
        )
    machine = _one_machine(machines, len(wiring.hosts), prefer)
    return rewire(machine, _with_rates(wiring, machine))


def _load(spec: str, nodes: int | None) -> Topology:
    """Load one; a TACCL profile without chunk size in its own units."""
    try:
        return load_topology(spec, nodes)
    except InputError as error:
        if not any(p.where == "--size" for p in error.problems):
            raise
        return load_topology(spec, nodes, sized=False)


def _wiring(source: Source) -> Wiring | None:
    for recognises, read in NETWORKS:
        if recognises(source):
            return read(source)
    return None


def _machine(spec: str, source: Source | None) -> _Machine:
    if source is None:
        return _Machine(spec, None)
    if looks_like_nccl_xml(source) and root_tag(source) == "system":
        return _Machine(spec, source, system=read_nccl_system(source))
    if looks_like_nvidia_smi(source):
        return _Machine(spec, source, smi=read_smi_matrix(source))
    return _Machine(spec, source)


def _matrices(specs: Sequence[str], sources: list[Source], others: bool) -> Topology:
    found = {matrix.measure: matrix for matrix in map(read_matrix, sources)}
    if others or len(specs) != 2 or len(found) != 2:
        raise InputError(
            Problem(
                sources[0].name,
                "a measured matrix goes with one other: bandwidths and latencies of the same ends",
            )
        )
    return matrix_topology(found["bandwidth"], found["latency"])


def _joined(wirings: list[Wiring]) -> Wiring:
    """Unite descriptions of one network: hosts from one file, spines from another."""
    hosts: dict[str, tuple[Port, ...]] = {}
    trunks: dict[tuple[str, str], tuple[float | None, ...]] = {}
    problems: list[Problem] = []
    notes: dict[str, None] = {}
    for wiring in wirings:
        for host, ports in wiring.hosts.items():
            if hosts.setdefault(host, ports) != ports:
                problems.append(
                    Problem(
                        wiring.name,
                        f"{host}: {_cabling(ports)}, another file says {_cabling(hosts[host])}",
                    )
                )
        for pair, cables in wiring.trunks.items():
            if trunks.setdefault(pair, cables) != cables:
                problems.append(
                    Problem(
                        wiring.name,
                        f"{pair[0]} - {pair[1]}: {len(cables)} cables, another file says"
                        f" {len(trunks[pair])}",
                    )
                )
        notes |= dict.fromkeys(wiring.notes)
    if problems:
        raise InputError(problems)
    name = " + ".join(Path(wiring.name).name for wiring in wirings)
    return Wiring(name, hosts, trunks, tuple(notes), wirings[0].hop_alpha_us)


def _cabling(ports: Sequence[Port]) -> str:
    return f"{len(ports)} cables to {', '.join(sorted({port.switch for port in ports}))}"


def _one_machine(machines: list[_Machine], nodes: int | None, prefer: str | None) -> Topology:
    """Build the machine that all files describe."""
    smis = [m for m in machines if m.smi is not None]
    systems = [m for m in machines if m.system is not None]
    others = [m for m in machines if m.smi is None and m.system is None]
    if len(machines) > 1 and others:
        return _compared(machines, nodes, prefer)
    conflicts = [
        problem
        for i, one in enumerate(machines)
        for other in machines[i + 1 :]
        for problem in _conflicts(one, other)
    ]
    if conflicts and prefer is None:
        advice = Problem("--prefer", "the files disagree; name the one that is right")
        raise InputError([*conflicts, *_cuts(systems), advice])
    chosen = next((m for m in machines if m.spec == prefer), None)
    template = next((m for m in systems if m.system is not None and m.system.template), None)
    notes = [f"{problem} (--prefer {prefer})" for problem in conflicts]
    if template is not None and smis and chosen in (None, *smis, template):
        return _filled(template, smis[0] if chosen not in smis else chosen, nodes, notes)
    chosen = chosen or next((m for m in systems), machines[0])
    topology = _load(chosen.spec, nodes)
    if len(machines) > 1:
        agreed = "they agree on NVLinks" if not conflicts else "they disagree"
        notes.append(
            f"from {chosen.spec}; compared with"
            f" {', '.join(m.spec for m in machines if m is not chosen)}: {agreed}"
        )
    return replace(topology, notes=(*topology.notes, *notes))


def _filled(
    template: _Machine, smi: _Machine | None, nodes: int | None, notes: list[str]
) -> Topology:
    """PCIe tree and NICs from a template, NVLinks from nvidia-smi."""
    if template.source is None or template.system is None or smi is None or smi.smi is None:
        raise InputError("a template and a matrix are needed")
    if template.system.cut is not None:
        raise InputError(template.system.cut)
    links = classify(smi_lanes(smi.smi), smi.smi.grace, smi.spec)
    topology = nccl_machine(template.source, template.system, nodes, links)
    filled = f"PCIe tree and NICs from {template.spec}, NVLinks from {smi.spec}"
    return replace(topology, notes=(filled, *topology.notes, *links.notes, *notes))


def _cuts(systems: list[_Machine]) -> list[Problem]:
    return [m.system.cut for m in systems if m.system is not None and m.system.cut is not None]


def _conflicts(one: _Machine, other: _Machine) -> list[Problem]:
    """What two files about one machine say differently; what only one knows is no conflict."""
    problems: list[Problem] = []
    counts = one.gpus(), other.gpus()
    if None not in counts and counts[0] != counts[1]:
        problems.append(Problem(other.spec, f"{counts[1]} GPUs, but {one.spec} has {counts[0]}"))
        return problems
    left, right = _lanes(one), _lanes(other)
    for gpu in sorted(left.keys() & right.keys()):
        (a, line), (b, other_line) = left[gpu], right[gpu]
        if a != b:
            problems.append(
                Problem(
                    f"{other.spec}:{other_line}",
                    f"GPU {gpu} has {b} NVLinks, but {one.spec}:{line} says {a}",
                )
            )
    return problems


def _lanes(machine: _Machine) -> dict[int, tuple[int, int]]:
    """NVLinks of every GPU, all together, with the line that says so."""
    if machine.system is not None:
        lanes = machine.system.gpu_lanes()
        if machine.system.cut is None and not machine.system.template:
            for gpu in range(len(machine.system.gpus)):
                lanes.setdefault(gpu, (0, machine.system.gpus[gpu].element.line))
        elif machine.system.cut is not None and lanes:
            # The GPU the cut falls into may have lost links.
            last = max(lanes)
            if last == len(machine.system.gpus) - 1 and _is_open(machine.system):
                del lanes[last]
        return lanes
    if machine.smi is None:
        return {}
    links = classify(smi_lanes(machine.smi), machine.smi.grace, machine.spec)
    found = {g: (0, machine.smi.lines[g]) for g in range(machine.smi.gpus)}
    for port in links.ports:
        found |= {g: (n, machine.smi.lines[g]) for g, n in port.items()}
    for (a, b), n in links.pairs.items():
        for g in (a, b):
            found[g] = (found[g][0] + n, found[g][1])
    return found


def _is_open(system: NcclSystem) -> bool:
    """Whether a cut file ends inside its last GPU: the cut is in the line of its last link."""
    if system.cut is None:
        return False
    lines = [lane.line for lane in system.gpus[-1].lanes]
    line = int(system.cut.where.rpartition(":")[2])
    return bool(lines) and line - max(lines) < 2


def _compared(machines: list[_Machine], nodes: int | None, prefer: str | None) -> Topology:
    """Compare whole topologies where no finer comparison is known."""
    built = [_load(machine.spec, nodes) for machine in machines]
    problems: list[Problem] = []
    for machine, topology in zip(machines[1:], built[1:], strict=True):
        first = built[0]
        facts = [
            ("GPUs", first.ranks, topology.ranks),
            ("nodes", first.nodes, topology.nodes),
            ("NICs on the network", _nic_count(first), _nic_count(topology)),
        ]
        problems += [
            Problem(machine.spec, f"{b} {what}, but {machines[0].spec} has {a}")
            for what, a, b in facts
            if a != b
        ]
        if not problems:
            problems += _rate_conflicts(machines[0], first, machine, topology)
    if problems and prefer is None:
        advice = Problem("--prefer", "the files disagree; name the one that is right")
        raise InputError([*problems[:50], advice])
    chosen = next((i for i, m in enumerate(machines) if m.spec == prefer), 0)
    notes = [f"{problem} (--prefer {prefer})" for problem in problems[:20]]
    return replace(built[chosen], notes=(*built[chosen].notes, *notes))


def _nic_count(topology: Topology) -> int:
    return sum(len(own) for own in network_nics(topology).values())


def _rate_conflicts(
    one: _Machine, first: Topology, other: _Machine, second: Topology
) -> list[Problem]:
    """Pairs of ranks whose routes differ by more than a tenth in rate."""
    problems = []
    for src in range(min(first.ranks, 64)):
        left, right = first.routes_from(src), second.routes_from(src)
        for dst in sorted(left.keys() & right.keys()):
            a, b = left[dst].beta_us_per_mib, right[dst].beta_us_per_mib
            if abs(a - b) > 0.1 * max(a, b):
                problems.append(
                    Problem(
                        other.spec,
                        f"rank {src} to {dst} at {1048.576 / b:.4g} GB/s, but {one.spec} has"
                        f" {1048.576 / a:.4g}",
                    )
                )
    return problems


def _with_rates(wiring: Wiring, machine: Topology) -> Wiring:
    """Say where the rates of NICs and of their cables differ."""
    nics = [nic.gbs for own in network_nics(machine).values() for nic in own]
    ports = [port.gbs for own in wiring.hosts.values() for port in own if port.gbs is not None]
    if not nics or not ports or max(nics) == min(nics) == max(ports) == min(ports):
        return wiring
    note = (
        f"{wiring.name} says {_span(ports)} GB/s per host port, {machine.name} {_span(nics)} per"
        " NIC; the cable's rate is used"
    )
    return replace(wiring, notes=(*wiring.notes, note))


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
