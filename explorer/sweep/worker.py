"""Worker: a process that evaluates the points its parent sends it, one by one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection, wait

from explorer.sweep.outcome import evaluate_one, resolve
from explorer.sweep.stop import STOP_SIGNALS

READY = "ready"
"""First message of a worker that can work."""


def work(connection: Connection, evaluate: str) -> None:
    """Evaluate points until the parent sends None or is gone.

    Sends :data:`READY`, or as text why it cannot start; then one outcome per point.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        function = resolve(evaluate)
    except Exception:
        connection.send(traceback.format_exc(limit=-3))
        return
    connection.send(READY)
    try:
        while (point := connection.recv()) is not None:
            connection.send(evaluate_one(function, point))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    """End at once when the parent is killed: nobody would store what is being computed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
