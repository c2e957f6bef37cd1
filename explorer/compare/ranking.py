"""Ranking: the place of every result among those it can be compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from itertools import groupby
from typing import Any

from explorer.compare.algorithm import Row, algorithm_of, cost_of, setting_of

TIE = 1e-9
"""Relative difference below which two costs are equal: sums in another order, not a finding."""


def rank(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Give every row its ``place``: 1 is the fastest at its setting and requested size.

    Equal times share a place, and the next one counts them (1, 1, 3). Rows without a program have
    place None and come last. Rows with different ``size_bytes`` for one requested size are
    compared by time per byte. Rows are ordered by setting, size and place; of equals the simpler
    algorithm comes first.
    """
    ordered = sorted(rows, key=_order)
    ranked: list[dict[str, Any]] = []
    for _, group in groupby(ordered, key=_contest):
        ranked += _places(list(group))
    return ranked


def _places(group: list[Row]) -> Iterator[dict[str, Any]]:
    place, leader = 0, None
    for i, row in enumerate(group):
        cost = cost_of(row)
        if cost is not None and (leader is None or not tied(cost, leader)):
            place, leader = i + 1, cost
        point = {key: row[key] for key in ("point",) if key in row}
        yield {**point, "place": None if cost is None else place, **row}


def tied(cost: float, leader: float) -> bool:
    """Whether a cost equals the one before it."""
    return cost == leader or cost <= leader * (1 + TIE)


def _contest(row: Row) -> tuple[Any, ...]:
    size = row.get("requested_bytes")
    return (*astuple(setting_of(row)), -1 if size is None else size)


def _order(row: Row) -> tuple[Any, ...]:
    cost = cost_of(row)
    return (
        _contest(row),
        cost is None,
        float("inf") if cost is None else cost,
        algorithm_of(row).plainness,
        row.get("point", ""),
    )
