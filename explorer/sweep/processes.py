"""Executor on worker processes: started by spawn, fed one point at a time, replaced when they die.

A pool from the standard library cannot kill one task, and loses all of them with one worker; a
solver can need both. Workers are spawned because HiGHS can hang after a fork.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from explorer.errors import ExplorerError
from explorer.scenario.expand import PlannedPoint
from explorer.sweep.agenda import Agenda
from explorer.sweep.outcome import Outcome
from explorer.sweep.stop import STOP_SIGNALS, Stop
from explorer.sweep.worker import READY, work

POLL_SECONDS = 0.1
"""How long a request to stop may wait."""

MAX_FAILED_STARTS = 3
"""Workers that may die in a row before they can work, until the sweep gives up."""


class _Worker:
    """The parent's side of one worker."""

    def __init__(self, evaluate: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=work, args=(theirs, evaluate), daemon=True
        )
        # The tracker, started with the first process, would undo the mask below.
        resource_tracker.ensure_running()
        # A blocked signal stays pending for the parent and is never seen by the starting child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.ready = False
        self.group: tuple[str, ...] | None = None
        self.planned: PlannedPoint | None = None
        self.started = 0.0

    @property
    def deadline(self) -> float | None:
        """When its point has to be done, on the monotonic clock."""
        if self.planned is None or self.planned.time_limit_s is None:
            return None
        return self.started + self.planned.time_limit_s

    def give(self, planned: PlannedPoint) -> bool:
        """Send a point; False when the worker is gone."""
        self.planned, self.group = planned, planned.group
        self.started = time.monotonic()
        try:
            self.connection.send(planned.point)
        except OSError:
            return False
        return True

    def lost(self, reason: str = "") -> Outcome:
        """End it; the outcome of the point it had."""
        self.end(grace=0.0 if reason else 2.0)
        code = self.process.exitcode or 0
        if not reason and code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            reason = f"the worker was ended by {name}{hint}"
        elif not reason:
            reason = f"the worker ended with exit code {code}"
        seconds = time.monotonic() - self.started
        return Outcome("failed", error=reason, error_code=1, seconds=seconds)

    def end(self, grace: float = 0.0) -> None:
        """Kill the process unless it ends by itself within some seconds, and close the pipe."""
        self.process.join(grace)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


class _Crew:
    """Workers and the points they share."""

    def __init__(self, points: Sequence[PlannedPoint], evaluate: str, jobs: int) -> None:
        self.agenda = Agenda(points)
        self.evaluate = evaluate
        self.workers: list[_Worker] = []
        self.jobs = max(1, min(jobs, len(points)))
        self.failed_starts = 0

    def staff(self) -> None:
        """Bring the number of workers to what the points left can use."""
        while len(self.workers) < self.jobs and self.agenda:
            self.workers.append(_Worker(self.evaluate))

    def step(self) -> Iterator[tuple[PlannedPoint, Outcome]]:
        """Wait until something happens; outcomes that came of it."""
        now = time.monotonic()
        deadlines = [w.deadline for w in self.workers if w.deadline is not None]
        timeout = min([POLL_SECONDS, *(max(0.0, at - now) for at in deadlines)])
        ready = set(wait([w.connection for w in self.workers], timeout))
        for worker in list(self.workers):
            if worker.connection in ready:
                yield from self._receive(worker)
            elif worker.deadline is not None and worker.deadline <= time.monotonic():
                limit = worker.planned.time_limit_s if worker.planned else 0.0
                yield from self._lose(worker, f"took longer than limits.point_s = {limit:g} s")

    def finished(self) -> Iterator[tuple[PlannedPoint, Outcome]]:
        """Outcomes that have already arrived, without waiting."""
        for worker in self.workers:
            if worker.planned is not None and worker.connection.poll():
                message = _receive(worker.connection)
                if isinstance(message, Outcome):
                    yield worker.planned, message
                    worker.planned = None

    def _receive(self, worker: _Worker) -> Iterator[tuple[PlannedPoint, Outcome]]:
        message = _receive(worker.connection)
        if message is None:
            self.failed_starts += not worker.ready
            if self.failed_starts > MAX_FAILED_STARTS:
                raise ExplorerError(
                    f"workers cannot start: {worker.lost().error}; a script that sweeps needs"
                    ' `if __name__ == "__main__":` around it'
                )
            yield from self._lose(worker)
            return
        if isinstance(message, Outcome) and worker.planned is not None:
            yield worker.planned, message
            worker.planned = None
        elif message == READY:
            worker.ready, self.failed_starts = True, 0
        else:
            raise ExplorerError(f"a worker could not start: {message}")
        others = [w.group for w in self.workers if w is not worker and w.group]
        planned = self.agenda.take(worker.group, others)
        if planned is None:
            worker.end()
            self.workers.remove(worker)
        elif not worker.give(planned):
            yield from self._lose(worker)

    def _lose(self, worker: _Worker, reason: str = "") -> Iterator[tuple[PlannedPoint, Outcome]]:
        self.workers.remove(worker)
        outcome = worker.lost(reason)
        if worker.planned is not None:
            yield worker.planned, outcome


def run_processes(
    points: Sequence[PlannedPoint], evaluate: str, jobs: int, stop: Stop
) -> Generator[tuple[PlannedPoint, Outcome], None, None]:
    """Evaluate on worker processes; outcomes come as they finish.

    On a request to stop, or when the iterator is closed, workers are killed at once; outcomes
    that had arrived are still given out.

    Raises
    ------
    ExplorerError
        If workers cannot start at all.
    """
    crew = _Crew(points, evaluate, jobs)
    try:
        crew.staff()
        while crew.workers and not stop.requested:
            yield from crew.step()
            crew.staff()
        yield from crew.finished()
    finally:
        for worker in crew.workers:
            worker.end()


def _receive(connection: Connection) -> object:
    """Next message; None when the worker is gone, also in the middle of one."""
    try:
        message: object = connection.recv()
    except (EOFError, OSError):
        return None
    return message
