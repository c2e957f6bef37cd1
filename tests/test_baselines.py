"""Baselines against textbook formulas, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer.baselines.registry import BASELINES, build_baseline, find_baseline, supports
from explorer.core.collective import COLLECTIVES, Collective, sizing
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.evaluate.network import network_for
from explorer.topologies.load import load_topology
from explorer.units import MIB
from sim.program import OP_RECEIVES, OP_SENDS, Op, Program
from sim.simulate import simulate

FULL = {n: load_topology(f"full:{n}", None) for n in (1, 2, 3, 4, 6, 8, 16)}


def sent(program: Program) -> tuple[list[int], list[int]]:
    """Messages and chunks that every rank sends."""
    rank = program.tb_rank[program.step_block()]
    sends = OP_SENDS[program.op]
    counts = np.bincount(rank[sends], minlength=program.ranks)
    chunks = np.bincount(rank[sends], program.cnt[sends], minlength=program.ranks)
    return counts.tolist(), chunks.astype(int).tolist()


def ops(program: Program) -> set[str]:
    return {Op(o).name for o in program.op.tolist()}


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize(
    ("collective", "rounds"), [("allgather", 1), ("reducescatter", 1), ("allreduce", 2)]
)
def test_ring_sends_a_share_of_the_buffer_in_every_round(
    ranks: int, collective: str, rounds: int
) -> None:
    program = build_baseline("ring", FULL[ranks], Collective(collective, ranks), placement="in")
    messages, chunks = sent(program)
    # R - 1 rounds per phase, S/R each
    assert messages == chunks == [rounds * (ranks - 1)] * ranks
    # one block per rank, AllReduce fuses the last reduction with the first forward: 2R - 1 steps
    assert program.blocks == ranks
    assert program.steps == ranks * (rounds * (ranks - 1) + 1)


def test_ring_allreduce_steps_are_nccls() -> None:
    program = build_baseline("ring", FULL[4], Collective("allreduce", 4), placement="in")
    first = [Op(o).name for o in program.op[: program.tb_first[1]].tolist()]
    assert first == [
        "SEND",
        "RECV_REDUCE_SEND",
        "RECV_REDUCE_SEND",
        "RECV_REDUCE_COPY_SEND",
        "RECV_COPY_SEND",
        "RECV_COPY_SEND",
        "RECV",
    ]
    # rank 0 starts the sum of its predecessor and ends with the chunk of its successor
    assert program.src_off[:3].tolist() == [3, 2, 1]
    assert program.dst_off[3:7].tolist() == [0, 3, 2, 1]
    assert len(program.dep_step) == 0


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_ring_chain_passes_the_buffer_once(collective: str) -> None:
    program = build_baseline("ring", FULL[6], Collective(collective, 6, 2, root=3))
    _, chunks = sent(program)
    # everybody passes the buffer of 2 chunks on but for the last one
    last = 2 if collective == "broadcast" else 3
    assert chunks == [0 if r == last else 2 for r in range(6)]


@pytest.mark.parametrize("ranks", [2, 3, 6, 8])
def test_ring_exchange_takes_the_shorter_way_round(ranks: int) -> None:
    program = build_baseline("ring", FULL[ranks], Collective("alltoall", ranks))
    messages, chunks = sent(program)
    ahead, back = ranks // 2, (ranks - 1) // 2
    assert messages == [ahead + back] * ranks
    # each chunk to each place d ahead goes d hops
    hops = sum(range(1, ahead + 1)) + sum(range(1, back + 1))
    assert chunks == [hops] * ranks


@pytest.mark.parametrize(
    ("collective", "phases"),
    [("allgather", 1), ("reducescatter", 1), ("alltoall", 1), ("allreduce", 2)],
)
@pytest.mark.parametrize("placement", ["in", "out", "both"])
def test_allpairs_is_one_hop_without_fused_receives(
    collective: str, phases: int, placement: str
) -> None:
    kind = Collective(collective, 6, 3)
    program = build_baseline("allpairs", FULL[6], kind, placement=placement)
    messages, chunks = sent(program)
    assert messages == [phases * 5] * 6
    assert chunks == [phases * 5 * 3] * 6
    # a block to and one from every peer; one more where the own chunk is copied by itself
    assert program.blocks == 6 * (10 + (placement != "in"))
    # what RCCL can run
    assert ops(program) <= {"SEND", "RECV", "COPY", "REDUCE"}


def test_allpairs_talks_in_rotated_order() -> None:
    program = build_baseline("allpairs", FULL[4], Collective("allgather", 4), placement="in")
    peers = program.tb_send[(program.tb_rank == 1) & (program.tb_send >= 0)]
    assert peers.tolist() == [2, 3, 0]


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_recursive_takes_log_rounds_and_the_least_bytes(ranks: int) -> None:
    rounds = ranks.bit_length() - 1
    for collective, phases in (("allgather", 1), ("reducescatter", 1), ("allreduce", 2)):
        program = build_baseline("recursive", FULL[ranks], Collective(collective, ranks))
        messages, chunks = sent(program)
        assert messages == [phases * rounds] * ranks
        # (R - 1)/R of the buffer per phase
        assert chunks == [phases * (ranks - 1)] * ranks


def test_recursive_folds_other_rank_counts() -> None:
    program = build_baseline("recursive", FULL[6], Collective("allreduce", 6), placement="in")
    messages, chunks = sent(program)
    # 4 of 6 take part, with 2 rounds each way; 1 and 3 hand over all 6 chunks and get 6 back
    assert messages == [5, 1, 5, 1, 4, 4]
    assert chunks[1] == chunks[3] == 6
    # the 4 stand for 1, 2, 1 and 2 chunks; halving sends all but the own ones, doubling too
    fold, halve_and_double = 6 + 6, 2 * 3 * 6
    assert sum(chunks) == 2 * fold + halve_and_double


def test_hierarchical_over_rails_crosses_once_per_rail() -> None:
    topology = load_topology("dgx_a100", 3)
    for collective, wanted in (
        ("allgather", (2, 2)),
        ("reducescatter", (2, 2)),
        ("allreduce", (4, 4)),
        # one message of 8 chunks to each of the other nodes
        ("alltoall", (2, 16)),
    ):
        program = build_baseline("hierarchical", topology, Collective(collective, 24))
        rank, peer = crossing(program, topology)
        # GPUs of equal place only
        assert (rank[:, 0] % 8 == peer % 8).all()
        assert np.bincount(rank[:, 0], minlength=24).tolist() == [wanted[0]] * 24
        assert np.bincount(rank[:, 0], rank[:, 1], minlength=24).tolist() == [wanted[1]] * 24


def crossing(program: Program, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(sender, chunks) and receiver of every message between nodes."""
    block = program.step_block()
    rank, peer = program.tb_rank[block], program.tb_send[block]
    crosses = OP_SENDS[program.op] & (topology.node_of[rank] != topology.node_of[peer])
    return np.stack([rank, program.cnt], axis=1)[crosses], peer[crosses]


def test_hierarchical_with_one_nic_goes_through_the_gpus_next_to_it() -> None:
    topology = load_topology("ndv2", 2)
    # the NIC is on the PCIe switch of GPUs 0 and 1: one sends, the other receives. Every node sends
    # its 8 chunks once, twice for AllReduce (16 partial sums and 16 results over 2 nodes), and what
    # its 8 GPUs have for 8 others in AllToAll.
    for collective, chunks in (
        ("allgather", 8),
        ("reducescatter", 8),
        ("allreduce", 16),
        ("alltoall", 64),
    ):
        program = build_baseline("hierarchical", topology, Collective(collective, 16))
        rank, peer = crossing(program, topology)
        assert set(zip(rank[:, 0].tolist(), peer.tolist(), strict=True)) == {(0, 9), (8, 1)}
        assert np.bincount(rank[:, 0], rank[:, 1]).tolist() == [chunks, *[0] * 7, chunks]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", sorted(BASELINES))
def test_in_place_names_one_buffer(name: str, collective: str) -> None:
    topology = load_topology("dgx_a100", 2)
    if supports(name, collective, topology):
        pytest.skip("not for this collective")
    program = build_baseline(name, topology, Collective(collective, 16), placement="in")
    assert (program.in_place, program.out_of_place) == (True, False)
    unused = program.i_chunks if collective == "allgather" else program.o_chunks
    assert unused.max() == 0


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_one_rank_copies_or_does_nothing(name: str) -> None:
    for collective in COLLECTIVES:
        kind = Collective(collective, 1, 2)
        if supports(name, kind, FULL[1]):
            continue
        for placement, steps in (("in", 0), ("out", 1), ("both", 1)):
            program = build_baseline(name, FULL[1], kind, placement=placement, instances=3)
            assert program.steps == (3 if steps else 0)
            assert program.cnt.sum() == 6 * steps
            assert program.nchunks == 6


def test_instances_and_channels_multiply() -> None:
    kind = Collective("allreduce", 8, 2)
    for name in ("ring", "allpairs", "recursive"):
        program = build_baseline(name, FULL[8], kind, channels=2, instances=3)
        assert program.nchunks == 8 * 2 * 3
        assert program.channels == 2 * 3
        assert program.collective == "allreduce"
        load = np.zeros(6)
        np.add.at(load, program.tb_channel[program.step_block()], program.cnt)
        assert load.min() == load.max()


def test_large_counts_are_split_at_what_a_step_can_hold() -> None:
    program = build_baseline("allpairs", FULL[3], Collective("allgather", 3, 150))
    assert program.cnt.max() == 71
    assert sorted(program.cnt[: program.tb_first[1]].tolist()) == [8, 71, 71]


def test_reductions_that_runtimes_fuse_stay_short() -> None:
    topology = load_topology("switch:40", None)
    program = build_baseline("allpairs", topology, Collective("reducescatter", 40), placement="in")
    waits = np.diff(program.dep_first)
    run = longest = 0
    for i in range(program.steps):
        reduces = program.op[i] == Op.REDUCE
        run = (run + 1 if waits[i] == 0 else 1) if reduces else 0
        longest = max(longest, run)
    # 39 operands: 15 + 15 + 9
    assert longest == 15


def test_ring_takes_the_textbook_time() -> None:
    topology = load_topology("switch:8,50GB/s,2us", None)
    kind = Collective("allreduce", 8)
    program = build_baseline("ring", topology, kind)
    size = 64 * MIB
    chunk = float(sizing(kind, size).chunk_bytes)
    result = simulate(program, network_for(topology, program), chunk)
    # 2 (R - 1) (alpha + S/R · beta)
    assert result.time_us == pytest.approx(14 * (2.0 + size / 8 / 50e3), rel=1e-12)


def test_one_nic_stays_busy_all_the_time() -> None:
    # 2 x NDv2, AllGather of 1 GiB with 4 chunks per rank: the NIC needs half of it at 12.5 GB/s;
    # what is left at the end is one chunk going down a tree of two NVLink hops
    topology = load_topology("ndv2", 2)
    kind = Collective("allgather", 16, 4)
    program = build_baseline("hierarchical", topology, kind)
    chunk = float(sizing(kind, 1 << 30).chunk_bytes)
    result = simulate(program, network_for(topology, program), chunk)
    nic = (1 << 29) / 12.5e3
    assert nic < result.time_us < nic * 1.03


def test_builds_are_repeatable() -> None:
    topology = load_topology("ndv2", 2)
    for name in sorted(BASELINES):
        one, two = (
            build_baseline(name, load_topology("ndv2", 2), Collective("allreduce", 16, 2))
            for _ in range(2)
        )
        for field in one.__dataclass_fields__:
            a, b = getattr(one, field), getattr(two, field)
            assert np.array_equal(a, b), (name, field)
        assert one.name == f"allreduce_{name}_16"
    assert topology.ranks == 16


def test_blocks_without_messages_one_way_have_no_peer_that_way() -> None:
    # as many channels as owners: on each channel one rank only sends and another only receives
    program = build_baseline("ring", FULL[4], Collective("allgather", 4), channels=4)
    sends = np.array([OP_SENDS[program.op[a:b]].any() for a, b in blocks(program)])
    receives = np.array([OP_RECEIVES[program.op[a:b]].any() for a, b in blocks(program)])
    assert ((program.tb_send >= 0) == sends).all()
    assert ((program.tb_recv >= 0) == receives).all()
    assert (~sends).any()


def blocks(program: Program) -> list[tuple[int, int]]:
    return list(zip(program.tb_first[:-1].tolist(), program.tb_first[1:].tolist(), strict=True))


def test_refusals_say_why() -> None:
    ndv2 = load_topology("ndv2", 1)
    assert supports("recursive", "allgather", FULL[6]) == "recursive needs a power of two, got 6"
    assert supports("recursive", "allreduce", FULL[6]) is None
    assert supports("recursive", "broadcast", ndv2) == (
        "recursive has no broadcast; it does allgather, reducescatter, allreduce"
    )
    assert "several nodes, ndv2 is one" in str(supports("hierarchical", "allgather", ndv2))
    assert "6" in str(supports("ring", Collective("allgather", 6), ndv2))
    with pytest.raises(InputError, match="got 'rign', did you mean 'ring'"):
        find_baseline("rign")
    with pytest.raises(InputError) as caught:
        build_baseline(
            "recursive",
            FULL[6],
            Collective("allgather", 6),
            placement="inn",
            protocol="simple",
            channels=0,
        )
    text = str(caught.value)
    for part in (
        "placement: got 'inn'",
        "did you mean 'Simple'",
        "channels: got 0",
        "power of two",
    ):
        assert part in text


def test_machines_in_pieces_are_refused() -> None:
    devices = tuple(Device(f"gpu{r}", "gpu") for r in range(4))
    one_way = Topology("valve", devices[:2], (Link(0, 1, "generic", 1.0, 1.0),))
    assert supports("ring", "allgather", one_way) == "ranks 1 cannot reach 0"
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    halves = Topology("halves", devices, tuple(Link(u, v, "generic", 1.0, 1.0) for u, v in pairs))
    assert supports("allpairs", "allgather", halves) == "ranks 0-1 cannot reach 2-3"
    # each node alone is fine, but not inside: its two GPUs only meet over the other node
    apart = Topology(
        "apart",
        tuple(replace(d, node=r % 2) for r, d in enumerate(devices)),
        tuple(
            Link(u, v, "generic", 1.0, 1.0)
            for u, v in ((0, 1), (1, 2), (2, 3), (3, 0), (1, 0), (2, 1), (3, 2), (0, 3))
        ),
    )
    assert "ranks 0, 2 are not" in str(supports("hierarchical", "allgather", apart))
