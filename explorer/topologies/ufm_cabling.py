"""Reader of UFM's planned cabling (NDT plugin): CSV with a cable per line."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies.host_ranks import wiring_topology
from explorer.topologies.source import Source
from explorer.topologies.wiring import Port, Wiring, natural, short_list
from explorer.units import gbs_of_mbit

_NEEDED = ("StartDevice", "StartPort", "EndDevice", "EndPort")
_SWITCH_PORT = re.compile(r"(?:Blade\s+\S+_)?Port\s+[\d/]+", re.IGNORECASE)
MAX_FIELD = 4096


def looks_like_ufm_cabling(source: Source) -> bool:
    """Whether its header names start and end devices, or the file is of that family, damaged."""
    head = source.text[:4096]
    return "StartDevice" in head and "EndDevice" in head


def read_ufm_cabling(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read it with one rank per host; see :func:`read_ufm_wiring`."""
    return wiring_topology(read_ufm_wiring(source), nodes)


def read_ufm_wiring(source: Source) -> Wiring:
    """Read the network.

    A port named like a switch's (``Port 21``, ``Blade 16_Port 2/20``) is one; any other is a
    host's HCA.

    Raises
    ------
    InputError
        If columns are missing or a line has other columns; with the line.
    """
    rows = _rows(source)
    columns, start = _columns(source, rows)
    twice: list[str] = []
    cables = _cables(source, rows[start:], columns, twice)
    hosts: dict[str, list[Port]] = {}
    trunks: dict[tuple[str, str], list[float | None]] = {}
    for cable in cables:
        (a, a_port), (b, b_port) = cable.ends
        switches = [_SWITCH_PORT.fullmatch(port) is not None for port in (a_port, b_port)]
        if all(switches):
            trunks.setdefault((min(a, b), max(a, b)), []).append(cable.gbs)
        else:
            host, nic, switch = (b, b_port, a) if switches[0] else (a, a_port, b)
            nic = nic.removeprefix(host).strip() or nic
            hosts.setdefault(host, []).append(Port(nic, switch, cable.gbs))
    notes = [
        "UFM's cabling file is a plan: it knows which port goes where; it knows no latencies,"
        " nothing inside hosts, and not whether a cable works",
        *twice,
    ]
    railless = [
        host
        for host, ports in hosts.items()
        if len(ports) > 1 and len({port.switch for port in ports}) == 1
    ]
    if railless:
        counts = {len(hosts[host]) for host in railless}
        size = f"all {counts.pop()} NICs" if len(counts) == 1 else "all NICs"
        notes.append(f"{size} of a host on one leaf ({short_list(railless)}): no rails")
    return Wiring(
        source.name,
        {host: tuple(hosts[host]) for host in sorted(hosts, key=natural)},
        {pair: tuple(found) for pair, found in sorted(trunks.items())},
        tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Cable:
    ends: tuple[tuple[str, str], tuple[str, str]]
    gbs: float | None


def _rows(source: Source) -> list[tuple[int, list[str]]]:
    reader = csv.reader(source.text.splitlines(), strict=True)
    try:
        rows = [
            (reader.line_num, [cell.strip() for cell in row])
            for row in reader
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise InputError(
            Problem(source.at(max(1, reader.line_num)), f"not valid CSV: {error}")
        ) from None
    return rows


def _columns(source: Source, rows: list[tuple[int, list[str]]]) -> tuple[dict[str, int], int]:
    """Positions of the columns, the first of each name, and where the cables start."""
    for i, (line, row) in enumerate(rows):
        names = [cell.removeprefix("#").removeprefix("Fields:").strip() for cell in row]
        if "StartDevice" not in names:
            continue
        columns = {name: names.index(name) for name in names if name}
        missing = [name for name in _NEEDED if name not in columns]
        if missing:
            raise InputError(
                Problem(
                    source.at(line),
                    f"column {' and '.join(missing)} missing, expected {', '.join(_NEEDED)}",
                )
            )
        return columns, i + 1
    raise InputError(Problem(source.at(1), f"no header, expected {', '.join(_NEEDED)}"))


def _cables(
    source: Source,
    rows: list[tuple[int, list[str]]],
    columns: dict[str, int],
    notes: list[str],
) -> list[_Cable]:
    problems: list[Problem] = []
    cables: list[_Cable] = []
    used: dict[tuple[str, str], int] = {}
    repeats: list[int] = []
    for line, row in rows:
        cells = {name: row[at] if at < len(row) else "" for name, at in columns.items()}
        empty = [name for name in _NEEDED if not cells[name]]
        if empty:
            problems.append(Problem(source.at(line), f"{' and '.join(empty)} missing"))
            continue
        ends = (
            (cells["StartDevice"], cells["StartPort"]),
            (cells["EndDevice"], cells["EndPort"]),
        )
        if not any(_SWITCH_PORT.fullmatch(port) for _, port in ends):
            problems.append(
                Problem(
                    source.at(line),
                    f"neither {ends[0][1]!r} nor {ends[1][1]!r} is a switch port such as Port 21",
                )
            )
        lines = [used.setdefault(end, line) for end in ends]
        if line != lines[0] == lines[1]:
            repeats.append(line)
            continue
        notes += [
            f"warning: line {line}: {' '.join(end)} is planned a second time, first in line {old};"
            " both cables are counted"
            for end, old in zip(ends, lines, strict=True)
            if old != line
        ]
        cables.append(_Cable(ends, _speed(source, line, cells.get("Speed", ""), problems)))
    if problems:
        raise InputError(problems)
    if repeats:
        notes.append(
            f"{len(repeats)} lines, the first line {repeats[0]}, give a cable again (from its other"
            " end); each is counted once"
        )
    return cables


def _speed(source: Source, line: int, text: str, problems: list[Problem]) -> float | None:
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0:
        return gbs_of_mbit(int(text))
    problems.append(Problem(source.at(line), f"Speed: got {text!r}, expected Mb/s such as 200000"))
    return None
