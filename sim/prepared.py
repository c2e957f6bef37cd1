"""A program wired to a network: connections, paths, priorities and costs, ready for an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.errors import ProgramError
from sim.network import COST_MODELS, Network
from sim.program import OP_RECEIVES, OP_SENDS, Op, Program
from sim.protocols import PROTOCOLS

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.int8]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What both engines read. C connections, S steps, T blocks, D dependencies.

    Parameters
    ----------
    program, network
        What it was made of.
    slots
        Messages a connection holds before its sender waits.
    step_block
        int32 ``[S]``: thread block of each step.
    sends, receives
        bool ``[S]``.
    block_out, block_in
        int32 ``[T]``: connection that the block sends into and receives from; -1 where none of its
        steps does.
    conn_src, conn_dst, conn_channel
        int32 ``[C]``, sorted by (src, dst, channel).
    conn_sender, conn_receiver
        int32 ``[C]``: the blocks at its ends; -1 where nobody sends or receives.
    conn_path
        int64 ``[C]``: path in the network; -1 where nobody sends.
    next_first, next_step
        int64 ``[S+1]`` and ``[D]``: the steps that wait for each step, sorted.
    priority
        int64 ``[S]``: orders sends as ((dst - src) mod R, channel, index in the block, src) does;
        -1 for other steps.
    hold_us
        float64 ``[S]``: how long a send holds its block and resources; 0 for other steps.
    delay_us
        float64 ``[C]``: how long after that the message arrives.
    """

    program: Program
    network: Network
    slots: int
    step_block: IntArray
    sends: BoolArray
    receives: BoolArray
    block_out: IntArray
    block_in: IntArray
    conn_src: IntArray
    conn_dst: IntArray
    conn_channel: IntArray
    conn_sender: IntArray
    conn_receiver: IntArray
    conn_path: LongArray
    next_first: LongArray
    next_step: LongArray
    priority: LongArray
    hold_us: FloatArray
    delay_us: FloatArray

    @property
    def connections(self) -> int:
        """Number of connections C."""
        return len(self.conn_src)


@dataclass(frozen=True, slots=True, eq=False)
class _Connections:
    src: IntArray
    dst: IntArray
    channel: IntArray
    sender: IntArray
    receiver: IntArray
    block_out: IntArray
    block_in: IntArray


def prepare(
    program: Program, network: Network, chunk_bytes: float, cost_model: str = "exclusive"
) -> Prepared:
    """Wire a program to a network at one chunk size, for ``ideal`` fidelity.

    Parameters
    ----------
    chunk_bytes
        Size of a chunk; need not be whole.
    cost_model
        One of :data:`sim.network.COST_MODELS`.

    Raises
    ------
    ProgramError
        If the program is malformed, a connection has two senders or receivers, the network lacks
        a path, or a word or number is not allowed.
    """
    if cost_model not in COST_MODELS:
        raise ProgramError(f"cost model {cost_model!r} is none of {', '.join(COST_MODELS)}")
    if not (np.isfinite(chunk_bytes) and chunk_bytes >= 0):
        raise ProgramError(f"chunk_bytes is {chunk_bytes}, expected a finite number >= 0")
    _check_program(program)
    _check_network(network, program.ranks)
    step_block = program.step_block()
    sends, receives = OP_SENDS[program.op], OP_RECEIVES[program.op]
    conns = _connect(program, step_block, sends, receives)
    path = np.full(len(conns.src), -1, np.int64)
    used = conns.sender >= 0
    path[used] = network.paths_of(conns.src[used], conns.dst[used])
    hold_us, delay_us = _costs(
        program, network, sends, conns.block_out[step_block], path, chunk_bytes, cost_model
    )
    next_first, next_step = _invert(program)
    return Prepared(
        program=program,
        network=network,
        slots=PROTOCOLS[program.protocol].slots,
        step_block=step_block,
        sends=sends,
        receives=receives,
        block_out=conns.block_out,
        block_in=conns.block_in,
        conn_src=conns.src,
        conn_dst=conns.dst,
        conn_channel=conns.channel,
        conn_sender=conns.sender,
        conn_receiver=conns.receiver,
        conn_path=path,
        next_first=next_first,
        next_step=next_step,
        priority=_priorities(program, step_block, sends, conns),
        hold_us=hold_us,
        delay_us=delay_us,
    )


def _costs(
    program: Program,
    network: Network,
    sends: BoolArray,
    step_conn: IntArray,
    conn_path: LongArray,
    chunk_bytes: float,
    cost_model: str,
) -> tuple[FloatArray, FloatArray]:
    """Hold of every step and delay of every connection.

    Engines only ever add them to the current time, so their event times are equal to the last bit.
    """
    hold_us = np.zeros(program.steps, np.float64)
    path = conn_path[step_conn[sends]]
    bytes_ = program.cnt[sends] * float(chunk_bytes)
    hold_us[sends] = bytes_ * network.beta_us_per_byte[path]
    delay_us = np.zeros(len(conn_path), np.float64)
    if cost_model == "exclusive":
        hold_us[sends] = network.alpha_us[path] + hold_us[sends]
    else:
        used = conn_path >= 0
        delay_us[used] = network.alpha_us[conn_path[used]]
    return hold_us, delay_us


def _connect(
    program: Program, step_block: IntArray, sends: BoolArray, receives: BoolArray
) -> _Connections:
    """Find the connections that steps really use, and the blocks at their ends."""
    ranks, blocks = program.ranks, program.blocks
    sending = np.zeros(blocks, np.bool_)
    sending[step_block[sends]] = True
    receiving = np.zeros(blocks, np.bool_)
    receiving[step_block[receives]] = True
    _check_peers(program, "send", sending, program.tb_send)
    _check_peers(program, "receive", receiving, program.tb_recv)
    channel = program.tb_channel.astype(np.int64)
    channels = int(channel.max(initial=0)) + 1
    out = (program.tb_rank.astype(np.int64) * ranks + program.tb_send) * channels + channel
    into = (program.tb_recv.astype(np.int64) * ranks + program.tb_rank) * channels + channel
    keys = np.sort(np.concatenate((out[sending], into[receiving])))
    keys = keys[np.diff(keys, prepend=-1) != 0]  # np.unique hashes, 10 times as slow here
    sender, block_out = _ends(program, "send to", keys, out, sending, program.tb_send)
    receiver, block_in = _ends(program, "receive from", keys, into, receiving, program.tb_recv)
    return _Connections(
        src=(keys // channels // ranks).astype(np.int32),
        dst=(keys // channels % ranks).astype(np.int32),
        channel=(keys % channels).astype(np.int32),
        sender=sender,
        receiver=receiver,
        block_out=block_out,
        block_in=block_in,
    )


def _ends(
    program: Program,
    verb: str,
    keys: LongArray,
    block_key: LongArray,
    used: BoolArray,
    peer: IntArray,
) -> tuple[IntArray, IntArray]:
    """Block at one end of every connection, and connection of every block at that end."""
    blocks = np.flatnonzero(used).astype(np.int32)
    conn = np.searchsorted(keys, block_key[blocks]).astype(np.int32)
    order = np.argsort(conn, kind="stable")
    double = np.flatnonzero(np.diff(conn[order]) == 0)
    if len(double):
        one, two = (int(blocks[order[double[0] + i]]) for i in (0, 1))
        raise ProgramError(
            f"gpu {program.tb_rank[one]} tb {program.tb_id[one]} and tb {program.tb_id[two]} both "
            f"{verb} gpu {peer[one]} on channel {program.tb_channel[one]}; "
            "a connection has one block at each end"
        )
    end = np.full(len(keys), -1, np.int32)
    end[conn] = blocks
    of_block = np.full(len(used), -1, np.int32)
    of_block[blocks] = conn
    return end, of_block


def _invert(program: Program) -> tuple[LongArray, LongArray]:
    """Turn "waits for" around: the steps that wait for each step."""
    waiter = np.repeat(np.arange(program.steps, dtype=np.int64), np.diff(program.dep_first))
    counts = np.bincount(program.dep_step, minlength=program.steps)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return first, waiter[np.argsort(program.dep_step, kind="stable")]


def _priorities(
    program: Program, step_block: IntArray, sends: BoolArray, conns: _Connections
) -> LongArray:
    """Pack (offset, channel, index in the block, src) of every send into one integer."""
    ranks = program.ranks
    channels = int(conns.channel.max(initial=0)) + 1
    offset = (conns.dst.astype(np.int64) - conns.src) % ranks
    major = offset * channels + conns.channel
    index = np.arange(program.steps, dtype=np.int64) - program.tb_first[step_block]
    longest = int(index.max(initial=0)) + 1
    if ranks * channels * longest * ranks >= 2**63:
        raise ProgramError("the program is too large: priorities of its sends exceed 63 bits")
    priority = np.full(program.steps, -1, np.int64)
    block = step_block[sends]
    priority[sends] = (
        major[conns.block_out[block]] * longest + index[sends]
    ) * ranks + program.tb_rank[block]
    return priority


def _check_program(program: Program) -> None:
    blocks, steps, ranks = program.blocks, program.steps, program.ranks
    if program.protocol not in PROTOCOLS:
        raise ProgramError(f"protocol {program.protocol!r} is none of {', '.join(PROTOCOLS)}")
    per_block = (program.tb_id, program.tb_send, program.tb_recv, program.tb_channel)
    if any(len(a) != blocks for a in per_block) or len(program.tb_first) != blocks + 1:
        raise ProgramError("the arrays of thread blocks differ in length")
    if len(program.cnt) != steps or len(program.dep_first) != steps + 1:
        raise ProgramError("the arrays of steps differ in length")
    for name, first, last in (
        ("tb_first", program.tb_first, steps),
        ("dep_first", program.dep_first, len(program.dep_step)),
    ):
        if first[0] != 0 or first[-1] != last or (np.diff(first) < 0).any():
            raise ProgramError(f"{name} does not rise from 0 to {last}")
    if ((program.tb_rank < 0) | (program.tb_rank >= ranks)).any():
        raise ProgramError(f"a thread block is on a rank outside 0 … {ranks - 1}")
    if (program.tb_channel < 0).any():
        raise ProgramError("a thread block has a negative channel")
    if ((program.op < 0) | (program.op > max(Op))).any():
        raise ProgramError("a step has an unknown op")
    if (program.cnt < 0).any():
        raise ProgramError(f"{program.where(int(np.argmin(program.cnt)))} has a negative cnt")
    _check_dependencies(program)


def _check_dependencies(program: Program) -> None:
    if ((program.dep_step < 0) | (program.dep_step >= program.steps)).any():
        raise ProgramError(f"a dependency is outside the steps 0 … {program.steps - 1}")
    rank = program.tb_rank[program.step_block()]
    waiter = np.repeat(np.arange(program.steps), np.diff(program.dep_first))
    crossing = np.flatnonzero(rank[waiter] != rank[program.dep_step])
    if len(crossing):
        one, other = int(waiter[crossing[0]]), int(program.dep_step[crossing[0]])
        raise ProgramError(
            f"{program.where(one)} depends on {program.where(other)}, which is on another gpu"
        )


def _check_peers(program: Program, verb: str, used: BoolArray, peer: IntArray) -> None:
    bad = used & ((peer < 0) | (peer >= program.ranks) | (peer == program.tb_rank))
    if bad.any():
        block = int(np.argmax(bad))
        raise ProgramError(
            f"gpu {program.tb_rank[block]} tb {program.tb_id[block]} has {verb} steps but its "
            f"peer is {peer[block]}, expected another rank of 0 … {program.ranks - 1}"
        )


def _check_network(network: Network, ranks: int) -> None:
    if network.ranks < ranks:
        raise ProgramError(f"the program has {ranks} ranks, the network {network.ranks}")
    for name, values in (("alpha", network.alpha_us), ("beta", network.beta_us_per_byte)):
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            i = int(np.argmax(bad))
            raise ProgramError(
                f"the path from rank {network.path_src[i]} to rank {network.path_dst[i]} has "
                f"{name} {values[i]}, expected a finite number >= 0"
            )
    resource, count = network.path_resource, len(network.resources)
    if ((resource < 0) | (resource >= count)).any():
        raise ProgramError(f"a path names a resource outside 0 … {count - 1}")
    path = np.repeat(np.arange(len(network.path_src)), np.diff(network.path_first))
    uses = np.sort(path * max(count, 1) + resource)
    twice = uses[1:][np.diff(uses) == 0]
    if len(twice):
        where, which = divmod(int(twice[0]), count)
        raise ProgramError(
            f"the path from rank {network.path_src[where]} to rank {network.path_dst[where]} "
            f"names {network.resources[which]!r} twice"
        )
