"""A network description alone as a machine: every host counts as one rank."""

from __future__ import annotations

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.fabric import DEFAULT_GBS, rewire
from explorer.topologies.wiring import Port, Wiring, check_connected, short_list


def wiring_topology(wiring: Wiring, nodes: int | None) -> Topology:
    """Place one GPU on every host.

    Parameters
    ----------
    wiring
        The network.
    nodes
        ``--nodes``; must be the number of hosts if given.

    Raises
    ------
    InputError
        If the network is in parts, has no host, or ``nodes`` is not the number of hosts.
    """
    check_connected(wiring)
    if nodes not in (None, len(wiring.hosts)):
        raise InputError(
            Problem("--nodes", f"got {nodes}, {wiring.name} names {len(wiring.hosts)} hosts")
        )
    machine = Assembly(wiring.name, max(2, len(wiring.hosts)))
    fabric = machine.device("fabric", "switch")
    hosts = {}
    for node, (host, ports) in enumerate(wiring.hosts.items()):
        gpu = machine.gpu(node)
        nic = machine.device("nic0", "nic", node)
        switches = {port.switch for port in ports}
        total = sum(port.gbs or DEFAULT_GBS for port in ports)
        joint = len(ports) if len(switches) == 1 else 1
        gbs = total if joint > 1 else ports[0].gbs or DEFAULT_GBS
        machine.both(gpu, nic, "pcie", generations.GPU_PCIE_ALPHA_US, gbs)
        machine.both(nic, fabric, "network", generations.NIC_ALPHA_US, gbs)
        hosts[host] = (Port("nic0", ports[0].switch, gbs, joint),)
    simple = Wiring(wiring.name, hosts, wiring.trunks, wiring.notes)
    return rewire(machine.build(_notes(wiring)), simple)


def _notes(wiring: Wiring) -> tuple[str, ...]:
    several = [host for host, ports in wiring.hosts.items() if len(ports) > 1]
    notes = [
        "a network description knows nothing of what is inside its hosts: each counts as one rank"
        " here; give a file of one node beside it to get its GPUs"
    ]
    if several:
        notes.append(
            f"hosts of several NICs ({short_list(several)}) have the joint rate of those on one"
            " switch, or of the first where they are on several"
        )
    if any(port.gbs is None for ports in wiring.hosts.values() for port in ports):
        notes.append(f"assumed: {DEFAULT_GBS:g} GB/s per port, which the file does not say")
    return tuple(notes)
