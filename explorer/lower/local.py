"""Programs of a single rank: nothing to send, only to copy."""

from __future__ import annotations

from explorer.core.collective import Collective
from explorer.errors import InputError, Problem
from explorer.lower.memory import Memory
from explorer.lower.windows import pieces
from sim.program import Buffer, Op, Program, ProgramBuilder


def local_program(
    collective: Collective,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    name: str | None = None,
    largest: int | None = None,
) -> Program:
    """Program of a collective on one rank: input is copied to output, in place nothing is done.

    Parameters
    ----------
    collective
        On one rank.
    placement
        ``out``, ``in`` or ``both``.
    protocol
        Named in the program.
    name
        Label.
    largest
        Chunks of one step.

    Raises
    ------
    InputError
        If there is more than one rank.

    Examples
    --------
    >>> local_program(Collective("allreduce", 1, 4)).cnt
    array([4], dtype=int32)
    """
    if collective.ranks != 1:
        raise InputError(
            Problem("schedule", f"no sends on {collective.ranks} ranks, expected one rank")
        )
    memory = Memory(collective, placement)
    builder = ProgramBuilder(1)
    block = builder.block(0)
    if memory.copies_own:
        for source, target, count in pieces([(k, k) for k in range(collective.nchunks)], largest):
            builder.step(
                block, Op.COPY, src=(Buffer.INPUT, source), dst=(Buffer.OUTPUT, target), cnt=count
            )
    return builder.build(
        name=name or f"{collective.name}-local",
        collective=collective.name,
        nchunks=collective.nchunks,
        protocol=protocol,
        in_place=placement != "out",
        out_of_place=placement != "in",
        root=collective.root if collective.rooted else -1,
        buffer_chunks=memory.buffer_chunks,
    )
