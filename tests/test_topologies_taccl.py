"""TACCL's topology files: graphs, costs in both units, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.rank_graph import rank_graph
from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.topologies.dgx1v import DOUBLE, SINGLE
from explorer.topologies.load import load_topology, read_topology
from explorer.topologies.source import Source
from explorer.topologies.taccl_topology import read_taccl_topology

DATA = Path(__file__).parent / "data" / "topologies"


def read(
    content: dict[str, Any] | str, nodes: int | None = None, *, sized: bool = False
) -> Topology:
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    return read_taccl_topology(Source("t.json", text), nodes, sized)


def refusal(content: dict[str, Any] | str, nodes: int | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(content, nodes)
    return str(caught.value)


def costs(topology: Topology, kind: str) -> dict[str, tuple[float, float]]:
    return {
        name: (link.alpha_us, link.beta_us_per_mib)
        for name, link in zip(topology.link_names, topology.links, strict=True)
        if link.kind == kind
    }


def ndv2(**changes: Any) -> dict[str, Any]:
    content = json.loads((DATA / "topo-ndv2-1MB.json").read_text())
    return {key: value for key, value in (content | changes).items() if value is not None}


def test_ndv2_profile_units() -> None:
    topology = read_topology(DATA / "topo-ndv2-1MB.json", 2, sized=False)
    assert (topology.time_unit, topology.nics_per_node, topology.ranks) == ("profile", 1, 16)
    links = costs(topology, "nvlink")
    expected = {}
    for node in (0, 8):
        for cost, pairs in ((23.0, DOUBLE), (46.0, SINGLE)):
            for a, b in pairs:
                expected[f"gpu{node + a}->gpu{node + b}"] = (0.0, cost)
                expected[f"gpu{node + b}->gpu{node + a}"] = (0.0, cost)
    assert links == expected
    route = topology.routes_from(3)[9]
    names = [topology.link_names[i] for i in route.links]
    assert names[0] == "gpu3->n0/nic0.tx"
    assert (route.alpha_us, route.beta_us_per_mib) == (2.6, 105.0)
    # Pairs without an NVLink do not turn in the NIC.
    assert set(topology.routes_from(0)) == {1, 2, 3, 4, *range(8, 16)}
    assert any("remote_invbw is 107, but" in note and "107.6" in note for note in topology.notes)


def test_one_node_leaves_the_nics_out() -> None:
    assert {d.kind for d in read_topology(DATA / "topo-ndv2-1MB.json", sized=False).devices} == {
        "gpu"
    }


@pytest.mark.parametrize("size", ["1KB", "32KB", "1MB"])
def test_sizes_of_a_profile_agree_once_scaled(size: str) -> None:
    topology = read_topology(DATA / f"topo-ndv2-{size}.json", 2)
    assert topology.time_unit == "us"
    assert topology.nics_per_node == 0
    nvlink = costs(topology, "nvlink")
    assert nvlink["gpu0->gpu1"] == (0.3, pytest.approx(23, rel=3e-3))
    assert nvlink["gpu0->gpu2"] == (0.3, pytest.approx(46, rel=3e-3))
    route = topology.routes_from(0)[9]
    assert route.alpha_us == pytest.approx(2.6)
    assert route.beta_us_per_mib == pytest.approx(105, rel=1e-3)


def test_dgx2_is_a_switch_with_ports() -> None:
    topology = read_topology(DATA / "topo-dgx2-1MB.json", 2, sized=False)
    assert (topology.ranks, topology.nics_per_node) == (32, 8)
    route = topology.routes_from(0)[15]
    assert [topology.link_names[i] for i in route.links] == [
        "gpu0->n0/nvswitch0",
        "n0/nvswitch0->gpu15",
    ]
    assert (route.alpha_us, route.beta_us_per_mib) == (0.0, 8.0)
    # GPU i uses NIC i * 8 // 16.
    first = [topology.link_names[topology.routes_from(i)[31].links[0]] for i in range(16)]
    assert first == [f"gpu{i}->n0/nic{i // 2}.tx" for i in range(16)]
    sized = read_topology(DATA / "topo-dgx2-1KB.json", 1)
    assert sized.routes_from(0)[1].alpha_us == pytest.approx(0.3)
    assert sized.routes_from(0)[1].beta_us_per_mib == pytest.approx(10.24)


def test_mi300x_is_a_full_mesh() -> None:
    topology = read_topology(DATA / "topo-mi300x.json", sized=False)
    assert len(costs(topology, "nvlink")) == 56
    assert len(topology.routes_from(0)[7].links) == 1


def test_torus_matrices_and_grid_words_agree() -> None:
    matrices = read_topology(DATA / "topo-torus2d-4x4.json", sized=False)
    builder = load_topology("torus:4x4")
    assert set(matrices.link_names) == set(builder.link_names)
    words = read(
        {
            "name": "Mesh_any", "gpus_per_node": 16, "alpha": 10,
            "betas": [], "invbws": [], "dims": [4, 4], "wrap": [True, True],
        }
    )  # fmt: skip
    assert sorted(costs(words, "nvlink").items()) == sorted(costs(matrices, "nvlink").items())
    half = read(
        {"name": "m", "gpus_per_node": 6, "alpha": 1, "dims": [2, 3], "wrap": [False, True]}
    )
    assert set(half.link_names) == set(load_topology("torus:2x3").link_names)
    cube = read_topology(DATA / "topo-mesh-any-3x3x3.json", sized=False)
    assert set(cube.link_names) == set(load_topology("torus:3x3x3").link_names)


def test_measured_pcie_nodes() -> None:
    # Four GPUs on PCIe; the diagonal (alpha) is no link.
    topology = read_topology(DATA / "akmu-A-GPU4-1MB.json", 2)
    assert len(costs(topology, "nvlink")) == 24
    assert costs(topology, "nvlink")["gpu0->gpu1"] == (108.82, 89.7)
    single = read_topology(DATA / "akmu-B-GPU1-1MB.json", 3)
    assert (single.ranks, single.nodes) == (3, 3)
    assert rank_graph(single).edges == 6
    assert read_topology(DATA / "akmu-B-GPU1-1MB.json").ranks == 1


def asymmetric(**more: Any) -> dict[str, Any]:
    """Ring of four in which row 1, column 0 of the matrices is four times the others."""
    ring = [[int((a - b) % 4 in (1, 3)) for b in range(4)] for a in range(4)]
    betas = [[23.0 * on for on in row] for row in ring]
    betas[1][0] = 92.0
    invbws = [[beta + 0.7 if beta else 0 for beta in row] for row in betas]
    content = {
        "name": "ring4", "gpus_per_node": 4, "alpha": 0.7,
        "betas": betas, "invbws": invbws, "links": ring,
    }  # fmt: skip
    return content | more


def test_rows_are_destinations_as_in_taccl() -> None:
    # taccl/topologies/topology.py: get_invbw(src, dst) returns invbws[dst][src].
    topology = read(asymmetric())
    links = costs(topology, "nvlink")
    assert links["gpu0->gpu1"] == (0.7, 92.0)
    assert links["gpu1->gpu0"] == (0.7, 23.0)
    assert any("gpu0->gpu1 is the slowest link (92.7)" in note for note in topology.notes)
    turned = read(asymmetric(matrix_order="src_dst"))
    assert costs(turned, "nvlink")["gpu1->gpu0"] == (0.7, 92.0)
    assert any('"matrix_order": "dst_src"' in note for note in turned.notes)
    assert not any("symmetric" in n for n in read_topology(DATA / "topo-torus2d-4x4.json").notes)


@given(st.integers(2, 6), st.integers(0, 1 << 30))
def test_matrices_transpose_to_links(gpus: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = (rng.random((gpus, gpus)) < 0.6).astype(int)
    np.fill_diagonal(links, 0)
    invbws = np.where(links, rng.integers(1, 99, (gpus, gpus)), 0)
    content = {
        "name": "x", "gpus_per_node": gpus, "alpha": 0,
        "links": links.tolist(), "betas": invbws.tolist(), "invbws": invbws.tolist(),
    }  # fmt: skip
    found = np.zeros((gpus, gpus))
    topology = read(content)
    for link in topology.links:
        found[link.dst, link.src] = link.beta_us_per_mib
    assert found.tolist() == invbws.tolist()


def test_mixed_schemas_are_refused_with_both_messages() -> None:
    content = asymmetric(
        node_betas_list=[23, 46], remote_alpha=2.6, remote_beta=105, remote_invbw=107
    )
    first, second = refusal(content).splitlines()
    assert "the list schema (node_betas_list) and the matrix schema" in first
    assert first.startswith("t.json:")
    assert "remote_invbw is 107, but remote_alpha + remote_beta = 107.6" in second


def test_nodes_need_the_way_between_them() -> None:
    alone = ndv2(remote_alpha=None, remote_beta=None, remote_invbw=None, nics_per_node=None)
    assert read(alone).ranks == 8
    assert "--nodes 2: the file says nothing of the way between nodes" in refusal(alone, 2)
    assert "expected nics_per_node" in refusal(ndv2(nics_per_node=None), 2)
    assert "got 0, expected 1 to" in refusal(ndv2(), 0)


@pytest.mark.parametrize(
    ("changes", "sized", "expected"),
    [
        ({"name": "NDv2"}, False, None),
        ({"name": "NDv2"}, True, "the chunk size of profile 'NDv2' is not known"),
        ({"name": "NDv2_64KB"}, True, "the factor on its times of profile 'NDv2_64KB' is not"),
        ({"name": "NDv2_64KB", "scale": 10}, True, None),
        ({"name": "NDv2", "chunk_size": "1MB"}, True, None),
        ({"name": "NDv2", "chunk_size": "1M"}, True, "chunk_size: got '1M', expected text such as"),
        ({"scale": 0}, True, "scale: got 0, expected a number above 0"),
    ],
)
def test_sizes_need_the_chunk_size(
    changes: dict[str, Any], sized: bool, expected: str | None
) -> None:
    if expected is None:
        assert read(ndv2(**changes), sized=sized).ranks == 8
        return
    with pytest.raises(InputError) as caught:
        read(ndv2(**changes), sized=sized)
    assert expected in str(caught.value)


def test_the_file_name_may_say_the_chunk_size() -> None:
    source = Source("topo-ndv2-32KB.json", json.dumps(ndv2(name="NDv2")))
    topology = read_taccl_topology(source, None, True)
    assert topology.links[0].beta_us_per_mib == pytest.approx(23 / 10 * 32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ndv2(remote_invbws=107), "remote_invbws: unknown key, did you mean 'remote_invbw'?"),
        (ndv2(remote_beta=None), "remote_alpha: is given without remote_beta"),
        (ndv2(gpus_per_node=0), "gpus_per_node: got 0, expected a whole number 1 to"),
        (ndv2(gpus_per_node=True), "gpus_per_node: got True"),
        (ndv2(gpus_per_node=7), "is the DGX-1V mesh: expected 8 GPUs and two values"),
        (ndv2(node_betas_list=[23], node_invbws_list=[23]), "got 8 GPUs and 1 values"),
        (ndv2(node_betas_list=[23]), "node_invbws_list: has 2 values, node_betas_list has 1"),
        (ndv2(node_betas_list=[0, 46]), "got 0, expected a number above 0 (leave out dead links)"),
        (ndv2(node_betas_list="23"), "node_betas_list: got '23', expected a list of costs"),
        (ndv2(node_betas_list=None), "node_betas_list missing"),
        (ndv2(node_betas_list=None, node_invbws_list=None), "no links: expected node_betas_list"),
        (ndv2(name="mine"), "2 link classes, but only NDv2 and DGX1 say which pair has which"),
        (ndv2(alpha=-1), "alpha: got -1, expected a number >= 0"),
        (ndv2(alpha=float("nan")), "alpha: got nan"),
        (ndv2(alpha=None), "alpha: got None"),
        (ndv2(name=3), "name: got 3, expected text"),
        (asymmetric(links=[[0, 1], [1, 0]]), "links: expected 4 rows of 4 numbers"),
        (asymmetric(links=[[0, 2, 0, 1]] * 4), "links: expected 0 or 1 everywhere"),
        (asymmetric(links=[[0, 1, 1, 1]] * 4), "[0][2] of link 2->0: beta 0, invbw 0, expected"),
        (asymmetric(betas=None), "betas: expected 4 rows"),
        (asymmetric(matrix_order="rows"), "matrix_order: got 'rows', expected one of dst_src"),
        (asymmetric(dims=[4], wrap=[False]), "the links are not those of dims and wrap"),
        (asymmetric(dims=[2], wrap=[False]), "dims: [2] are 2 GPUs, gpus_per_node is 4"),
        (asymmetric(dims=[0], wrap=[False]), "dims: got [0], expected extents"),
        (asymmetric(dims=[4], wrap=[1]), "wrap: got [1], expected true or false for each"),
        ('{"gpus_per_node": 1, "gpus_per_node": 2}', "t.json:1: gpus_per_node is given twice"),
        ('{"gpus_per_node": 1,\n}', "t.json:2: not valid JSON"),
        ('["gpus_per_node"]', "expected one JSON object"),
        ("[" * 100_000, "t.json"),
    ],
)
def test_bad_profiles(content: dict[str, Any] | str, message: str) -> None:
    assert message in refusal(content), refusal(content)


def test_problems_name_lines() -> None:
    text = json.dumps(ndv2(alpha=-1, remote_beta=0), indent=1)
    lines = text.splitlines()
    wanted = [
        next(i for i, line in enumerate(lines, 1) if line.strip().startswith(f'"{key}"'))
        for key in ("alpha", "remote_beta")
    ]
    assert [int(line.split(":")[1]) for line in refusal(text).splitlines()[:2]] == wanted
