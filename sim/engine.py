"""Reference engine on simpy: the specification of ``ideal`` fidelity.

Both engines implement this text and agree on every event time to the last bit.

A thread block runs its steps in order. A step is *reached* when its predecessor in the block and
all its dependencies are complete.

- Local steps (``cpy``, ``re``, ``nop``) are complete when reached.
- A receive is complete when it is reached and the j-th message of its connection, where it is the
  j-th receive, has arrived. That frees the message's slot.
- A send is *ready* when it is reached and a slot of its connection is free: fewer than
  ``PROTOCOLS[protocol].slots`` messages are in flight or unconsumed.
- A fused step first receives as above, which frees that slot, then is a send.

A send is one message of ``cnt`` chunks over the path from its rank to its peer and carries
b = cnt·chunk_bytes. A ready send starts when all resources of its path are free together. It takes
all of them at once or waits holding none, and a waiting one blocks nobody. Under ``exclusive`` it
holds them for alpha + b·beta and the message arrives at the end of that; under ``pipelined`` for
b·beta and the message arrives alpha later. At the end of the hold the send step is complete.

At one instant (equal float64 times), in this order:

1. all ends: resources are released, sends complete, messages arrive (also one whose hold ends now
   and whose alpha does not move the clock);
2. zero-time progress of all blocks until nothing changes;
3. starts: every ready send, by (time it became ready, (dst - src) mod R, channel, index in the
   block, src), starts if its resources are free. One whose end falls on the same instant leads
   back to 1.

When no end is to come and steps remain, the program deadlocks. Messages that nobody receives are
not an error here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import simpy

from sim.limits import Limits
from sim.prepared import Prepared
from sim.times import Times
from sim.waiting import deadlock

_Ready = tuple[float, int, int, int, int, int]
"""Order in which ready sends are looked at; the last entry is the step."""


def lay_out(prepared: Prepared) -> Callable[[Limits], Times]:
    """Unpack a prepared program.

    Returns
    -------
    Callable[[Limits], Times]
        The simulation, to be called once. Raises Deadlock if steps remain and nothing can go on,
        LimitReached if a limit is exceeded.
    """
    return _Run(prepared).to_the_end


class _Run:
    """One simulation. Numpy arrays are unpacked to lists, whose elements Python reads faster."""

    def __init__(self, prepared: Prepared) -> None:
        program, network = prepared.program, prepared.network
        self.prepared = prepared
        self.env = simpy.Environment()
        self.ranks, self.slots = program.ranks, prepared.slots
        self.first: list[int] = program.tb_first[:-1].tolist()
        self.sends: list[bool] = prepared.sends.tolist()
        self.receives: list[bool] = prepared.receives.tolist()
        self.step_block: list[int] = prepared.step_block.tolist()
        self.block_out: list[int] = prepared.block_out.tolist()
        self.block_in: list[int] = prepared.block_in.tolist()
        self.sender: list[int] = prepared.conn_sender.tolist()
        self.receiver: list[int] = prepared.conn_receiver.tolist()
        self.src: list[int] = prepared.conn_src.tolist()
        self.dst: list[int] = prepared.conn_dst.tolist()
        self.channel: list[int] = prepared.conn_channel.tolist()
        self.next_first: list[int] = prepared.next_first.tolist()
        self.next_step: list[int] = prepared.next_step.tolist()
        self.hold_us: list[float] = prepared.hold_us.tolist()
        self.delay_us: list[float] = prepared.delay_us.tolist()
        self.resources: list[list[int]] = [
            network.path_resource[network.path_first[p] : network.path_first[p + 1]].tolist()
            if p >= 0
            else []
            for p in prepared.conn_path.tolist()
        ]
        # state of blocks
        self.current = list(self.first)
        self.end: list[int] = program.tb_first[1:].tolist()
        self.received = [False] * program.blocks
        self.sending = [False] * program.blocks
        self.unmet: list[int] = np.diff(program.dep_first).tolist()
        # state of connections: messages sent, arrived, consumed so far
        self.sent = [0] * prepared.connections
        self.arrived = [0] * prepared.connections
        self.consumed = [0] * prepared.connections
        # state of the network
        self.busy = [False] * len(network.resources)
        self.ready: list[_Ready] = []
        self.awake: list[int] = list(range(program.blocks))
        self.transfers = 0
        # what is found out
        self.start_us = [math.nan] * program.steps
        self.busy_end_us = [math.nan] * program.steps
        self.arrive_us = [math.nan] * program.steps
        self.step_end_us = [math.nan] * program.steps

    def to_the_end(self, limits: Limits) -> Times:
        """Alternate progress and starts with the ends of the next instant."""
        env = self.env
        while True:
            while self.awake:
                self.progress(self.awake.pop())
            self.start_ready()
            limits.check(self.transfers, env.now)
            instant = env.peek()
            if instant == math.inf:
                break
            while env.peek() == instant:
                env.step()
        stuck = deadlock(self.prepared, self.current, self.received, env.now)
        if stuck is not None:
            raise stuck
        return Times(
            start_us=np.array(self.start_us, np.float64),
            busy_end_us=np.array(self.busy_end_us, np.float64),
            arrive_us=np.array(self.arrive_us, np.float64),
            step_end_us=np.array(self.step_end_us, np.float64),
        )

    def progress(self, block: int) -> None:
        """Let a block do all it can do in no time; waking it in vain does no harm."""
        while not self.sending[block] and self.current[block] < self.end[block]:
            step = self.current[block]
            if self.unmet[step] > 0:
                return
            if self.receives[step] and not self.received[block]:
                conn = self.block_in[block]
                if self.consumed[conn] == self.arrived[conn]:
                    return
                self.consumed[conn] += 1
                self.received[block] = True
                self.wake(self.sender[conn])
            if self.sends[step]:
                conn = self.block_out[block]
                if self.sent[conn] - self.consumed[conn] == self.slots:
                    return
                self.sent[conn] += 1
                self.sending[block] = True
                self.ready.append(self.order(step, conn))
                return
            self.complete(step)

    def order(self, step: int, conn: int) -> _Ready:
        """Key of a send that is ready now."""
        src, dst = self.src[conn], self.dst[conn]
        index = step - self.first[self.step_block[step]]
        offset = (dst - src) % self.ranks
        return (self.env.now, offset, self.channel[conn], index, src, step)

    def start_ready(self) -> None:
        """Start the ready sends whose resources are free together, in their order."""
        self.ready.sort()
        waiting = []
        for key in self.ready:
            step = key[-1]
            resources = self.resources[self.block_out[self.step_block[step]]]
            if any(self.busy[r] for r in resources):
                waiting.append(key)
                continue
            for r in resources:
                self.busy[r] = True
            self.transfers += 1
            self.start_us[step] = self.env.now
            self.after(self.hold_us[step], self.hold_ended, step)
        self.ready = waiting

    def hold_ended(self, event: simpy.Event) -> None:
        """Release resources and the block; the message arrives now or after its delay."""
        step = _step_of(event)
        block = self.step_block[step]
        conn = self.block_out[block]
        for r in self.resources[conn]:
            self.busy[r] = False
        self.busy_end_us[step] = self.env.now
        self.sending[block] = False
        self.complete(step)
        self.wake(block)
        if self.delay_us[conn] > 0:
            self.after(self.delay_us[conn], self.delay_ended, step)
        else:
            self.arrive(step)

    def delay_ended(self, event: simpy.Event) -> None:
        """Let the message arrive."""
        self.arrive(_step_of(event))

    def arrive(self, step: int) -> None:
        """Hand a message to the receiver's side of its connection."""
        conn = self.block_out[self.step_block[step]]
        self.arrive_us[step] = self.env.now
        self.arrived[conn] += 1
        self.wake(self.receiver[conn])

    def complete(self, step: int) -> None:
        """Move the block of a step on and wake those who waited for the step."""
        block = self.step_block[step]
        self.step_end_us[step] = self.env.now
        self.current[block] = step + 1
        self.received[block] = False
        for waiter in self.next_step[self.next_first[step] : self.next_first[step + 1]]:
            self.unmet[waiter] -= 1
            self.wake(self.step_block[waiter])

    def wake(self, block: int) -> None:
        """Have a block look again what it can do; -1 is nobody."""
        if block >= 0:
            self.awake.append(block)

    def after(self, delay_us: float, then: simpy.events.EventCallback, step: int) -> None:
        """Call back after a delay; one of 0 still comes before the instant is over."""
        timeout = self.env.timeout(delay_us, step)
        timeout.callbacks.append(then)


def _step_of(event: simpy.Event) -> int:
    return cast(int, event.value)
