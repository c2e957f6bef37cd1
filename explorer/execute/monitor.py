"""Monitor: the one lock of a process's thread blocks, and the exact count of those that run.

A thread block that must wait parks under the lock; whoever makes its condition true unparks it in
the same critical section. So the number of running thread blocks is exact at every moment, and a
deadlock is proven instead of guessed from silence (see :meth:`Monitor.snapshot`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


class Aborted(Exception):  # noqa: N818 - not an error: the run was called off
    """The run was called off."""


class Waiter:
    """Something that can wait: a thread block."""

    def __init__(self) -> None:
        self.reason = ""
        self.wake = threading.Lock()
        self.wake.acquire()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the thread blocks of one process at one moment.

    Parameters
    ----------
    unfinished, running
        Thread blocks that have not ended, and those of them that do not wait.
    progress
        Times a thread block stopped waiting.
    sent, received
        Frames to and from other processes.
    """

    unfinished: int
    running: int
    progress: int
    sent: int
    received: int


class Monitor:
    """Lock and counters; every attribute is used with :attr:`lock` held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.aborted = False
        self.unfinished = self.running = 0
        self.progress = self.sent = self.received = 0

    def snapshot(self) -> Snapshot:
        """State at this moment.

        When no thread block of any process runs, every frame sent has been received, and a second
        round of snapshots is equal to the first, nothing could happen between the two rounds and
        nothing ever will: a deadlock (the four-counter method; F. Mattern, "Algorithms for
        distributed termination detection", Distributed Computing 2, 1987).
        """
        with self.lock:
            return Snapshot(self.unfinished, self.running, self.progress, self.sent, self.received)

    def park(self, waiter: Waiter, reason: str) -> None:
        """Count a thread block as waiting; it then calls :meth:`sleep` without the lock."""
        if self.aborted:
            raise Aborted
        waiter.reason = reason
        self.running -= 1

    def unpark(self, waiter: Waiter) -> None:
        """Count a waiting thread block as running and wake it."""
        if waiter.reason:  # an abort may have been first
            waiter.reason = ""
            self.running += 1
            self.progress += 1
            waiter.wake.release()

    def sleep(self, waiter: Waiter) -> None:
        """Block until somebody unparks the thread block."""
        waiter.wake.acquire()
        if self.aborted:
            raise Aborted
