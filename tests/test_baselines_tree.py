"""The double binary tree: its shape against NCCL's and the textbook's, message counts, values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from baselines_interpreter import races, run

from explorer.baselines.double_tree import double_tree, rooted_double_tree
from explorer.baselines.registry import build_baseline, supports
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.evaluate.network import network_for
from explorer.formats.dialects import exceeded
from explorer.topologies.load import load_topology
from explorer.units import MIB
from explorer.verify.program import safe_max_bytes, verify_program
from sim.program import OP_RECEIVES, OP_SENDS, Op, Program
from sim.simulate import simulate

COUNTS = range(1, 18)
ROOTED = ("broadcast", "reduce")


def tree(
    topology: Topology, name: str, chunks: int = 1, root: int = 0, **settings: object
) -> Program:
    kind = Collective(name, topology.ranks, chunks, root)
    return build_baseline("tree", topology, kind, **settings)  # type: ignore[arg-type]


def edges(program: Program) -> Counter[tuple[int, int, int]]:
    """Chunks by (sender, receiver, channel)."""
    block = program.step_block()
    found: Counter[tuple[int, int, int]] = Counter()
    for step in np.flatnonzero(OP_SENDS[program.op]).tolist():
        b = block[step]
        key = int(program.tb_rank[b]), int(program.tb_send[b]), int(program.tb_channel[b])
        found[key] += int(program.cnt[step])
    return found


def depth(parents: list[int]) -> int:
    most = 0
    for position in range(len(parents)):
        hops, at = 0, position
        while parents[at] >= 0:
            hops, at = hops + 1, parents[at]
        most = max(most, hops)
    return most


def test_trees_are_the_ones_that_nccl_draws() -> None:
    # the picture in nccl/src/graph/trees.cc, for 14 ranks, and its mirror image
    first, second = double_tree(14)
    assert first == [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]
    assert second == [1, 5, 3, 1, 3, 13, 7, 9, 7, 5, 11, 9, 11, -1]
    # an odd count: shifted by one
    assert double_tree(5) == ([-1, 2, 4, 2, 0], [1, -1, 3, 0, 3])


@pytest.mark.parametrize("count", COUNTS)
def test_inner_of_one_tree_is_leaf_of_the_other(count: int) -> None:
    for first, second in (double_tree(count), rooted_double_tree(count)):
        for parents in (first, second):
            assert parents.count(-1) == 1
            assert depth(parents) == (count - 1).bit_length()
        children = Counter(p for p in [*first, *second] if p >= 0)
        assert max(children.values(), default=0) <= 2
        both = {p for p in first if p >= 0} & {p for p in second if p >= 0}
        # one root of NCCL's for an odd count, the common root of the rooted ones
        assert both <= {0}
    assert all(parents[0] == -1 for parents in rooted_double_tree(count))


@pytest.mark.parametrize("ranks", COUNTS)
def test_every_tree_carries_half_over_each_of_its_edges(ranks: int) -> None:
    topology = load_topology(f"full:{ranks}", None)
    chunks = 4
    for name in ("allreduce", *ROOTED):
        program = tree(topology, name, chunks, placement="in")
        total = Collective(name, ranks, chunks).nchunks
        found = edges(program)
        ways = 2 if name == "allreduce" else 1
        assert len(found) == 2 * ways * (ranks - 1)
        halves = {0: total - total // 2, 1: total // 2}
        assert all(carried == halves[channel] for (_, _, channel), carried in found.items())
        # nobody has more than two children in both trees together, nor more than two parents
        sent: Counter[int] = Counter()
        for (rank, _, _), carried in found.items():
            sent[rank] += carried
        assert max(sent.values(), default=0) <= (2 * ways) * halves[0]


@pytest.mark.parametrize("root", [0, 3, 6])
@pytest.mark.parametrize("name", ROOTED)
def test_rooted_trees_start_and_end_at_the_root(name: str, root: int) -> None:
    program = tree(load_topology("full:7", None), name, 2, root)
    ends = Counter(e[0] if name == "broadcast" else e[1] for e in edges(program))
    starts = Counter(e[1] if name == "broadcast" else e[0] for e in edges(program))
    # the root has one child in each tree and no parent, every other rank has two parents
    assert (ends[root], starts[root]) == (2, 0)
    assert all(starts[rank] == 2 for rank in range(7) if rank != root)


def test_steps_are_nccls() -> None:
    topology = load_topology("full:4", None)
    program = tree(topology, "allreduce", 1, placement="in")
    texts = []
    for b in np.flatnonzero((program.tb_rank == 2) & (program.tb_channel == 0)).tolist():
        steps = program.op[program.tb_first[b] : program.tb_first[b + 1]].tolist()
        texts.append(
            (int(program.tb_recv[b]), int(program.tb_send[b]), {Op(o).name for o in steps})
        )
    # rank 2 stands below 0 and above 1 and 3
    assert sorted(texts) == [
        (-1, 3, {"SEND"}),
        (0, 1, {"RECV_COPY_SEND"}),
        (1, 0, {"RECV_REDUCE_SEND"}),
        (3, -1, {"RECV_REDUCE_COPY"}),
    ]


@pytest.mark.parametrize("name", ["allreduce", *ROOTED])
def test_latency_grows_with_the_logarithm(name: str) -> None:
    times = {}
    for ranks in (4, 16):
        topology = load_topology(f"full:{ranks}", None)
        program = tree(topology, name, 2 if name in ROOTED else 1, protocol="LL")
        times[ranks] = simulate(program, network_for(topology, program), 4).time_us
    ring = build_baseline("ring", load_topology("full:16", None), Collective(name, 16, 2))
    network = network_for(load_topology("full:16", None), ring)
    assert times[16] < 4 * times[4]
    assert times[16] < simulate(ring, network, 4).time_us


def test_many_pieces_come_near_to_half_the_buffer_per_link() -> None:
    topology = load_topology("full:8", None)
    program = tree(topology, "broadcast", 60)
    time_us = simulate(program, network_for(topology, program), MIB / 2).time_us
    hop = topology.links[0].alpha_us + topology.links[0].beta_us_per_mib / 2
    # each half in 30 pieces of half a MiB; a piece reaches the last rank after at most 2·3 hops
    assert 30 * hop < time_us < (30 + 2 * 3) * hop


@pytest.mark.parametrize(("machine", "nodes"), [("ndv2", 2), ("ndv2", 5), ("dgx_a100", 2)])
def test_nodes_are_joined_by_a_binary_tree_and_chains_inside(machine: str, nodes: int) -> None:
    topology = load_topology(machine, nodes)
    node = topology.node_of
    program = tree(topology, "allreduce", 2)
    found = edges(program)
    for channel in (0, 1):
        crossing = {(u, v) for u, v, c in found if c == channel and node[u] != node[v]}
        inside = {(u, v) for u, v, c in found if c == channel and node[u] == node[v]}
        # both directions of every edge
        assert len(crossing) == 2 * (nodes - 1)
        assert len(inside) == 2 * (topology.ranks - nodes)
        assert crossing == {(v, u) for u, v in crossing}
        neighbours = Counter(u for u, _ in inside)
        assert sorted(neighbours.values()) == [1] * 2 * nodes + [2] * (topology.ranks - 2 * nodes)
        parents = double_tree(nodes)[channel]
        wanted = {frozenset((k, p)) for k, p in enumerate(parents) if p >= 0}
        assert {frozenset((int(node[u]), int(node[v]))) for u, v in crossing} == wanted


def test_trees_take_turns_on_the_nics_of_a_node() -> None:
    topology = load_topology("dgx_a100", 3)
    program = tree(topology, "allreduce", 2, channels=8)
    node = topology.node_of
    # a leaf of the one tree talks over one GPU, in both trees over all 8 together
    leaving = {u for u, v, _ in edges(program) if node[u] != node[v]}
    assert leaving == set(range(24))


SHAPES = ["ring:5", "mesh:3x3", "mesh:1x4", "switch:6"]


@pytest.mark.parametrize("machine", [*(f"full:{n}" for n in COUNTS), *SHAPES])
@pytest.mark.parametrize("name", ["allreduce", *ROOTED])
def test_right_values_without_races_in_any_order(name: str, machine: str) -> None:
    topology = load_topology(machine, None)
    settings = [(2, 1, 1, "in"), (3, 2, 1, "out"), (1, 1, 2, "both")]
    for seed, (chunks, channels, instances, placement) in enumerate(settings):
        kind = Collective(name, topology.ranks, chunks)
        if kind.rooted:
            kind = replace(kind, root=(seed * 2 + 1) % topology.ranks)
        program = build_baseline(
            "tree", topology, kind, placement=placement, channels=channels, instances=instances
        )
        asked = replace(kind, chunks_per_rank=chunks * instances)
        for in_place in {"in": [True], "out": [False], "both": [True, False]}[placement]:
            if topology.ranks < 10:
                assert races(program, asked, in_place=in_place) == []
            run(program, asked, in_place=in_place, seed=seed)


@pytest.mark.parametrize(("machine", "nodes"), [("ndv2", 2), ("dgx_a100", 2), ("ndv2", 1)])
@pytest.mark.parametrize("name", ["allreduce", *ROOTED])
def test_verified_and_within_the_limits_of_runtimes(name: str, machine: str, nodes: int) -> None:
    topology = load_topology(machine, nodes)
    for chunks, channels, placement in ((1, 1, "in"), (64, 1, "both"), (4, 3, "out")):
        program = tree(
            topology,
            name,
            chunks,
            topology.ranks // 2 if name in ROOTED else 0,
            placement=placement,
            channels=channels,
        )
        report = verify_program(program, strict=True)
        assert not report.errors
        assert not report.warnings
        assert safe_max_bytes(program) is None
        assert exceeded(program, "executor") == []


def test_other_collectives_are_refused() -> None:
    topology = load_topology("full:4", None)
    for name in ("allgather", "reducescatter", "alltoall"):
        reason = supports("tree", name, topology)
        assert reason is not None
        assert "tree has no" in reason
        with pytest.raises(InputError, match="tree has no"):
            tree(topology, name)


def test_reduce_in_place_leaves_other_ranks_buffers() -> None:
    program = tree(load_topology("full:7", None), "reduce", 2, 3, placement="in")
    writes = (program.dst_buf == 0) & (program.dst_off >= 0) & OP_RECEIVES[program.op]
    assert set(program.tb_rank[program.step_block()][writes].tolist()) == {3}
