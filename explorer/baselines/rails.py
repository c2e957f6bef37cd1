"""Two levels over rails: GPUs of equal place exchange between nodes, each over its own NIC.

AllGather goes between nodes first and then inside; ReduceScatter inside first; AllReduce is both;
AllToAll gathers inside what goes over a rail, so that a pair of nodes exchanges one message per
rail (the 2D AllToAll of msccl-tools, ``examples/mscclang/alltoall_a100_two_step.py``).
"""

from __future__ import annotations

from explorer.baselines.buffers import Address
from explorer.baselines.direct import Run, copy_own, rounds, runs_of
from explorer.baselines.inside import Inside
from explorer.baselines.levels import Levels, Node
from explorer.baselines.writer import Writer
from explorer.core.topology import Topology
from sim.program import Buffer


def write_rails(writer: Writer, topology: Topology, levels: Levels) -> None:
    """Write the steps of the writer's collective."""
    rails = _Rails(writer, topology, levels)
    name = writer.collective.name
    if name == "alltoall":
        rails.all_to_all()
        return
    if writer.collective.reduces:
        rails.reduce_scatter()
    if name != "reducescatter":
        rails.all_gather()
    if name == "allgather":
        copy_own(writer)


class _Rails:
    def __init__(self, writer: Writer, topology: Topology, levels: Levels) -> None:
        self._writer = writer
        self._nodes = levels.nodes
        self._inside = Inside(writer, topology, levels)
        self._sums: dict[tuple[int, int], Address] = {}

    def all_gather(self) -> None:
        """Each rank's chunk to its rail, then every chunk that has arrived to the node."""
        buffers, per_rank = self._writer.buffers, self._writer.per_rank
        for d in range(len(self._nodes)):
            for u, v in self._rail_pairs(d):
                chunk = u * per_rank
                source, target = buffers.held(u, chunk), buffers.result(v, chunk)
                self._writer.move(u, v, source, target, per_rank)
            for node, origin in self._pairs(-d):
                self._inside.gather(node, self._parts(node, origin))

    def reduce_scatter(self) -> None:
        """Sums over the node for every rail, then along the rails; those for others go first."""
        writer, per_rank = self._writer, self._writer.per_rank
        landed: dict[int, list[tuple[int, Address]]] = {}
        for d in (*range(1, len(self._nodes)), 0):
            for node, target in self._pairs(d):
                parts = self._parts(node, target)
                self._inside.scatter(node, parts, writer.buffers.source, self._sum)
            for u, v in self._rail_pairs(d):
                slot = (int(Buffer.SCRATCH), writer.scratch(v, per_rank))
                landed.setdefault(v, []).append((u, slot))
                writer.move(u, v, self._sum(u, v * per_rank), slot, per_rank)
        for v, arrivals in sorted(landed.items()):
            peers, slots = zip(*arrivals, strict=True)
            writer.gather_sum(v, peers, slots, self._sum(v, v * per_rank), per_rank)

    def all_to_all(self) -> None:
        """Hand to a neighbour what goes over its rail, then one message per rail and node."""
        writer, buffers, c = self._writer, self._writer.buffers, self._writer.per_rank
        copies: list[tuple[int, Address, Address, int, int]] = []

        def deliver(u: int, v: int, source: Address, owners: tuple[int, ...]) -> None:
            # in place the results replace what may still have to be sent: they wait in scratch
            at = 0
            for chunk, count in runs_of(owners, c):
                target = buffers.result(v, chunk)
                if writer.placement != "out":
                    slot = (int(Buffer.SCRATCH), writer.scratch(v, count))
                    copies.append((v, slot, target, count, u))
                    target = slot
                writer.move(u, v, (source[0], source[1] + at), target, count)
                at += count

        for d in range(1, len(self._nodes)):
            for node, other in self._pairs(d):
                size = len(node.ranks)
                staged = {v: writer.scratch(v, size * c) for v in node.ranks}
                for i, u in enumerate(node.ranks):
                    peer = other.ranks[i]
                    own = (int(Buffer.SCRATCH), staged[u] + i * c)
                    writer.copy(u, buffers.source(u, peer * c), own, c)
                for u, v in rounds(node.ranks):
                    i, j = node.ranks.index(u), node.ranks.index(v)
                    slot = (int(Buffer.SCRATCH), staged[v] + i * c)
                    writer.move(u, v, buffers.source(u, other.ranks[j] * c), slot, c)
                for j, v in enumerate(node.ranks):
                    deliver(v, other.ranks[j], (int(Buffer.SCRATCH), staged[v]), node.ranks)
        for node in self._nodes:
            for u, v in rounds(node.ranks):
                deliver(u, v, buffers.source(u, v * c), (u,))
        for v, slot, target, count, u in copies:
            writer.copy(v, slot, target, count, recv=u)
        for r in range(writer.collective.ranks):
            writer.copy(r, buffers.source(r, r * c), buffers.result(r, r * c), c)

    def _sum(self, rank: int, chunk: int) -> Address:
        """Where a rank adds up a chunk: where it ends up if it does so there, else in scratch."""
        writer = self._writer
        owner = chunk // writer.per_rank
        if writer.collective.name == "allreduce" or owner == rank:
            return writer.buffers.result(rank, chunk)
        key = rank, owner
        if key not in self._sums:
            self._sums[key] = (int(Buffer.SCRATCH), writer.scratch(rank, writer.per_rank))
        base = self._sums[key]
        return base[0], base[1] + chunk % writer.per_rank

    def _pairs(self, d: int) -> list[tuple[Node, Node]]:
        """Every node with the one d further on."""
        nodes = self._nodes
        return [(node, nodes[(k + d) % len(nodes)]) for k, node in enumerate(nodes)]

    def _rail_pairs(self, d: int) -> list[tuple[int, int]]:
        """Every rank with the one of equal place d nodes further on; none for d = 0."""
        if d == 0:
            return []
        return [pair for a, b in self._pairs(d) for pair in zip(a.ranks, b.ranks, strict=True)]

    def _parts(self, node: Node, other: Node) -> dict[int, list[Run]]:
        """For every rank of a node the chunks of its place on another."""
        per_rank = self._writer.per_rank
        return {u: runs_of([v], per_rank) for u, v in zip(node.ranks, other.ranks, strict=True)}
