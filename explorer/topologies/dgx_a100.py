"""NVIDIA DGX A100 (and Azure NDv4): 8 A100 on NVSwitch, one 200 Gb/s NIC per GPU."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.nvswitch import NvSwitchNode, build_nvswitch

NODE = NvSwitchNode(
    gpus=8,
    nics=8,
    port_gbs=300.0,
    port_lanes=12,
    pcie_gbs=26.0,
    nic_gbs=25.0,
    network_alpha_us=2.6,
)


def dgx_a100(nodes: int) -> Topology:
    """Build DGX A100 nodes; 300 and 25 GB/s per GPU as ForestColl's DGX-A100."""
    machine = Assembly("dgx_a100", nodes)
    build_nvswitch(machine, [NODE] * nodes)
    return machine.build(
        (
            "NVSwitch 300 GB/s (12 lanes of 25), NIC 25 GB/s (HDR): NVIDIA's figures, as ForestColl"
            " uses them",
            "NVSwitch 0.35 us per hop as on DGX-2 (TE-CCL): a guess for this generation",
            "guess: 2.6 us GPU to GPU between nodes (TACCL's remote_alpha on DGX-2), 0.4 us of it"
            " per side is the GPU's PCIe hop, 0.1 us the NIC's; PCIe 4.0 x16 carries 26 GB/s",
            "each GPU and its NIC are shown on a PCIe switch of their own; the host path between"
            " GPUs is left out, NVSwitch is always wider",
        )
    )
