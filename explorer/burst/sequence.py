"""Sequence: a plan as a tree of placed layers and packed blocks, and its time laid out."""

from __future__ import annotations

from collections.abc import Sequence as Sequence_
from dataclasses import dataclass

from explorer.burst.cost_tables import CostTables
from explorer.burst.search import BlockTable, ChainTable
from explorer.burst.series_parallel import Block, Chain


@dataclass(frozen=True, slots=True)
class Placed:
    """A layer on its GPUs.

    Parameters
    ----------
    layer
        Its index.
    count
        Index of its GPU count.
    first_gpu
        First of its GPUs.
    """

    layer: int
    count: int
    first_gpu: int


@dataclass(frozen=True, slots=True)
class Group:
    """Branches that run one after another, and whether away from home."""

    far: bool
    branches: tuple[tuple[Placed | Packed, ...], ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A block's groups side by side, then its join."""

    groups: tuple[Group, ...]
    join: Placed


@dataclass(frozen=True, slots=True)
class Timed:
    """A placed layer with its times.

    Parameters
    ----------
    placed
        Where.
    start_us
        When its resharding starts, counting the layers' forward, backward and all-reduce times
        together as the planner does.
    reshard_us
        All transfers into it and of the gradients back.
    burst_us
        Latency of the all-reduce it starts.
    """

    placed: Placed
    start_us: float
    reshard_us: float
    burst_us: float


def best_sequence(
    tables: CostTables, chain: Chain, table: ChainTable, last: int
) -> tuple[Placed | Packed, ...]:
    """Trace the best plan of a whole network that ends on count ``last``."""
    return _trace(tables, chain.items, table, 0, 0, last, 0)[0]


def uniform_sequence(chain: Chain, count: int) -> tuple[Placed | Packed, ...]:
    """Every layer on the same first GPUs, branches one after another."""
    return tuple(
        Packed(
            (Group(False, tuple(uniform_sequence(b, count) for b in item.branches)),),
            Placed(item.join, count, 0),
        )
        if isinstance(item, Block)
        else Placed(item, count, 0)
        for item in chain.items
    )


def _trace(
    tables: CostTables,
    items: Sequence_[int | Block],
    table: ChainTable,
    width: int,
    start: int,
    end: int,
    first_gpu: int,
) -> tuple[tuple[Placed | Packed, ...], int]:
    """Walk a table backwards; returns the sequence and the count before it."""
    found: list[Placed | Packed] = []
    count = end
    for i in range(len(items) - 1, -1, -1):
        item, choice, block = items[i], table.choices[i], table.blocks[i]
        before = start if choice is None else int(choice[_at(choice, width), start, count])
        if isinstance(item, Block):
            if block is None:
                raise ValueError("a block has a table")
            found.append(_packed(tables, item, block, width, before, count, first_gpu))
        else:
            found.append(Placed(item, count, first_gpu))
        count = before
    return tuple(reversed(found)), count


def _at(array: object, width: int) -> int:
    """Index along the first axis: tables without widths have length 1 there."""
    return 0 if len(array) == 1 else width  # type: ignore[arg-type]


def _packed(
    tables: CostTables,
    block: Block,
    table: BlockTable,
    width: int,
    before: int,
    after: int,
    first_gpu: int,
) -> Packed:
    w = _at(table.choice, width)
    packing = table.packings[w][int(table.choice[w, before, after])]
    groups = []
    base = first_gpu
    for i, (members, own) in enumerate(zip(packing.groups, packing.widths, strict=True)):
        far = i > 0
        branches = []
        for b in members:
            branch = table.branches[b][far]
            end_choice = branch.choices[-1]
            if end_choice is None:
                raise ValueError("a branch has an end")
            last = int(end_choice[own, before, after])
            items = block.branches[b].items
            branches.append(_trace(tables, items, branch, own, before, last, base)[0])
        groups.append(Group(far, tuple(branches)))
        base += tables.counts[own]
    return Packed(tuple(groups), Placed(block.join, after, first_gpu))


class Layout:
    """Lays a sequence out in time, from the tables alone and not from the search.

    Parameters
    ----------
    tables
        Costs.
    sequence
        The plan.
    """

    def __init__(self, tables: CostTables, sequence: Sequence_[Placed | Packed]) -> None:
        self.tables = tables
        self.timed: dict[int, Timed] = {}
        self.end_us = self._run(sequence, None, 0.0, far=False)

    def _run(
        self,
        sequence: Sequence_[Placed | Packed],
        before: Placed | None,
        start: float,
        *,
        far: bool,
    ) -> float:
        for item in sequence:
            if isinstance(item, Packed):
                if before is None:
                    raise ValueError("a block follows a layer")
                start = self._block(item, before, start)
                before = item.join
            else:
                start = self._layer(item, before, start, far=far)
                before = item
            far = False
        return start

    def _layer(self, placed: Placed, before: Placed | None, start: float, *, far: bool) -> float:
        latency = float(self.tables.sync_latency_us[placed.count])
        reshard = 0.0
        if before is not None:
            moves = self.tables.move_us(before.layer, far=far)
            reshard = float(moves[before.count, placed.count])
            if not far and before.count == placed.count:
                latency = 0.0
        self.timed[placed.layer] = Timed(placed, start, reshard, latency)
        work = float(self.tables.work_us[placed.layer, placed.count])
        return start + reshard + latency + work

    def _block(self, packed: Packed, before: Placed, start: float) -> float:
        join = packed.join
        reshard = 0.0
        ends = []
        for group in packed.groups:
            time = start
            for branch in group.branches:
                time = self._run(branch, before, time, far=group.far)
                last = _last(branch, before)
                out = self.tables.move_us(last.layer, far=group.far)[last.count, join.count]
                reshard += float(out)
                time += float(out)
            ends.append(time)
        latency = float(self.tables.burst_us[before.count, join.count])
        work = float(self.tables.work_us[join.layer, join.count])
        end = max(ends)
        self.timed[join.layer] = Timed(join, end, reshard, latency)
        return end + latency + work


def _last(branch: Sequence_[Placed | Packed], before: Placed) -> Placed:
    if not branch:
        return before
    item = branch[-1]
    return item.join if isinstance(item, Packed) else item
