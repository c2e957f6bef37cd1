"""Structure of a program: peers, connections, message lists, dependencies, bounds.

What the loaders do not check and GPUs answer with a hang or with wrong data: every process loads
only its own rank, so nobody but a checker sees both ends of a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from explorer.verify.names import Names, address
from explorer.verify.report import Ledger
from explorer.verify.spec import Spec, buffer_sizes
from sim.program import (
    BUFFER_TEXT,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Op,
    Program,
)
from sim.protocols import PROTOCOLS

IntArray = npt.NDArray[np.int64]

MAX_COUNT = 71
"""Chunks one step can move in any runtime (microsoft/msccl ``MSCCL_MAX_COUNT`` 72, exclusive)."""


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """How the two ends of every connection meet.

    Parameters
    ----------
    out_of, into
        int64 ``[T]``: connection each block sends on and receives from, -1 for none.
    sender
        int64 ``[S]``: step whose message each receiving step takes, else -1.
    sender_block, receiver_block
        int64 ``[C]``: the blocks at both ends of each connection.
    """

    out_of: IntArray
    into: IntArray
    sender: IntArray
    sender_block: IntArray
    receiver_block: IntArray


def check_shape(program: Program, ledger: Ledger) -> bool:
    """Whether the arrays fit together, so that the other checks can index them."""
    t, s = program.blocks, program.steps
    lengths: dict[str, tuple[npt.NDArray[Any], int]] = {
        "tb_id": (program.tb_id, t),
        "tb_send": (program.tb_send, t),
        "tb_recv": (program.tb_recv, t),
        "tb_channel": (program.tb_channel, t),
        "tb_first": (program.tb_first, t + 1),
        "src_buf": (program.src_buf, s),
        "src_off": (program.src_off, s),
        "dst_buf": (program.dst_buf, s),
        "dst_off": (program.dst_off, s),
        "cnt": (program.cnt, s),
        "dep_first": (program.dep_first, s + 1),
        "i_chunks": (program.i_chunks, program.ranks),
        "o_chunks": (program.o_chunks, program.ranks),
        "s_chunks": (program.s_chunks, program.ranks),
    }
    good = True
    for name, (array, length) in lengths.items():
        if array.shape != (length,):
            ledger.error("SHAPE", name, f"has shape {array.shape}, expected ({length},)")
            good = False
    if not good:
        return False
    for name, first, end in (
        ("tb_first", program.tb_first, s),
        ("dep_first", program.dep_first, len(program.dep_step)),
    ):
        if first[0] != 0 or first[-1] != end or bool((np.diff(first) < 0).any()):
            ledger.error("SHAPE", name, f"must rise from 0 to {end}")
            good = False
    for name, array, top in (
        ("op", program.op, len(Op)),
        ("src_buf", program.src_buf, len(BUFFER_TEXT)),
        ("dst_buf", program.dst_buf, len(BUFFER_TEXT)),
        ("dep_step", program.dep_step, s),
        ("tb_rank", program.tb_rank, program.ranks),
    ):
        if bool(((array < 0) | (array >= top)).any()):
            ledger.error("SHAPE", name, f"has values outside 0 to {top - 1}")
            good = False
    if good and t:
        key = program.tb_rank.astype(np.int64) * (1 << 32) + program.tb_id
        if bool((np.diff(key) <= 0).any()):
            ledger.error("SHAPE", "tb_rank, tb_id", "blocks are not sorted by (rank, id)")
            good = False
    return good


def check_structure(program: Program, spec: Spec, names: Names, ledger: Ledger) -> Links | None:
    """Check everything about a program that needs no execution.

    Returns
    -------
    Links or None
        How connections meet; None where that has no meaning because something is wrong.
    """
    before = ledger.errors
    if program.protocol not in PROTOCOLS:
        ledger.error(
            "PROTOCOL", "", f"protocol is {program.protocol!r}, expected {', '.join(PROTOCOLS)}"
        )
    _check_blocks(program, names, ledger)
    _check_steps(program, names, ledger)
    _check_bounds(program, spec, names, ledger)
    _check_dependencies(program, names, ledger)
    if ledger.errors > before:
        return None
    return _link(program, names, ledger)


def _check_blocks(program: Program, names: Names, ledger: Ledger) -> None:
    local = np.arange(program.blocks) - np.searchsorted(program.tb_rank, program.tb_rank)
    for block in np.flatnonzero(program.tb_id != local):
        ledger.error(
            "BLOCK",
            names.block(block),
            f"id is {program.tb_id[block]} where {local[block]} was expected:"
            " ids are 0 to k-1 without gaps",
        )
    for word, peers in (("send", program.tb_send), ("recv", program.tb_recv)):
        for block in np.flatnonzero((peers < -1) | (peers >= program.ranks)):
            ledger.error(
                "PEER",
                names.block(block),
                f"{word} peer is {peers[block]}, expected -1 or 0 to {program.ranks - 1}",
            )
        for block in np.flatnonzero(peers == program.tb_rank):
            ledger.error("PEER", names.block(block), f"{word} peer is its own rank")
    outside = (program.tb_channel < 0) | (program.tb_channel >= program.channels)
    for block in np.flatnonzero(outside):
        ledger.error(
            "CHANNEL",
            names.block(block),
            f"channel is {program.tb_channel[block]}, the program connects channels"
            f" 0 to {program.channels - 1}",
        )
    for word, peers in (("sends to", program.tb_send), ("receives from", program.tb_recv)):
        used = np.flatnonzero(peers >= 0)
        seen: dict[tuple[int, int, int], int] = {}
        for block in used:
            rank, peer, channel = (
                int(a[block]) for a in (program.tb_rank, peers, program.tb_channel)
            )
            first = seen.setdefault((rank, peer, channel), int(block))
            if first != block:
                ledger.error(
                    "CONNECTION",
                    names.block(block),
                    f"{word} gpu {peer} on channel {channel}, as tb {program.tb_id[first]} does:"
                    " one block per (peer, direction, channel)",
                )


def _check_steps(program: Program, names: Names, ledger: Ledger) -> None:
    block = program.step_block()
    for word, needs, peers in (
        ("sends", OP_SENDS, program.tb_send),
        ("receives", OP_RECEIVES, program.tb_recv),
    ):
        for step in np.flatnonzero(needs[program.op] & (peers[block] < 0)):
            ledger.error(
                "PEER",
                names.step(step),
                f"{names.op(step)} {word}, but the block has no"
                f" {'send' if word == 'sends' else 'recv'} peer",
            )
    real = program.op != Op.NOP
    for step in np.flatnonzero(real & (program.cnt < 1)):
        ledger.error("COUNT", names.step(step), f"cnt is {program.cnt[step]}, expected at least 1")
    for step in np.flatnonzero(real & (program.cnt > MAX_COUNT)):
        ledger.warning(
            "LIMIT",
            names.step(step),
            f"cnt is {program.cnt[step]}, no runtime moves more than {MAX_COUNT} chunks in a step",
        )


def _check_bounds(program: Program, spec: Spec, names: Names, ledger: Ledger) -> None:
    rank = program.tb_rank[program.step_block()]
    declared = np.stack([program.i_chunks, program.o_chunks, program.s_chunks], axis=1)
    if bool((declared < 0).any()):
        ledger.error("BOUNDS", "", "a buffer has a negative size")
    true = buffer_sizes(program, spec)
    for uses, buffer, offset, word in (
        (OP_READS_SRC, program.src_buf, program.src_off, "reads"),
        (OP_WRITES_DST, program.dst_buf, program.dst_off, "writes"),
    ):
        used = uses[program.op] & (program.cnt > 0)
        end = offset.astype(np.int64) + program.cnt
        over = used & ((offset < 0) | (end > declared[rank, buffer]))
        beyond = used & ~over & (end > true[rank, buffer])
        for step in np.flatnonzero(over | beyond):
            what = address(int(buffer[step]), int(offset[step]), int(program.cnt[step]))
            size = (declared if over[step] else true)[rank[step], buffer[step]]
            owner = (
                f"{BUFFER_TEXT[buffer[step]]}_chunks is {size}"
                if over[step]
                else f"that buffer of {spec.name} has {size} chunks"
            )
            ledger.error("BOUNDS", names.step(step), f"{word} {what}, but {owner}")


def _check_dependencies(program: Program, names: Names, ledger: Ledger) -> None:
    block = program.step_block()
    waiter = np.repeat(np.arange(program.steps), np.diff(program.dep_first))
    target = program.dep_step
    own = block[waiter] == block[target]
    for i in np.flatnonzero(program.tb_rank[block[waiter]] != program.tb_rank[block[target]]):
        ledger.error(
            "DEPENDENCY",
            names.step(waiter[i]),
            f"waits for {names.short(target[i])}: dependencies never cross gpus",
        )
    for i in np.flatnonzero(own & (target >= waiter)):
        ledger.error(
            "DEADLOCK",
            names.step(waiter[i]),
            f"waits for {names.short(target[i])} of its own block, which never comes",
        )
    for i in np.flatnonzero(own & (target < waiter)):
        ledger.warning(
            "DEPENDENCY",
            names.step(waiter[i]),
            f"waits for {names.short(target[i])} of its own block, which is ordered anyway",
        )
    for i in np.flatnonzero(program.op[target] == Op.NOP):
        ledger.error(
            "DEPENDENCY",
            names.step(waiter[i]),
            f"waits for {names.short(target[i])}, a nop: nops raise no flag",
        )


def _link(program: Program, names: Names, ledger: Ledger) -> Links | None:
    """Match every receive with its send."""
    before = ledger.errors
    out_of = np.full(program.blocks, -1, dtype=np.int64)
    into = np.full(program.blocks, -1, dtype=np.int64)
    sender = np.full(program.steps, -1, dtype=np.int64)
    block = program.step_block()
    sends = _steps_by_block(program, OP_SENDS[program.op], block)
    receives = _steps_by_block(program, OP_RECEIVES[program.op], block)
    ends: dict[tuple[int, int, int], list[int]] = {}
    for b in range(program.blocks):
        rank, channel = int(program.tb_rank[b]), int(program.tb_channel[b])
        if len(sends[b]):
            ends.setdefault((rank, int(program.tb_send[b]), channel), [-1, -1])[0] = b
        if len(receives[b]):
            ends.setdefault((int(program.tb_recv[b]), rank, channel), [-1, -1])[1] = b
    pairs: list[tuple[int, int]] = []
    for (src, dst, channel), (a, b) in sorted(ends.items()):
        sent = sends[a] if a >= 0 else sends[0][:0]
        received = receives[b] if b >= 0 else receives[0][:0]
        if len(sent) != len(received):
            ledger.error(
                "PAIRING",
                names.block(a if a >= 0 else b),
                f"gpu {src} sends {len(sent)} messages to gpu {dst} on channel {channel},"
                f" which receives {len(received)}",
            )
            continue
        for i in np.flatnonzero(program.cnt[sent] != program.cnt[received])[:1]:
            ledger.error(
                "PAIRING",
                names.step(received[i]),
                f"takes {program.cnt[received[i]]} chunks of message {i}, which"
                f" {names.short(sent[i])} sends with {program.cnt[sent[i]]}",
            )
        sender[received] = sent
        out_of[a] = into[b] = len(pairs)
        pairs.append((a, b))
    if ledger.errors > before:
        return None
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Links(out_of, into, sender, both[:, 0].copy(), both[:, 1].copy())


def _steps_by_block(
    program: Program, chosen: npt.NDArray[np.bool_], block: npt.NDArray[np.int32]
) -> list[IntArray]:
    steps = np.flatnonzero(chosen)
    first = np.searchsorted(block[steps], np.arange(program.blocks + 1))
    return [steps[first[b] : first[b + 1]] for b in range(program.blocks)]
