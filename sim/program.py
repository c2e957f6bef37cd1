"""Program: what every GPU runs, as flat arrays of steps, dependencies and connections.

A program is a list of thread blocks per rank. A thread block has at most one send peer and one
receive peer and runs its steps strictly in order. A connection is one FIFO per (sender rank,
receiver rank, channel): the j-th send of the sender's block meets the j-th receive of the
receiver's block. A step may wait for steps of other blocks of the same rank. These are the
semantics of the MSCCL runtimes (microsoft/msccl ``src/collectives/device/msccl_interpreter.h``).

Programs do not know sizes: addresses and counts are in chunks, and the whole buffer is cut into
``nchunks`` equal chunks when the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from sim.errors import ProgramError

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.int8]


class Op(IntEnum):
    """Instruction of a thread block; the spelling in files is :data:`OP_TEXT`."""

    SEND = 0
    RECV = 1
    RECV_COPY_SEND = 2
    RECV_REDUCE_SEND = 3
    RECV_REDUCE_COPY = 4
    RECV_REDUCE_COPY_SEND = 5
    COPY = 6
    REDUCE = 7
    NOP = 8


OP_TEXT = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
"""Spelling of each :class:`Op` in MSCCL XML, by value."""

#                               s  r rcs rrs rrc rrcs cpy re nop
OP_SENDS = np.array([1, 0, 1, 1, 0, 1, 0, 0, 0], dtype=np.bool_)
"""Whether an op sends, by value."""
OP_RECEIVES = np.array([0, 1, 1, 1, 1, 1, 0, 0, 0], dtype=np.bool_)
"""Whether an op receives, by value."""
OP_READS_SRC = np.array([1, 0, 0, 1, 1, 1, 1, 1, 0], dtype=np.bool_)
"""Whether an op reads ``cnt`` chunks at its source address on its own rank."""
OP_WRITES_DST = np.array([0, 1, 1, 0, 1, 1, 1, 1, 0], dtype=np.bool_)
"""Whether an op writes ``cnt`` chunks at its destination address on its own rank."""
OP_READS_DST = np.array([0, 0, 0, 0, 0, 0, 0, 1, 0], dtype=np.bool_)
"""Whether an op also reads its destination (``re``: dst = dst + src)."""


class Buffer(IntEnum):
    """Buffer of a rank: the caller's input and output, and private scratch."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2


BUFFER_TEXT = ("i", "o", "s")
"""Spelling of each :class:`Buffer` in MSCCL XML, by value."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What every rank runs.

    Parameters
    ----------
    name
        Label, at most 63 characters, ``[A-Za-z0-9_.+-]``.
    collective
        Key: ``allgather reducescatter allreduce alltoall broadcast reduce custom``.
    ranks
        Number of ranks R.
    nchunks
        Chunks that the whole buffer (nccl-tests' size) is cut into (``nchunksperloop``).
    protocol
        ``Simple``, ``LL`` or ``LL128``.
    channels
        Channels 0 … channels-1 are used.
    in_place, out_of_place
        Which calls it serves. In place, input and output alias as NCCL lets callers do it.
    min_bytes, max_bytes
        Sizes it serves, both inclusive; ``max_bytes`` None is no limit.
    root
        Root of a rooted collective, else -1.
    i_chunks, o_chunks, s_chunks
        int32 ``[R]``: chunks in each buffer of each rank; 0 where no step names the buffer.
    tb_rank, tb_id, tb_send, tb_recv, tb_channel
        int32 ``[T]``: rank, index in the rank, peers (-1: none) and channel of each thread
        block, sorted by (rank, id).
    tb_first
        int64 ``[T+1]``: first step of each block; the steps of block t are
        ``tb_first[t] … tb_first[t+1]-1`` in their order.
    op, src_buf, src_off, dst_buf, dst_off, cnt
        int8/int32 ``[S]``: the steps. Unused offsets are -1, unused buffers 0.
    dep_first, dep_step
        int64 ``[S+1]`` and ``[D]``: step s waits for the steps
        ``dep_step[dep_first[s]:dep_first[s+1]]`` (indices into the step arrays, same rank,
        another block, sorted). There are no nops in a program that this package builds:
        writers make them from the second dependency on.
    """

    name: str
    collective: str
    ranks: int
    nchunks: int
    protocol: str
    channels: int
    in_place: bool
    out_of_place: bool
    min_bytes: int
    max_bytes: int | None
    root: int
    i_chunks: IntArray
    o_chunks: IntArray
    s_chunks: IntArray
    tb_rank: IntArray
    tb_id: IntArray
    tb_send: IntArray
    tb_recv: IntArray
    tb_channel: IntArray
    tb_first: LongArray
    op: ByteArray
    src_buf: ByteArray
    src_off: IntArray
    dst_buf: ByteArray
    dst_off: IntArray
    cnt: IntArray
    dep_first: LongArray
    dep_step: LongArray

    @property
    def blocks(self) -> int:
        """Number of thread blocks T, over all ranks."""
        return len(self.tb_rank)

    @property
    def steps(self) -> int:
        """Number of steps S, over all ranks."""
        return len(self.op)

    def step_block(self) -> IntArray:
        """Thread block of every step, int32 ``[S]``."""
        counts = np.diff(self.tb_first)
        return np.repeat(np.arange(self.blocks, dtype=np.int32), counts)

    def where(self, step: int) -> str:
        """Name a step: ``gpu G tb B step S``."""
        block = int(np.searchsorted(self.tb_first, step, side="right")) - 1
        local = step - int(self.tb_first[block])
        return f"gpu {self.tb_rank[block]} tb {self.tb_id[block]} step {local}"


@dataclass(slots=True)
class _Block:
    rank: int
    send: int
    recv: int
    channel: int
    steps: list[int] = field(default_factory=list)


class ProgramBuilder:
    """Collects thread blocks, steps and dependencies in any order, then freezes a Program.

    Examples
    --------
    >>> b = ProgramBuilder(ranks=2)
    >>> t0, t1 = b.block(0, send=1), b.block(1, recv=0)
    >>> first = b.step(t0, Op.SEND, src=(Buffer.INPUT, 0))
    >>> _ = b.step(t1, Op.RECV, dst=(Buffer.OUTPUT, 0))
    >>> b.build(name="one", collective="custom", nchunks=1).steps
    2
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._blocks: list[_Block] = []
        self._op: list[int] = []
        self._src: list[tuple[int, int]] = []
        self._dst: list[tuple[int, int]] = []
        self._cnt: list[int] = []
        self._deps: list[set[int]] = []
        self._block_of: list[int] = []
        self._by_key: dict[tuple[int, int, int, int], int] = {}

    def block(self, rank: int, *, send: int = -1, recv: int = -1, channel: int = 0) -> int:
        """Add a thread block; returns its handle."""
        self._blocks.append(_Block(rank, send, recv, channel))
        return len(self._blocks) - 1

    def block_for(self, rank: int, *, send: int = -1, recv: int = -1, channel: int = 0) -> int:
        """Handle of the block with exactly these peers and channel, added when there is none."""
        key = (rank, send, recv, channel)
        handle = self._by_key.get(key)
        if handle is None:
            handle = self._by_key[key] = self.block(rank, send=send, recv=recv, channel=channel)
        return handle

    def step(
        self,
        block: int,
        op: Op,
        *,
        src: tuple[int, int] = (0, -1),
        dst: tuple[int, int] = (0, -1),
        cnt: int = 1,
        after: Iterable[int] = (),
    ) -> int:
        """Append a step ``op`` of ``cnt`` chunks to a block.

        Parameters
        ----------
        block
            Handle from :meth:`block`.
        src, dst
            (buffer, offset in chunks).
        after
            Handles of steps to wait for; those of the same block must be earlier and are dropped,
            since order inside a block is given.

        Returns
        -------
        int
            Handle of the step.
        """
        handle = len(self._op)
        self._op.append(int(op))
        self._src.append((int(src[0]), int(src[1])))
        self._dst.append((int(dst[0]), int(dst[1])))
        self._cnt.append(cnt)
        self._deps.append(set())
        self._block_of.append(block)
        self._blocks[block].steps.append(handle)
        for other in after:
            self.depend(handle, other)
        return handle

    def depend(self, step: int, on: int) -> None:
        """Make a step wait for another one of the same rank."""
        mine, theirs = self._block_of[step], self._block_of[on]
        if mine == theirs:
            if on >= step:
                raise ProgramError("a step cannot wait for itself or a later step of its block")
            return
        if self._blocks[mine].rank != self._blocks[theirs].rank:
            raise ProgramError("a step cannot wait for a step of another rank")
        self._deps[step].add(on)

    def build(
        self,
        *,
        name: str,
        collective: str,
        nchunks: int,
        protocol: str = "Simple",
        in_place: bool = False,
        out_of_place: bool = True,
        min_bytes: int = 0,
        max_bytes: int | None = None,
        root: int = -1,
        buffer_chunks: tuple[int, int] | None = None,
    ) -> Program:
        """Freeze the program.

        Blocks are ordered by (rank, order of addition) and numbered from 0 on each rank; blocks
        without steps are dropped. Buffer sizes are the highest address used, or for input and
        output ``buffer_chunks`` where a step names the buffer at all.
        """
        kept = [i for i, block in enumerate(self._blocks) if block.steps]
        order = sorted(kept, key=lambda i: (self._blocks[i].rank, i))
        tb_id: list[int] = []
        seen = [0] * self.ranks
        for i in order:
            rank = self._blocks[i].rank
            tb_id.append(seen[rank])
            seen[rank] += 1
        steps = [s for i in order for s in self._blocks[i].steps]
        position = np.zeros(len(steps), dtype=np.int64)
        position[steps] = np.arange(len(steps))
        deps = [sorted(int(position[d]) for d in self._deps[s]) for s in steps]
        src = np.array([self._src[s] for s in steps], dtype=np.int32).reshape(-1, 2)
        dst = np.array([self._dst[s] for s in steps], dtype=np.int32).reshape(-1, 2)
        op = np.array([self._op[s] for s in steps], dtype=np.int8)
        cnt = np.array([self._cnt[s] for s in steps], dtype=np.int32)
        tb_rank = np.array([self._blocks[i].rank for i in order], dtype=np.int32)
        counts = np.array([len(self._blocks[i].steps) for i in order], dtype=np.int64)
        sizes = _buffer_sizes(self.ranks, np.repeat(tb_rank, counts), op, src, dst, cnt)
        if buffer_chunks is not None:
            for buffer in (Buffer.INPUT, Buffer.OUTPUT):
                sizes[buffer][sizes[buffer] > 0] = buffer_chunks[buffer]
        return Program(
            name=name,
            collective=collective,
            ranks=self.ranks,
            nchunks=nchunks,
            protocol=protocol,
            channels=1 + max((self._blocks[i].channel for i in order), default=0),
            in_place=in_place,
            out_of_place=out_of_place,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            root=root,
            i_chunks=sizes[Buffer.INPUT],
            o_chunks=sizes[Buffer.OUTPUT],
            s_chunks=sizes[Buffer.SCRATCH],
            tb_rank=tb_rank,
            tb_id=np.array(tb_id, dtype=np.int32),
            tb_send=np.array([self._blocks[i].send for i in order], dtype=np.int32),
            tb_recv=np.array([self._blocks[i].recv for i in order], dtype=np.int32),
            tb_channel=np.array([self._blocks[i].channel for i in order], dtype=np.int32),
            tb_first=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            op=op,
            src_buf=src[:, 0].astype(np.int8),
            src_off=np.ascontiguousarray(src[:, 1]),
            dst_buf=dst[:, 0].astype(np.int8),
            dst_off=np.ascontiguousarray(dst[:, 1]),
            cnt=cnt,
            dep_first=np.concatenate(([0], np.cumsum([len(d) for d in deps]))).astype(np.int64),
            dep_step=np.array([d for ds in deps for d in ds], dtype=np.int64),
        )


def _buffer_sizes(
    ranks: int, rank: IntArray, op: ByteArray, src: IntArray, dst: IntArray, cnt: IntArray
) -> list[IntArray]:
    sizes = [np.zeros(ranks, dtype=np.int32) for _ in Buffer]
    for uses, address in ((OP_READS_SRC, src), (OP_WRITES_DST, dst)):
        used = uses[op]
        for buffer in Buffer:
            mask = used & (address[:, 0] == buffer)
            np.maximum.at(sizes[buffer], rank[mask], address[mask, 1] + cnt[mask])
    return sizes
