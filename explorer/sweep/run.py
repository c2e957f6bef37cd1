"""Sweep: evaluate what a scenario asks for and a store does not have yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from explorer.errors import InputError, Problem, nearest
from explorer.scenario.expand import Plan, PlannedPoint, Skipped, plan
from explorer.scenario.keys import versions
from explorer.scenario.load import Scenario
from explorer.store.record import Record
from explorer.store.store import Store
from explorer.sweep.executors import EXECUTORS
from explorer.sweep.outcome import Evaluate, Outcome, reference
from explorer.sweep.stop import Stop


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a sweep after a point.

    Parameters
    ----------
    finished, total
        Points finished in this run, of those it has to run.
    failed
        How many of the finished ones failed.
    last
        Record of the point that finished just now; None before the first.
    """

    finished: int
    total: int
    failed: int
    last: Record | None


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What is in the store for a scenario after a sweep.

    Parameters
    ----------
    points
        Points of the scenario.
    done, failed
        How many of them are stored as done and as failed. Less than ``points`` together only when
        the sweep was interrupted.
    skipped
        Points that were left out because a method or sketch does not fit; not in ``points``.
    rows
        Rows of the done points in the store's order, see :meth:`Record.flat`.
    failures
        The same of the failed points, with ``error`` and ``error_code``.
    left_out
        The skipped combinations with their reasons.
    ran, reused
        Points evaluated now, and found in the store.
    interrupted
        Name of the signal that stopped the sweep; empty when it came to its end.
    """

    points: int
    done: int
    failed: int
    skipped: int
    rows: tuple[dict[str, Any], ...]
    failures: tuple[dict[str, Any], ...]
    left_out: tuple[Skipped, ...]
    ran: int
    reused: int
    interrupted: str


def run_sweep(
    scenario: Scenario,
    out: str | Path,
    *,
    jobs: int = 1,
    executor: str = "processes",
    fresh: bool = False,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
    evaluate: Evaluate | None = None,
) -> SweepSummary:
    """Run a scenario into a store.

    Every finished point is stored before the next is counted, so a sweep that is stopped or
    killed goes on where it was. Failed points are stored with their reason and are not run again.

    Parameters
    ----------
    scenario
        From :func:`explorer.scenario.load.load_scenario`.
    out
        Folder of the store; made when it is missing.
    jobs
        Worker processes.
    executor
        Name in :data:`~explorer.sweep.executors.EXECUTORS`.
    fresh
        Forget what the store has of this scenario, and run all of it.
    retry_failed
        Run stored failures again.
    progress
        Called before the first point and after each.
    evaluate
        Stands in for :func:`explorer.evaluate.point.evaluate_point`.

    Raises
    ------
    InputError
        If the scenario cannot be expanded or the store cannot be used.
    """
    if executor not in EXECUTORS:
        raise InputError(Problem("--executor", f"got {executor!r}, {nearest(executor, EXECUTORS)}"))
    if jobs < 1:
        raise InputError(Problem("--jobs", f"got {jobs}, expected at least 1"))
    function = reference(evaluate)
    planned = plan(scenario)
    with Store(out, create=True) as store:
        if fresh:
            store.discard(p.key for p in planned.points)
        _store_skipped(store, scenario, planned)
        todo = _missing(store, planned, retry_failed)
        with Stop() as stop:
            ran = 0
            failed = 0
            _report(progress, Progress(0, len(todo), 0, None))
            with closing(EXECUTORS[executor](todo, function, jobs, stop)) as outcomes:
                for point, outcome in outcomes:
                    record = _record(point, outcome)
                    store.put(record, outcome.program)
                    ran += 1
                    failed += outcome.status == "failed"
                    _report(progress, Progress(ran, len(todo), failed, record))
        return _summary(store, planned, ran, len(planned.points) - len(todo), stop.requested)


def _missing(store: Store, planned: Plan, retry_failed: bool) -> list[PlannedPoint]:
    statuses = store.statuses()
    again = {"failed"} if retry_failed else set()
    return [p for p in planned.points if statuses.get(p.key, "") in again | {""}]


def _store_skipped(store: Store, scenario: Scenario, planned: Plan) -> None:
    for section in scenario.sections:
        mine = [s for s in planned.skipped if s.scenario == section.name]
        store.set_skipped(section.name, [(s.what, s.points, s.reason) for s in mine])


def _record(planned: PlannedPoint, outcome: Outcome) -> Record:
    return Record(
        key=planned.key,
        identity=planned.identity,
        scenario=planned.scenario,
        point=asdict(planned.point),
        status=outcome.status,
        row=outcome.row,
        error=outcome.error,
        error_code=outcome.error_code,
        seconds=outcome.seconds,
        versions=versions(),
    )


def _report(progress: Callable[[Progress], None] | None, state: Progress) -> None:
    if progress is not None:
        progress(state)


def _summary(store: Store, planned: Plan, ran: int, reused: int, interrupted: str) -> SweepSummary:
    records = list(store.records(p.key for p in planned.points))
    done = tuple(r.flat() for r in records if r.status == "done")
    failures = tuple(r.flat() for r in records if r.status == "failed")
    return SweepSummary(
        points=len(planned.points),
        done=len(done),
        failed=len(failures),
        skipped=sum(s.points for s in planned.skipped),
        rows=done,
        failures=failures,
        left_out=planned.skipped,
        ran=ran,
        reused=reused,
        interrupted=interrupted,
    )
