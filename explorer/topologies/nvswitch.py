"""Nodes whose GPUs share an NVSwitch plane, with their NICs on PCIe switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.topologies.assembly import Assembly

NVSWITCH_ALPHA_US = 0.35
"""Per hop: TE-CCL ``teccl/topologies/dgx2.py``."""

GPU_PCIE_ALPHA_US = 0.4
NIC_PCIE_ALPHA_US = 0.1
SPINE_ALPHA_US = 0.3


@dataclass(frozen=True, slots=True)
class NvSwitchNode:
    """Constants of a node.

    Parameters
    ----------
    gpus, nics
        Per node; GPU i uses NIC ``i * nics // gpus``, over a PCIe switch of that NIC's own.
    port_gbs, port_lanes
        A GPU's NVSwitch port, per direction.
    pcie_gbs, nic_gbs
        Rates of a PCIe x16 link and of a NIC.
    network_alpha_us
        Latency from GPU to GPU over the network, PCIe hops included.
    rails
        NIC i of every node on leaf switch i, the leaves joined by a spine that does not block;
        else one fabric for all.
    """

    gpus: int
    nics: int
    port_gbs: float
    port_lanes: int
    pcie_gbs: float
    nic_gbs: float
    network_alpha_us: float
    rails: bool = False


def build_nvswitch(machine: Assembly, parts: Sequence[NvSwitchNode]) -> None:
    """Add one node of each kind given and, with more than one, the network between them."""
    nics = [_add_node(machine, part, k) for k, part in enumerate(parts)]
    if len(parts) == 1:
        return
    if parts[0].rails:
        _add_rails(machine, parts[0], nics)
        return
    fabric = machine.device("fabric", "switch")
    for part, own in zip(parts, nics, strict=True):
        for nic in own:
            machine.both(nic, fabric, "network", _nic_alpha_us(part), part.nic_gbs)


def _nic_alpha_us(part: NvSwitchNode) -> float:
    return part.network_alpha_us / 2 - GPU_PCIE_ALPHA_US - NIC_PCIE_ALPHA_US


def _add_rails(machine: Assembly, part: NvSwitchNode, nics: list[list[int]]) -> None:
    spine = machine.device("spine", "switch")
    for i in range(part.nics):
        rail = machine.device(f"rail{i}", "switch")
        for own in nics:
            machine.both(own[i], rail, "network", _nic_alpha_us(part), part.nic_gbs)
        uplink_gbs = part.nic_gbs * len(nics)
        machine.both(rail, spine, "network", SPINE_ALPHA_US, uplink_gbs, len(nics))


def _add_node(machine: Assembly, part: NvSwitchNode, k: int) -> list[int]:
    gpus = [machine.gpu(k) for _ in range(part.gpus)]
    plane = machine.device("nvswitch0", "nvswitch", k)
    for gpu in gpus:
        machine.both(gpu, plane, "nvlink", NVSWITCH_ALPHA_US, part.port_gbs, part.port_lanes)
    nics = []
    for i in range(part.nics):
        switch = machine.device(f"pcie{i}", "pcie", k)
        nic = machine.device(f"nic{i}", "nic", k)
        machine.both(switch, nic, "pcie", NIC_PCIE_ALPHA_US, part.pcie_gbs, 16)
        for j, gpu in enumerate(gpus):
            if j * part.nics // part.gpus == i:
                machine.both(gpu, switch, "pcie", GPU_PCIE_ALPHA_US, part.pcie_gbs, 16)
        nics.append(nic)
    return nics
