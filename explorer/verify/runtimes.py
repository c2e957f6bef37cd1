"""The three runtimes that load MSCCL XML: their limits and how they choose a file.

Sources: microsoft/msccl ``src/graph/{xml.cc,topo.cc,tuning.cc}``, ``src/include/msccl.h``;
Azure/msccl-executor-nccl @c6f6b36 and ROCm/rccl @0cbce2a ``src/misc/msccl/{msccl_parser,
msccl_setup,msccl_lifecycle}.cc``, ``src/include/msccl/msccl_struct.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.protocols import PROTOCOLS

NODES = 4095
"""Elements one rank keeps: 1 + gpus + its blocks and steps."""
CHILDREN = 1024
"""Children of one element; more overrun memory."""
BLOCKS_PER_CHANNEL = 32
"""Sending (receiving) blocks per channel and gpu."""
OFFSET = (1 << 15) - 1
"""Largest offset, a signed 16-bit number on the device."""
DEPENDENCY_BLOCK = 127
"""Largest block id that can be waited on, a signed 8-bit number on the device."""
FUSED_REDUCTIONS = 15
"""Longest chain of ``re`` fused into one operation; from 16 on an operand or memory is lost."""
ITERATIONS = 65536
"""Tiles a call may loop over."""
MSCCL_DEFAULT_MAX_BYTES = 1 << 27
"""maxBytes (exclusive) of microsoft/msccl where a file gives none."""

_COMMON = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A library that runs MSCCL XML.

    Parameters
    ----------
    name
        Dialect: ``msccl`` (microsoft/msccl), ``executor`` (Azure/msccl-executor-nccl), ``rccl``.
    blocks, steps, channels
        Most thread blocks per gpu, steps per block (nops count) and channels.
    attributes
        What an ``<algo>`` must have.
    collectives
        Spellings of ``coll`` that it chooses files for.
    exclusive_max
        maxBytes is exclusive and 0 an empty range; else inclusive and 0 no limit.
    fused
        Its kernel has the fused receives rcs, rrs, rrc, rrcs.
    slot_bytes
        Payload of a FIFO slot by protocol.
    """

    name: str
    blocks: int
    steps: int
    channels: int
    attributes: tuple[str, ...]
    collectives: tuple[str, ...]
    exclusive_max: bool = False
    fused: bool = True
    slot_bytes: Mapping[str, int] = field(
        default_factory=lambda: {p.name: p.slot_bytes for p in PROTOCOLS.values()}
    )


_COLLECTIVES = ("allreduce", "allgather", "alltoall", "broadcast", "reduce")
_LATER = (*_COLLECTIVES, "reducescatter", "gather", "scatter", "alltoallv", "send", "recv")
_RANGE = ("outofplace", "minBytes", "maxBytes")

RUNTIMES = {
    r.name: r
    for r in (
        Runtime(
            "msccl",
            blocks=216,
            steps=256,
            channels=32,
            attributes=("name", *_COMMON),
            collectives=(*_COLLECTIVES, "reduce_scatter", "custom"),
            exclusive_max=True,
        ),
        Runtime(
            "executor",
            blocks=1024,
            steps=64,
            channels=32,
            attributes=(*_COMMON, *_RANGE),
            collectives=_LATER,
        ),
        Runtime(
            "rccl",
            blocks=64,
            steps=64,
            channels=128,
            attributes=(*_COMMON, *_RANGE),
            collectives=_LATER,
            fused=False,
            slot_bytes={"Simple": 2 << 20, "LL": 16 << 10, "LL128": 50_176},
        ),
    )
}
"""The runtimes by dialect."""


def slot_bytes_of(dialect: str) -> Mapping[str, int] | None:
    """Payload of a FIFO slot by protocol on a runtime; None for no runtime in particular."""
    runtime = RUNTIMES.get(dialect)
    return runtime.slot_bytes if runtime else None


@dataclass(frozen=True, slots=True)
class Header:
    """Numbers of an ``<algo>``; None where the attribute is missing.

    Parameters
    ----------
    nchannels, nchunksperloop, ngpus, inplace, outofplace, min_bytes, max_bytes, nthreads
        The attributes of these names.
    """

    nchannels: int | None
    nchunksperloop: int | None
    ngpus: int | None
    inplace: int | None
    outofplace: int | None
    min_bytes: int | None
    max_bytes: int | None
    nthreads: int | None

    def largest(self, runtime: Runtime | None) -> int | None:
        """Largest size a runtime picks the file for; None when there is no limit.

        Without a runtime, the largest of what the runtimes make of it.
        """
        if self.max_bytes is None:
            return MSCCL_DEFAULT_MAX_BYTES - 1
        if runtime is not None and runtime.exclusive_max:
            return self.max_bytes - 1
        return self.max_bytes or None
