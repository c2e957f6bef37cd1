"""NVIDIA DGX H100: 8 H100 on NVSwitch, one 400 Gb/s NIC per GPU, NIC i of all nodes on rail i."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.nvswitch import NvSwitchNode, build_nvswitch

NODE = NvSwitchNode(
    gpus=8,
    nics=8,
    port_gbs=450.0,
    port_lanes=18,
    pcie_gbs=52.0,
    nic_gbs=50.0,
    network_alpha_us=2.6,
    rails=True,
)


def dgx_h100(nodes: int) -> Topology:
    """Build DGX H100 nodes; 450 and 50 GB/s per GPU as ForestColl's DGX-H100."""
    machine = Assembly("dgx_h100", nodes)
    build_nvswitch(machine, [NODE] * nodes)
    return machine.build(
        (
            "NVSwitch 450 GB/s (18 lanes of 25), NIC 50 GB/s (NDR): NVIDIA's figures, as ForestColl"
            " uses them",
            "NVSwitch 0.35 us per hop as on DGX-2 (TE-CCL): a guess for this generation",
            "guess: 2.6 us GPU to GPU on a rail (TACCL's remote_alpha on DGX-2), 0.4 us of it per"
            " side is the GPU's PCIe hop, 0.1 us the NIC's; PCIe 5.0 x16 carries 52 GB/s",
            "guess: NIC i of every node is on leaf switch i (a rail), a spine that does not block"
            " joins the rails at 0.3 us per hop",
            "each GPU and its NIC are shown on a PCIe switch of their own; the host path between"
            " GPUs is left out, NVSwitch is always wider",
        )
    )
