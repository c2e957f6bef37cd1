"""What a worker process does: obey the parent until the control connection closes."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from explorer.execute.definition import Elements
from explorer.execute.job import Job
from explorer.execute.link import Link
from explorer.execute.rank_run import RankRun

STACK_BYTES = 1 << 18
"""Stack of a thread: a process may have hundreds of thread blocks."""


def ranks_of(worker: int, workers: int, ranks: int) -> range:
    """Ranks that a worker runs: consecutive, as equal as possible."""
    return range(worker * ranks // workers, (worker + 1) * ranks // workers)


class Worker:
    """One worker process.

    Parameters
    ----------
    index
        Its number.
    control
        Connection to the parent.
    sockets
        Socket to every other worker, by number.
    """

    def __init__(
        self, index: int, control: Connection, sockets: Mapping[int, socket.socket]
    ) -> None:
        self._index = index
        self._workers = len(sockets) + 1
        self._control = control
        self._send_lock = threading.Lock()
        self._links = {other: Link(sock) for other, sock in sockets.items()}
        self._run: RankRun | None = None

    def serve(self) -> None:
        """Obey until the parent closes the connection or is gone."""
        threading.stack_size(STACK_BYTES)
        for link in self._links.values():
            threading.Thread(target=link.read, args=(self._deliver,), daemon=True).start()
        self._reply("hello", os.getpid())
        while True:
            try:
                order, run_id, *arguments = self._control.recv()
            except (EOFError, OSError):
                return
            try:
                self._obey(order, run_id, *arguments)
            except Exception:
                self._reply("end", run_id, "BUG", traceback.format_exc())

    def _obey(self, order: str, run_id: int, job: Job | None = None) -> None:
        if order == "prepare" and job is not None:
            self._run = None  # frees the memory of the last one
            self._run = self._prepare(run_id, job)
            self._reply("ready", run_id)
            return
        run = self._run
        if run is None or run.run_id != run_id:
            return
        if order == "start":
            run.start()
        elif order == "snapshot":
            self._reply("snapshot", run_id, run.monitor.snapshot())
        elif order == "compare":
            self._reply("compared", run_id, *run.compare())
        elif order == "abort":
            waiting = run.waiting()
            run.abort()
            self._run = None
            self._reply("aborted", run_id, waiting)

    def _prepare(self, run_id: int, job: Job) -> RankRun:
        ranks = job.program.ranks
        link_to = {
            rank: link
            for other, link in self._links.items()
            for rank in ranks_of(other, self._workers, ranks)
        }

        def on_end(code: str, error: str) -> None:
            self._reply("end", run_id, code, error)

        own = ranks_of(self._index, self._workers, ranks)
        return RankRun(job, run_id, own, link_to, on_end)

    def _deliver(self, run_id: int, connection: int, data: Elements | None) -> None:
        run = self._run
        if run is not None and run.run_id == run_id:
            run.deliver(connection, data)

    def _reply(self, *message: Any) -> None:
        with self._send_lock:
            self._control.send(message)
