"""Envelope: the winner per size range, and how far it is ahead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from explorer.compare.algorithm import (
    Algorithm,
    Row,
    Setting,
    algorithm_of,
    cost_of,
    setting_of,
)
from explorer.compare.ranking import rank, tied


@dataclass(frozen=True, slots=True)
class WinnerRange:
    """Neighbouring sizes with one winner.

    Parameters
    ----------
    setting
        Machine, call and meaning of the times.
    algorithm
        The winner.
    first_bytes, last_bytes
        Smallest and largest swept size it wins; None in a profile's own units.
    min_bytes, max_bytes
        Sizes it should serve, both inclusive: ranges of a setting touch and do not overlap, and
        go no further than the swept sizes.
    rows
        Its row at each of the sizes; a method that searches has a program of its own at each.
    margin
        Smallest lead over the next algorithm: its time over the winner's, minus 1; None when
        nobody else ran.
    runner_up
        Who was that close.
    """

    setting: Setting
    algorithm: Algorithm
    first_bytes: int | None
    last_bytes: int | None
    min_bytes: int | None
    max_bytes: int | None
    rows: tuple[dict[str, Any], ...]
    margin: float | None
    runner_up: Algorithm | None


@dataclass(frozen=True, slots=True)
class _Win:
    """The winner at one size, among the costs of all algorithms."""

    size: int | None
    algorithm: Algorithm
    row: dict[str, Any]
    costs: dict[Algorithm, float]

    def lead(self) -> tuple[float, Algorithm] | None:
        """Lead over the next algorithm, and which that is."""
        mine = self.costs[self.algorithm]
        others = [(cost, a.plainness, a) for a, cost in self.costs.items() if a != self.algorithm]
        if not others:
            return None
        cost, _, other = min(others, key=lambda item: item[:2])
        return (0.0 if cost == mine else cost / mine - 1 if mine else math.inf), other


def envelope(rows: Iterable[Row]) -> list[WinnerRange]:
    """Find the winners of every setting over its sizes.

    Of equally fast algorithms the one that won the size before stays, else the simpler one wins.
    Between two swept sizes the range ends where the two winners' times cross, taken as straight
    lines in the size, as times of alpha and beta are.
    """
    ranges: list[WinnerRange] = []
    for setting, group in groupby(rank(rows), key=setting_of):
        wins = _wins(list(group))
        runs = [list(run) for _, run in groupby(wins, key=lambda win: win.algorithm)]
        cuts = [_crossing(a[-1], b[0]) for a, b in pairwise(runs)]
        for i, run in enumerate(runs):
            first, last = run[0].size, run[-1].size
            ranges.append(
                WinnerRange(
                    setting,
                    run[0].algorithm,
                    first,
                    last,
                    cuts[i - 1] + 1 if i else first,
                    cuts[i] if i < len(cuts) else last,
                    tuple(win.row for win in run),
                    *_closest(run),
                )
            )
    return ranges


def _wins(rows: Sequence[dict[str, Any]]) -> list[_Win]:
    wins: list[_Win] = []
    for size, group in groupby(rows, key=lambda row: row.get("requested_bytes")):
        best: dict[Algorithm, dict[str, Any]] = {}
        costs: dict[Algorithm, float] = {}
        for row in group:
            cost = cost_of(row)
            if cost is not None and algorithm_of(row) not in best:
                best[algorithm_of(row)] = row
                costs[algorithm_of(row)] = cost
        if not best:
            continue
        winner = next(iter(best))
        before = wins[-1].algorithm if wins else winner
        if before in costs and tied(costs[before], costs[winner]):
            winner = before
        wins.append(_Win(size, winner, best[winner], costs))
    return wins


def _closest(run: Sequence[_Win]) -> tuple[float | None, Algorithm | None]:
    leads = [lead for win in run if (lead := win.lead()) is not None]
    return min(leads, key=lambda lead: lead[0]) if leads else (None, None)


def _crossing(before: _Win, after: _Win) -> int:
    """Last size that the earlier winner should serve."""
    small, large = before.size or 0, after.size or 0
    a, b = before.algorithm, after.algorithm
    if b in before.costs and a in after.costs and small and math.isfinite(before.costs[b]):
        # Costs are per byte; times are straight lines.
        behind = (before.costs[b] - before.costs[a]) * small
        ahead = (after.costs[a] - after.costs[b]) * large
        if math.isfinite(ahead) and behind + ahead > 0:
            cut = small + (large - small) * behind / (behind + ahead)
            return max(small, min(large - 1, int(cut)))
    return max(small, min(large - 1, math.isqrt(small * large)))
