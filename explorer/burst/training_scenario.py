"""Training scenarios: the options of ``explorer plan`` in a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from explorer.burst.read_profile import training_folder
from explorer.burst.request import KEYS
from explorer.errors import InputError, Problem, nearest
from explorer.scenario.yaml_tree import YamlTree, read_yaml
from explorer.units import parse_rate_gbs, parse_size

OTHER = ("name", "cluster")
"""Keys that planning does not read: a title, and the section of the cluster simulation."""

_WHOLE = ("gpus", "batch", "nodes")
_NUMBERS = ("limit", "price", "latency_us", "step_us", "exempt_us")


def load_training(path: Path) -> dict[str, Any]:
    """Read the fields of a :class:`~explorer.burst.request.PlanRequest` from a scenario.

    Profiles and topologies that are files are looked for beside the scenario. A shipped scenario
    may be named without its folder and suffix.

    Raises
    ------
    InputError
        If it cannot be read, has unknown keys, or values of the wrong kind; all with their lines.
    """
    if not path.exists() and "/" not in str(path):
        shipped = training_folder() / f"{path}.yaml"
        if not shipped.is_file():
            names = sorted(p.stem for p in training_folder().glob("*.yaml"))
            raise InputError(
                Problem(str(path), f"no such file or scenario, {nearest(str(path), names)}")
            )
        path = shipped
    tree = read_yaml(path)
    if not isinstance(tree.data, Mapping):
        raise InputError(Problem(str(path), "expected keys such as profile, gpus and batch"))
    fields: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in tree.data.items():
        if key in OTHER:
            continue
        if key not in KEYS:
            words = [*KEYS, *OTHER]
            problems.append(tree.problem((str(key),), f"unknown key, {nearest(str(key), words)}"))
            continue
        try:
            fields[KEYS[key]] = _value(str(key), value, path.parent)
        except (ValueError, InputError) as error:
            text = error.problems[0].message if isinstance(error, InputError) else str(error)
            problems.append(tree.problem((str(key),), text))
    if "profile" not in tree.data:
        problems.append(_missing(tree))
    if problems:
        raise InputError(problems)
    return fields


def _missing(tree: YamlTree) -> Problem:
    return tree.problem((), "lacks the key 'profile'")


def _value(key: str, value: object, folder: Path) -> object:
    if key == "memory":
        return float(parse_size(value if isinstance(value, int) else str(value), key))
    if key == "bandwidth":
        return parse_rate_gbs(str(value), key)
    if key in _WHOLE:
        if type(value) is not int:
            raise ValueError(f"got {value!r}, expected a whole number")
        return value
    if key in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"got {value!r}, expected a number")
        return float(value)
    if key == "extrapolate":
        if not isinstance(value, bool):
            raise ValueError(f"got {value!r}, expected true or false")
        return value
    if not isinstance(value, str):
        raise InputError(f"got {value!r}, expected a word")
    beside = folder / value
    return str(beside) if key in ("profile", "topology") and beside.is_file() else value
