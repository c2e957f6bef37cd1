"""Our topology YAML: what can be written, what is refused and where."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.topology import DEVICE_KINDS, LINK_KINDS, Device, Link, Topology
from explorer.errors import InputError
from explorer.topologies.load import load_topology, read_topology
from explorer.topologies.registry import BUILDERS
from explorer.topologies.source import Source
from explorer.topologies.topology_write import topology_yaml
from explorer.topologies.topology_yaml import looks_like_topology_yaml, read_topology_yaml
from explorer.units import gbs_of_beta

PAIR = """
devices: {gpu: [gpu0, gpu1]}
links:
  - {from: gpu0, to: gpu1, alpha: 0.7us, %s}
"""


def read(text: str, nodes: int | None = None) -> Topology:
    return read_topology_yaml(Source("m.yaml", text), nodes, True)


def refusal(text: str, nodes: int | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text, nodes)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("rate", "gbs"),
    [
        ("bandwidth: 200Gbps", 25),
        ("bandwidth: 25GB/s", 25),
        ("bandwidth: 25000MB/s", 25),
        ("bandwidth: 23.28GiB/s", 23.28 * 1.073741824),
        ("bandwidth: 0.025 MB/ns", 25),
        ("bandwidth: 0.025 MB/us", 25),
        ("beta_us_per_MB: 40", 25),
        ("beta_us_per_mb: 40", 25),
        ("beta_us_per_mib: 41.94304", 25),
        ('rate: "200 Gb/sec (2X NDR)"', 25),
        ("speed: 200000", 25),
    ],
)
def test_spellings_of_a_rate(rate: str, gbs: float) -> None:
    topology = read(PAIR % rate)
    assert gbs_of_beta(topology.links[0].beta_us_per_mib) == pytest.approx(gbs, rel=1e-12)
    assert topology.links[0].alpha_us == 0.7


def test_a_list_of_rates_is_a_list_of_links() -> None:
    # The spellings of one 200 Gb/s link that people use.
    topology = read(
        """
- {bandwidth: 200Gbps}
- {bandwidth: 23.28GiB/s}
- {bandwidth: 0.025 MB/ns}
- {beta_us_per_MB: 40}
- {speed: 200000}     # NCCL XML, Mb/s
"""
    )
    assert topology.link_names[1] == "gpu2->gpu3"
    rates = [gbs_of_beta(link.beta_us_per_mib) for link in topology.links]
    assert rates == pytest.approx([25.0] * 5, rel=1e-3)
    # What was read otherwise than written is said.
    assert [note for note in topology.notes if "0.025 MB/ns" in note] == [
        "line 4: 0.025 MB/ns would be 25 TB/s, which no link carries; read as per us, 25 GB/s"
    ]


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("bandwidth: 25", "m.yaml:4: links[0].bandwidth: got '25', expected a rate with its unit"),
        ("bandwidth: 0GB/s", "m.yaml:4: links[0].bandwidth: a link needs a rate above 0"),
        ("speed: 0", "links[0].speed: a link needs a rate above 0"),
        ("beta_us_per_mib: 0", "links[0].beta_us_per_mib: a link needs a rate above 0"),
        ("beta_us_per_mib: -1", "got '-1', expected a number in us per MiB"),
        ("beta_us_per_mib: .nan", "got '.nan', expected a number"),
        ("beta_us_per_mib: 1e999", "expected a number"),
        ("bandwidth: 30TB/s", "30TB/s is 30000 GB/s, which no link carries"),
        ("bandwith: 25GB/s", "unknown key 'bandwith', did you mean 'bandwidth'?"),
        ("lanes: 2", "links[0]: the rate is missing, expected one of bandwidth: 25GB/s"),
        ("bandwidth: 25GB/s, speed: 200000", "bandwidth and speed are both given"),
        ("bandwidth: 25GB/s, alpha_us: 1", "alpha and alpha_us are both given"),
        ("bandwidth: 25GB/s, lanes: 0", "links[0].lanes: got '0', expected a whole number from 1"),
        ("bandwidth: 25GB/s, both: yes", "links[0].both: got 'yes', expected one of false, true"),
        ("bandwidth: 25GB/s, kind: nvlnk", "got 'nvlnk', did you mean 'nvlink'?"),
        ("bandwidth: 25GB/s, bandwidth: 26GB/s", "bandwidth is repeated, first given in line 4"),
    ],
)
def test_bad_links(rate: str, message: str) -> None:
    assert any(message in line for line in refusal(PAIR % rate)), refusal(PAIR % rate)


def test_all_problems_at_once_with_their_lines() -> None:
    text = """name: x
devices: {gpu: gpu0..1, gpus: gpu2}
links:
  - {from: gpu0, to: gpu1, alpha: 0.7, bandwidth: 25}
  - {from: gpu0, alpha: 1us, bandwidth: 1GB/s}
"""
    assert [line.partition(": ")[0] for line in refusal(text)] == [
        "m.yaml:2",
        "m.yaml:4",
        "m.yaml:4",
        "m.yaml:5",
    ]


def test_ranges_zip_and_fan_out() -> None:
    topology = read(
        """
devices: {gpu: gpu0..3, switch: [s0, s1]}
links:
  - {from: gpu0..gpu3, to: s0, alpha: 1us, bandwidth: 1GB/s, both: true}
  - {from: [gpu0, gpu1], to: gpu2..3, alpha: 1us, bandwidth: 1GB/s}
  - {from: s1, to: [gpu0, gpu3], alpha: 1us, bandwidth: 1GB/s}
"""
    )
    assert topology.link_names == (
        *(name for i in range(4) for name in (f"gpu{i}->s0", f"s0->gpu{i}")),
        "gpu0->gpu2",
        "gpu1->gpu3",
        "s1->gpu0",
        "s1->gpu3",
    )


def test_parallel_links_add_up() -> None:
    topology = read(
        """
devices: {gpu: gpu0..1}
links:
  - {from: gpu0, to: gpu1, alpha: 2us, bandwidth: 25GB/s}
  - {from: gpu0, to: gpu1, alpha: 1us, bandwidth: 50GB/s, lanes: 2}
"""
    )
    (link,) = topology.links
    assert gbs_of_beta(link.beta_us_per_mib) == pytest.approx(75)
    assert (link.alpha_us, link.lanes) == (1.0, 3)


NODE = """
node:
  devices: {gpu: gpu0..1, nic: nic0}
  links:
    - {from: gpu0..1, to: nic0, kind: pcie, alpha: 1us, bandwidth: 10GB/s, both: true}
network:
  devices: {switch: fabric}
  links:
    - {from: n*/nic0, to: fabric, kind: network, alpha: 1us, bandwidth: 5GB/s, both: true}
"""


def test_a_node_is_copied_and_renumbered() -> None:
    topology = read(NODE, 3)
    assert topology.node_of.tolist() == [0, 0, 1, 1, 2, 2]
    assert [d.name for d in topology.devices[-4:]] == ["gpu4", "gpu5", "n2/nic0", "fabric"]
    assert "n2/nic0->fabric" in topology.link_names
    assert "gpu4->n2/nic0" in topology.link_names
    route = topology.routes_from(0)[5]
    assert (route.alpha_us, gbs_of_beta(route.beta_us_per_mib)) == (4.0, pytest.approx(5))
    single = read(NODE)
    assert (single.ranks, single.nodes, len(single.links)) == (2, 1, 4)


def test_copies_and_nodes() -> None:
    copied = NODE.replace("node:\n", "node:\n  copies: 2\n", 1)
    assert read(copied).nodes == 2
    assert read(copied, 2).nodes == 2
    (line,) = refusal(copied, 4)
    assert line.startswith("--nodes: got 4, m.yaml describes 2 nodes; only a file with one node:")
    (line,) = refusal(NODE.partition("network:")[0], 2)
    assert line.endswith("2 nodes but no network: block, so they cannot reach one another")
    (line,) = refusal(PAIR % "bandwidth: 1GB/s", 2)
    assert "describes 1 nodes with their network" in line


def test_unequal_nodes_in_blocks() -> None:
    topology = read(
        """
nodes:
  - devices: {gpu: gpu0..2, nic: nic0}
    links: [{from: gpu0..2, to: nic0, alpha: 0us, bandwidth: 9GB/s, both: true}]
  - devices: {gpu: gpu0, nic: nic0}
    links: [{from: gpu0, to: nic0, alpha: 0us, bandwidth: 9GB/s, both: true}]
network:
  links:
    - {from: n0/nic0, to: n1/nic0, alpha: 1us, bandwidth: 1GB/s, both: true}
    - {from: n1/gpu0, to: n0/gpu2, alpha: 1us, bandwidth: 20GB/s}
"""
    )
    assert topology.node_of.tolist() == [0, 0, 0, 1]
    assert topology.link_names[-1] == "gpu3->gpu2"
    assert topology.routes_from(3)[2].links == (len(topology.links) - 1,)


def test_short_form_of_nodes() -> None:
    topology = read(
        """
nodes:
  - {name: a, gpus: 8, nics: 8, nic_gbps: 400}
  - {name: b, gpus: 7, nics: 4, nic_gbps: 400, gpu_bandwidth: 300GB/s}
"""
    )
    assert topology.node_of.tolist() == [0] * 8 + [1] * 7
    users = {}
    for rank in range(8, 15):
        names = [
            topology.devices[topology.links[i].dst].name
            for i in topology.routes_from(rank)[0].links
        ]
        users.setdefault(names[1], []).append(rank - 8)
    # GPU i of seven uses NIC 4 i // 7.
    assert users == {"n1/nic0": [0, 1], "n1/nic1": [2, 3], "n1/nic2": [4, 5], "n1/nic3": [6]}
    assert gbs_of_beta(topology.routes_from(8)[9].beta_us_per_mib) == pytest.approx(300)
    assert gbs_of_beta(topology.routes_from(0)[8].beta_us_per_mib) == pytest.approx(50)
    assert any(
        note.startswith("assumed: the GPUs of a node are on one switch") for note in topology.notes
    )


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("- {name: a, gpus: 8, nics: 0}\n  - {name: b, gpus: 8, nics: 1, nic_gbps: 100}", "no NIC"),
        ("- {name: a, gpus: 8, nics: 1}", "nic_gbps missing"),
        ("- {name: a, gpus: 8, nics: 1, nic_gbps: 0}", "a NIC needs a rate above 0"),
        ("- {name: a, gpus: 0, nics: 0}", "nodes[0].gpus: got '0'"),
        ("- {name: a, gpu: 8, gpus: 8, nics: 0}", "unknown key 'gpu', did you mean 'gpus'?"),
        ("- {name: a, gpus: 1, nics: 0}\n  - {name: a, gpus: 1, nics: 0}", "'a' is given twice"),
    ],
)
def test_bad_short_forms(nodes: str, message: str) -> None:
    assert any(message in line for line in refusal(f"nodes:\n  {nodes}\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: {gpu: gpu0}\nnode: {devices: {gpu: gpu0}}", "devices and node are both given"),
        ("links: []", "nothing describes the nodes"),
        ("devices: {gpu: gpu1}", "GPU 'gpu1': expected gpu0, GPUs are named by their rank"),
        ("devices: {gpu: [gpu0, gpu0]}", "device 'gpu0' is given twice"),
        ("devices: {switch: s0}", "no GPU in it"),
        ("devices: {gpu: gpu5..2}", "got 'gpu5..2', expected e.g. gpu0..7"),
        ("devices: {gpu: gpu0..999999}", "names over"),
        ("devices: {gpu: gpu0}\nlinks: [{from: gpu0, to: gpu0, alpha: 0us, speed: 1}]", "itself"),
        ("devices: {gpu: gpu0}\nlinks: [{from: gpu0, to: gup1, alpha: 0us, speed: 1}]", "'gup1'"),
        (
            "devices: {gpu: gpu0..4}\nlinks: [{from: gpu0..1, to: gpu2..4, alpha: 0us, speed: 1}]",
            "from names 2 devices and to 3",
        ),
        ("devices: {gpu: gpu0}\nnetwork: {}", "network goes with node or nodes"),
        ("node: {devices: {gpu: gpu0}}\nlinks: []", "links belong into node or network"),
        ("node: {devices: {gpu: gpu0}, copies: 0}", "node.copies: got '0'"),
        ("node: {links: []}", "node: devices missing"),
        (
            "devices: {gpu: gpu0}\ndevices: {gpu: gpu0}",
            "devices is repeated, first given in line 1",
        ),
        ("devices: [gpu0]", "devices[0]: expected keys and values, got 'gpu0'"),
        ("devices: {gpu: gpu0}\ntime_unit: ms", "time_unit: got 'ms', expected one of profile, us"),
        ("devices: {gpu: gpu0}\nname: [a]", "name: expected text, got a list"),
        ("devices: {gpu: gpu0\n", "not valid YAML"),
        ("devices: {gpu: gpu0}\n---\nx: 1", "a second document starts"),
        ("devices: &a {gpu: gpu0}", "anchors and aliases are not allowed"),
        ("devices: !!python/object:os.system {gpu: gpu0}", "the tag"),
        ("devices: {gpu: gpu0}\nname: " + "[" * 20 + "]" * 20, "nested deeper than 8 levels"),
        ("devices: {gpu: gpu0}\n? [a]\n: 1", "a key must be one word"),
        ("devices:\n\t- x", "not valid YAML"),
    ],
)
def test_bad_files(text: str, message: str) -> None:
    assert any(message in line for line in refusal(text)), refusal(text)


def test_a_bomb_does_not_go_off() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    names = "abcdefghij"
    for one, other in itertools.pairwise(names):
        refs = ", ".join([f"*{one}"] * 9)
        lines.append(f"{other}: &{other} [{refs}]")
    assert "anchors and aliases are not allowed" in refusal("\n".join(lines))[0]


numbers = st.floats(0.0, 1e9, allow_subnormal=False)
texts = st.text(min_size=1, max_size=12).filter(lambda t: t.strip() == t)


@given(st.data())
def test_write_then_read_is_exact(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    devices = [Device(f"gpu{i}", "gpu", data.draw(st.integers(0, 2))) for i in range(count)] + [
        Device(f"d{i}", kind, data.draw(st.integers(-1, 2)))
        for i, kind in enumerate(data.draw(st.lists(st.sampled_from(DEVICE_KINDS[1:]), max_size=3)))
    ]
    ends = st.integers(0, len(devices) - 1)
    pairs = data.draw(st.sets(st.tuples(ends, ends).filter(lambda p: p[0] != p[1]), max_size=8))
    links = tuple(
        Link(
            a,
            b,
            data.draw(st.sampled_from(LINK_KINDS)),
            data.draw(numbers),
            data.draw(numbers.filter(lambda x: x > 0)),
            data.draw(st.integers(1, 18)),
        )
        for a, b in sorted(pairs)
    )
    topology = Topology(
        data.draw(texts),
        tuple(devices),
        links,
        data.draw(st.sampled_from(["us", "profile"])),
        data.draw(st.integers(0, 8)),
        tuple(data.draw(st.lists(texts, max_size=2))),
    )
    text = topology_yaml(topology)
    assert looks_like_topology_yaml(Source("m.yaml", text))
    assert read(text) == topology


@pytest.mark.parametrize("name", sorted(n for n, b in BUILDERS.items() if b.of_nodes))
def test_machines_survive_a_round_trip(name: str, tmp_path: Path) -> None:
    topology = load_topology(name, 2)
    path = tmp_path / "machine.yaml"
    path.write_text(topology_yaml(topology), encoding="utf-8")
    again = read_topology(path)
    assert again == topology
    assert again.link_names == topology.link_names
    last = topology.ranks - 1
    routes = [t.routes_from(0)[last] for t in (again, topology)]
    assert dataclasses.asdict(routes[0]) == dataclasses.asdict(routes[1])


def test_shipped_machines_are_those_of_their_sources() -> None:
    teccl = load_topology("teccl_ndv2_n2")
    assert (teccl.ranks, len(teccl.links)) == (16, 66)
    across = [n for n, k in zip(teccl.link_names, teccl.links, strict=True) if k.kind == "network"]
    assert across == ["gpu0->gpu9", "gpu8->gpu1"]
    dgx2 = load_topology("teccl_dgx2_n2")
    across = [n for n, k in zip(dgx2.link_names, dgx2.links, strict=True) if k.kind == "network"]
    assert across[:2] == ["gpu1->gpu16", "gpu3->gpu18"]
    assert across[8:10] == ["gpu17->gpu0", "gpu19->gpu2"]
    decimal = load_topology("taccl_decimal_ndv2")
    rates = sorted({round(gbs_of_beta(k.beta_us_per_mib), 3) for k in decimal.links})
    assert rates == [21.739, 43.478]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "is not UTF-8 text (byte 0)"),
        (b"hello world", "in no known topology format ("),
        (
            b'{"nnodes": 1, "intranode_sketch": {}}',
            "this is a TACCL sketch, which goes in --sketch",
        ),
        (b'<algo name="x">', "this is an MSCCL program"),
    ],
)
def test_other_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_topology(str(path))
    assert message in str(caught.value)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_text("\ufeff" + PAIR % "bandwidth: 1GB/s", encoding="utf-8")
    assert load_topology(str(path)).name == "bom"


def test_examples_of_the_documentation_are_read() -> None:
    page = Path(__file__).parent.parent / "docs" / "formats-topology.md"
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    shapes = []
    for block in blocks:
        source = Source("example.yaml", block)
        assert looks_like_topology_yaml(source)
        topology = read_topology_yaml(source, 2, True)
        shapes.append((topology.ranks, topology.nodes, len(topology.links)))
    # 4 GPUs with a switch and a NIC link each, 2 NICs; 8 + 8 GPUs with 8 and 4 NICs; one link.
    assert shapes == [(8, 2, 2 * 2 * (4 + 4) + 8), (16, 2, 112), (2, 2, 1)]
