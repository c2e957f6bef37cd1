"""AMD node of 8 MI250, that is 16 GCDs, on xGMI."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly

LANES = {
    (0, 1): 4, (0, 4): 2, (0, 8): 1, (1, 5): 1, (1, 9): 1, (1, 10): 1,
    (2, 3): 4, (2, 6): 1, (2, 9): 1, (2, 10): 1, (3, 7): 2, (3, 11): 1,
    (4, 5): 4, (4, 6): 1, (5, 6): 1, (5, 7): 1, (6, 7): 4,
    (8, 9): 4, (8, 12): 2, (9, 13): 1, (10, 11): 4, (10, 14): 1, (11, 15): 2,
    (12, 13): 4, (12, 14): 1, (13, 14): 1, (13, 15): 1, (14, 15): 4,
}  # fmt: skip
"""xGMI lanes of every pair that has any: TE-CCL ``teccl/topologies/amd.py``."""

LANE_GBS = 50.0
XGMI_ALPHA_US = 0.7
NIC_GBS = 25.0
PCIE_ALPHA_US = 0.4
NETWORK_ALPHA_US = 2.6


def mi250(nodes: int) -> Topology:
    """Build MI250 nodes: two GCDs share a PCIe switch with one 200 Gb/s NIC.

    GCDs without a common xGMI link reach each other over other GCDs only.
    """
    machine = Assembly("mi250", nodes)
    nics = []
    for node in range(nodes):
        gpus = [machine.gpu(node) for _ in range(16)]
        for (a, b), lanes in LANES.items():
            machine.both(gpus[a], gpus[b], "xgmi", XGMI_ALPHA_US, lanes * LANE_GBS, lanes)
        for i in range(8):
            switch = machine.device(f"pcie{i}", "pcie", node)
            nic = machine.device(f"nic{i}", "nic", node)
            for gpu in gpus[2 * i : 2 * i + 2]:
                machine.both(gpu, switch, "pcie", PCIE_ALPHA_US, NIC_GBS, 16)
            machine.both(switch, nic, "pcie", 0.0, NIC_GBS, 16)
            nics.append(nic)
    if nodes > 1:
        fabric = machine.device("fabric", "switch")
        for nic in nics:
            machine.both(nic, fabric, "network", NETWORK_ALPHA_US / 2 - PCIE_ALPHA_US, NIC_GBS)
    return machine.build(
        (
            "xGMI 50 GB/s per lane with 4, 2 or 1 lanes, two GCDs per 25 GB/s NIC: TE-CCL"
            " teccl/topologies/amd.py",
            "xGMI 0.7 us: TE-CCL's constant for NVLink, a guess for xGMI",
            "guess: 2.6 us GPU to GPU between nodes, 0.4 us of it per side is the PCIe hop",
            "PCIe and NIC carry the same 25 GB/s; the host path between GCDs is left out",
        )
    )
