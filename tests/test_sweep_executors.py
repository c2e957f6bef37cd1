"""Every executor, on the same suite: real evaluations, real processes, real kills.

What evaluates here computes a property of the point that is easy to check, and misbehaves where
the point's method says so. It is imported by worker processes under this module's name.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError, Finding, InfeasibleError, InputError, VerificationError
from explorer.scenario.expand import PlannedPoint
from explorer.scenario.point import DesignPoint
from explorer.store.program_npz import program_from_bytes
from explorer.sweep.agenda import Agenda
from explorer.sweep.executors import EXECUTORS
from explorer.sweep.outcome import Outcome, reference
from explorer.sweep.processes import run_processes
from explorer.sweep.stop import Stop
from sim.program import Buffer, Op, Program, ProgramBuilder


@dataclass(frozen=True)
class Result:
    row: dict[str, object]
    program: Program | None = None


def evaluate(point: DesignPoint) -> Result:
    """Time of a message of the point's size at 1 us and 1 GB/s; other methods misbehave."""
    size = point.size_bytes or 0
    if point.method == "input":
        raise InputError("no such thing")
    if point.method == "infeasible":
        raise InfeasibleError("no schedule")
    if point.method == "wrong":
        raise VerificationError("the program is wrong", [Finding("RACE", "gpu 0", "twice")])
    if point.method == "bug":
        raise KeyError("lost")
    if point.method == "memory":
        raise MemoryError
    if point.method == "nan":
        return Result({"time_us": math.nan})
    if point.method == "object":
        return Result({"time_us": object()})
    if point.method == "numpy":
        return Result({"time_us": np.float64(2.5), "limited": np.bool_(True)})
    if point.method == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if point.method == "exit":
        os._exit(7)
    if point.method == "slow":
        time.sleep(60)
    if point.method == "nap":
        time.sleep(0.05)
    builder = ProgramBuilder(2)
    builder.step(builder.block(0, send=1), Op.SEND, src=(Buffer.INPUT, 0))
    builder.step(builder.block(1, recv=0), Op.RECV, dst=(Buffer.OUTPUT, 0))
    program = builder.build(name="one", collective="custom", nchunks=1, max_bytes=size)
    return Result({"time_us": 1 + size / 1e3, "worker": os.getpid()}, program)


HERE = f"{__name__}:evaluate"


def planned(method: str, size: int = 1024, limit: float | None = None) -> PlannedPoint:
    point = DesignPoint("ring:2", None, "allgather", size, method)
    return PlannedPoint(f"{method}-{size}", point, f"i {method}-{size}", "s", limit)


def run(name: str, points: list[PlannedPoint], jobs: int = 2) -> dict[str, Outcome]:
    with Stop() as stop:
        outcomes = [(p.key, o) for p, o in EXECUTORS[name](points, HERE, jobs, stop)]
    assert len(dict(outcomes)) == len(outcomes)
    return dict(outcomes)


every_executor = pytest.mark.parametrize("name", sorted(EXECUTORS))


@every_executor
def test_every_point_gets_its_result_and_its_program(name: str) -> None:
    points = [planned("fine", 1000 * k) for k in range(12)]
    outcomes = run(name, points)
    assert set(outcomes) == {p.key for p in points}
    for point in points:
        outcome = outcomes[point.key]
        assert (outcome.status, outcome.error) == ("done", "")
        assert outcome.row["time_us"] == 1 + (point.point.size_bytes or 0) / 1e3
        assert outcome.program is not None
        assert program_from_bytes(outcome.program).max_bytes == point.point.size_bytes


@every_executor
def test_a_point_that_fails_says_why_and_stops_nothing(name: str) -> None:
    points = [planned(m) for m in ("input", "infeasible", "wrong", "bug", "memory")]
    points += [planned(m) for m in ("nan", "object", "numpy", "fine")]
    outcomes = run(name, points)
    found = {key: (o.status, o.error_code, o.error) for key, o in outcomes.items()}
    line = evaluate.__code__.co_firstlineno + 10
    assert found == {
        "input-1024": ("failed", 2, "no such thing"),
        "infeasible-1024": ("failed", 3, "no schedule"),
        "wrong-1024": ("failed", 4, "the program is wrong\n  RACE gpu 0: twice"),
        "bug-1024": ("failed", 1, f"bug: KeyError: 'lost' ({Path(__file__).name}:{line})"),
        "memory-1024": ("failed", 1, "out of memory"),
        "nan-1024": ("failed", 1, found["nan-1024"][2]),
        "object-1024": ("failed", 1, found["object-1024"][2]),
        "numpy-1024": ("done", 0, ""),
        "fine-1024": ("done", 0, ""),
    }
    assert "JSON compliant" in found["nan-1024"][2]
    assert "a result holds object" in found["object-1024"][2]
    assert outcomes["numpy-1024"].row == {"time_us": 2.5, "limited": True}


@every_executor
def test_no_points_are_no_work(name: str) -> None:
    assert run(name, []) == {}


@every_executor
def test_a_signal_stops_it_and_leaves_what_was_finished(name: str) -> None:
    points = [planned("nap", k) for k in range(20)] + [planned("slow")]
    seen: list[str] = []
    with Stop() as stop:
        timer = None
        for point, outcome in EXECUTORS[name](points, HERE, 2, stop):
            assert outcome.status == "done"
            seen.append(point.key)
            if len(seen) == 20:
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
                timer.start()
        assert stop.requested == "SIGTERM"
    assert timer is not None
    timer.join()
    assert sorted(seen) == sorted(p.key for p in points[:20])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_workers_are_reused_and_stay_with_their_group() -> None:
    points = [planned(f"m{g}", 1000 * k) for g in range(2) for k in range(10)]
    outcomes = run("processes", points)
    workers = {g: {outcomes[f"m{g}-{1000 * k}"].row["worker"] for k in range(9)} for g in range(2)}
    assert 1 <= len(workers[0] | workers[1]) <= 2
    assert os.getpid() not in workers[0] | workers[1]


def test_a_worker_that_dies_fails_its_point_and_is_replaced() -> None:
    points = [planned("kill"), planned("exit"), *(planned("fine", 1000 * k) for k in range(8))]
    outcomes = run("processes", points)
    assert len(outcomes) == 10
    killed, gone = outcomes["kill-1024"], outcomes["exit-1024"]
    assert (killed.status, killed.error_code) == ("failed", 1)
    assert killed.error == "the worker was ended by SIGKILL (out of memory?)"
    assert gone.error == "the worker ended with exit code 7"
    assert all(outcomes[f"fine-{1000 * k}"].status == "done" for k in range(8))


def test_a_point_over_its_limit_is_ended_and_the_rest_goes_on() -> None:
    points = [planned("slow", limit=0.4), *(planned("fine", 1000 * k, 30.0) for k in range(4))]
    outcomes = run("processes", points)
    assert outcomes["slow-1024"].error == "took longer than limits.point_s = 0.4 s"
    assert outcomes["slow-1024"].seconds >= 0.4
    assert [outcomes[f"fine-{1000 * k}"].status for k in range(4)] == ["done"] * 4


def test_workers_that_cannot_start_end_the_sweep_with_the_reason() -> None:
    with Stop() as stop:
        outcomes = run_processes([planned("fine")], "no_such_module:evaluate", 1, stop)
        with pytest.raises(ExplorerError, match="No module named 'no_such_module'"):
            next(outcomes)


def test_closing_the_iterator_ends_the_workers() -> None:
    import multiprocessing

    with Stop() as stop:
        outcomes = run_processes([planned("fine"), planned("slow")], HERE, 2, stop)
        point, _ = next(outcomes)
        assert point.key == "fine-1024"
        outcomes.close()
    assert multiprocessing.active_children() == []


def test_only_what_another_process_can_import_can_evaluate() -> None:
    assert reference(evaluate) == HERE
    assert reference(None) == "explorer.evaluate.point:evaluate_point"
    with pytest.raises(ValueError, match="define it in a module"):
        reference(lambda point: Result({}))


def test_a_stop_in_another_thread_is_left_to_the_main_one(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    found = []

    def inside() -> None:
        with Stop() as stop:
            found.append((signal.getsignal(signal.SIGINT), stop.requested))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [(before, "")]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 3))
def test_an_agenda_hands_out_every_point_once_in_the_order_of_its_group(
    methods: list[str], workers: int
) -> None:
    points = [planned(m, k) for k, m in enumerate(methods)]
    agenda = Agenda(points)
    groups: list[tuple[str, ...] | None] = [None] * workers
    taken = list(_turns(agenda, groups))
    assert sorted(p.key for p in taken) == sorted(p.key for p in points)
    for method in "abc":
        order = [p.key for p in taken if p.point.method == method]
        assert order == [p.key for p in points if p.point.method == method]
    assert not agenda


def _turns(agenda: Agenda, groups: list[tuple[str, ...] | None]) -> Iterator[PlannedPoint]:
    while agenda:
        for i in range(len(groups)):
            others = [g for j, g in enumerate(groups) if j != i and g is not None]
            found = agenda.take(groups[i], others)
            if found is not None:
                groups[i] = found.group
                yield found


def test_a_free_worker_keeps_its_group_else_takes_a_free_one_else_helps_the_longest() -> None:
    points = [planned("a", 1), planned("b", 1), planned("a", 2), planned("c", 1), planned("a", 3)]
    agenda = Agenda(points)
    a, b, c = points[0].group, points[1].group, points[3].group
    first = agenda.take(None, [])
    assert first is points[0]
    assert agenda.take(None, [a]) is points[1]
    assert agenda.take(b, [a]) is points[3]
    assert agenda.take(c, [a]) is points[2]
    assert agenda.take(c, [a]) is points[4]
    assert agenda.take(a, [c]) is None
