"""Inside: the phases of a two-level algorithm within a node, by direct exchange or by rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explorer.baselines.direct import Place, Run, collect, spread
from explorer.baselines.levels import Levels, Node
from explorer.baselines.ring import gather_steps, go_round, scatter_steps
from explorer.baselines.ring_order import ring_orders
from explorer.baselines.writer import Writer
from explorer.core.topology import Topology


class Inside:
    """Phases inside the nodes of a machine.

    Rings use the first channels, one per lane, and all moves the ones after them, so that they
    share no connection.
    """

    def __init__(self, writer: Writer, topology: Topology, levels: Levels) -> None:
        self._writer = writer
        self._rings = {
            node: ring_orders(topology, writer.channels, node.ranks)
            for node in levels.nodes
            if not node.direct
        }
        writer.move_channel = writer.lanes if self._rings else 0

    def line(self, node: Node, rank: int) -> list[int]:
        """Ranks of a node in the order in which their chunks reach one of them in a gather.

        It comes first itself; with it last, a scatter needs that rank's parts of their sums in
        this order.
        """
        order = self._rings[node][0] if node in self._rings else node.ranks
        at = order.index(rank)
        return [order[at - i] for i in range(len(order))]

    def gather(self, node: Node, parts: Mapping[int, Sequence[Run]]) -> None:
        """Give every rank of the node the runs that each of its ranks holds."""
        writer, buffers = self._writer, self._writer.buffers
        if node.direct:
            spread(writer, node.ranks, parts)
        else:
            rings, owned = self._rings[node], _chunks(parts)
            go_round(writer, rings, owned, gather_steps, buffers.held, buffers.result)

    def scatter(
        self, node: Node, parts: Mapping[int, Sequence[Run]], partial: Place, into: Place
    ) -> None:
        """Give every rank of the node the sums over the node of its runs."""
        if node.direct:
            collect(self._writer, node.ranks, parts, partial, into)
        else:
            rings, owned = self._rings[node], _chunks(parts)
            go_round(self._writer, rings, owned, scatter_steps, partial, into)


def _chunks(parts: Mapping[int, Sequence[Run]]) -> dict[int, list[int]]:
    return {
        rank: [chunk + i for chunk, count in runs for i in range(count)]
        for rank, runs in parts.items()
    }
