"""Linear models: blocks of variables and rows as arrays, handed to HiGHS in one call.

``threads=1`` always: results must not depend on the machine. A solve runs in a thread of its own,
and the caller's thread is the watchdog: at the time limit, or on Ctrl-C, it asks HiGHS to stop and
keeps the best solution that a callback has saved; it does not rely on the solver's own clock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from explorer.synth.result import Limits, Stage, relative_gap

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

INFINITY = float(highspy.kHighsInf)

GUARD_S = 120.0
"""Wall-clock guard of a solve without a time limit. HiGHS stops at its node limit long before,
unless a single node takes for ever (HiGHS #2226)."""

GRACE_S = 5.0
"""How long a solver that was asked to stop may take; presolve cannot be interrupted (#1905)."""

MIN_CHECKS = 8
"""A solve may always look at its limits this often; it does so about once per cut round or node."""

_banner_lock = threading.Lock()
_banner_shown = False


@dataclass(frozen=True, slots=True)
class Block:
    """A block of variables.

    Parameters
    ----------
    first
        Index of its first variable.
    shape
        Its shape; ``index`` gives the variables as an array of this shape.
    """

    first: int
    shape: tuple[int, ...]

    @property
    def index(self) -> LongArray:
        """Indices of its variables, int64 of ``shape``."""
        return self.first + np.arange(int(np.prod(self.shape))).reshape(self.shape)


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


@dataclass(slots=True)
class LinearModel:
    """A minimisation model in the making.

    Examples
    --------
    >>> model = LinearModel()
    >>> x = model.variables((2,), 0, 1, integer=True, cost=-1.0)
    >>> model.rows([0, 0], x.index, [1.0, 1.0], upper=[1.0])
    >>> model.solve(Limits()).objective
    -1.0
    """

    _lower: list[FloatArray] = field(default_factory=list)
    _upper: list[FloatArray] = field(default_factory=list)
    _cost: list[FloatArray] = field(default_factory=list)
    _integer: list[IntArray] = field(default_factory=list)
    _row: list[LongArray] = field(default_factory=list)
    _column: list[LongArray] = field(default_factory=list)
    _value: list[FloatArray] = field(default_factory=list)
    _row_lower: list[FloatArray] = field(default_factory=list)
    _row_upper: list[FloatArray] = field(default_factory=list)
    columns: int = 0
    row_count: int = 0

    def variables(
        self,
        shape: tuple[int, ...],
        lower: npt.ArrayLike,
        upper: npt.ArrayLike,
        *,
        integer: bool = False,
        cost: npt.ArrayLike = 0.0,
    ) -> Block:
        """Add a block of variables; bounds and costs broadcast to its shape."""
        count = int(np.prod(shape))
        block = Block(self.columns, shape)
        for store, value in ((self._lower, lower), (self._upper, upper), (self._cost, cost)):
            store.append(np.broadcast_to(np.asarray(value, np.float64), shape).reshape(count))
        self._integer.append(np.full(count, int(integer), dtype=np.int32))
        self.columns += count
        return block

    def rows(
        self,
        row: npt.ArrayLike,
        column: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        lower: npt.ArrayLike = -INFINITY,
        upper: npt.ArrayLike = INFINITY,
        count: int | None = None,
    ) -> None:
        """Add rows by their entries.

        Parameters
        ----------
        row
            Row of each entry, from 0 within this call.
        column
            Variable of each entry.
        value
            Coefficient of each entry; entries of one row and column add up.
        lower, upper
            Of each row; broadcast.
        count
            Number of rows; by default one more than the largest ``row``.
        """
        rows = np.asarray(row, dtype=np.int64)
        total = int(rows.max(initial=-1)) + 1 if count is None else count
        self._row.append(rows + self.row_count)
        self._column.append(np.broadcast_to(np.asarray(column, np.int64), rows.shape))
        self._value.append(np.broadcast_to(np.asarray(value, np.float64), rows.shape))
        self._row_lower.append(np.broadcast_to(np.asarray(lower, np.float64), (total,)))
        self._row_upper.append(np.broadcast_to(np.asarray(upper, np.float64), (total,)))
        self.row_count += total

    @property
    def binaries(self) -> int:
        """Number of integer variables."""
        return int(sum(int(block.sum()) for block in self._integer))

    def violation(self, values: FloatArray) -> float:
        """Largest amount by which values break a bound or row; a start must have about none."""
        row, column, value = self._entries()
        activity = np.bincount(row, weights=value * values[column], minlength=self.row_count)
        lower, upper = _joined(self._row_lower), _joined(self._row_upper)
        parts = (
            lower - activity,
            activity - upper,
            _joined(self._lower) - values,
            values - _joined(self._upper),
        )
        return max(0.0, *(float(part.max(initial=0.0)) for part in parts))

    def least_value(self, values: FloatArray, variable: int) -> float:
        """Least value of a variable, bounded below by rows only, that the other values allow."""
        row, column, value = self._entries()
        others = np.where(column == variable, 0.0, value * values[column])
        activity = np.bincount(row, weights=others, minlength=self.row_count)
        mine = (column == variable) & (value > 0)
        lower = _joined(self._row_lower)[row[mine]]
        return float(((lower - activity[row[mine]]) / value[mine]).max(initial=0.0))

    def solve(
        self,
        limits: Limits,
        *,
        start: FloatArray | None = None,
        on_improvement: Callable[[float], None] | None = None,
    ) -> Solution:
        """Hand the model to HiGHS.

        Parameters
        ----------
        limits
            Time (None: a guard of :data:`GUARD_S`), nodes, work, gap.
        start
            float64 ``[columns]``: feasible values; ignored where they break a row.
        on_improvement
            Called with the objective of each improving solution.
        """
        solver = _silent_highs()
        for option, value in (
            ("threads", 1),
            ("random_seed", 0),
            ("mip_rel_gap", limits.gap),
            ("mip_max_nodes", limits.node_limit),
        ):
            solver.setOptionValue(option, value)
        self._pass_to(solver)
        best: list[tuple[float, FloatArray]] = []
        if start is not None and self.violation(start) <= 1e-6:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            solver.setSolution(solution)
            best.append((float(_joined(self._cost) @ start), start))
        nonzeros = sum(len(values) for values in self._value)
        checks = max(MIN_CHECKS, limits.work_limit // max(nonzeros, 1))
        return _watched_run(solver, limits, checks, best, on_improvement, mixed=self.binaries > 0)

    def _entries(self) -> tuple[LongArray, LongArray, FloatArray]:
        return (
            np.concatenate(self._row) if self._row else np.zeros(0, np.int64),
            np.concatenate(self._column) if self._column else np.zeros(0, np.int64),
            _joined(self._value),
        )

    def _pass_to(self, solver: Any) -> None:
        row, column, value = self._entries()
        key = row * max(self.columns, 1) + column
        unique, inverse = np.unique(key, return_inverse=True)
        value = np.bincount(inverse, value, len(unique)).astype(np.float64)
        row, column = np.divmod(unique, max(self.columns, 1))
        starts = np.searchsorted(row, np.arange(self.row_count)).astype(np.int32)
        solver.passModel(
            self.columns,
            self.row_count,
            len(value),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            _joined(self._cost),
            _joined(self._lower),
            _joined(self._upper),
            _joined(self._row_lower),
            _joined(self._row_upper),
            starts,
            column.astype(np.int32),
            value,
            np.concatenate(self._integer).astype(np.int32),
        )


def _joined(blocks: list[FloatArray]) -> FloatArray:
    return np.concatenate(blocks) if blocks else np.zeros(0)


def _silent_highs() -> Any:
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


def _watched_run(
    solver: Any,
    limits: Limits,
    checks: int,
    best: list[tuple[float, FloatArray]],
    on_improvement: Callable[[float], None] | None,
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
        if on_improvement is not None:
            on_improvement(value)

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
    reason = ""
    try:
        if not done.wait(limit):
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
