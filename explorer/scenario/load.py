"""Scenario: a YAML file of sections, read with every problem at its line at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from explorer.errors import InputError, Problem, nearest
from explorer.scenario.schema import NAME, Limits, Section
from explorer.scenario.words import Words, known_words
from explorer.scenario.yaml_tree import KeyPath, YamlTree, read_yaml

MAX_POINTS = 5_000
"""Points a scenario may have without saying ``max_points``."""

_TOP_ONLY = ("scenarios", "max_points")


@dataclass(frozen=True)
class Scenario:
    """A scenario file.

    Parameters
    ----------
    name
        Its ``name``, else the file's.
    source
        Path as it was given.
    sections
        Machines with their axes, names unique.
    max_points
        Points above which the scenario is refused.
    tree
        The YAML with its lines, for problems that show later.
    paths
        Key path of each section in the file.
    """

    name: str
    source: str
    sections: tuple[Section, ...]
    max_points: int
    tree: YamlTree = field(repr=False, compare=False)
    paths: tuple[KeyPath, ...] = field(repr=False, compare=False)

    def problem(self, section: Section, key: str, message: str) -> Problem:
        """Say what is wrong with a key of a section, at its line in the file."""
        at = self.paths[self.sections.index(section)]
        path = (*at, key) if self.gives(section, key) else (key,)
        return self.tree.problem(path if path in self.tree.lines else at, message)

    def gives(self, section: Section, key: str) -> bool:
        """Whether a section itself, not the defaults beside it, gives a key."""
        return (*self.paths[self.sections.index(section)], key) in self.tree.lines

    def file_of(self, value: str) -> str:
        """Path of a file named in the scenario, relative to where the scenario was named."""
        path = Path(self.source).parent / value
        return os.path.normpath(path) if path.is_file() else value


def load_scenario(path: str | Path, words: Words | None = None) -> Scenario:
    """Read a scenario.

    Parameters
    ----------
    path
        YAML file; keys in ``docs/scenarios.md``.
    words
        Known machines, methods, sketches and targets; those of this installation when None.

    Raises
    ------
    InputError
        With every problem as ``file:line: key path: message``.
    """
    tree = read_yaml(Path(path))
    data = tree.data
    if not isinstance(data, dict):
        raise InputError(tree.problem((), f"got {data!r}, expected keys such as name, topology"))
    context = {"words": words or known_words(), "folder": Path(path).parent}
    problems: list[Problem] = []
    max_points = _max_points(tree, data.get("max_points", MAX_POINTS), problems)
    defaults = {key: value for key, value in data.items() if key not in _TOP_ONLY}
    if "scenarios" in data:
        name = defaults.pop("name", Path(path).stem)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problems.append(tree.problem(("name",), f"got {name!r}, expected a name"))
        entries = _entries(tree, data["scenarios"], problems)
    else:
        name = data.get("name", Path(path).stem)
        entries = {(): {"name": name}}
    sections = {
        at: _section(tree, at, entry, defaults, context, problems) for at, entry in entries.items()
    }
    problems += _repeated_names(tree, entries)
    if problems:
        raise InputError(tuple(dict.fromkeys(sorted(problems, key=_line))))
    return Scenario(
        str(name),
        str(path),
        tuple(section for section in sections.values() if section is not None),
        max_points,
        tree,
        tuple(sections),
    )


def _max_points(tree: YamlTree, value: object, problems: list[Problem]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    problems.append(tree.problem(("max_points",), f"got {value!r}, expected a whole number from 1"))
    return MAX_POINTS


def _entries(
    tree: YamlTree, value: object, problems: list[Problem]
) -> dict[KeyPath, Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        problems.append(
            tree.problem(("scenarios",), f"got {value!r}, expected a list of at least one scenario")
        )
        return {}
    entries: dict[KeyPath, Mapping[str, Any]] = {}
    for i, entry in enumerate(value):
        if isinstance(entry, dict):
            entries["scenarios", i] = entry
        else:
            problems.append(
                tree.problem(("scenarios", i), f"got {entry!r}, expected keys such as topology")
            )
    return entries


def _section(
    tree: YamlTree,
    at: KeyPath,
    entry: Mapping[str, Any],
    defaults: Mapping[str, Any],
    context: Mapping[str, Any],
    problems: list[Problem],
) -> Section | None:
    """Validate one entry on top of the defaults beside ``scenarios``."""
    try:
        return Section.model_validate({**defaults, **entry}, context=dict(context))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            loc = detail["loc"]
            path = (*at, *loc) if loc and loc[0] in entry else loc
            if detail["type"] == "missing" and len(loc) == 1:
                path = (*at, *loc)
            problems.append(tree.problem(_written(tree, path), _message(detail)))
        return None


def _written(tree: YamlTree, path: KeyPath) -> KeyPath:
    """Drop a trailing index that the file does not have: an axis given as one value."""
    return path[:-1] if path and isinstance(path[-1], int) and path not in tree.lines else path


def _message(detail: ErrorDetails) -> str:
    kind, loc, got = detail["type"], detail["loc"], detail["input"]
    model = Limits if loc[:1] == ("limits",) else Section
    if kind == "extra_forbidden":
        allowed = [*model.model_fields, *(_TOP_ONLY if model is Section else ())]
        return f"unknown key, {nearest(str(loc[-1]), allowed)}"
    if kind == "missing":
        about = model.model_fields[str(loc[-1])].description
        return f"is missing; expected: {about}"
    if kind == "model_type":
        return f"got {got!r}, expected keys {', '.join(model.model_fields)}"
    return detail["msg"]


def _repeated_names(tree: YamlTree, entries: Mapping[KeyPath, Mapping[str, Any]]) -> list[Problem]:
    first: dict[str, KeyPath] = {}
    problems = []
    for at, entry in entries.items():
        name = str(entry.get("name"))
        if "name" in entry and name in first:
            line = tree.lines[*first[name], "name"]
            problems.append(
                tree.problem((*at, "name"), f"{name!r} is already the scenario of line {line}")
            )
        first.setdefault(name, at)
    return problems


def _line(problem: Problem | str) -> int:
    line = problem.where.rpartition(":")[2] if isinstance(problem, Problem) else ""
    return int(line) if line.isdigit() else 0
