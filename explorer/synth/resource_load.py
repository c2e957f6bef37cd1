"""Resource load: the makespan is at least the time any link, port or NIC is busy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.synth.arcs import Arcs
from explorer.synth.instance import Instance
from explorer.synth.linear_model import Block, LinearModel
from explorer.synth.paths import INFINITE, distances

FloatArray = npt.NDArray[np.float64]


def load_rows(
    linear: LinearModel, instance: Instance, arcs: Arcs, use: Block, makespan: Block
) -> None:
    """Bound the makespan by the load of every resource.

    A resource cannot start before the first chunk can be there, is busy for the bytes of all its
    sends, and pays latency at least once (groups share it). Where a node can be entered at one rank
    only, what enters it last must still spread from there.
    """
    graph = instance.graph
    counts = np.diff(graph.resource_first)[arcs.edge]
    pair = np.repeat(np.arange(len(arcs.edge)), counts)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    resource = graph.resource[graph.resource_first[arcs.edge[pair]] + offset].astype(np.int64)
    edge = arcs.edge[pair]
    head = instance.reach_us[arcs.chunk[pair], graph.src[edge]] + graph.alpha_us[edge]
    tail = _spread_after(instance, arcs)[pair]
    fixed = _least(head, resource, graph.resources) + _least(tail, resource, graph.resources)
    key = resource * arcs.orbits + arcs.variable[pair]
    unique, inverse = np.unique(key, return_inverse=True)
    load = np.bincount(inverse, weights=instance.transfer_us[edge])
    rows, columns = np.divmod(unique, arcs.orbits)
    first = np.searchsorted(rows, np.arange(len(graph.resources) + 1))
    seen: set[tuple[bytes, bytes, float]] = set()
    for r in np.unique(rows).tolist():
        part = slice(first[r], first[r + 1])
        # Images of a resource give the same row.
        signature = (columns[part].tobytes(), load[part].tobytes(), float(fixed[r]))
        if signature in seen:
            continue
        seen.add(signature)
        linear.rows(
            np.zeros(part.stop - part.start + 1, dtype=np.int64),
            np.concatenate((use.first + columns[part], [makespan.first])),
            np.concatenate((-load[part], [1.0])),
            lower=0.0 if len(columns[part]) == 0 else float(fixed[r]),
        )


def _least(
    value: FloatArray, resource: npt.NDArray[np.int64], names: tuple[str, ...]
) -> FloatArray:
    least = np.full(len(names), np.inf)
    np.minimum.at(least, resource, value)
    return least


def _spread_after(instance: Instance, arcs: Arcs) -> FloatArray:
    """Least time from a send's arrival to the end of what only it can serve, float64 ``[P]``."""
    graph = instance.graph
    after = np.zeros(len(arcs.edge))
    crossing = np.flatnonzero(instance.inter[arcs.edge])
    if instance.relayed or not len(crossing):
        if instance.relayed:
            target = instance.needs.argmax(axis=1)
            after = instance.distance[graph.dst[arcs.edge], target[arcs.chunk]]
        return after
    inside = distances(graph, instance.arrive_us, ~instance.inter)
    gates: dict[tuple[int, int], set[int]] = {}
    for i in crossing.tolist():
        head = int(graph.dst[arcs.edge[i]])
        gates.setdefault((int(arcs.chunk[i]), int(graph.node_of[head])), set()).add(head)
    for i in crossing.tolist():
        chunk, head = int(arcs.chunk[i]), int(graph.dst[arcs.edge[i]])
        node = int(graph.node_of[head])
        if len(gates[chunk, node]) > 1 or graph.node_of[instance.source[chunk]] == node:
            continue
        served = instance.needs[chunk] & (graph.node_of == node)
        spread = inside[head, served].max(initial=0.0)
        after[i] = spread if spread < INFINITE else 0.0
    return after
