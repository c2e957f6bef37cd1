"""NVIDIA DGX-2: 16 V100 on NVSwitch, two GPUs and one InfiniBand NIC per PCIe switch."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.nvswitch import NvSwitchNode, build_nvswitch

NODE = NvSwitchNode(
    gpus=16,
    nics=8,
    port_gbs=125.0,
    port_lanes=6,
    pcie_gbs=13.0,
    nic_gbs=12.5,
    network_alpha_us=2.6,
)


def dgx2(nodes: int) -> Topology:
    """Build DGX-2 nodes.

    125 GB/s and 0.35 us per NVSwitch hop, 12.5 GB/s and 2.6 us between nodes: TE-CCL
    ``teccl/topologies/dgx2.py``.
    """
    machine = Assembly("dgx2", nodes)
    build_nvswitch(machine, [NODE] * nodes)
    return machine.build(
        (
            "NVSwitch 125 GB/s and 0.35 us per hop, InfiniBand 12.5 GB/s and 2.6 us GPU to GPU:"
            " TE-CCL teccl/topologies/dgx2.py (six NVLink lanes would be 150 GB/s)",
            "guess: PCIe 3.0 x16 carries 13 GB/s; 0.4 us of the 2.6 us per side is the GPU's PCIe"
            " hop, 0.1 us the NIC's",
            "the host path between GPUs is left out: NVSwitch is always wider",
        )
    )
