"""Ring orders, trees and levels on known machines, and the cycle search against brute force."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.baselines.hamilton import Hamilton, Hop
from explorer.baselines.levels import find_levels, tree_from
from explorer.baselines.ring_order import ring_orders
from explorer.core.topology import Device, Link, Topology
from explorer.topologies.assembly import Assembly
from explorer.topologies.load import load_topology


def closed(order: list[int]) -> list[tuple[int, int]]:
    return list(zip(order, [*order[1:], order[0]], strict=True))


def loads(topology: Topology, orders: list[list[int]]) -> Counter[str]:
    """How many of the rings use each link."""
    used: Counter[str] = Counter()
    for order in orders:
        assert sorted(order) == list(range(topology.ranks))
        for u, v in closed(order):
            route = topology.route(u, v)
            assert route is not None
            used.update(topology.link_names[k] for k in route.links)
    return used


def relayed(topology: Topology, order: list[int]) -> list[int]:
    """Number of GPUs that each hop of a ring passes through, where it passes any."""
    routes = [topology.route(u, v) for u, v in closed(order)]
    return [len(route.relays) for route in routes if route is not None and route.relays]


def test_dgx1_rings_are_nccls() -> None:
    topology = load_topology("dgx1", 1)
    lanes = {
        name: link.lanes for name, link in zip(topology.link_names, topology.links, strict=True)
    }
    # one ring: over double lanes only; two: the same both ways
    one = loads(topology, ring_orders(topology, 1))
    assert {lanes[name] for name in one} == {2}
    two = loads(topology, ring_orders(topology, 2))
    assert set(two.values()) == {1}
    assert {lanes[name] for name in two} == {2}
    # six: every NVLink lane of the machine carries one ring in each direction
    six = loads(topology, ring_orders(topology, 6))
    nvlinks = {
        name: link.lanes
        for name, link in zip(topology.link_names, topology.links, strict=True)
        if link.kind == "nvlink"
    }
    assert six == nvlinks


def test_ring_through_ndv2_nodes_uses_the_gpus_next_to_the_nic() -> None:
    topology = load_topology("ndv2", 3)
    (order,) = ring_orders(topology, 1)
    used = loads(topology, [order])
    crossing = [(u % 8, v % 8) for u, v in closed(order) if u // 8 != v // 8]
    assert len(crossing) == 3
    assert {door for pair in crossing for door in pair} == {0, 1}
    # inside it stays on double NVLink lanes
    kinds = dict(zip(topology.link_names, topology.links, strict=True))
    inside = [kinds[n] for n in used if kinds[n].kind == "nvlink"]
    assert len(inside) == 3 * 7
    assert {link.lanes for link in inside} == {2}


def test_rings_take_turns_on_the_nics_and_stay_on_their_rail() -> None:
    topology = load_topology("dgx_h100", 2)
    orders = ring_orders(topology, 8)
    used = loads(topology, orders)
    out = {name: n for name, n in used.items() if "/nic" in name and "->rail" in name}
    assert len(out) == 16
    assert set(out.values()) == {1}
    assert not any("spine" in name for name in used)


@pytest.mark.parametrize(
    ("spec", "relays"),
    [
        ("ring:7", []),
        ("mesh:4x4", []),
        ("mesh:8x6x2", []),
        ("torus:3x5", []),
        ("torus:6x6x6", []),
        ("hypercube:8", []),
        # an odd mesh has no cycle: one hop goes over another GPU
        ("mesh:3x3", [1]),
        ("mesh:5x5", [1]),
        # nor has a line: its ends meet over all others
        ("mesh:1x6", [4]),
    ],
)
def test_rings_follow_the_links_of_grids(spec: str, relays: list[int]) -> None:
    topology = load_topology(spec, None)
    (order,) = ring_orders(topology, 1)
    assert sorted(order) == list(range(topology.ranks))
    assert relayed(topology, order) == relays


def test_ring_over_pcie_crosses_the_socket_once_each_way() -> None:
    # ranks are dealt out to two switches alternately; the uplinks are shared by all that cross
    machine = Assembly("pcie", 1)
    gpus = [machine.gpu(0) for _ in range(6)]
    hubs = [machine.device(f"pcie{i}", "pcie", 0) for i in range(2)]
    machine.both(hubs[0], hubs[1], "socket", 0.3, 13.0)
    for i, gpu in enumerate(gpus):
        machine.both(gpu, hubs[i % 2], "pcie", 0.4, 13.0)
    topology = machine.build()
    (order,) = ring_orders(topology, 1)
    assert sum(u % 2 != v % 2 for u, v in closed(order)) == 2


def test_a_slow_direction_is_avoided() -> None:
    # a full graph of 5 in which every link r -> r+1 is slow: the ring goes another way
    devices = tuple(Device(f"gpu{r}", "gpu") for r in range(5))
    links = tuple(
        Link(u, v, "generic", 1.0, 40.0 if v == (u + 1) % 5 else 10.0)
        for u in range(5)
        for v in range(5)
        if u != v
    )
    (order,) = ring_orders(Topology("slow", devices, links), 1)
    assert all(v != (u + 1) % 5 for u, v in closed(order))


def test_nodes_in_a_ring_are_visited_in_its_order() -> None:
    # three nodes of two GPUs joined 0 -> 2 -> 1 -> 0 by direct links of GPU 1 to GPU 0
    machine = Assembly("circle", 3)
    gpus = [[machine.gpu(k), machine.gpu(k)] for k in range(3)]
    for a, b in gpus:
        machine.both(a, b, "nvlink", 0.5, 50.0)
    for a, b in ((0, 2), (2, 1), (1, 0)):
        machine.one_way(gpus[a][1], gpus[b][0], "network", 1.0, 10.0)
    (order,) = ring_orders(machine.build(), 1)
    start = order.index(0)
    assert order[start:] + order[:start] == [0, 1, 4, 5, 2, 3]


@given(
    size=st.integers(3, 6),
    betas=st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0]), min_size=30, max_size=30),
    holes=st.lists(st.booleans(), min_size=30, max_size=30),
    shared=st.booleans(),
)
def test_cycle_and_path_are_as_wide_as_brute_force_finds(
    size: int, betas: list[float], holes: list[bool], shared: bool
) -> None:
    # a link per hop, or links that several hops share
    beta = (betas * 2)[: size * size]
    hops: list[list[Hop | None]] = [
        [
            Hop(((u + v) % size if shared else size * u + v,), 1.0)
            if u != v and not holes[(u * 7 + v) % 30]
            else None
            for v in range(size)
        ]
        for u in range(size)
    ]

    def load(pairs: list[tuple[int, int]]) -> float:
        used: Counter[int] = Counter()
        for u, v in pairs:
            hop = hops[u][v]
            if hop is None:
                return math.inf
            used.update(hop.links)
        return max(beta[k] * n for k, n in used.items())

    orders = [[0, *order] for order in permutations(range(1, size))]
    search = Hamilton(hops, beta, [0] * (size * size))
    least = min(load(closed(order)) for order in orders)
    cycle = search.cycle()
    assert (cycle is None) == math.isinf(least)
    assert cycle is None or (sorted(cycle) == list(range(size)) and load(closed(cycle)) == least)
    least = min(load(closed(order)[:-1]) for order in orders if order[-1] == 1)
    path = search.path(0, 1)
    assert (path is None) == math.isinf(least)
    assert path is None or (path[0], path[-1], load(closed(path)[:-1])) == (0, 1, least)


def test_levels_of_known_machines() -> None:
    a100 = find_levels(load_topology("dgx_a100", 2))
    assert a100.rails
    assert all(node.direct for node in a100.nodes)
    ndv2 = find_levels(load_topology("ndv2", 2))
    assert not ndv2.rails
    assert [(node.leave, node.enter, node.direct) for node in ndv2.nodes] == [
        (0, 1, False),
        (8, 9, False),
    ]
    assert find_levels(load_topology("dgx1", 2)).rails


def test_tree_is_flat_where_links_are_many_and_deep_where_they_are_few() -> None:
    # NDv2: four NVLink neighbours of the door take data, the other three one hop further
    topology = load_topology("ndv2", 2)
    node = find_levels(topology).nodes[0]
    tree = tree_from(topology, node, 1, up=False)
    depth = {1: 0}
    for parent, child in tree:
        depth[child] = depth[parent] + 1
        route = topology.route(parent, child)
        assert route is not None
        assert [topology.links[k].kind for k in route.links] == ["nvlink"]
    assert sorted(depth.values()) == [0, 1, 1, 1, 1, 2, 2, 2]
    # one port per GPU: as many children as the port can feed at the rate of the NIC
    for port, children in ((100.0, [3]), (30.0, [2, 1]), (13.0, [1, 1, 1])):
        machine = Assembly("ports", 2)
        fabric = machine.device("fabric", "switch")
        for k in range(2):
            hub, nic = machine.device("hub", "nvswitch", k), machine.device("nic", "nic", k)
            for _ in range(4):
                gpu = machine.gpu(k)
                machine.both(gpu, hub, "nvlink", 0.3, port)
                machine.both(gpu, nic, "pcie", 0.3, 12.5)
            machine.both(nic, fabric, "network", 1.0, 12.5)
        topology = machine.build()
        node = find_levels(topology).nodes[1]
        for up in (False, True):
            counts = Counter(parent for parent, _ in tree_from(topology, node, 5, up=up))
            assert sorted(counts.values(), reverse=True) == children
