"""Solver run: HiGHS in a thread of its own, silent, with a watchdog outside of it.

The caller's thread waits. At the time limit, or on Ctrl-C, it asks HiGHS to stop and takes the best
solution that a callback has saved; it does not rely on the solver's own clock (HiGHS #2226, #885).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from explorer.synth.result import Limits, Stage, relative_gap

FloatArray = npt.NDArray[np.float64]

INFINITY = float(highspy.kHighsInf)

GUARD_S = 120.0
"""Wall-clock guard of a solve without a time limit. HiGHS stops at its node limit long before,
unless a single node takes for ever (HiGHS #2226)."""

POLL_S = 0.1
"""How often the watchdog looks at the clock."""

GRACE_S = 5.0
"""How long a solver that was asked to stop may take; presolve cannot be interrupted (#1905)."""

_banner_lock = threading.Lock()
_banner_shown = False


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What a solve gave.

    Parameters
    ----------
    status
        As in :class:`explorer.synth.result.Stage`.
    values
        float64 ``[variables]``; None without a solution.
    objective, bound
        Of the model; None where there is none.
    nodes, seconds
        Branch-and-bound nodes and wall-clock time.
    """

    status: str
    values: FloatArray | None
    objective: float | None
    bound: float | None
    nodes: int
    seconds: float

    def stage(self, name: str) -> Stage:
        """Record it."""
        return Stage(
            name,
            self.status,
            self.objective,
            self.bound,
            relative_gap(self.objective, self.bound),
            self.nodes,
            self.seconds,
        )


def silent_highs() -> Any:
    """Make a solver that writes nothing; the first one of a process prints a banner from C++."""
    global _banner_shown  # noqa: PLW0603
    with _banner_lock:
        if _banner_shown:
            solver = highspy.Highs()
        else:
            with _stdout_discarded():
                solver = highspy.Highs()
            _banner_shown = True
    solver.setOptionValue("output_flag", False)
    return solver


@contextmanager
def _stdout_discarded() -> Iterator[None]:
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # No standard output at all: nothing to keep clean.
        yield
        return
    with open(os.devnull, "wb") as sink:  # noqa: PTH123
        os.dup2(sink.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def watched_run(
    solver: Any,
    limits: Limits,
    checks: int,
    best: list[tuple[float, FloatArray]],
    *,
    mixed: bool,
) -> Solution:
    """Run HiGHS in a thread, stop it at the limit or on Ctrl-C, and collect what it has."""
    stop = threading.Event()
    done = threading.Event()
    seen = {"bound": -INFINITY, "nodes": 0, "checks": 0}

    def improved(event: Any) -> None:
        value = float(event.data_out.objective_function_value)
        best.append((value, np.array(event.data_out.mip_solution, dtype=np.float64)))

    def interrupt(event: Any) -> None:
        seen["bound"] = float(event.data_out.mip_dual_bound)
        seen["nodes"] = int(event.data_out.mip_node_count)
        seen["checks"] += 1
        if stop.is_set() or seen["checks"] > checks:
            event.interrupt()

    def simplex_interrupt(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    solver.cbMipImprovingSolution.subscribe(improved)
    solver.cbMipInterrupt.subscribe(interrupt)
    solver.cbSimplexInterrupt.subscribe(simplex_interrupt)

    def work() -> None:
        try:
            solver.run()
        finally:
            done.set()

    began = time.perf_counter()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    reason = _await(done, stop, limits.time_limit_s)
    seconds = time.perf_counter() - began
    if not done.is_set():
        # It cannot be interrupted now; the thread ends by itself, its result is not used.
        return _from_incumbent(reason, best, seen, seconds)
    return _collected(solver, reason, best, seconds, mixed=mixed)


def _await(done: threading.Event, stop: threading.Event, time_limit_s: float | None) -> str:
    """Wait for the solver; returns why it was asked to stop, or an empty text."""
    limit = GUARD_S if time_limit_s is None else max(time_limit_s, 0.01)
    ends = time.perf_counter() + limit
    reason = ""
    try:
        # Short waits: a signal may reach another thread, and is then handled between them.
        while not reason and not done.wait(min(POLL_S, limit)):
            if time.perf_counter() > ends:
                reason = "time limit"
    except KeyboardInterrupt:
        reason = "interrupted"
    if reason:
        stop.set()
        done.wait(GRACE_S)
    return reason


def _from_incumbent(
    reason: str, best: list[tuple[float, FloatArray]], seen: dict[str, float], seconds: float
) -> Solution:
    objective, values = min(best, key=lambda pair: pair[0]) if best else (None, None)
    bound = seen["bound"] if seen["bound"] > -INFINITY else None
    return Solution(reason, values, objective, bound, int(seen["nodes"]), seconds)


def _collected(
    solver: Any,
    reason: str,
    best: list[tuple[float, FloatArray]],
    seconds: float,
    *,
    mixed: bool,
) -> Solution:
    info = solver.getInfo()
    status = solver.getModelStatus()
    kind = highspy.HighsModelStatus
    nodes = max(0, int(info.mip_node_count))
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value, dtype=np.float64) if feasible else None
    objective = float(info.objective_function_value) if feasible else None
    if values is None and best:
        objective, values = min(best, key=lambda pair: pair[0])
    bound: float | None = float(info.mip_dual_bound) if mixed else objective
    if bound is not None and not np.isfinite(bound):
        bound = None
    if status == kind.kOptimal:
        text = "optimal"
    elif status in (kind.kInfeasible, kind.kUnboundedOrInfeasible) and values is None:
        text = "infeasible"
    elif reason:
        text = reason
    elif status == kind.kSolveError:
        text = "solver error"
    elif values is not None:
        text = "feasible"
    else:
        text = "no solution"
    return Solution(text, values, objective, bound, nodes, seconds)
