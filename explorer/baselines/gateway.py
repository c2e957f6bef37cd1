"""Two levels through doors: one GPU of a node sends for all, one receives for all.

For nodes with a single NIC (or of unequal size). What comes in spreads over a tree from the
receiving door, what goes out is collected over one to the sending door, piece by piece, so that the
NIC and the links inside work at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from explorer.baselines.buffers import Address
from explorer.baselines.direct import Run, copy_own, rounds, runs_of
from explorer.baselines.inside import Inside
from explorer.baselines.levels import Levels, Node, tree_from
from explorer.baselines.writer import Writer
from explorer.core.topology import Topology
from sim.program import Buffer

PIECES = 48
"""Pieces that a door handles at most, so that its blocks stay within the 64 steps of a runtime."""

Tree = list[tuple[int, int]]


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
        self._nodes = levels.nodes
        self._inside = Inside(writer, topology, levels)
        self._down = {n: tree_from(topology, n, n.enter, up=False) for n in self._nodes}
        self._up = {n: tree_from(topology, n, n.leave, up=True) for n in self._nodes}
        self._up_own = {n: tree_from(topology, n, n.enter, up=True) for n in self._nodes}
        self._at: dict[tuple[int, int], Address] = {}

    def all_gather(self) -> None:
        """Gather inside; exchange between doors; spread what has come."""
        writer = self._writer
        for node in self._nodes:
            self._inside.gather(node, self._own(node))
        copy_own(writer)
        for run, origin, target in self._flights():
            self._fly(run, origin, target)

    def reduce_scatter(self) -> None:
        """Collect the sums for other nodes at the door; exchange; scatter inside."""
        buffers = self._writer.buffers
        arrived: dict[int, Address] = {}
        for run, target, origin in self._flights(by_target=True):
            self._collect(run, self._up[origin], keep=False)
            self._fold(run, origin.leave, target.enter, keep=False)
            base = self._where(target.enter, run)
            arrived.update({run[0] + i: (base[0], base[1] + i) for i in range(run[1])})
        for node in self._nodes:

            def partial(rank: int, chunk: int, door: int = node.enter) -> Address:
                return arrived[chunk] if rank == door else buffers.source(rank, chunk)

            self._inside.scatter(node, self._own(node), partial, buffers.result)

    def all_reduce(self) -> None:
        """Sum every node's part at its doors; add between doors; spread the results."""
        for run, target, origin in self._flights(by_target=True):
            self._collect(run, self._up[origin], keep=True)
            self._fold(run, origin.leave, target.enter, keep=True)
        for node in self._nodes:
            for run in self._pieces(node):
                self._collect(run, self._up_own[node], keep=True)
        for node in self._nodes:
            for run in self._pieces(node):
                self._spread(run, node)
        for run, origin, target in self._flights():
            self._fly(run, origin, target)

    def all_to_all(self) -> None:
        """Exchange directly inside; bring the rest to the door, over, and from the door on."""
        writer, buffers, c = self._writer, self._writer.buffers, self._writer.per_rank
        landing = _Landing(writer)
        most = max(len(node.ranks) for node in self._nodes)
        for i in range(most):
            for origin, target in self._node_pairs():
                if i < len(origin.ranks):
                    self._carry(origin.ranks[i], origin, target, landing)
        for node in self._nodes:
            for u, v in rounds(node.ranks):
                writer.move(u, v, buffers.source(u, v * c), landing.place(v, u), c)
        landing.finish()
        for r in range(writer.collective.ranks):
            writer.copy(r, buffers.source(r, r * c), buffers.result(r, r * c), c)

    def _carry(self, u: int, origin: Node, target: Node, landing: _Landing) -> None:
        """Bring all that rank u has for the ranks of a node to them."""
        writer, buffers, c = self._writer, self._writer.buffers, self._writer.per_rank
        total = len(target.ranks) * c
        held = [(buffers.source(u, chunk), count) for chunk, count in runs_of(target.ranks, c)]
        way = [*_way(self._up[origin], u, origin.leave), target.enter]
        for a, b in pairwise(way):
            block = (int(Buffer.SCRATCH), writer.scratch(b, total))
            at = 0
            for source, count in held:
                writer.move(a, b, source, (block[0], block[1] + at), count)
                at += count
            held = [(block, total)]
        base = held[0][0]
        for j, v in enumerate(target.ranks):
            source = (base[0], base[1] + j * c)
            way = _way(self._down[target], v, target.enter)[::-1]
            if len(way) == 1:
                landing.put(v, u, source)
            for a, b in pairwise(way):
                place = landing.place(v, u) if b == v else _scratch(writer, b, c)
                writer.move(a, b, source, place, c)
                source = place

    def _own(self, node: Node) -> dict[int, list[Run]]:
        return {u: runs_of([u], self._writer.per_rank) for u in node.ranks}

    def _pieces(self, node: Node) -> list[Run]:
        """Chunks of a node in pieces of one owner each, of more where that makes too many."""
        ranks = node.ranks
        size = math.ceil(len(ranks) * (len(self._nodes) - 1) / PIECES)
        return [
            run
            for i in range(0, len(ranks), size)
            for run in runs_of(ranks[i : i + size], self._writer.per_rank)
        ]

    def _node_pairs(self) -> list[tuple[Node, Node]]:
        """Ordered pairs of nodes in rounds: each with the next, then with the one after that."""
        nodes = self._nodes
        n = len(nodes)
        return [(nodes[k], nodes[(k + d) % n]) for d in range(1, n) for k in range(n)]

    def _flights(self, *, by_target: bool = False) -> Iterator[tuple[Run, Node, Node]]:
        """(Piece, node it is of, other node), the first pieces of all first.

        The piece is of the node it leaves, or ``by_target`` of the node it arrives at.
        """
        pieces = {node: self._pieces(node) for node in self._nodes}
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
        src, local = self._where(u, run), self._where(v, run)
        if keep:
            self._at[v, run[0]] = self._writer.buffers.result(v, run[0])
        elif (v, run[0]) not in self._at:
            self._at[v, run[0]] = _scratch(self._writer, v, run[1])
        self._writer.fold(u, v, src, local, self._where(v, run), run[1])

    def _where(self, rank: int, run: Run) -> Address:
        """Where a rank has its part of a sum by now."""
        return self._at.get((rank, run[0])) or self._writer.buffers.source(rank, run[0])


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


def _scratch(writer: Writer, rank: int, count: int) -> Address:
    return int(Buffer.SCRATCH), writer.scratch(rank, count)


def _way(tree: Tree, rank: int, root: int) -> list[int]:
    """Ranks from one in a tree to its root."""
    parent = {child: above for above, child in tree}
    way = [rank]
    while way[-1] != root:
        way.append(parent[way[-1]])
    return way
