"""Sets of ranks that something narrow may separate from the others, where bounds look for cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from explorer.core.topology import Topology

MAX_LEVELS = 64
"""Bandwidth levels looked at; a matrix of measured links may have thousands."""


@dataclass(frozen=True, slots=True)
class Partition:
    """All ranks in disjoint sets.

    Parameters
    ----------
    what
        What a set is: ``gpu``, ``node`` or ``group``.
    parts
        Sorted ranks of every set.
    """

    what: str
    parts: tuple[tuple[int, ...], ...]


def partitions(topology: Topology) -> list[Partition]:
    """Single GPUs, nodes, groups that links of one rate or better join, groups below a leaf switch.

    Returns
    -------
    list
        Distinct partitions with at least two sets each, single GPUs first.
    """
    found = [
        Partition("gpu", tuple((rank,) for rank in range(topology.ranks))),
        Partition("node", _by_label(topology.node_of.tolist())),
        *(Partition("group", _by_label(labels)) for _, labels in rate_levels(topology)),
        Partition("group", _below_leaves(topology)),
    ]
    distinct: dict[tuple[tuple[int, ...], ...], Partition] = {}
    for partition in found:
        if len(partition.parts) > 1:
            distinct.setdefault(partition.parts, partition)
    return list(distinct.values())


def _by_label(labels: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Ranks of equal label, ordered by their first rank."""
    groups: dict[int, list[int]] = {}
    for rank, label in enumerate(labels):
        groups.setdefault(label, []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def rate_levels(topology: Topology) -> Iterator[tuple[float, list[int]]]:
    """For every rate from the best: its beta, and a label per rank of the group links so fast join.

    Ends when all ranks are joined, or after :data:`MAX_LEVELS` rates.
    """
    betas = np.array([link.beta_us_per_mib for link in topology.links])
    order = np.argsort(betas, kind="stable")
    sets = _Sets(len(topology.devices))
    position = 0
    for level in np.unique(betas)[:MAX_LEVELS].tolist():
        while position < len(order) and betas[order[position]] <= level:
            link = topology.links[order[position]]
            sets.join(link.src, link.dst)
            position += 1
        labels = [sets.find(gpu) for gpu in topology.gpus]
        yield level, labels
        if len(set(labels)) == 1:
            return


def _below_leaves(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Groups that stay joined when the links between network switches are cut."""
    sets = _Sets(len(topology.devices))
    for link in topology.links:
        if {topology.devices[end].kind for end in (link.src, link.dst)} != {"switch"}:
            sets.join(link.src, link.dst)
    return _by_label([sets.find(gpu) for gpu in topology.gpus])


class _Sets:
    """Disjoint sets with path halving."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, item: int) -> int:
        parent = self.parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, a: int, b: int) -> None:
        self.parent[self.find(a)] = self.find(b)
