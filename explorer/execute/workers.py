"""Workers: the processes of a pool, and the control connection to each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection

from explorer.errors import ExplorerError

START_S = 60.0
"""Time for the workers to start."""
END_S = 10.0
"""Time for the workers to end, or to call a run off, before they are killed."""


class ExecutionError(ExplorerError):
    """The executor itself failed: a bug, or a worker process died (exit code 1)."""


class Workers:
    """Started worker processes; they end when this is dropped, or with the calling process.

    Parameters
    ----------
    processes
        How many.

    Raises
    ------
    ExecutionError
        If they do not start.
    EOFError
        If one ended at once.
    """

    def __init__(self, processes: int) -> None:
        pairs = [socket.socketpair() for _ in range(processes)]
        descriptors = [theirs.fileno() for _, theirs in pairs]
        # the workers use the same code as the caller, and one core each
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, "-P", "-m", "explorer.execute.launcher"]
        self._launcher = subprocess.Popen(
            [*command, *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # an interrupt from the terminal is the caller's to handle
        )
        for _, theirs in pairs:
            theirs.close()
        self.controls = [Connection(ours.detach()) for ours, _ in pairs]
        self._finalizer = weakref.finalize(self, _end, self._launcher, self.controls)
        deadline = time.monotonic() + START_S
        pids = []
        for control in self.controls:
            if not control.poll(max(deadline - time.monotonic(), 0)):
                self.end()
                raise ExecutionError(f"the workers did not start within {START_S:.0f} s")
            pids.append(control.recv()[1])
        self.pids = tuple(pids)

    def end(self) -> None:
        """End them all."""
        self._finalizer()


def _end(launcher: subprocess.Popen[bytes], controls: Sequence[Connection]) -> None:
    """Close the connections, on which the workers end; kill what is left."""
    for control in controls:
        control.close()
    try:
        launcher.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
