"""What NCCL_DEBUG lines say."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.measured.debug import DebugFacts
from explorer.measured.debug_log import read_debug
from explorer.measured.readers import read_log
from explorer.measured.row import NOTHING, Remark
from explorer.measured.source import source_of

ROOT = Path(__file__).resolve().parent
DATA = ROOT / "data" / "logs"
OTHER = ROOT.parent.parent / "shared" / "corpus" / "other"


def read(*lines: str) -> tuple[DebugFacts, list[Remark]]:
    text = "".join(f"node-0:100:10{i} [{i}] NCCL INFO {line}\n" for i, line in enumerate(lines))
    return read_debug(source_of("nccl.log", text.encode()))


def test_a_ring_from_one_line_and_from_the_lines_of_its_ranks():
    facts, _ = read("comm 0x1 rank 0 nranks 4 cudaDev 0", "Channel 00/02 :    0   2   3   1")
    assert (facts.rings[0].order, facts.rings[0].complete, facts.channels) == (
        (0, 2, 3, 1),
        True,
        2,
    )
    hops = ("1 -> 0 -> 2", "0 -> 2 -> 3", "2 -> 3 -> 1", "3 -> 1 -> 0")
    facts, _ = read("comm 0x1 rank 0 nRanks 4 cudaDev 0", *(f"Ring 00 : {hop}" for hop in hops))
    assert (facts.rings[0].order, facts.rings[0].complete) == ((0, 2, 3, 1), True)
    facts, _ = read("comm 0x1 rank 0 nRanks 4 cudaDev 0", "Ring 00 : 1 -> 0 -> 2")
    assert (facts.rings[0].order, facts.rings[0].complete) == ((1, 0, 2), False)


def test_a_ring_that_is_cut_is_said_to_be():
    facts, remarks = read("comm 0x1 rank 0 nranks 8 cudaDev 0", "Channel 04/08 :    0   1   2")
    assert not facts.rings[0].complete
    assert any("ring 4 names 3 of 8 ranks" in r.message for r in remarks)


@pytest.mark.parametrize(
    "lines",
    [
        ("1/-1/-1->0->-1", "2/-1/-1->1->0", "-1/-1/-1->2->1"),
        ("1/-1/-1->0->-1|-1->0->1/-1/-1", "2/-1/-1->1->0|0->1->2/-1/-1", "-1/-1/-1->2->1|1->2->-1"),
        ("-1->0->1/-1/-1", "0->1->2/-1/-1", "1->2->-1/-1/-1"),
    ],
)
def test_a_tree_in_every_syntax(lines):
    facts, _ = read("comm 0x1 rank 0 nranks 3 cudaDev 0", *(f"Trees [0] {line}" for line in lines))
    (tree,) = facts.trees
    assert (tree.parents, tree.root, tree.complete) == (((0, -1), (1, 0), (2, 1)), 0, True)


def test_a_loop_is_no_tree():
    facts, _ = read(
        "comm 0x1 rank 0 nranks 3 cudaDev 0",
        "Trees [0] 1/-1/-1->0->-1",
        "Trees [0] 2/-1/-1->1->2",
        "Trees [0] 1/-1/-1->2->1",
    )
    assert not facts.trees[0].complete


def test_connections_count_transports_and_nics():
    facts, _ = read(
        "Channel 00/0 : 0[100000] -> 4[500000] via P2P/IPC",
        "Channel 00/0 : 31[1000000] -> 13[e00000] [receive] via NET/IB/6",
        "Channel 00 : 3[84000] -> 4[2000] [receive] via NET/Socket/0",
        "Ring 00 : 0[0] -> 1[1] via P2P/direct pointer",
    )
    assert dict(facts.transports) == {"P2P/IPC": 1, "NET/IB": 1, "NET/Socket": 1, "P2P/direct": 1}
    assert facts.nics == ("NET/IB/6", "NET/Socket/0")
    assert facts.rings == ()


def test_the_machine_is_a_tree_by_indent_and_odd_speeds_are_flagged():
    facts, remarks = read(
        "=== System : maxBw 48.0 totalBw 370.8 ===",
        "CPU/0-0 (1/2/-1)",
        "+ SYS[16.0] - CPU/0-1",
        "+ PCI[0.2] - PCI/0-65000 (104c823200000000)",
        "             + PCI[48.0] - NIC/0-67000",
        "                           + NET[50.0] - NET/0-c (0/0000000000000001/1/50.000000)",
        "             + PCI[48.0] - GPU/0-68000 (8)",
        "                           + NVL[370.8] - NVS/0-0",
    )
    assert [(link.src, link.dst, link.gbs) for link in facts.links] == [
        ("CPU/0-0", "CPU/0-1", 16.0),
        ("CPU/0-0", "PCI/0-65000", 0.2),
        ("PCI/0-65000", "NIC/0-67000", 48.0),
        ("NIC/0-67000", "NET/0-c", 50.0),
        ("PCI/0-65000", "GPU/0-68000", 48.0),
        ("GPU/0-68000", "NVS/0-0", 370.8),
    ]
    assert [(r.line, r.kind) for r in remarks] == [(4, "conflict")]
    assert "PCI[0.2] from CPU/0-0 to PCI/0-65000: implausible" in remarks[0].message


def test_searches_name_pattern_channels_and_bandwidth():
    facts, _ = read(
        "Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1",
        "Pattern 1, crossNic 0, nChannels 2, speed 10.0/5.0, type SYS/SYS, sameChannels 1",
    )
    ring, tree = facts.patterns
    assert (ring.kind, ring.channels, ring.intra_gbs, ring.intra_path) == ("ring", 12, 20.0, "NVL")
    assert (tree.kind, tree.inter_gbs) == ("balanced tree", 5.0)


OLD_MODEL = (
    "Latency/AlgBw |    Tree/    LL |    Ring/Simple |",
    " Max NThreads |            512 |            256 |",
    "    AllReduce |     6.3/   0.8 |    18.0/   3.0 |",
    "    Broadcast |     0.0/   0.0 |    18.0/   3.2 |",
    "    AllGather |     0.0/   0.0 |    33.3/",
)


def test_the_model_of_nccl_and_what_it_cannot_use():
    facts, remarks = read(*OLD_MODEL)
    found = {(p.collective, p.algorithm, p.protocol): p for p in facts.predictions}
    assert found["allreduce", "tree", "ll"].latency_us == 6.3
    assert found["broadcast", "ring", "simple"].algbw_gbs == 3.2
    assert not found["broadcast", "tree", "ll"].available
    assert ("allgather", "ring", "simple") not in found
    assert [(r.line, r.kind) for r in remarks] == [(5, "refused")]


def test_the_model_in_two_heading_lines():
    facts, _ = read(
        "  Algorithm   |                            Tree                  |",
        "  Protocol    |             LL |          LL128 |         Simple |",
        "    AllReduce |     9.3/   1.2 |    18.0/   0.0 |    22.4/   2.4 |",
    )
    assert [(p.algorithm, p.protocol, p.algbw_gbs) for p in facts.predictions] == [
        ("tree", "ll", 1.2),
        ("tree", "ll128", 0.0),
        ("tree", "simple", 2.4),
    ]


def test_what_ran_by_name_and_by_number():
    facts, _ = read(
        "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}",
        "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}",
        "37756928 Bytes -> Algo 1 proto 2 time 2860.208008",
    )
    named, numbered = facts.choices
    assert (named.collective, named.size_bytes, named.channels) == ("allreduce", 4096, 2)
    assert (named.algorithm, named.protocol) == ("tree", "ll")
    assert (numbered.algorithm, numbered.protocol, numbered.time_us) == (
        "ring",
        "simple",
        2860.208008,
    )


def test_fewer_nvls_heads_than_gpus_are_said():
    facts, remarks = read(
        "comm 0x1 rank 7 nRanks 16 nNodes 2 localRanks 8 localRank 7 MNNVL 0",
        *(f"NVLS Head  {head}:  {head} {head + 8}" for head in range(7)),
    )
    assert (facts.ranks, facts.nodes, facts.local_ranks) == (16, 2, 8)
    assert facts.nvls_heads[6] == (6, (6, 14))
    assert any("7 NVLS heads for 8 GPUs" in r.message for r in remarks)


def test_a_published_rccl_log_of_32_ranks():
    reading = read_log(DATA / "rccl_debug_mi250x_2x16.log")
    facts = reading.debug
    assert facts is not None
    assert (facts.ranks, facts.channels, facts.versions) == (32, 2, ("2.18.3+hip6.0",))
    assert [(tree.root, tree.complete) for tree in facts.trees] == [(13, True), (7, True)]
    assert facts.nics == ("NET/IB/2", "NET/IB/3", "NET/IB/6", "NET/IB/7")
    assert dict(facts.transports)["NET/IB"] == 14
    assert reading.remarks[-1].message == NOTHING


@pytest.mark.skipif(not OTHER.is_dir(), reason="the corpus is not beside the checkout")
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("nccl_debug_16rank_ring_ethernet.log", lambda f: f.rings[0].order[7:10] == (1, 8, 15)),
        ("nccl_debug_8rank_sockets_channels_trees.log", lambda f: f.rings[3].order[2:4] == (6, 7)),
        ("nccl_debug_a100_2gpu_nvswitch.log", lambda f: f.patterns[0].channels == 12),
        ("nccl_debug_h100_7nic_nvls.log", lambda f: len(f.nvls_heads) == 7),
        ("nccl_debug_h200_vm_system.log", lambda f: min(x.gbs for x in f.links) == 0.2),
        ("nccl_debug_tuning_table.log", lambda f: len(f.predictions) == 26),
    ],
)
def test_logs_of_the_corpus(name, check):
    facts = read_log(OTHER / name).debug
    assert facts is not None
    assert check(facts)
