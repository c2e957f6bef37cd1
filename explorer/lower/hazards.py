"""Hazards: which steps of a rank must wait for which, because they touch the same memory.

Read after write, write after read, write after write, in the order of the plan. Nothing is left to
the back-pressure of FIFOs: every pair of conflicting accesses is ordered by the order of a block,
by a dependency, or by the messages that carried the value itself (:mod:`explorer.lower.lineage`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.lower.lineage import Lineage
from explorer.lower.memory import Memory
from explorer.lower.messages import Messages
from explorer.lower.steps import Steps
from sim.program import OP_READS_DST, OP_READS_SRC, OP_WRITES_DST

IntArray = npt.NDArray[np.int64]


def hazards(steps: Steps, messages: Messages, memory: Memory) -> list[list[int]]:
    """Steps that every step must wait for, some of them implied by others.

    Parameters
    ----------
    steps
        In the plan's order.
    messages, memory
        What they implement and where.

    Returns
    -------
    list[list[int]]
        Per step earlier steps of the same rank, sorted, without repetition.
    """
    return _Hazards(steps, messages, memory).found()


class _Hazards:
    def __init__(self, steps: Steps, messages: Messages, memory: Memory) -> None:
        self.steps, self.messages = steps, messages
        # step that last wrote an address, and the steps that have read it since
        self.writer: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        self.source = memory.addresses(steps.rank, steps.src_buf, steps.src_off).tolist()
        self.target = memory.addresses(steps.rank, steps.dst_buf, steps.dst_off).tolist()
        self.lineage = Lineage(messages) if memory.collective.reduces else None
        # message that a step receives, and that it sends as it is; -1 for none
        self.received = _at(steps.count, steps.receive)
        self.sent = _at(steps.count, steps.send)

    def found(self) -> list[list[int]]:
        steps = self.steps
        reads = OP_READS_SRC[steps.op].tolist()
        writes = OP_WRITES_DST[steps.op].tolist()
        rereads = OP_READS_DST[steps.op].tolist()
        waits: list[list[int]] = []
        for step, count in enumerate(steps.cnt.tolist()):
            after: set[int] = set()
            if reads[step]:
                self.read(step, self.source[step], count, after)
            if rereads[step]:
                self.expect(self.target[step], count, after)
            if writes[step]:
                self.write(step, self.target[step], count, after)
            after.discard(step)
            waits.append(sorted(after))
        return waits

    def read(self, step: int, address: int, count: int, after: set[int]) -> None:
        self.expect(address, count, after)
        readers = self.readers
        for a in range(address, address + count):
            if a in readers:
                readers[a].append(step)
            else:
                readers[a] = [step]

    def expect(self, address: int, count: int, after: set[int]) -> None:
        """Wait for whoever wrote what is read."""
        for a in range(address, address + count):
            wrote = self.writer.get(a)
            if wrote is not None:
                after.add(wrote)

    def write(self, step: int, address: int, count: int, after: set[int]) -> None:
        """Wait for whoever reads what is overwritten; each of them waited for its writer."""
        for i in range(count):
            a = address + i
            readers = self.readers.pop(a, None)
            if readers:
                after.update(r for r in readers if not self.carried(step, i, r, a))
            else:
                wrote = self.writer.get(a)
                if wrote is not None:
                    after.add(wrote)
            self.writer[a] = step

    def carried(self, step: int, index: int, reader: int, address: int) -> bool:
        """Whether a receive stores a value that came through the send that read the address."""
        if self.lineage is None:
            return False
        message, earlier = self.received[step], self.sent[reader]
        if message < 0 or earlier < 0 or self.received[reader] >= 0:
            return False
        chunk = self.chunk(message, index)
        return chunk == self.chunk(earlier, address - self.source[reader]) and self.lineage.passed(
            chunk, message, earlier
        )

    def chunk(self, message: int, index: int) -> int:
        """Chunk at a place in a message."""
        column = self.steps.order[self.messages.first[message] + index]
        return int(self.messages.chunk[column])


def _at(count: int, steps: IntArray) -> list[int]:
    """For every step the message it belongs to, -1 for none."""
    message = np.full(count, -1, dtype=np.int64)
    message[steps] = np.arange(len(steps))
    return message.tolist()
