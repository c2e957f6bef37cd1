"""TunerEntry: one line of a table that says which algorithm runs at which size."""

from __future__ import annotations

from dataclasses import dataclass

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""Algorithms NCCL's tuner interface knows (``ext-tuner/example/nccl/tuner.h``)."""

PROTOCOLS = ("ll", "ll128", "simple")
"""Protocols it knows."""

_OTHERS = ("ring", "collnet_direct", "nvls", "pat")
ALGORITHMS_OF = {
    "allreduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "allgather": _OTHERS,
    "reducescatter": _OTHERS,
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
"""Algorithms NCCL has for each collective (``ncclTopoTuneModel``, ``src/graph/tuning.cc``)."""

SIMPLE_ONLY = ("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""Algorithms that exist with protocol Simple only (same place)."""

ANY = -1
"""Matches everything."""


@dataclass(frozen=True, slots=True)
class TunerEntry:
    """One line.

    Parameters
    ----------
    line
        Where it stands.
    collective
        Key; empty in a table that is not per collective.
    first_bytes, last_bytes
        Sizes it is for, both included.
    algorithm, protocol
        What runs; lower case.
    channels
        Number of channels, -1 for the library's own.
    match
        (filter, value) such as ``("nRanks", 8)``; -1 matches everything. All tables of one kind
        have the same filters in the same order.
    """

    line: int
    collective: str
    first_bytes: int
    last_bytes: int
    algorithm: str
    protocol: str
    channels: int = ANY
    match: tuple[tuple[str, int], ...] = ()

    @property
    def inverted(self) -> bool:
        """Whether its range ends before it starts."""
        return self.last_bytes < self.first_bytes

    def covers(self, other: TunerEntry) -> bool:
        """Whether it applies whenever the other does, sizes apart."""
        return self.collective == other.collective and all(
            mine in (ANY, theirs)
            for (_, mine), (_, theirs) in zip(self.match, other.match, strict=True)
        )


@dataclass(frozen=True, slots=True)
class TunerTable:
    """A table.

    Parameters
    ----------
    file
        Its name.
    kind
        ``NVIDIA tuner``, ``NCCLX tuner`` or ``SCCL_CONFIG``.
    size_is
        What its sizes count: total bytes, bytes per rank, or bytes.
    entries
        In the order of the file; the first that matches is used.
    """

    file: str
    kind: str
    size_is: str
    entries: tuple[TunerEntry, ...]
