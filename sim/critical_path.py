"""Critical path: what the time of a simulation is made of, from its beginning to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.network import Network
from sim.prepared import IntArray, LongArray, prepare
from sim.program import OP_TEXT, Program
from sim.result import SimResult

REASONS = ("link", "port wait", "dependency", "slot")
"""``link``: a message is on its way. ``port wait``: a send was ready but a resource was busy.
``dependency`` and ``slot`` take no time: there the path passes to the block whose step was waited
for, or to the receiver that freed a slot."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """One part of a critical path.

    Parameters
    ----------
    what
        The step, e.g. ``gpu 0 tb 1 step 3 (rcs, 2 chunks to gpu 4)``.
    where
        Resources of the path for ``link``, the resource waited for, else the step that was waited
        for.
    from_us, to_us
        When.
    reason
        One of :data:`REASONS`.
    """

    what: str
    where: str
    from_us: float
    to_us: float
    reason: str


def critical_path(program: Program, network: Network, result: SimResult) -> tuple[PathPart, ...]:
    """Follow what was waited for from the last completion back to the beginning.

    A send that waited for a resource is followed along its own ``port wait``, not along the
    transfers that kept the resource busy.

    Returns
    -------
    tuple[PathPart, ...]
        In order of time and without gaps: they begin at 0 and end at ``result.time_us``.
    """
    if not program.steps:
        return ()
    walk = _Walk(program, network, result)
    step = int(np.argmax(result.step_end_us))
    while step >= 0:
        step = walk.before_completion(step)
    return tuple(reversed(walk.parts))


class _Walk:
    """Parts found so far, latest first, and what is needed to look up who caused what."""

    def __init__(self, program: Program, network: Network, result: SimResult) -> None:
        self.program, self.network, self.result = program, network, result
        # sizes do not matter for who meets whom
        p = self.prepared = prepare(program, network, 0.0, result.cost_model)
        self.end = result.step_end_us
        self.row = np.full(program.steps, -1, np.int64)
        self.row[result.step] = np.arange(result.transfers)
        self.sends = _by_connection(np.flatnonzero(p.sends), p.step_block, p.conn_sender)
        self.recvs = _by_connection(np.flatnonzero(p.receives), p.step_block, p.conn_receiver)
        self.parts: list[PathPart] = []

    def before_completion(self, step: int) -> int:
        """Explain the end of a step; returns the step to explain next, -1 at the beginning."""
        p, row = self.prepared, int(self.row[step])
        if row < 0:
            return self.before_receipt(step) if p.receives[step] else self.before_reach(step)
        start, busy_end = float(self.result.start_us[row]), float(self.result.busy_end_us[row])
        names = [self.network.resources[r] for r in self.resources(row)]
        self.add(step, ", ".join(names), start, busy_end, "link")
        reached = self.receipt_us(step) if p.receives[step] else self.reach_us(step)
        freer = self.freer(step)
        freed = -np.inf if freer < 0 else self.receipt_us(freer)
        ready = max(reached, freed)
        if ready < start:
            self.add(step, self.freed_at(row, start), ready, start, "port wait")
        if freed > reached:
            self.add(step, self.program.where(freer), ready, ready, "slot")
            return self.before_receipt(freer)
        return self.before_receipt(step) if p.receives[step] else self.before_reach(step)

    def before_receipt(self, step: int) -> int:
        """Explain when a step received: its message arrived last, or it was reached last."""
        send = self.source(step)
        row = int(self.row[send])
        if self.result.arrive_us[row] < self.reach_us(step):
            return self.before_reach(step)
        busy_end, arrive = self.result.busy_end_us[row], self.result.arrive_us[row]
        if busy_end < arrive:
            names = [self.network.resources[r] for r in self.resources(row)]
            self.add(send, ", ".join(names), float(busy_end), float(arrive), "link")
        return send

    def before_reach(self, step: int) -> int:
        """Explain when a step was reached: the latest of its dependencies and its predecessor."""
        reached = self.reach_us(step)
        for dep in self.dependencies(step):
            if self.end[dep] == reached:
                self.add(step, self.program.where(int(dep)), reached, reached, "dependency")
                return int(dep)
        return self.predecessor(step)

    def reach_us(self, step: int) -> float:
        """When the predecessor and all dependencies of a step were complete."""
        before = self.predecessor(step)
        times = self.end[self.dependencies(step)]
        return float(max(times.max(initial=0.0), self.end[before] if before >= 0 else 0.0))

    def receipt_us(self, step: int) -> float:
        """When a receiving step took its message."""
        arrive = self.result.arrive_us[self.row[self.source(step)]]
        return max(self.reach_us(step), float(arrive))

    def dependencies(self, step: int) -> LongArray:
        first = self.program.dep_first
        return self.program.dep_step[first[step] : first[step + 1]]

    def predecessor(self, step: int) -> int:
        first = self.program.tb_first[self.prepared.step_block[step]]
        return step - 1 if step > first else -1

    def source(self, step: int) -> int:
        """Send step whose message a receiving step takes."""
        conn = self.prepared.block_in[self.prepared.step_block[step]]
        return int(self.sends[conn][np.searchsorted(self.recvs[conn], step)])

    def freer(self, step: int) -> int:
        """Receiving step that freed the slot of a send; -1 if it had never been used."""
        conn = self.prepared.block_out[self.prepared.step_block[step]]
        number = int(np.searchsorted(self.sends[conn], step)) - self.prepared.slots
        return int(self.recvs[conn][number]) if number >= 0 else -1

    def resources(self, row: int) -> IntArray:
        first, path = self.network.path_first, self.result.path[row]
        return self.network.path_resource[first[path] : first[path + 1]]

    def freed_at(self, row: int, time_us: float) -> str:
        """Name the first resource of a transfer that another one released when it started."""
        ended = self.result.path[self.result.busy_end_us == time_us]
        for resource in self.resources(row):
            for path in ended:
                first = self.network.path_first
                if resource in self.network.path_resource[first[path] : first[path + 1]]:
                    return self.network.resources[int(resource)]
        return ""

    def add(self, step: int, where: str, from_us: float, to_us: float, reason: str) -> None:
        program = self.program
        text: str = OP_TEXT[program.op[step]]
        if self.row[step] >= 0:
            peer = program.tb_send[self.prepared.step_block[step]]
            count = int(program.cnt[step])
            text += f", {count} chunk{'' if count == 1 else 's'} to gpu {peer}"
        what = f"{program.where(step)} ({text})"
        self.parts.append(PathPart(what, where, from_us, to_us, reason))


def _by_connection(steps: LongArray, step_block: IntArray, ends: IntArray) -> list[LongArray]:
    """Steps of the block at one end of every connection, of those given."""
    block = step_block[steps]
    first, last = np.searchsorted(block, ends, "left"), np.searchsorted(block, ends, "right")
    return [steps[a:z] for a, z in zip(first, last, strict=True)]
