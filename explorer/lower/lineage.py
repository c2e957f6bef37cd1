"""Lineage: which messages a chunk's value at a receiver has already been through.

When rank r sends its partial sum and later receives the total that contains it, the receive
happens after the send by the messages in between; a dependency would say it twice.
"""

from __future__ import annotations

import numpy as np

from explorer.lower.messages import Messages


class Lineage:
    """Answers whether the value a message brings has passed through another message.

    Only messages whose data is part of the value count: each of them was read, sent, received and
    read again, and every read waits for the write of what it reads.

    Parameters
    ----------
    messages
        All messages.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._known: dict[int, dict[int, int]] = {}
        self._bit: dict[int, dict[int, int]] = {}
        owner = np.repeat(np.arange(messages.count), messages.sizes)
        order = np.argsort(messages.chunk, kind="stable")
        self._owner = owner[order]
        self._sorted = messages.chunk[order]

    def passed(self, chunk: int, message: int, earlier: int) -> bool:
        """Whether ``message`` carries a value of ``chunk`` that came through ``earlier``."""
        known = self._known.get(chunk)
        if known is None:
            known = self._known[chunk] = self._trace(chunk)
        return bool(known[message] >> self._bit[chunk][earlier] & 1)

    def _trace(self, chunk: int) -> dict[int, int]:
        """For every message with the chunk, the earlier ones its value came through, as bits."""
        m = self._messages
        a, b = np.searchsorted(self._sorted, [chunk, chunk + 1])
        mine = self._owner[a:b].tolist()
        bit = self._bit[chunk] = {message: i for i, message in enumerate(mine)}
        events = [(int(m.end[i]), 0, i) for i in mine] + [(int(m.start[i]), 1, i) for i in mine]
        at_rank: dict[int, int] = {}
        carried: dict[int, int] = {}
        for _, is_start, i in sorted(events):
            if is_start:
                carried[i] = at_rank.get(int(m.src[i]), 0)
            else:
                before = at_rank.get(int(m.dst[i]), 0) if m.reduce[i] else 0
                at_rank[int(m.dst[i])] = before | carried[i] | 1 << bit[i]
        return carried
