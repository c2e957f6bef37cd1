"""Content keys: what a stored result depends on, as one digest.

A key covers the point, the resolved machine, the sketch's content and the code. A result is
reused only while all of them are the same; editing a topology file, or this package, is enough to
run a point again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import explorer
import sim
from explorer.core.topology import Topology
from explorer.scenario.point import DesignPoint

ROOMS = (
    "core",
    "topologies",
    "sketches",
    "synth",
    "baselines",
    "combine",
    "lower",
    "verify",
    "evaluate",
)
"""Rooms of ``explorer`` whose code decides results, beside all of ``sim``."""


def content_key(point: DesignPoint, machine: str, sketch: str, code: str) -> str:
    """Digest of everything a point's result depends on.

    Parameters
    ----------
    point
        The design point. Where its machine and sketch were found does not count.
    machine, sketch
        Digests of their contents; empty for no sketch.
    code
        :func:`code_version`.
    """
    resolved = asdict(point) | {"topology": machine, "sketch": sketch}
    return _digest(_canonical({"point": resolved, "code": code}))


def identity(point: DesignPoint) -> str:
    """Digest of the point alone: which question a result answers.

    Fields at their defaults do not count, so that a store from before a field existed still
    knows its points.
    """
    default = {f.name: f.default for f in fields(DesignPoint)}
    given = {name: value for name, value in asdict(point).items() if value != default[name]}
    return _digest(_canonical(given))


def topology_digest(topology: Topology) -> str:
    """Digest of a machine: its devices and links with exact costs, not the file's layout."""
    return _digest(
        _canonical(
            {
                "name": topology.name,
                "time_unit": topology.time_unit,
                "nics_per_node": topology.nics_per_node,
                "devices": [(d.name, d.kind, d.node) for d in topology.devices],
                "links": [
                    (k.src, k.dst, k.kind, k.alpha_us, k.beta_us_per_mib, k.lanes)
                    for k in topology.links
                ],
            }
        )
    )


def file_digest(path: Path) -> str:
    """Digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def code_version() -> str:
    """Package version, and a digest of the source that decides results."""
    package = Path(explorer.__file__).parent
    folders = [Path(sim.__file__).parent, *(package / room for room in ROOMS)]
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{folder.name}/{file.relative_to(folder).as_posix()}\0".encode())
            digest.update(file.read_bytes())
    return f"{explorer.__version__}+{digest.hexdigest()[:12]}"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions kept with every result: this package, its code, and the solver and array library."""
    return {
        "explorer": explorer.__version__,
        "code": code_version(),
        "highspy": version("highspy"),
        "numpy": version("numpy"),
    }


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
