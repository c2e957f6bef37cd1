"""Event loop of the compiled engine; see :mod:`sim.compiled` for why it is right.

All compiled functions are in this file: numba notices a change only in the file of the function
that it keeps on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import njit

from sim.flat import (
    BUCKETS,
    DATA,
    DEPENDENCY,
    DONE,
    FREE,
    HEADS,
    IDLE,
    JOBS,
    LATEST,
    LOOKS,
    RECEIVES,
    SENDS,
    SLOT,
    STARTED,
    TIMES,
    TRANSFER,
    Events,
    State,
    Tables,
    Waiters,
)
from sim.prepared import FloatArray, IntArray, LongArray

_F = TypeVar("_F", bound=Callable[..., object])

# Arrays are only borrowed here. Numba would still count references to them in the loops, which
# takes half of the time, and cannot see that it need not (numba issue 2350); `_nrt` turns it off.
_kernel: Callable[[_F], _F] = njit(cache=True, error_model="numpy", _nrt=False)
_inlined: Callable[[_F], _F] = njit(
    cache=True, error_model="numpy", _nrt=False, forceinline=True, no_cpython_wrapper=True
)


@_inlined
def _push(
    times: FloatArray,
    orders: LongArray,
    items: IntArray,
    base: int,
    size: int,
    time: float,
    order: int,
    item: int,
) -> None:
    """Insert into the heap of ``size`` entries that begins at ``base``."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        above = times[base + up]
        if above < time or (above == time and orders[base + up] < order):
            break
        times[base + at] = above
        orders[base + at] = orders[base + up]
        items[base + at] = items[base + up]
        at = up
    times[base + at] = time
    orders[base + at] = order
    items[base + at] = item


@_inlined
def _pop(times: FloatArray, orders: LongArray, items: IntArray, base: int, size: int) -> None:
    """Remove the first entry of the heap of ``size`` entries that begins at ``base``."""
    last = size - 1
    time = times[base + last]
    order = orders[base + last]
    item = items[base + last]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        below = times[base + down]
        if down + 1 < last:
            other = times[base + down + 1]
            if other < below or (other == below and orders[base + down + 1] < orders[base + down]):
                down += 1
                below = other
        if time < below or (time == below and order < orders[base + down]):
            break
        times[base + at] = below
        orders[base + at] = orders[base + down]
        items[base + at] = items[base + down]
        at = down
    times[base + at] = time
    orders[base + at] = order
    items[base + at] = item


@_inlined
def _place(time: float, table: IntArray) -> int:
    """Place of a time in the hash table: upper bits of its Fibonacci hash."""
    bits = np.uint64(np.float64(time).view(np.int64))
    mixed = np.int64((bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40))
    return int(mixed & (len(table) - 1))


@_inlined
def _schedule(e: Events, time: float, node: int) -> None:
    """Add a node to the bucket of its time, made and put into the event heap if it is new."""
    bucket = e.counts[LATEST]
    if bucket < 0 or e.bucket_time[bucket] != time:
        place = _place(time, e.table)
        bucket = int(e.table[place])
        while bucket >= 0 and e.bucket_time[bucket] != time:
            bucket = int(e.bucket_next[bucket])
        if bucket < 0:
            bucket = e.counts[FREE]
            if bucket >= 0:
                e.counts[FREE] = e.bucket_next[bucket]
            else:
                bucket = e.counts[BUCKETS]
                e.counts[BUCKETS] += 1
            e.bucket_time[bucket] = time
            e.bucket_node[bucket] = -1
            e.bucket_next[bucket] = e.table[place]
            e.table[place] = bucket
            _push(
                e.heap_time, e.heap_order, e.heap_bucket, 0, e.counts[TIMES], time, bucket, bucket
            )
            e.counts[TIMES] += 1
        e.counts[LATEST] = bucket
    e.node_next[node] = e.bucket_node[bucket]
    e.bucket_node[bucket] = node


@_inlined
def _next_instant(e: Events) -> int:
    """Take the earliest bucket out of the heap and the table; returns its first node."""
    bucket = int(e.heap_bucket[0])
    place = _place(e.heap_time[0], e.table)
    _pop(e.heap_time, e.heap_order, e.heap_bucket, 0, e.counts[TIMES])
    e.counts[TIMES] -= 1
    before = int(e.table[place])
    if before == bucket:
        e.table[place] = e.bucket_next[bucket]
    else:
        while e.bucket_next[before] != bucket:
            before = int(e.bucket_next[before])
        e.bucket_next[before] = e.bucket_next[bucket]
    e.bucket_next[bucket] = e.counts[FREE]
    e.counts[FREE] = bucket
    e.counts[LATEST] = -1
    return int(e.bucket_node[bucket])


@_inlined
def _before(w: Waiters, ready: float, order: int, entry: int) -> bool:
    """Tell whether a key comes before that of an entry."""
    other = w.ready[entry]
    return bool(ready < other or (ready == other and order < w.order[entry]))


@_inlined
def _move(w: Waiters, entry: int, to: int) -> None:
    """Copy an entry to another place."""
    w.ready[to] = w.ready[entry]
    w.order[to] = w.order[entry]
    w.block[to] = w.block[entry]
    w.blocker[to] = w.blocker[entry]


@_kernel
def _compact(w: Waiters, resource: int) -> None:
    """Drop the void entries of a list and move the others to the beginning of its room."""
    to = w.first[resource]
    in_order = to
    for entry in range(w.begin[resource], w.end[resource]):
        if w.waiting[w.block[entry]] == w.order[entry]:
            _move(w, entry, to)
            to += 1
            if entry < w.in_order[resource]:
                in_order = to
    w.begin[resource] = w.first[resource]
    w.end[resource] = to
    w.in_order[resource] = in_order


@_kernel
def _sort(w: Waiters, resource: int) -> None:
    """Bring a list into order: by insertion, after rough passes where much is out of order."""
    _compact(w, resource)
    begin, end = w.begin[resource], w.end[resource]
    gap = 1
    if end - w.in_order[resource] > 16:
        while 9 * gap < end - begin:
            gap = 3 * gap + 1
    while gap > 0:
        for entry in range(max(begin + gap, w.in_order[resource]), end):
            ready, order = w.ready[entry], w.order[entry]
            if not _before(w, ready, order, entry - gap):
                continue
            block, blocker = w.block[entry], w.blocker[entry]
            to = entry
            while to - gap >= begin and _before(w, ready, order, to - gap):
                _move(w, to - gap, to)
                to -= gap
            w.ready[to] = ready
            w.order[to] = order
            w.block[to] = block
            w.blocker[to] = blocker
        w.in_order[resource] = begin
        gap //= 3
    w.in_order[resource] = end


@_inlined
def _register(
    t: Tables, w: Waiters, use: int, ready: float, order: int, block: int, blocker: int
) -> None:
    """Add a ready send to the list of one of the resources it uses."""
    w.registered[use] = True
    resource = t.use[use]
    if w.end[resource] == w.first[resource + 1]:
        _compact(w, resource)
    entry = w.end[resource]
    if w.in_order[resource] == entry and (
        entry == w.begin[resource] or not _before(w, ready, order, entry - 1)
    ):
        w.in_order[resource] = entry + 1
    w.end[resource] = entry + 1
    w.ready[entry] = ready
    w.order[entry] = order
    w.block[entry] = block
    w.blocker[entry] = blocker


@_inlined
def _busy_use(t: Tables, s: State, conn: int) -> int:
    """First use of a connection whose resource is busy; -1 if all are free."""
    for use in range(t.use_first[conn], t.use_first[conn + 1]):
        if s.busy[t.use[use]]:
            return use
    return -1


@_inlined
def _offer(t: Tables, s: State, w: Waiters, resource: int) -> None:
    """From the cursor of a free resource on, find a send that can start; put it among the heads.

    One that cannot is registered at what blocks it too, so it need not be found here again.
    """
    entry, end = w.cursor[resource], w.end[resource]
    while entry < end:
        if s.busy[w.blocker[entry]] or w.waiting[w.block[entry]] != w.order[entry]:
            entry += 1
            continue
        ready, order, block = w.ready[entry], w.order[entry], w.block[entry]
        use = _busy_use(t, s, t.block_out[block])
        if use < 0:
            heads = w.counts[HEADS]
            _push(w.head_ready, w.head_order, w.head_resource, 0, heads, ready, order, resource)
            w.counts[HEADS] += 1
            break
        w.blocker[entry] = t.use[use]
        if not w.registered[use]:
            _register(t, w, use, ready, order, block, resource)
        entry += 1
    w.cursor[resource] = entry


@_inlined
def _look_at(w: Waiters, resource: int) -> None:
    """Note a free resource whose waiters are to be looked at."""
    if not w.looked[resource]:
        w.looked[resource] = True
        w.look[w.counts[LOOKS]] = resource
        w.counts[LOOKS] += 1


@_inlined
def _wake(s: State, block: int, cause: int) -> None:
    """Put a block on the work list if it waits for this."""
    if s.wait[block] == cause:
        s.wait[block] = IDLE
        s.work[s.counts[JOBS]] = block
        s.counts[JOBS] += 1


@_inlined
def _complete(t: Tables, s: State, step: int) -> None:
    """Count a completed step for those that depend on it."""
    for i in range(t.next_first[step], t.next_first[step + 1]):
        waiter = t.next_step[i]
        s.unmet[waiter] -= 1
        block = t.next_block[i]
        if s.unmet[waiter] == 0 and s.current[block] == waiter:
            _wake(s, block, DEPENDENCY)


@_inlined
def _start(t: Tables, s: State, e: Events, block: int) -> None:
    """Start the transfer of a block's current step."""
    step = s.current[block]
    s.mark[step] = s.clock[0]
    s.counts[STARTED] += 1
    _schedule(e, s.clock[0] + t.hold[step], block)


@_inlined
def _progress(t: Tables, s: State, w: Waiters, e: Events, block: int) -> None:
    """Let a block do all it can do in no time."""
    while True:
        step = s.current[block]
        if step == t.first[block + 1]:
            s.wait[block] = DONE
            return
        if s.unmet[step] > 0:
            s.wait[block] = DEPENDENCY
            return
        if t.kind[step] & RECEIVES and not s.received[block]:
            conn = t.block_in[block]
            if s.arrived[conn] == s.consumed[conn]:
                s.wait[block] = DATA
                return
            s.consumed[conn] += 1
            s.received[block] = True
            _wake(s, t.sender[conn], SLOT)
        if t.kind[step] & SENDS:
            conn = t.block_out[block]
            if s.sent[conn] - s.consumed[conn] == t.slots:
                s.wait[block] = SLOT
                return
            s.wait[block] = TRANSFER
            if t.use_first[conn] == t.use_first[conn + 1]:
                _start(t, s, e, block)
                return
            use = _busy_use(t, s, conn)
            if use < 0:
                use = t.use_first[conn]
                _look_at(w, t.use[use])
            w.waiting[block] = t.priority[step]
            _register(t, w, use, s.clock[0], t.priority[step], block, t.use[use])
            return
        s.mark[step] = s.clock[0]
        s.received[block] = False
        s.current[block] = step + 1
        _complete(t, s, step)


@_inlined
def _start_ready(t: Tables, s: State, w: Waiters, e: Events) -> None:
    """Start waiters of the free resources, in the order of all ready sends."""
    for i in range(w.counts[LOOKS]):
        resource = int(w.look[i])
        w.looked[resource] = False
        if w.in_order[resource] < w.end[resource]:
            _sort(w, resource)
        w.cursor[resource] = w.begin[resource]
        _offer(t, s, w, resource)
    w.counts[LOOKS] = 0
    while w.counts[HEADS] > 0:
        resource = int(w.head_resource[0])
        _pop(w.head_ready, w.head_order, w.head_resource, 0, w.counts[HEADS])
        w.counts[HEADS] -= 1
        if s.busy[resource]:
            continue
        entry = w.cursor[resource]
        block = int(w.block[entry])
        conn = t.block_out[block]
        if _busy_use(t, s, conn) >= 0:
            _offer(t, s, w, resource)
            continue
        for use in range(t.use_first[conn], t.use_first[conn + 1]):
            s.busy[t.use[use]] = True
            w.registered[use] = False
        w.waiting[block] = -1
        if entry == w.begin[resource]:
            w.begin[resource] = entry + 1
        _start(t, s, e, block)


@_inlined
def _end_hold(t: Tables, s: State, w: Waiters, e: Events, block: int) -> int:
    """Release a block and its resources; returns the connection if its message arrives now."""
    step = s.current[block]
    conn = int(t.block_out[block])
    for i in range(t.use_first[conn], t.use_first[conn + 1]):
        resource = t.use[i]
        s.busy[resource] = False
        if w.begin[resource] < w.end[resource]:
            _look_at(w, resource)
    s.received[block] = False
    s.current[block] = step + 1
    _complete(t, s, step)
    _wake(s, block, TRANSFER)
    arrival = s.clock[0] + t.delay[conn]
    slot = s.sent[conn] % t.slots
    s.sent[conn] += 1
    if arrival == s.clock[0]:
        return conn
    _schedule(e, arrival, len(s.current) + conn * t.slots + slot)
    return -1


@_kernel
def advance(stop_at: int, t: Tables, s: State, w: Waiters, e: Events) -> bool:
    """Run until ``stop_at`` transfers have started; returns whether events remain."""
    blocks = len(s.current)
    while True:
        if e.counts[TIMES] > 0:
            s.clock[0] = e.heap_time[0]
            node = _next_instant(e)
            while node >= 0:
                following = int(e.node_next[node])
                if node < blocks:
                    arrived = _end_hold(t, s, w, e, node)
                else:
                    arrived = (node - blocks) // t.slots
                if arrived >= 0:
                    s.arrived[arrived] += 1
                    if t.receiver[arrived] >= 0:
                        _wake(s, t.receiver[arrived], DATA)
                node = following
        while s.counts[JOBS] > 0:
            s.counts[JOBS] -= 1
            _progress(t, s, w, e, s.work[s.counts[JOBS]])
        _start_ready(t, s, w, e)
        if e.counts[TIMES] == 0 or s.counts[STARTED] >= stop_at:
            return bool(e.counts[TIMES] > 0)
