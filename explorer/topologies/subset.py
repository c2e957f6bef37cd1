"""Some of the GPUs of a machine, with everything they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from explorer.core.sketch import rank_ranges
from explorer.core.topology import Device, Topology
from explorer.errors import InputError, Problem


def subset(topology: Topology, ranks: Sequence[int]) -> Topology:
    """Keep some ranks; the GPUs that are left are numbered anew in their old order.

    Switches, NICs and links between them stay, so a route that GPUs relayed is gone, and what the
    remaining GPUs share they still share.

    Raises
    ------
    InputError
        If a rank does not exist or none is left.
    """
    absent = sorted({rank for rank in ranks if not 0 <= rank < topology.ranks})
    if absent or not ranks:
        got = ", ".join(map(str, absent)) or "none"
        raise InputError(Problem("--gpus", f"got {got}, expected ranks 0 to {topology.ranks - 1}"))
    kept = {topology.gpus[rank] for rank in ranks}
    position: dict[int, int] = {}
    devices: list[Device] = []
    for i, device in enumerate(topology.devices):
        if device.kind == "gpu" and i not in kept:
            continue
        position[i] = len(devices)
        if device.kind == "gpu":
            rank = sum(d.kind == "gpu" for d in devices)
            devices.append(replace(device, name=f"gpu{rank}"))
        else:
            devices.append(device)
    links = tuple(
        replace(link, src=position[link.src], dst=position[link.dst])
        for link in topology.links
        if link.src in position and link.dst in position
    )
    chosen = rank_ranges(sorted(set(ranks)))
    note = f"ranks {chosen} of {topology.ranks}; the other GPUs are idle and relay nothing"
    return replace(topology, devices=tuple(devices), links=links, notes=(*topology.notes, note))
