"""Resource load: the makespan is at least the time any link, port or NIC is busy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.synth.arcs import Arcs
from explorer.synth.instance import Instance, needing_nodes
from explorer.synth.linear_model import Block, LinearModel
from explorer.synth.paths import INFINITE, distances

FloatArray = npt.NDArray[np.float64]
LongArray = npt.NDArray[np.int64]


def load_rows(
    linear: LinearModel, instance: Instance, arcs: Arcs, use: Block, makespan: Block
) -> None:
    """Bound the makespan by the load of every resource.

    A resource is busy for the bytes of all its sends. One that must be used cannot start before
    the first chunk can be there, pays latency at least once (groups share it), and what goes over
    it last must still spread from where it arrives.
    """
    graph = instance.graph
    counts = np.diff(graph.resource_first)[arcs.edge]
    pair = np.repeat(np.arange(len(arcs.edge)), counts)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    edge = arcs.edge[pair]
    resource = graph.resource[graph.resource_first[edge] + offset].astype(np.int64)
    names = len(graph.resources)
    reach = instance.reach_us
    via = reach[arcs.chunk[pair], graph.src[edge]] + instance.arrive_us[edge]
    likely = via <= reach[arcs.chunk[pair], graph.dst[edge]] * (1 + 1e-9)
    spread = _spread_after(instance, arcs)[pair]
    head = _least(via - instance.transfer_us[edge], resource, names)
    tail = _least(np.where(likely, spread, np.inf), resource, names)
    tail[np.isinf(tail)] = 0.0
    forced = _forced(instance, arcs, pair, resource)
    # A send with less to follow than that takes the difference back when it is used.
    short = np.where(forced[resource], np.maximum(tail[resource] - spread, 0.0), 0.0)
    key = resource * arcs.orbits + arcs.variable[pair]
    unique, inverse, images = np.unique(key, return_inverse=True, return_counts=True)
    load = np.zeros(len(unique))
    np.add.at(load, inverse, instance.transfer_us[edge] - short / images[inverse])
    rows, columns = np.divmod(unique, arcs.orbits)
    first = np.searchsorted(rows, np.arange(names + 1))
    seen: set[tuple[bytes, bytes, float]] = set()
    for r in np.unique(rows).tolist():
        part = slice(first[r], first[r + 1])
        fixed = float(head[r] + tail[r]) if forced[r] else 0.0
        # Images of a resource give the same row.
        signature = (columns[part].tobytes(), load[part].tobytes(), fixed)
        if signature in seen:
            continue
        seen.add(signature)
        linear.rows(
            np.zeros(part.stop - part.start + 1, dtype=np.int64),
            np.concatenate((use.first + columns[part], [makespan.first])),
            np.concatenate((-load[part], [1.0])),
            lower=fixed,
        )


def _least(value: FloatArray, resource: LongArray, count: int) -> FloatArray:
    least = np.full(count, np.inf)
    np.minimum.at(least, resource, value)
    return least


def _forced(
    instance: Instance, arcs: Arcs, pair: LongArray, resource: LongArray
) -> npt.NDArray[np.bool_]:
    """Resources that every schedule uses: some chunk has no way around them."""
    graph = instance.graph
    nodes = int(graph.node_of.max()) + 1
    head, tail = graph.dst[arcs.edge].astype(np.int64), graph.src[arcs.edge]
    chunk = arcs.chunk.astype(np.int64)
    to_rank = np.where(instance.needs[chunk, head], chunk * graph.ranks + head, -1)
    from_source = np.where(instance.source[chunk] == tail, chunk, -1)
    node_needs = needing_nodes(instance)
    node = graph.node_of[head].astype(np.int64)
    enters = instance.inter[arcs.edge] & node_needs[chunk, node]
    enters &= graph.node_of[instance.source[chunk]] != node
    to_node = np.where(enters, chunk * nodes + node, -1)
    forced = np.zeros(len(graph.resources), dtype=np.bool_)
    for crossing in (to_rank, from_source, to_node):
        counted = crossing[pair] >= 0
        if not counted.any():
            continue
        ways = np.bincount(crossing[crossing >= 0])
        span = len(ways)
        here, through = np.unique(
            resource[counted] * span + crossing[pair][counted], return_counts=True
        )
        forced[here[through == ways[here % span]] // span] = True
    return forced


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
            # It may come otherwise, and be there already.
            continue
        served = instance.needs[chunk] & (graph.node_of == node)
        spread = inside[head, served].max(initial=0.0)
        after[i] = spread if spread < INFINITE else 0.0
    return after
