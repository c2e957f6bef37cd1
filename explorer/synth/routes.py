"""Routes: which chunk may cross which edge, and how much still depends on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.synth.instance import Instance
from explorer.synth.paths import INFINITE, distances, edges_in, edges_out

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Allowed sends.

    Parameters
    ----------
    edge, chunk
        int32 ``[N]``: the pairs.
    tail
        float64 ``[N]``: urgency, the time that passes at least between the arrival over the edge
        and the end of what depends on it; 0 where nothing does.
    entries
        How often a chunk may enter a node over ``chunk``'s edges between nodes.
    fixed
        Whether every pair is a send of the schedule (trees) rather than a possibility.
    sums
        Whether the trees collect: a rank sends a chunk on when all sends into it have arrived.
    """

    edge: IntArray
    chunk: IntArray
    tail: FloatArray
    entries: int
    fixed: bool
    sums: bool = False


def tree_routes(instance: Instance, edge: IntArray, chunk: IntArray) -> Routes:
    """Exactly these sends; the urgency is the longest path below each."""
    return Routes(edge, chunk, _tails(instance, edge, chunk), len(edge), fixed=True)


def collecting_routes(instance: Instance, edge: IntArray, chunk: IntArray) -> Routes:
    """Trees that end where the instance's chunks start; the urgency is the way that is left."""
    graph = instance.graph
    onward = np.full((instance.chunks, graph.ranks), -1, dtype=np.int64)
    onward[chunk, graph.src[edge]] = np.arange(len(edge))
    after = onward[chunk, graph.dst[edge]]
    inner = after >= 0
    tail = np.zeros(len(edge))
    for _ in range(graph.ranks):
        longer = np.where(inner, instance.arrive_us[edge[after]] + tail[after], 0.0)
        if np.array_equal(longer, tail):
            break
        tail = longer
    return Routes(edge, chunk, tail, len(edge), fixed=True, sums=True)


def guided_routes(instance: Instance, edge: IntArray, chunk: IntArray) -> Routes:
    """Trees between nodes, free inside them.

    Sends of the trees that lead out of a node keep their urgency; any other edge inside a node may
    carry any chunk.
    """
    tail = _tails(instance, edge, chunk)
    crosses = instance.inter[edge]
    leads = crosses | _above(instance, edge, chunk, crosses)
    urgency = np.zeros((instance.graph.edges, instance.chunks))
    urgency[edge[leads], chunk[leads]] = tail[leads]
    allowed = np.repeat(~instance.inter[:, None], instance.chunks, axis=1)
    allowed[edge[crosses], chunk[crosses]] = True
    edges, chunks = np.nonzero(allowed)
    return Routes(
        edges.astype(np.int32),
        chunks.astype(np.int32),
        urgency[edges, chunks],
        instance.graph.ranks,
        fixed=False,
    )


def free_routes(instance: Instance, *, direct: bool = True) -> Routes:
    """Any edge for any chunk; chunks that must leave their node go to the nearest way out first.

    Parameters
    ----------
    direct
        Where a node has a link to another one, its chunks go there over no third node, each once,
        and none comes back to its own node. Not every graph allows that.
    """
    graph = instance.graph
    allowed = instance.exits.T
    if direct:
        allowed = allowed & _direct(instance)
    urgency = np.zeros((graph.edges, instance.chunks))
    if instance.inter.any():
        inside = distances(graph, instance.arrive_us, ~instance.inter)
        for edge, chunk in _ways_out(instance, inside):
            urgency[edge, chunk] = instance.arrive_us[instance.inter].max()
    edges, chunks = np.nonzero(allowed)
    return Routes(
        edges.astype(np.int32),
        chunks.astype(np.int32),
        urgency[edges, chunks],
        1 if direct else graph.ranks,
        fixed=False,
    )


def shortest_routes(instance: Instance) -> Routes:
    """One shortest path per chunk and destination, spread over equal paths by load.

    For collectives whose chunks pass ranks that do not need them. Every path counts against the
    resources it uses before the next one is chosen, on orbits of the symmetry.
    """
    graph = instance.graph
    into = edges_in(graph)
    load = np.zeros(len(graph.resources))
    resources = [graph.resources_of(e) for e in range(graph.edges)]
    done = np.zeros(instance.chunks, dtype=np.bool_)
    edges: list[int] = []
    chunks: list[int] = []
    targets = instance.needs.argmax(axis=1)
    chunk_order = np.argsort(-instance.reach_us[np.arange(instance.chunks), targets], kind="stable")
    for chunk in chunk_order.tolist():
        if done[chunk] or not instance.needs[chunk].any():
            continue
        target = int(targets[chunk])
        path = _lightest_path(instance, into, resources, load, chunk, target)
        images = np.unique(instance.group.chunk[:, chunk], return_index=True)[1]
        for g in images.tolist():
            image = int(instance.group.chunk[g, chunk])
            done[image] = True
            for edge in path:
                e = int(instance.group.edge[g, edge])
                load[resources[e]] += instance.transfer_us[e]
                edges.append(e)
                chunks.append(image)
    return tree_routes(instance, np.array(edges, dtype=np.int32), np.array(chunks, dtype=np.int32))


def _lightest_path(
    instance: Instance,
    into: list[list[int]],
    resources: list[IntArray],
    load: FloatArray,
    chunk: int,
    target: int,
) -> list[int]:
    """Walk a shortest path back from its end, always over the least loaded resource."""
    reach = instance.reach_us[chunk]
    source = int(instance.source[chunk])
    rank = target
    path: list[int] = []
    while rank != source:
        limit = reach[rank] + 1e-9 * max(float(reach[target]), 1e-9)
        options = [
            e
            for e in into[rank]
            if instance.exits[chunk, e]
            and reach[instance.graph.src[e]] < reach[rank]
            and reach[instance.graph.src[e]] + instance.arrive_us[e] <= limit
        ]
        best = min(options, key=lambda e: (float(load[resources[e]].max(initial=0.0)), e))
        path.append(best)
        rank = int(instance.graph.src[best])
    return path[::-1]


def _parents(instance: Instance, edge: IntArray, chunk: IntArray) -> npt.NDArray[np.int64]:
    """Send that brings each send's chunk to its source, -1 at the chunk's own source."""
    graph = instance.graph
    brought = np.full((instance.chunks, graph.ranks), -1, dtype=np.int64)
    brought[chunk, graph.dst[edge]] = np.arange(len(edge))
    return np.where(instance.source[chunk] == graph.src[edge], -1, brought[chunk, graph.src[edge]])


def _tails(instance: Instance, edge: IntArray, chunk: IntArray) -> FloatArray:
    """Longest path below each send of some trees."""
    parent = _parents(instance, edge, chunk)
    below = np.flatnonzero(parent >= 0)
    tail = np.zeros(len(edge))
    for _ in range(instance.graph.ranks):
        longer = tail.copy()
        np.maximum.at(longer, parent[below], tail[below] + instance.arrive_us[edge[below]])
        if np.array_equal(longer, tail):
            break
        tail = longer
    return tail


def _above(instance: Instance, edge: IntArray, chunk: IntArray, marked: BoolArray) -> BoolArray:
    """Sends that have a marked send below them."""
    parent = _parents(instance, edge, chunk)
    below = np.flatnonzero(parent >= 0)
    above = np.zeros(len(edge), dtype=np.bool_)
    for _ in range(instance.graph.ranks):
        more = above.copy()
        np.logical_or.at(more, parent[below], (above | marked)[below])
        if np.array_equal(more, above):
            break
        above = more
    return above


def _direct(instance: Instance) -> BoolArray:
    """Edges that stay in a node, leave the chunk's node, or reach a node that has no other way."""
    graph = instance.graph
    nodes = int(graph.node_of.max()) + 1
    tail, head = graph.node_of[graph.src], graph.node_of[graph.dst]
    linked = np.zeros((nodes, nodes), dtype=np.bool_)
    linked[tail, head] = True
    home = graph.node_of[instance.source]
    foreign = tail[:, None] != home[None, :]
    reached = linked[home[None, :], head[:, None]] | (head[:, None] == home[None, :])
    allowed: BoolArray = ~(instance.inter[:, None] & foreign & reached)
    return allowed


def _ways_out(instance: Instance, inside: FloatArray) -> list[tuple[int, int]]:
    """Edges from each chunk's source to the nearest rank where it may leave the node."""
    graph = instance.graph
    out = edges_out(graph)
    found = []
    cache: dict[tuple[int, bytes], list[int]] = {}
    for chunk in range(instance.chunks):
        rank = int(instance.source[chunk])
        mine = (
            instance.inter
            & instance.exits[chunk]
            & (graph.node_of[graph.src] == graph.node_of[rank])
        )
        gates = np.unique(graph.src[mine])
        key = (rank, gates.tobytes())
        if key not in cache:
            cache[key] = []
            if len(gates):
                gate = int(min(gates.tolist(), key=lambda g: (inside[rank, g], g)))
                cache[key] = _inside_path(instance, out, inside, rank, gate)
        found += [(edge, chunk) for edge in cache[key]]
    return found


def _inside_path(
    instance: Instance, out: list[list[int]], inside: FloatArray, rank: int, gate: int
) -> list[int]:
    path: list[int] = []
    if inside[rank, gate] >= INFINITE:
        return path
    while rank != gate:
        rest = inside[rank, gate] * (1 + 1e-9)
        edge = next(
            e
            for e in out[rank]
            if not instance.inter[e]
            and instance.arrive_us[e] + inside[instance.graph.dst[e], gate] <= rest
        )
        path.append(edge)
        rank = int(instance.graph.dst[edge])
    return path
