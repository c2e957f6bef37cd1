"""Writer: puts the steps of an algorithm into a program, with the dependencies they need.

An algorithm says in a legal sequential order what moves, is copied and is added. The writer
chooses thread blocks, spreads chunks over channels, and makes every step wait for those of other
blocks of its rank that it conflicts with (read after write, write after read, write after write),
counting input and output as one memory where the program serves in-place calls.

Moves use one block per (peer, direction, channel). Since both ends of a message are written
together and every step waits for earlier ones only, they cannot deadlock at any size: by
induction over the order of writing, even where a send ends only when it is received.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from explorer.baselines.buffers import Address, Buffers
from explorer.core.collective import Collective
from sim.program import (
    OP_READS_DST,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Buffer,
    Op,
    Program,
    ProgramBuilder,
)

MAX_COUNT = 71
"""Chunks that one step can move (microsoft/msccl ``src/include/msccl.h``, MSCCL_MAX_COUNT 72)."""

MAX_FUSED = 15
"""Reductions that a loader may fuse into one; more overrun a device array in some runtimes."""

_UNUSED: Address = (Buffer.INPUT, -1)
_READS_SRC, _WRITES_DST = OP_READS_SRC.tolist(), OP_WRITES_DST.tolist()
_READS_DST = OP_READS_DST.tolist()


class Writer:
    """A program being written.

    Parameters
    ----------
    collective
        What the caller asked for, with C chunks per rank.
    placement
        Calls it serves.
    channels, instances
        K channels and I instances: there are K·I *lanes*, one channel each, and C·I chunks per
        rank.
    """

    def __init__(
        self, collective: Collective, placement: str, channels: int, instances: int
    ) -> None:
        self.chunks = collective.chunks_per_rank
        self.collective = replace(collective, chunks_per_rank=self.chunks * instances)
        self.buffers = Buffers(self.collective, placement)
        self.placement = placement
        self.channels = channels
        self.instances = instances
        self.move_channel = 0
        """Channel of lane 0 of moves; algorithms that also use rings leave those the first ones."""
        self._builder = ProgramBuilder(collective.ranks)
        self._scratch = [0] * collective.ranks
        self._block_of: list[int] = []
        self._written: list[dict[Address, int]] = [{} for _ in range(collective.ranks)]
        self._read: list[dict[Address, list[int]]] = [{} for _ in range(collective.ranks)]
        self._waited: dict[int, dict[int, int]] = {}

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self.channels * self.instances

    @property
    def per_rank(self) -> int:
        """Chunks per rank, those of all instances."""
        return self.collective.chunks_per_rank

    def lane_of(self, chunk: int) -> int:
        """Lane on which a ring carries a chunk.

        Instance i has the chunks i·C … i·C + C − 1 of every rank and the lanes i·K … i·K + K − 1;
        within an instance, chunk ids go round the lanes.
        """
        owner, rest = divmod(chunk, self.per_rank)
        instance, k = divmod(rest, self.chunks)
        return instance * self.channels + (owner * self.chunks + k) % self.channels

    def scratch(self, rank: int, count: int) -> int:
        """Reserve scratch chunks of a rank; returns the offset of the first."""
        offset = self._scratch[rank]
        self._scratch[rank] += count
        return offset

    def block(self, rank: int, *, send: int = -1, recv: int = -1, channel: int = 0) -> int:
        """Block of a rank with these peers on this channel."""
        return self._builder.block_for(rank, send=send, recv=recv, channel=channel)

    def step(
        self,
        rank: int,
        block: int,
        op: Op,
        *,
        src: Address = _UNUSED,
        dst: Address = _UNUSED,
        count: int = 1,
        also: Sequence[Address] = (),
    ) -> None:
        """Append a step to a block of the rank, waiting for all it conflicts with.

        Parameters
        ----------
        src, dst
            Ignored where the op does not use them.
        also
            Further ranges of ``count`` chunks that must be written before.
        """
        src = src if _READS_SRC[op] else _UNUSED
        dst = dst if _WRITES_DST[op] else _UNUSED
        reads = [src] if _READS_SRC[op] else []
        reads += [dst] if _READS_DST[op] else []
        written, readers = self._written[rank], self._read[rank]
        need: set[int] = set()
        for cell in self._cells(rank, [*reads, *also], count):
            if cell in written:
                need.add(written[cell])
        targets = self._cells(rank, [dst] if _WRITES_DST[op] else [], count)
        for cell in targets:
            if cell in written:
                need.add(written[cell])
            need.update(readers.get(cell, ()))
        handle = self._builder.step(
            block, op, src=src, dst=dst, cnt=count, after=self._new(block, need)
        )
        self._block_of.append(block)
        for cell in self._cells(rank, reads, count):
            readers.setdefault(cell, []).append(handle)
        for cell in targets:
            written[cell] = handle
            readers[cell] = []

    def move(self, u: int, v: int, src: Address, dst: Address, count: int) -> None:
        """Send chunks from rank u to rank v."""
        for channel, at, n in self._parts(count):
            sender = self.block(u, send=v, channel=channel)
            receiver = self.block(v, recv=u, channel=channel)
            self.step(u, sender, Op.SEND, src=_plus(src, at), count=n)
            self.step(v, receiver, Op.RECV, dst=_plus(dst, at), count=n)

    def fold(self, u: int, v: int, src: Address, local: Address, dst: Address, count: int) -> None:
        """Send chunks from rank u to rank v, which adds its ``local`` and stores at ``dst``."""
        for channel, at, n in self._parts(count):
            sender = self.block(u, send=v, channel=channel)
            receiver = self.block(v, recv=u, channel=channel)
            self.step(u, sender, Op.SEND, src=_plus(src, at), count=n)
            self.step(
                v,
                receiver,
                Op.RECV_REDUCE_COPY,
                src=_plus(local, at),
                dst=_plus(dst, at),
                count=n,
            )

    def copy(self, rank: int, src: Address, dst: Address, count: int, recv: int = -1) -> None:
        """Copy chunks on a rank, in the blocks that receive from ``recv`` or blocks of its own."""
        if src == dst:
            return
        for channel, at, n in self._parts(count):
            block = self.block(rank, recv=recv, channel=channel)
            self.step(rank, block, Op.COPY, src=_plus(src, at), dst=_plus(dst, at), count=n)

    def gather_sum(
        self, rank: int, peers: Sequence[int], slots: Sequence[Address], dst: Address, count: int
    ) -> None:
        """Add what lies at each of ``slots``, received from ``peers``, to ``dst``.

        The chunks are dealt out over the blocks that receive from the peers, so that reduction is
        as wide as reception. Each share waits first and then adds everything at once, which
        runtimes fuse into one pass.
        """
        for channel, at, n in self._parts(count):
            for i, (low, size) in enumerate(shares(n, len(peers))):
                block = self.block(rank, recv=peers[i], channel=channel)
                turned = [*slots[i:], *slots[:i]]
                sources = [_plus(slot, at + low) for slot in turned]
                for first in range(0, len(sources), MAX_FUSED):
                    run = sources[first : first + MAX_FUSED]
                    for j, source in enumerate(run):
                        self.step(
                            rank,
                            block,
                            Op.REDUCE,
                            src=source,
                            dst=_plus(dst, at + low),
                            count=size,
                            also=run if j == 0 else (),
                        )

    def build(self, name: str, protocol: str) -> Program:
        """Freeze the program."""
        kind = self.collective
        program = self._builder.build(
            name=name,
            collective=kind.name,
            nchunks=kind.nchunks,
            protocol=protocol,
            in_place=self.placement != "out",
            out_of_place=self.placement != "in",
            root=kind.root if kind.rooted else -1,
            buffer_chunks=(len(kind.input_chunks(0)), len(kind.output_chunks(0))),
        )
        if not program.blocks:
            return program
        # a ring's block has both peers by its key; where it never sends or receives it has none
        first = program.tb_first[:-1]
        sends = np.logical_or.reduceat(OP_SENDS[program.op], first)
        receives = np.logical_or.reduceat(OP_RECEIVES[program.op], first)
        return replace(
            program,
            tb_send=np.where(sends, program.tb_send, -1).astype(np.int32),
            tb_recv=np.where(receives, program.tb_recv, -1).astype(np.int32),
        )

    def _parts(self, count: int) -> Iterator[tuple[int, int, int]]:
        """(channel, offset, chunks) of a range spread over the lanes, in steps a runtime takes."""
        for lane, (low, size) in enumerate(shares(count, self.lanes)):
            for at in range(low, low + size, MAX_COUNT):
                yield self.move_channel + lane, at, min(MAX_COUNT, low + size - at)

    def _cells(self, rank: int, addresses: Sequence[Address], count: int) -> list[Address]:
        cell = self.buffers.cell
        cells = []
        for address in addresses:
            buffer, offset = cell(rank, address)
            cells += [(buffer, offset + i) for i in range(count)]
        return cells

    def _new(self, block: int, need: set[int]) -> list[int]:
        """Latest needed step of every other block that this block has not waited for yet."""
        latest: dict[int, int] = {}
        for step in need:
            other = self._block_of[step]
            if other != block:
                latest[other] = max(latest.get(other, -1), step)
        waited = self._waited.setdefault(block, {})
        new = {o: step for o, step in latest.items() if waited.get(o, -1) < step}
        waited.update(new)
        return sorted(new.values())


def shares(count: int, parts: int) -> list[tuple[int, int]]:
    """Split a range into (offset, size) shares as equal as possible, larger first, none empty.

    Examples
    --------
    >>> shares(5, 3), shares(2, 3)
    ([(0, 2), (2, 2), (4, 1)], [(0, 1), (1, 1)])
    """
    base, extra = divmod(count, parts)
    sizes = [base + (i < extra) for i in range(parts)]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes) if size]


def _plus(address: Address, offset: int) -> Address:
    return address[0], address[1] + offset
