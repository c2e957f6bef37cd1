"""Cycles: make sure that no thread block of a program waits for itself.

Lowering builds programs whose waits all lead from earlier to later in the plan. This check does
not rely on that: it orders all steps, with a message per chunk, which is what a transfer becomes
when chunks fill slots. A program that passes does not deadlock at any size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program import OP_RECEIVES, OP_SENDS, Program

IntArray = npt.NDArray[np.int64]


def waits_for_itself(program: Program, slots: int) -> bool:
    """Whether waits for steps, messages and slots close a cycle.

    Parameters
    ----------
    program
        Its connections have as many sends as receives.
    slots
        Messages a connection holds before its sender waits.

    Notes
    -----
    Kahn's algorithm. A transfer of k chunks is k nodes in a row, of which slots + 1 tell all: what
    the next one waits for is what that one waited for.
    """
    size = program.cnt.astype(np.int64)
    moves = OP_SENDS[program.op] | OP_RECEIVES[program.op]
    nodes = np.where(moves, np.clip(size, 1, slots + 1), 1)
    first = np.concatenate(([0], np.cumsum(nodes)))
    count = int(first[-1])
    tail, head = _edges(program, first, nodes, slots)
    order = np.argsort(tail, kind="stable")
    after: list[int] = head[order].tolist()
    begin: list[int] = np.searchsorted(tail[order], np.arange(count + 1)).tolist()
    unmet: list[int] = np.bincount(head, minlength=count).tolist()
    todo = [node for node in range(count - 1, -1, -1) if not unmet[node]]
    done = 0
    while todo:
        node = todo.pop()
        done += 1
        for other in after[begin[node] : begin[node + 1]]:
            unmet[other] -= 1
            if not unmet[other]:
                todo.append(other)
    return done < count


def _edges(
    program: Program, first: IntArray, nodes: IntArray, slots: int
) -> tuple[IntArray, IntArray]:
    """What comes before what: rows, blocks, dependencies, messages, slots."""
    count = int(first[-1])
    last = first[1:] - 1
    # nodes of a block follow one another, within a step and from step to step
    chain = np.arange(count - 1)
    block_ends = last[program.tb_first[1:] - 1] if program.steps else first[:0]
    chain = np.setdiff1d(chain, block_ends, assume_unique=True)
    waiter = np.repeat(np.arange(program.steps), np.diff(program.dep_first))
    sent, received = _messages(program, first, nodes)
    key, sent_node = sent
    _, received_node = received
    at = np.arange(len(key))
    follows = at[slots:][key[slots:] == key[: len(key) - slots]] if len(key) > slots else at[:0]
    tail = [chain, last[program.dep_step], sent_node, received_node[follows - slots]]
    head = [chain + 1, first[waiter], received_node, sent_node[follows]]
    tails, heads = np.concatenate(tail), np.concatenate(head)
    # a fused step is the receive and the send of its node at once
    apart = tails != heads
    return tails[apart], heads[apart]


def _messages(
    program: Program, first: IntArray, nodes: IntArray
) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Connection and node of every message, at the sender and at the receiver, paired."""
    block = program.step_block()
    rank, channel = program.tb_rank.astype(np.int64), program.tb_channel.astype(np.int64)
    ends = []
    for moves, src, dst in (
        (OP_SENDS, rank, program.tb_send.astype(np.int64)),
        (OP_RECEIVES, program.tb_recv.astype(np.int64), rank),
    ):
        key = (src * program.ranks + dst) * program.channels + channel
        steps = np.flatnonzero(moves[program.op])
        steps = steps[np.argsort(key[block[steps]], kind="stable")]
        of = np.repeat(steps, nodes[steps])
        place = np.arange(len(of)) - np.repeat(np.cumsum(nodes[steps]) - nodes[steps], nodes[steps])
        ends.append((key[block[of]], first[of] + place))
    return ends[0], ends[1]
