"""NIC lanes: TACCL's model of several inter-node links that share few NICs.

TACCL multiplies the beta of inter-node links by (links of a node pair and direction) / (NICs per
node) and lets them run side by side. So each such link gets a lane of its own here, that much
slower than a NIC: together they carry what the NICs carry, and their alphas overlap. A link that
several node pairs use is one lane: messages to different nodes follow one another on it.
"""

from __future__ import annotations

from dataclasses import replace

from explorer.core.sketch import Sketch
from explorer.core.topology import Device, Link, Topology


def nic_lanes(topology: Topology, sketch: Sketch) -> Topology:
    """Give the inter-node links of a sketch their lanes.

    Parameters
    ----------
    topology
        A TACCL profile on several nodes of equal size; every other machine comes back as it is,
        and so does a profile whose NICs are not outnumbered by links.
    sketch
        Its ``senders`` are the links.

    Returns
    -------
    Topology
        Without NICs; with a switch per local (sender, receiver) pair that joins its lanes.
    """
    nodes = sorted(set(topology.node_of.tolist()))
    per_node = topology.ranks // len(nodes)
    pairs = sketch.senders
    if pairs is None:
        pairs = tuple((a, b) for a in range(per_node) for b in range(per_node))
    if not topology.nics_per_node or len(nodes) < 2 or len(pairs) <= topology.nics_per_node:
        return topology
    share = len(pairs) / topology.nics_per_node
    alpha, beta = _between_nodes(topology)
    devices = [d for d in topology.devices if d.kind != "nic" and d.node >= 0]
    position = {device.name: i for i, device in enumerate(devices)}
    links = [
        replace(link, src=position[ends[0]], dst=position[ends[1]])
        for link in topology.links
        if (ends := (topology.devices[link.src].name, topology.devices[link.dst].name))
        and ends[0] in position
        and ends[1] in position
    ]
    gpus = [i for i, device in enumerate(devices) if device.kind == "gpu"]
    for sender, receiver in pairs:
        devices.append(Device(f"nics{sender}-{receiver}", "switch", -1))
        lane = len(devices) - 1
        for node in range(len(nodes)):
            out, into = gpus[node * per_node + sender], gpus[node * per_node + receiver]
            links.append(Link(out, lane, "network", alpha, beta * share))
            links.append(Link(lane, into, "network", 0.0, beta * share))
    note = (
        f"{len(pairs)} links between two nodes share {topology.nics_per_node} NICs: each has a lane"
        f" {share:g} times slower, as TACCL counts them"
    )
    return replace(
        topology, devices=tuple(devices), links=tuple(links), notes=(*topology.notes, note)
    )


def _between_nodes(topology: Topology) -> tuple[float, float]:
    """Alpha and beta of the way between two nodes; a profile has one for all."""
    routes = topology.routes_from(0)
    far = next(r for r in routes.values() if topology.node_of[r.dst] != topology.node_of[0])
    return far.alpha_us, far.beta_us_per_mib
