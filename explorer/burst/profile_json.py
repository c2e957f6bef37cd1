"""Profiles in JSON: one object per layer with its graph, sizes and ``profile_us``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from explorer.burst.profile import Layer, Profile, check_layer, ordered
from explorer.errors import InputError, Problem


def profile_of_json(text: str, source: str) -> Profile:
    """Read the JSON layout of ``scenarios/training/profiles``.

    Top: ``model``, ``layers``, and optionally ``step_us``, ``precision``, ``source``,
    ``analytic_model`` (with ``act_bytes``, ``param_bytes``). A layer: ``name``, ``op``, ``prev``,
    ``params``, ``out_elems_per_sample`` and ``profile_us`` {batch: [forward us, backward us]}.

    Raises
    ------
    InputError
        With everything that is wrong, by layer.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(Problem(f"{source}:{error.lineno}", f"not JSON: {error.msg}")) from None
    if not isinstance(data, dict) or not isinstance(data.get("layers"), list):
        raise InputError(Problem(source, "expected an object with a list 'layers'"))
    problems: list[Problem] = []
    layers = []
    for i, entry in enumerate(data["layers"]):
        where = f"{source}: layers[{i}]"
        if not isinstance(entry, Mapping):
            problems.append(Problem(where, f"is {type(entry).__name__}, expected an object"))
            continue
        layer, found = _layer(where, entry)
        problems += found
        if layer is not None:
            layers.append(layer)
    if problems:
        raise InputError(problems)
    placed, problems = ordered(source, layers)
    if problems:
        raise InputError(problems)
    return _profile(data, placed, source)


def _profile(data: Mapping[str, Any], layers: tuple[Layer, ...], source: str) -> Profile:
    widths = data.get("analytic_model", {})
    step = data.get("step_us")
    act, param = int(widths.get("act_bytes", 4)), int(widths.get("param_bytes", 4))
    problems = []
    if step is not None and not (isinstance(step, (int, float)) and 0 <= step < float("inf")):
        problems.append(Problem(source, f"step_us is {step!r}, expected a number >= 0"))
    if act < 1 or param < 1:
        problems.append(Problem(source, f"act_bytes {act}, param_bytes {param}: expected >= 1"))
    if problems:
        raise InputError(problems)
    notes = [str(data[key]) for key in ("note",) if data.get(key)]
    estimated = [
        str(entry["name"])
        for entry in data["layers"]
        if not str(entry.get("profile_source", "measured")).startswith("measured")
    ]
    if estimated:
        notes.append(f"{len(estimated)} of {len(layers)} layers are not measured: {estimated[0]} …")
    if any(entry.get("experts") for entry in data["layers"]):
        notes.append("experts are replicated like all parameters; their all-to-all is not counted")
    return Profile(
        str(data.get("model", source)),
        layers,
        str(data.get("source", source)),
        None if step is None else float(step),
        act,
        param,
        notes=tuple(notes),
    )


def _layer(where: str, entry: Mapping[str, Any]) -> tuple[Layer | None, list[Problem]]:
    name = str(entry.get("name", entry.get("id", "")))
    where = f"{where} ({name})"
    missing = [key for key in ("profile_us", "prev") if key not in entry]
    if missing:
        return None, [Problem(where, f"lacks {key!r}") for key in missing]
    try:
        times = sorted((int(b), (float(t[0]), float(t[1]))) for b, t in entry["profile_us"].items())
        layer = Layer(
            name,
            str(entry.get("op", "layer")).lower(),
            tuple(int(i) for i in entry["prev"]),
            int(entry.get("params", 0)),
            int(entry.get("out_elems_per_sample", 0)),
            tuple(b for b, _ in times),
            tuple(t[0] for _, t in times),
            tuple(t[1] for _, t in times),
        )
    except (TypeError, ValueError, AttributeError, IndexError, KeyError):
        return None, [
            Problem(
                where,
                "expected profile_us {batch: [forward us, backward us]}, prev [indices],"
                " whole numbers params and out_elems_per_sample",
            )
        ]
    return layer, check_layer(where, layer)
