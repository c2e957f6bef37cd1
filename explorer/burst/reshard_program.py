"""Resharding as a program: which GPU sends how many samples to which."""

from __future__ import annotations

from sim.program import Buffer, Op, Program, ProgramBuilder


def transfers(
    batch: int, before: tuple[int, int], after: tuple[int, int]
) -> list[tuple[int, int, int]]:
    """Samples that move when the set of GPUs changes, as few as possible.

    Every GPU of a set holds an equal share of the batch. One that is in both sets keeps the
    smaller of its shares; what it has too much goes to GPUs that have too little, in rank order.

    Parameters
    ----------
    batch
        Samples in all.
    before, after
        (first rank, number of GPUs) of the sets.

    Returns
    -------
    list
        (source, destination, samples).

    Examples
    --------
    >>> transfers(4, (0, 1), (0, 2)), transfers(4, (0, 2), (2, 2))
    ([(0, 1, 2)], [(0, 2, 2), (1, 3, 2)])
    """
    change: dict[int, int] = {}
    for sign, (first, gpus) in ((1, before), (-1, after)):
        for rank in range(first, first + gpus):
            change[rank] = change.get(rank, 0) + sign * (batch // gpus)
    donors = [(rank, n) for rank, n in sorted(change.items()) if n > 0]
    takers = [(rank, -n) for rank, n in sorted(change.items()) if n < 0]
    moves = []
    while donors:
        source, have = donors[0]
        target, want = takers[0]
        n = min(have, want)
        moves.append((source, target, n))
        donors[0], takers[0] = (source, have - n), (target, want - n)
        donors = donors[1:] if have == n else donors
        takers = takers[1:] if want == n else takers
    return moves


def reshard_program(ranks: int, moves: list[tuple[int, int, int]], *, back: bool) -> Program:
    """Program that makes all transfers at once; one chunk is one sample.

    Parameters
    ----------
    ranks
        Ranks of the machine.
    moves
        From :func:`transfers`.
    back
        Send the gradients back instead.
    """
    builder = ProgramBuilder(ranks)
    for a, b, samples in moves:
        source, target = (b, a) if back else (a, b)
        sender, receiver = builder.block(source, send=target), builder.block(target, recv=source)
        builder.step(sender, Op.SEND, src=(Buffer.INPUT, 0), cnt=samples)
        builder.step(receiver, Op.RECV, dst=(Buffer.OUTPUT, 0), cnt=samples)
    return builder.build(name="reshard", collective="custom", nchunks=1)
