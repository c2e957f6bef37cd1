"""Search: the least cost of a chain of layers and blocks, by dynamic programming.

States are GPU counts, and two layers that follow one another are joined by a matrix of times
(:meth:`CostTables.edge_us`), so a chain is a min-plus product. A block is such a matrix too, from
the count of the layer before to that of the join: for every pair of them, each branch is solved
as a chain by itself, at home and on other GPUs, within every width, and the packing is chosen
whose slowest group ends first. Blocks nest, so the search recurses.

Cost and time are carried side by side: with prices the cost decides, the time is what a group of
branches needs. Without prices the result is optimal over all plans of this form; with prices it
is for chains, while each branch of a block minimises its own cost, not the block's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from explorer.burst.cost_tables import CostTables
from explorer.burst.network_times import FloatArray
from explorer.burst.packings import Packing, packings
from explorer.burst.prices import Prices
from explorer.burst.series_parallel import Block, Chain

IndexArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class ChainTable:
    """Best ways through a chain.

    Parameters
    ----------
    cost, time_us
        float64 ``[W, S, K]``: by width, count of the layer before, count of the last layer; for
        a branch, the last index is that of the join, whose own work is not in it.
    choices
        For every item (and a branch's end) the best count before it, int64 ``[W, S, K]``; None
        for the first layer of a network.
    blocks
        For every item, the block's table; None for a layer.
    """

    cost: FloatArray
    time_us: FloatArray
    choices: list[IndexArray | None] = field(default_factory=list)
    blocks: list[BlockTable | None] = field(default_factory=list)


@dataclass(slots=True)
class BlockTable:
    """Best packings of a block.

    Parameters
    ----------
    cost, time_us
        float64 ``[W, S, K]``: by budget, count of the layer before, count of the join; its work
        included.
    packings
        Per budget, those tried.
    choice
        int64 ``[W, S, K]``: index of the best.
    branches
        (at home, on other GPUs) table of every branch.
    """

    cost: FloatArray
    time_us: FloatArray
    packings: list[tuple[Packing, ...]]
    choice: IndexArray
    branches: list[tuple[ChainTable, ChainTable]]


class Search:
    """Solves chains and blocks on given tables and prices."""

    def __init__(self, tables: CostTables, prices: Prices) -> None:
        self.tables = tables
        self.weights = prices.weights(tables)
        self.memory = prices.memory_us(tables)
        k = len(tables.counts)
        self._edges: dict[tuple[int, int, bool], FloatArray] = {}
        # Within width w a layer has at most counts[w] GPUs.
        self._caps = np.where(np.tri(k, dtype=np.bool_), 0.0, np.inf)[:, None, :]

    def network(self, chain: Chain) -> ChainTable:
        """Solve the whole network: one width, all the machine's GPUs."""
        tables = self.tables
        first = chain.first_layer
        time = tables.sync_latency_us + tables.work_us[first]
        time = np.where(tables.allowed(first, time, far=False), time, np.inf)
        cost = time * self.weights + self.memory[first]
        state = ChainTable(cost[None, None, :], time[None, None, :], [None], [None])
        self._walk(state, chain.items[1:], first, (tables.gpus,), None)
        return state

    def _walk(
        self,
        state: ChainTable,
        items: Sequence[int | Block],
        before: int,
        budgets: tuple[int, ...],
        caps: FloatArray | None,
        far_first: bool = False,
    ) -> int:
        """Append items to a table; returns the last layer."""
        for i, item in enumerate(items):
            if isinstance(item, Block):
                block = self._block(item, before, budgets)
                self._extend(state, block.cost, block.time_us, caps, block)
                before = item.join
            else:
                far = far_first and i == 0
                time = self._edge(before, item, far)
                cost = time * self.weights + self.memory[item]
                self._extend(state, cost, time, caps, None)
                before = item
        return before

    def _edge(self, before: int, layer: int, far: bool) -> FloatArray:
        key = (before, layer, far)
        if key not in self._edges:
            self._edges[key] = self.tables.edge_us(before, layer, far=far)
        return self._edges[key]

    @staticmethod
    def _extend(
        state: ChainTable,
        cost: FloatArray,
        time: FloatArray,
        caps: FloatArray | None,
        block: BlockTable | None,
    ) -> None:
        """Min-plus product of the table with a matrix ``[K, K]`` or, by width, ``[W, K, K]``."""
        if cost.ndim == 3:
            cost, time = cost[:, None], time[:, None]
        total = state.cost[..., :, None] + cost
        best = total.argmin(axis=-2)
        rows = best[..., None, :]
        state.time_us = np.take_along_axis(state.time_us[..., :, None] + time, rows, -2)[..., 0, :]
        state.cost = np.take_along_axis(total, rows, -2)[..., 0, :]
        if caps is not None:
            state.cost = state.cost + caps
            state.time_us = state.time_us + caps
        state.choices.append(best)
        state.blocks.append(block)

    def _branch(self, chain: Chain, start: int, join: int, far: bool) -> ChainTable:
        """Solve a branch from every count of the layer before to every count of the join."""
        k = len(self.tables.counts)
        still = np.broadcast_to(np.where(np.eye(k, dtype=np.bool_), 0.0, np.inf), (k, k, k))
        state = ChainTable(still.copy(), still.copy())
        last = self._walk(state, chain.items, start, self.tables.counts, self._caps, far)
        time = self.tables.join_us(last, join, far=far)
        self._extend(state, time * self.weights, time, None, None)
        return state

    def _block(self, block: Block, start: int, budgets: tuple[int, ...]) -> BlockTable:
        tables = self.tables
        branches = [
            (
                self._branch(b, start, block.join, far=False),
                self._branch(b, start, block.join, far=bool(b.items)),
            )
            for b in block.branches
        ]
        movable = tuple(bool(b.items) for b in block.branches)
        k = len(tables.counts)
        shape = (len(budgets), k, k)
        cost, time = np.full(shape, np.inf), np.full(shape, np.inf)
        choice = np.zeros(shape, dtype=np.int64)
        tried = []
        sums = _GroupSums(branches)
        for w, budget in enumerate(budgets):
            options = packings(len(branches), tables.counts, budget, movable)
            tried.append(options)
            for p, packing in enumerate(options):
                t, extra = sums.of(packing)
                c = t + extra
                better = c < cost[w]
                choice[w][better] = p
                cost[w][better] = c[better]
                time[w][better] = t[better]
        own = tables.burst_us + tables.work_us[block.join]
        cost += own * self.weights + self.memory[block.join]
        time += own
        return BlockTable(cost, time, tried, choice, branches)


class _GroupSums:
    """Times of groups of branches, each summed once."""

    def __init__(self, branches: list[tuple[ChainTable, ChainTable]]) -> None:
        self._branches = branches
        self._known: dict[tuple[tuple[int, ...], int, bool], tuple[FloatArray, FloatArray]] = {}

    def of(self, packing: Packing) -> tuple[FloatArray, FloatArray]:
        """Time of a packing, and what its branches cost beyond their times."""
        slowest: FloatArray | None = None
        extra: FloatArray | None = None
        for i, (group, width) in enumerate(zip(packing.groups, packing.widths, strict=True)):
            time, over = self._group(group, width, i > 0)
            slowest = time if slowest is None else np.maximum(slowest, time)
            extra = over if extra is None else extra + over
        if slowest is None or extra is None:
            raise ValueError("a packing has a group")
        return slowest, extra

    def _group(
        self, group: tuple[int, ...], width: int, far: bool
    ) -> tuple[FloatArray, FloatArray]:
        key = (group, width, far)
        if key not in self._known:
            chosen = [self._branches[b][far] for b in group]
            time = np.sum([c.time_us[width] for c in chosen], axis=0)
            cost = np.sum([c.cost[width] for c in chosen], axis=0)
            over = np.where(np.isfinite(time), cost, 0.0) - np.where(np.isfinite(time), time, 0.0)
            self._known[key] = (time, over)
        return self._known[key]
