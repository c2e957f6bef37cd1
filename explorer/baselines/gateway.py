"""Two levels through doors: one GPU of a node sends for all, one receives for all.

For nodes with a single NIC (or of unequal size). What comes in spreads over a tree from the
receiving door, what goes out is collected over one to the sending door, piece by piece, so that the
NIC and the links inside work at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from explorer.baselines.buffers import Address, Buffers
from explorer.baselines.direct import Run, copy_own, rounds, runs_of
from explorer.baselines.inside import Inside
from explorer.baselines.levels import Levels, Node, tree_from
from explorer.baselines.writer import Writer, shares
from explorer.core.topology import Topology
from sim.program import Buffer

STEPS = 60
"""Steps of a block that pieces may take, of the 64 that runtimes have room for."""

Tree = list[tuple[int, int]]

Held = tuple[Address, int]
"""Range of chunks on a rank."""


def write_gateway(writer: Writer, topology: Topology, levels: Levels) -> None:
    """Write the steps of the writer's collective."""
    gateway = _Gateway(writer, topology, levels)
    {
        "allgather": gateway.all_gather,
        "reducescatter": gateway.reduce_scatter,
        "allreduce": gateway.all_reduce,
        "alltoall": gateway.all_to_all,
    }[writer.collective.name]()


class _Gateway:
    def __init__(self, writer: Writer, topology: Topology, levels: Levels) -> None:
        self._writer = writer
        self._topology = topology
        self._nodes = levels.nodes
        self._inside = Inside(writer, topology, levels)
        self._down = {n: tree_from(topology, n, n.enter, up=False) for n in self._nodes}
        self._up = {n: tree_from(topology, n, n.leave, up=True) for n in self._nodes}
        self._up_own = {n: tree_from(topology, n, n.enter, up=True) for n in self._nodes}
        self._node_of = {rank: node for node in self._nodes for rank in node.ranks}
        self._at: dict[tuple[int, int], Address] = {}
        self._sums: dict[tuple[int, int], int] = {}

    def all_gather(self) -> None:
        """Gather inside; exchange between doors; spread what has come."""
        writer = self._writer
        for node in self._nodes:
            self._inside.gather(node, self._own(node))
        copy_own(writer)
        arriving = {n: self._inside.line(n, n.leave) for n in self._nodes}
        for run, origin, target in self._flights(arriving):
            self._fly(run, origin, target)

    def reduce_scatter(self) -> None:
        """Collect the sums for other nodes at the door; exchange; scatter inside."""
        buffers = self._writer.buffers
        lines = {n: self._inside.line(n, n.enter) for n in self._nodes}
        needed = {n: [*line[1:], line[0]] for n, line in lines.items()}
        for run, target, origin in self._flights(needed, by_target=True):
            self._collect(run, self._up[origin], keep=False)
            self._fold(run, origin.leave, target.enter, keep=False)
        for node in self._nodes:

            def partial(rank: int, chunk: int, door: int = node.enter) -> Address:
                return self._sum(rank, chunk) if rank == door else buffers.source(rank, chunk)

            self._inside.scatter(node, self._own(node), partial, buffers.result)

    def all_reduce(self) -> None:
        """Sum every node's part at its doors; add between doors; spread the results."""
        order = {n: n.ranks for n in self._nodes}
        for run, target, origin in self._flights(order, by_target=True):
            self._collect(run, self._up[origin], keep=True)
            self._fold(run, origin.leave, target.enter, keep=True)
        for node in self._nodes:
            for run in self._pieces(node.ranks):
                self._collect(run, self._up_own[node], keep=True)
        for node in self._nodes:
            for run in self._pieces(node.ranks):
                self._spread(run, node)
        for run, origin, target in self._flights(order):
            self._fly(run, origin, target)

    def all_to_all(self) -> None:
        """Bring to the door what goes over, exchange inside, carry over and from the door on.

        Where a thread block does several of these, they come in this order.
        """
        writer, buffers, c = self._writer, self._writer.buffers, self._writer.per_rank
        most = max(len(node.ranks) for node in self._nodes)
        pairs = [
            (origin.ranks[i], origin, target)
            for i in range(most)
            for origin, target in self._node_pairs()
            if i < len(origin.ranks)
        ]
        at_door = [
            self._carry(_runs_at(buffers, u, target.ranks, c), self._way_out(u, origin))
            for u, origin, target in pairs
        ]
        landing = _Landing(writer)
        for node in self._nodes:
            ways = {u: tree_from(self._topology, node, u, up=False) for u in node.ranks}
            for u, v in rounds(node.ranks):
                way = _way(ways[u], v, u)[::-1]
                self._deliver(u, v, buffers.source(u, v * c), way, landing)
        arrived = [
            self._carry(held, [origin.leave, target.enter])
            for held, (_, origin, target) in zip(at_door, pairs, strict=True)
        ]
        for held, (u, _, target) in zip(arrived, pairs, strict=True):
            (((buffer, offset), _),) = held
            for j, v in enumerate(target.ranks):
                way = _way(self._down[target], v, target.enter)[::-1]
                self._deliver(u, v, (buffer, offset + j * c), way, landing)
        landing.finish()
        for r in range(writer.collective.ranks):
            writer.copy(r, buffers.source(r, r * c), buffers.result(r, r * c), c)

    def _way_out(self, u: int, node: Node) -> list[int]:
        return _way(self._up[node], u, node.leave)

    def _carry(self, held: list[Held], way: list[int]) -> list[Held]:
        """Bring ranges along ranks, joined in scratch from the first hop on."""
        for u, v in pairwise(way):
            total = sum(count for _, count in held)
            buffer, offset = _scratch(self._writer, v, total)
            at = offset
            for source, count in held:
                self._writer.move(u, v, source, (buffer, at), count)
                at += count
            held = [((buffer, offset), total)]
        return held

    def _deliver(self, u: int, v: int, source: Address, way: list[int], landing: _Landing) -> None:
        """Bring the chunks from rank u for rank v along ranks to their place."""
        c = self._writer.per_rank
        ((source, _),) = self._carry([(source, c)], way[:-1])
        if len(way) > 1:
            self._writer.move(way[-2], v, source, landing.place(v, u), c)
        else:
            landing.put(v, u, source)

    def _own(self, node: Node) -> dict[int, list[Run]]:
        return {u: runs_of([u], self._writer.per_rank) for u in node.ranks}

    def _pieces(self, owners: Sequence[int]) -> list[Run]:
        """Chunks of a node, in the order of the owners, in as many pieces as blocks have room for.

        A piece has chunks of one owner, at least one for every lane; of several owners where these
        would be too many pieces.
        """
        writer = self._writer
        nodes = len(self._nodes)
        # AllReduce passes all pieces over the tree twice, others those of the other nodes once
        uses = 2 * nodes if writer.collective.name == "allreduce" else nodes - 1
        size = math.ceil(len(owners) * uses / STEPS)
        if size > 1:
            groups = [owners[i : i + size] for i in range(0, len(owners), size)]
            return [run for group in groups for run in runs_of(sorted(group), writer.per_rank)]
        parts = max(1, min(writer.per_rank // writer.lanes, STEPS // (len(owners) * uses)))
        return [
            (owner * writer.per_rank + low, count)
            for low, count in shares(writer.per_rank, parts)
            for owner in owners
        ]

    def _node_pairs(self) -> list[tuple[Node, Node]]:
        """Ordered pairs of nodes in rounds: each with the next, then with the one after that."""
        nodes = self._nodes
        n = len(nodes)
        return [(nodes[k], nodes[(k + d) % n]) for d in range(1, n) for k in range(n)]

    def _flights(
        self, order: Mapping[Node, Sequence[int]], *, by_target: bool = False
    ) -> Iterator[tuple[Run, Node, Node]]:
        """(Piece, node it is of, other node), the first pieces of all first.

        The piece is of the node it leaves, or ``by_target`` of the node it arrives at.

        Parameters
        ----------
        order
            Ranks of every node in the order in which their chunks should fly.
        """
        pieces = {node: self._pieces(ranks) for node, ranks in order.items()}
        for p in range(max(map(len, pieces.values()))):
            for origin, target in self._node_pairs():
                one, other = (target, origin) if by_target else (origin, target)
                if p < len(pieces[one]):
                    yield pieces[one][p], one, other

    def _fly(self, run: Run, origin: Node, target: Node) -> None:
        """Send a piece from door to door and spread it."""
        self._pass(run, origin.leave, target.enter)
        self._spread(run, target)

    def _spread(self, run: Run, node: Node) -> None:
        for parent, child in self._down[node]:
            self._pass(run, parent, child)

    def _pass(self, run: Run, u: int, v: int) -> None:
        result = self._writer.buffers.result
        self._writer.move(u, v, result(u, run[0]), result(v, run[0]), run[1])

    def _collect(self, run: Run, tree: Tree, *, keep: bool) -> None:
        """Sum a piece over a node at the root of a tree."""
        for parent, child in reversed(tree):
            self._fold(run, child, parent, keep=keep)

    def _fold(self, run: Run, u: int, v: int, *, keep: bool) -> None:
        """Add what rank u has of a sum to that of rank v: in the result if it may be kept there."""
        src, local = self._where(u, run[0]), self._where(v, run[0])
        result = self._writer.buffers.result
        target = result(v, run[0]) if keep else self._sum(v, run[0])
        self._at[v, run[0]] = target
        self._writer.fold(u, v, src, local, target, run[1])

    def _where(self, rank: int, chunk: int) -> Address:
        """Where a rank has its part of a sum by now; ``chunk`` begins a piece."""
        return self._at.get((rank, chunk)) or self._writer.buffers.source(rank, chunk)

    def _sum(self, rank: int, chunk: int) -> Address:
        """Scratch for a sum; chunks of a node lie there as in the buffers."""
        owner, k = divmod(chunk, self._writer.per_rank)
        node = self._node_of[owner]
        key = rank, node.ranks[0]
        if key not in self._sums:
            self._sums[key] = self._writer.scratch(rank, len(node.ranks) * self._writer.per_rank)
        at = node.ranks.index(owner) * self._writer.per_rank + k
        return int(Buffer.SCRATCH), self._sums[key] + at


class _Landing:
    """Where chunks of AllToAll arrive.

    In place the results replace what may still have to be sent, so they wait in scratch until
    everything is written that sends.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._later: list[tuple[int, int, Address]] = []

    def place(self, v: int, u: int) -> Address:
        """Where rank v receives what comes from rank u."""
        writer = self._writer
        if writer.placement == "out":
            return writer.buffers.result(v, u * writer.per_rank)
        slot = _scratch(writer, v, writer.per_rank)
        self._later.append((v, u, slot))
        return slot

    def put(self, v: int, u: int, source: Address) -> None:
        """Take for rank v what is at ``source`` already."""
        self._later.append((v, u, source))

    def finish(self) -> None:
        """Copy what has waited."""
        writer, c = self._writer, self._writer.per_rank
        for v, u, source in self._later:
            writer.copy(v, source, writer.buffers.result(v, u * c), c)


def _runs_at(buffers: Buffers, rank: int, owners: Sequence[int], per_rank: int) -> list[Held]:
    return [(buffers.source(rank, chunk), count) for chunk, count in runs_of(owners, per_rank)]


def _scratch(writer: Writer, rank: int, count: int) -> Address:
    return int(Buffer.SCRATCH), writer.scratch(rank, count)


def _way(tree: Tree, rank: int, root: int) -> list[int]:
    """Ranks from one in a tree to its root."""
    parent = {child: above for above, child in tree}
    way = [rank]
    while way[-1] != root:
        way.append(parent[way[-1]])
    return way
