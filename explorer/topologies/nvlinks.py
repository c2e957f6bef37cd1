"""NVLinks of a node: from counts per pair of GPUs to direct links or an NVSwitch plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly

MOST_LANES = 18
"""No GPU up to Blackwell has more NVLinks; more lanes than that in sum mean a switch."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """What joins the GPUs of a node.

    Parameters
    ----------
    ports
        Per plane: GPU -> lanes of its port to the NVSwitches.
    pairs
        (i, j) -> lanes of a direct link.
    lane_gbs
        Rate of a lane per direction.
    most
        Most lanes of a GPU; 0 without NVLinks.
    notes
        What was assumed.
    """

    ports: tuple[dict[int, int], ...]
    pairs: dict[tuple[int, int], int]
    lane_gbs: float
    most: int
    notes: tuple[str, ...]


def classify(counts: Mapping[tuple[int, int], int], grace: bool, where: str) -> NvLinks:
    """Tell NVSwitch planes from direct links.

    GPUs that all see one another over the lanes of their whole port stand on NVSwitches: 8 GPUs
    with NV12 to each of 7 others would need 84 lanes otherwise.

    Parameters
    ----------
    counts
        NVLinks of the pairs that have any, as ``nvidia-smi topo -m`` counts them.
    grace
        Whether the machine is known to have Grace CPUs.
    where
        For problems.

    Raises
    ------
    InputError
        If GPUs have more lanes than exist and are not on switches.
    """
    ports: list[dict[int, int]] = []
    pairs: dict[tuple[int, int], int] = {}
    most = 0
    for members in _components(counts):
        own = {pair: n for pair, n in counts.items() if pair[0] in members}
        sums = {g: sum(n for pair, n in own.items() if g in pair) for g in members}
        if max(sums.values()) <= MOST_LANES:
            pairs |= own
            most = max(most, *sums.values())
            continue
        port = {g: max(n for pair, n in own.items() if g in pair) for g in members}
        complete = len(own) == len(members) * (len(members) - 1) // 2
        if not complete or any(n != min(port[a], port[b]) for (a, b), n in own.items()):
            worst = max(sums, key=lambda g: (sums[g], -g))
            raise InputError(
                Problem(
                    where,
                    f"GPU{worst} would have {sums[worst]} NVLinks, at most {MOST_LANES} exist, and"
                    " its counts do not fit GPUs on NVSwitches either, where each pair shows the"
                    " smaller of two port widths",
                )
            )
        ports.append(port)
        most = max(most, *port.values())
    lane = _lane_gbs(most, ports, pairs, grace)
    return NvLinks(tuple(ports), pairs, lane, most, _notes(ports, most, lane, grace))


def _components(counts: Mapping[tuple[int, int], int]) -> list[list[int]]:
    near: dict[int, set[int]] = {}
    for a, b in counts:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    parts: list[list[int]] = []
    seen: set[int] = set()
    for start in sorted(near):
        if start in seen:
            continue
        stack, part = [start], {start}
        while stack:
            for other in near[stack.pop()] - part:
                part.add(other)
                stack.append(other)
        seen |= part
        parts.append(sorted(part))
    return parts


def _lane_gbs(
    most: int, ports: Sequence[object], pairs: Mapping[tuple[int, int], int], grace: bool
) -> float:
    if grace and most == MOST_LANES:
        return generations.NVLINK_GBS["B200"]
    alone = not ports and most == 4 and set(pairs.values()) == {4}
    return generations.NVLINK_GBS["GA102" if alone else "A100"]


def _notes(
    ports: Sequence[Mapping[int, int]], most: int, lane: float, grace: bool
) -> tuple[str, ...]:
    if not most:
        return ()
    why = f"as GPUs with {most} NVLinks have"
    if most == MOST_LANES:
        why = (
            "as GB200, since the GPUs have NUMA nodes of their own (GH200 has 25)"
            if grace
            else "as H100 and H200; B200 and GB200 also show NV18 but have 50 (use --nvlink)"
        )
    elif lane == generations.NVLINK_GBS["GA102"]:
        why = "as RTX A6000 and 3090 bridges of four lanes; an A100 or A30 bridge has 25"
    notes = [f"assumed: {lane:g} GB/s per NVLink and direction, {why}"]
    for port in ports:
        if len(set(port.values())) > 1:
            worst = min(port, key=lambda g: (port[g], g))
            notes.append(
                f"warning: GPU{worst} has {port[worst]} NVLinks, others {max(port.values())}:"
                " a lane may be down"
            )
    return tuple(notes)


def add_nvlinks(machine: Assembly, node: int, gpus: Sequence[int], links: NvLinks) -> None:
    """Add them to a node whose GPUs have these device indices."""
    for i, port in enumerate(links.ports):
        plane = machine.device(f"nvswitch{i}", "nvswitch", node)
        for gpu, lanes in sorted(port.items()):
            alpha = generations.NVLINK_ALPHA_US / 2
            machine.both(gpus[gpu], plane, "nvlink", alpha, lanes * links.lane_gbs, lanes)
    for (a, b), lanes in sorted(links.pairs.items()):
        alpha = generations.NVLINK_ALPHA_US
        machine.both(gpus[a], gpus[b], "nvlink", alpha, lanes * links.lane_gbs, lanes)
