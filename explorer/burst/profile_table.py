"""Hand-written profiles in YAML: a chain of layers and ms per batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.burst.profile import Layer, Profile, check_layer
from explorer.errors import InputError, Problem, nearest
from explorer.scenario.yaml_tree import parse_yaml

KEYS = ("name", "global_batch", "gpus", "layers", "profile", "params", "out_elems", "step_us")


def profile_of_table(text: str, source: str) -> Profile:
    """Read ``{global_batch, gpus, layers: [names], profile: {name: {batch: ms}}}``.

    ``params`` and ``out_elems`` (by layer) are optional; without them nothing is all-reduced and
    nothing moves, which is said. Times are of both directions together, a third of it forward.

    Raises
    ------
    InputError
        With everything that is wrong, by line.
    """
    tree = parse_yaml(text, source)
    data = tree.data
    if not isinstance(data, Mapping) or not isinstance(data.get("profile"), Mapping):
        raise InputError(Problem(source, "expected keys 'layers' and 'profile'"))
    problems = [
        tree.problem((str(key),), f"unknown key, {nearest(str(key), KEYS)}")
        for key in data
        if key not in KEYS
    ]
    names = data.get("layers") or list(data["profile"])
    layers = []
    for i, name in enumerate(names):
        times = data["profile"].get(name)
        if not isinstance(times, Mapping) or not times:
            problems.append(tree.problem(("profile", str(name)), "no times {batch: ms} for it"))
            continue
        try:
            layer = _layer(data, i, str(name), times)
        except (TypeError, ValueError):
            problems.append(tree.problem(("profile", str(name)), "expected {batch: ms}"))
            continue
        layers.append(layer)
        problems += [
            tree.problem(("profile", str(name)), p.message) for p in check_layer("", layer)
        ]
    problems += [
        tree.problem(("profile", str(name)), "is not among the layers")
        for name in data["profile"]
        if name not in names
    ]
    if len(set(map(str, names))) < len(names):
        problems.append(tree.problem(("layers",), "a layer appears twice"))
    for key in ("global_batch", "gpus"):
        value = data.get(key)
        if value is not None and (type(value) is not int or value < 1):
            problems.append(tree.problem((key,), f"got {value!r}, expected a whole number >= 1"))
    if problems:
        raise InputError(problems)
    notes = ["times are of both directions together: a third counted as forward"]
    if not data.get("params"):
        notes.append("no 'params': no gradient is all-reduced")
    if not data.get("out_elems"):
        notes.append("no 'out_elems': moving activations costs its latency only")
    return Profile(
        str(data.get("name", source)),
        tuple(layers),
        source,
        data.get("step_us"),
        batch=data.get("global_batch"),
        gpus=data.get("gpus"),
        notes=tuple(notes),
    )


def _layer(data: Mapping[str, Any], i: int, name: str, times: Mapping[Any, Any]) -> Layer:
    pairs = sorted((int(batch), float(ms) * 1e3) for batch, ms in times.items())
    return Layer(
        name,
        "layer",
        (i - 1,) if i else (),
        int((data.get("params") or {}).get(name, 0)),
        int((data.get("out_elems") or {}).get(name, 0)),
        tuple(batch for batch, _ in pairs),
        tuple(us / 3 for _, us in pairs),
        tuple(us * 2 / 3 for _, us in pairs),
    )
