"""Readers of topology files, tried in order: a new format is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.topologies.nccl_topology import looks_like_nccl_xml, read_nccl_topology
from explorer.topologies.nvidia_smi import read_nvidia_smi
from explorer.topologies.nvidia_smi_matrix import looks_like_nvidia_smi
from explorer.topologies.source import Source
from explorer.topologies.taccl_profile import looks_like_taccl
from explorer.topologies.taccl_topology import read_taccl_topology
from explorer.topologies.topology_yaml import looks_like_topology_yaml, read_topology_yaml


@dataclass(frozen=True, slots=True)
class Reader:
    """A file format.

    Parameters
    ----------
    name
        As messages and listings call it.
    recognises
        Whether a file is meant to be in it, however broken; decided on content, not on the name.
    read
        Reads it: source, ``--nodes`` or None, whether costs must be per byte.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, int | None, bool], Topology]


READERS = (
    Reader("NCCL topology XML", looks_like_nccl_xml, read_nccl_topology),
    Reader("nvidia-smi topo -m", looks_like_nvidia_smi, read_nvidia_smi),
    Reader("TACCL topology JSON", looks_like_taccl, read_taccl_topology),
    Reader("topology YAML", looks_like_topology_yaml, read_topology_yaml),
)

NOT_TOPOLOGIES = {
    '"intranode_sketch"': "a TACCL sketch, which goes in --sketch",
    '"nnodes"': "a TACCL sketch, which goes in --sketch",
    "<algo ": "an MSCCL program, not a machine",
    "scenarios:": "a scenario, which goes to `explorer sweep`",
}
"""Text that shows a file is something else of ours or TACCL's."""
