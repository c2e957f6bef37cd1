"""A server's PCIe side while it is built: sockets, switches, GPUs and NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from explorer.topologies import generations
from explorer.topologies.assembly import Assembly


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC that was added.

    Parameters
    ----------
    device
        Its device index.
    gbs
        Rate of its port to the network.
    """

    device: int
    gbs: float


class PcieServer:
    """Adds one node to a machine.

    Parameters
    ----------
    machine
        Where to add.
    node
        Number of the node.
    prefix
        Before the names of its devices, where a node is several hosts.
    """

    def __init__(self, machine: Assembly, node: int, prefix: str = "") -> None:
        self.machine = machine
        self.node = node
        self.prefix = prefix
        self._switches = 0
        self._sockets: list[int] = []

    def socket(self) -> int:
        """Add a CPU; returns its device index."""
        cpu = self.machine.device(f"{self.prefix}cpu{len(self._sockets)}", "cpu", self.node)
        self._sockets.append(cpu)
        return cpu

    def join_sockets(self, gbs: float) -> None:
        """Join every two CPUs."""
        for a, b in combinations(self._sockets, 2):
            self.machine.both(a, b, "socket", generations.SOCKET_ALPHA_US, gbs)

    def switch(self, parent: int, gbs: float) -> int:
        """Add a PCIe switch below a device; returns its index."""
        switch = self.machine.device(f"{self.prefix}pcie{self._switches}", "pcie", self.node)
        self._switches += 1
        self.machine.both(switch, parent, "pcie", generations.PCIE_ALPHA_US, gbs, 16)
        return switch

    def leaves(
        self,
        parent: int,
        gpus: Sequence[tuple[int, float]],
        nics: Sequence[tuple[int, float]],
        gbs: float,
    ) -> bool:
        """Hang GPUs and NICs below a device, each with its PCIe rate.

        Where several GPUs see several NICs at the same distance, GPU i gets NIC ``i * nics //
        gpus`` on a switch of the two, as NCCL spreads them; else all would take the first.

        Returns
        -------
        bool
            Whether NICs were spread so.
        """
        spread = len(gpus) > 1 and len(nics) > 1
        for i, (nic, rate) in enumerate(nics):
            above = self.switch(parent, gbs) if spread else parent
            self.machine.both(above, nic, "pcie", generations.PCIE_ALPHA_US, rate, 16)
            if spread:
                own = [g for j, g in enumerate(gpus) if j * len(nics) // len(gpus) == i]
                self._gpus(above, own)
        if not spread:
            self._gpus(parent, gpus)
        return spread

    def _gpus(self, parent: int, gpus: Sequence[tuple[int, float]]) -> None:
        for gpu, rate in gpus:
            self.machine.both(gpu, parent, "pcie", generations.GPU_PCIE_ALPHA_US, rate, 16)


def join_nodes(machine: Assembly, nics: Sequence[Nic]) -> None:
    """Join the NICs of all nodes in a network that does not block; nothing for one node."""
    if machine.nodes > 1 and nics:
        fabric = machine.device("fabric", "switch")
        for nic in nics:
            machine.both(nic.device, fabric, "network", generations.NIC_ALPHA_US, nic.gbs)
