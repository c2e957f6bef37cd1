"""Dialects of MSCCL XML: what each runtime reads, and the limits it loads programs within.

One entry of :data:`DIALECTS` is one runtime, as data; writer, reader and limit check have no
branch on a runtime's name. Sources, by runtime:

- ``msccl``: microsoft/msccl ``src/graph/topo.cc`` (loader), ``src/include/msccl.h`` (limits),
  ``src/graph/tuning.cc`` (selection);
- ``executor``: Azure/msccl-executor-nccl ``src/misc/msccl/msccl_parser.cc``,
  ``src/include/msccl/msccl_struct.h``, ``makefiles/common.mk``;
- ``rccl``: ROCm/rccl, the same files, and ``src/misc/msccl/msccl_setup.cc`` for the step types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from explorer.errors import Finding, InputError, Problem, nearest
from sim.program import OP_READS_SRC, OP_RECEIVES, OP_SENDS, OP_TEXT, OP_WRITES_DST, Op, Program

UNLIMITED = "unlimited"
"""The target that no runtime loads: for simulation and ranking only."""

ALL_OPS = frozenset(Op) - {Op.NOP}
"""Step types of the format; nop is the writer's means to carry dependencies."""

_Measured = tuple[str, int | None, npt.NDArray[np.integer], Callable[[int], str]]


class LimitError(InputError):
    """A program is beyond what a runtime loads (exit code 2)."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__([Problem(f.where, f.message) for f in findings])


@dataclass(frozen=True, slots=True)
class Limits:
    """What a runtime can load; None is no limit.

    Parameters
    ----------
    blocks
        Thread blocks of a GPU.
    steps
        Steps of a thread block, nops included.
    nodes
        XML elements a rank reads: 1 + GPUs + its thread blocks + its steps.
    children
        Children of one element; more overrun an array.
    channels
        Channels; the loaders accept one more and overrun the heap.
    blocks_per_channel
        Thread blocks of a GPU that send (or receive) on one channel.
    count
        Chunks of one step.
    offset
        Largest offset in chunks, a signed 16-bit field.
    dependency
        Largest id of a thread block that can be waited for, a signed 8-bit field.
    fused
        Consecutive reductions into one address that the loader may fuse; the writer breaks
        longer runs, so a program never exceeds this.
    """

    blocks: int | None = None
    steps: int | None = None
    nodes: int | None = None
    children: int | None = None
    channels: int | None = None
    blocks_per_channel: int | None = None
    count: int | None = None
    offset: int | None = None
    dependency: int | None = None
    fused: int | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """One runtime that reads MSCCL XML.

    Parameters
    ----------
    name
        As given to ``--dialect``.
    limits
        What it loads.
    ops
        Step types it can run.
    coll
        Spelling of every collective it knows.
    required
        Attributes of ``<algo>`` without which it refuses a file.
    one_placement
        ``inplace`` must equal the kind of the call, so a file serves one kind.
    exclusive_max
        Whether a size must be below ``maxBytes`` (else at most).
    no_max
        ``maxBytes`` that means no limit.
    no_max_scratch
        The same for a program with scratch, where the runtime allocates for ``maxBytes`` bytes
        when it starts.
    default_max
        ``maxBytes`` where the attribute is missing; None where it is required.
    writable
        Whether there is a file form at all.
    """

    name: str
    limits: Limits
    ops: frozenset[Op]
    coll: Mapping[str, str]
    required: tuple[str, ...]
    one_placement: bool
    exclusive_max: bool
    no_max: int
    no_max_scratch: int
    default_max: int | None
    writable: bool = True


_SPELLING = {
    name: name
    for name in ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
}
_LOADER = Limits(
    steps=64,
    nodes=4095,
    children=1024,
    channels=32,
    blocks_per_channel=32,
    count=71,
    offset=(1 << 15) - 1,
    dependency=(1 << 7) - 1,
    fused=15,
)
_COMMON = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")


def _loader_limits(**changes: int) -> Limits:
    values = {f.name: getattr(_LOADER, f.name) for f in fields(Limits)}
    return Limits(**{**values, **changes})


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        d.name: d
        for d in (
            Dialect(
                "executor",
                _loader_limits(blocks=1024),
                ALL_OPS,
                MappingProxyType(_SPELLING),
                (*_COMMON, "outofplace", "minBytes", "maxBytes"),
                one_placement=False,
                exclusive_max=False,
                no_max=0,
                no_max_scratch=0,
                default_max=None,
            ),
            Dialect(
                "msccl",
                _loader_limits(blocks=216, steps=256),
                ALL_OPS,
                MappingProxyType(
                    {**_SPELLING, "reducescatter": "reduce_scatter", "custom": "custom"}
                ),
                ("name", *_COMMON),
                one_placement=True,
                exclusive_max=True,
                # 0 is an empty range here. 2^60 is what TE-CCL's converter writes; with scratch,
                # 2^27 is the runtime's own default.
                no_max=1 << 60,
                no_max_scratch=1 << 27,
                default_max=1 << 27,
            ),
            Dialect(
                "rccl",
                _loader_limits(blocks=64, channels=128),
                # the kernel with fused receives is not built (msccl_setup.cc)
                frozenset({Op.SEND, Op.RECV, Op.COPY, Op.REDUCE}),
                MappingProxyType(_SPELLING),
                (*_COMMON, "outofplace", "minBytes", "maxBytes"),
                one_placement=False,
                exclusive_max=False,
                no_max=0,
                no_max_scratch=0,
                default_max=None,
            ),
            Dialect(
                UNLIMITED,
                Limits(),
                ALL_OPS,
                MappingProxyType({**_SPELLING, "custom": "custom"}),
                (),
                one_placement=False,
                exclusive_max=False,
                no_max=0,
                no_max_scratch=0,
                default_max=None,
                writable=False,
            ),
        )
    }
)
"""The dialects by name, the default one first."""


def dialect_of(name: str) -> Dialect:
    """Dialect of that name.

    Raises
    ------
    InputError
        If there is none; the nearest name is given.
    """
    found = DIALECTS.get(name)
    if found is None:
        raise InputError(Problem("dialect", f"got {name!r}, {nearest(name, DIALECTS)}"))
    return found


def limits_of(dialect: str) -> Limits:
    """Limits of a runtime, for those who lower programs to it.

    Examples
    --------
    >>> limits_of("executor").steps, limits_of("msccl").blocks
    (64, 216)
    """
    return dialect_of(dialect).limits


def file_steps(program: Program) -> npt.NDArray[np.int64]:
    """Steps that each thread block takes in a file, int64 ``[T]``.

    A step carries one dependency; each further one is a nop before it.
    """
    width = np.maximum(np.diff(program.dep_first), 1)
    ends = np.concatenate(([0], np.cumsum(width)))
    counts: npt.NDArray[np.int64] = np.diff(ends[program.tb_first])
    return counts


def exceeded(program: Program, dialect: str) -> list[Finding]:
    """Limits of a runtime that a program exceeds, one finding per limit with its worst place.

    Parameters
    ----------
    program
        Any program.
    dialect
        Name of the runtime; nothing exceeds ``unlimited``.

    Returns
    -------
    list[Finding]
        Code ``LIMIT`` (or ``TYPE`` for step types and collectives the runtime lacks), each with
        number, limit and target. Empty where the runtime can load the program.
    """
    target = dialect_of(dialect)
    return [*_lacking(program, target), *_over(program, target)]


def _lacking(program: Program, target: Dialect) -> Iterator[Finding]:
    if program.collective not in target.coll:
        known = " ".join(sorted(target.coll))
        message = f"{target.name} has no collective {program.collective!r}, only {known}"
        yield Finding("TYPE", "program", message)
    wrong = [op for op in sorted(Op) if op not in target.ops and np.any(program.op == op)]
    for op in wrong:
        places = np.flatnonzero(program.op == op)
        known = " ".join(OP_TEXT[o] for o in sorted(target.ops))
        message = f"step type {OP_TEXT[op]} does not run on {target.name}, which runs {known}"
        yield Finding("TYPE", program.where(int(places[0])), message + _others(len(places) - 1))


def _over(program: Program, target: Dialect) -> Iterator[Finding]:
    for what, limit, values, where in _measured(program, target.limits):
        if limit is not None and len(values) and int(values.max()) > limit:
            worst = int(np.argmax(values))
            over = int((values > limit).sum())
            yield _finding(what, int(values[worst]), limit, target, where(worst), over)
    empty = np.flatnonzero(program.cnt < 1)
    if target.limits.count is not None and len(empty):
        message = f"{program.cnt[empty[0]]} chunks in one step, {target.name} needs at least 1"
        yield Finding("LIMIT", program.where(int(empty[0])), message)


def _measured(program: Program, limits: Limits) -> Iterator[_Measured]:
    """Every quantity a runtime limits, with the place of each of its values."""
    ranks = program.ranks
    per_block = file_steps(program)
    blocks = np.bincount(program.tb_rank, minlength=ranks)
    steps = np.bincount(program.tb_rank, weights=per_block, minlength=ranks).astype(np.int64)
    waited = program.tb_id[program.step_block()[program.dep_step]]
    waiter = np.repeat(np.arange(program.steps), np.diff(program.dep_first))
    offset = np.maximum(
        np.where(OP_READS_SRC[program.op], program.src_off, 0),
        np.where(OP_WRITES_DST[program.op], program.dst_off, 0),
    )
    channels = np.append(program.tb_channel + 1, program.channels)

    def gpu(rank: int) -> str:
        return f"gpu {rank}"

    def block(index: int) -> str:
        return f"gpu {program.tb_rank[index]} tb {program.tb_id[index]}"

    def whole(_: int) -> str:
        return "program"

    def waits(index: int) -> str:
        return program.where(int(waiter[index]))

    yield "thread blocks", limits.blocks, blocks, gpu
    yield "steps with nops", limits.steps, per_block, block
    yield "XML nodes to read", limits.nodes, 1 + ranks + blocks + steps, gpu
    yield "GPUs as children of <algo>", limits.children, np.array([ranks]), whole
    yield "channels", limits.channels, channels.max(keepdims=True), whole
    yield "chunks in one step", limits.count, program.cnt, program.where
    yield "as an offset", limits.offset, offset, program.where
    yield "as a thread block to wait for", limits.dependency, waited, waits
    step_block = program.step_block()
    for what, moves in (("send", OP_SENDS), ("receive", OP_RECEIVES)):
        active = np.unique(step_block[moves[program.op]])
        keys, counts = np.unique(
            np.stack([program.tb_rank[active], program.tb_channel[active]]),
            axis=1,
            return_counts=True,
        )

        def shared(index: int, keys: npt.NDArray[np.int32] = keys) -> str:
            return f"gpu {keys[0, index]} channel {keys[1, index]}"

        yield f"thread blocks that {what}", limits.blocks_per_channel, counts, shared


def _finding(
    what: str, number: int, limit: int, target: Dialect, where: str, places: int
) -> Finding:
    text = f"{number} {what}, {target.name} takes at most {limit}{_others(places - 1)}"
    return Finding("LIMIT", where, text)


def _others(count: int) -> str:
    return f" (and {count} more places)" if count > 0 else ""
