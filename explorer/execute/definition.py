"""What each collective must leave in memory, written with numpy from NCCL's definitions.

Nothing here comes from :mod:`explorer.core.collective` or the verifier: an error there must not
hide one in a program. Source: NCCL user guide, "Collective Operations" and "In-place
Operations"; the AlltoAll is that of MPI, as nccl-tests' alltoall_perf has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.uint32]
"""4-byte elements, as sizes count them. Their sums are modulo 2^32: exact in any order, and a
contribution lost or counted twice changes a random sum except once in 2^32 cases."""

CACHE_BYTES = 1 << 26
"""Inputs of all ranks are kept while they take less than this."""
PERIOD = 1 << 18
"""Elements after which a random stream repeats, shifted."""


def chunk_counts(name: str, ranks: int, nchunks: int) -> tuple[int, int]:
    """Chunks of the input and of the output buffer of one rank."""
    share = nchunks // ranks
    return (
        share if name == "allgather" else nchunks,
        share if name == "reducescatter" else nchunks,
    )


class Inputs:
    """The ranks' inputs: random elements from a seed.

    Parameters
    ----------
    seed
        Same seed, same inputs.
    elements
        Elements of one rank's input buffer.
    ranks
        Number of ranks.
    """

    def __init__(self, seed: int, elements: int, ranks: int) -> None:
        self._seed = seed
        self._elements = elements
        self._keep = 4 * elements * ranks <= CACHE_BYTES
        self._kept: dict[int, Elements] = {}

    def __call__(self, rank: int) -> Elements:
        """Input of a rank, not to be written."""
        found = self._kept.get(rank)
        if found is None:
            found = random_elements((self._seed, rank, 0), self._elements)
            if self._keep:
                self._kept[rank] = found
        return found


def random_elements(key: tuple[int, ...], count: int) -> Elements:
    """Random elements of a stream named by a key of non-negative integers.

    Beyond :data:`PERIOD` the stream repeats, shifted by another constant each time: as good for
    telling chunks apart, and several times as fast.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    base = rng.integers(0, 1 << 32, min(count, PERIOD), dtype=np.uint32)
    if count <= PERIOD:
        return base
    shift = int(rng.integers(1 << 32)) | 1
    elements = np.empty(count, np.uint32)
    for turn, first in enumerate(range(0, count, PERIOD)):
        part = elements[first : first + PERIOD]
        np.add(base[: len(part)], np.uint32(turn * shift % (1 << 32)), out=part)
    return elements


def expected_output(
    name: str, ranks: int, root: int, rank: int, inputs: Callable[[int], Elements]
) -> Elements | None:
    """Output of a rank; None where the collective says nothing about it.

    Parameters
    ----------
    name
        Key of the collective.
    ranks, root, rank
        Number of ranks, root of a rooted collective, the rank asked for.
    inputs
        Input of a rank.
    """
    if name == "broadcast":
        return inputs(root)
    if name == "reduce" and rank != root:
        return None
    if name == "allgather":
        return np.concatenate([inputs(source) for source in range(ranks)])
    first = inputs(0)
    own = len(first) // ranks
    part = slice(rank * own, (rank + 1) * own)
    if name == "alltoall":
        return np.concatenate([inputs(source)[part] for source in range(ranks)])
    if name != "reducescatter":
        part = slice(None)
    total = first[part].copy()
    for source in range(1, ranks):
        total += inputs(source)[part]
    return total


@dataclass(frozen=True, slots=True)
class Memory:
    """Buffers of one rank, uint32 ``[chunks, elements]`` views; aliased where in place."""

    input: Elements
    output: Elements
    scratch: Elements


def allocate(
    name: str,
    ranks: int,
    rank: int,
    *,
    nchunks: int,
    elements: int,
    scratch: int,
    in_place: bool,
    values: Elements,
    seed: int,
) -> Memory:
    """Memory of a rank as a caller hands it over: input set, the rest garbage.

    In place, AllGather's input is the rank's part of the output, ReduceScatter's output is the
    rank's part of the input, and elsewhere both are the same buffer.

    Parameters
    ----------
    name, ranks, rank, nchunks
        Collective, and chunks of the whole buffer.
    elements
        Elements of a chunk.
    scratch
        Chunks of scratch.
    in_place
        Kind of call.
    values
        The rank's input.
    seed
        Of the garbage.
    """
    inside, outside = chunk_counts(name, ranks, nchunks)

    def garbage(buffer: int, chunks: int) -> Elements:
        return random_elements((seed, rank, 1 + buffer), chunks * elements).reshape(-1, elements)

    if not in_place:
        source, target = values.reshape(-1, elements).copy(), garbage(0, outside)
    else:
        share = nchunks // ranks
        source = target = garbage(0, max(inside, outside))
        own = source[rank * share : (rank + 1) * share]
        source = own if name == "allgather" else source
        target = own if name == "reducescatter" else target
        source[:] = values.reshape(-1, elements)
    return Memory(source, target, garbage(1, scratch))
