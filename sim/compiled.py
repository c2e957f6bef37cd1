"""Compiled engine: the semantics of :mod:`sim.engine` on numba over flat arrays.

What makes it fast, and why its results are those of the reference to the last bit:

- Event times are the same single additions, now + hold and end of hold + delay.
- Ends at equal times are one entry of the event heap, found through a hash of times. Their order
  inside the instant does not matter, nor does the order of zero-time progress: both only add
  arrived messages, free slots and completed steps, each with one producer and one consumer.
- A block has an event only while it sends; one that waits is woken by what it waits for.
- A resource that a single connection uses is never waited for, since the connection's block sends
  one message at a time; such resources are left out.
- A waiting send is registered at one resource of its path, a busy one once the instant is over.
  Only when that is freed is the send looked at again. Looking at the waiters of the free resources
  in the order of all ready sends, at each until it is busy again, starts exactly the sends that a
  look at all of them would, because starts free nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sim.flat import STARTED, events_of, state_of, tables_of, waiters_of
from sim.kernel import advance
from sim.limits import Limits
from sim.network import Network
from sim.prepared import FloatArray, Prepared, prepare
from sim.program import Buffer, Op, ProgramBuilder
from sim.times import Times
from sim.waiting import deadlock

_log = logging.getLogger(__name__)

SLICE = 200_000
"""Transfers between two looks at the limits and at Ctrl-C."""


def lay_out(prepared: Prepared) -> Callable[[Limits], Times]:
    """Lay a prepared program out in flat arrays.

    Returns
    -------
    Callable[[Limits], Times]
        The simulation, to be called once. Raises Deadlock if steps remain and nothing can go on,
        LimitReached if a limit is exceeded.
    """
    tables = tables_of(prepared)
    state = state_of(prepared, tables)
    waiters, events = waiters_of(prepared, tables), events_of(prepared)

    def run(limits: Limits) -> Times:
        most = np.iinfo(np.int64).max if limits.max_transfers is None else limits.max_transfers + 1
        going = True
        while going:
            stop_at = min(int(state.counts[STARTED]) + SLICE, most)
            going = advance(stop_at, tables, state, waiters, events)
            limits.check(int(state.counts[STARTED]), float(state.clock[0]))
        stuck = deadlock(prepared, state.current, state.received, float(state.clock[0]))
        if stuck is not None:
            raise stuck
        return _times(prepared, state.mark)

    return run


def load() -> None:
    """Load the machine code from disk, or compile it, which takes 5 to 10 s once per machine.

    Numba keeps it beside this file, or where ``NUMBA_CACHE_DIR`` says.
    """
    dispatcher: Any = advance
    if dispatcher.signatures:
        return
    cache = dispatcher.stats.cache_path
    if not (cache and any(Path(cache).glob("kernel.advance-*.nbi"))):
        _log.info("compiling the simulation engine, 5 to 10 s, once on this machine")
    builder = ProgramBuilder(ranks=2)
    builder.step(builder.block(0, send=1), Op.SEND, src=(Buffer.INPUT, 0))
    builder.step(builder.block(1, recv=0), Op.RECV, dst=(Buffer.INPUT, 0))
    network = Network(
        ranks=2,
        resources=("gpu0->gpu1",),
        path_src=np.array([0], np.int32),
        path_dst=np.array([1], np.int32),
        alpha_us=np.array([1.0]),
        beta_us_per_byte=np.array([0.0]),
        path_first=np.array([0, 1], np.int64),
        path_resource=np.array([0], np.int32),
    )
    program = builder.build(name="load", collective="custom", nchunks=1)
    lay_out(prepare(program, network, 1.0))(Limits())


def _times(p: Prepared, mark: FloatArray) -> Times:
    """Spread the marks: starts of sends, ends of other steps."""
    start = np.where(p.sends, mark, np.nan)
    busy_end = start + p.hold_us
    arrive = np.full(len(mark), np.nan)
    conn = p.block_out[p.step_block[p.sends]]
    arrive[p.sends] = busy_end[p.sends] + p.delay_us[conn]
    return Times(
        start_us=start,
        busy_end_us=busy_end,
        arrive_us=arrive,
        step_end_us=np.where(p.sends, busy_end, mark),
    )
