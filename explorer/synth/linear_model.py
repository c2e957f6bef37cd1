"""Linear models: blocks of variables and rows as arrays, handed to HiGHS in one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from explorer.synth.result import Limits
from explorer.synth.solver_run import INFINITY, Solution, silent_highs, watched_run

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

MIN_CHECKS = 8
"""A solve may always look at its limits this often; it does so about once per cut round or node."""


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
        presolve: bool = True,
    ) -> Solution:
        """Hand the model to HiGHS; one thread always, so that results do not depend on the machine.

        Parameters
        ----------
        limits
            Time (None: a generous guard), nodes, work, gap.
        start
            float64 ``[columns]``: feasible values; ignored where they break a row.
        presolve
            Off only to confirm that there is no solution (HiGHS #3296).
        """
        solver = silent_highs()
        for option, value in (
            ("threads", 1),
            ("random_seed", 0),
            ("mip_rel_gap", limits.gap),
            ("mip_max_nodes", limits.node_limit),
            ("presolve", "on" if presolve else "off"),
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
        return watched_run(solver, limits, checks, best, mixed=self.binaries > 0)

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
