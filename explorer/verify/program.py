"""Verify a program: structure, deadlock, races and values, as the MSCCL runtimes execute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.units import format_size
from explorer.verify.names import Names, address
from explorer.verify.progress import (
    UNBOUNDED,
    Progress,
    group_size,
    largest_group_that_hangs,
    run,
    slot_size,
    split,
)
from explorer.verify.races import check_overlaps, check_races
from explorer.verify.replay import sum_bytes
from explorer.verify.report import Ledger, Report
from explorer.verify.spec import Memory, Spec, memory_of, spec_of
from explorer.verify.structure import MAX_COUNT, Links, check_shape, check_structure
from explorer.verify.values import check_values
from sim.program import (
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Buffer,
    Op,
    Program,
)
from sim.protocols import PROTOCOLS

MAX_BYTES = 2 << 30
"""Memory a replay may take beside the program itself."""


def verify_program(
    program: Program,
    collective: Collective | None = None,
    *,
    size_bytes: int | None = None,
    strict: bool = False,
) -> Report:
    """Verify a program by executing it on symbols.

    Checked are the structure, that it comes to an end with the protocol's FIFO slots, that no two
    accesses race, and that every output is right, for each placement that it claims to serve.

    Parameters
    ----------
    program
        The program.
    collective
        What it must do; by default what the program says it does. ``custom`` programs have no
        values to compare.
    size_bytes
        Size it will run at. Messages and slots are checked for this size; without it for the
        program's ``max_bytes``, so for every size it serves.
    strict
        Writing to the caller's input out of place, which NCCL's API declares const, is an error,
        not a warning.

    Returns
    -------
    Report
        Under the program's name.

    Notes
    -----
    Takes time in proportion to the chunks moved, and for races to steps times blocks. Takes at
    most :data:`MAX_BYTES` beside the program, refusing what needs more.
    """
    ledger = Ledger()
    if check_shape(program, ledger):
        names = Names(program)
        examine(program, collective, names, ledger, size_bytes=size_bytes, strict=strict)
    return ledger.report(program.name)


def safe_max_bytes(program: Program, *, slot_bytes: Mapping[str, int] | None = None) -> int | None:
    """Largest size at which a program's FIFOs do not fill up into a deadlock.

    Parameters
    ----------
    slot_bytes
        Payload of a slot by protocol; NCCL's defaults (:data:`sim.protocols.PROTOCOLS`) when None.

    Returns
    -------
    int or None
        Bytes; None when there is no limit, 0 when it hangs at every size.

    Raises
    ------
    VerificationError
        If the program's structure is wrong, so that nothing can be said.
    """
    ledger = Ledger()
    links = None
    if check_shape(program, ledger):
        spec = spec_of(program, None, ledger)
        if spec is not None:
            links = check_structure(program, spec, Names(program), ledger)
    ledger.report(program.name).require()
    if links is None:
        return 0
    return _safe_bytes(program, links, slot_size(program, slot_bytes))


def examine(
    program: Program,
    collective: Collective | None,
    names: Names,
    ledger: Ledger,
    *,
    size_bytes: int | None,
    strict: bool,
    slot_bytes: Mapping[str, int] | None = None,
) -> None:
    """Do what :func:`verify_program` says, with names and slot sizes of the caller's choice."""
    spec = spec_of(program, collective, ledger)
    if spec is None:
        return
    links = check_structure(program, spec, names, ledger)
    if links is None:
        return
    if not (program.in_place or program.out_of_place):
        ledger.error("PLACEMENT", "", "serves neither in-place nor out-of-place calls")
        return
    slot = slot_size(program, slot_bytes)
    size = program.max_bytes if size_bytes is None else size_bytes
    group = group_size(program, size, slot)
    ideal = _check_progress(program, links, names, ledger, size_bytes, slot)
    if ideal is None:
        return
    whole = Work(program, links, ideal.order, np.arange(program.steps))
    fused = OP_SENDS[program.op] & OP_RECEIVES[program.op]
    work = whole
    if bool((program.cnt[fused] > group).any()):
        parts, part_links, origin = split(program, links, group)
        order = run(parts, part_links, group=1 << 30, slots=UNBOUNDED).order
        work = Work(parts, part_links, order, origin)
    for in_place in (False, True):
        if program.in_place if in_place else program.out_of_place:
            _check_placement(whole, work, spec, in_place, names, ledger, strict)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Steps to replay: as written, or split into messages.

    Parameters
    ----------
    program, links
        The steps.
    order
        All of them, in an order in which they can run.
    origin
        The step as written of each.
    """

    program: Program
    links: Links
    order: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]


def _check_progress(
    program: Program,
    links: Links,
    names: Names,
    ledger: Ledger,
    size_bytes: int | None,
    slot: int,
) -> Progress | None:
    """Look for deadlocks; returns an execution with endless FIFOs, None where even that hangs."""
    ideal = run(program, links, group=1 << 30, slots=UNBOUNDED)
    if ideal.stuck:
        where, cycle = ideal.describe(names)
        ledger.error("DEADLOCK", where, f"hangs at every size with any number of slots: {cycle}")
        return None
    slots = PROTOCOLS[program.protocol].slots
    sizes = [(program.max_bytes, True)]
    if size_bytes is not None:
        sizes = [(size_bytes, True), (program.max_bytes, False)]
    for size, error in sizes:
        end = run(program, links, group=group_size(program, size, slot), slots=slots)
        if not end.stuck:
            continue
        safe = _safe_bytes(program, links, slot)
        above = f"above {safe} bytes ({format_size(safe)})" if safe else "at every size"
        served = "it serves every size"
        if size is not None:
            served = f"it {'serves up to' if size_bytes is None or not error else 'runs'} {size}"
        where, cycle = end.describe(names)
        ledger.add(
            "DEADLOCK",
            where,
            f"hangs {above} with {program.protocol}'s {slots} slots of {slot} bytes,"
            f" and {served}: {cycle}",
            error=error,
        )
        break
    return ideal


def _safe_bytes(program: Program, links: Links, slot: int) -> int | None:
    slots = PROTOCOLS[program.protocol].slots
    hangs = largest_group_that_hangs(program, links, slots=slots)
    if hangs == 0:
        return None
    return 0 if hangs >= MAX_COUNT else slot // (hangs + 1) * program.nchunks


def _check_placement(
    whole: Work,
    work: Work,
    spec: Spec,
    in_place: bool,
    names: Names,
    ledger: Ledger,
    strict: bool,
) -> None:
    program = whole.program
    memory = memory_of(program, spec, in_place=in_place)
    need = _replay_bytes(work.program, memory)
    if need > MAX_BYTES:
        ledger.error(
            "SIZE", "", f"a replay needs {need} bytes of memory, this checker takes {MAX_BYTES}"
        )
        return
    prefix = ""
    if program.in_place and program.out_of_place:
        prefix = "in place: " if in_place else "out of place: "
    if not in_place:
        _check_input_kept(program, names, ledger, strict)
    if spec.name == "reduce" and spec.root >= 0 and not in_place:
        _check_output_absent(program, spec, names, ledger, strict)
    before = ledger.errors
    check_overlaps(program, memory, names, ledger, prefix)
    check_races(work.program, work.links, memory, work.order, names, work.origin, ledger, prefix)
    if ledger.errors > before:
        prefix += "in one order of what races: "
    check_values(program, whole.links, spec, memory, whole.order, names, ledger, prefix)


def _replay_bytes(program: Program, memory: Memory) -> int:
    cnt = program.cnt.astype(np.int64)
    reads, writes = OP_READS_SRC[program.op], OP_WRITES_DST[program.op]
    adds = (OP_RECEIVES[program.op] & reads) | (program.op == Op.REDUCE)
    read, added = int(cnt[reads].sum()), int(cnt[adds].sum())
    questions = 2 * (read + added) + int(cnt[writes].sum())
    race = 16 * memory.cells + 16 * (read + added) + 32 * questions
    values = 4 * memory.cells + sum_bytes(program.ranks) * added + 4 * int(cnt.sum())
    return int(max(race, values))


def _check_input_kept(program: Program, names: Names, ledger: Ledger, strict: bool) -> None:
    writes = OP_WRITES_DST[program.op] & (program.dst_buf == Buffer.INPUT)
    for step in np.flatnonzero(writes):
        where = address(Buffer.INPUT, int(program.dst_off[step]), int(program.cnt[step]))
        ledger.add(
            "INPUT",
            names.step(step),
            f"{names.op(step)} writes {where}, the caller's const input out of place",
            error=strict,
        )


def _check_output_absent(
    program: Program, spec: Spec, names: Names, ledger: Ledger, strict: bool
) -> None:
    rank = program.tb_rank[program.step_block()]
    output = OP_WRITES_DST[program.op] & (program.dst_buf == Buffer.OUTPUT)
    for step in np.flatnonzero(output & (rank != spec.root)):
        where = address(Buffer.OUTPUT, int(program.dst_off[step]), int(program.cnt[step]))
        ledger.add(
            "OUTPUT",
            names.step(step),
            f"writes {where} of gpu {rank[step]}: only the root of a reduce has an output",
            error=strict,
        )
