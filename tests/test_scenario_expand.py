"""Expansion: which points a scenario has, in which order, and under which keys."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.collective import Collective, sizing
from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError
from explorer.scenario.expand import Plan, expand, plan
from explorer.scenario.keys import code_version, content_key, identity, topology_digest
from explorer.scenario.load import load_scenario
from explorer.scenario.point import DesignPoint
from explorer.scenario.words import known_words

SKETCH = json.dumps({"intranode_sketch": {"strategy": "none"}, "symmetry_offsets": []})
TWO_NODES = json.dumps({"nnodes": 2, "intranode_sketch": {"strategy": "none"}})


def planned(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return plan(load_scenario(path))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as error:
        planned(tmp_path, text)
    return [str(p).removeprefix(f"{tmp_path}/") for p in error.value.problems]


def test_points_are_the_product_baselines_first_groups_together(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        """\
topology: full:4
collectives: [allgather, alltoall]
sizes: [1K, 4K]
fidelity: ideal
methods: [milp, allpairs]
chunks: [1, 2]
channels: [1, 2]
""",
    )
    points = [p.point for p in found.points]
    # Channels go with the baseline only: 2 collectives x 2 sizes x 2 chunks x (2 + 1).
    assert len(points) == 24
    assert [p.method for p in points] == ["allpairs"] * 16 + ["milp"] * 8
    assert {p.channels for p in points if p.method == "milp"} == {1}
    assert [(p.collective, p.chunks, p.channels, p.size_bytes) for p in points[:6]] == [
        ("allgather", 1, 1, 1024),
        ("allgather", 1, 1, 4096),
        ("allgather", 1, 2, 1024),
        ("allgather", 1, 2, 4096),
        ("allgather", 2, 1, 1024),
        ("allgather", 2, 1, 4096),
    ]
    groups = [p.group for p in found.points]
    assert len(set(groups)) == 4
    assert [g for i, g in enumerate(groups) if i == 0 or g != groups[i - 1]] == list(
        dict.fromkeys(groups)
    )
    assert found.skipped == ()


def test_everything_a_section_says_reaches_its_points(tmp_path: Path) -> None:
    (point,) = planned(
        tmp_path,
        """\
name: all
topology: full:4
collectives: broadcast
sizes: 3MB
fidelity: runtime
methods: milp
chunks: 3
placement: both
root: 2
cost_model: pipelined
protocols: LL
instances: 4
dialect: unlimited
limits: {time_s: 7, nodes: 9, point_s: 30}
""",
    ).points
    assert point.point == DesignPoint(
        topology="full:4",
        nodes=None,
        collective="broadcast",
        size_bytes=3_000_000,
        method="milp",
        root=2,
        placement="both",
        sketch=None,
        chunks=3,
        cost_model="pipelined",
        fidelity="runtime",
        protocol="LL",
        channels=1,
        instances=4,
        dialect="unlimited",
        time_limit_s=7.0,
        node_limit=9,
    )
    assert (point.scenario, point.time_limit_s) == ("all", 30.0)
    assert point.identity == identity(point.point)


def test_sketches_go_with_searches_and_equal_points_are_kept_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(SKETCH)
    found = planned(
        tmp_path,
        """\
topology: full:4
collectives: allgather
sizes: [1M, 1024K, 1048576]
fidelity: ideal
methods: [allpairs, milp, allpairs]
sketches: [none, a.json]
chunks: [1, 1]
""",
    )
    assert [(p.point.method, p.point.sketch) for p in found.points] == [
        ("allpairs", None),
        ("milp", None),
        ("milp", f"{tmp_path}/a.json"),
    ]


def test_what_does_not_fit_is_left_out_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text(TWO_NODES)
    found = planned(
        tmp_path,
        """\
topology: ndv2
nodes: [1, 2]
collectives: [allgather, alltoall]
sizes: [1M, 2M, 4M]
fidelity: ideal
methods: [milp, hierarchical]
sketches: [two.json, none]
""",
    )
    counts = Counter(
        (p.point.method, p.point.collective, p.point.nodes, p.point.sketch is not None)
        for p in found.points
    )
    assert counts["milp", "allgather", 2, True] == 3
    assert counts["milp", "allgather", 1, False] == 3
    assert counts["milp", "allgather", 1, True] == 0
    assert counts["hierarchical", "allgather", 1, False] == 0
    assert counts["hierarchical", "allgather", 2, False] == 3
    reasons = {s.what: (s.points, s.reason) for s in found.skipped}
    assert reasons["milp allgather with two.json on ndv2 with 8 ranks"] == (
        3,
        "two.json: nnodes: the sketch is for 2 nodes, got 1",
    )
    points, reason = reasons["hierarchical alltoall on ndv2 with 8 ranks"]
    assert points == 3
    assert reason == "hierarchical needs several nodes, ndv2 is one"
    assert len(found.points) + sum(s.points for s in found.skipped) == 2 * 2 * 3 * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("topology: ring:x", "s.yaml:1: topology: "),
        ("topology: ndv2\nnodes: 5000", "s.yaml:2: nodes: got 5000"),
        ("topology: ring:4\nnodes: 2", "s.yaml:1: topology: got 2, but ring:4 is a single"),
        ("topology: bad.yaml", "s.yaml:1: topology: "),
        ("topology: full:4\nroot: 4", "s.yaml:2: root: rank 4 does not exist, 'full:4' has"),
        (
            "topology: full:4\nsketches: two.json",
            "s.yaml:2: sketches: 'two.json' fits no machine here: two.json: nnodes: the sketch is",
        ),
        (
            "topology: full:4\nmethods: ring\nsketches: two.json",
            "s.yaml:3: sketches: no method here takes a sketch",
        ),
        ("topology: full:4\nchannels: 2", "s.yaml:2: channels: only baselines take channels"),
        ("topology: full:4\nsizes: profile", "s.yaml:2: sizes: `profile` needs a machine whose"),
    ],
)
def test_what_only_shows_with_the_machine_is_told_at_its_line(
    tmp_path: Path, change: str, said: str
) -> None:
    (tmp_path / "two.json").write_text(TWO_NODES)
    (tmp_path / "bad.yaml").write_text("nonsense\n")
    rest = {"collectives": "allgather", "sizes": "1M", "fidelity": "ideal", "methods": "milp"}
    text = change + "".join(f"\n{k}: {v}" for k, v in rest.items() if f"\n{k}:" not in change)
    found = problems(tmp_path, text)
    assert any(p.startswith(said) for p in found), found


def test_case_c53_an_explosion_is_refused_with_its_arithmetic(tmp_path: Path) -> None:
    for k in range(5):
        (tmp_path / f"s{k}.json").write_text(SKETCH)
    text = """\
fidelity: ideal
methods: milp
sizes: 1K..16G x2
sketches: [s0.json, s1.json, s2.json, s3.json, s4.json]
chunks: [1, 2, 4, 8, 16, 32]
collectives: [allgather, alltoall, allreduce, reducescatter]
scenarios:
  - {name: two, topology: dgx_a100, nodes: 2}
  - {name: four, topology: dgx_a100, nodes: 4}
"""
    product = (
        "25 sizes x 4 collectives x 6 chunk counts x 5 methods with their sketches or channels"
    )
    assert problems(tmp_path, text) == [
        f"s.yaml:8: scenarios[0].name: two is {product} = 3000 points",
        f"s.yaml:9: scenarios[1].name: four is {product} = 3000 points",
        "s.yaml: 6000 points in all, more than 5000; shorten an axis, or say `max_points: 6000`"
        " if you mean it",
    ]
    found = planned(tmp_path, text + "max_points: 6000\n")
    # The five sketches are the same file five times, so a fifth is left.
    assert len(found.points) == 6000 / 5


def test_case_c11_sizes_that_do_not_divide_are_rounded_down_when_they_run(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        """\
topology: full:12
collectives: allgather
sizes: [1MiB, 1000000, 48, 100]
fidelity: ideal
methods: allpairs
chunks: 5
""",
    )
    asked = [p.point.size_bytes for p in found.points]
    assert asked == [1048576, 1000000, 48, 100]
    run = [sizing(Collective("allgather", 12, 5), size).size_bytes for size in asked]
    # Multiples of 12 ranks x 5 chunks x 4 bytes = 240.
    assert run == [4369 * 240, 4166 * 240, 0, 0]


def test_case_c12_and_c39_zero_sizes_and_one_rank_are_points_like_others(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        """\
collectives: alltoall
fidelity: ideal
methods: allpairs
scenarios:
  - {name: tiny, topology: "full:8", sizes: [0, 1, 4, 8, 31, 32]}
  - {name: one, topology: "ring:1", sizes: 1MiB}
""",
    )
    assert len(found.points) == 7
    assert found.skipped == ()


def line(beta: float = 2.0, name: str = "m") -> Topology:
    devices = (Device("gpu0", "gpu"), Device("gpu1", "gpu"))
    links = (Link(0, 1, "nvlink", 1.0, beta), Link(1, 0, "nvlink", 1.0, 2.0))
    return Topology(name, devices, links)


def test_a_key_changes_with_what_the_result_depends_on_and_with_nothing_else() -> None:
    point = DesignPoint("a.yaml", None, "allgather", 1024, "milp", sketch="b.json")
    key = content_key(point, "machine", "sketch", "code")
    moved = replace(point, topology="elsewhere/a.yaml", sketch="elsewhere/b.json")
    assert content_key(moved, "machine", "sketch", "code") == key
    assert identity(moved) != identity(point)
    others = [
        content_key(point, "other", "sketch", "code"),
        content_key(point, "machine", "other", "code"),
        content_key(point, "machine", "sketch", "other"),
    ]
    changes: list[dict[str, object]] = [
        {"nodes": 1},
        {"collective": "alltoall"},
        {"size_bytes": 1025},
        {"size_bytes": None},
        {"method": "greedy"},
        {"root": 1},
        {"placement": "in"},
        {"chunks": 1},
        {"cost_model": "pipelined"},
        {"fidelity": "runtime"},
        {"protocol": "LL"},
        {"channels": 2},
        {"instances": 2},
        {"dialect": "msccl"},
        {"time_limit_s": 1.0},
        {"node_limit": 1},
    ]
    others += [content_key(replace(point, **c), "machine", "sketch", "code") for c in changes]
    assert len({key, *others}) == 1 + len(others)
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


def test_an_identity_is_what_was_asked_whatever_fields_a_point_comes_to_have() -> None:
    import hashlib

    point = DesignPoint("ring:4", None, "allgather", 1024, "ring", channels=2)
    text = '{"channels":2,"collective":"allgather","method":"ring","nodes":null,'
    text += '"size_bytes":1024,"topology":"ring:4"}'
    assert identity(point) == hashlib.sha256(text.encode()).hexdigest()
    assert identity(replace(point, channels=1)) != identity(point)


@given(st.floats(0.1, 100), st.floats(0.1, 100))
def test_a_machine_is_its_devices_and_exact_costs(a: float, b: float) -> None:
    assert (topology_digest(line(a)) == topology_digest(line(b))) == (a == b)
    assert topology_digest(line(a)) != topology_digest(line(a, "other"))


def test_keys_follow_the_files_of_a_scenario(tmp_path: Path) -> None:
    text = """\
topology: full:4
collectives: allgather
sizes: 1M
fidelity: ideal
methods: milp
sketches: a.json
"""
    (tmp_path / "a.json").write_text(SKETCH)
    (before,) = planned(tmp_path, text).points
    (again,) = planned(tmp_path, text).points
    assert again == before
    (tmp_path / "a.json").write_text(SKETCH + "\n")
    (edited,) = planned(tmp_path, text).points
    assert edited.key != before.key
    assert edited.identity == before.identity
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text(SKETCH)
    (moved,) = planned(tmp_path / "other", text).points
    assert moved.key == before.key


def test_the_code_version_names_the_package_and_its_source() -> None:
    import explorer

    version, _, digest = code_version().partition("+")
    assert version == explorer.__version__
    assert len(digest) == 12


@pytest.mark.parametrize("folder", ["smoke", "studies"])
def test_shipped_scenarios_expand(folder: str) -> None:
    files = sorted(Path(__file__).parent.parent.joinpath("scenarios", folder).glob("*.yaml"))
    assert files
    for file in files:
        found = plan(load_scenario(file))
        assert found.points, file
        assert expand(load_scenario(file)) == found.points
    assert files[0].name in ("allgather_ring4.yaml", "dgx2.yaml")


def test_the_words_of_this_installation() -> None:
    words = known_words()
    assert {"milp"} <= set(words.synthesizers)
    assert {"ring", "allpairs", "recursive", "hierarchical"} <= set(words.baselines)
    assert {"ndv2", "dgx2", "ring"} <= set(words.topologies)
    assert {"ndv2-sk-1", "dgx2-sk-2"} <= set(words.sketches)
    assert words.dialects[-1] == "unlimited"
