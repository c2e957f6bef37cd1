"""Network descriptions: SLURM, ibnetdiscover, UFM cabling, htsim; alone and with nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.evaluate.simulate_sizes import simulate_sizes
from explorer.topologies.adjust import with_leaves
from explorer.topologies.combine import combine
from explorer.topologies.describe import nic_table
from explorer.topologies.htsim_topo import read_htsim_topo
from explorer.topologies.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from explorer.topologies.load import load_topology
from explorer.topologies.slurm_topology import looks_like_slurm, read_slurm_topology
from explorer.topologies.source import Source
from explorer.topologies.subset import subset
from explorer.topologies.topology_write import topology_yaml
from explorer.topologies.ufm_cabling import read_ufm_cabling
from explorer.units import gbs_of_beta

TREE = """\
# two pods below a root
SwitchName=root Switches=pod[1-2]
SwitchName=pod1 Switches=leaf[1-2]
SwitchName=pod2 Switches=leaf3
SwitchName=leaf1 Nodes=n[01-02]
SwitchName=leaf2 Nodes=n[03,05-06]
SwitchName=leaf3 Nodes=m1,m2
"""


def slurm(text: str, nodes: int | None = None) -> Topology:
    source = Source("topology.conf", text)
    assert looks_like_slurm(source)
    return read_slurm_topology(source, nodes, True)


def refusal(read, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(Source("file", text), None, True)
    return str(caught.value)


def rate(topology: Topology, a: int, b: int) -> float:
    return round(gbs_of_beta(topology.routes_from(a)[b].beta_us_per_mib), 6)


def all_to_all_us(topology: Topology, tmp_path: Path) -> float:
    path = tmp_path / "machine.yaml"
    path.write_text(topology_yaml(topology))
    rows, _ = simulate_sizes("allpairs", str(path), None, "alltoall", [1 << 30])
    return rows[0]["time_us"]


def test_slurm_tree() -> None:
    topology = slurm(TREE)
    assert (topology.ranks, topology.nodes) == (7, 7)
    # One leaf switch, two of one pod, and over the root: 0.3 us per cable between switches.
    alphas = [round(topology.routes_from(0)[dst].alpha_us, 6) for dst in (1, 2, 5)]
    assert alphas[1] - alphas[0] == pytest.approx(0.6)
    assert alphas[2] - alphas[1] == pytest.approx(0.6)
    assert any("leaf1: n01, n02; leaf2: n03, n05, n06; leaf3: m1, m2" in n for n in topology.notes)


def test_slurm_blocks_are_leaves() -> None:
    topology = slurm("BlockName=a Nodes=x[1-4]\nBlockName=b Nodes=x[5-8]\nBlockSizes=4,8\n")
    assert topology.ranks == 8
    assert any("hosts of a block are close" in note for note in topology.notes)


def test_slurm_without_a_common_root_is_refused_with_its_parts() -> None:
    # C09
    text = "SwitchName=A Switches=A1,A2\nSwitchName=A1 Nodes=n[1-8]\nSwitchName=A2 Nodes=n[9-16]\n"
    message = refusal(read_slurm_topology, text + "SwitchName=C Nodes=n[33-40]\n")
    assert "no cable joins its 2 parts" in message
    assert "A … A2: 16 nodes (n1, n2, n3, n4 and 12 more)" in message
    assert "C: 8 nodes" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2",
            "file:2: a is given twice, first in line 1",
        ),
        ("SwitchName=a Switches=b", "a names switch b, which has no line"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "file:2: n1 is below b and, in line 1"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "is above itself"),
        ("SwitchName=a Nodes=n[1-", "brackets do not match"),
        ("SwitchName=a Nodes=n[1-99999999]", "which names no usable hosts"),
        ("SwitchName=a Nodes=n[1-9][1-9999][1-9999]", "names over 16384 hosts"),
        ("SwitchName=a Nods=n1", "unknown key 'Nods', did you mean 'Nodes'?"),
        ("SwitchName=a", "a has neither Switches nor Nodes"),
        ("SwitchName=a Nodes=n1 what", "got 'what'"),
    ],
)
def test_slurm_damage(text: str, message: str) -> None:
    assert message in refusal(read_slurm_topology, text)


IB = """\
vendid=0x2c9
switchguid=0x1(1)
Switch\t36 "S-1"\t\t# "leaf A" base port 0 lid 4 lmc 0
[1]\t"H-1"[1](10) \t\t# "n1 HCA-1" lid 6 4xSDR
[2]\t"H-2"[1](20) \t\t# "n2 HCA-1" lid 8 4xSDR
[3]\t"S-2"[3]\t\t# "leaf B" lid 3 4xSDR
[4]\t"S-2"[4]\t\t# "leaf B" lid 3 4xSDR

Switch\t36 "S-2"\t\t# "leaf B" base port 0 lid 3 lmc 0
[1]\t"H-3"[1](30) \t\t# "n3 HCA-1" lid 6 4xSDR
[2]\t"H-4"[1](40) \t\t# "n4 HCA-1" lid 8 4xSDR
[3]\t"S-1"[3]\t\t# "leaf A" lid 4 4xSDR
[4]\t"S-1"[4]\t\t# "leaf A" lid 4 4xSDR
"""


def ib(text: str) -> Topology:
    source = Source("ib.txt", text)
    assert looks_like_ibnetdiscover(source)
    return read_ibnetdiscover(source, None, True)


def test_parallel_cables_between_switches_add_up(tmp_path: Path) -> None:
    # C33: 4xSDR carries 8 Gb/s of data; two cables let two pairs pass at a time.
    topology = ib(IB)
    assert rate(topology, 0, 2) == 1.0
    first, second = (set(topology.routes_from(a)[a + 2].links) for a in (0, 1))
    assert not first & second
    one = ib("\n".join(line for line in IB.splitlines() if not line.startswith("[4]")))
    shared = set(one.routes_from(0)[2].links) & set(one.routes_from(1)[3].links)
    assert {round(gbs_of_beta(one.links[i].beta_us_per_mib), 6) for i in shared} == {1.0}
    # A rank sends three chunks of 256 MiB; four chunks leave a leaf, through one cable or two.
    chunk_us = (1 << 28) / 1e3
    assert all_to_all_us(topology, tmp_path) == pytest.approx(3 * chunk_us, rel=1e-3)
    assert all_to_all_us(one, tmp_path) == pytest.approx(4 * chunk_us, rel=1e-3)
    assert any("leaf A - leaf B: 2 cables" in note for note in topology.notes)


def test_ibnetdiscover_lists_of_links() -> None:
    text = """\
CA   134  1 0x0000000000000001 4x EDR - SW  1719 10 0x0000000000000002 ( 'h1 HCA-1' - ' leaf ' )
CA   133  1 0x0000000000000003 4x EDR - SW  1719 11 0x0000000000000002 ( 'h2 HCA-1' - ' leaf ' )
CA    78  1 0x0000000000000008 4x HDR - SW  1719 41 0x2 ( 'Mellanox Aggregation Node' - 'leaf' )
SW  1719 10 0x0000000000000002 4x EDR - CA   134  1 0x0000000000000001 ( ' leaf ' - 'h1 HCA-1' )
SW  1719 37 0x0000000000000002 4x ???                                    leaf
"""
    topology = ib(text)
    assert (topology.ranks, rate(topology, 0, 1)) == (2, 12.5)
    assert any("1 ports are down" in note for note in topology.notes)
    assert "file:6: got 'CA oops'" in refusal(read_ibnetdiscover, text + "CA oops\n")


def test_redacted_identities_do_not_merge_hosts() -> None:
    lines = [
        f'[{i}]\t"H-9c05<x>"[1](9c05<x>) \t# "node{i} mlx5_2" lid {i} 2xNDR' for i in (1, 2, 3)
    ]
    topology = ib("\n".join(['Switch\t129 "S-9c05<x>"\t# "sw" port 0', *lines, "...omitted"]))
    assert (topology.ranks, rate(topology, 0, 2)) == (3, 25.0)
    assert any("line 5: the paste leaves out lines" in note for note in topology.notes)


def test_both_ends_of_a_cable_must_agree() -> None:
    text = IB.replace(
        '[3]\t"S-1"[3]\t\t# "leaf A" lid 4 4xSDR', '[3]\t"S-1"[3]\t\t# "leaf A" lid 4 4xEDR'
    )
    assert "line 6 gives the same cable" in refusal(read_ibnetdiscover, text)


HOSTS = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n" + "".join(
    f"host{h},host{h} ib{i},leaf{h // 2},Port {8 * (h % 2) + i + 1}, Data\n"
    for h in range(8)
    for i in range(8)
)
SPINES = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n" + "".join(
    f"leaf{leaf},Port {21 + k},spine{k // 5},Blade {k % 5}_Port 2/{leaf},Data\n"
    for leaf in range(4)
    for k in range(20)
)


def test_planned_cabling_of_hosts_and_spines(tmp_path: Path) -> None:
    # C61
    hosts, spines = tmp_path / "hosts.csv", tmp_path / "spines.csv"
    hosts.write_text(HOSTS)
    spines.write_text(SPINES)
    topology = combine([str(hosts), str(spines)])
    notes = "\n".join(topology.notes)
    assert topology.ranks == 8
    assert "leaf0: host0, host1; leaf1: host2, host3; leaf2: host4, host5; leaf3: host6" in notes
    assert (
        "all 8 NICs of a host on one leaf (host0, host1, host2, host3 and 4 more): no rails"
        in notes
    )
    assert "16 host ports : 20 uplinks (not oversubscribed)" in notes
    # With nodes of 8 GPUs and 8 NICs of their own in place of one rank per host.
    whole = combine([str(hosts), "dgx_h100", str(spines)])
    assert (whole.ranks, whole.nodes) == (64, 8)
    assert [nic_table(whole)[r] for r in (0, 9, 63)] == ["n0/nic0", "n1/nic1", "n7/nic7"]
    with pytest.raises(InputError, match="no cable joins its 4 parts"):
        combine([str(hosts), "dgx_h100"])
    with pytest.raises(InputError, match="names 8 switches but no host"):
        combine([str(spines)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "#StartDevice,EndDevice,EndPort,LinkType\nleaf01,spine01,Blade 16_Port 2/20,Data",
            "file:1: column StartPort missing",
        ),
        (HOSTS.replace("leaf0,Port 1,", "leaf0,,", 1), "file:2: EndPort missing"),
        (HOSTS.replace("Port 1,", "here,", 1), "is a switch port such as Port 21"),
        ('#StartDevice,StartPort,EndDevice,EndPort\n"a', "not valid CSV"),
    ],
)
def test_damaged_cabling(text: str, message: str) -> None:
    assert message in refusal(read_ufm_cabling, text)


def test_cabling_with_speeds_and_stray_columns() -> None:
    text = (
        ",rack,#Fields:StartDevice,StartPort,Where,EndDevice,EndPort,Where,Speed\n"
        ",r1,h1,h1 ib0,x,leaf,Port 1,y,200000\n,r1,h2,h2 ib0,x,leaf,Port 2,y,200000\n"
    )
    topology = read_ufm_cabling(Source("plan.csv", text), None, True)
    assert rate(topology, 0, 1) == 25.0
    assert "Speed: got 'fast'" in refusal(read_ufm_cabling, text.replace("200000", "fast", 1))


HTSIM = """\
Nodes 8
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""


def test_slow_spine_limits_traffic_between_pods_only(tmp_path: Path) -> None:
    # C08: 200 Gb/s below, links of 100 Gb/s at the spine.
    slow = read_htsim_topo(Source("fat.topo", HTSIM), None, True)
    fast = read_htsim_topo(Source("fat.topo", HTSIM.replace("Gbps 100", "Gbps 200")), None, True)
    assert slow.ranks == 8
    assert [rate(slow, 0, dst) for dst in (1, 2, 4)] == [25.0, 25.0, 12.5]
    assert [rate(fast, 0, dst) for dst in (1, 2, 4)] == [25.0, 25.0, 25.0]
    inside = [all_to_all_us(subset(t, [0, 1, 2, 3]), tmp_path) for t in (slow, fast)]
    across = [all_to_all_us(subset(t, [0, 4]), tmp_path) for t in (slow, fast)]
    assert inside[0] == inside[1]
    assert across[0] / across[1] == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Tiers 3", "Tiers 2", "Tiers 2, the file has 3"),
        ("Podsize 4", "Podsize 3", "8 hosts in pods of 3"),
        ("Radix_Up 2", "Radix_Upp 2", "file:7: unknown key 'Radix_Upp', did you mean"),
        ("Downlink_speed_Gbps 100", "", "Tier 2: downlink_speed_gbps missing"),
        ("Nodes 8", "Nodes many", "file:1: got 'Nodes many'"),
        ("Nodes 8", "Nodes 800000004", "up to 16384 hosts"),
    ],
)
def test_htsim_damage(old: str, new: str, message: str) -> None:
    assert message in refusal(read_htsim_topo, HTSIM.replace(old, new, 1))


def test_leaves_by_request(tmp_path: Path) -> None:
    machine = load_topology("ndv2", 4)
    blocked = with_leaves(machine, rails=False, per_leaf=2, oversubscription=2)
    free = with_leaves(machine, rails=False, per_leaf=2, oversubscription=1)
    # Two nodes of one NIC below a leaf: with one cable, both NICs' ways up meet in it.
    for topology, shared in ((blocked, True), (free, False)):
        ways = [set(topology.routes_from(a)[b].links) for a, b in ((0, 16), (8, 24))]
        assert bool(ways[0] & ways[1]) == shared
    rails = with_leaves(load_topology("dgx_a100", 2), rails=True, per_leaf=None, oversubscription=1)
    assert any("8 leaf switches: rail0" in note for note in rails.notes)
    with pytest.raises(InputError, match="has no network between nodes"):
        with_leaves(load_topology("ndv2", 1), rails=True, per_leaf=None, oversubscription=1)
    with pytest.raises(InputError, match="one leaf switch has no uplinks"):
        with_leaves(machine, rails=False, per_leaf=None, oversubscription=2)
