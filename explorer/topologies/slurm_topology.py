"""Reader of SLURM's ``topology.conf``: switches in a tree, or blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from explorer.topologies.host_ranks import wiring_topology
from explorer.topologies.source import Source
from explorer.topologies.wiring import Port, Wiring, expand_hosts, short_list

MAX_HOSTS = 1 << 14
_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
_LINE = re.compile(r"^[ \t]*(?:SwitchName|BlockName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r"\b(\w{1,40})\s*=\s*(\S+)")


def looks_like_slurm(source: Source) -> bool:
    """Whether a line starts with ``SwitchName=`` or ``BlockName=``."""
    return bool(_LINE.search(source.text))


def read_slurm_topology(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read it with one rank per host; see :func:`read_slurm_wiring`."""
    return wiring_topology(read_slurm_wiring(source), nodes)


@dataclass(frozen=True, slots=True)
class _Entry:
    line: int
    name: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]


def read_slurm_wiring(source: Source) -> Wiring:
    """Read the network.

    Raises
    ------
    InputError
        If a name is unknown or given twice, switches form a circle, or a line is not understood;
        with the line.
    """
    problems: list[Problem] = []
    entries: list[_Entry] = []
    sizes = ""
    block = False
    for number, line in _lines(source):
        try:
            fields = _fields(line, source.at(number))
            if "blocksizes" in fields and "blockname" not in fields:
                sizes = fields["blocksizes"]
                continue
            block = block or "blockname" in fields
            entries += _entries(fields, number, source.at(number))
        except InputError as error:
            problems += error.problems
    problems += _check(source, entries)
    if problems:
        raise InputError(problems)
    hosts: dict[str, tuple[Port, ...]] = {}
    for entry in entries:
        for node in entry.nodes:
            hosts[node] = (Port("nic0", entry.name),)
    if block:
        return _blocks(source, entries, hosts, sizes)
    trunks = _full_trunks(entries)
    notes = (
        "SLURM's topology.conf knows which hosts share a switch; it knows no rates, no number of"
        " uplinks, no NICs per host",
        "assumed: every switch has as many uplinks as NICs below, so nothing blocks; use"
        " --oversubscription",
    )
    return Wiring(source.name, hosts, trunks, notes)


def _lines(source: Source) -> list[tuple[int, str]]:
    """Lines without comments; a backslash at the end continues a line."""
    result: list[tuple[int, str]] = []
    open_line: tuple[int, str] | None = None
    for number, raw in enumerate(source.text.splitlines(), 1):
        text = raw.split("#", 1)[0].rstrip()
        if open_line is not None:
            text, start = open_line[1] + text.lstrip(), open_line[0]
        else:
            start = number
        if text.endswith("\\"):
            open_line = (start, text[:-1])
            continue
        open_line = None
        if text.strip():
            result.append((start, text.strip()))
    if open_line is not None and open_line[1].strip():
        result.append((open_line[0], open_line[1].strip()))
    return result


def _fields(line: str, where: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    known = {key.lower(): key for key in _KEYS}
    if _PAIR.sub("", line).strip():
        rest = _PAIR.sub("", line).strip()
        raise InputError(
            Problem(where, f"got {rest[:40]!r}, expected SwitchName=… Switches=… or Nodes=…")
        )
    for key, value in _PAIR.findall(line):
        low = key.lower()
        if low not in known:
            raise InputError(Problem(where, f"unknown key {key!r}, {nearest(key, _KEYS)}"))
        if low in fields:
            raise InputError(Problem(where, f"{key} is given twice"))
        fields[low] = value
    return fields


def _entries(fields: dict[str, str], line: int, where: str) -> list[_Entry]:
    name = fields.get("switchname") or fields.get("blockname")
    if name is None:
        raise InputError(Problem(where, "SwitchName or BlockName missing"))
    names = expand_hosts(name, where, MAX_HOSTS)
    switches = expand_hosts(fields["switches"], where, MAX_HOSTS) if "switches" in fields else []
    nodes = expand_hosts(fields["nodes"], where, MAX_HOSTS) if "nodes" in fields else []
    if not switches and not nodes:
        raise InputError(Problem(where, f"{name} has neither Switches nor Nodes"))
    return [_Entry(line, one, tuple(switches), tuple(nodes)) for one in names]


def _check(source: Source, entries: list[_Entry]) -> list[Problem]:
    problems: list[Problem] = []
    lines: dict[str, int] = {}
    above: dict[str, _Entry] = {}
    place: dict[str, _Entry] = {}
    for entry in entries:
        if entry.name in lines:
            problems.append(
                Problem(
                    source.at(entry.line),
                    f"{entry.name} is given twice, first in line {lines[entry.name]}",
                )
            )
        lines.setdefault(entry.name, entry.line)
        for node in entry.nodes:
            old = place.setdefault(node, entry)
            if old is not entry:
                problems.append(
                    Problem(
                        source.at(entry.line),
                        f"{node} is below {entry.name} and, in line {old.line}, below {old.name}",
                    )
                )
    for entry in entries:
        for switch in entry.switches:
            if switch not in lines:
                problems.append(
                    Problem(
                        source.at(entry.line),
                        f"{entry.name} names switch {switch}, which has no line,"
                        f" {nearest(switch, lines)}",
                    )
                )
            old = above.setdefault(switch, entry)
            if old is not entry:
                problems.append(
                    Problem(
                        source.at(entry.line),
                        f"{switch} is below {entry.name} and, in line {old.line}, below {old.name}",
                    )
                )
    return problems + _circles(source, entries, above)


def _circles(source: Source, entries: list[_Entry], above: dict[str, _Entry]) -> list[Problem]:
    for entry in entries:
        seen = {entry.name}
        up = above.get(entry.name)
        while up is not None:
            if up.name in seen:
                return [Problem(source.at(entry.line), f"{entry.name} is above itself")]
            seen.add(up.name)
            up = above.get(up.name)
    return []


def _full_trunks(entries: list[_Entry]) -> dict[tuple[str, str], tuple[float | None, ...]]:
    """As many cables above every switch as hosts below it."""
    by_name = {entry.name: entry for entry in entries}

    def hosts(entry: _Entry) -> int:
        return len(entry.nodes) + sum(hosts(by_name[name]) for name in entry.switches)

    return {
        (min(name, entry.name), max(name, entry.name)): (None,) * max(1, hosts(by_name[name]))
        for entry in entries
        for name in entry.switches
    }


def _blocks(
    source: Source, entries: list[_Entry], hosts: dict[str, tuple[Port, ...]], sizes: str
) -> Wiring:
    trunks: dict[tuple[str, str], tuple[float | None, ...]] = {}
    for entry in entries if len(entries) > 1 else ():
        trunks[min(entry.name, "spine"), max(entry.name, "spine")] = (None,) * len(entry.nodes)
    names = short_list(entry.name for entry in entries)
    notes = [
        f"SLURM blocks {names}: hosts of a block are close; the file does not say by what. Read as"
        " a leaf switch each, joined by a spine that does not block; where a block is an NVLink"
        " domain (GB200 racks), a file of one node of that many GPUs says so",
        "the file knows no rates and no NICs per host",
    ]
    if sizes:
        notes.append(f"BlockSizes={sizes} is how SLURM may combine blocks; it adds no link")
    return Wiring(source.name, hosts, trunks, tuple(notes))
