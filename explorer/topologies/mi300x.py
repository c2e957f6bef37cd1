"""AMD node of 8 MI300X: every pair has its own xGMI link, one 400 Gb/s NIC per GPU."""

from __future__ import annotations

from itertools import combinations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly

XGMI_GBS = 50.0
XGMI_ALPHA_US = 0.3
PCIE_GBS = 52.0
NIC_GBS = 50.0
GPU_PCIE_ALPHA_US = 0.4
NIC_PCIE_ALPHA_US = 0.1
NETWORK_ALPHA_US = 2.6


def mi300x(nodes: int) -> Topology:
    """Build MI300X nodes; GPU i uses NIC i."""
    machine = Assembly("mi300x", nodes)
    nics = []
    for node in range(nodes):
        gpus = [machine.gpu(node) for _ in range(8)]
        for a, b in combinations(gpus, 2):
            machine.both(a, b, "xgmi", XGMI_ALPHA_US, XGMI_GBS)
        for i, gpu in enumerate(gpus):
            switch = machine.device(f"pcie{i}", "pcie", node)
            nic = machine.device(f"nic{i}", "nic", node)
            machine.both(gpu, switch, "pcie", GPU_PCIE_ALPHA_US, PCIE_GBS, 16)
            machine.both(switch, nic, "pcie", NIC_PCIE_ALPHA_US, PCIE_GBS, 16)
            nics.append(nic)
    if nodes > 1:
        fabric = machine.device("fabric", "switch")
        alpha = NETWORK_ALPHA_US / 2 - GPU_PCIE_ALPHA_US - NIC_PCIE_ALPHA_US
        for nic in nics:
            machine.both(nic, fabric, "network", alpha, NIC_GBS)
    return machine.build(
        (
            "xGMI 50 GB/s (21 us/MiB) and 0.3 us per pair, 2.6 us between nodes: the TACCL profile"
            " of A-Dying-Pig/taccl (the link's peak is 64 GB/s)",
            "NIC 50 GB/s (400 Gb/s); ib_write_bw between two such nodes showed 44 GB/s",
            "guess: PCIe 5.0 x16 carries 52 GB/s; 0.4 us of the 2.6 us per side is the GPU's PCIe"
            " hop, 0.1 us the NIC's; the host path between GPUs is left out",
        )
    )
