"""Readers of topology files, tried in order: a new format is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.topologies.astrasim_network import looks_like_astrasim, read_astrasim_network
from explorer.topologies.htsim_topo import looks_like_htsim, read_htsim_topo
from explorer.topologies.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from explorer.topologies.link_text import looks_like_link_text, read_link_text
from explorer.topologies.measured_matrix import looks_like_matrix, read_matrix_topology
from explorer.topologies.nccl_topology import looks_like_nccl_xml, read_nccl_topology
from explorer.topologies.nvidia_smi import read_nvidia_smi
from explorer.topologies.nvidia_smi_matrix import looks_like_nvidia_smi
from explorer.topologies.rocm_smi import looks_like_rocm_smi, read_rocm_smi
from explorer.topologies.slurm_topology import looks_like_slurm, read_slurm_topology
from explorer.topologies.source import Source
from explorer.topologies.taccl_profile import looks_like_taccl
from explorer.topologies.taccl_topology import read_taccl_topology
from explorer.topologies.teccl_input import looks_like_teccl, read_teccl_input
from explorer.topologies.topology_yaml import looks_like_topology_yaml, read_topology_yaml
from explorer.topologies.ufm_cabling import looks_like_ufm_cabling, read_ufm_cabling


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
    Reader("ns-3, HPCC and SimAI text", looks_like_link_text, read_link_text),
    Reader("htsim .topo", looks_like_htsim, read_htsim_topo),
    Reader("SLURM topology.conf", looks_like_slurm, read_slurm_topology),
    Reader("ibnetdiscover", looks_like_ibnetdiscover, read_ibnetdiscover),
    Reader("UFM cabling CSV", looks_like_ufm_cabling, read_ufm_cabling),
    Reader("rocm-smi --showtopo", looks_like_rocm_smi, read_rocm_smi),
    Reader("TE-CCL input JSON", looks_like_teccl, read_teccl_input),
    Reader("ASTRA-sim network", looks_like_astrasim, read_astrasim_network),
    Reader("measured matrix CSV", looks_like_matrix, read_matrix_topology),
    Reader("TACCL topology JSON", looks_like_taccl, read_taccl_topology),
    Reader("topology YAML", looks_like_topology_yaml, read_topology_yaml),
)
