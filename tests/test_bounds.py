"""Bounds with values that a person can work out, and what they say sets them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from explorer.core.bounds import Bound, bounds, fill, fill_whole
from explorer.core.collective import Collective, sizing
from explorer.core.costs import CostModel
from explorer.core.distances import Arcs
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.rank_sets import partitions
from explorer.core.sketch import Sketch, apply_sketch
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.topologies.load import load_topology, read_topology
from explorer.topologies.source import Source
from explorer.topologies.topology_yaml import read_topology_yaml
from explorer.units import MIB

DATA = Path(__file__).parent / "data" / "topologies"
NDV2 = DATA / "topo-ndv2-1MB.json"
DGX2 = DATA / "topo-dgx2-1MB.json"
GB = 10**9


def bound_of(
    topology: Topology,
    name: str,
    size: int | None = None,
    *,
    chunks: int = 1,
    root: int = 0,
    graph: RankGraph | None = None,
    whole: bool | None = None,
) -> Bound:
    kind = Collective(name, topology.ranks, chunks, root)
    return bounds(topology, kind, sizing(kind, size), graph=graph, whole_chunks=whole)


def sketched(topology: Topology, *senders: tuple[int, int]) -> RankGraph:
    sketch = Sketch("test", senders=senders)
    return apply_sketch(rank_graph(topology), sketch)


def test_one_ndv2_node_in_taccl_units() -> None:
    # A GPU has two links of 23 and two of 46 per chunk: by 46 it has 2·2 + 2·1 = 6 chunks, by 69
    # it has 8, and it needs 7. TACCL's optimum is 69.
    topology = read_topology(NDV2, sized=False)
    bound = bound_of(topology, "allgather")
    assert (bound.bound_us, bound.algbw_gbs) == (69.0, None)
    assert bound.bottleneck.startswith("into gpu0: 7 of 8 chunks over gpu2->gpu0 at 46 per chunk")
    # Six chunks per rank: 42 chunks at 3 per 23, the divisible bound, is met by whole chunks.
    assert bound_of(topology, "allgather", chunks=6).bound_us == 42 * 23 / 3
    # Divisible data: 7 · 23 / 3.
    assert bound_of(topology, "allgather", whole=False).bound_us == pytest.approx(161 / 3)


@pytest.mark.parametrize(("nodes", "cut"), [(2, 840 + 2.6), (4, 2520 + 2.6)])
def test_ndv2_nodes_with_one_sender(nodes: int, cut: float) -> None:
    # 8 (N-1) chunks of 105 come in over GPU 1, and from there the last needs 23+46 to GPU 4, 6, 7.
    topology = read_topology(NDV2, nodes, sized=False)
    bound = bound_of(topology, "allgather", graph=sketched(topology, (0, 1)))
    assert bound.bandwidth_us == pytest.approx(cut, rel=1e-12)
    assert bound.bound_us == pytest.approx(cut + 69, rel=1e-12)
    assert "into node 0" in bound.bottleneck
    assert "gpu1" in bound.bottleneck


def test_ndv2_alltoall_is_bound_by_the_nic() -> None:
    topology = read_topology(NDV2, 2, sized=False)
    bound = bound_of(topology, "alltoall")
    assert bound.bound_us == pytest.approx(64 * 105 + 2.6, rel=1e-12)
    assert (
        bound.bottleneck == "into node 0: 64 of 256 chunks over fabric->n0/nic0.rx at 105 per chunk"
    )


def test_reductions_mirror_gathers() -> None:
    topology = read_topology(NDV2, 2, sized=False)
    graph = sketched(topology, (0, 1))
    gather = bound_of(topology, "allgather", graph=graph)
    scatter = bound_of(topology, "reducescatter", graph=graph)
    # GPU 0 is as far from the others as GPU 1: 46 over its double links twice, 69 to GPUs 6, 7.
    assert scatter.bound_us == gather.bound_us
    both = bound_of(topology, "allreduce", graph=graph)
    # 16 partial sums out, after the farthest GPU's part is in, and spread to the farthest.
    assert both.bound_us == pytest.approx(69 + 16 * 105 + 2.6 + 69, rel=1e-12)


def test_dgx2_ports() -> None:
    # Per GPU one port of 8 per chunk for 62 of 64 chunks; odd GPUs have no other way in.
    topology = read_topology(DGX2, 2, sized=False)
    senders = [(2 * i + 1, 2 * i) for i in range(8)]
    bound = bound_of(topology, "allgather", chunks=2, graph=sketched(topology, *senders))
    assert bound.bound_us == 496.0
    assert bound.bottleneck == "into gpu1: 62 of 64 chunks over n0/nvswitch0->gpu1 at 8 per chunk"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (GB, 31 / 32 * GB / 125e3 + 0.7),  # a port of 125 GB/s, two hops of 0.35 us
        (32_000, 4.0),  # 0.7 to a sender, 2.6 over the network, 0.7 from there
    ],
)
def test_teccl_dgx2_allgather(size: int, expected: float) -> None:
    bound = bound_of(load_topology("teccl_dgx2_n2"), "allgather", size)
    assert bound.bound_us == pytest.approx(expected, rel=1e-6)


def test_teccl_ndv2_allgather() -> None:
    # Half of 1 GB over 12.5 GB/s, 1.3 us, and two NVLink hops from GPU 1 on.
    bound = bound_of(load_topology("teccl_ndv2_n2"), "allgather", GB)
    assert bound.bound_us == pytest.approx(40_000 + 1.3 + 1.4, rel=1e-9)
    assert "gpu8->gpu1 at 12.5 GB/s" in bound.bottleneck
    assert bound.algbw_gbs == pytest.approx(25.0, rel=1e-3)
    assert bound.busbw_gbs == pytest.approx(25.0 * 15 / 16, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # us for S = 4 MiB and links of 50 GB/s, 0.5 us, two into and out of every GPU
        ("allgather", 3 / 8),
        ("reducescatter", 3 / 8),
        ("allreduce", 2 * 3 / 8),
        ("broadcast", 1 / 2),
        ("reduce", 1 / 2),
    ],
)
def test_ring_of_four(name: str, expected: float) -> None:
    size = 4 * MIB
    bound = bound_of(load_topology("ring:4"), name, size)
    seconds = expected * size / 50e3
    # At least one alpha; at most those of the two hops to the far side, on each way.
    assert seconds + 0.5 <= bound.bound_us <= seconds + 3 * 0.5


def test_ring_alltoall_counts_every_hop() -> None:
    # Per rank 1 + 1 + 2 hops of size/4 each; 16 hops over 8 links.
    bound = bound_of(load_topology("ring:4,1GB/s,0us"), "alltoall", 4_000_000)
    assert bound.bound_us == pytest.approx(16 / 8 * 1000.0, rel=1e-9)
    assert bound.bottleneck == "way of all chunks over all 8 links together"


@pytest.mark.parametrize(("ranks", "expected"), [(2, 1000.0), (4, 1500.0), (8, 1750.0)])
def test_allreduce_moves_each_chunk_twice(ranks: int, expected: float) -> None:
    # 2 (R-1)/R times the buffer through every port of 1 GB/s (Patarasuk and Yuan).
    bound = bound_of(load_topology(f"switch:{ranks},1GB/s,0us"), "allreduce", 1_000_000)
    assert bound.bound_us == pytest.approx(expected, rel=1e-4)


def slow_direction() -> Topology:
    """Ring of four whose link 1->0 is four times slower than 0->1, 1 GB/s elsewhere."""
    text = """
devices: {gpu: gpu0..3}
links:
  - {from: gpu0..3, to: [gpu1, gpu2, gpu3, gpu0], alpha: 0us, bandwidth: 1GB/s}
  - {from: [gpu2, gpu3, gpu0], to: [gpu1, gpu2, gpu3], alpha: 0us, bandwidth: 1GB/s}
  - {from: gpu1, to: gpu0, alpha: 0us, bandwidth: 0.25GB/s}
"""
    return read_topology_yaml(Source("slow.yaml", text), None, True)


def test_the_slow_direction_is_named() -> None:
    bound = bound_of(slow_direction(), "allgather", 4_000_000)
    # 3 MB into GPU 0 over 1.25 GB/s.
    assert bound.bound_us == pytest.approx(2400.0, rel=1e-9)
    assert bound.bottleneck.startswith(
        "into gpu0: 3 of 4 chunks over gpu1->gpu0 at 0.25 GB/s (4 times slower than gpu0->gpu1)"
    )


def test_the_poorer_node_is_named() -> None:
    text = """
nodes:
  - {name: a, gpus: 8, nics: 8, nic_gbps: 400}
  - {name: b, gpus: 8, nics: 4, nic_gbps: 400}
"""
    topology = read_topology_yaml(Source("unequal.yaml", text), None, True)
    bound = bound_of(topology, "allreduce", GB)
    # The whole buffer over 4 NICs of 50 GB/s, each way.
    assert bound.bound_us == pytest.approx(5000 + 2.6, rel=1e-4)
    assert "n1/nic0->fabric at 50 GB/s" in bound.bottleneck
    assert "and 1 more" in bound.bottleneck


def test_sockets_share_what_joins_them() -> None:
    # 8 PCIe GPUs, 4 per socket: AllToAll crosses the socket link with 16 pairs per direction.
    text = """
devices: {gpu: gpu0..7, cpu: [cpu0, cpu1]}
links:
  - {from: gpu0..3, to: cpu0, kind: pcie, alpha: 0us, bandwidth: 12GB/s, both: true}
  - {from: gpu4..7, to: cpu1, kind: pcie, alpha: 0us, bandwidth: 12GB/s, both: true}
  - {from: cpu0, to: cpu1, kind: socket, alpha: 0us, bandwidth: 10GB/s, both: true}
"""
    topology = read_topology_yaml(Source("pcie.yaml", text), None, True)
    bound = bound_of(topology, "alltoall", 8_000_000)
    assert bound.bound_us == pytest.approx(16 * 1000 / 10, rel=1e-9)
    assert bound.bottleneck == ("into gpus 0-3: 16 of 64 chunks over cpu1->cpu0 at 10 GB/s")


def test_oversubscribed_leaves() -> None:
    # Two leaves of 4 nodes; 4 x 10 GB/s down, 2 spines x 10 GB/s up.
    text = """
node:
  devices: {gpu: gpu0, nic: nic0}
  links: [{from: gpu0, to: nic0, alpha: 0us, bandwidth: 10GB/s, both: true}]
  copies: 8
network:
  devices: {switch: [leaf0, leaf1, spine0, spine1]}
  links:
    - {from: [n0/nic0, n1/nic0, n2/nic0, n3/nic0], to: leaf0, kind: network, alpha: 0us,
       bandwidth: 10GB/s, both: true}
    - {from: [n4/nic0, n5/nic0, n6/nic0, n7/nic0], to: leaf1, kind: network, alpha: 0us,
       bandwidth: 10GB/s, both: true}
    - {from: [leaf0, leaf0, leaf1, leaf1], to: [spine0, spine1, spine0, spine1], kind: network,
       alpha: 0us, bandwidth: 10GB/s, both: true}
"""
    topology = read_topology_yaml(Source("tree.yaml", text), None, True)
    groups = [p.parts for p in partitions(topology) if p.what == "group"]
    assert ((0, 1, 2, 3), (4, 5, 6, 7)) in groups
    bound = bound_of(topology, "alltoall", 8_000_000)
    # 16 MB cross each way. Every pair of ranks has one route, all over one spine (no spreading).
    assert bound.bound_us == pytest.approx(16_000 / 10, rel=1e-9)


def test_rooted_paths_start_at_the_root() -> None:
    line = "\n".join(
        ["devices: {gpu: gpu0..3}", "links:"]
        + [f"  - {{from: gpu{i}, to: gpu{i + 1}, alpha: 1us, bandwidth: 1GB/s}}" for i in range(3)]
    )
    topology = read_topology_yaml(Source("line.yaml", line), None, True)
    assert bound_of(topology, "broadcast", 4000).bound_us == pytest.approx(3 + 4.0)
    assert bound_of(topology, "reduce", 4000, root=3).bound_us == pytest.approx(3 + 4.0)
    with pytest.raises(InputError, match="line: ranks 1-3 cannot reach 0"):
        bound_of(topology, "allgather", 4000)
    with pytest.raises(InputError, match="ranks 1-3 cannot reach 0"):
        bound_of(topology, "broadcast", 4000, root=1)
    with pytest.raises(InputError, match="cannot reach"):
        bound_of(topology, "reduce", 4000, root=0)


def test_nodes_without_a_way_are_refused() -> None:
    devices = tuple(Device(f"gpu{i}", "gpu", i // 2) for i in range(4))
    links = tuple(Link(a, b, "nvlink", 0.0, 1.0) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2)))
    with pytest.raises(InputError, match="ranks 0-1 cannot reach 2-3"):
        bound_of(Topology("apart", devices, links), "allreduce", 1024)


def test_nothing_to_move() -> None:
    assert bound_of(load_topology("ring:1"), "allreduce", 1024).bound_us == 0.0
    nothing = bound_of(load_topology("ring:4"), "allgather", 0)
    assert (nothing.bound_us, nothing.bottleneck) == (0.0, "nothing to move")


def test_seven_gpus() -> None:
    # Six sevenths of what fits, through a port of 1 GB/s.
    topology = load_topology("switch:7,1GB/s,0us")
    kind = Collective("allgather", 7)
    amount = sizing(kind, 1_000_000)
    assert amount.size_bytes == 7 * 4 * (1_000_000 // 28)
    bound = bounds(topology, kind, amount)
    assert bound.bound_us == pytest.approx(amount.chunk_bytes * 6 / 1000, rel=1e-9)


def test_cost_model_counts_overlapping_alphas() -> None:
    # AllReduce on a ring: under exclusive costs what comes first holds links, under pipelined not.
    kind = Collective("allreduce", 4)
    topology, amount = load_topology("ring:4"), sizing(kind, 1024)
    exclusive = bounds(topology, kind, amount, CostModel.EXCLUSIVE)
    pipelined = bounds(topology, kind, amount, CostModel.PIPELINED)
    assert pipelined.bound_us <= exclusive.bound_us
    assert pipelined.bound_us >= 1.0


@pytest.mark.parametrize(
    ("spec", "size", "algbw"),
    [  # exact optima without latency, ForestColl (large sizes)
        ("dgx_a100", 8, 342.8571),
        ("dgx_a100:2", 16, 346.6667),
        ("dgx_h100:16", 128, 426.6667),
        ("mi250", 16, 342.8571),
    ],
)
def test_no_rate_above_the_optimum_of_forestcoll(spec: str, size: int, algbw: float) -> None:
    name, _, nodes = spec.partition(":")
    topology = load_topology(name, int(nodes or 1))
    assert topology.ranks == size
    found = bound_of(topology, "allgather", 1 << 40).algbw_gbs
    assert found == pytest.approx(algbw, rel=1e-5)


def test_fill_starts_ways_one_after_another() -> None:
    ways = [
        (Fraction(1), Fraction(2), 1),
        (Fraction(3), Fraction(1), 2),
        (Fraction(99), Fraction(1), 1),
    ]
    # By 3 one unit has come, then 2.5 per us: 6 more by 5.4; the last way starts too late.
    assert fill(7, ways) == 3 + Fraction(6, 1) / Fraction(5, 2)
    # Whole units: by 5 there are 2 + 2·2 = 6; at 6 there are 2 + 2·3.
    assert fill_whole(7, ways, fill(7, ways)) == 6
    assert fill(3, []) == 0


def test_distances_agree_with_hand_counts() -> None:
    arcs = Arcs(
        3,
        np.array([0, 1, 0], dtype=np.int32),
        np.array([1, 2, 2], dtype=np.int32),
        np.arange(3, dtype=np.int32),
    )
    weight = np.array([1.0, 1.0, 5.0])
    assert arcs.distances(weight, np.array([0], dtype=np.int32)).tolist() == [[0.0, 1.0, 2.0]]
    back = arcs.reversed().distances(weight, np.array([2], dtype=np.int32))
    assert back.tolist() == [[2.0, 1.0, 0.0]]
    assert arcs.reached(1).tolist() == [False, True, True]
    assert arcs.reached(1, backward=True).tolist() == [True, True, False]


def test_a_graph_of_another_machine_is_a_bug() -> None:
    other = rank_graph(load_topology("ring:4"))
    with pytest.raises(ValueError, match="resources"):
        bound_of(load_topology("switch:4"), "allgather", 1024, graph=other)
