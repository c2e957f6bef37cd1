"""Linear models and the watched run of HiGHS."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from explorer.synth.linear_model import LinearModel
from explorer.synth.result import Limits, relative_gap
from explorer.synth.solver_run import INFINITY


def canary_3043() -> LinearModel:
    """2x + 3z with x + z >= 4.5 and whole z: x alone is cheapest, 9 (ERGO-Code/HiGHS #3043)."""
    model = LinearModel()
    x = model.variables((1,), 0, 10, cost=2.0)
    z = model.variables((1,), 0, 10, integer=True, cost=3.0)
    model.rows([0, 0], [x.first, z.first], 1.0, lower=4.5)
    return model


def canary_2957() -> LinearModel:
    """A whole x at 1, a y >= 8 at 2, together 20.1: x = 12, y = 8.1, 28.2 (#2957)."""
    model = LinearModel()
    x = model.variables((1,), 0, 20, integer=True, cost=1.0)
    y = model.variables((1,), 8, 20, cost=2.0)
    model.rows([0, 0], [x.first, y.first], 1.0, lower=20.1)
    return model


def canary_2975() -> LinearModel:
    """a + b = 10, a needs a switch that costs 99999, b costs 2: switched off, 20 (#2975)."""
    model = LinearModel()
    a, b = model.variables((1,), 0, INFINITY), model.variables((1,), 0, INFINITY, cost=2.0)
    y = model.variables((1,), 0, 1, integer=True, cost=99999.0)
    model.rows([0, 0], [a.first, b.first], 1.0, lower=10.0, upper=10.0)
    model.rows([0, 0], [a.first, y.first], [1.0, -100.0], upper=0.0)
    return model


@pytest.mark.parametrize(
    ("model", "optimum"), [(canary_3043(), 9.0), (canary_2957(), 28.2), (canary_2975(), 20.0)]
)
def test_models_that_one_version_got_wrong(model: LinearModel, optimum: float) -> None:
    found = model.solve(Limits())
    assert found.status == "optimal"
    assert found.objective == pytest.approx(optimum)
    assert found.bound == pytest.approx(optimum, rel=1e-4)


def subset_sums(rows: int = 6, items: int = 50) -> LinearModel:
    """Several subset sums at once: nothing that branch and bound finishes soon."""
    random = np.random.default_rng(0)
    weight = random.integers(1, 1000, (rows, items))
    model = LinearModel()
    x = model.variables((items,), 0, 1, integer=True, cost=random.integers(1, 1000, items))
    row, column = np.indices(weight.shape)
    half = weight.sum(axis=1) // 2
    model.rows(row.ravel(), x.index[column.ravel()], weight.ravel(), lower=half - 2, upper=half + 2)
    return model


def test_entries_of_one_place_add_up_and_rows_may_be_empty() -> None:
    model = LinearModel()
    x = model.variables((2,), 0, 9, cost=1.0)
    model.rows([0, 0, 2], [x.first, x.first, x.first + 1], [1.0, 1.0, 1.0], lower=[6, 0, 4])
    found = model.solve(Limits())
    assert found.values is not None
    assert found.values.tolist() == [3.0, 4.0]


def test_a_start_is_checked_and_kept_when_there_is_no_time() -> None:
    model = LinearModel()
    x = model.variables((3,), 0, 1, integer=True, cost=[-3.0, -2.0, -2.0])
    model.rows([0, 0, 0], x.index, [2.0, 1.0, 1.0], upper=2.0)
    assert model.violation(np.array([1.0, 1.0, 0.0])) == 1.0
    assert model.violation(np.array([1.0, 0.0, 0.0])) == 0.0
    found = model.solve(Limits(), start=np.array([1.0, 0.0, 0.0]))
    assert (found.status, found.objective) == ("optimal", -4.0)
    assert model.least_value(np.array([0.0, 1.0, 1.0]), 0) == 0.0


def test_what_cannot_be_is_infeasible_and_has_no_values() -> None:
    model = LinearModel()
    x = model.variables((2,), 0, 1, integer=True)
    model.rows([0, 0], x.index, 1.0, lower=3.0)
    for presolve in (True, False):
        found = model.solve(Limits(), presolve=presolve)
        assert (found.status, found.values) == ("infeasible", None)


def test_budgets_end_a_solve_and_give_the_same_result_again() -> None:
    by_nodes = [subset_sums().solve(Limits(node_limit=20)) for _ in range(2)]
    by_work = [subset_sums().solve(Limits(work_limit=3000)) for _ in range(2)]
    for one, other in (by_nodes, by_work):
        assert one.status in ("no solution", "feasible")
        assert (one.status, one.objective, one.bound, one.nodes) == (
            other.status,
            other.objective,
            other.bound,
            other.nodes,
        )


def test_the_watchdog_ends_a_solve_without_other_limits() -> None:
    found = subset_sums().solve(Limits(time_limit_s=0.3, node_limit=10**8, work_limit=10**12))
    assert found.status == "time limit"
    assert found.bound is not None


def test_ctrl_c_ends_a_solve_and_keeps_what_there_is() -> None:
    model = subset_sums()
    press = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    press.start()
    found = model.solve(Limits(node_limit=10**8, work_limit=10**12))
    press.join()
    assert found.status == "interrupted"
    assert found.seconds < 60


def test_nothing_is_written_not_even_the_banner() -> None:
    code = (
        "from tests.test_synth_solver import canary_3043\n"
        "from explorer.synth.result import Limits\n"
        "canary_3043().solve(Limits()); canary_3043().solve(Limits()); print('end')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert (run.stdout, run.stderr) == ("end\n", "")


def test_gap_is_relative_and_never_negative() -> None:
    assert relative_gap(10.0, 9.0) == pytest.approx(0.1)
    assert relative_gap(10.0, 10.5) == 0.0
    assert relative_gap(None, 1.0) is None
    assert relative_gap(0.0, 0.0) == 0.0


def test_solving_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    subset_sums().solve(Limits(time_limit_s=0.1, node_limit=10**8, work_limit=10**12))
    for _ in range(100):
        if threading.active_count() == before:
            break
        time.sleep(0.05)
    assert threading.active_count() == before
