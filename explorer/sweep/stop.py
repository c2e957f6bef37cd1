"""Stop: Ctrl-C and SIGTERM as a request that is honoured between points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop a sweep. They may reach the whole process group; only the parent acts."""


class Stop:
    """Catches :data:`STOP_SIGNALS` while it is entered, in the main thread.

    A signal sets :attr:`requested`; inside :meth:`interruptible` it also raises
    ``KeyboardInterrupt``, so that a point computed in this process is given up. Nothing is ever
    interrupted while a result is being stored.
    """

    def __init__(self) -> None:
        self.requested = ""
        self._raises = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._handle) for n in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal raise ``KeyboardInterrupt`` in the body."""
        self._raises = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.requested = signal.Signals(number).name
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
