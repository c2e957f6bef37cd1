"""Reader of ASTRA-sim's analytical network files: YAML of the 2.x versions, JSON of 1.x.

Dimensions of Ring, Switch or FullyConnected, the first the fastest in rank order. ``bandwidth`` is
per link and its GB are 2^30 bytes (``congestion_aware/…/Link.cpp`` and ``Type.hh``), ``latency`` is
ns per hop, so a switch costs it twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from explorer.topologies.assembly import Assembly
from explorer.topologies.json_text import parse_json, where_of
from explorer.topologies.source import Source
from explorer.topologies.yaml_tree import Tree, parse_yaml

SHAPES = {
    "Ring": "Ring",
    "Switch": "Switch",
    "FullyConnected": "FullyConnected",
    "AllToAll": "FullyConnected",
}
KEYS = ("topology", "npus_count", "bandwidth", "latency")
_OLD = {
    "topologies-per-dim": "topology",
    "units-count": "npus_count",
    "link-bandwidth": "bandwidth",
    "link-latency": "latency",
}
MAX_RANKS = 1 << 12
GIB = 1 << 30


def looks_like_astrasim(source: Source) -> bool:
    """Whether keys of either version are in it."""
    text = source.text
    return bool(
        re.search(r"^npus_count\s*:", text, re.MULTILINE)
        or '"topologies-per-dim"' in text
        or '"logical-dims"' in text
    )


def read_astrasim_network(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a network.

    Raises
    ------
    InputError
        If keys are unknown or missing, lists differ in length, or it is a logical topology only.
    """
    if nodes not in (None, 1):
        raise InputError(
            Problem(
                "--nodes", f"got {nodes}, {source.name} describes all its ranks without machines"
            )
        )
    if source.text.lstrip().startswith("{"):
        values, where = _json(source)
    else:
        values, where = _yaml(source)
    shapes, counts, gibs, ns = _checked(source, values, where)
    machine = Assembly(source.stem, 1)
    gpus = [machine.gpu(0) for _ in range(math.prod(counts))]
    stride = 1
    for d, (shape, count, rate, latency) in enumerate(zip(shapes, counts, gibs, ns, strict=True)):
        for start in range(len(gpus)):
            if start // stride % count == 0:
                group = [gpus[start + i * stride] for i in range(count)]
                _dimension(machine, f"{d}.{start}", shape, group, rate * GIB / 1e9, latency / 1e3)
        stride *= count
    described = " x ".join(f"{s}({c})" for s, c in zip(shapes, counts, strict=True))
    return machine.build(
        (
            f"ASTRA-sim network {described}: bandwidth per link and direction, its GB are 2^30"
            " bytes, latency per hop",
            "it knows no machines, NICs or PCIe; all ranks count as one node",
        )
    )


def _dimension(
    machine: Assembly, name: str, shape: str, group: list[int], gbs: float, alpha_us: float
) -> None:
    """Join the ranks of one line of a dimension."""
    count = len(group)
    if shape == "Ring":
        # Two ranks have one link, as ASTRA-sim builds it.
        pairs = [(i, (i + 1) % count) for i in range(count if count > 2 else count - 1)]
    elif shape == "FullyConnected":
        pairs = [(i, j) for j in range(count) for i in range(j)]
    else:
        switch = machine.device(f"switch{name}", "switch", 0)
        for gpu in group:
            machine.both(gpu, switch, "generic", alpha_us, gbs)
        return
    for i, j in pairs:
        machine.both(group[i], group[j], "generic", alpha_us, gbs)


Where = Callable[[str], str]


def _json(source: Source) -> tuple[dict[str, list[object]], Where]:
    data: Any = parse_json(source)
    if not isinstance(data, dict):
        raise InputError(Problem(source.name, "expected a JSON object"))
    if "logical-dims" in data:
        dims = data["logical-dims"]
        shown = " x ".join(map(str, dims[:8])) if isinstance(dims, list) else "?"
        raise InputError(
            Problem(
                where_of(source, "logical-dims"),
                f"this is ASTRA-sim's logical topology ({shown}): how ranks are numbered, without"
                " links; expected its network YAML, or the ns-3 text file with the links",
            )
        )
    values = {new: data[old] for old, new in _OLD.items() if old in data}
    names = {new: old for old, new in _OLD.items()}
    bad = [key for key, value in values.items() if not isinstance(value, list)]
    if bad:
        raise InputError([Problem(where_of(source, names[k]), "expected a list") for k in bad])
    return values, lambda key: where_of(source, names[key])


def _yaml(source: Source) -> tuple[dict[str, list[object]], Where]:
    tree = parse_yaml(source)
    if not isinstance(tree.value, dict):
        raise InputError(Problem(source.at(tree.line), "expected keys and values"))
    problems = [
        Problem(source.at(tree.key_lines[key]), f"unknown key {key!r}, {nearest(key, KEYS)}")
        for key in tree.value
        if key not in KEYS
    ]
    values: dict[str, list[object]] = {}
    for key, item in tree.value.items():
        parts = item.value if isinstance(item.value, list) else [item]
        if any(not isinstance(part, Tree) or not isinstance(part.value, str) for part in parts):
            problems.append(Problem(source.at(item.line), f"{key}: expected a list of values"))
            continue
        values[key] = [part.value for part in parts if isinstance(part, Tree)]
    if problems:
        raise InputError(problems)
    lines = tree.key_lines
    return values, lambda key: source.at(lines.get(key, tree.line))


def _checked(
    source: Source, values: dict[str, list[object]], where: Where
) -> tuple[list[str], list[int], list[float], list[float]]:
    missing = [key for key in KEYS if key not in values]
    if missing:
        raise InputError(Problem(source.name, f"{', '.join(missing)} missing"))
    length = len(values["topology"])
    problems = [
        Problem(
            where(key),
            f"{key} has {len(values[key])} entries, topology {length}; expected one per dimension",
        )
        for key in KEYS[1:]
        if len(values[key]) != length or not length
    ]
    shapes = [SHAPES.get(str(word), "") for word in values["topology"]]
    problems += [
        Problem(where("topology"), f"got {str(word)[:40]!r}, {nearest(str(word), SHAPES)}")
        for word, shape in zip(values["topology"], shapes, strict=True)
        if not shape
    ]
    numbers = {key: [_number(word) for word in values[key]] for key in KEYS[1:]}
    for key, least in (("npus_count", 1.0), ("bandwidth", 1e-6), ("latency", 0.0)):
        problems += [
            Problem(where(key), f"{key}: got {str(word)[:40]!r}, expected a number")
            for word, number in zip(values[key], numbers[key], strict=True)
            if not least <= number < 1e7 or (key == "npus_count" and number != int(number))
        ]
    if not problems and math.prod(int(n) for n in numbers["npus_count"]) > MAX_RANKS:
        problems.append(Problem(where("npus_count"), f"more than {MAX_RANKS} ranks"))
    if problems:
        raise InputError(problems)
    counts = [int(n) for n in numbers["npus_count"]]
    return shapes, counts, numbers["bandwidth"], numbers["latency"]


def _number(word: object) -> float:
    try:
        return float(str(word)[:40])
    except ValueError:
        return math.nan
