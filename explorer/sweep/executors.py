"""Executors by name. A new one is a file with such a function, and a line here."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from explorer.scenario.expand import PlannedPoint
from explorer.sweep.outcome import Outcome
from explorer.sweep.processes import run_processes
from explorer.sweep.serial import run_serial
from explorer.sweep.stop import Stop


class Executor(Protocol):
    """Evaluates points and gives their outcomes in the order they finish.

    Every point gets at most one outcome, all of them one unless a stop is requested; nothing an
    evaluation does, also dying, stops the other points.
    """

    def __call__(
        self, points: Sequence[PlannedPoint], evaluate: str, jobs: int, stop: Stop
    ) -> Generator[tuple[PlannedPoint, Outcome], None, None]:
        """Evaluate.

        Parameters
        ----------
        points
            Points in the order they should start.
        evaluate
            ``module:function`` that turns a design point into a result.
        jobs
            How many to work on at once, at most.
        stop
            Asked between points; when it says so, work ends without further outcomes than those
            already there.
        """
        ...


EXECUTORS: dict[str, Executor] = {"serial": run_serial, "processes": run_processes}
"""The executors."""
