"""NVIDIA DGX-1V: the same mesh as NDv2, with one InfiniBand NIC on each PCIe switch."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.dgx1v import NOTES, attach_nics, cube_mesh_node


def dgx1(nodes: int) -> Topology:
    """Build DGX-1V nodes: GPUs 2i and 2i+1 share a PCIe switch with NIC i."""
    machine = Assembly("dgx1", nodes)
    nics = []
    for node in range(nodes):
        _, switches = cube_mesh_node(machine, node)
        nics += [
            (switch, machine.device(f"nic{i}", "nic", node)) for i, switch in enumerate(switches)
        ]
    attach_nics(machine, nics)
    return machine.build((*NOTES, "4 NICs per node, two GPUs share a PCIe switch with a NIC"))
