"""Machines by name: the routes an engineer expects, their rates, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.rank_graph import rank_graph
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.topologies.dgx1v import DOUBLE, SINGLE
from explorer.topologies.load import load_topology
from explorer.topologies.mi250 import LANES
from explorer.topologies.registry import BUILDERS, EXAMPLE_SHAPES, topology_names
from explorer.units import gbs_of_beta

MACHINES = sorted(name for name, builder in BUILDERS.items() if builder.of_nodes)


def way(topology: Topology, src: int, dst: int) -> tuple[str, float, float]:
    route = topology.routes_from(src)[dst]
    names = [topology.devices[topology.links[i].dst].name for i in route.links]
    gbs = gbs_of_beta(route.beta_us_per_mib)
    return " ".join([f"gpu{src}", *names]), round(gbs, 6), round(route.alpha_us, 9)


@pytest.mark.parametrize(
    ("name", "nodes", "pair", "expected"),
    [
        ("ndv2", 1, (0, 1), ("gpu0 gpu1", 50.0, 0.7)),
        ("ndv2", 1, (0, 2), ("gpu0 gpu2", 25.0, 0.7)),
        ("ndv2", 1, (0, 5), ("gpu0 pcie0 cpu0 cpu1 pcie2 gpu5", 10.0, 1.3)),
        ("ndv2", 2, (0, 9), ("gpu0 n0/pcie0 n0/nic0 fabric n1/nic0 n1/pcie0 gpu9", 12.5, 1.3)),
        (
            "ndv2",
            2,
            (4, 8),
            (
                "gpu4 n0/pcie2 n0/cpu1 n0/cpu0 n0/pcie0 n0/nic0 fabric n1/nic0 n1/pcie0 gpu8",
                10.0,
                1.8,
            ),
        ),
        ("dgx1", 2, (0, 5), ("gpu0 n0/pcie0 n0/cpu0 n0/cpu1 n0/pcie2 gpu5", 10.0, 1.3)),
        ("dgx1", 2, (5, 15), ("gpu5 n0/pcie2 n0/nic2 fabric n1/nic3 n1/pcie3 gpu15", 12.5, 1.3)),
        ("dgx2", 1, (0, 1), ("gpu0 nvswitch0 gpu1", 125.0, 0.7)),
        ("dgx2", 2, (3, 31), ("gpu3 n0/pcie1 n0/nic1 fabric n1/nic7 n1/pcie7 gpu31", 12.5, 2.6)),
        ("dgx_a100", 1, (0, 7), ("gpu0 nvswitch0 gpu7", 300.0, 0.7)),
        (
            "dgx_a100",
            2,
            (3, 12),
            ("gpu3 n0/pcie3 n0/nic3 fabric n1/nic4 n1/pcie4 gpu12", 25.0, 2.6),
        ),
        ("dgx_h100", 2, (3, 11), ("gpu3 n0/pcie3 n0/nic3 rail3 n1/nic3 n1/pcie3 gpu11", 50.0, 2.6)),
        (
            "dgx_h100",
            2,
            (3, 12),
            ("gpu3 n0/pcie3 n0/nic3 rail3 spine rail4 n1/nic4 n1/pcie4 gpu12", 50.0, 3.2),
        ),
        ("mi250", 1, (0, 1), ("gpu0 gpu1", 200.0, 0.7)),
        ("mi250", 2, (0, 17), ("gpu0 n0/pcie0 n0/nic0 fabric n1/nic0 n1/pcie0 gpu17", 25.0, 2.6)),
        ("mi300x", 1, (2, 7), ("gpu2 gpu7", 50.0, 0.3)),
        ("mi300x", 2, (2, 9), ("gpu2 n0/pcie2 n0/nic2 fabric n1/nic1 n1/pcie1 gpu9", 50.0, 2.6)),
    ],
)
def test_routes(
    name: str, nodes: int, pair: tuple[int, int], expected: tuple[str, float, float]
) -> None:
    assert way(load_topology(name, nodes), *pair) == expected


@pytest.mark.parametrize("name", MACHINES)
def test_every_pair_of_two_nodes_talks_and_inside_a_node_stays_there(name: str) -> None:
    topology = load_topology(name, 2)
    for src in range(topology.ranks):
        for dst in range(topology.ranks):
            if src == dst:
                continue
            route = topology.route(src, dst)
            assert route is not None
            nodes = {topology.devices[topology.links[i].dst].node for i in route.links}
            same = topology.node_of[src] == topology.node_of[dst]
            assert (nodes == {topology.node_of[src]}) == same


def test_dgx1v_mesh_has_six_lanes_per_gpu_and_32_directed_links() -> None:
    topology = load_topology("ndv2")
    lanes = np.zeros(8, dtype=int)
    nvlinks = [link for link in topology.links if link.kind == "nvlink"]
    for link in nvlinks:
        lanes[link.src] += link.lanes
    assert lanes.tolist() == [6] * 8
    assert len(nvlinks) == 32 == 2 * len(DOUBLE + SINGLE)


def test_mi250_graph_is_that_of_te_ccl() -> None:
    topology = load_topology("mi250")
    xgmi = [link for link in topology.links if link.kind == "xgmi"]
    assert len(xgmi) == 56
    degree = np.zeros(16, dtype=int)
    for (a, b), lanes in LANES.items():
        degree[[a, b]] += lanes
    # Corners have 4 + 2 + 1 lanes, GCDs in the middle 4 + 1 + 1 + 1.
    assert degree.tolist() == [7] * 16
    route = topology.route(0, 15)
    assert route is not None
    assert route.relays == (1, 9, 13)


def test_nic_cut_is_what_the_nodes_have() -> None:
    for name, gbs in (("ndv2", 12.5), ("dgx1", 50), ("dgx2", 100), ("dgx_a100", 200)):
        topology = load_topology(name, 3)
        fabric = next(i for i, d in enumerate(topology.devices) if d.name == "fabric")
        into = [k for k in topology.links if k.src == fabric and topology.devices[k.dst].node == 1]
        assert sum(gbs_of_beta(k.beta_us_per_mib) for k in into) == pytest.approx(gbs)


def test_names_and_nodes() -> None:
    topology = load_topology("ndv2", 3)
    assert (topology.ranks, topology.nodes, topology.name) == (24, 3, "ndv2")
    assert [d.name for d in topology.devices if d.kind == "gpu"] == [f"gpu{r}" for r in range(24)]
    assert topology.node_of.tolist() == [r // 8 for r in range(24)]
    assert all(topology.notes for topology in (load_topology(name) for name in MACHINES))
    assert "fabric" not in {d.name for d in load_topology("ndv2").devices}


@pytest.mark.parametrize(
    ("spec", "ranks", "links"),
    [
        ("ring:1", 1, 0),
        ("ring:2", 2, 2),
        ("ring:5", 5, 10),
        ("full:6", 6, 30),
        ("switch:7", 7, 14),
        ("mesh:3x4", 12, 34),
        ("mesh:2x2x3", 12, 40),
        ("torus:4x4", 16, 64),
        ("torus:2x3", 6, 18),
        ("hypercube:4", 16, 64),
        ("hypercube:1", 2, 2),
    ],
)
def test_generic_counts(spec: str, ranks: int, links: int) -> None:
    topology = load_topology(spec)
    assert (topology.ranks, len(topology.links), topology.name) == (ranks, links, spec)


def test_generic_links_cost_what_the_shape_says() -> None:
    topology = load_topology("mesh:2x3,50GiB/s,700ns")
    assert {k.alpha_us for k in topology.links} == {0.7}
    (rate,) = {gbs_of_beta(k.beta_us_per_mib) for k in topology.links}
    assert rate == pytest.approx(50 * 1.073741824)
    assert "53.6871 GB/s" in topology.notes[0]
    # The last dimension is fastest: 0-1-2 is a row, 0-3 a column.
    assert {(k.src, k.dst) for k in topology.links if k.src == 0} == {(0, 1), (0, 3)}


@pytest.mark.parametrize(
    ("spec", "nodes", "message"),
    [
        ("ndv3", None, "got 'ndv3', did you mean 'ndv2'?"),
        ("dgxa100", None, "did you mean 'dgx_a100'? (`explorer topology list`"),
        ("ring:4", 2, "single machine without a network"),
        ("ring", None, "expected ring:16"),
        ("ring:0", None, "has 0 ranks, expected 1 to"),
        ("ring:-3", None, "got shape '-3'"),
        ("ring:4x4", None, "expected ring:16"),
        ("mesh:4", None, "expected mesh:4x4[x4]"),
        ("mesh:2x2x2x2", None, "expected mesh"),
        ("torus:999999x999999", None, "ranks, expected 1 to"),
        ("full:5000", None, "links, at most"),
        ("hypercube:60", None, "2^60 ranks"),
        ("hypercube:0", None, "has 0 ranks"),
        ("switch:4,0GB/s", None, "expected more than 0"),
        ("switch:4,fast", None, "expected a rate with its unit"),
        ("switch:4,1GB/s,2us,3", None, "expected switch:8"),
        ("ndv2:2", None, "ndv2 takes no shape, got '2' (nodes go in --nodes)"),
        ("ndv2", 0, "got 0, expected 1 to"),
        ("no/such/file.yaml", None, "No such file"),
        ("nosuch.json", None, "No such file"),
        (".", None, "is a folder"),
    ],
)
def test_refused(spec: str, nodes: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_topology(spec, nodes)
    assert message in str(caught.value)


def test_every_name_loads() -> None:
    for name in topology_names():
        shape = f":{EXAMPLE_SHAPES[name]}" if name in EXAMPLE_SHAPES else ""
        topology = load_topology(name + shape)
        graph = rank_graph(topology)
        assert graph.ranks == topology.ranks


def search_by_paths(topology: Topology, src: int, dst: int, relay: bool) -> tuple[int, ...] | None:
    """The documented order, tried on every simple path."""
    best: tuple[tuple[float, int, float], tuple[int, ...]] | None = None
    goal, start = topology.gpus[dst], topology.gpus[src]
    stack: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(start, (), (start,))]
    while stack:
        device, path, seen = stack.pop()
        if device == goal:
            links = [topology.links[i] for i in path]
            alpha = 0.0
            for link in links:
                alpha += link.alpha_us
            key = (max(k.beta_us_per_mib for k in links), len(path), alpha)
            if best is None or (key, path) < best:
                best = (key, path)
            continue
        if topology.rank_of(device) >= 0 and device != start and not relay:
            continue
        stack += [
            (topology.links[i].dst, (*path, i), (*seen, topology.links[i].dst))
            for i in topology.out_links(device)
            if topology.links[i].dst not in seen
        ]
    return best[1] if best else None


@given(st.data())
def test_route_search_keeps_its_documented_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 6))
    kinds = data.draw(st.lists(st.sampled_from(["gpu", "switch"]), min_size=count, max_size=count))
    kinds[0] = kinds[-1] = "gpu"
    rank = iter(range(count))
    devices = tuple(
        Device(f"gpu{next(rank)}" if kind == "gpu" else f"s{i}", kind, 0)
        for i, kind in enumerate(kinds)
    )
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs = data.draw(st.lists(ends.filter(lambda e: e[0] != e[1]), max_size=16, unique=True))
    cost = st.tuples(st.sampled_from([0.5, 1.0]), st.sampled_from([1.0, 2.0, 4.0]))
    links = tuple(Link(a, b, "generic", *data.draw(cost)) for a, b in pairs)
    topology = Topology("t", devices, links)
    for src in range(topology.ranks):
        for dst in range(topology.ranks):
            if src == dst:
                continue
            direct = search_by_paths(topology, src, dst, relay=False)
            found = topology.routes_from(src).get(dst)
            assert (found.links if found else None) == direct
            if direct is None:
                relayed = topology.route(src, dst)
                expected = search_by_paths(topology, src, dst, relay=True)
                assert (relayed.links if relayed else None) == expected


def test_gpus_that_only_the_network_joins_use_it() -> None:
    # Two GPUs of a node without any link inside it: the rule against loops does not cut them off.
    devices = (
        Device("gpu0", "gpu", 0),
        Device("gpu1", "gpu", 0),
        Device("gpu2", "gpu", 1),
        Device("fabric", "switch", -1),
    )
    links = tuple(Link(a, b, "network", 1.0, 1.0) for i in range(3) for a, b in ((i, 3), (3, i)))
    topology = Topology("t", devices, links)
    assert set(topology.routes_from(0)) == {1, 2}
    joined = Topology(
        "t", devices, (*links, Link(0, 1, "pcie", 1.0, 9.0), Link(1, 0, "pcie", 1.0, 9.0))
    )
    assert joined.routes_from(0)[1].beta_us_per_mib == 9.0


def test_one_gpu() -> None:
    topology = Topology("one", (Device("gpu0", "gpu", 0),), ())
    assert topology.routes_from(0) == {}
    assert rank_graph(topology).edges == 0
