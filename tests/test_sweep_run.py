"""Sweeps: what runs, what is reused, and what is left after every kind of interruption."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from explorer.errors import InfeasibleError, InputError
from explorer.scenario.keys import code_version
from explorer.scenario.load import Scenario, load_scenario
from explorer.scenario.point import DesignPoint
from explorer.store.store import Store
from explorer.sweep.estimate import estimate
from explorer.sweep.executors import EXECUTORS
from explorer.sweep.run import Progress, SweepSummary, run_sweep

TEXT = """\
topology: full:4
collectives: [allgather, alltoall]
sizes: 1K..64K x2
fidelity: ideal
methods: [allpairs, milp]
"""
POINTS = 28


@dataclass(frozen=True)
class Result:
    row: dict[str, object]
    program: None = None


def evaluate(point: DesignPoint) -> Result:
    """Result that is easy to recompute; some points misbehave while files say so."""
    trouble = Path(os.environ.get("SWEEP_TROUBLE", "/nonexistent"))
    if trouble.joinpath("fail").exists() and point.size_bytes == 2048:
        raise InfeasibleError("not today")
    if trouble.joinpath("kill").exists() and (point.size_bytes, point.method) == (4096, "milp"):
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble.joinpath("slow").exists():
        time.sleep(0.05)
    size = point.size_bytes or 0
    return Result({"method": point.method, "time_us": size / 7.0, "size_bytes": size})


def scenario(folder: Path, text: str = TEXT) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load_scenario(folder / "s.yaml")


def contents(out: Path) -> list[tuple[object, ...]]:
    """What has to be the same whatever happened on the way: all but measured times."""
    with Store(out, read_only=True) as store:
        return [(r.key, r.identity, r.status, r.point, r.row, r.error) for r in store.records()]


def sweep(folder: Path, out: str = "out", **options: object) -> SweepSummary:
    options = {"jobs": 2, "evaluate": evaluate} | options
    return run_sweep(scenario(folder), folder / out, **options)  # type: ignore[arg-type]


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "trouble"
    folder.mkdir()
    monkeypatch.setenv("SWEEP_TROUBLE", str(folder))
    return folder


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_a_sweep_runs_every_point_once_and_then_nothing(tmp_path: Path, executor: str) -> None:
    states: list[Progress] = []
    first = sweep(tmp_path, executor=executor, progress=states.append)
    assert (first.points, first.done, first.failed, first.skipped) == (POINTS, POINTS, 0, 0)
    assert (first.ran, first.reused, first.interrupted) == (POINTS, 0, "")
    assert [s.finished for s in states] == list(range(POINTS + 1))
    assert {s.total for s in states} == {POINTS}
    assert states[0].last is None
    assert all(s.last is not None for s in states[1:])
    sizes = [row["size_bytes"] for row in first.rows if row["method"] == "milp"]
    assert sizes == [1024 << k for k in range(7)] * 2
    assert all(row["time_us"] == row["size_bytes"] / 7.0 for row in first.rows)
    again = sweep(tmp_path, executor=executor)
    assert (again.ran, again.reused) == (0, POINTS)
    assert again.rows == first.rows


def test_executors_and_job_counts_store_the_same(tmp_path: Path) -> None:
    sweep(tmp_path, "serial", executor="serial")
    sweep(tmp_path, "one", jobs=1)
    sweep(tmp_path, "three", jobs=3)
    assert contents(tmp_path / "serial") == contents(tmp_path / "one")
    assert contents(tmp_path / "serial") == contents(tmp_path / "three")


def test_more_points_run_only_what_is_new(tmp_path: Path) -> None:
    sweep(tmp_path, executor="serial")
    wider = scenario(tmp_path, TEXT.replace("64K", "256K"))
    found = run_sweep(wider, tmp_path / "out", executor="serial", evaluate=evaluate)
    assert (found.points, found.ran, found.reused) == (36, 8, POINTS)
    narrower = sweep(tmp_path, executor="serial")
    assert (narrower.points, narrower.ran, len(narrower.rows)) == (POINTS, 0, POINTS)


def test_failed_points_stay_failed_until_they_are_asked_for(tmp_path: Path, trouble: Path) -> None:
    (trouble / "fail").touch()
    first = sweep(tmp_path)
    assert (first.done, first.failed) == (POINTS - 4, 4)
    assert {(f["error"], f["error_code"], f["size_bytes"]) for f in first.failures} == {
        ("not today", 3, 2048)
    }
    (trouble / "fail").unlink()
    second = sweep(tmp_path)
    assert (second.ran, second.failed) == (0, 4)
    third = sweep(tmp_path, retry_failed=True)
    assert (third.ran, third.done, third.failed) == (4, POINTS, 0)


def test_fresh_forgets_this_scenario_and_no_other(tmp_path: Path) -> None:
    sweep(tmp_path, executor="serial")
    other = scenario(tmp_path, TEXT.replace("full:4", "full:5"))
    run_sweep(other, tmp_path / "out", executor="serial", evaluate=evaluate)
    found = sweep(tmp_path, executor="serial", fresh=True)
    assert (found.ran, found.reused) == (POINTS, 0)
    assert len(contents(tmp_path / "out")) == 2 * POINTS


def test_a_killed_worker_costs_its_point_and_a_retry_gives_the_same_store(
    tmp_path: Path, trouble: Path
) -> None:
    (trouble / "kill").touch()
    first = sweep(tmp_path)
    assert (first.done, first.failed) == (POINTS - 2, 2)
    assert {f["error"] for f in first.failures} == {
        "the worker was ended by SIGKILL (out of memory?)"
    }
    (trouble / "kill").unlink()
    assert sweep(tmp_path, retry_failed=True).done == POINTS
    sweep(tmp_path, "undisturbed")
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


def start(folder: Path, executor: str = "processes") -> subprocess.Popen[str]:
    """A sweep in a process of its own, as a shell would start it."""
    scenario(folder)
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from explorer.scenario import expand
        from test_sweep_run import evaluate, load_scenario, run_sweep
        # This process has read the source already; it may be edited while the tests run.
        expand.code_version = lambda: {code_version()!r}
        if __name__ == "__main__":
            found = run_sweep(
                load_scenario({str(folder / "s.yaml")!r}),
                {str(folder / "out")!r},
                jobs=2,
                executor={executor!r},
                evaluate=evaluate,
                progress=lambda state: print(state.finished, flush=True),
            )
            print("stopped by", found.interrupted, found.done)
    """
    (folder / "sweep.py").write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, str(folder / "sweep.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(child: subprocess.Popen[str], finished: int) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= finished:
            return
    pytest.fail(f"ended early: {child.stderr.read() if child.stderr else ''}")


def others_of(session: int) -> list[int]:
    """Processes that are left of a session, once those that are about to end have ended."""
    found: list[int] = []
    for _ in range(100):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
        if not found:
            break
        time.sleep(0.1)
    return found


def test_a_killed_sweep_keeps_what_it_told_leaves_no_worker_and_goes_on(
    tmp_path: Path, trouble: Path
) -> None:
    (trouble / "slow").touch()
    child = start(tmp_path)
    wait_for(child, 5)
    child.kill()
    out, _ = child.communicate()
    told = max([5, *(int(line) for line in out.splitlines())])
    with Store(tmp_path / "out", read_only=True) as store:
        kept = len(store.statuses())
    assert told <= kept < POINTS
    assert others_of(child.pid) == []
    resumed = sweep(tmp_path)
    assert (resumed.reused, resumed.ran, resumed.done) == (kept, POINTS - kept, POINTS)
    sweep(tmp_path, "undisturbed")
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_to_the_whole_group_stop_cleanly(
    tmp_path: Path, trouble: Path, executor: str, number: signal.Signals
) -> None:
    (trouble / "slow").touch()
    child = start(tmp_path, executor)
    wait_for(child, 4)
    os.killpg(child.pid, number)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, "")
    last = out.splitlines()[-1].split()
    assert last[:3] == ["stopped", "by", number.name]
    kept = contents(tmp_path / "out")
    assert 4 <= len(kept) == int(last[3]) < POINTS
    assert {entry[2] for entry in kept} == {"done"}
    assert others_of(child.pid) == []
    assert sweep(tmp_path).reused == len(kept)


def test_two_sweeps_share_a_store(tmp_path: Path, trouble: Path) -> None:
    (trouble / "slow").touch()
    children = [start(tmp_path) for _ in range(2)]
    for child in children:
        _, err = child.communicate()
        assert (child.returncode, err) == (0, "")
    assert len(contents(tmp_path / "out")) == POINTS


def test_a_sweep_in_a_thread_works(tmp_path: Path) -> None:
    found: list[SweepSummary] = []
    thread = threading.Thread(target=lambda: found.append(sweep(tmp_path)))
    thread.start()
    thread.join()
    assert found[0].done == POINTS


def test_an_estimate_counts_and_multiplies_and_touches_nothing(tmp_path: Path) -> None:
    asked = scenario(tmp_path)
    before = estimate(asked, tmp_path / "out")
    assert (before.points, before.stored, before.to_run) == (POINTS, 0, POINTS)
    assert (before.seconds, before.unknown) == (None, ("allpairs", "milp"))
    assert before.by_method == {"allpairs": 14, "milp": 14}
    assert not (tmp_path / "out").exists()
    only = scenario(tmp_path, TEXT.replace("[allpairs, milp]", "milp").replace("64K", "4K"))
    run_sweep(only, tmp_path / "out", executor="serial", evaluate=evaluate)
    with sqlite3.connect(tmp_path / "out" / "results.sqlite") as db:
        db.execute("UPDATE points SET seconds = 3.0")
    db.close()
    after = estimate(scenario(tmp_path), tmp_path / "out")
    assert (after.stored, after.to_run) == (6, 22)
    assert (after.seconds, after.unknown) == (pytest.approx(8 * 3.0), ("allpairs",))
    assert estimate(scenario(tmp_path), tmp_path / "out", fresh=True).to_run == POINTS


def test_what_is_left_out_is_counted_and_kept(tmp_path: Path) -> None:
    asked = scenario(tmp_path, TEXT.replace("[allpairs, milp]", "[allpairs, hierarchical]"))
    found = run_sweep(asked, tmp_path / "out", executor="serial", evaluate=evaluate)
    left = [(s.what, s.points) for s in found.left_out]
    assert left == [
        ("hierarchical allgather on full:4 with 4 ranks", 7),
        ("hierarchical alltoall on full:4 with 4 ranks", 7),
    ]
    assert (found.points, found.skipped) == (14, 14)
    with Store(tmp_path / "out", read_only=True) as store:
        assert [s[:3] for s in store.skipped()] == [("s", what, 7) for what, _ in left]


def test_wrong_options_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'processes'"):
        sweep(tmp_path, executor="proceses")
    with pytest.raises(InputError, match="got 0, expected at least 1"):
        sweep(tmp_path, jobs=0)


def test_rows_carry_what_was_asked(tmp_path: Path) -> None:
    row = sweep(tmp_path, executor="serial").rows[0]
    assert row["asked"]["topology"] == "full:4"
    assert row["asked"]["channels"] == 1
    assert row["scenario"] == "s"
    assert json.loads(json.dumps(row)) == row
