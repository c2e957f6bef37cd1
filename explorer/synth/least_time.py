"""Least time: simple lower bounds, so that a search knows when it may stop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.synth.instance import Instance, needing_nodes

FloatArray = npt.NDArray[np.float64]


def least_makespan(instance: Instance) -> float:
    """Lower bound on any schedule in us: the farthest chunk, and the poorest and busiest rank."""
    farthest = float(instance.reach_us[instance.needs].max(initial=0.0))
    received = instance.needs.sum(axis=0).astype(np.float64)
    wanted = instance.needs.any(axis=1)
    sent = np.bincount(instance.source[wanted], minlength=instance.graph.ranks).astype(np.float64)
    into = port_time(instance, received, instance.transfer_us, outward=False)
    out = port_time(instance, sent, instance.transfer_us, outward=True)
    latency = float(instance.alpha_us.min()) if instance.graph.edges else 0.0
    return max(farthest, max(into, out, node_time(instance)) + latency)


def node_time(instance: Instance) -> float:
    """Time the poorest node needs to let in what it lacks, or out what others lack.

    Every edge between nodes is counted under the one of its resources that most such edges of the
    node share; a resource's rate is at most that of its fastest edge.
    """
    graph = instance.graph
    result = 0.0
    if not instance.inter.any():
        return result
    home = graph.node_of[instance.source]
    foreign = needing_nodes(instance)
    foreign[np.arange(instance.chunks), home] = False
    leaves = foreign.any(axis=1)
    for node in range(foreign.shape[1]):
        for side, count in (
            (graph.dst, int(foreign[:, node].sum())),
            (graph.src, int((leaves & (home == node)).sum())),
        ):
            edges = np.flatnonzero(instance.inter & (graph.node_of[side] == node))
            if not count or not len(edges):
                continue
            users = np.bincount(
                np.concatenate([graph.resources_of(int(e)) for e in edges]),
                minlength=len(graph.resources),
            )
            rates: dict[int, float] = {}
            for edge in edges.tolist():
                held = graph.resources_of(edge)
                port = int(held[np.argmax(users[held])]) if len(held) else -1 - edge
                rate = 1.0 / max(float(instance.transfer_us[edge]), 1e-300)
                rates[port] = max(rates.get(port, 0.0), rate)
            result = max(result, count / sum(rates.values()))
    return result


def port_time(instance: Instance, count: FloatArray, cost: FloatArray, *, outward: bool) -> float:
    """Time the poorest rank needs to move its chunks through its ports.

    Edges of a rank that share their resource next to it share its rate, which is at most that of
    the fastest of them; apart from that every edge counts in full.

    Parameters
    ----------
    count
        float64 ``[R]``: chunks each rank must move.
    cost
        float64 ``[E]``: time of one chunk on each edge.
    outward
        Whether chunks leave (else enter) the rank.
    """
    graph = instance.graph
    side = graph.src if outward else graph.dst
    result = 0.0
    for rank in np.flatnonzero(count).tolist():
        rates: dict[int, float] = {}
        edges = np.flatnonzero(side == rank).tolist()
        for edge in edges:
            held = graph.resources_of(edge)
            port = -1 - edge if not len(held) else int(held[0 if outward else -1])
            rate = 1.0 / float(cost[edge]) if cost[edge] > 0 else float("inf")
            rates[port] = max(rates.get(port, 0.0), rate)
        if edges:
            result = max(result, float(count[rank]) / sum(rates.values()))
    return result
