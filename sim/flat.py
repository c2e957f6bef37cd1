"""Flat arrays that the compiled engine works on, grouped by what they describe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.prepared import BoolArray, ByteArray, FloatArray, IntArray, LongArray, Prepared

RECEIVES, SENDS = 1, 2
"""Bits of a step's kind."""

IDLE, DONE, DEPENDENCY, DATA, SLOT, TRANSFER = range(6)
"""What a block waits for; an idle one is on the work list."""


class Tables(NamedTuple):
    """What does not change; names as in Prepared. Resources are the contested ones, from 0."""

    first: LongArray
    kind: ByteArray
    block_out: IntArray
    block_in: IntArray
    sender: IntArray
    receiver: IntArray
    next_first: LongArray
    next_step: LongArray
    next_block: IntArray
    priority: LongArray
    hold: FloatArray
    delay: FloatArray
    use_first: LongArray
    use: IntArray
    slots: int


class State(NamedTuple):
    """Clock, blocks, connections and resources.

    ``mark`` is the start of a send and the end of any other step; ``work`` lists the idle blocks.
    """

    clock: FloatArray
    counts: LongArray
    mark: FloatArray
    unmet: IntArray
    current: LongArray
    wait: ByteArray
    received: BoolArray
    sent: LongArray
    arrived: LongArray
    consumed: LongArray
    busy: BoolArray
    work: IntArray


STARTED, JOBS = 0, 1
"""Indices into ``State.counts``: transfers started, length of ``work``."""


class Waiters(NamedTuple):
    """Lists of ready sends, one per resource.

    The list of resource r is the entries ``begin[r]:end[r]``, inside ``first[r]:first[r+1]``, of
    (ready time, order, block, a resource that was busy when the entry was last looked at). Up to
    ``in_order[r]`` they rise. An entry is void once its block no longer waits with that order.
    ``waiting`` is the order a block waits with, -1 for none; ``registered`` says at which uses of
    its connection. ``look`` lists the free resources whose lists are to be looked at, ``cursor``
    is how far that got, and ``head_*`` is the heap of what was found there.
    """

    first: LongArray
    begin: LongArray
    end: LongArray
    in_order: LongArray
    ready: FloatArray
    order: LongArray
    block: IntArray
    blocker: IntArray
    waiting: LongArray
    registered: BoolArray
    counts: LongArray
    look: IntArray
    looked: BoolArray
    cursor: LongArray
    head_ready: FloatArray
    head_order: LongArray
    head_resource: IntArray


LOOKS, HEADS = 0, 1
"""Indices into ``Waiters.counts``: length of ``look``, size of the heap of heads."""


class Events(NamedTuple):
    """Ends to come: a heap of distinct times, each with a bucket, found by a hash of the time.

    A bucket is a linked list of nodes: block b, whose hold ends, or T + a slot of a connection,
    whose message arrives.
    """

    counts: LongArray
    heap_time: FloatArray
    heap_order: LongArray
    heap_bucket: IntArray
    bucket_time: FloatArray
    bucket_node: IntArray
    bucket_next: IntArray
    table: IntArray
    node_next: IntArray


TIMES, BUCKETS, FREE, LATEST = range(4)
"""Indices into ``Events.counts``: size of the heap, buckets ever used, first free bucket, bucket of
the latest event (-1: none)."""


def tables_of(p: Prepared) -> Tables:
    """Lay out what does not change."""
    use_first, use = _contested(p)
    return Tables(
        first=p.program.tb_first.astype(np.int64),
        kind=(RECEIVES * p.receives + SENDS * p.sends).astype(np.int8),
        block_out=p.block_out,
        block_in=p.block_in,
        sender=p.conn_sender,
        receiver=p.conn_receiver,
        next_first=p.next_first,
        next_step=p.next_step,
        next_block=p.step_block[p.next_step],
        priority=p.priority,
        hold=p.hold_us,
        delay=p.delay_us,
        use_first=use_first,
        use=use,
        slots=p.slots,
    )


def _contested(p: Prepared) -> tuple[LongArray, IntArray]:
    """List, per connection, the resources of its path that other connections use too, from 0."""
    first, resource = p.network.path_first, p.network.path_resource
    has_path = p.conn_path >= 0
    start = np.where(has_path, first[p.conn_path], 0)
    length = np.where(has_path, first[p.conn_path + 1] - first[p.conn_path], 0)
    conn = np.repeat(np.arange(p.connections), length)
    before = np.cumsum(length) - length
    use = resource[np.arange(len(conn)) + np.repeat(start - before, length)]
    shared = np.bincount(use, minlength=len(p.network.resources)) > 1
    number = np.cumsum(shared) - 1
    kept = shared[use]
    counts = np.bincount(conn[kept], minlength=p.connections)
    use_first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return use_first, number[use[kept]].astype(np.int32)


def state_of(p: Prepared, tables: Tables) -> State:
    """State at the beginning: all blocks idle."""
    blocks, conns = p.program.blocks, p.connections
    return State(
        clock=np.zeros(1, np.float64),
        counts=np.array([0, blocks], np.int64),
        mark=np.empty(p.program.steps, np.float64),
        unmet=np.diff(p.program.dep_first).astype(np.int32),
        current=p.program.tb_first[:-1].astype(np.int64),
        wait=np.zeros(blocks, np.int8),
        received=np.zeros(blocks, np.bool_),
        sent=np.zeros(conns, np.int64),
        arrived=np.zeros(conns, np.int64),
        consumed=np.zeros(conns, np.int64),
        busy=np.zeros(int(tables.use.max(initial=-1)) + 1, np.bool_),
        work=np.arange(blocks - 1, -1, -1, dtype=np.int32),
    )


def waiters_of(p: Prepared, tables: Tables) -> Waiters:
    """Nobody waits. A list has room for as many void entries as there can be others."""
    uses = np.bincount(tables.use)
    resources, places = len(uses), 2 * len(tables.use)
    first = np.concatenate(([0], np.cumsum(2 * uses))).astype(np.int64)
    return Waiters(
        first=first,
        begin=first[:-1].copy(),
        end=first[:-1].copy(),
        in_order=first[:-1].copy(),
        ready=np.empty(places, np.float64),
        order=np.empty(places, np.int64),
        block=np.empty(places, np.int32),
        blocker=np.empty(places, np.int32),
        waiting=np.full(p.program.blocks, -1, np.int64),
        registered=np.zeros(len(tables.use), np.bool_),
        counts=np.zeros(2, np.int64),
        look=np.empty(resources, np.int32),
        looked=np.zeros(resources, np.bool_),
        cursor=np.empty(resources, np.int64),
        head_ready=np.empty(resources, np.float64),
        head_order=np.empty(resources, np.int64),
        head_resource=np.empty(resources, np.int32),
    )


def events_of(p: Prepared) -> Events:
    """No event yet. There is a node per slot only where messages arrive after the hold."""
    nodes = p.program.blocks + (p.connections * p.slots if p.delay_us.any() else 0)
    return Events(
        counts=np.array([0, 0, -1, -1], np.int64),
        heap_time=np.empty(nodes, np.float64),
        heap_order=np.empty(nodes, np.int64),
        heap_bucket=np.empty(nodes, np.int32),
        bucket_time=np.empty(nodes, np.float64),
        bucket_node=np.empty(nodes, np.int32),
        bucket_next=np.empty(nodes, np.int32),
        table=np.full(1 << max(4, min(nodes.bit_length(), 20)), -1, np.int32),
        node_next=np.empty(nodes, np.int32),
    )
