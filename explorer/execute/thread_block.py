"""ThreadBlock: steps in order, run by one Python thread."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from explorer.execute.connection import Incoming, Outgoing
from explorer.execute.definition import Elements
from explorer.execute.job import Job
from explorer.execute.monitor import Aborted, Monitor, Waiter
from sim.program import OP_RECEIVES, OP_SENDS, OP_TEXT, Op

PACES_S = (0.0, 0.0, 0.001, 0.004)
"""Longest delay before a step under jitter. A block keeps one pace, so some run far ahead."""


@dataclass(slots=True)
class Step:
    """One instruction with its operands as uint32 ``[cnt, elements]`` views of rank memory.

    Parameters
    ----------
    op, cnt
        As in the program.
    source, target
        Local operands; None where the op has none.
    waits
        Thread blocks and their steps to wait for, in the same iteration.
    raises
        Whether somebody waits for this step.
    """

    op: Op
    cnt: int
    source: Elements | None
    target: Elements | None
    waits: list[tuple[ThreadBlock, int]] = field(default_factory=list)
    raises: bool = False


class ThreadBlock(Waiter):
    """An ordered list of steps with at most one outgoing and one incoming connection.

    Parameters
    ----------
    monitor
        Of this process.
    rank, tb
        Rank and index on it.
    outgoing, incoming
        Its ends of connections.
    """

    def __init__(
        self,
        monitor: Monitor,
        rank: int,
        tb: int,
        outgoing: Outgoing | None,
        incoming: Incoming | None,
    ) -> None:
        super().__init__()
        self._monitor = monitor
        self._outgoing = outgoing
        self._incoming = incoming
        self._flag = 0  # iterations * steps + step + 1 of the last step that raised it
        self._watchers: list[tuple[int, Waiter]] = []
        self._at = (0, 0)
        self.rank = rank
        self.tb = tb
        self.steps: list[Step] = []

    def __str__(self) -> str:
        iteration, step = self._at
        op = OP_TEXT[self.steps[step].op]
        return f"gpu {self.rank} tb {self.tb} step {step} ({op}) of iteration {iteration}"

    def run(self, job: Job) -> None:
        """Run all steps for every tile of the chunks."""
        rng = None
        if job.jitter_seed is not None:
            rng = random.Random(f"{job.jitter_seed}/{self.rank}/{self.tb}")
            pace = rng.choice(PACES_S)
        for iteration in range(job.iterations):
            first = iteration * job.slot_elements
            tile = slice(first, min(first + job.slot_elements, job.elements))
            for index, step in enumerate(self.steps):
                self._at = (iteration, index)
                if self._monitor.aborted:
                    raise Aborted
                if rng is not None:
                    time.sleep(pace * rng.random())
                for other, target in step.waits:
                    other.await_step(self, iteration, target)
                self._execute(step, tile, job.per_message)
                if step.raises:
                    self._raise_flag(iteration * len(self.steps) + index + 1)

    def await_step(self, waiter: Waiter, iteration: int, step: int) -> None:
        """Let another thread block wait until this one has done a step."""
        value = iteration * len(self.steps) + step + 1
        with self._monitor.lock:
            if self._flag >= value:
                return
            self._watchers.append((value, waiter))
            self._monitor.park(waiter, f"step {step} of tb {self.tb}")
        self._monitor.sleep(waiter)

    def _raise_flag(self, value: int) -> None:
        with self._monitor.lock:
            self._flag = value
            for wanted, waiter in self._watchers:
                if wanted <= value:
                    self._monitor.unpark(waiter)
            self._watchers = [w for w in self._watchers if w[0] > value]

    def _execute(self, step: Step, tile: slice, per_message: int) -> None:
        """Run a step on one tile: message by message, or at once where nothing is sent."""
        op, source, target = step.op, step.source, step.target
        outgoing = self._outgoing if OP_SENDS[op] else None
        incoming = self._incoming if OP_RECEIVES[op] else None
        chunks = per_message if outgoing or incoming else step.cnt
        for first in range(0, step.cnt, chunks):
            part = slice(first, min(first + chunks, step.cnt))
            data = None if source is None else source[part, tile]
            if incoming is not None:
                shape = (part.stop - part.start, tile.stop - tile.start)
                message = incoming.peek(self, shape)
                data = message if data is None else message + data
            if outgoing is not None:
                outgoing.reserve(self)
            if target is not None and data is not None:
                if op == Op.REDUCE:
                    target[part, tile] += data
                else:
                    target[part, tile] = data
            if outgoing is not None and data is not None:
                outgoing.push(data.copy() if incoming is None else data)
            if incoming is not None:
                incoming.pop()
