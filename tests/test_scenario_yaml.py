"""YAML of a scenario: types as people mean them, lines, and no way to make the reader suffer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import InputError
from explorer.scenario.yaml_tree import (
    MAX_BYTES,
    MAX_DEPTH,
    parse_yaml,
    path_text,
    read_yaml,
)


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as error:
        parse_yaml(text, "s.yaml")
    return [str(problem) for problem in error.value.problems]


def test_values_have_their_yaml_1_2_types_and_lines() -> None:
    text = (
        "# a comment\n"
        "name: on\n"
        "sizes:\n"
        "  - 1K\n"
        "  - 010\n"
        "  - 1e6\n"
        "limits: {time_s: 2.5, x: ~, y: true}\n"
        "when: 2024-01-01\n"
    )
    tree = parse_yaml(text, "s.yaml")
    assert tree.data == {
        "name": "on",
        "sizes": ["1K", 10, 1e6],
        "limits": {"time_s": 2.5, "x": None, "y": True},
        "when": "2024-01-01",
    }
    assert tree.lines["name",] == 2
    assert tree.lines["sizes", 1] == 5
    assert tree.lines["limits", "y"] == 7
    assert str(tree.problem(("sizes", 2), "bad")) == "s.yaml:6: sizes[2]: bad"
    assert str(tree.problem(("limits", "z", "w"), "bad")) == "s.yaml:7: limits.z.w: bad"
    assert str(tree.problem((), "bad")) == "s.yaml:2: bad"
    assert path_text(("scenarios", 0, "sizes", 2)) == "scenarios[0].sizes[2]"


def test_every_repeated_key_is_told_with_both_lines() -> None:
    assert problems("a: 1\nb: {c: 1, c: 2}\na: 2\na: 3\n") == [
        "s.yaml:2: b.c: repeated, first given in line 2",
        "s.yaml:3: a: repeated, first given in line 1",
        "s.yaml:4: a: repeated, first given in line 1",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", "s.yaml:2: not valid YAML: expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", "s.yaml:2: not valid YAML: found character '\\t'"),
        ("a: *nobody\n", "s.yaml:1: not valid YAML: found undefined alias 'nobody'"),
        ("a: 1\n---\nb: 2\n", "s.yaml:2: not valid YAML: but found another document"),
        ("a: 'x\n", "s.yaml:2: not valid YAML: found unexpected end"),
        ("", "s.yaml: is empty"),
        ("# only a comment\n", "s.yaml: is empty"),
        ("a: !!python/object/apply:os.system [x]\n", "s.yaml:1: a: the tag tag:yaml.org,2002:pyth"),
        ("a:\n- !mine {b: 1}\n", "s.yaml:2: a[0]: the tag !mine is not allowed"),
        ("a: !!set {b, c}\n", "s.yaml:1: a: the tag tag:yaml.org,2002:set"),
        ("a: !!binary aGk=\n", "s.yaml:1: a: the tag tag:yaml.org,2002:binary"),
        ("? [a, b]\n: 1\n", "s.yaml:1: a key must be one word"),
        ("a: &x [*x]\n", "aliases unfold to more than"),
        ("\x00", "not valid YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_told_where(text: str, said: str) -> None:
    assert any(said in problem for problem in problems(text))


def test_a_document_that_unfolds_through_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (problem,) = problems("\n".join(lines))
    assert "aliases unfold to more than" in problem


def test_a_few_aliases_are_fine() -> None:
    tree = parse_yaml("a: &s [1K, 2K]\nb: *s\n", "s.yaml")
    assert tree.data == {"a": ["1K", "2K"], "b": ["1K", "2K"]}


@pytest.mark.parametrize("text", ["[" * 50_000, "{a: " * 20_000, "- " * 20_000 + "x"])
def test_deep_nesting_is_refused_before_it_is_followed(text: str) -> None:
    (problem,) = problems(text)
    assert f"nested deeper than {MAX_DEPTH} levels" in problem


def test_files_that_cannot_be_scenarios(tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(InputError) as error:
            read_yaml(path)
        return str(error.value)

    assert "none.yaml: cannot be read: No such file or directory" in said(tmp_path / "none.yaml")
    assert "cannot be read: Is a directory" in said(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    assert "is not UTF-8 text (byte 9)" in said(tmp_path / "latin.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    assert f"has {MAX_BYTES + 1} bytes" in said(tmp_path / "huge.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(tmp_path / "bom.yaml").data == {"a": 1}


_scalars = st.one_of(
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=8),
)
_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text("abcdef", min_size=1, max_size=4), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=4), _trees, min_size=1, max_size=4))
def test_json_which_is_yaml_reads_as_json_does(data: dict[str, object]) -> None:
    assert parse_yaml(json.dumps(data), "s").data == data


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_yaml(text, "s.yaml")
    except InputError as refused:
        where = [problem.where for problem in refused.problems]
        assert [w for w in where if not w.startswith("s.yaml")] == []
