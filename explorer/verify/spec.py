"""Spec: what a collective must do, by address, and where its buffers lie in memory.

Written from the collectives' definitions (NCCL's API documentation, "Collective Operations" and
"In-place Operations"), on purpose without the address maps of :mod:`explorer.core.collective`,
which lowering uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.errors import nearest
from explorer.verify.report import Ledger
from sim.program import Buffer, Program

IntArray = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer[Any]]

_PER_RANK = ("allgather", "reducescatter", "alltoall")
_SUMS = ("allreduce", "reducescatter", "reduce")
_ROOTED = ("broadcast", "reduce")
KNOWN = ("allreduce", "broadcast", "custom", "reduce", *_PER_RANK[:2], "alltoall")
"""Collectives with a meaning here; of ``custom`` only the structure is known."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A collective on R ranks whose whole buffer has N chunks.

    Parameters
    ----------
    name
        One of :data:`KNOWN`.
    ranks, nchunks
        R and N.
    root
        Root, or -1 where there is none or it is not known.
    """

    name: str
    ranks: int
    nchunks: int
    root: int = -1

    @property
    def share(self) -> int:
        """Chunks of one rank's part of the buffer, N/R."""
        return self.nchunks // self.ranks

    @property
    def input_size(self) -> int:
        """Chunks in the caller's input buffer."""
        return self.share if self.name == "allgather" else self.nchunks

    @property
    def output_size(self) -> int:
        """Chunks in the caller's output buffer."""
        return self.share if self.name == "reducescatter" else self.nchunks

    @property
    def sums(self) -> bool:
        """Whether outputs are sums over all ranks."""
        return self.name in _SUMS

    @property
    def rooted(self) -> bool:
        """Whether one rank is special."""
        return self.name in _ROOTED

    def with_root(self, root: int) -> Spec:
        """The same with a root."""
        return Spec(self.name, self.ranks, self.nchunks, root)

    def gives_input(self, rank: int) -> bool:
        """Whether the caller's input holds data on that rank."""
        return self.name != "broadcast" or self.root in (-1, rank)

    def takes_output(self, rank: int) -> bool:
        """Whether the caller's output must be right on that rank."""
        return self.name != "reduce" or self.root == rank

    def expected(self, rank: int) -> tuple[IntArray, IntArray]:
        """What each output slot of a rank must hold.

        Returns
        -------
        source, offset
            int64 arrays over the output slots: the rank whose input it is (-1: the sum over all)
            and the offset in the input buffer.
        """
        slot = np.arange(self.output_size, dtype=np.int64)
        everyone = np.full(len(slot), -1, dtype=np.int64)
        if self.name == "allgather":
            return slot // self.share, slot % self.share
        if self.name == "alltoall":
            return slot // self.share, rank * self.share + slot % self.share
        if self.name == "broadcast":
            return np.full(len(slot), self.root, dtype=np.int64), slot
        if self.name == "reducescatter":
            return everyone, rank * self.share + slot
        return everyone, slot


def spec_of(program: Program, collective: Collective | None, ledger: Ledger) -> Spec | None:
    """What a program claims to do; problems go to the ledger, then there is no spec."""
    name, root = program.collective, program.root
    problem = None
    if name not in KNOWN:
        problem = f"collective is {name!r}, {nearest(name, KNOWN)}"
    elif program.nchunks < 1 or program.ranks < 1:
        problem = f"{program.nchunks} chunks on {program.ranks} ranks, expected at least 1"
    elif collective is not None:
        problem = _difference(program, collective)
        name = collective.name
        root = collective.root if name in _ROOTED else -1
    if problem is None and name in _PER_RANK and program.nchunks % program.ranks:
        problem = (
            f"nchunksperloop is {program.nchunks}, {name} on {program.ranks} ranks"
            f" needs a multiple of {program.ranks}"
        )
    if problem is None and name in _ROOTED and not -1 <= root < program.ranks:
        problem = f"root is {root}, expected 0 to {program.ranks - 1}"
    if problem is not None:
        ledger.error("COLLECTIVE", "", problem)
        return None
    return Spec(name, program.ranks, program.nchunks, root if name in _ROOTED else -1)


def _difference(program: Program, collective: Collective) -> str | None:
    """Where a program is not for the collective asked; ``custom`` may do anything."""
    rooted = collective.name in _ROOTED
    chunks = collective.chunks_per_rank * (1 if rooted else collective.ranks)
    name = collective.name if program.collective == "custom" else program.collective
    for what, got, asked in (
        ("collective", name, collective.name),
        ("ranks", program.ranks, collective.ranks),
        ("nchunksperloop", program.nchunks, chunks),
    ):
        if got != asked:
            return f"{what}: the program has {got}, asked was {asked}"
    if rooted and program.root not in (-1, collective.root):
        return f"root: the program has {program.root}, asked was {collective.root}"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Where every chunk of every buffer lies, for one placement of a call.

    Parameters
    ----------
    in_place
        Whether input and output share memory as NCCL's in-place calls make them.
    base
        int64 ``[R, 3]``: cell of chunk 0 of each buffer of each rank.
    cells
        Number of cells over all ranks.
    """

    in_place: bool
    base: IntArray
    cells: int

    def cells_of(self, rank: Numbers, buffer: Numbers, offset: Numbers) -> IntArray:
        """Cells of addresses, elementwise."""
        return self.base[rank, buffer] + offset


def buffer_sizes(program: Program, spec: Spec) -> IntArray:
    """Chunks that each buffer of each rank really has, int64 ``[R, 3]``."""
    sizes = np.stack([program.i_chunks, program.o_chunks, program.s_chunks], axis=1).astype(
        np.int64
    )
    if spec.name != "custom":
        sizes[:, Buffer.INPUT] = spec.input_size
        sizes[:, Buffer.OUTPUT] = spec.output_size
    return sizes


def memory_of(program: Program, spec: Spec, *, in_place: bool) -> Memory:
    """Lay out the buffers of every rank.

    In place, AllGather's input chunk k is output chunk r·N/R + k, ReduceScatter's output chunk k is
    input chunk r·N/R + k, and of everything else both buffers are the same memory.
    """
    sizes = buffer_sizes(program, spec)
    ranks = np.arange(program.ranks, dtype=np.int64)
    shift = np.zeros((program.ranks, 2), dtype=np.int64)
    if in_place:
        if spec.name == "allgather":
            shift[:, Buffer.INPUT] = ranks * spec.share
        elif spec.name == "reducescatter":
            shift[:, Buffer.OUTPUT] = ranks * spec.share
        extent = (shift + sizes[:, :2]).max(axis=1)
    else:
        shift[:, Buffer.OUTPUT] = sizes[:, Buffer.INPUT]
        extent = sizes[:, Buffer.INPUT] + sizes[:, Buffer.OUTPUT]
    total = extent + sizes[:, Buffer.SCRATCH]
    start = np.concatenate(([0], np.cumsum(total)))
    base = np.empty((program.ranks, 3), dtype=np.int64)
    base[:, :2] = start[:-1, None] + shift
    base[:, Buffer.SCRATCH] = start[:-1] + extent
    return Memory(in_place, base, int(start[-1]))
