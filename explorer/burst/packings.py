"""Packings: which branches of a block run one after another, and on how many GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_BRANCHES = 5
"""Most branches whose groupings are all tried; with more, only contiguous ones."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Groups of branches that run side by side.

    Parameters
    ----------
    groups
        Branch indices of each group, which run one after another on the group's GPUs. The first
        group is at home: it starts at the block's first GPU and keeps data in place.
    widths
        Index of each group's GPU count.
    """

    groups: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]


@lru_cache(maxsize=256)
def packings(
    branches: int, counts: tuple[int, ...], budget: int, movable: tuple[bool, ...]
) -> tuple[Packing, ...]:
    """All packings worth trying.

    Widths are maximal: none can be raised without exceeding the budget, since a branch may use
    fewer GPUs than its group has.

    Parameters
    ----------
    branches
        Number of branches.
    counts
        GPU counts, ascending.
    budget
        GPUs for all groups together.
    movable
        Whether a branch may leave home; a skip connection has nothing to run elsewhere.

    Examples
    --------
    >>> [p.groups for p in packings(2, (1, 2), 2, (True, True))]
    [((0, 1),), ((0,), (1,)), ((1,), (0,))]
    """
    found = []
    for parts in _partitions(branches):
        if len(parts) > budget:
            continue
        for home in range(len(parts)):
            groups = (parts[home], *parts[:home], *parts[home + 1 :])
            if all(movable[b] for group in groups[1:] for b in group):
                found += [Packing(groups, widths) for widths in _widths(len(parts), counts, budget)]
    return tuple(found)


def _partitions(n: int) -> list[tuple[tuple[int, ...], ...]]:
    """Set partitions, fewest groups first; of many branches only those into intervals."""
    if n > MAX_BRANCHES:
        return [tuple(parts) for parts in _intervals(0, n)][:512]
    result: list[list[list[int]]] = [[]]
    for item in range(n):
        result = [
            [*parts[:i], [*parts[i], item], *parts[i + 1 :]] if i < len(parts) else [*parts, [item]]
            for parts in result
            for i in range(len(parts) + 1)
        ]
    frozen = [tuple(tuple(part) for part in parts) for parts in result]
    return sorted(frozen, key=lambda parts: (len(parts), parts))


def _intervals(first: int, n: int) -> Iterator[list[tuple[int, ...]]]:
    if first == n:
        yield []
        return
    for last in range(n, first, -1):
        for rest in _intervals(last, n):
            yield [tuple(range(first, last)), *rest]


@lru_cache(maxsize=256)
def _widths(groups: int, counts: tuple[int, ...], budget: int) -> tuple[tuple[int, ...], ...]:
    if groups == 1:
        fitting = [k for k, count in enumerate(counts) if count <= budget]
        return ((fitting[-1],),) if fitting else ()
    found = []
    for k, count in enumerate(counts):
        if budget - count < (groups - 1) * counts[0]:
            break
        for rest in _widths(groups - 1, counts, budget - count):
            spare = budget - count - sum(counts[r] for r in rest)
            if k + 1 < len(counts) and counts[k + 1] - count <= spare:
                continue  # not maximal in its first width
            found.append((k, *rest))
    return tuple(found)
