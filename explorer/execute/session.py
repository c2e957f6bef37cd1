"""Session: one program on the workers, from the caller's side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from explorer.errors import Finding
from explorer.execute.job import Job
from explorer.execute.monitor import Snapshot
from explorer.execute.report import SHOWN, ExecutionReport, Mismatch
from explorer.execute.workers import END_S, ExecutionError, Workers
from explorer.units import ELEMENT_BYTES

POLL_S = 0.05
"""Silence after which the workers are asked whether anything still moves."""


class Session:
    """Prepares a job on all workers, starts it, watches it, and compares or calls it off.

    Parameters
    ----------
    workers
        Running workers, idle.
    job
        What to run.
    run_id
        Number no other run of these workers has.
    timeout_s
        Seconds until the run is called off.
    """

    def __init__(self, workers: Workers, job: Job, run_id: int, timeout_s: float) -> None:
        self._workers = workers
        self._job = job
        self._id = run_id
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._ended = 0
        self._error: tuple[str, str] | None = None
        self._seconds = 0.0

    def report(self) -> ExecutionReport:
        """Run it.

        Raises
        ------
        ExecutionError
            If a worker failed or does not answer.
        """
        finding = self._execute()
        if finding is not None:
            code, message = finding
            if code == "BUG":
                raise ExecutionError(f"a worker failed: {message}")
            return self._result(findings=[Finding(code, "", message), *self._abort(code)])
        return self._compare()

    def _execute(self) -> tuple[str, str] | None:
        """Run to the end; else the code and text of what stopped it."""
        if self._gather("ready", "prepare", self._job) is None:
            return self._stopped()
        began = time.monotonic()
        self._order("start")
        stopped = self._watch()
        self._seconds = time.monotonic() - began
        return stopped

    def _watch(self) -> tuple[str, str] | None:
        """Wait for the last thread block, an error, the deadline, or a proven deadlock."""
        before: list[Snapshot] | None = None
        while self._ended < len(self._workers.controls) and self._error is None:
            if time.monotonic() > self._deadline:
                return self._stopped()
            if self._take(POLL_S):
                before = None
                continue
            replies = self._gather("snapshot", "snapshot")
            if replies is None:
                continue
            now = [reply[0] for reply in replies]
            if now == before and _stuck(now):
                return "DEADLOCK", "no thread block can go on"
            before = now
        return self._error

    def _stopped(self) -> tuple[str, str]:
        return self._error or ("TIMEOUT", f"not done after {self._timeout_s:g} s")

    def _compare(self) -> ExecutionReport:
        self._deadline = max(self._deadline, time.monotonic() + self._timeout_s)
        replies = self._gather("compared", "compare")
        if replies is None:
            code, message = self._stopped()
            raise ExecutionError(f"comparing failed: {code} {message}")
        elements, wrong = (sum(r[i] for r in replies) for i in (0, 1))
        worst = max(r[2] for r in replies)
        shown: list[Mismatch] = [m for r in replies for m in r[3]]
        findings = [
            Finding("RESULT" if m.buffer == "output" else "INPUT", f"gpu {m.rank}", str(m))
            for m in shown[:SHOWN]
        ]
        if wrong > len(findings):
            findings.append(Finding(findings[0].code, "", f"{wrong} elements are wrong in all"))
        findings += [
            Finding("UNPAIRED", f"gpu {src} -> gpu {dst} channel {channel}", f"{n} messages left")
            for src, dst, channel, n in self._job.unpaired()
        ]
        return self._result(findings, elements, wrong, worst, shown[:SHOWN])

    def _abort(self, code: str) -> list[Finding]:
        """Call the run off; what the thread blocks waited for."""
        self._deadline = time.monotonic() + END_S
        self._error = None
        replies = self._gather("aborted", "abort")
        if replies is None:
            self._workers.end()
            raise ExecutionError("the workers did not call the run off")
        waiting = [text for reply in replies for text in reply[0]]
        if code == "MESSAGE":
            return []
        found = [Finding(code, "", text) for text in waiting[:SHOWN]]
        if len(waiting) > SHOWN:
            found.append(Finding(code, "", f"and {len(waiting) - SHOWN} more thread blocks wait"))
        return found

    def _result(
        self,
        findings: Sequence[Finding],
        elements: int = 0,
        wrong: int = 0,
        worst: int = 0,
        shown: Sequence[Mismatch] = (),
    ) -> ExecutionReport:
        job = self._job
        return ExecutionReport(
            ok=not findings,
            ranks=job.program.ranks,
            processes=min(len(self._workers.controls), job.program.ranks),
            placement=job.placement,
            size_bytes=job.program.nchunks * job.elements * ELEMENT_BYTES,
            elements=elements,
            iterations=job.iterations,
            max_error=worst,
            wrong=wrong,
            mismatches=tuple(shown),
            findings=tuple(findings),
            seconds=self._seconds,
        )

    # -- talking to the workers

    def _order(self, order: str, *arguments: object) -> None:
        for control in self._workers.controls:
            control.send((order, self._id, *arguments))

    def _gather(self, kind: str, order: str, *arguments: object) -> list[tuple[Any, ...]] | None:
        """Give an order to all workers; their replies, or None on an error or at the deadline."""
        replies: dict[int, tuple[Any, ...]] = {}
        self._order(order, *arguments)
        while len(replies) < len(self._workers.controls):
            left = self._deadline - time.monotonic()
            if left <= 0 or (self._error is not None and order != "abort"):
                return None
            for index, (reply, values) in self._take(left):
                if reply == kind:
                    replies[index] = values
        return [replies[index] for index in sorted(replies)]

    def _take(self, timeout_s: float) -> list[tuple[int, tuple[str, tuple[Any, ...]]]]:
        """Messages of workers that have any; ends and errors are noted."""
        controls = self._workers.controls
        taken = []
        for ready in wait(controls, timeout_s):
            index = controls.index(ready)  # type: ignore[arg-type]
            kind, run_id, *values = controls[index].recv()
            if run_id != self._id:
                continue
            if kind == "end":
                self._ended += 1
                if values[0] and self._error is None:
                    self._error = (values[0], values[1])
            taken.append((index, (kind, tuple(values))))
        return taken


def _stuck(snapshots: Sequence[Snapshot]) -> bool:
    return (
        any(s.unfinished for s in snapshots)
        and not any(s.running for s in snapshots)
        and sum(s.sent for s in snapshots) == sum(s.received for s in snapshots)
    )
