"""Executor in this process: for debuggers, profilers and sweeps of a few seconds."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from explorer.scenario.expand import PlannedPoint
from explorer.sweep.outcome import Outcome, evaluate_one, resolve
from explorer.sweep.stop import Stop


def run_serial(
    points: Sequence[PlannedPoint], evaluate: str, jobs: int, stop: Stop
) -> Generator[tuple[PlannedPoint, Outcome], None, None]:
    """Evaluate one after the other; ``jobs`` and the points' wall-clock limits do not apply."""
    function = resolve(evaluate)
    for planned in points:
        try:
            with stop.interruptible():
                outcome = evaluate_one(function, planned.point)
        except KeyboardInterrupt:
            return
        yield planned, outcome
