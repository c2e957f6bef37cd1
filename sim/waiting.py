"""Who waits for whom: names the cycle or chain of a simulation in which nothing can go on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.errors import Deadlock
from sim.prepared import BoolArray, LongArray, Prepared


def deadlock(
    prepared: Prepared, current: npt.ArrayLike, received: npt.ArrayLike, time_us: float
) -> Deadlock | None:
    """Explain why steps remain although nothing can go on.

    From the first unfinished block on, whom the block waits for is followed: the first unmet
    dependency, the block that should send the next message, or the one that should free a slot.

    Parameters
    ----------
    current
        Current step of every block; the end of the block where it has finished.
    received
        Whether the current step of the block, if it is fused, has received already.

    Returns
    -------
    Deadlock | None
        With the cycle, beginning at its lowest block, or the chain; None if all blocks finished.
    """
    waiting = _Waiting(prepared, np.asarray(current, np.int64), np.asarray(received, np.bool_))
    unfinished = np.flatnonzero(waiting.current < prepared.program.tb_first[1:])
    if not len(unfinished):
        return None
    at: dict[int, int] = {}
    entries: list[str] = []
    block: int | None = int(unfinished[0])
    while block is not None and block not in at:
        at[block] = len(entries)
        text, block = waiting.reason(block)
        entries.append(text)
    if block is not None:
        blocks = list(at)[at[block] :]
        entries = entries[at[block] :]
        lowest = blocks.index(min(blocks))
        entries = entries[lowest:] + entries[:lowest]
    return Deadlock(time_us, entries)


class _Waiting:
    """State of a stuck simulation and the steps its messages belong to."""

    def __init__(self, prepared: Prepared, current: LongArray, received: BoolArray) -> None:
        self.prepared = prepared
        self.current = current
        self.received = received
        self.send_steps = np.flatnonzero(prepared.sends)
        self.recv_steps = np.flatnonzero(prepared.receives)

    def reason(self, block: int) -> tuple[str, int | None]:
        """Say what the current step of a block waits for, and which block that is up to."""
        program = self.prepared.program
        step = int(self.current[block])
        here = program.where(step)
        for dep in program.dep_step[program.dep_first[step] : program.dep_first[step + 1]]:
            owner = int(self.prepared.step_block[dep])
            if dep >= self.current[owner]:
                return f"{here} waits for {program.where(int(dep))}", owner
        if self.prepared.receives[step] and not self.received[block]:
            return self._data(here, block, step)
        return self._slot(here, block, step)

    def _data(self, here: str, block: int, step: int) -> tuple[str, int | None]:
        p = self.prepared
        number = self._count(self.recv_steps, block, step)
        conn = int(p.block_in[block])
        sender = int(p.conn_sender[conn])
        send = self._nth(self.send_steps, sender, number)
        if send is not None:
            return f"{here} waits for data from {p.program.where(send)}", sender
        end = self._end(self.send_steps, sender, "sends")
        return (
            f"{here} waits for message {number + 1} from gpu {p.conn_src[conn]} "
            f"on channel {p.conn_channel[conn]}, of which {end}",
            None,
        )

    def _slot(self, here: str, block: int, step: int) -> tuple[str, int | None]:
        p = self.prepared
        number = self._count(self.send_steps, block, step) - p.slots
        conn = int(p.block_out[block])
        receiver = int(p.conn_receiver[conn])
        recv = self._nth(self.recv_steps, receiver, number)
        if recv is not None:
            return f"{here} waits for a slot that {p.program.where(recv)} frees", receiver
        end = self._end(self.recv_steps, receiver, "receives")
        return (
            f"{here} waits for a slot of its connection to gpu {p.conn_dst[conn]} "
            f"on channel {p.conn_channel[conn]}, of which {end}",
            None,
        )

    def _end(self, steps: LongArray, block: int, verb: str) -> str:
        if block < 0:
            return f"no block {verb}"
        program = self.prepared.program
        count = self._count(steps, block, int(program.tb_first[block + 1]))
        return f"gpu {program.tb_rank[block]} tb {program.tb_id[block]} {verb} only {count}"

    def _count(self, steps: LongArray, block: int, before: int) -> int:
        """Count those steps of a block that come before a step."""
        first = self.prepared.program.tb_first[block]
        return int(np.searchsorted(steps, before) - np.searchsorted(steps, first))

    def _nth(self, steps: LongArray, block: int, number: int) -> int | None:
        if block < 0:
            return None
        tb_first = self.prepared.program.tb_first
        index = int(np.searchsorted(steps, tb_first[block])) + number
        if index < len(steps) and steps[index] < tb_first[block + 1]:
            return int(steps[index])
        return None
