"""Azure NDv2: 8 V100 in a DGX-1V mesh, with a single InfiniBand NIC for all of them."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.dgx1v import NOTES, attach_nics, cube_mesh_node


def ndv2(nodes: int) -> Topology:
    """Build NDv2 nodes.

    The NIC hangs on the PCIe switch of GPUs 0 and 1 (TACCL, NSDI'23, section 4.2); the others
    reach it over their sockets.
    """
    machine = Assembly("ndv2", nodes)
    nics = []
    for node in range(nodes):
        _, switches = cube_mesh_node(machine, node)
        nics.append((switches[0], machine.device("nic0", "nic", node)))
    attach_nics(machine, nics)
    return machine.build((*NOTES, "one NIC per node, on the PCIe switch of GPUs 0 and 1"))
