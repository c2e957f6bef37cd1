"""Load a topology by builder name, shipped name or file."""

from __future__ import annotations

from pathlib import Path

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies.foreign import foreign
from explorer.topologies.readers import READERS
from explorer.topologies.registry import BUILDERS, build_topology, systems_folder
from explorer.topologies.source import read_source


def load_topology(spec: str, nodes: int | None = None, *, sized: bool = True) -> Topology:
    """Load a topology.

    Parameters
    ----------
    spec
        Builder name, generic ones with their shape (``ring:16``); name of a shipped machine file
        (``teccl_ndv2``); or a file in any known format.
    nodes
        Number of nodes, for builders and for files that describe one node; None for their own.
    sized
        Whether costs must be per byte. A TACCL profile loaded without gives costs per chunk in
        its own units.

    Raises
    ------
    InputError
        If there is no such builder or file, the file is in no known format or malformed, or the
        nodes do not fit.

    Examples
    --------
    >>> load_topology("ring:4").link_names[:2]
    ('gpu0->gpu1', 'gpu1->gpu0')
    """
    name, _, shape = spec.partition(":")
    if name in BUILDERS:
        return build_topology(name, shape, nodes)
    shipped = systems_folder() / f"{spec}.yaml"
    if "/" not in spec and shipped.is_file():
        return read_topology(shipped, nodes, sized=sized)
    path = Path(spec)
    if path.exists() or "/" in spec or path.suffix:
        return read_topology(path, nodes, sized=sized)
    return build_topology(name, shape, nodes)


def read_topology(path: Path, nodes: int | None = None, *, sized: bool = True) -> Topology:
    """Read a topology from a file in any known format, recognised by its content.

    Raises
    ------
    InputError
        If it cannot be read, is in no known format, or is malformed.
    """
    source = read_source(path)
    for reader in READERS:
        if reader.recognises(source):
            return reader.read(source, nodes, sized)
    what = foreign(source)
    if what is not None:
        raise InputError(Problem(source.name, f"this is {what}"))
    known = ", ".join(reader.name for reader in READERS)
    first = source.text.strip().splitlines()[0][:60]
    line = source.text[: len(source.text) - len(source.text.lstrip())].count("\n") + 1
    raise InputError(
        Problem(source.at(line), f"in no known topology format ({known}); it starts with {first!r}")
    )
