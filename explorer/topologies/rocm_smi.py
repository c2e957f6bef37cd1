"""Reader of ``rocm-smi --showtopo``: xGMI links and the CPUs of PCIe-only pairs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.nvidia_smi import checked_nodes
from explorer.topologies.pcie_server import PcieServer
from explorer.topologies.source import Source

_SECTION = re.compile(r"=[ \t]{0,9}(Weight|Hops|Link Type|Numa Nodes)\b", re.IGNORECASE)
_NUMA = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d{1,4})\b")
_GPU = re.compile(r"GPU\d{1,3}")
PCIE_GENERATION = 4
MAX_GPUS = 128


def looks_like_rocm_smi(source: Source) -> bool:
    """Whether one of its section titles is in it."""
    return bool(
        re.search(
            r"=[ \t]{0,9}(Weight|Hops|Link Type) between two GPUs", source.text, re.IGNORECASE
        )
    )


@dataclass(frozen=True, slots=True)
class RocmTopo:
    """What it says.

    Parameters
    ----------
    kinds
        ``[i][j]``: XGMI or PCIE, ``0`` on the diagonal.
    hops
        ``[i][j]``; empty if the section is missing.
    numa
        NUMA node by GPU; empty if the section is missing.
    """

    kinds: list[list[str]]
    hops: list[list[str]]
    numa: dict[int, int]


def read_rocm_smi(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a topology.

    Raises
    ------
    InputError
        If a table is cut, broken or missing; with the line.
    """
    found = read_rocm_topo(source)
    count = checked_nodes(nodes)
    if count > 1:
        raise InputError(
            Problem(
                "--nodes",
                f"got {count}, but rocm-smi names no NICs, so nodes cannot meet; give RCCL's"
                " topology XML (NCCL_TOPO_DUMP_FILE)",
            )
        )
    machine = Assembly(source.stem, 1)
    size = len(found.kinds)
    gpus = [machine.gpu(0) for _ in range(size)]
    far = 0
    for j in range(size):
        for i in range(j):
            if found.kinds[i][j] != "XGMI":
                continue
            if found.hops and found.hops[i][j] not in ("1", ""):
                far += 1
                continue
            gbs, alpha = generations.XGMI_GBS, generations.NVLINK_ALPHA_US
            machine.both(gpus[i], gpus[j], "xgmi", alpha, gbs)
    server = PcieServer(machine, 0)
    gbs = generations.PCIE_X16_GBS[PCIE_GENERATION]
    sockets: dict[int, int] = {}
    for i, gpu in enumerate(gpus):
        node = found.numa.get(i, 0)
        if node not in sockets:
            sockets[node] = server.socket()
        server.leaves(sockets[node], [(gpu, gbs)], [], gbs)
    server.join_sockets(generations.SOCKET_GBS["amd"])
    return machine.build(_notes(found, far))


def _notes(found: RocmTopo, far: int) -> tuple[str, ...]:
    gbs = generations.PCIE_X16_GBS[PCIE_GENERATION]
    notes = [
        "rocm-smi --showtopo knows which GPUs have xGMI and how many hops; it knows no rates, no"
        " lanes per link, no NICs and no PCIe switches",
        f"assumed: one xGMI link of {generations.XGMI_GBS:g} GB/s per pair one hop apart, as MI300X"
        f" has (MI250 pairs have 1, 2 or 4; use --nvlink), {generations.NVLINK_ALPHA_US} us",
        f"assumed: PCIe {PCIE_GENERATION}.0 x16, {gbs:g} GB/s, a root port per GPU,"
        f" {generations.SOCKET_GBS['amd']:g} GB/s between two CPUs",
    ]
    if not found.numa:
        notes.append("assumed: all GPUs on one CPU, since the Numa section is missing")
    if far:
        notes.append(f"{far} pairs reach each other over xGMI of other GPUs, not by a link")
    return tuple(notes)


def read_rocm_topo(source: Source) -> RocmTopo:
    """Read the tables.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    tables: dict[str, list[tuple[int, list[str]]]] = {}
    problems: list[Problem] = []
    section = ""
    for number, raw in enumerate(source.text.splitlines(), 1):
        title = _SECTION.search(raw)
        if title is not None:
            section = title.group(1).lower()
            if section in tables:
                problems.append(Problem(source.at(number), f"section {title.group(1)} again"))
            tables[section] = []
        elif "Not supported" in raw or raw.startswith("ERROR"):
            problems.append(Problem(source.at(number), f"rocm-smi failed here: {raw.strip()[:80]}"))
        elif raw.split() and _GPU.fullmatch(raw.split()[0]):
            tables.setdefault(section, []).append((number, raw.split()))
    if not problems and not tables.get("link type"):
        problems.append(
            Problem(source.name, "the section Link Type between two GPUs is missing; cut?")
        )
    matrices: dict[str, list[list[str]]] = {}
    for name in ("weight", "hops", "link type"):
        allowed = r"XGMI|PCIE|0" if name == "link type" else r"\d{1,4}"
        if tables.get(name):
            matrices[name] = _matrix(source, name, tables[name], allowed, problems)
    sizes = {len(matrix) for matrix in matrices.values()}
    if not problems and len(sizes) > 1:
        problems.append(Problem(source.name, f"tables of {sorted(sizes)} GPUs in one paste"))
    if problems:
        raise InputError(problems)
    numa = {int(gpu): int(node) for gpu, node in _NUMA.findall(source.text)}
    return RocmTopo(matrices["link type"], matrices.get("hops", []), numa)


def _matrix(
    source: Source,
    name: str,
    lines: list[tuple[int, list[str]]],
    allowed: str,
    problems: list[Problem],
) -> list[list[str]]:
    """Rows of a table, checked for size, symmetry and words."""
    number, header = lines[0]
    count = len(header)
    labels = [words[0] for _, words in lines[1:]]
    if count > MAX_GPUS or labels != header[: len(labels)] or len(labels) > count:
        problems.append(Problem(source.at(number), f"{name}: header and rows do not fit"))
        return []
    if len(labels) < count:
        problems.append(
            Problem(
                source.at(lines[-1][0]),
                f"{name}: {len(labels)} of {count} rows, the paste is cut here",
            )
        )
        return []
    rows = []
    for line, words in lines[1:]:
        cells = words[1:]
        wrong = [cell for cell in cells if not re.fullmatch(allowed, cell)]
        if wrong:
            problems.append(
                Problem(
                    source.at(line),
                    f"{name}, row {words[0]}: got {wrong[0]!r}, expected"
                    f" {'XGMI or PCIE' if name == 'link type' else 'a number'}",
                )
            )
        elif len(cells) != count:
            problems.append(
                Problem(source.at(line), f"{name}, row {words[0]}: {len(cells)} of {count} cells")
            )
        rows.append((line, cells))
    if problems:
        return []
    for i, (line, cells) in enumerate(rows):
        for j, cell in enumerate(cells):
            if (cell == "0") != (i == j):
                problems.append(Problem(source.at(line), f"{name}: GPU{i} to GPU{j} is {cell!r}"))
            elif j < i and rows[j][1][i] != cell:
                problems.append(
                    Problem(
                        source.at(line),
                        f"{name}: GPU{i} to GPU{j} is {cell}, but line {rows[j][0]} says"
                        f" {rows[j][1][i]} for the way back",
                    )
                )
    return [cells for _, cells in rows]
