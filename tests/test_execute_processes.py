"""What an executor leaves behind: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from execute_programs import allgather_ring, allreduce_ring

from explorer.execute.pool import Executor
from explorer.execute.workers import ExecutionError

LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a dead child of somebody else may still be listed
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def gone_within(pids: tuple[int, ...], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@LINUX
def test_nothing_is_left_after_runs_that_end_hang_or_are_called_off() -> None:
    shared = set(Path("/dev/shm").iterdir())
    before = descriptors()
    program = allreduce_ring(4)
    with Executor(3) as pool:
        assert pool.run(program).ok
        assert not pool.run(program, slot_bytes=4, jitter_seed=1, timeout_s=0.0).ok
        assert pool.run(program).ok
        pids = pool.pids
        assert len(set(pids)) == 3
        assert all(alive(pid) for pid in pids)
    assert gone_within(pids, 20)
    assert descriptors() == before
    assert set(Path("/dev/shm").iterdir()) == shared


@LINUX
def test_a_dropped_executor_ends_its_workers() -> None:
    pool = Executor(2)
    pool.run(allgather_ring(2))
    pids = pool.pids
    del pool
    assert gone_within(pids, 20)


@LINUX
def test_workers_do_not_outlive_a_killed_caller() -> None:
    script = (
        "import sys, time\n"
        "from execute_programs import allgather_ring\n"
        "from explorer.execute.pool import Executor\n"
        "pool = Executor(2)\n"
        "pool.run(allgather_ring(2))\n"
        "print(*pool.pids, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as caller:
        assert caller.stdout is not None
        pids = tuple(int(text) for text in caller.stdout.readline().split())
        assert len(pids) == 2
        caller.kill()
    assert gone_within(pids, 20)


@LINUX
def test_a_killed_worker_is_an_error_and_the_next_run_works() -> None:
    with Executor(2) as pool:
        assert pool.run(allgather_ring(2)).ok
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(ExecutionError, match="a worker process died"):
            pool.run(allgather_ring(2))
        assert pool.run(allgather_ring(2)).ok


def test_importing_it_loads_nothing_heavy() -> None:
    script = (
        "import sys, explorer.execute.run\n"
        "heavy = {'pandas', 'numba', 'matplotlib', 'highspy', 'networkx', 'pydantic', 'typer'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
