"""Messages: a schedule's groups in planned order, with integer times and the addresses they touch.

Everything here is one pass of numpy over all sends. Times become *ticks*, numbers of the distinct
instants of the plan, so that later comparisons are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.errors import InputError, Problem
from explorer.lower.memory import Memory
from explorer.lower.sends import SAME_TIME, Sends

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """The messages of a schedule, sorted by (start, src, dst, group, instance).

    Parameters
    ----------
    collective
        What they implement, on split chunks where there are several instances.
    instances
        Copies of the schedule, each on its share of every rank's block.
    src, dst, instance
        int64 ``[M]``: ends of the message and its instance.
    hold
        int64 ``[M]``: as in :class:`explorer.lower.sends.Sends`.
    start, release, end
        int64 ``[M]``: ticks at which the message starts, at which the sender is free again, and at
        which its chunks have arrived.
    reduce
        bool ``[M]``: the receiver adds the chunks to what it has.
    first
        int64 ``[M+1]``: message m has the columns ``first[m] … first[m+1]-1`` of what follows.
    chunk
        int64 ``[N]``.
    source_key, target_key
        int64 ``[N]``: number of the pair (rank, chunk) at both ends.
    source_input, target_input, target_output
        int64 ``[N]``: cell of the chunk in the sender's and in the receiver's input and in the
        receiver's output, -1 where it has none.
    alias_busy
        int64 ``[N]``: last tick at which the input chunk that may share memory with
        ``target_output`` is still being sent, -1 for none.
    last
        bool ``[N]``: no later message brings this chunk to this receiver.
    forward
        int64 ``[N]``: first message that takes the chunk on from the receiver, M for none.
    ticks
        Number of instants.
    own
        Chunks that start where they must end: :class:`OwnCopies`.
    """

    collective: Collective
    instances: int
    src: IntArray
    dst: IntArray
    instance: IntArray
    hold: IntArray
    start: IntArray
    release: IntArray
    end: IntArray
    reduce: npt.NDArray[np.bool_]
    first: IntArray
    chunk: IntArray
    source_key: IntArray
    target_key: IntArray
    source_input: IntArray
    target_input: IntArray
    target_output: IntArray
    alias_busy: IntArray
    last: npt.NDArray[np.bool_]
    forward: IntArray
    ticks: int
    own: OwnCopies

    @property
    def count(self) -> int:
        """Number of messages M."""
        return len(self.src)

    @property
    def sizes(self) -> IntArray:
        """Chunks in every message, int64 ``[M]``."""
        return np.diff(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class OwnCopies:
    """Chunks that start where they must end and are brought by no message.

    Parameters
    ----------
    rank, instance, input, output
        int64: whose they are, and their cells in input and output.
    key
        int64: number of the pair (rank, chunk), -1 when no message has it.
    """

    rank: IntArray
    instance: IntArray
    input: IntArray
    output: IntArray
    key: IntArray


def split_collective(collective: Collective, instances: int) -> Collective:
    """The collective on chunks cut into ``instances`` parts."""
    return Collective(
        collective.name,
        collective.ranks,
        collective.chunks_per_rank * instances,
        collective.root,
    )


def planned_messages(table: Sends, memory: Memory, instances: int = 1) -> Messages:
    """Add times as numbers and addresses to the messages of a plan.

    Parameters
    ----------
    table
        Messages in planned order, already copied ``instances`` times.
    memory
        Of the collective on chunks that are split as often.
    instances
        Copies of the plan.

    Raises
    ------
    InputError
        If a chunk is sent before it is there or does not come where it must; the first ten
        problems.
    """
    (start, release, end), ticks = _ticks(table)
    pairs = _Pairs(memory, table)
    source, target = pairs.source, pairs.target
    begin, arrive = start[table.message], end[table.message]
    arrived = np.full(len(pairs.keys), ticks, dtype=np.int64)
    np.minimum.at(arrived, target, arrive)
    source_input = memory.input_cell(table.src[table.message], table.chunk)
    own = _own_copies(memory, pairs, arrived < ticks, instances)
    _check(table, memory, source_input, begin < arrived[source], own)
    # sends of what a rank contributes itself, until which its input must stay as it is
    contributed = begin < arrived[source]
    busy = np.full(len(pairs.keys), -1, dtype=np.int64)
    np.maximum.at(busy, source[contributed], release[table.message][contributed])
    dst = table.dst[table.message]
    target_output = memory.output_cell(dst, table.chunk)
    aliased = memory.aliased_chunk(target_output)
    shared, known = pairs.number(dst, aliased)
    return Messages(
        collective=memory.collective,
        instances=instances,
        src=table.src,
        dst=table.dst,
        instance=table.instance,
        hold=table.hold,
        start=start,
        release=release,
        end=end,
        reduce=table.reduce,
        first=np.searchsorted(table.message, np.arange(len(table.src) + 1)).astype(np.int64),
        chunk=table.chunk,
        source_key=source,
        target_key=target,
        source_input=source_input,
        target_input=memory.input_cell(dst, table.chunk),
        target_output=target_output,
        alias_busy=np.where(known & (aliased >= 0), busy[shared], -1),
        last=_last(table, target, arrive),
        forward=_forwards(table, pairs, begin, arrive, ticks),
        ticks=ticks,
        own=own,
    )


class _Pairs:
    """Numbers of the (rank, chunk) pairs that messages read and write."""

    def __init__(self, memory: Memory, table: Sends) -> None:
        self.chunks = memory.collective.chunk_count
        src, dst = table.src[table.message], table.dst[table.message]
        both = np.concatenate((src, dst)) * self.chunks
        self.keys, number = np.unique(
            both + np.concatenate((table.chunk, table.chunk)), return_inverse=True
        )
        self.source, self.target = number[: len(src)], number[len(src) :]

    def number(self, rank: IntArray, chunk: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Number of each pair, and whether it has one."""
        wanted = rank * self.chunks + chunk
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return at, self.keys[at] == wanted


def _ticks(table: Sends) -> tuple[IntArray, int]:
    """Number the instants of the plan: of start, release and end, int64 ``[3, M]``."""
    shortest = float((table.end_us - table.start_us).min())
    times = np.stack((table.start_us, table.release_us, table.end_us))
    instants, inverse = np.unique(times, return_inverse=True)
    new = np.append(True, np.diff(instants) > SAME_TIME * shortest)
    number = np.cumsum(new) - 1
    return number[inverse].reshape(times.shape), int(number[-1]) + 1


def _own_copies(
    memory: Memory, pairs: _Pairs, brought: npt.NDArray[np.bool_], instances: int
) -> OwnCopies:
    rank, chunk = np.divmod(memory.output_keys(), memory.collective.chunk_count)
    at, known = pairs.number(rank, chunk)
    alone = ~(known & brought[at])
    rank, chunk = rank[alone], chunk[alone]
    per_rank = memory.collective.chunks_per_rank
    return OwnCopies(
        rank=rank,
        instance=chunk % per_rank // (per_rank // instances),
        input=memory.input_cell(rank, chunk),
        output=memory.output_cell(rank, chunk),
        key=np.where(known, at, -1)[alone],
    )


def _last(table: Sends, target: IntArray, arrive: IntArray) -> npt.NDArray[np.bool_]:
    """Whether no later message brings the chunk to the receiver."""
    order = np.lexsort((table.message, arrive, target))
    last = np.zeros(len(order), dtype=np.bool_)
    last[order[np.append(np.diff(target[order]) != 0, True)]] = True
    return last


def _forwards(
    table: Sends, pairs: _Pairs, begin: IntArray, arrive: IntArray, ticks: int
) -> IntArray:
    """First message that takes the chunk on from the receiver."""
    when = pairs.source * (ticks + 1) + begin
    order = np.argsort(when, kind="stable")
    at = np.searchsorted(when[order], pairs.target * (ticks + 1) + arrive)
    inside = order[np.minimum(at, len(order) - 1)]
    found = (at < len(order)) & (pairs.source[inside] == pairs.target)
    return np.where(found, table.message[inside], len(table.src))


def _check(
    table: Sends,
    memory: Memory,
    source_input: IntArray,
    contributed: npt.NDArray[np.bool_],
    own: OwnCopies,
) -> None:
    early = np.flatnonzero((source_input < 0) & contributed)
    problems = [
        Problem(
            "schedule",
            f"rank {table.src[m]} sends chunk {table.chunk[i]} at {table.start_us[m]:g} us,"
            " before it has it",
        )
        for i, m in zip(early[:10].tolist(), table.message[early].tolist(), strict=False)
    ]
    # a sum over several ranks needs a message
    absent = np.flatnonzero((own.input < 0) | memory.collective.reduces)
    problems += [
        Problem(
            "schedule",
            f"no message completes output chunk {own.output[i] & 0xFFFF_FFFF} of rank"
            f" {own.rank[i]}",
        )
        for i in absent[:10].tolist()
    ]
    if problems:
        raise InputError(problems[:10])


def drained(messages: Messages, slots: int) -> IntArray:
    """Tick by which each send is over whatever the chunk size: int64 ``[M]``.

    A transfer of k chunks is up to k messages, of which all but the last ``slots`` must have been
    received before its send is over. Under ``pipelined`` that can be later than ``release``, which
    counts on free slots.
    """
    pair = (messages.src * messages.collective.ranks + messages.dst) * messages.instances
    pair = pair + messages.instance
    order = np.argsort(pair, kind="stable")
    # chunks sent so far over all connections, one after the other
    sent = np.cumsum(messages.sizes[order])
    first = np.append(True, np.diff(pair[order]) != 0)
    before = np.maximum.accumulate(np.where(first, sent - messages.sizes[order], 0))
    must_be_out = sent - slots
    until = messages.release.copy()
    waits = must_be_out > before
    last = np.searchsorted(sent, must_be_out[waits])
    until[order[waits]] = np.maximum(until[order[waits]], messages.end[order[last]])
    return until
