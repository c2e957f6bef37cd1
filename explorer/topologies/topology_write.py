"""Writer of our topology YAML: every device and link on a line, numbers exact."""

from __future__ import annotations

import json

from explorer.core.topology import Link, Topology


def topology_yaml(topology: Topology) -> str:
    """Write a topology so that reading it back gives an equal one.

    Notes
    -----
    JSON strings and the shortest exact form of floats are YAML too. Blocks and ``both`` are for
    people: what is written here lists every direction by itself.

    Examples
    --------
    >>> from explorer.topologies.load import load_topology
    >>> print(topology_yaml(load_topology("ring:2")).splitlines()[-1])
      - {from: "gpu1", to: "gpu0", kind: generic, alpha_us: 0.5, beta_us_per_mib: 20.97152}
    """
    lines = [f"name: {_text(topology.name)}"]
    if topology.time_unit != "us":
        lines.append(f"time_unit: {topology.time_unit}")
    if topology.nics_per_node:
        lines.append(f"nics_per_node: {topology.nics_per_node}")
    if topology.notes:
        lines += ["notes:", *(f"  - {_text(note)}" for note in topology.notes)]
    lines.append("devices:")
    lines += [
        f"  - {{name: {_text(d.name)}, kind: {d.kind}, node: {d.node}}}" for d in topology.devices
    ]
    lines.append("links:" if topology.links else "links: []")
    lines += [_link(topology, link) for link in topology.links]
    return "\n".join(lines) + "\n"


def _link(topology: Topology, link: Link) -> str:
    ends = [_text(topology.devices[end].name) for end in (link.src, link.dst)]
    lanes = f", lanes: {link.lanes}" if link.lanes != 1 else ""
    return (
        f"  - {{from: {ends[0]}, to: {ends[1]}, kind: {link.kind}, alpha_us: {link.alpha_us!r},"
        f" beta_us_per_mib: {link.beta_us_per_mib!r}{lanes}}}"
    )


def _text(text: str) -> str:
    """Quote text; what YAML would fold or refuse is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
