"""Reader of ``ibnetdiscover``: the full listing, and ``-p`` with one link per line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.host_ranks import wiring_topology
from explorer.topologies.source import Source
from explorer.topologies.wiring import Port, Wiring, natural

_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+(\d{1,6})\s+"([^"]+)"(?:\s*#\s*"?([^"]*)"?)?')
_PORT = re.compile(
    r'^\[(\d{1,6})\](?:\([^)]*\))?\s+"([^"]+)"\[(\d{1,6})\](?:\([^)]*\))?\s*(?:#(.*))?$'
)
_NAME = re.compile(r'"([^"]*)"')
_LINK = re.compile(
    r"^(CA|SW|RT)\s+(\d{1,6})\s+(\d{1,6})\s+(0x[0-9a-fA-F]+)\s+(\d{1,2}x\s+\S+)"
    r"(?:\s+-\s+(CA|SW|RT)\s+(\d{1,6})\s+(\d{1,6})\s+(0x[0-9a-fA-F]+)\s+\((.*)\)|\s+(.*))?\s*$"
)
_LOOKS = re.compile(
    r'^(?:Switch|Ca)\s+\d+\s+"|^(?:CA|SW)\s+\d+\s+\d+\s+0x[0-9a-fA-F]+\s+\d{1,2}x\s', re.MULTILINE
)
_QUIET = re.compile(r"^(#.*|\w+guid=.*|vendid=.*|devid=.*|sysimgguid=.*|DR path.*)?$")


def looks_like_ibnetdiscover(source: Source) -> bool:
    """Whether lines of either form are in it."""
    return bool(_LOOKS.search(source.text))


def read_ibnetdiscover(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read it with one rank per host; see :func:`read_ib_wiring`."""
    return wiring_topology(read_ib_wiring(source), nodes)


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a cable: whether it is a switch, the device's name, its port and rate."""

    switch: bool
    name: str
    port: int


@dataclass(slots=True)
class _Found:
    """Cables and oddities while a file is read."""

    source: Source
    cables: dict[frozenset[_End], tuple[float | None, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    down: int = 0
    problems: list[Problem] = field(default_factory=list)

    def cable(self, a: _End, b: _End, gbs: float | None, line: int) -> None:
        """Keep a cable; both its ends list it."""
        key = frozenset((a, b))
        if len(key) == 1:
            self.problems.append(Problem(self.source.at(line), f"{a.name} is cabled to itself"))
            return
        old = self.cables.get(key)
        if old is not None and None not in (old[0], gbs) and old[0] != gbs:
            self.problems.append(
                Problem(
                    self.source.at(line),
                    f"{a.name}[{a.port}]: {gbs:g} GB/s, but line {old[1]} gives the same cable"
                    f" {old[0]:g} GB/s",
                )
            )
        if old is None or old[0] is None:
            self.cables[key] = (gbs, line)


def read_ib_wiring(source: Source) -> Wiring:
    """Read the network; hosts are named by the first word of their node description.

    Raises
    ------
    InputError
        If a line is not understood or both ends of a cable disagree; with the line.
    """
    found = _Found(source)
    if re.search(r"^(CA|SW)\s+\d+\s+\d+\s+0x", source.text, re.MULTILINE):
        _read_links(found)
    else:
        _read_full(found)
    if found.problems:
        raise InputError(found.problems)
    if not found.cables:
        raise InputError(
            Problem(source.at(1), f"no cable in it: {found.down} ports, all down or without a peer")
        )
    return _wiring(found)


def _read_links(found: _Found) -> None:
    """Read the ``-p`` form."""
    for number, raw in enumerate(found.source.text.splitlines(), 1):
        line = raw.strip()
        if _QUIET.fullmatch(line):
            continue
        match = _LINK.match(line)
        if match is None:
            found.problems.append(
                Problem(
                    found.source.at(number),
                    f"got {line[:50]!r}, expected a line such as CA 1 1 0x01 4x EDR - SW 2 3 0x02"
                    " ('host' - 'switch')",
                )
            )
            continue
        kind, _, port, guid, rate, other, _, other_port, other_guid, names, _ = match.groups()
        if other is None:
            found.down += 1
            continue
        one, two = _pair_of_names(names)
        ends = [
            _End(kind == "SW", one or guid, int(port)),
            _End(other == "SW", two or other_guid, int(other_port)),
        ]
        found.cable(ends[0], ends[1], _rate(found, rate, number), number)


def _pair_of_names(text: str) -> tuple[str, str]:
    quoted = re.fullmatch(r"\s*'(.*?)'\s+-\s+'(.*?)'\s*", text)
    one, two = quoted.groups() if quoted else [*text.split(" - ", 1), ""][:2]
    return one.strip().strip("'").strip(), two.strip().strip("'").strip()


def _read_full(found: _Found) -> None:
    """Read the full form: a block per device, with its ports."""
    names = _descriptions(found.source)
    here: tuple[bool, str] | None = None
    for number, raw in enumerate(found.source.text.splitlines(), 1):
        line = raw.strip()
        head = _HEAD.match(line)
        port = _PORT.match(line)
        if head is not None:
            kind, _, identity, text = head.groups()
            here = (kind == "Switch", _device(names, identity, kind != "Ca", text or ""))
        elif port is not None:
            if here is None:
                found.problems.append(
                    Problem(found.source.at(number), "a port before any Switch or Ca line")
                )
                continue
            own, identity, other, rest = port.groups()
            quoted = _NAME.search(rest or "")
            text = quoted.group(1) if quoted else ""
            switch = identity.startswith("S-")
            far = _End(switch, _device(names, identity, switch, text), int(other))
            gbs = _rate(found, (rest or "").rpartition(" ")[2], number)
            found.cable(_End(here[0], here[1], int(own)), far, gbs, number)
        elif line.lower().strip(". ").startswith("omitted") or line == "...":
            found.notes.append(f"line {number}: the paste leaves out lines ({line})")
        elif not _QUIET.fullmatch(line):
            found.problems.append(
                Problem(
                    found.source.at(number),
                    f"got {line[:50]!r}, expected Switch, Ca or a port such as"
                    ' [1] "H-0001"[1](0001) # "host HCA-1" lid 2 4xEDR',
                )
            )


def _descriptions(source: Source) -> dict[str, str]:
    """Descriptions by identity, where every identity has one."""
    found: dict[str, set[str]] = {}
    for raw in source.text.splitlines():
        line = raw.strip()
        head, port = _HEAD.match(line), _PORT.match(line)
        if head is not None and head.group(4):
            found.setdefault(head.group(3), set()).add(head.group(4).strip())
        elif port is not None:
            text = _NAME.search(port.group(4) or "")
            if text is not None:
                found.setdefault(port.group(2), set()).add(text.group(1).strip())
    return {identity: min(names) for identity, names in found.items() if len(names) == 1}


def _device(names: dict[str, str], identity: str, switch: bool, text: str) -> str:
    """Name of a device; switches of equal descriptions are told apart by their identity."""
    name = names.get(identity) or text.strip() or identity
    if switch:
        same = Counter(n for other, n in names.items() if other.startswith("S-"))
        return f"{name} {identity}" if same[name] > 1 else name
    return name


def _rate(found: _Found, text: str, line: int) -> float | None:
    gbs = generations.ib_gbs(text)
    if gbs is None:
        found.notes.append(f"line {line}: rate {text.strip() or 'missing'!r} is unknown")
    return gbs


def _wiring(found: _Found) -> Wiring:
    hosts: dict[str, list[Port]] = {}
    trunks: dict[tuple[str, str], list[float | None]] = {}
    special: set[str] = set()
    for ends, (gbs, _) in found.cables.items():
        a, b = sorted(ends, key=lambda end: (end.switch, natural(end.name), end.port))
        if a.switch:
            trunks.setdefault((min(a.name, b.name), max(a.name, b.name)), []).append(gbs)
        elif "Aggregation Node" in a.name:
            special.add(a.name)
        elif b.switch:
            host, _, nic = a.name.partition(" ")
            hosts.setdefault(host, []).append(Port(f"{nic or 'HCA'} {a.port}", b.name, gbs))
        else:
            found.notes.append(f"{a.name} and {b.name} are cabled without a switch; left out")
    notes = [
        "ibnetdiscover knows cables and their rates; it knows no latencies, nothing inside hosts,"
        " and not how the subnet manager routes",
        *found.notes,
    ]
    if found.down:
        notes.append(f"{found.down} ports are down or have no peer; they carry nothing")
    if special:
        notes.append("SHARP aggregation nodes sit inside switches; they are no hosts")
    parallel = [f"{a} - {b}: {len(c)} cables" for (a, b), c in sorted(trunks.items()) if len(c) > 1]
    if parallel:
        notes.append(f"parallel cables add up: {'; '.join(parallel[:6])}")
    order = {host: tuple(sorted(hosts[host], key=lambda p: natural(p.nic))) for host in hosts}
    return Wiring(
        found.source.name,
        dict(sorted(order.items(), key=lambda item: natural(item[0]))),
        {pair: tuple(sorted(c, key=lambda g: -(g or 0))) for pair, c in sorted(trunks.items())},
        tuple(notes),
    )
