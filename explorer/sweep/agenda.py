"""Agenda: which point a free worker takes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from explorer.scenario.expand import PlannedPoint


class Agenda:
    """Hands out points so that a worker stays with a group while it has points.

    A worker without a group takes the first one nobody works on; when there is none, it helps
    the one with most points left. Within a group the order is that of the scenario.
    """

    def __init__(self, points: Iterable[PlannedPoint]) -> None:
        self._left: dict[tuple[str, ...], deque[PlannedPoint]] = {}
        for point in points:
            self._left.setdefault(point.group, deque()).append(point)

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(
        self, mine: tuple[str, ...] | None, taken: Iterable[tuple[str, ...]]
    ) -> PlannedPoint | None:
        """Next point for a worker.

        Parameters
        ----------
        mine
            Group the worker just worked on.
        taken
            Groups the other workers work on.
        """
        if not self._left:
            return None
        if mine in self._left:
            group = mine
        else:
            others = set(taken)
            free = [g for g in self._left if g not in others]
            group = free[0] if free else max(self._left, key=lambda g: len(self._left[g]))
        queue = self._left[group]
        point = queue.popleft()
        if not queue:
            del self._left[group]
        return point
