"""Unfuse: a program without fused receives, for runtimes that have none (rccl).

=========  ==========================================================================
``rcs``    ``r`` to the destination, ``s`` from there
``rrc``    ``r`` to the destination, ``re`` of the local operand into it; where these may
           be one memory, ``r`` into scratch and ``re`` (``cpy``) from there
``rrcs``   the same, ``s`` from the destination
``rrs``    ``r`` into scratch, ``re`` of the local operand into it, ``s`` from there
=========  ==========================================================================

A block keeps its order, so nothing else changes: no new race is possible, and no new deadlock,
since a receive no longer waits for a free slot to send on. Only a block that would have too many
steps is *split* in one that receives (and works locally) and one that sends. There a send waits for
the part of the other block that was before it; a receive waits for an earlier send only if it
overwrites what that one reads; and what waited for a step of the old block waits for both parts, if
the one does not imply the other. A connection that is still too long *goes on* in further blocks
on further channels, both of its ends at the same message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from explorer.lower.limits import EVERYWHERE, Limits, step_weight
from explorer.lower.unfused_steps import FUSED, Cell, UnfusedStep, UnfusedSteps
from sim.program import OP_WRITES_DST, Program, ProgramBuilder

Key = tuple[int, int, int, int]
"""Rank, peer it sends to, peer it receives from (-1: none) and channel of a block."""


def unfused(program: Program, limits: Limits = EVERYWHERE) -> Program:
    """Rewrite a program without fused receives.

    Parameters
    ----------
    program
        Free of races and deadlocks; it stays so.
    limits
        Blocks are split and go on in others to keep to its steps per block; what cannot be met is
        left to :func:`explorer.lower.limits.fits` to say.

    Returns
    -------
    Program
        The same program where it has no fused receives and no block is too long. It serves the
        sizes of the original.
    """
    most = limits.steps
    weights = np.maximum(np.diff(program.dep_first), 1)
    if not np.any(FUSED[program.op]) and (
        most is None or not np.any(np.add.reduceat(weights, program.tb_first[:-1]) > most)
    ):
        return program
    steps = UnfusedSteps(program)
    split: set[int] = set()
    while True:
        streams = _Streams(steps, split)
        more = streams.to_split(most) - split
        if not more:
            return streams.program(most)
        split |= more


@dataclass(slots=True)
class _Stream:
    """A new block: its old one, peers and steps."""

    old: int
    key: Key
    steps: list[int] = field(default_factory=list)


class _Streams:
    """New blocks, some old ones split in two, and what each step waits for.

    Parameters
    ----------
    split
        Old blocks that are split.
    """

    def __init__(self, steps: UnfusedSteps, split: set[int]) -> None:
        self._all = steps
        self._split = split
        program = steps.program
        self.streams: list[_Stream] = []
        self._waits: dict[int, set[int]] = defaultdict(set)
        self._implied: dict[int, int] = {}
        """For a step of a split block the latest step of the other half that it implies."""
        for block in range(program.blocks):
            first, last = int(program.tb_first[block]), int(program.tb_first[block + 1])
            own = list(range(steps.of_old[first][0], steps.of_old[last - 1][-1] + 1))
            if block in split:
                self._halve(block, own)
            else:
                self.streams.append(self._stream(block, own))
        for old in range(program.steps):
            for k in range(int(program.dep_first[old]), int(program.dep_first[old + 1])):
                self._waits[steps.waiter[old]].update(self._ends(int(program.dep_step[k])))

    def _stream(self, block: int, own: list[int]) -> _Stream:
        program, steps = self._all.program, self._all.steps
        sends = any(steps[i].sends for i in own)
        receives = any(steps[i].moves and not steps[i].sends for i in own)
        key = (
            self._all.rank_of[block],
            int(program.tb_send[block]) if sends else -1,
            int(program.tb_recv[block]) if receives else -1,
            int(program.tb_channel[block]),
        )
        return _Stream(block, key, own)

    def _halve(self, block: int, own: list[int]) -> None:
        """Split a block; a step of one half waits for the other where the memory needs it."""
        steps, rank = self._all.steps, self._all.rank_of[block]
        halves: dict[bool, list[int]] = {False: [], True: []}
        waited = {False: -1, True: -1}
        read: dict[Cell, int] = {}
        for i in own:
            step = steps[i]
            if step.sends:
                need = halves[False][-1] if halves[False] else -1
                read.update(dict.fromkeys(self._all.cells(rank, step.src, step.cnt), i))
            else:
                need = self._overwritten(rank, step, read)
            if need > waited[step.sends]:
                self._waits[i].add(need)
                waited[step.sends] = need
            self._implied[i] = waited[step.sends]
            halves[step.sends].append(i)
        self.streams += [self._stream(block, half) for half in halves.values() if half]

    def _overwritten(self, rank: int, step: UnfusedStep, read: dict[Cell, int]) -> int:
        """Latest send that read what a step writes, or -1."""
        if not OP_WRITES_DST[step.op]:
            return -1
        cells = self._all.cells(rank, step.dst, step.cnt)
        return max((read.get(cell, -1) for cell in cells), default=-1)

    def _ends(self, old: int) -> Iterable[int]:
        """Steps that imply an old step and all before it in its block."""
        last, block = self._all.of_old[old][-1], self._all.block_of[old]
        if block not in self._split:
            return (last,)
        steps = self._all.steps
        first = self._all.of_old[int(self._all.program.tb_first[block])][0]
        others = (i for i in range(last, first - 1, -1) if steps[i].sends != steps[last].sends)
        other = next(others, -1)
        if self._implied[last] >= other:
            return (last,)
        return (other,) if self._implied[other] >= last else (other, last)

    def _weight(self, stream: _Stream) -> int:
        return sum(self._step_weight(i) for i in stream.steps)

    def _step_weight(self, step: int) -> int:
        return step_weight(len(self._waits[step]))

    def to_split(self, most: int | None) -> set[int]:
        """Old blocks that must be split: too long, or at the other end of one that must go on."""
        if most is None:
            return set()
        at = {end: stream for stream in self.streams for end in _ends_of(stream.key)}
        found = set()
        for stream in self.streams:
            if self._weight(stream) > most:
                mates = [at.get((v, u, c, not out)) for u, v, c, out in _ends_of(stream.key)]
                both = [s for s in (stream, *mates) if s and s.key[1] >= 0 and s.key[2] >= 0]
                found |= {s.old for s in both}
        return found

    def program(self, most: int | None) -> Program:
        """Program of the new blocks."""
        old, steps = self._all.program, self._all.steps
        cuts = self._cuts(most)
        builder = ProgramBuilder(old.ranks)
        handle: dict[int, int] = {}
        for stream in self.streams:
            rank, send, recv, channel = stream.key
            block, messages, turn = -1, 0, 0
            before = -1
            for i in stream.steps:
                step = steps[i]
                goes_on = step.moves and messages in cuts.get(stream.key, ())
                if before < 0 or goes_on:
                    turn += goes_on
                    on = channel + turn * old.channels
                    block = builder.block(rank, send=send, recv=recv, channel=on)
                if goes_on:
                    self._waits[i].add(before)
                messages += step.moves
                handle[i] = builder.step(block, step.op, src=step.src, dst=step.dst, cnt=step.cnt)
                before = i
        for i, waits in sorted(self._waits.items()):
            for on in sorted(waits):
                builder.depend(handle[i], handle[on])
        built = builder.build(
            name=old.name, collective=old.collective, nchunks=old.nchunks, protocol=old.protocol
        )
        return replace(
            built,
            channels=max(old.channels, built.channels),
            in_place=old.in_place,
            out_of_place=old.out_of_place,
            min_bytes=old.min_bytes,
            max_bytes=old.max_bytes,
            root=old.root,
            i_chunks=old.i_chunks,
            o_chunks=old.o_chunks,
        )

    def _cuts(self, most: int | None) -> dict[Key, list[int]]:
        """Messages at which the blocks of a connection go on in others."""
        ends: dict[tuple[int, int, int], list[_Stream]] = defaultdict(list)
        for stream in self.streams:
            rank, send, recv, channel = stream.key
            if (send < 0) != (recv < 0):
                ends[(rank, send, channel) if send >= 0 else (recv, rank, channel)].append(stream)
        cuts: dict[Key, list[int]] = {}
        for both in ends.values():
            if most and len(both) == 2 and any(self._weight(s) > most for s in both):
                found = _cut([self._per_message(s) for s in both], most)
                cuts.update({s.key: found for s in both})
        return cuts

    def _per_message(self, stream: _Stream) -> list[int]:
        """Steps of a block from each message up to the next one."""
        weights = [0]
        for i in stream.steps:
            if self._all.steps[i].moves:
                weights.append(0)
            weights[-1] += self._step_weight(i)
        return [weights[0] + weights[1], *weights[2:]]


def _ends_of(key: Key) -> list[tuple[int, int, int, bool]]:
    """(Rank, peer, channel, whether it sends) of the connections of a block."""
    rank, send, recv, channel = key
    ends = [(rank, send, channel, True), (rank, recv, channel, False)]
    return [end for end in ends if end[1] >= 0]


def _cut(ends: list[list[int]], most: int) -> list[int]:
    """Messages at which to go on, so that no piece of any end is too long.

    Examples
    --------
    >>> _cut([[1, 1, 1, 1], [2, 2, 2, 2]], 5)
    [2]
    """
    cuts: list[int] = []
    sums = [0] * len(ends)
    for message, weights in enumerate(zip(*ends, strict=True)):
        # the first step of a further piece also waits for the piece before: one more
        if message and any(s + w + bool(cuts) > most for s, w in zip(sums, weights, strict=True)):
            cuts.append(message)
            sums = [0] * len(ends)
        sums = [s + w for s, w in zip(sums, weights, strict=True)]
    return cuts
