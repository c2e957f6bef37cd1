"""Small formats: ns-3 and SimAI text, ASTRA-sim, TE-CCL, rocm-smi, measured matrices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.evaluate.simulate_sizes import simulate_sizes
from explorer.topologies.astrasim_network import looks_like_astrasim, read_astrasim_network
from explorer.topologies.combine import combine
from explorer.topologies.link_text import looks_like_link_text, read_link_text
from explorer.topologies.load import load_topology
from explorer.topologies.measured_matrix import looks_like_matrix, read_matrix_topology
from explorer.topologies.rocm_smi import looks_like_rocm_smi, read_rocm_smi
from explorer.topologies.source import Source
from explorer.topologies.teccl_input import looks_like_teccl, read_teccl_input
from explorer.topologies.topology_write import topology_yaml
from explorer.units import gbs_of_beta


def rates(topology: Topology) -> dict[str, float]:
    return {
        name: round(gbs_of_beta(link.beta_us_per_mib), 6)
        for name, link in zip(topology.link_names, topology.links, strict=True)
    }


def text(content: str, nodes: int | None = None) -> Topology:
    source = Source("topo.txt", content)
    assert looks_like_link_text(source)
    return read_link_text(source, nodes, True)


def refusal(read, content: str, name: str = "file") -> str:
    with pytest.raises(InputError) as caught:
        read(Source(name, content), None, True)
    return str(caught.value)


SIX = """\
7 6 1 0 14 A800
6
0 6 202Gbps 0.0017ms 0
1 6 202Gbps 0.0017ms 0
2 6 1480Gbps 0.0024ms 0
3 6 1480Gbps 0.0024ms 0
4 0 147Gbps 0.0022ms 0
4 1 146Gbps 0.0022ms 0
4 2 147Gbps 0.0022ms 0
4 3 147Gbps 0.0024ms 0
4 5 1480Gbps 0.00253ms 0
5 0 148Gbps 0.0022ms 0
5 1 148Gbps 0.0022ms 0
5 2 148Gbps 0.0022ms 0
5 3 147Gbps 0.0022ms 0
5 4 1472Gbps 0.00252ms 0
"""


def test_measured_pairs_keep_their_numbers() -> None:
    # C03: every line with its own rate; 4 5 and 5 4 are the two directions of one link.
    topology = text(SIX)
    assert (topology.ranks, topology.nodes) == (6, 1)
    found = rates(topology)
    assert (found["gpu4->gpu5"], found["gpu5->gpu4"]) == (185.0, 184.0)
    assert found["gpu4->gpu1"] == 18.25 == found["gpu1->gpu4"]
    assert len(found) == 26
    for line in SIX.splitlines()[2:]:
        a, b, rate, latency, _ = line.split()
        name = "->".join("nvswitch6" if end == "6" else f"gpu{end}" for end in (a, b))
        link = topology.links[topology.link_names.index(name)]
        assert found[name] == pytest.approx(float(rate.removesuffix("Gbps")) / 8)
        assert link.alpha_us == pytest.approx(float(latency.removesuffix("ms")) * 1e3)
    # 0 and 1 have no link; they meet at the switch.
    assert topology.routes_from(0)[1].alpha_us == pytest.approx(3.4)


def test_header_and_body_disagree() -> None:
    # C43: more links than promised are all used and said, fewer are refused with both numbers.
    more = text(SIX.replace("1 0 14", "1 0 10"))
    assert more.links == text(SIX).links
    assert any("promises 10 links, the file has 14; all 14 are used" in n for n in more.notes)
    assert "14 links, line 1 promises 20; the file is cut" in refusal(
        read_link_text, SIX.replace("1 0 14", "1 0 20")
    )


MESH = "8 0 16\n\n" + "".join(
    f"{a} {b} {200 * lanes}Gbps 0.0007ms 0\n"
    for lanes, pairs in (
        (2, ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))),
        (1, ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))),
    )
    for a, b in pairs
)


def test_mesh_without_switches_relays_and_pays() -> None:
    # C56
    topology = text(MESH)
    assert (topology.ranks, topology.nodes, len(topology.links)) == (8, 1, 32)
    found = rates(topology)
    for gpu in range(8):
        own = sum(rate for name, rate in found.items() if name.startswith(f"gpu{gpu}->"))
        assert own == 6 * 25.0
    assert 5 not in topology.routes_from(0)
    relayed = topology.route(0, 5)
    assert relayed is not None
    assert relayed.relays
    assert relayed.alpha_us == pytest.approx(0.7 * len(relayed.links))


def test_parallel_lines_add_up() -> None:
    # C33, text form: the last line does not overwrite the first.
    direct = text("2 0 2\n0 1 100Gbps 1us 0\n0 1 100Gbps 1us 0\n")
    assert rates(direct) == {"gpu0->gpu1": 25.0, "gpu1->gpu0": 25.0}
    between = "6 2 6\n4 5\n0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 5 100Gbps 1us 0\n"
    between += "3 5 100Gbps 1us 0\n4 5 100Gbps 1us 0\n4 5 100Gbps 1us 0\n"
    pair = text(between)
    ways = [set(pair.routes_from(a)[a + 2].links) for a in (0, 1)]
    assert not ways[0] & ways[1]
    assert pair.routes_from(0)[2].alpha_us == pytest.approx(4.0)


def test_fat_tree_carries_all_pairs_at_once(tmp_path: Path) -> None:
    lines: list[str] = []
    switches = range(8, 18)
    lines += [f"{host} {8 + host // 2} 100Gbps 1us 0" for host in range(8)]
    for edge in range(4):
        pod = edge // 2
        lines += [f"{8 + edge} {12 + 2 * pod + k} 100Gbps 1us 0" for k in range(2)]
    for agg in range(4):
        lines += [f"{12 + agg} {16 + agg % 2} 100Gbps 1us 0"] * 2
    head = f"18 10 {len(lines)}\n{' '.join(map(str, switches))}\n"
    topology = text(head + "\n".join(lines))
    path = tmp_path / "tree.yaml"
    path.write_text(topology_yaml(topology))
    rows, _ = simulate_sizes("ring", str(path), None, "allgather", [1 << 30])
    # Seven steps of an eighth over 12.5 GB/s, each some us of latency: nothing blocks.
    assert rows[0]["time_us"] == pytest.approx(7 * (1 << 27) / 12.5e3, rel=1e-2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0 6 202Gbps", "0 9 202Gbps", "file:3: node '9', expected 0 to 6"),
        ("0 6 202Gbps", "0 6 202", "file:3: got '202', expected a rate with its unit"),
        ("0 6 202Gbps", "0 6 0Gbps", "file:3: 0Gbps is 0 GB/s, which no link carries"),
        ("0 6 202Gbps", "0 0 202Gbps", "file:3: a link from 0 to itself"),
        ("0.0017ms 0\n1", "0.0017 0\n1", "file:3: got '0.0017', expected a time with its unit"),
        ("7 6 1", "7 6 9", "leave -2 GPUs"),
        ("A800\n6\n", "A800\n7\n", "file:2: switch id '7', expected numbers below 7"),
        ("A800\n6\n", "A800\n", "0 different switch ids, line 1 promises 1"),
        ("7 6 1 0 14 A800", "seven", "file:1: got 'seven', expected"),
    ],
)
def test_text_damage(old: str, new: str, message: str) -> None:
    assert message in refusal(read_link_text, SIX.replace(old, new, 1))


def astra(content: str) -> Topology:
    source = Source("net.yml", content)
    assert looks_like_astrasim(source)
    return read_astrasim_network(source, None, True)


def test_astrasim_dimensions() -> None:
    ring = astra(
        "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]  # GB/s\nlatency: [ 500 ]\n"
    )
    # Its GB are 2^30 bytes: the same machine as ring:8,50GiB/s,0.5us.
    same = load_topology("ring:8,50GiB/s,0.5us")
    assert rates(ring) == rates(same)
    assert {link.alpha_us for link in ring.links} == {0.5}
    grid = astra(
        "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [100, 50]\nlatency: [100, 500]"
    )
    assert grid.ranks == 8
    # The first dimension counts fastest: 0-3 are a ring, 0 and 4 share a switch.
    assert grid.routes_from(0)[4].alpha_us == pytest.approx(1.0)
    assert round(gbs_of_beta(grid.routes_from(0)[1].beta_us_per_mib), 3) == 107.374
    old = {
        "topologies-per-dim": ["FullyConnected"],
        "units-count": [3],
        "link-bandwidth": [25],
        "link-latency": [700],
    }
    assert len(astra(json.dumps(old)).links) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"logical-dims": ["8","2"]}', "logical topology (8 x 2): how ranks are numbered"),
        ("topology: [Rings]\nnpus_count: [8]\nbandwidth: [5]\nlatency: [5]", "did you mean 'Ring'"),
        (
            "topology: [Ring]\nnpus_count: [8, 2]\nbandwidth: [5]\nlatency: [5]",
            "file:2: npus_count",
        ),
        ("topology: [Ring]\nnpus_count: [8]\nbandwidth: [.nan]\nlatency: [5]", "file:3: bandwidth"),
        ("topology: [Ring]\nnpus_count: [8]\nlatency: [5]", "bandwidth missing"),
        ("topology: [Ring]\nnpus_count: [80000]\nbandwidth: [5]\nlatency: [5]", "4096 ranks"),
        (
            "topology: &a [Ring]\nnpus_count: *a\nbandwidth: [5]\nlatency: [5]",
            "anchors and aliases",
        ),
        ("npus_count: " + "[" * 500, "nested deeper than 8 levels"),
    ],
)
def test_astrasim_damage(content: str, message: str) -> None:
    assert message in refusal(read_astrasim_network, content)


def teccl(params: dict[str, object], nodes: int | None = None) -> Topology:
    source = Source("in.json", json.dumps({"TopologyParams": params}))
    assert looks_like_teccl(source)
    return read_teccl_input(source, nodes, True)


def test_teccl_graphs_are_those_of_the_shipped_files() -> None:
    for params, shipped in (
        ({"name": "NDv2", "chassis": 1}, "teccl_ndv2"),
        ({"name": "NDv2", "chassis": 2}, "teccl_ndv2_n2"),
        ({"name": "DGX2", "chassis": 2}, "teccl_dgx2_n2"),
    ):
        ours, theirs = teccl({**params, "chunk_size": 0.25}), load_topology(shipped)
        assert rates(ours) == rates(theirs)
        alphas = [
            {name: k.alpha_us for name, k in zip(t.link_names, t.links, strict=True)}
            for t in (ours, theirs)
        ]
        assert alphas[0] == alphas[1]
    amd = teccl({"name": "AMD", "chassis": 1})
    assert (amd.ranks, rates(amd)["gpu0->gpu1"]) == (16, 200.0)
    assert teccl({"name": "AMD", "chassis": 1}, 2).nodes == 2
    assert len(teccl({"name": "Mesh", "side_length": 3}).links) == 2 * (8 + 6)


def test_teccl_damage() -> None:
    def message(params: object) -> str:
        return refusal(read_teccl_input, json.dumps({"TopologyParams": params}))

    assert "did you mean 'NDv2'" in message({"name": "NDv3"})
    assert "NDv2 with 4 chassis; this reader knows 1 or 2" in message(
        {"name": "NDv2", "chassis": 4}
    )
    assert "chassis 'x', expected 1 to 64" in message({"name": "AMD", "chassis": "x"})
    assert "got 9999, expected 2 to 64" in message({"name": "Mesh", "side_length": 9999})
    assert "TopologyParams: expected an object" in message(3)


def rocm(kinds: list[list[str]], hops: list[list[str]] | None = None, numa: str = "") -> str:
    def table(title: str, rows: list[list[str]]) -> str:
        names = [f"GPU{i}" for i in range(len(rows))]
        lines = ["       " + "  ".join(names)]
        lines += [f"{name}   " + "   ".join(row) for name, row in zip(names, rows, strict=True)]
        return f"===== {title} between two GPUs =====\n" + "\n".join(lines) + "\n\n"

    head = "===== ROCm System Management Interface =====\nWARNING: low-power state\n"
    return head + (table("Hops", hops) if hops else "") + table("Link Type", kinds) + numa


KINDS = [["0", "XGMI", "XGMI"], ["XGMI", "0", "PCIE"], ["XGMI", "PCIE", "0"]]


def test_rocm_smi() -> None:
    hops = [["0", "1", "2"], ["1", "0", "2"], ["2", "2", "0"]]
    numa = "".join(f"GPU[{i}]   : (Topology) Numa Node: {i // 2}\n" for i in range(3))
    source = Source("topo.txt", rocm(KINDS, hops, numa))
    assert looks_like_rocm_smi(source)
    topology = read_rocm_smi(source, None, True)
    found = rates(topology)
    assert found["gpu0->gpu1"] == 50.0
    # XGMI in two hops is no link; PCIe pairs meet over their CPUs.
    assert "gpu0->gpu2" not in found
    assert "cpu0->cpu1" in found
    assert round(gbs_of_beta(topology.routes_from(1)[2].beta_us_per_mib)) == 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (rocm(KINDS).replace("PCIE", "XXXX", 1), "row GPU1: got 'XXXX', expected XGMI or PCIE"),
        (rocm(KINDS).replace("PCIE", "XGMI", 1), "says XGMI for the way back"),
        (rocm(KINDS)[:-25], "rows, the paste is cut here"),
        ("== Link Type between two GPUs ==\n", "Link Type between two GPUs is missing"),
        (
            "== Weight between two GPUs ==\nERROR: GPU[1] : Cannot read Link Weight: Not supported",
            "file:2: rocm-smi failed here",
        ),
    ],
)
def test_rocm_smi_damage(content: str, message: str) -> None:
    assert message in refusal(read_rocm_smi, content)


BANDWIDTH = "MB/s,A_n0,A_n1,B_n0,B_n1\nA_n0,9,100,44000,43000\nA_n1,100,9,40000,41000\n"
BANDWIDTH += "B_n0,44000,39000,9,90\nB_n1,43000,38000,95,9\n"


def test_measured_matrices(tmp_path: Path) -> None:
    source = Source("bw.csv", BANDWIDTH)
    assert looks_like_matrix(source)
    topology = read_matrix_topology(source, None, True)
    assert (topology.ranks, topology.nodes) == (4, 2)
    for a, b, gbs in ((0, 2, 44.0), (2, 1, 39.0), (3, 2, 0.095), (0, 1, 0.1)):
        route = topology.routes_from(a)[b]
        assert gbs_of_beta(route.beta_us_per_mib) == pytest.approx(gbs)
    # Two sends of a rank share its port.
    assert set(topology.routes_from(0)[2].links) & set(topology.routes_from(0)[3].links)
    files = tmp_path / "bw.csv", tmp_path / "lat.csv"
    files[0].write_text(BANDWIDTH)
    cells = "A_n0,1,2,3.5,2\nA_n1,2,1,2,2\nB_n0,2,2,1,2\nB_n1,2,2,2,1\n"
    files[1].write_text("us,A_n0,A_n1,B_n0,B_n1\n" + cells)
    both = combine([str(f) for f in files])
    assert both.routes_from(0)[2].alpha_us == 3.5
    with pytest.raises(InputError, match="these are latencies only"):
        combine([str(files[1])])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BANDWIDTH.replace("MB/s", "x"), "nothing says the unit"),
        (BANDWIDTH.replace("44000", "nan", 1), "file:2: row A_n0, column B_n0: got 'nan'"),
        (BANDWIDTH.replace("44000", "0", 1), "got '0', expected a number above 0"),
        (BANDWIDTH.replace("44000,", "", 1), "file:2: row A_n0: 3 of 4 cells"),
        (BANDWIDTH.rsplit("\n", 2)[0], "3 rows, the header names 4"),
    ],
)
def test_matrix_damage(content: str, message: str) -> None:
    assert message in refusal(read_matrix_topology, content)
