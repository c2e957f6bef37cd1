"""Hierarchical: two levels, inside the nodes and between them.

Over rails where GPUs have several NICs, through doors where a node has one.
"""

from __future__ import annotations

from explorer.baselines.baseline import Baseline, only
from explorer.baselines.gateway import write_gateway
from explorer.baselines.levels import connected_inside, find_levels
from explorer.baselines.rails import write_rails
from explorer.baselines.ring_order import node_groups
from explorer.baselines.writer import Writer
from explorer.core.collective import Collective
from explorer.core.sketch import rank_ranges
from explorer.core.topology import Topology

_ONLY = only("allgather", "reducescatter", "allreduce", "alltoall")


def _refuses(collective: Collective, topology: Topology) -> str | None:
    if collective.ranks == 1:
        return _ONLY(collective, "hierarchical")
    groups = node_groups(topology)
    if len(groups) == 1:
        return f"hierarchical needs several nodes, {topology.name} is one"
    if max(len(group) for group in groups) == 1:
        return "hierarchical needs several GPUs per node, every node has one"
    for group in groups:
        if not connected_inside(topology, group):
            return (
                "hierarchical needs nodes that are connected inside,"
                f" ranks {rank_ranges(group)} are not"
            )
    return _ONLY(collective, "hierarchical")


def _write(writer: Writer, topology: Topology) -> None:
    levels = find_levels(topology)
    write = write_rails if levels.rails else write_gateway
    write(writer, topology, levels)


HIERARCHICAL = Baseline(
    "hierarchical",
    "two levels: inside nodes, and between them over rails or through one GPU",
    _refuses,
    _write,
)
