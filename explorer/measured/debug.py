"""DebugFacts: what NCCL and RCCL say about themselves with NCCL_DEBUG=INFO."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ring:
    """Order of ranks around the ring of one channel.

    ``complete`` tells whether it holds every rank once; else the line is cut or wrong.
    """

    channel: int
    order: tuple[int, ...]
    complete: bool
    line: int


@dataclass(frozen=True, slots=True)
class Tree:
    """Tree of one channel: (rank, parent) of every rank that said so, -1 for the root's parent.

    ``complete`` tells whether every rank said so and all reach one root.
    """

    channel: int
    parents: tuple[tuple[int, int], ...]
    complete: bool
    line: int

    @property
    def root(self) -> int | None:
        """Rank without parent, None if there is not just one."""
        roots = [rank for rank, parent in self.parents if parent < 0]
        return roots[0] if len(roots) == 1 else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """Result of one search for channels.

    ``kind`` names the pattern; bandwidths are GB/s of one channel inside and between nodes, paths
    the slowest kinds of link used (``NVL``, ``PIX``, ``SYS``, …).
    """

    kind: str
    channels: int
    intra_gbs: float
    inter_gbs: float
    intra_path: str
    inter_path: str
    line: int


@dataclass(frozen=True, slots=True)
class GraphLink:
    """A link of the machine as NCCL sees it; ``gbs`` is NCCL's own figure."""

    src: str
    dst: str
    kind: str
    gbs: float
    line: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """NCCL's own model of one algorithm and protocol: latency and algbw, as NCCL prints them."""

    collective: str
    algorithm: str
    protocol: str
    latency_us: float
    algbw_gbs: float
    line: int

    @property
    def available(self) -> bool:
        """Whether NCCL would choose it at all: it prints no bandwidth for what it cannot use."""
        return self.algbw_gbs > 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What ran for one call: algorithm, protocol, number of channels and estimate if printed."""

    collective: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None
    time_us: float | None
    line: int


@dataclass(frozen=True, slots=True)
class DebugFacts:
    """Everything the NCCL lines of a file say.

    Parameters
    ----------
    versions
        NCCL or RCCL versions named.
    ranks, nodes, local_ranks
        Of the largest communicator; None where no line says.
    channels
        Number of channels of the rings.
    rings, trees, patterns, links, predictions, choices
        See their classes.
    nvls_heads
        (head, ranks) of the in-switch multicast.
    transports
        (name, number of connections) such as ``("NET/IB", 4)``, by falling number.
    nics
        Network devices that carry connections or channels.
    environment
        (variable, value) NCCL took from its environment.
    """

    versions: tuple[str, ...] = ()
    ranks: int | None = None
    nodes: int | None = None
    local_ranks: int | None = None
    channels: int | None = None
    rings: tuple[Ring, ...] = ()
    trees: tuple[Tree, ...] = ()
    nvls_heads: tuple[tuple[int, tuple[int, ...]], ...] = ()
    patterns: tuple[Pattern, ...] = ()
    links: tuple[GraphLink, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    choices: tuple[Choice, ...] = ()
    transports: tuple[tuple[str, int], ...] = ()
    nics: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return self == DebugFacts()
