"""Estimate: what a sweep would do and about how long, without doing it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from explorer.scenario.expand import Skipped, plan
from explorer.scenario.load import Scenario
from explorer.store.store import FILE_NAME, Store


@dataclass(frozen=True, slots=True)
class Estimate:
    """A dry run.

    Parameters
    ----------
    points
        Points of the scenario.
    stored
        Those the store has, done or failed.
    by_method
        Points to run of each method.
    seconds
        Seconds they would take one after the other, from the mean of stored points of the same
        method; None when no method to run has any.
    unknown
        Methods to run without a stored point; their points are not in ``seconds``.
    left_out
        Combinations that do not fit, with their reasons.
    """

    points: int
    stored: int
    by_method: dict[str, int]
    seconds: float | None
    unknown: tuple[str, ...]
    left_out: tuple[Skipped, ...]

    @property
    def to_run(self) -> int:
        """Points to run."""
        return sum(self.by_method.values())

    @property
    def skipped(self) -> int:
        """Points left out."""
        return sum(s.points for s in self.left_out)


def estimate(scenario: Scenario, out: str | Path, *, fresh: bool = False) -> Estimate:
    """Expand a scenario and compare it with a store, which is neither made nor changed.

    Raises
    ------
    InputError
        If the scenario cannot be expanded or the store cannot be read.
    """
    planned = plan(scenario)
    stored: set[str] = set()
    means: dict[str, float] = {}
    if (Path(out) / FILE_NAME).exists():
        with Store(out, read_only=True) as store:
            stored = set(store.statuses())
            means = store.mean_seconds()
    kept = set() if fresh else stored
    todo = Counter(p.point.method for p in planned.points if p.key not in kept)
    known = [method for method in todo if method in means]
    return Estimate(
        points=len(planned.points),
        stored=sum(p.key in stored for p in planned.points),
        by_method=dict(sorted(todo.items())),
        seconds=sum(means[m] * todo[m] for m in known) if known or not todo else None,
        unknown=tuple(sorted(set(todo) - set(known))),
        left_out=planned.skipped,
    )
