"""Job: a program with everything fixed that its execution depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.collective import COLLECTIVES, Collective
from explorer.errors import InputError, Problem
from explorer.execute.definition import chunk_counts
from explorer.units import ELEMENT_BYTES
from sim.program import (
    BUFFER_TEXT,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_TEXT,
    OP_WRITES_DST,
    Op,
    Program,
)
from sim.protocols import PROTOCOLS

ELEMENTS_PER_CHUNK = 12
"""Elements of a chunk where no size is given."""
TILES = 3
"""Loop iterations of a scaled run of a program that serves sizes beyond one slot per chunk."""
MAX_COUNT = 71
"""Chunks of one message at most (msccl ``src/include/msccl.h``, the 72-entry count field)."""
MEMORY_BYTES = 8 << 30
"""Buffers of all ranks together may take this much."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the workers run.

    Parameters
    ----------
    program
        The program; its addresses lie inside the buffers.
    placement
        ``in`` or ``out``.
    root
        Root of a rooted collective, else 0.
    elements
        4-byte elements of a chunk.
    slot_elements
        Elements of a chunk that one slot of a connection holds: the tile of the loop.
    per_message
        Chunks that one message carries at most.
    iterations
        Loop iterations: ceil(elements / slot_elements).
    slots
        Messages a connection holds.
    seed
        Of inputs and garbage.
    jitter_seed
        Of random delays before steps; None for no delays.
    connections
        (source, destination, channel) of every connection, sorted.
    """

    program: Program
    placement: str
    root: int
    elements: int
    slot_elements: int
    per_message: int
    iterations: int
    slots: int
    seed: int
    jitter_seed: int | None
    connections: tuple[tuple[int, int, int], ...]

    @property
    def input_elements(self) -> int:
        """Elements of one rank's input buffer."""
        program = self.program
        inside, _ = chunk_counts(program.collective, program.ranks, program.nchunks)
        return inside * self.elements

    def unpaired(self) -> list[tuple[int, int, int, int]]:
        """Connections with more messages sent than received: source, destination, channel, excess.

        With slots to spare such a program ends, and the messages spoil the next call.
        """
        program = self.program
        messages = -(-program.cnt // self.per_message)
        step_block = program.step_block()
        balance = dict.fromkeys(self.connections, 0)
        for moves, ends, sign in (
            (OP_SENDS, _sending(program), 1),
            (OP_RECEIVES, _receiving(program), -1),
        ):
            for step in np.flatnonzero(moves[program.op]).tolist():
                balance[ends[int(step_block[step])]] += sign * int(messages[step])
        return [(*key, n * self.iterations) for key, n in balance.items() if n > 0]


def plan_job(
    program: Program,
    collective: Collective | None,
    *,
    elements_per_chunk: int | None,
    size_bytes: int | None,
    slot_bytes: int | None,
    seed: int,
    placement: str | None,
    jitter_seed: int | None,
) -> Job:
    """Fix sizes and check that the program can be executed at all.

    Raises
    ------
    InputError
        If program and collective disagree, a step addresses what is not there, two thread blocks
        share an end of a connection, or the size is too small or too large.
    """
    problems = [*_fit_problems(program, collective), *_connection_problems(program)]
    if placement is None:
        placement = "out" if program.out_of_place else "in"
    served = {"in": program.in_place, "out": program.out_of_place}
    if not served.get(placement):
        kinds = " and ".join(kind for kind in served if served[kind]) or "neither"
        problems.append(Problem("placement", f"got {placement!r}, the program serves {kinds}"))
    if problems:
        raise InputError(problems)
    elements, slot_elements = _sizes(program, elements_per_chunk, size_bytes, slot_bytes)
    problems = [*_address_problems(program), *_memory_problems(program, elements)]
    if problems:
        raise InputError(problems)
    ends = set(_sending(program).values()) | set(_receiving(program).values())
    return Job(
        program,
        placement,
        max(program.root, 0),
        elements,
        slot_elements,
        per_message=min(MAX_COUNT, max(1, slot_elements // elements)),
        iterations=-(-elements // slot_elements),
        slots=PROTOCOLS[program.protocol].slots,
        seed=seed,
        jitter_seed=jitter_seed,
        connections=tuple(sorted(ends)),
    )


def _sizes(
    program: Program, per_chunk: int | None, size_bytes: int | None, slot_bytes: int | None
) -> tuple[int, int]:
    """Elements of a chunk and of a slot.

    Without a size a chunk of a few elements stands for the largest chunk the program serves:
    the slot is scaled with it, so the program loops and splits its messages as it would there.
    """
    capacity = slot_bytes or PROTOCOLS[program.protocol].slot_bytes
    if size_bytes is not None:
        elements = size_bytes // (program.nchunks * ELEMENT_BYTES)
        if elements < 1:
            least = program.nchunks * ELEMENT_BYTES
            text = f"got {size_bytes} bytes, one element per chunk takes {least}"
            raise InputError(Problem("size", text))
        return elements, max(1, capacity // ELEMENT_BYTES)
    elements = per_chunk or ELEMENTS_PER_CHUNK
    if slot_bytes is not None:
        return elements, max(1, slot_bytes // ELEMENT_BYTES)
    largest = None if program.max_bytes is None else program.max_bytes // program.nchunks
    if largest is None or largest > capacity:
        return elements, max(1, -(-elements // TILES))
    return elements, elements * min(MAX_COUNT, capacity // max(largest, 1))


def _fit_problems(program: Program, collective: Collective | None) -> Iterator[Problem]:
    name, per = program.collective, program.ranks
    if name not in COLLECTIVES:
        yield Problem("collective", f"{name!r} has no definition to compare with")
    elif name in ("allgather", "reducescatter", "alltoall") and program.nchunks % per:
        yield Problem("chunks", f"{name} of {program.nchunks} chunks on {per} ranks")
    if program.protocol not in PROTOCOLS:
        yield Problem("protocol", f"got {program.protocol!r}, expected one of {list(PROTOCOLS)}")
    if collective is None:
        return
    pairs: list[tuple[str, object, object]] = [
        ("collective", name, collective.name),
        ("ranks", program.ranks, collective.ranks),
        ("chunks", program.nchunks, collective.nchunks),
    ]
    if collective.rooted:
        pairs.append(("root", program.root, collective.root))
    for what, got, expected in pairs:
        if got != expected:
            yield Problem(what, f"the program has {got}, expected {expected}")


def _sending(program: Program) -> dict[int, tuple[int, int, int]]:
    """Connection of every thread block that sends."""
    active = np.unique(program.step_block()[OP_SENDS[program.op]]).tolist()
    rank, peer, channel = program.tb_rank, program.tb_send, program.tb_channel
    return {t: (int(rank[t]), int(peer[t]), int(channel[t])) for t in active}


def _receiving(program: Program) -> dict[int, tuple[int, int, int]]:
    """Connection of every thread block that receives."""
    active = np.unique(program.step_block()[OP_RECEIVES[program.op]]).tolist()
    rank, peer, channel = program.tb_rank, program.tb_recv, program.tb_channel
    return {t: (int(peer[t]), int(rank[t]), int(channel[t])) for t in active}


def _connection_problems(program: Program) -> Iterator[Problem]:
    for what, ends in (("sends", _sending(program)), ("receives", _receiving(program))):
        owner: dict[tuple[int, int, int], int] = {}
        for block, key in sorted(ends.items()):
            where = f"gpu {program.tb_rank[block]} tb {program.tb_id[block]}"
            peer = key[1] if what == "sends" else key[0]
            if not 0 <= peer < program.ranks or key[0] == key[1]:
                yield Problem(where, f"{what} with peer {peer}")
            elif key in owner:
                other = program.tb_id[owner[key]]
                text = f"{what} on gpu {key[0]} -> gpu {key[1]} channel {key[2]} like tb {other}"
                yield Problem(where, f"{text}; a connection has one block at each end")
            owner.setdefault(key, block)


def _address_problems(program: Program) -> Iterator[Problem]:
    inside, outside = chunk_counts(program.collective, program.ranks, program.nchunks)
    rank = program.tb_rank[program.step_block()]
    bad_steps = (program.op == Op.NOP) | (program.cnt < 1)
    for step in np.flatnonzero(bad_steps).tolist()[:5]:
        text = f"{OP_TEXT[program.op[step]]} of {program.cnt[step]} chunks cannot be executed"
        yield Problem(program.where(step), text)
    for uses, buffers, offsets in (
        (OP_READS_SRC[program.op], program.src_buf, program.src_off),
        (OP_WRITES_DST[program.op], program.dst_buf, program.dst_off),
    ):
        sizes = _stack(inside, outside, program.s_chunks)[buffers, rank]
        bad = uses & ((offsets < 0) | (offsets + program.cnt > sizes))
        for step in np.flatnonzero(bad).tolist()[:5]:
            first, last = offsets[step], offsets[step] + program.cnt[step]
            text = f"addresses {BUFFER_TEXT[buffers[step]]}[{first}:{last}] of {sizes[step]} chunks"
            yield Problem(program.where(step), text)


def _stack(inside: int, outside: int, scratch: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.stack([np.full_like(scratch, inside), np.full_like(scratch, outside), scratch])


def _memory_problems(program: Program, elements: int) -> Iterator[Problem]:
    inside, outside = chunk_counts(program.collective, program.ranks, program.nchunks)
    chunks = program.ranks * (inside + outside) + int(program.s_chunks.sum())
    needed = chunks * elements * ELEMENT_BYTES
    if needed > MEMORY_BYTES:
        text = f"the buffers of all ranks take {needed} bytes, at most {MEMORY_BYTES} are allowed"
        yield Problem("size", text)
