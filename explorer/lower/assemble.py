"""Assemble: turn steps, blocks and dependencies into the flat arrays of a Program."""

from __future__ import annotations

import numpy as np

from explorer.lower.channels import Blocks
from explorer.lower.memory import Memory
from explorer.lower.steps import Steps
from sim.program import OP_READS_SRC, OP_WRITES_DST, Buffer, Program


def assemble(steps: Steps, blocks: Blocks, memory: Memory, *, name: str, protocol: str) -> Program:
    """Freeze a program.

    Parameters
    ----------
    steps, blocks
        What runs where.
    memory
        Of the collective and placement.
    name, protocol
        Of the program.
    """
    collective = memory.collective
    order = np.argsort(blocks.block, kind="stable")
    place = np.empty(steps.count, dtype=np.int64)
    place[order] = np.arange(steps.count)
    counts = np.array([len(blocks.waits[s]) for s in order.tolist()], dtype=np.int64)
    waits = np.array([w for s in order.tolist() for w in blocks.waits[s]], dtype=np.int64)
    waiter = np.repeat(np.arange(steps.count), counts)
    dep_step = place[waits]
    dep_step = dep_step[np.lexsort((dep_step, waiter))]
    per_rank = np.bincount(blocks.rank, minlength=collective.ranks)
    tb_id = np.arange(len(blocks.rank)) - (np.cumsum(per_rank) - per_rank)[blocks.rank]
    sizes = _buffer_sizes(steps, collective.ranks)
    for buffer in (Buffer.INPUT, Buffer.OUTPUT):
        sizes[buffer][sizes[buffer] > 0] = memory.buffer_chunks[buffer]
    return Program(
        name=name,
        collective=collective.name,
        ranks=collective.ranks,
        nchunks=collective.nchunks,
        protocol=protocol,
        channels=1 + int(blocks.channel.max(initial=0)),
        in_place=memory.placement != "out",
        out_of_place=memory.placement != "in",
        min_bytes=0,
        max_bytes=None,
        root=collective.root if collective.rooted else -1,
        i_chunks=sizes[Buffer.INPUT],
        o_chunks=sizes[Buffer.OUTPUT],
        s_chunks=sizes[Buffer.SCRATCH],
        tb_rank=blocks.rank.astype(np.int32),
        tb_id=tb_id.astype(np.int32),
        tb_send=blocks.send.astype(np.int32),
        tb_recv=blocks.receive.astype(np.int32),
        tb_channel=blocks.channel.astype(np.int32),
        tb_first=np.searchsorted(blocks.block[order], np.arange(len(blocks.rank) + 1)).astype(
            np.int64
        ),
        op=steps.op[order].astype(np.int8),
        src_buf=steps.src_buf[order].astype(np.int8),
        src_off=steps.src_off[order].astype(np.int32),
        dst_buf=steps.dst_buf[order].astype(np.int8),
        dst_off=steps.dst_off[order].astype(np.int32),
        cnt=steps.cnt[order].astype(np.int32),
        dep_first=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        dep_step=dep_step.astype(np.int64),
    )


def _buffer_sizes(steps: Steps, ranks: int) -> list[np.ndarray]:
    """Chunks that steps use of every buffer, int32 ``[R]`` each."""
    sizes = [np.zeros(ranks, dtype=np.int32) for _ in Buffer]
    for uses, buf, off in (
        (OP_READS_SRC, steps.src_buf, steps.src_off),
        (OP_WRITES_DST, steps.dst_buf, steps.dst_off),
    ):
        for buffer in Buffer:
            mask = uses[steps.op] & (buf == buffer)
            np.maximum.at(sizes[buffer], steps.rank[mask], (off + steps.cnt)[mask].astype(np.int32))
    return sizes
