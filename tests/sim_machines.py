"""Small networks and random valid programs for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from sim.network import Network
from sim.program import Op, Program, ProgramBuilder

Path = tuple[Sequence[str], float, float]
"""Resources, alpha in µs, beta in µs per byte."""


def network(ranks: int, paths: Mapping[tuple[int, int], Path]) -> Network:
    """Network of these paths; resources are numbered in alphabetical order."""
    pairs = sorted(paths)
    names = sorted({name for pair in pairs for name in paths[pair][0]})
    uses = [[names.index(name) for name in paths[pair][0]] for pair in pairs]
    return Network(
        ranks=ranks,
        resources=tuple(names),
        path_src=np.array([src for src, _ in pairs], np.int32),
        path_dst=np.array([dst for _, dst in pairs], np.int32),
        alpha_us=np.array([paths[pair][1] for pair in pairs], np.float64),
        beta_us_per_byte=np.array([paths[pair][2] for pair in pairs], np.float64),
        path_first=np.cumsum([0] + [len(use) for use in uses]).astype(np.int64),
        path_resource=np.array([r for use in uses for r in use], np.int32),
    )


def pairs_of(ranks: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(ranks) for b in range(ranks) if a != b]


def full(ranks: int, alpha_us: float = 1.0, beta: float = 1.0) -> Network:
    """A link of its own between every two ranks."""
    return network(
        ranks, {(a, b): ([f"gpu{a}->gpu{b}"], alpha_us, beta) for a, b in pairs_of(ranks)}
    )


def switch(ranks: int, alpha_us: float = 1.0, beta: float = 1.0) -> Network:
    """One egress and one ingress port per rank."""
    return network(
        ranks,
        {
            (a, b): ([f"gpu{a}->switch", f"switch->gpu{b}"], alpha_us, beta)
            for a, b in pairs_of(ranks)
        },
    )


def ring_allgather(ranks: int) -> Program:
    """Every rank passes on what it received: ``s``, then ``rcs``, at last ``r``."""
    b = ProgramBuilder(ranks)
    for rank in range(ranks):
        block = b.block(rank, send=(rank + 1) % ranks, recv=(rank - 1) % ranks)
        b.step(block, Op.SEND, src=(1, rank))
        for step in range(1, ranks):
            op = Op.RECV_COPY_SEND if step < ranks - 1 else Op.RECV
            b.step(block, op, dst=(1, (rank - step) % ranks))
    return b.build(name="ring", collective="allgather", nchunks=ranks)


def random_network(random: Random, ranks: int) -> Network:
    """Paths over few resources, so that they collide; few costs, so that times coincide."""
    pool = [f"r{i}" for i in range(random.randint(1, 2 * ranks))]
    alphas = [0.0, 0.5, random.random()]
    betas = [0.0, 0.25, random.random()]
    kind = random.choice(("switch", "mixed", "private"))
    paths: dict[tuple[int, int], Path] = {}
    for a, b in pairs_of(ranks):
        if kind == "switch":
            resources = [f"out{a}", f"in{b}"]
        elif kind == "private":
            resources = [f"{a}->{b}"]
        else:
            resources = random.sample(pool, random.randint(0, min(3, len(pool))))
        paths[a, b] = (resources, random.choice(alphas), random.choice(betas))
    return network(ranks, paths)


def random_program(random: Random, ranks: int, messages: int) -> Program:
    """A valid program of random messages.

    Steps are laid down along one order of everything that happens: each message is sent, then
    received, and a step depends only on steps before it. Doing things in that order is possible
    with a single slot, and what blocks do does not depend on timing, so nothing deadlocks.
    """
    b = ProgramBuilder(ranks)
    blocks = _wire(random, b, ranks)
    laid: list[list[int]] = [[] for _ in range(ranks)]
    local = {rank: b.block(rank) for rank in range(ranks)}

    def lay(rank: int, block: int, op: Op, cnt: int) -> None:
        known = laid[rank]
        after = random.sample(known, min(len(known), random.choice((0, 0, 0, 1, 2))))
        known.append(b.step(block, op, cnt=cnt, after=after))

    for _ in range(messages):
        src, dst = random.choice(pairs_of(ranks))
        channel, cnt = random.randint(0, 1), random.randint(1, 3)
        lay(src, blocks["send", src, dst, channel], Op.SEND, cnt)
        # a message may travel on, fused, as long as the receiving block sends at all
        while random.random() < 0.6:
            here = blocks["recv", dst, src, channel]
            onward = [
                p for p in range(ranks) if p != dst and blocks["send", dst, p, channel] == here
            ]
            if not onward:
                break
            op = random.choice((Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND))
            lay(dst, here, op, cnt)
            src, dst = dst, onward[0]
        lay(
            dst,
            blocks["recv", dst, src, channel],
            random.choice((Op.RECV, Op.RECV_REDUCE_COPY)),
            cnt,
        )
        if random.random() < 0.3:
            rank = random.randrange(ranks)
            lay(rank, local[rank], random.choice((Op.COPY, Op.REDUCE, Op.NOP)), 1)
    return b.build(
        name="random",
        collective="custom",
        nchunks=1,
        protocol=random.choice(("Simple", "Simple", "LL")),
    )


def _wire(random: Random, b: ProgramBuilder, ranks: int) -> dict[tuple[str, int, int, int], int]:
    """Blocks for all connections of two channels; some serve one to send and one to receive."""
    blocks: dict[tuple[str, int, int, int], int] = {}
    for rank in range(ranks):
        for channel in (0, 1):
            out = [p for p in range(ranks) if p != rank]
            into = list(out)
            random.shuffle(out)
            random.shuffle(into)
            joint = random.randint(0, len(out))
            for i in range(joint):
                both = b.block(rank, send=out[i], recv=into[i], channel=channel)
                blocks["send", rank, out[i], channel] = blocks["recv", rank, into[i], channel] = (
                    both
                )
            for i in range(joint, len(out)):
                blocks["send", rank, out[i], channel] = b.block(rank, send=out[i], channel=channel)
                blocks["recv", rank, into[i], channel] = b.block(
                    rank, recv=into[i], channel=channel
                )
    return blocks


def random_case(seed: int, ranks: int, messages: int) -> tuple[Program, Network, float]:
    """A program, a network for it, and a chunk size."""
    random = Random(seed)
    program = random_program(random, ranks, messages)
    return program, random_network(random, ranks), random.choice((0.0, 1.0, 1.0, 3.7))
