"""Instance: one spreading problem, with costs per chunk, as every stage of synthesis sees it.

Spreading means that chunks start at one rank each and must reach others unchanged: AllGather,
AlltoAll, Broadcast. Reducing collectives are spreading ones on the reversed graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective, Sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.sketch import Sketch, rank_ranges
from explorer.errors import InfeasibleError
from explorer.synth.paths import INFINITE, distances, distances_from
from explorer.synth.symmetry import SymmetryGroup, symmetry_group

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Instance:
    """A spreading problem.

    Parameters
    ----------
    graph
        The edges that may be used.
    collective
        AllGather, AlltoAll or Broadcast.
    chunk_bytes
        Size of a chunk.
    cost_model
        How long a message occupies what it goes through.
    transfer_us
        float64 ``[E]``: bytes of one chunk over each edge.
    source
        int32 ``[C]``: rank each chunk starts at.
    needs
        bool ``[C, R]``: ranks that must receive the chunk (its source never must).
    exits
        bool ``[C, E]`` for inter-node edges: whether the chunk may cross it, by the sketch's
        relays; all true elsewhere.
    group
        Symmetry that models are built on.
    sketch
        For switch policies and ordering.
    """

    graph: RankGraph
    collective: Collective
    chunk_bytes: int
    cost_model: CostModel
    transfer_us: FloatArray
    source: IntArray
    needs: BoolArray
    exits: BoolArray
    group: SymmetryGroup
    sketch: Sketch | None

    @property
    def chunks(self) -> int:
        """Number of chunk ids C."""
        return len(self.source)

    @cached_property
    def alpha_us(self) -> FloatArray:
        """Latency of each edge, float64 ``[E]``."""
        return self.graph.alpha_us

    @cached_property
    def arrive_us(self) -> FloatArray:
        """Time from the start of a message of one chunk to its arrival, float64 ``[E]``."""
        return self.graph.alpha_us + self.transfer_us

    @cached_property
    def busy_us(self) -> FloatArray:
        """Time a message of one chunk keeps its edge busy, float64 ``[E]``."""
        if self.cost_model is CostModel.EXCLUSIVE:
            return self.arrive_us
        return self.transfer_us

    @cached_property
    def inter(self) -> BoolArray:
        """Whether each edge leaves its node, bool ``[E]``."""
        return self.graph.inter_node

    @cached_property
    def distance(self) -> FloatArray:
        """Least time from rank to rank for a lone chunk, float64 ``[R, R]``."""
        return distances(self.graph, self.arrive_us)

    @cached_property
    def reach_us(self) -> FloatArray:
        """Least time from each chunk's source to every rank, by its exits, float64 ``[C, R]``."""
        rows: dict[tuple[int, bytes], FloatArray] = {}
        result = np.empty((self.chunks, self.graph.ranks))
        free = self.exits.strides == (0, 0)
        for chunk, source in enumerate(self.source.tolist()):
            key = (source, b"" if free else self.exits[chunk].tobytes())
            if key not in rows:
                rows[key] = distances_from(self.graph, self.arrive_us, source, self.exits[chunk])
            result[chunk] = rows[key]
        return result

    @cached_property
    def relayed(self) -> bool:
        """Whether chunks pass ranks that do not need them."""
        return self.collective.name == "alltoall"


def spreading_instance(
    graph: RankGraph,
    collective: Collective,
    sizing: Sizing,
    cost_model: CostModel,
    sketch: Sketch | None,
    *,
    check: bool = True,
) -> Instance:
    """State a spreading problem.

    A reducing collective is stated by where its sums end: those ranks count as sources.

    Parameters
    ----------
    check
        Whether chunks must be able to reach the ranks that need them.

    Raises
    ------
    InputError
        If the sketch's symmetry is none of the graph.
    InfeasibleError
        If a chunk cannot reach a rank that needs it.
    """
    chunks = np.arange(collective.chunk_count, dtype=np.int32)
    if collective.rooted:
        source = np.full(len(chunks), collective.root, dtype=np.int32)
    elif collective.name == "alltoall":
        source = chunks // np.int32(collective.ranks * collective.chunks_per_rank)
    else:
        source = chunks // np.int32(collective.chunks_per_rank)
    needs = np.ones((len(chunks), collective.ranks), dtype=np.bool_)
    if collective.name == "alltoall":
        needs[:] = False
        needs[chunks, chunks // collective.chunks_per_rank % collective.ranks] = True
    needs[chunks, source] = False
    instance = Instance(
        graph,
        collective,
        sizing.chunk_bytes,
        cost_model,
        graph.beta_us_per_mib * sizing.chunk_mib,
        source,
        needs,
        _exits(graph, source, sketch),
        symmetry_group(sketch, graph, collective),
        sketch,
    )
    if check:
        _check_reachable(instance)
    return instance


def needing_nodes(instance: Instance) -> BoolArray:
    """Whether some rank of a node needs a chunk, bool ``[C, nodes]``."""
    nodes = int(instance.graph.node_of.max()) + 1
    member = np.zeros((instance.graph.ranks, nodes), dtype=np.float64)
    member[np.arange(instance.graph.ranks), instance.graph.node_of] = 1.0
    counts = instance.needs.astype(np.float64) @ member
    needed: BoolArray = counts > 0
    return needed


def _exits(graph: RankGraph, source: IntArray, sketch: Sketch | None) -> BoolArray:
    """Where each chunk may cross between nodes: out of its own node by its relay, beyond freely."""
    inter = graph.inter_node
    if sketch is None or sketch.relay_of is None or not inter.any():
        return np.broadcast_to(np.True_, (len(source), graph.edges))
    exits = np.ones((len(source), graph.edges), dtype=np.bool_)
    per_node = len(sketch.relay_of)
    relay = np.asarray(sketch.relay_of, dtype=np.int32)
    node = graph.node_of[source]
    gateway = source // per_node * per_node + relay[source % per_node]
    leaving = inter[None, :] & (graph.node_of[graph.src][None, :] == node[:, None])
    has_exit = np.zeros(graph.ranks, dtype=np.bool_)
    has_exit[graph.src[inter]] = True
    # A relay without a link out binds nothing: in reversed graphs the sketch's senders receive.
    binding = has_exit[gateway][:, None]
    exits[leaving & binding & (graph.src[None, :] != gateway[:, None])] = False
    return exits


def _check_reachable(instance: Instance) -> None:
    lacking = instance.needs & (instance.reach_us >= INFINITE)
    if lacking.any():
        chunk = int(np.flatnonzero(lacking.any(axis=1))[0])
        ranks = np.flatnonzero(lacking[chunk]).tolist()
        raise InfeasibleError(
            f"rank {instance.source[chunk]} cannot reach {'rank' if len(ranks) == 1 else 'ranks'}"
            f" {rank_ranges(ranks)}"
        )
