"""Tables and pictures of machines."""

from __future__ import annotations

import pytest

from explorer.topologies.describe import (
    idle_nics,
    link_table,
    machine_table,
    nic_table,
    route_text,
    show_text,
)
from explorer.topologies.load import load_topology
from explorer.topologies.source import Source
from explorer.topologies.topology_yaml import read_topology_yaml


def test_machine_table_lists_builders_and_files() -> None:
    rows = {row.name: row for row in machine_table()}
    assert (rows["dgx2"].ranks, rows["dgx2"].nodes) == (16, 1)
    assert rows["mesh:AxB[xC]"].example == "mesh:4x4"
    assert (rows["teccl_ndv2_n2"].ranks, rows["teccl_ndv2_n2"].nodes) == (16, 2)
    assert all(row.summary and row.notes for row in rows.values())


def test_link_table_has_both_directions_with_rates() -> None:
    rows = link_table(load_topology("switch:2,25GB/s,1us"))
    assert [(r.src, r.dst, r.gbs, r.alpha_us) for r in rows[:2]] == [
        ("gpu0", "switch0", pytest.approx(25), 0.5),
        ("switch0", "gpu0", pytest.approx(25), 0.5),
    ]


def test_nic_table_and_idle_nics() -> None:
    table = nic_table(load_topology("dgx2", 2))
    assert (table[0], table[1], table[2], table[31]) == ("n0/nic0",) * 2 + ("n0/nic1", "n1/nic7")
    assert nic_table(load_topology("dgx2")) == {}
    text = """
nodes:
  - {name: a, gpus: 7, nics: 8, nic_gbps: 400}
  - {name: b, gpus: 8, nics: 4, nic_gbps: 400}
"""
    topology = read_topology_yaml(Source("x.yaml", text), None, True)
    assert idle_nics(topology) == ["n0/nic7"]
    shown = show_text(topology)
    assert "  node 1: nic0 shared by gpus 0-1; nic1 shared by gpus 2-3;" in shown
    assert "  n0/nic7: unused" in shown
    assert idle_nics(load_topology("dgx2")) == []


def test_show_draws_alike_nodes_once() -> None:
    shown = show_text(load_topology("ndv2", 3))
    assert shown.startswith("ndv2: 24 ranks on 3 nodes, 186 links")
    assert "nodes 0-2, alike" in shown
    assert "  gpu0    .   50   25   25   50    .    .    ." in shown
    assert "  pcie0 -- gpu0-1: 13 GB/s, 0.4 us" in shown
    assert "  fabric -- n0/nic0, n1/nic0, n2/nic0: 12.5 GB/s, 0.15 us" in shown
    assert "  nodes 0-2: nic0 shared by gpus 0-7" in shown


def test_show_tells_directions_apart() -> None:
    text = """
devices: {gpu: gpu0..1, switch: s0}
links:
  - {from: gpu0, to: s0, alpha: 1us, bandwidth: 4GB/s}
  - {from: s0, to: gpu0, alpha: 1us, bandwidth: 2GB/s}
  - {from: gpu1, to: s0, alpha: 1us, bandwidth: 1GB/s}
  - {from: gpu0, to: gpu1, alpha: 2us, bandwidth: 8GB/s}
"""
    shown = show_text(read_topology_yaml(Source("x.yaml", text), None, True))
    assert "  s0 -- gpu0: in 4 GB/s, 1 us; out 2 GB/s, 1 us" in shown
    assert "  s0 <- gpu1: 1 GB/s, 1 us" in shown
    assert "  gpu0    .    8" in shown
    assert "  gpu1    .    ." in shown


def test_large_nodes_are_summed_up() -> None:
    assert "64 GPUs, 256 links between them: 50 GB/s, 0.5 us" in show_text(
        load_topology("torus:8x8")
    )


@pytest.mark.parametrize(
    ("spec", "pair", "expected"),
    [
        ("ndv2", (0, 5), "gpu0 > pcie0 > cpu0 > cpu1 > pcie2 > gpu5: 10 GB/s, 1.3 us"),
        ("ring:4", (0, 2), "gpu0 > gpu1 > gpu2: 50 GB/s, 1 us, over gpus 1"),
    ],
)
def test_route_text(spec: str, pair: tuple[int, int], expected: str) -> None:
    assert route_text(load_topology(spec), *pair) == expected
