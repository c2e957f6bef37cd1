"""Scenario files: what they say, and every mistake in them at its line, all at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from explorer.errors import InputError
from explorer.scenario.load import MAX_POINTS, Scenario, load_scenario
from explorer.scenario.schema import Limits, Section
from explorer.scenario.words import Words

WORDS = Words(
    topologies=("dgx2", "dgx_a100", "ndv2", "ring"),
    synthesizers=("milp",),
    baselines=("ring", "allpairs", "hierarchical"),
    sketches=("ndv2-sk-1", "ndv2-sk-2"),
    dialects=("msccl", "executor", "unlimited"),
)
SMALL = """\
topology: ndv2
collectives: allgather
sizes: 1M
fidelity: ideal
methods: ring
"""


def load(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return load_scenario(path, WORDS)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    return [str(p).removeprefix(f"{tmp_path}/") for p in error.value.problems]


def test_the_smallest_scenario_and_its_defaults(tmp_path: Path) -> None:
    scenario = load(tmp_path, SMALL)
    (section,) = scenario.sections
    assert (scenario.name, section.name, scenario.max_points) == ("s", "s", MAX_POINTS)
    assert section.nodes is None
    assert section.collectives == ("allgather",)
    assert section.all_sizes == (1 << 20,)
    assert section.sketches == ("none",)
    assert section.chunks == (None,)
    assert (section.placement, section.root, section.cost_model) == (("out",), 0, "exclusive")
    assert (section.protocols, section.channels, section.instances) == (("Simple",), (1,), (1,))
    assert (section.dialect, section.limits) == (
        "executor",
        Limits(time_s=None, nodes=None, point_s=None),
    )


def test_every_key_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "sk.json").write_text("x")
    scenario = load(
        tmp_path,
        """\
name: full
max_points: 100000
topology: machine.yaml
nodes: [1, 2, 4]
collectives: [allgather, alltoall]
sizes: [0, 1K..64K x4, 1MB, 1e6, 2048]
fidelity: runtime
methods: [milp, ring]
sketches: [none, ndv2-sk-1, sub/sk.json]
chunks: [default, 1, 4]
placement: [in, out]
root: 3
cost_model: pipelined
protocols: [Simple, LL]
channels: [1, 2]
instances: [1, 4]
dialect: unlimited
limits: {time_s: 20, nodes: 100, point_s: 90.5}
""",
    )
    (section,) = scenario.sections
    assert (scenario.name, section.name, scenario.max_points) == ("full", "full", 100_000)
    assert section.all_sizes == (0, 1024, 4096, 16384, 65536, 10**6, 2048)
    assert section.chunks == (None, 1, 4)
    assert section.limits == Limits(time_s=20.0, nodes=100, point_s=90.5)
    assert scenario.file_of("machine.yaml") == f"{tmp_path}/machine.yaml"
    assert scenario.file_of("ndv2") == "ndv2"


def test_several_machines_share_the_keys_beside_them(tmp_path: Path) -> None:
    scenario = load(
        tmp_path,
        """\
name: two
sizes: [1M]
fidelity: ideal
methods: [ring]
collectives: [allgather]
scenarios:
  - {name: a, topology: ndv2}
  - {name: b, topology: "ring:4", sizes: [2M], methods: [milp]}
""",
    )
    assert scenario.name == "two"
    a, b = scenario.sections
    assert (a.name, a.topology, a.all_sizes, a.methods) == ("a", "ndv2", (1 << 20,), ("ring",))
    assert (b.name, b.topology, b.all_sizes, b.methods) == ("b", "ring:4", (1 << 21,), ("milp",))


def test_sizes_of_a_profile_have_a_word(tmp_path: Path) -> None:
    (section,) = load(tmp_path, SMALL.replace("1M", "profile")).sections
    assert section.all_sizes == (None,)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
nam: x
topology: ndv22
nodes: [2, 0, x]
collectives: [allgather, alltoal]
sizes: [1K, 1Q, "1K..", -3]
fidelity: idela
methods: [mlip, 3]
chunks: []
limits: {tim_s: 3, time_s: -1}
protocols: ll128
root: -1
max_points: none
""",
    )
    assert found == [
        "s.yaml:1: nam: unknown key, did you mean 'name'?",
        "s.yaml:2: topology: got 'ndv22', neither a builder nor a file beside the scenario;"
        " did you mean 'ndv2'?",
        "s.yaml:3: nodes[1]: got 0, expected a whole number from 1 to 4096",
        "s.yaml:3: nodes[2]: got 'x', expected a whole number from 1 to 4096",
        "s.yaml:4: collectives[1]: got 'alltoal', did you mean 'alltoall'?",
        "s.yaml:5: sizes[1]: got '1Q', expected a size such as 65536, 64K, 1MiB (1024^2) or 1MB"
        " (1000^2)",
        "s.yaml:5: sizes[2]: got '1K..', expected a range such as 1K..1G x4",
        "s.yaml:5: sizes[3]: got -3, a size cannot be negative",
        "s.yaml:6: fidelity: got 'idela', did you mean 'ideal'?",
        "s.yaml:7: methods[0]: got 'mlip', did you mean 'milp'?",
        "s.yaml:7: methods[1]: got 3, expected text",
        "s.yaml:8: chunks: is empty, expected at least one value",
        "s.yaml:9: limits.time_s: got -1, expected seconds above 0",
        "s.yaml:9: limits.tim_s: unknown key, did you mean 'time_s'?",
        "s.yaml:10: protocols: got 'll128', did you mean 'LL128'?",
        "s.yaml:11: root: got -1, expected a rank from 0",
        "s.yaml:12: max_points: got 'none', expected a whole number from 1",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sizes: []", "s.yaml:3: sizes: is empty"),
        ("sizes:", "s.yaml:3: sizes: got None, expected a size such as 64K"),
        ("sizes: true", "s.yaml:3: sizes: got True, expected a size"),
        ("sizes: {a: 1}", "s.yaml:3: sizes: got {'a': 1}, expected a size"),
        ("sizes: 4M..1M", "s.yaml:3: sizes: got '4M..1M', expected 1 <= first <= last"),
        ("sizes: 1K..1M x1", "s.yaml:3: sizes: got factor 1 in '1K..1M x1'"),
        ("sizes: 1.5", "s.yaml:3: sizes: got '1.5', which is 1.5 bytes, not a whole number"),
        ("sizes: [[1K]]", "s.yaml:3: sizes[0]: got ['1K'], expected a size"),
        ("sizes: 9E99", "s.yaml:3: sizes: got"),
        ("sizes: 1M\nnodes: 2.5", "s.yaml:4: nodes: got 2.5, expected a whole number"),
        ("sizes: 1M\nnodes: true", "s.yaml:4: nodes: got True, expected a whole number"),
        ("sizes: 1M\nchunks: 0", "s.yaml:4: chunks: got 0, expected a whole number from 1 to"),
        ("sizes: 1M\nchunks: defalt", "s.yaml:4: chunks: got 'defalt'"),
        ("sizes: 1M\nchannels: 65", "s.yaml:4: channels: got 65, expected a whole number from 1"),
        ("sizes: 1M\nname: a/b", "s.yaml:4: name: got 'a/b', expected at most 63 of"),
        ("sizes: 1M\nname: 3", "s.yaml:4: name: got 3, expected text"),
        ("sizes: 1M\nlimits: 20", "s.yaml:4: limits: got 20, expected keys time_s, nodes, point_s"),
        ("sizes: 1M\nlimits: {time_s: .inf}", "s.yaml:4: limits.time_s: got inf"),
        ("sizes: 1M\nsketches: ndv2-sk-3", "s.yaml:4: sketches: got 'ndv2-sk-3', neither"),
        ("sizes: 1M\nplacement: inside", "s.yaml:4: placement: got 'inside'"),
        ("sizes: 1M\ncost_model: tight", "s.yaml:4: cost_model: got 'tight', expected one of"),
        ("sizes: 1M\ndialect: rccl", "s.yaml:4: dialect: got 'rccl', did you mean 'msccl'?"),
        ("sizes: 1M\ncollective: allgather", "collective: unknown key, did you mean 'collectives'"),
        ("sizes: 1M\nranks: 12", "s.yaml:4: ranks: unknown key, expected one of channels, chunks,"),
        ("sizes: 1M\nmax_points: 0", "s.yaml:4: max_points: got 0"),
        ("sizes: 1M\nscenarios: []", "s.yaml:4: scenarios: got [], expected a list of at least"),
        ("sizes: 1M\nscenarios: {a: 1}", "s.yaml:4: scenarios: got {'a': 1}, expected a list"),
        ("sizes: 1M\nscenarios: [x]", "s.yaml:4: scenarios[0]: got 'x', expected keys"),
    ],
)
def test_one_mistake(tmp_path: Path, change: str, said: str) -> None:
    text = SMALL.replace("sizes: 1M", change)
    assert any(said in problem for problem in problems(tmp_path, text))


@pytest.mark.parametrize("key", ["topology", "collectives", "sizes", "fidelity", "methods"])
def test_a_key_that_must_be_there(tmp_path: Path, key: str) -> None:
    text = re.sub(rf"^{key}:.*\n", "", SMALL, flags=re.MULTILINE)
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(f"s.yaml:1: {key}: is missing; expected: ")


def test_a_mistake_in_the_shared_keys_is_told_once_and_there(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
sizes: 1Q
fidelty: ideal
scenarios:
  - name: a
    topology: ndv2
    collectives: allgather
    methods: ring
    fidelity: ideal
  - {name: a, topology: ndv2, collectives: allgather, methods: ring}
  - {topology: ndv2, collectives: allgather, methods: ring, fidelity: ideal}
""",
    )
    assert found == [
        "s.yaml:1: sizes: got '1Q', expected a size such as 65536, 64K, 1MiB (1024^2) or 1MB"
        " (1000^2)",
        "s.yaml:2: fidelty: unknown key, did you mean 'fidelity'?",
        "s.yaml:9: scenarios[1].fidelity: is missing; expected: `ideal` or `runtime`: what"
        " simulated times include.",
        "s.yaml:9: scenarios[1].name: 'a' is already the scenario of line 4",
        "s.yaml:10: scenarios[2].name: is missing; expected: Unique in the file; with one scenario"
        " in the file, the file's name.",
    ]


def test_case_c53_two_scenarios_of_one_name(tmp_path: Path) -> None:
    entry = (
        "  - {name: a100, topology: dgx_a100, nodes: %d, sizes: 1K..16G x2, fidelity: ideal,"
        " methods: [milp], sketches: [s1, s2], chunks: [1, 2], collectives: [allgather]}\n"
    )
    found = problems(tmp_path, "scenarios:\n" + entry % 2 + entry % 4)
    assert [p for p in found if "a100" in p] == [
        "s.yaml:3: scenarios[1].name: 'a100' is already the scenario of line 2"
    ]
    assert sum("sketches[" in p and "neither a sketch nor a file" in p for p in found) == 4


def test_what_is_not_a_mapping(tmp_path: Path) -> None:
    assert problems(tmp_path, "- a\n- b\n") == [
        "s.yaml:1: got ['a', 'b'], expected keys such as name, topology"
    ]


def test_the_reference_documents_every_key() -> None:
    text = Path(__file__).parent.parent.joinpath("docs", "scenarios.md").read_text()
    keys = [*Section.model_fields, *(f"limits.{k}" for k in Limits.model_fields)]
    missing = [k for k in [*keys, "scenarios", "max_points"] if f"| `{k}` |" not in text]
    assert missing == []
