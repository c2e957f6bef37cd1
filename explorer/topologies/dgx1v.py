"""What NDv2 and DGX-1V share: the hybrid cube mesh of NVLinks and the PCIe tree under it.

NVLinks: microsoft/taccl ``taccl/topologies/generic.py`` (ndv2), the same graph as TE-CCL's
``teccl/topologies/ndv2.py``, which also gives 25 GB/s and 0.7 us per lane. PCIe tree: two GPUs on
a PCIe switch, two switches on a socket (TACCL, NSDI'23, section 4.2 infers it for NDv2).
"""

from __future__ import annotations

from explorer.topologies.assembly import Assembly

DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""Pairs joined by two NVLink lanes."""

SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Pairs joined by one NVLink lane."""

LANE_GBS = 25.0
NVLINK_ALPHA_US = 0.7
PCIE_GBS = 13.0
SOCKET_GBS = 10.0
NIC_GBS = 12.5
GPU_PCIE_ALPHA_US = 0.4
PCIE_ALPHA_US = 0.1
SOCKET_ALPHA_US = 0.3
NETWORK_ALPHA_US = 1.3

NOTES = (
    "NVLink 25 GB/s and 0.7 us per lane, InfiniBand 12.5 GB/s and 1.3 us GPU to GPU:"
    " TE-CCL teccl/topologies/ndv2.py",
    "guess: PCIe 3.0 x16 carries 13 GB/s, the link between the sockets 10 GB/s (NCCL's"
    " SKL_QPI_BW), shared by all that cross them",
    "guess: a GPU's PCIe hop 0.4 us, other PCIe hops 0.1 us, socket to socket 0.3 us; the NIC's"
    " hops take what is left of the 1.3 us",
)


def cube_mesh_node(machine: Assembly, node: int) -> tuple[list[int], list[int]]:
    """Add one node without NICs.

    Returns
    -------
    tuple
        Device indices of its 8 GPUs and of its 4 PCIe switches.
    """
    gpus = [machine.gpu(node) for _ in range(8)]
    switches = [machine.device(f"pcie{i}", "pcie", node) for i in range(4)]
    sockets = [machine.device(f"cpu{i}", "cpu", node) for i in range(2)]
    for lanes, pairs in ((2, DOUBLE), (1, SINGLE)):
        for a, b in pairs:
            machine.both(gpus[a], gpus[b], "nvlink", NVLINK_ALPHA_US, lanes * LANE_GBS, lanes)
    for i, gpu in enumerate(gpus):
        machine.both(gpu, switches[i // 2], "pcie", GPU_PCIE_ALPHA_US, PCIE_GBS, 16)
    for i, switch in enumerate(switches):
        machine.both(switch, sockets[i // 2], "pcie", PCIE_ALPHA_US, PCIE_GBS, 16)
    machine.both(sockets[0], sockets[1], "socket", SOCKET_ALPHA_US, SOCKET_GBS)
    return gpus, switches


def attach_nics(machine: Assembly, nics: list[tuple[int, int]]) -> None:
    """Join PCIe switches to NICs and, with more than one node, the NICs to one fabric.

    Parameters
    ----------
    machine
        Where to add.
    nics
        (PCIe switch, NIC) device indices.
    """
    for switch, nic in nics:
        machine.both(switch, nic, "pcie", PCIE_ALPHA_US, PCIE_GBS, 16)
    if machine.nodes > 1:
        fabric = machine.device("fabric", "switch")
        alpha = NETWORK_ALPHA_US / 2 - GPU_PCIE_ALPHA_US - PCIE_ALPHA_US
        for _, nic in nics:
            machine.both(nic, fabric, "network", alpha, NIC_GBS)
