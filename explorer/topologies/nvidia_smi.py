"""Reader of ``nvidia-smi topo -m``: the PCIe tree behind the matrix, and the NVLinks.

The matrix names the nearest common ancestor of every two devices. Devices that have a PIX in
common stand on one PCIe switch, with PXB on switches below one root port, with PHB or NODE on one
CPU. So pairs share switches, root ports and the link between the sockets; a matrix of N GPUs is
not N(N-1)/2 links.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.nvidia_smi_matrix import SmiMatrix, read_smi_matrix
from explorer.topologies.nvlinks import NvLinks, add_nvlinks, classify
from explorer.topologies.pcie_server import Nic, PcieServer, join_nodes
from explorer.topologies.registry import MAX_NODES
from explorer.topologies.source import Source


def read_nvidia_smi(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a topology from a paste of ``nvidia-smi topo -m``.

    Parameters
    ----------
    source
        The paste; it describes one node.
    nodes
        How many equal ones; None for one.
    sized
        Not used: costs are per byte.

    Raises
    ------
    InputError
        If the matrix is damaged, or several nodes are asked for and there is no NIC.
    """
    matrix = read_smi_matrix(source)
    count = checked_nodes(nodes)
    tree = pcie_tree(matrix)
    links = classify(smi_lanes(matrix), matrix.grace, source.at(matrix.lines[0]))
    if count > 1 and not tree.nics:
        raise InputError(
            Problem(source.name, f"--nodes {count}: the paste names no NIC, so nodes cannot meet")
        )
    generation = _pcie_generation(matrix, links)
    gbs = generations.PCIE_X16_GBS[generation]
    nic_gbs = generations.NIC_GBS[generation]
    machine = Assembly(source.stem, count)
    nics: list[Nic] = []
    for node in range(count):
        gpus = [machine.gpu(node) for _ in range(matrix.gpus)]
        add_nvlinks(machine, node, gpus, links)
        nics += _add_tree(PcieServer(machine, node), matrix, tree, gpus, gbs, nic_gbs)
    join_nodes(machine, nics)
    return machine.build(
        (
            *_knowledge(matrix, tree, links, generation),
            *tree.notes,
            *links.notes,
            *matrix.notes,
        )
    )


def checked_nodes(nodes: int | None) -> int:
    """``--nodes`` for a file of one node.

    Raises
    ------
    InputError
        If it is out of range.
    """
    count = 1 if nodes is None else nodes
    if not 1 <= count <= MAX_NODES:
        raise InputError(Problem("--nodes", f"got {count}, expected 1 to {MAX_NODES}"))
    return count


def smi_lanes(matrix: SmiMatrix) -> dict[tuple[int, int], int]:
    """NVLinks of every pair of GPUs that has any."""
    return {
        (i, j): matrix.lanes(i, j)
        for j in range(matrix.gpus)
        for i in range(j)
        if matrix.lanes(i, j)
    }


@dataclass(frozen=True, slots=True)
class PcieTree:
    """Who stands where: sockets hold root ports hold switches hold columns of the matrix.

    Parameters
    ----------
    sockets
        Per socket, per root port, per switch: columns.
    nics
        Columns of the NICs that join the network.
    notes
        What was assumed.
    """

    sockets: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    nics: tuple[int, ...]
    notes: tuple[str, ...]


def pcie_tree(matrix: SmiMatrix) -> PcieTree:
    """Find the PCIe tree behind a matrix."""
    count = len(matrix.names)
    notes: list[str] = []
    pairs = [(i, j) for j in range(count) for i in range(j)]
    groups = [
        _Groups(count, [p for p in pairs if 0 < matrix.level(*p) <= most]) for most in (1, 2, 4)
    ]
    switches, roots, sockets = groups
    _add_affinity(matrix, sockets, notes)
    for i, j in pairs:
        level = matrix.level(i, j)
        for most, group in zip((1, 2, 4), groups, strict=True):
            if level > most and group.same(i, j) and not (most == 4 and level == 5):
                notes.append(
                    f"{matrix.names[i]} and {matrix.names[j]} are said to be"
                    f" {matrix.cells[i, j]} apart, but both are nearer to a third device; read as"
                    " near"
                )
    tree = tuple(
        tuple(
            tuple(tuple(sorted(leaf)) for leaf in switches.parts(root))
            for root in roots.parts(socket)
        )
        for socket in sockets.parts(range(count))
    )
    return PcieTree(tree, _compute_nics(matrix, notes), tuple(notes))


def _add_affinity(matrix: SmiMatrix, sockets: _Groups, notes: list[str]) -> None:
    """Place GPUs that the matrix leaves alone by their CPU affinity."""
    alone = [
        g
        for g in range(matrix.gpus)
        if not any(0 < matrix.level(g, k) <= 4 for k in range(len(matrix.names)) if k != g)
    ]
    if not alone:
        return
    by_key: dict[str, list[int]] = {}
    for g in range(matrix.gpus):
        by_key.setdefault(matrix.numa[g], []).append(g)
    unknown = [g for g in alone if not matrix.numa[g]]
    for key, members in sorted(by_key.items()):
        if key:
            for g in members[1:]:
                if g in alone or members[0] in alone:
                    sockets.join(members[0], g)
    if unknown:
        for g in unknown[1:]:
            sockets.join(unknown[0], g)
        names = ", ".join(matrix.names[g] for g in unknown)
        notes.append(f"nothing says on which CPU {names} stand; read as on one")
    placed = [g for g in alone if matrix.numa[g]]
    apart = [
        (i, j)
        for j in placed
        for i in placed
        if i < j and matrix.level(i, j) == 5 and sockets.same(i, j)
    ]
    if apart:
        notes.append(
            "assumed: SYS between GPUs of one CPU affinity carries no structure (virtual machine,"
            " or several NUMA nodes per socket); every GPU has a root port of its own on the CPU"
            " of its affinity, and all pairs share these ports and the link between the CPUs"
        )


def _compute_nics(matrix: SmiMatrix, notes: list[str]) -> tuple[int, ...]:
    """NICs that some GPU has on its own switch or root port; all NICs if no GPU has one."""
    every = range(matrix.gpus, len(matrix.names))
    near: set[int] = set()
    for g in range(matrix.gpus):
        levels = {n: matrix.level(g, n) for n in every}
        best = min(levels.values(), default=9)
        if best <= 2:
            near |= {n for n, level in levels.items() if level == best}
    if not near:
        return tuple(every)
    others = [matrix.names[n] for n in every if n not in near]
    if others:
        notes.append(
            f"assumed: {', '.join(others)} are for storage or management, since no GPU has them on"
            " its PCIe switch or nearest; they do not join the network"
        )
    return tuple(sorted(near))


def _add_tree(
    server: PcieServer,
    matrix: SmiMatrix,
    tree: PcieTree,
    gpus: list[int],
    gbs: float,
    nic_gbs: float,
) -> list[Nic]:
    """Add sockets, switches and NICs; returns the NICs that join the network."""
    devices = dict(enumerate(gpus))
    for n in range(matrix.gpus, len(matrix.names)):
        name = matrix.names[n].lower()
        devices[n] = server.machine.device(name, "nic", server.node)

    def leaves(parent: int, members: tuple[int, ...]) -> None:
        near = [(devices[k], gbs) for k in members if k >= matrix.gpus and k in tree.nics]
        rest = [(devices[k], gbs) for k in members if k >= matrix.gpus and k not in tree.nics]
        server.leaves(parent, [(devices[k], gbs) for k in members if k < matrix.gpus], near, gbs)
        server.leaves(parent, [], rest, gbs)

    for socket in tree.sockets:
        cpu = server.socket()
        for root in socket:
            members = tuple(k for leaf in root for k in leaf)
            if len(members) == 1:
                leaves(cpu, members)
                continue
            top = server.switch(cpu, gbs)
            loose = tuple(k for leaf in root for k in leaf if len(leaf) == 1 or len(root) == 1)
            leaves(top, loose)
            for leaf in root:
                if len(leaf) > 1 and len(root) > 1:
                    leaves(server.switch(top, gbs), leaf)
    server.join_sockets(generations.SOCKET_GBS[""])
    return [Nic(devices[n], nic_gbs) for n in tree.nics]


def _pcie_generation(matrix: SmiMatrix, links: NvLinks) -> int:
    """PCIe generation of the GPUs that have that many NVLinks; else by age of the layout."""
    if links.most >= 18:
        return 5
    if links.most in (4, 8, 12):
        return 4
    if links.most:
        return 3
    return 4 if matrix.newer == 2 else 3


def _knowledge(
    matrix: SmiMatrix, tree: PcieTree, links: NvLinks, generation: int
) -> tuple[str, ...]:
    """Say what the paste cannot know, and what stands in for it."""
    gbs = generations.PCIE_X16_GBS[generation]
    why = "the GPUs' NVLinks" if links.most else "the age of the layout"
    lines = [
        "nvidia-smi topo -m knows who shares which PCIe switch, CPU and how many NVLinks; it knows"
        " no rates, no latencies, no NVLink or PCIe generation, and no network",
        f"assumed: PCIe {generation}.0 x16, {gbs:g} GB/s, for every hop, by {why};"
        f" {generations.SOCKET_GBS['']:g} GB/s between two CPUs (NCCL's SKL_QPI_BW)",
        f"assumed: alphas NVLink {generations.NVLINK_ALPHA_US} us, a GPU's PCIe hop"
        f" {generations.GPU_PCIE_ALPHA_US} us, other PCIe hops {generations.PCIE_ALPHA_US} us, CPU"
        f" to CPU {generations.SOCKET_ALPHA_US} us",
    ]
    if tree.nics:
        lines.append(
            f"assumed: {generations.NIC_GBS[generation]:g} GB/s per NIC, the usual one for PCIe"
            f" {generation}.0, in a network that does not block; use --nic and --oversubscription"
        )
    per_gpu = all(
        any(matrix.level(g, n) == 1 for n in range(matrix.gpus, len(matrix.names)))
        for g in range(matrix.gpus)
    )
    if not links.most and per_gpu and matrix.gpus >= 4:
        lines.append(
            "warning: no NVLink between any GPUs, though each has a NIC on its own PCIe switch as"
            " SXM machines do: NVLink or the fabric manager may be down"
        )
    return tuple(lines)


class _Groups:
    """Union of pairs into groups."""

    def __init__(self, count: int, pairs: list[tuple[int, int]]) -> None:
        self._parent = list(range(count))
        for a, b in pairs:
            self.join(a, b)

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        self._parent[max(a, b)] = min(a, b)

    def same(self, a: int, b: int) -> bool:
        return self._root(a) == self._root(b)

    def parts(self, members: Iterable[int]) -> list[tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for i in members:
            found.setdefault(self._root(i), []).append(i)
        return [tuple(part) for _, part in sorted(found.items())]
