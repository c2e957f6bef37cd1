"""Sketches: shipped ones, TACCL's JSON, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer.core.nic_lanes import nic_lanes
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.sketch import Sketch, SwitchGroup, apply_sketch
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.sketches.registry import load_sketch, sketch_names

DATA = Path(__file__).parent / "data" / "sketches"
MESH = [
    *((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 5), (2, 3)),
    *((2, 6), (3, 7), (4, 5), (4, 6), (4, 7), (5, 6), (5, 7), (6, 7)),
]


def machine(nodes: int, per_node: int, mesh: list[tuple[int, int]] | None = None) -> Topology:
    """GPUs on a mesh (or one switch) per node, all of a node behind one NIC on one fabric."""
    devices = [
        Device(f"gpu{n * per_node + g}", "gpu", n) for n in range(nodes) for g in range(per_node)
    ]
    links = []

    def both(a: int, b: int, alpha: float, beta: float) -> None:
        links.append(Link(a, b, "generic", alpha, beta))
        links.append(Link(b, a, "generic", alpha, beta))

    for node in range(nodes):
        first = node * per_node
        if mesh is None:
            devices.append(Device(f"n{node}/nvswitch", "nvswitch", node))
            for g in range(per_node):
                both(first + g, len(devices) - 1, 0.1, 8)
        for a, b in mesh or []:
            both(first + a, first + b, 0.1, 23)
        devices.append(Device(f"n{node}/nic", "nic", node))
        for g in range(per_node):
            both(first + g, len(devices) - 1, 0.1, 90)
    devices.append(Device("fabric", "switch", -1))
    for i, device in enumerate(devices):
        if device.kind == "nic":
            both(i, len(devices) - 1, 1.0, 105)
    return Topology("test", tuple(devices), tuple(links))


def nodes_and_gpus(name: str) -> tuple[int, int]:
    if "dgx2" in name:
        per_node = 16
    elif "torus" in name:
        per_node = 27
    elif "gpu4" in name or "dumb" in name:
        per_node = 4
    elif "gpu2" in name:
        per_node = 2
    else:
        per_node = 8
    return json.loads((DATA / name).read_text(encoding="utf-8"))["nnodes"], per_node


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.glob("*.json")))
def test_published_sketch_is_read(name: str) -> None:
    nodes, per_node = nodes_and_gpus(name)
    topology = machine(nodes, per_node)
    if "invalid" in name:
        with pytest.raises(InputError, match=r'gpus_to_sender_rev_map\."8"'):
            load_sketch(str(DATA / name), topology)
        return
    sketch = load_sketch(str(DATA / name), topology)
    assert sketch.nodes == nodes
    graph = apply_sketch(rank_graph(topology), sketch)
    raw = json.loads((DATA / name).read_text(encoding="utf-8"))
    inside = nodes * per_node * (per_node - 1)
    conn = raw.get("internode_sketch", {}).get("internode_conn", {})
    words = {"fully-connected": per_node**2, "direct-map": per_node}
    pairs = words[conn] if isinstance(conn, str) else sum(map(len, conn.values()))
    assert graph.edges == inside + nodes * (nodes - 1) * pairs
    assert sketch.chunks_per_rank == raw["hyperparameters"]["input_chunkup"]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [f"{m}-sk-{k}" for m in ("ndv2", "dgx2") for k in (1, 2, 3)])
def test_shipped_sketches_serve_any_node_count(name: str, nodes: int) -> None:
    assert name in sketch_names()
    dgx2 = name.startswith("dgx2")
    topology = machine(nodes, 16 if dgx2 else 8, None if dgx2 else MESH)
    sketch = load_sketch(name, topology)
    graph = apply_sketch(rank_graph(topology), sketch)
    per_pair = {
        **{"ndv2-sk-1": 1, "ndv2-sk-2": 64, "ndv2-sk-3": 8},
        **{"dgx2-sk-1": 8, "dgx2-sk-2": 16, "dgx2-sk-3": 32},
    }[name]
    inside = nodes * (16 * 15 if dgx2 else 32)
    assert graph.edges == inside + nodes * (nodes - 1) * per_pair
    assert all(
        span % offset == 0 and topology.ranks % span == 0 for offset, span in sketch.symmetry
    )


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("dgx2-sk-1", "taccl_sk1-dgx2-n2"),
        ("ndv2-sk-1", "taccl_sk1-ndv2-n2"),
        ("ndv2-sk-2", "taccl_sk2-ndv2-n2"),
        ("ndv2-sk-3", "taccl_sk3-ndv2-n2"),
    ],
)
def test_shipped_sketch_equals_the_published_one(name: str, published: str) -> None:
    dgx2 = name.startswith("dgx2")
    topology = machine(2, 16 if dgx2 else 8, None if dgx2 else MESH)
    ours = load_sketch(name, topology)
    theirs = load_sketch(str(DATA / f"{published}.json"), topology)
    for field in ("senders", "relay_of", "symmetry", "enforce_ordering", "chunks_per_rank"):
        assert getattr(ours, field) == getattr(theirs, field), field
    graph = rank_graph(topology) if dgx2 else _without_nic_ways(topology)
    edges = [apply_sketch(graph, sketch) for sketch in (ours, theirs)]
    assert (edges[0].src.tolist(), edges[0].dst.tolist()) == (
        edges[1].src.tolist(),
        edges[1].dst.tolist(),
    )


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_round_robin_nodes_talk_to_the_next_one_only(tmp_path: Path, nodes: int) -> None:
    topology = machine(nodes, 4)
    yaml = load_sketch(
        write(tmp_path, "senders: {0: [1], 2: [3]}\nmulti_node: round-robin", "k.yaml"), topology
    )
    text = """{"nnodes": %d, "internode_sketch": {"strategy": "round-robin",
        "internode_conn": {"0": [1], "2": [3]}}}"""
    taccl = load_sketch(write(tmp_path, text % nodes), topology)
    for sketch in (yaml, taccl):
        graph = apply_sketch(rank_graph(topology), sketch)
        pairs = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
        crossing = {(a, b) for a, b in pairs if a // 4 != b // 4}
        wanted = {
            (4 * k + a, (4 * k + 4) % (4 * nodes) + a + 1) for k in range(nodes) for a in (0, 2)
        }
        assert crossing == wanted


@pytest.mark.parametrize(
    ("name", "nodes", "lanes", "factor"),
    [
        ("taccl_sk2-ndv2-n2", 2, 64, 64),
        ("taccl_sk3-ndv2-n2", 2, 8, 8),
        ("taccl_sk1-ndv2-n2", 2, 0, 1),
    ],
)
def test_links_beyond_the_nics_get_slower_lanes(
    name: str, nodes: int, lanes: int, factor: int
) -> None:
    plain = machine(nodes, 8, MESH)
    profile = replace(plain, time_unit="profile", nics_per_node=1)
    sketch = load_sketch(str(DATA / f"{name}.json"), profile)
    laned = nic_lanes(profile, sketch)
    assert (laned is profile) == (not lanes)
    graph = apply_sketch(rank_graph(laned), sketch)
    inter = graph.inter_node
    assert set(graph.beta_us_per_mib[inter]) == {105.0 * factor}
    route = plain.routes_from(0)[8]
    assert set(graph.alpha_us[inter]) == {route.alpha_us}
    # Both directions: every link of a node pair has a resource of its own on either side.
    assert sum("nics" in resource for resource in graph.resources) == lanes * nodes * 2
    if lanes:  # the NICs are gone, and with them the way over one inside a node
        assert np.count_nonzero(~inter) == nodes * 2 * len(MESH)


def write(tmp_path: Path, text: str, name: str = "k.json") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_c22_disconnected_nodes_are_named_before_any_solver_runs(tmp_path: Path) -> None:
    text = """{"nnodes": 2, "intranode_sketch": {"strategy": "none"}, "internode_sketch":
        {"strategy": "relay", "internode_conn": {}}, "symmetry_offsets": [],
        "hyperparameters": {"input_chunkup": 1}}"""
    topology = machine(2, 8, MESH)
    sketch = load_sketch(write(tmp_path, text), topology)
    with pytest.raises(InputError, match="ranks 0-7 cannot reach 8-15"):
        apply_sketch(rank_graph(topology), sketch)


def test_c26_every_misspelt_word_gets_its_nearest(tmp_path: Path) -> None:
    text = """{"nnodes": 2, "intranode_sketch": {"strategy": "swich"}, "internode_sketch":
        {"strategy": "relay", "internode_conn": "direct_map"}, "symetry_offsets": [[8, 16]],
        "hyperparameters": {"input_chunkup": 1}}"""
    with pytest.raises(InputError) as caught:
        load_sketch(write(tmp_path, text), machine(2, 8))
    texts = [str(p) for p in caught.value.problems]
    assert len(texts) == 3
    for word in ("'switch'", "'direct-map'", "'symmetry_offsets'"):
        assert sum(f"did you mean {word}" in t for t in texts) == 1, word


def test_c58_one_node_needs_no_internode_part(tmp_path: Path) -> None:
    text = """{"nnodes": 1, "intranode_sketch": {"strategy": "none"}, "symmetry_offsets": [],
        "hyperparameters": {"input_chunkup": 1}}"""
    topology = machine(1, 8, MESH)
    assert apply_sketch(rank_graph(topology), load_sketch(write(tmp_path, text), topology)).edges


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ('{"nnodes": 3}', "k.json", "for 3 nodes"),
        ('{"nnodes": 2, "nnodes": 2}', "k.json", "appears twice"),
        ('{"nnodes": 2,}', "k.json", "k.json:1"),
        ("[1, 2]", "k.json", "expected keys and values"),
        ('{"symmetry_offsets": [[3, 8]]}', "k.json", "offset 3 does not divide"),
        ('{"symmetry_offsets": [[8, 24]]}', "k.json", "span 24 does not divide"),
        ("senders: {0: [8]}", "k.yaml", "local rank 8 does not exist"),
        ("senders: {0: [1]}\nsenders: {0: [1]}", "k.yaml", "k.yaml:2"),
        ("chunks: 0", "k.yaml", "at least 1"),
        ("chunk: 1", "k.yaml", "did you mean 'chunks'"),
        ("relay: {0: [0, 1, 2]}", "k.yaml", "no sender for the chunks of local ranks"),
        ("relay: {0: [0, 1], 1: [1, 2, 3, 4, 5, 6, 7]}", "k.yaml", "already leaves the node"),
        ("switches: [{ranks: all, policy: uc-mim}]", "k.yaml", "did you mean 'uc-min'"),
        ("a: &a [*a]", "k.yaml", "k.yaml"),
        ("\x00\x01", "k.yaml", "k.yaml"),
        ("multi_node: round-robbin", "k.yaml", "multi_node: got 'round-robbin', did you mean"),
        ("chunks: 1025", "k.yaml", "chunks: got 1025, expected 1 to 1024"),
        ("time_limit_s: .inf", "k.yaml", "time_limit_s: got inf"),
        ("gap: .nan", "k.yaml", "gap: got nan"),
        ("nodes: 4", "k.yaml", "k.yaml: nodes: the sketch is for 4 nodes, got 2"),
        ("enforce_ordering: maybe", "k.yaml", "enforce_ordering: got 'maybe'"),
        ("senders: {0: []}", "k.yaml", 'senders."0": rank 0 sends to nobody'),
        (
            "senders: {0: [1]}\nrelay: {0: [0, 1, 2, 3], 3: [4, 5, 6, 7]}",
            "k.yaml",
            'relay."3": the chunks of ranks 4, 5, 6, 7 leave through rank 3, which senders',
        ),
        (
            '{"internode_sketch": {"internode_conn": {"1": [0]}, "gpus_to_sender_rev_map":'
            ' {"0": [0, 1, 2, 3, 4, 5, 6, 7]}}}',
            "k.json",
            'internode_sketch.gpus_to_sender_rev_map."0": the chunks of ranks 0, 1, 2, 3, 4',
        ),
        (
            '{"hyperparameters": {"input_chunkup": 1e9}}',
            "k.json",
            "hyperparameters.input_chunkup: got",
        ),
        (
            '{"parameters": {"routing": {"TimeLimit": NaN}}}',
            "k.json",
            "parameters.routing.TimeLimit: got nan",
        ),
        (
            '{"parameters": {"ordering": {}}}',
            "k.json",
            "parameters.ordering: unknown key",
        ),
    ],
)
def test_bad_sketch_is_refused_with_its_place(
    tmp_path: Path, text: str, name: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_sketch(write(tmp_path, text, name), machine(2, 8, MESH))
    assert expected in str(caught.value)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'ndv2-sk-1'"):
        load_sketch("ndv2-sk1", machine(2, 8, MESH))


def test_unequal_nodes_are_refused() -> None:
    devices = (Device("gpu0", "gpu", 0), Device("gpu1", "gpu", 0), Device("gpu2", "gpu", 1))
    links = tuple(Link(a, b, "generic", 1, 1) for a in range(3) for b in range(3) if a != b)
    graph = rank_graph(Topology("odd", devices, links))
    with pytest.raises(InputError, match="equal nodes"):
        apply_sketch(graph, Sketch("any"))


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        # links that the mesh does not have
        (
            "node_links: [[0, 1], [0, 5], [1, 4], [0, 2], [0, 3]]",
            "k.yaml",
            "k.yaml: node_links: no link inside a node joins local ranks 0 and 5, 1 and 4",
        ),
        (
            "switches: [{ranks: [0, 1, 2, 3]}, {ranks: [2, 3, 4]}]",
            "k.yaml",
            "k.yaml: switches[1]: no link or switch inside a node joins local ranks 2 and 4, 3",
        ),
        (
            '{"intranode_sketch": {"strategy": "switch", "switches": [[0, 1, 2, 3, 4, 5, 6, 7]],'
            ' "switch_hyperedge_strategy": ["uc-min"]}, "internode_sketch":'
            ' {"internode_conn": "direct-map"}}',
            "k.json",
            "k.json: intranode_sketch.switches[0]: no link or switch inside a node joins local"
            " ranks 0 and 5, 0 and 6, 0 and 7, 1 and 4 (8 more pairs)",
        ),
        # switches that contradict themselves and each other
        ("switches: [{ranks: [3, 1, 3]}]", "k.yaml", "switches[0]: names local ranks 3 more than"),
        ("switches: [{ranks: [5]}]", "k.yaml", "switches[0]: joins 5, expected two ranks"),
        (
            "switches: [{ranks: [0, 1, 2], policy: uc-min}, {ranks: [1, 2, 3], policy: uc-max}]",
            "k.yaml",
            "switches[1]: policy uc-max for ranks 1, 2, uc-min in switches[0]",
        ),
        # symmetries that other items do not have
        (
            "relay: {0: [0, 1, 2, 3], 4: [4, 5, 6, 7]}\nsymmetry: [[8, all], [2, 8]]",
            "k.yaml",
            "symmetry[1]: takes rank 0, whose chunks leave through 0, to rank 2, whose chunks leave"
            " through 0 and not 2, by relay",
        ),
        (
            "switches: [{ranks: [0, 1, 2, 3], policy: uc-min}]\nnode_links: [[4, 5]]"
            "\nsymmetry: [[4, 8]]",
            "k.yaml",
            "symmetry[0]: takes the switch of ranks 0 and 1 to ranks 4 and 5, which have none of"
            " its policy in switches",
        ),
        # what leaves ranks alone, inside a node or between nodes
        (
            "node_links: [[0, 1]]\nsenders: {0: [1]}",
            "k.yaml",
            "k.yaml: node_links: ranks 0-1, 8-9 cannot reach 2-7, 10-15",
        ),
        (
            '{"internode_sketch": {"internode_conn": {}}}',
            "k.json",
            "internode_sketch.internode_conn: ranks 0-7 cannot reach 8-15",
        ),
        ("senders: {}", "k.yaml", "senders: ranks 0-7 cannot reach 8-15"),
    ],
)
def test_clash_names_the_item_and_the_ranks(
    tmp_path: Path, text: str, name: str, expected: str
) -> None:
    topology = machine(2, 8, MESH)
    path = write(tmp_path, text, name)
    with pytest.raises(InputError) as caught:
        apply_sketch(_without_nic_ways(topology), load_sketch(path, topology))
    assert expected in str(caught.value)


def _without_nic_ways(topology: Topology) -> RankGraph:
    """Direct edges but for those over the NIC of the own node."""
    graph = rank_graph(topology)
    joined = {pair for a, b in MESH for pair in ((a, b), (b, a))}
    keep = [
        bool(inter) or (a % 8, b % 8) in joined
        for a, b, inter in zip(graph.src, graph.dst, graph.inter_node, strict=True)
    ]
    return graph.subgraph(np.array(keep))


def test_sender_without_a_link_to_another_node_is_named() -> None:
    # gpu 3 of each node is on no NIC
    topology = machine(2, 4, [(0, 1), (1, 2), (2, 3)])
    graph = rank_graph(topology)
    graph = graph.subgraph(~graph.inter_node | ((graph.src % 4 != 3) & (graph.dst % 4 != 3)))
    with pytest.raises(InputError, match=r"senders: no link goes between nodes from .* 3 to 0$"):
        apply_sketch(graph, Sketch("k", senders=((0, 1), (3, 0))))


def test_clashes_are_told_all_at_once() -> None:
    sketch = Sketch(
        "k",
        switches=(SwitchGroup((0, 0)), SwitchGroup((1,))),
        relay_of=(0, 0, 2, 2),
        symmetry=((1, 4),),
    )
    with pytest.raises(InputError) as caught:
        apply_sketch(rank_graph(machine(2, 4)), sketch)
    assert len(caught.value.problems) == 4
