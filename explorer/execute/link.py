"""Link: a socket between two worker processes that carries the frames of all their connections.

A frame is a message of a connection or a credit (its slot is free again). Senders write under a
lock; one thread per link reads and never blocks on anything else, so a link always drains and
cannot add a deadlock that the program does not have.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import numpy as np

from explorer.execute.definition import Elements

_HEADER = struct.Struct("<IIII")  # run, connection, rows (0: a credit), payload bytes
_BUFFER_BYTES = 1 << 18

Deliver = Callable[[int, int, Elements | None], None]
"""Called with run, connection and message; None for a credit."""


class Link:
    """One end of a socket to another worker.

    Parameters
    ----------
    sock
        Connected stream socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, run: int, connection: int, data: Elements | None = None) -> None:
        """Send a message (uint32 ``[chunks, elements]``), or a credit."""
        rows, payload = (0, b"") if data is None else (len(data), data.tobytes())
        frame = _HEADER.pack(run, connection, rows, len(payload)) + payload
        with self._lock:
            self._socket.sendall(frame)

    def read(self, deliver: Deliver) -> None:
        """Deliver frames until the other end closes."""
        with self._socket.makefile("rb", buffering=_BUFFER_BYTES) as stream:
            while len(header := stream.read(_HEADER.size)) == _HEADER.size:
                run, connection, rows, size = _HEADER.unpack(header)
                if rows == 0:
                    deliver(run, connection, None)
                    continue
                payload = stream.read(size)
                if len(payload) < size:
                    return
                deliver(run, connection, np.frombuffer(payload, np.uint32).reshape(rows, -1))
