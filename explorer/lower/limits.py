"""Limits: how large the parts of a program may be for the runtime that loads it.

The numbers of every runtime stand with its file format (``explorer.formats``), whose limits have
these fields and more; lowering only needs to know where to stop. None is no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from explorer.errors import Finding
from sim.program import OP_RECEIVES, OP_SENDS, Program

IntArray = npt.NDArray[np.int64]


class Limits(Protocol):
    """What lowering respects where it can, and :func:`fits` checks."""

    @property
    def blocks(self) -> int | None:
        """Thread blocks of a rank."""

    @property
    def steps(self) -> int | None:
        """Steps of a thread block, with the nops that writers add for further dependencies."""

    @property
    def channels(self) -> int | None:
        """Channels of a program."""

    @property
    def blocks_per_channel(self) -> int | None:
        """Thread blocks of a rank that send (or that receive) on one channel."""

    @property
    def count(self) -> int | None:
        """Chunks of one step."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Limits as plain numbers; None is no limit.

    Parameters
    ----------
    blocks, steps, channels, blocks_per_channel, count
        As in :class:`Limits`.
    """

    blocks: int | None = None
    steps: int | None = None
    channels: int | None = None
    blocks_per_channel: int | None = None
    count: int | None = None


EVERYWHERE = BlockLimits(blocks=64, steps=64, channels=32, blocks_per_channel=32, count=71)
"""What every runtime loads: rccl's thread blocks, the executor's steps (Azure/msccl-executor-nccl
``src/include/msccl/msccl_struct.h``, ROCm/rccl the same file)."""

UNLIMITED = BlockLimits()
"""No limit: for simulation of what no runtime loads."""


def step_weight(dependencies: int) -> int:
    """Steps that a step takes in a file: a nop carries each dependency after the first."""
    return max(1, dependencies)


def fits(program: Program, limits: Limits) -> tuple[Finding, ...]:
    """Say which limits a program exceeds, one finding per limit with its worst place.

    Parameters
    ----------
    program
        Any program.
    limits
        The limits of a runtime.

    Returns
    -------
    tuple[Finding, ...]
        Code ``LIMIT`` with number and limit; empty when the program fits.
    """
    found = []
    for what, limit, values, where in _measured(program, limits):
        if limit is not None and len(values) and int(values.max()) > limit:
            worst = int(np.argmax(values))
            text = f"{int(values[worst])} {what}, expected at most {limit}"
            found.append(Finding("LIMIT", where[worst], text))
    return tuple(found)


class _Places:
    """Names places only when one is asked for."""

    def __init__(self, text: str, *columns: IntArray) -> None:
        self.text, self.columns = text, columns

    def __getitem__(self, index: int) -> str:
        return self.text.format(*(int(column[index]) for column in self.columns))


def _measured(
    program: Program, limits: Limits
) -> Iterator[tuple[str, int | None, IntArray, _Places]]:
    ranks = np.arange(program.ranks)
    rank, block = program.tb_rank.astype(np.int64), program.tb_id.astype(np.int64)
    weight = np.maximum(np.diff(program.dep_first), 1)
    ends = np.concatenate(([0], np.cumsum(weight)))
    blocks = np.bincount(rank, minlength=program.ranks)
    yield "thread blocks", limits.blocks, blocks, _Places("gpu {}", ranks)
    steps = np.diff(ends[program.tb_first])
    yield "steps with nops", limits.steps, steps, _Places("gpu {} tb {}", rank, block)
    yield "channels", limits.channels, np.array([program.channels]), _Places("program")
    owner = program.step_block()
    local = np.arange(program.steps) - program.tb_first[owner]
    step = _Places("gpu {} tb {} step {}", rank[owner], block[owner], local)
    yield "chunks in one step", limits.count, program.cnt.astype(np.int64), step
    for what, moves in (("send", OP_SENDS), ("receive", OP_RECEIVES)):
        active = np.unique(owner[moves[program.op]])
        keys = rank[active] * (1 + program.channels) + program.tb_channel[active]
        key, counts = np.unique(keys, return_counts=True)
        place = _Places("gpu {} channel {}", *np.divmod(key, 1 + program.channels))
        yield f"thread blocks that {what}", limits.blocks_per_channel, counts, place
