"""The two ends of a connection: a FIFO with a fixed number of slots between two thread blocks.

A send is done when its slot is filled and waits while all slots are full; a slot is free again
when the receiver has drained it. In one process the ends share memory; between two they exchange
frames over a :class:`~explorer.execute.link.Link`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from explorer.execute.definition import Elements
from explorer.execute.monitor import Monitor, Waiter

Post = Callable[[Elements | None], None]
"""Sends a message, or a credit, to the process of the other end."""


class MessageError(Exception):
    """The two ends of a connection disagree about a message."""


class Outgoing:
    """Sender's end.

    Parameters
    ----------
    monitor
        Of this process.
    slots
        Messages the connection holds.
    text
        Where it goes, for messages.
    """

    def __init__(self, monitor: Monitor, slots: int, text: str) -> None:
        self._monitor = monitor
        self._free = slots
        self._text = text
        self._waiter: Waiter | None = None
        self.peer: Incoming | None = None
        self.post: Post | None = None

    def reserve(self, block: Waiter) -> None:
        """Wait for a free slot; no other thread block can take it."""
        with self._monitor.lock:
            if self._free:
                return
            self._waiter = block
            self._monitor.park(block, f"a free slot {self._text}")
        self._monitor.sleep(block)

    def push(self, data: Elements) -> None:
        """Fill the reserved slot."""
        with self._monitor.lock:
            self._free -= 1
            if self.peer is not None:
                self.peer.fill(data)
                return
            self._monitor.sent += 1
        if self.post is not None:
            self.post(data)

    def credit(self) -> None:
        """Count a slot as free; with the lock held."""
        self._free += 1
        if self._waiter is not None:
            self._monitor.unpark(self._waiter)
            self._waiter = None


class Incoming:
    """Receiver's end; parameters as for :class:`Outgoing`."""

    def __init__(self, monitor: Monitor, text: str) -> None:
        self._monitor = monitor
        self._text = text
        self._messages: deque[Elements] = deque()
        self._waiter: Waiter | None = None
        self.peer: Outgoing | None = None
        self.post: Post | None = None

    def peek(self, block: Waiter, shape: tuple[int, int]) -> Elements:
        """Wait for the next message and return it, still in its slot.

        Raises
        ------
        MessageError
            If it has another shape (chunks, elements); on a GPU that is wrong data or a hang.
        """
        with self._monitor.lock:
            waits = not self._messages
            if waits:
                self._waiter = block
                self._monitor.park(block, f"a message {self._text}")
        if waits:
            self._monitor.sleep(block)
        message = self._messages[0]
        if message.shape != shape:
            text = f"expects {shape[0]} chunks {self._text}, the message has {len(message)}"
            raise MessageError(text)
        return message

    def pop(self) -> None:
        """Free the slot of the message looked at."""
        with self._monitor.lock:
            self._messages.popleft()
            if self.peer is not None:
                self.peer.credit()
                return
            self._monitor.sent += 1
        if self.post is not None:
            self.post(None)

    def fill(self, data: Elements) -> None:
        """Take a message; with the lock held."""
        self._messages.append(data)
        if self._waiter is not None:
            self._monitor.unpark(self._waiter)
            self._waiter = None
