"""Tree: NCCL's double binary tree, each tree with half of the data, pipelined piece by piece.

Between nodes the trees are binary, inside a node a chain starts at the GPU that talks to the
parent; the second GPU of the chain takes one of the children (NCCL's balanced tree,
``src/graph/connect.cc`` ``ncclTopoPreset`` and ``connectTrees``). Sums go up and results down in
blocks of their own, as in ``src/device/all_reduce.h`` ``runTreeUpDown``: a rank adds what its
children send and passes the sum on with the last of them, in one fused step.

Every block takes the pieces in the same order, and a piece goes up before it comes down. So a step
waits only for earlier pieces, or for the same piece nearer to its beginning: nothing deadlocks, at
any size and with any number of slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from explorer.baselines.baseline import Baseline, only
from explorer.baselines.buffers import Address
from explorer.baselines.double_tree import double_tree, rooted_double_tree
from explorer.baselines.levels import Levels, Node, find_levels
from explorer.baselines.ring_order import ring_orders
from explorer.baselines.writer import MAX_COUNT, Writer, shares
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from sim.program import Buffer, Op

PIECES = 30
"""Pieces of a tree at most: a block takes two steps for each, of the 64 that runtimes have room
for."""

_ONLY = only("allreduce", "broadcast", "reduce")


def _refuses(collective: Collective, topology: Topology) -> str | None:
    del topology
    return _ONLY(collective, "tree")


def _write(writer: Writer, topology: Topology) -> None:
    kind = writer.collective
    trees = _Trees(topology, writer.channels, kind.root if kind.rooted else None)
    halves = shares(kind.nchunks, 2)
    for half, (first, size) in enumerate(halves):
        for lane, (at, count) in enumerate(shares(size, writer.lanes)):
            tree = trees.tree(half, lane)
            work = _Lane(writer, tree, 2 * lane + half, first + at, count)
            if kind.name != "broadcast":
                work.up()
            if kind.name != "reduce":
                work.down()
    if kind.name == "broadcast":
        source, result = writer.buffers.source, writer.buffers.result
        writer.copy(kind.root, source(kind.root, 0), result(kind.root, 0), kind.nchunks)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Ranks of a tree from the root down, the parent of each and its children, deepest first."""

    order: tuple[int, ...]
    parent: dict[int, int]
    children: dict[int, tuple[int, ...]]


class _Trees:
    """The trees of a machine: which ranks are joined, by node and lane.

    A machine of one node whose pairs all have equal links of their own (or a switch) is seen as
    one of single GPUs, so that its trees are binary. On any other single node they are chains.
    """

    def __init__(self, topology: Topology, channels: int, root: int | None) -> None:
        self._topology = topology
        self._root = root
        self._levels = _levels_of(topology)
        count = 2 * channels
        self._rings: list[list[list[int]]] = [
            [list(node.ranks)] * count
            if node.direct or len(node.ranks) == 1
            else ring_orders(topology, count, node.ranks)
            for node in self._levels.nodes
        ]
        self._channels = channels
        self._made: dict[tuple[int, int], _Tree] = {}

    def tree(self, half: int, lane: int) -> _Tree:
        """Tree of a half of the data on a lane."""
        turn = lane % len(self._levels.nodes[0].ranks)
        key = half, lane if self._levels.rails else lane % self._channels
        if key not in self._made:
            self._made[key] = self._make(half, lane, turn)
        return self._made[key]

    def _make(self, half: int, lane: int, turn: int) -> _Tree:
        chains = [self._chain(k, half, lane, turn) for k in range(len(self._rings))]
        joined: dict[int, list[int]] = {rank: [] for chain in chains for rank in chain}

        def join(u: int, v: int) -> None:
            joined[u].append(v)
            joined[v].append(u)

        top, parents = self._nodes(half)
        taken = [0] * len(chains)
        for child, parent in enumerate(parents):
            if parent >= 0:
                join(*self._door(chains[parent], taken[parent], chains[child]))
                taken[parent] += 1
        for chain in chains:
            for u, v in pairwise(chain):
                join(u, v)
        return _hung(joined, chains[top][0] if self._root is None else self._root)

    def _nodes(self, half: int) -> tuple[int, list[int]]:
        """Top node and the parent of every node."""
        count = len(self._levels.nodes)
        if self._root is None:
            parents = double_tree(count)[half]
            return parents.index(-1), parents
        top = next(k for k, n in enumerate(self._levels.nodes) if self._root in n.ranks)
        moved = [-1] * count
        for position, parent in enumerate(rooted_double_tree(count)[half]):
            if parent >= 0:
                moved[(position + top) % count] = (parent + top) % count
        return top, moved

    def _chain(self, node: int, half: int, lane: int, turn: int) -> list[int]:
        """Ranks of a node, first the one that talks to the parent: near a NIC, in turns."""
        found = self._levels.nodes[node]
        ring = self._rings[node][2 * (lane % self._channels) + half]
        head = found.leave
        if self._levels.rails:
            # the two trees load a NIC in both directions only together: a NIC that has one tree
            # of one lane has the other tree of another lane
            n = len(found.ranks)
            head = found.ranks[(turn + half * (n // 2)) % n]
        at = ring.index(head)
        return [*ring[at:], *ring[:at]]

    def _door(self, above: Sequence[int], taken: int, below: Sequence[int]) -> tuple[int, int]:
        """Ranks over which two nodes talk: the child's first, the parent's second, then first."""
        wanted = [*above[1:2], *above] if taken == 0 else list(above)
        for v in below:
            for u in wanted:
                if v in self._topology.routes_from(u) and u in self._topology.routes_from(v):
                    return u, v
        return wanted[0], below[0]


def _levels_of(topology: Topology) -> Levels:
    levels = find_levels(topology)
    if len(levels.nodes) > 1 or not levels.nodes[0].direct:
        return levels
    (node,) = levels.nodes
    beta = node.beta_us_per_mib
    return Levels(tuple(Node((r,), r, r, True, beta) for r in node.ranks), rails=False)


def _hung(joined: dict[int, list[int]], root: int) -> _Tree:
    """Hang a tree of undirected edges by its root."""
    parent, order = {root: -1}, [root]
    for rank in order:
        for other in joined[rank]:
            if other not in parent:
                parent[other] = rank
                order.append(other)
    depth = dict.fromkeys(order, 0)
    for rank in reversed(order[1:]):
        depth[parent[rank]] = max(depth[parent[rank]], depth[rank] + 1)
    children = {
        rank: tuple(
            sorted((c for c in joined[rank] if c != parent[rank]), key=lambda c: (-depth[c], c))
        )
        for rank in order
    }
    return _Tree(tuple(order), parent, children)


class _Lane:
    """The steps of one tree on one channel."""

    def __init__(self, writer: Writer, tree: _Tree, channel: int, first: int, count: int) -> None:
        self._writer = writer
        self._tree = tree
        self._channel = channel
        self._first = first
        self._count = count
        self._sums: dict[int, int] = {}

    def up(self) -> None:
        """Add up to the root, children first."""
        for low, size in self._pieces():
            for rank in reversed(self._tree.order):
                self._add(rank, low, size)

    def down(self) -> None:
        """Give the root's chunks to all, parents first."""
        for low, size in self._pieces():
            for rank in self._tree.order:
                self._pass_on(rank, low, size)

    def _add(self, rank: int, low: int, size: int) -> None:
        """Take the part of every child, the deepest one's last, and pass the sum on."""
        parent, children = self._tree.parent[rank], self._tree.children[rank][::-1]
        source = self._writer.buffers.source(rank, low)
        if not children:
            self._step(rank, Op.SEND, size, src=source, send=parent)
            return
        for child in children[:-1]:
            into = self._sum(rank, low)
            self._step(rank, Op.RECV_REDUCE_COPY, size, src=source, dst=into, recv=child)
            source = into
        if parent < 0:
            into = self._writer.buffers.result(rank, low)
            self._step(rank, Op.RECV_REDUCE_COPY, size, src=source, dst=into, recv=children[-1])
        else:
            self._step(rank, Op.RECV_REDUCE_SEND, size, src=source, recv=children[-1], send=parent)

    def _pass_on(self, rank: int, low: int, size: int) -> None:
        """Give a piece to every child, to the one with the longest way below it first."""
        parent, children = self._tree.parent[rank], self._tree.children[rank]
        here = self._writer.buffers.result(rank, low)
        if parent < 0:
            here = self._writer.buffers.held(rank, low)
        elif children:
            self._step(rank, Op.RECV_COPY_SEND, size, dst=here, recv=parent, send=children[0])
            children = children[1:]
        else:
            self._step(rank, Op.RECV, size, dst=here, recv=parent)
        for child in children:
            self._step(rank, Op.SEND, size, src=here, send=child)

    def _sum(self, rank: int, chunk: int) -> Address:
        """Where a rank adds up: in its result, or aside where it is to get none."""
        if self._writer.collective.name == "allreduce" or self._tree.parent[rank] < 0:
            return self._writer.buffers.result(rank, chunk)
        if rank not in self._sums:
            self._sums[rank] = self._writer.scratch(rank, self._count)
        return int(Buffer.SCRATCH), self._sums[rank] + chunk - self._first

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Pieces of the lane: a chunk each, more where they would be too many steps."""
        least = -(-self._count // MAX_COUNT)
        for at, size in shares(self._count, max(least, min(self._count, PIECES))):
            yield self._first + at, size

    def _step(
        self,
        rank: int,
        op: Op,
        count: int,
        *,
        src: Address = (Buffer.INPUT, -1),
        dst: Address = (Buffer.INPUT, -1),
        send: int = -1,
        recv: int = -1,
    ) -> None:
        block = self._writer.block(rank, send=send, recv=recv, channel=self._channel)
        self._writer.step(rank, block, op, src=src, dst=dst, count=count)


TREE = Baseline(
    "tree",
    "NCCL's double binary tree, chains inside nodes, pipelined by chunks",
    _refuses,
    _write,
)
