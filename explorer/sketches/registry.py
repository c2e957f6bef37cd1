"""Sketches by name: the shipped ones, and files in either format."""

from __future__ import annotations

from pathlib import Path

from explorer.core.sketch import Sketch
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from explorer.sketches.sketch_yaml import read_sketch_yaml
from explorer.sketches.taccl_json import read_taccl_sketch


def shipped_folder() -> Path:
    """Folder of the shipped sketches: in the checkout, or inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_scenarios" / "sketches"
    return installed if installed.is_dir() else package.parent / "scenarios" / "sketches"


def sketch_names() -> list[str]:
    """Names of the shipped sketches, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.yaml"))


def sketch_path(spec: str) -> Path:
    """File behind a sketch name or path.

    Raises
    ------
    InputError
        If it is neither a shipped name nor a file.
    """
    shipped = shipped_folder() / f"{spec}.yaml"
    if "/" not in spec and shipped.is_file():
        return shipped
    path = Path(spec)
    if path.is_file():
        return path
    if path.suffix in (".yaml", ".yml", ".json") or "/" in spec:
        raise InputError(Problem("--sketch", f"no file {spec!r}"))
    raise InputError(Problem("--sketch", f"got {spec!r}, {nearest(spec, sketch_names())}"))


def load_sketch(spec: str, topology: Topology) -> Sketch:
    """Read a sketch for a machine.

    Parameters
    ----------
    spec
        Shipped name (``ndv2-sk-1``), or a file: our YAML, or TACCL's JSON.
    topology
        The machine it is for: local ranks are checked against it, ``all`` is resolved by it.

    Raises
    ------
    InputError
        With every problem of the file at its key path.
    """
    path = sketch_path(spec)
    per_node = int(max((topology.node_of == n).sum() for n in set(topology.node_of.tolist())))
    read = read_taccl_sketch if path.suffix == ".json" else read_sketch_yaml
    return read(path, topology.ranks, per_node)
