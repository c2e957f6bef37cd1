"""Read and check tables of which algorithm runs at which size.

Three kinds: the CSV of NVIDIA's example tuner plugin (``plugins/tuner/example``: 8 to 10 columns,
sizes in total bytes, both ends included, the first matching line is used); the columns of NCCLX
(one size per line, in bytes **per rank**); SCCL_CONFIG of microsoft/msccl (an XML of files, ranges
half open).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.parsers import expat

from explorer.errors import Finding, InputError, Problem, nearest
from explorer.formats.tuner_entry import (
    ALGORITHMS,
    ALGORITHMS_OF,
    ANY,
    PROTOCOLS,
    SIMPLE_ONLY,
    TunerEntry,
    TunerTable,
)

MAX_BYTES = 4 << 20
"""Largest file that is read."""

FILTERS = ("nNodes", "nRanks", "numPipeOps", "regBuff")
"""Columns 7 to 10 of the NVIDIA table; the last two may be left out."""

NCCLX = (
    *("collective", "bytesPerRank", "algorithm", "protocol", "channels"),
    *("nNodes", "nLocalRanks", "numPipeOps", "regBuff", "chunkSize"),
)
"""Columns of an NCCLX table."""

_NVIDIA_NAMES = ("collective_type", "collective")
_CODE_SIZE = 1 << 62


def looks_like_tuner_table(path: Path) -> bool:
    """Whether a file is meant to be such a table, decided on its content; False if unreadable."""
    try:
        with path.open("rb") as file:
            start = file.read(8192).decode("utf-8", errors="replace")
    except OSError:
        return False
    if re.search(r"<sccl_algos[\s>]", start):
        return True
    for line in start.splitlines():
        words = [word.strip().lower() for word in line.strip().lstrip("#").split(",")]
        if words[0] in _NVIDIA_NAMES and words[1:2] in (["min_bytes"], ["bytesperrank"]):
            return True
        if line.strip() and not line.lstrip().startswith("#"):
            return words[0] in ALGORITHMS_OF and len(words) >= 8 and words[3] in ALGORITHMS
    return False


def read_tuner_table(path: Path) -> tuple[TunerTable, list[Finding]]:
    """Read a table.

    Returns
    -------
    tuple
        The table of the lines that can be read, and a finding for each that cannot.

    Raises
    ------
    InputError
        If the file cannot be read or is no text or no XML.
    """
    name = str(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(Problem(name, f"is larger than {MAX_BYTES} bytes"))
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(name, error.strerror or str(error))) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(name, f"is not UTF-8 text (byte {error.start})")) from None
    findings: list[Finding] = []
    if re.search(r"<sccl_algos[\s>]", text):
        entries = _sccl_config(name, text, findings)
        return TunerTable(name, "SCCL_CONFIG", "bytes", tuple(entries)), findings
    heading = next((line for line in text.splitlines() if "bytesPerRank" in line), None)
    if heading is not None:
        entries = _ncclx(text, findings)
        return TunerTable(name, "NCCLX tuner", "bytes per rank", tuple(entries)), findings
    return TunerTable(name, "NVIDIA tuner", "total bytes", tuple(_nvidia(text, findings))), findings


def check_tuner_table(table: TunerTable) -> tuple[list[Finding], list[Finding]]:
    """Check ranges and pairs.

    Returns
    -------
    tuple
        Errors: inverted ranges, pairs NCCL does not have, overlaps and gaps among lines with the
        same filters. Warnings: lines an earlier one leaves nothing for, and what the sizes count.
    """
    errors = [finding for entry in table.entries for finding in _pair(table, entry)]
    groups: dict[tuple[object, ...], list[TunerEntry]] = {}
    for entry in table.entries:
        if entry.inverted:
            message = f"the range {entry.first_bytes} to {entry.last_bytes} is inverted: no size"
            errors.append(Finding("RANGE", _line(entry), message))
        else:
            groups.setdefault((entry.collective, entry.match), []).append(entry)
    for group in groups.values():
        errors.extend(_ranges(group, table.entries))
    warnings = _shadowed([entry for entry in table.entries if not entry.inverted])
    if not table.entries:
        warnings.append(Finding("EMPTY", "", "the table has no line with an algorithm"))
    if table.kind != "SCCL_CONFIG":
        message = f"{table.kind} table: sizes are {table.size_is}"
        warnings.append(Finding("UNITS", "", message))
    return sorted(errors, key=_number), warnings


def _number(finding: Finding) -> tuple[int, str]:
    digits = re.search(r"\d+", finding.where)
    return int(digits.group()) if digits else 0, finding.code


def _line(entry: TunerEntry) -> str:
    return f"line {entry.line}"


def _pair(table: TunerTable, entry: TunerEntry) -> list[Finding]:
    if table.kind == "SCCL_CONFIG":
        return []
    have = ALGORITHMS_OF[entry.collective]
    if entry.algorithm not in have:
        message = (
            f"NCCL has no {entry.algorithm} for {entry.collective} (it has {', '.join(have)}): "
            "the line is never used"
        )
        return [Finding("PAIR", _line(entry), message)]
    if entry.algorithm in SIMPLE_ONLY and entry.protocol != "simple":
        message = f"{entry.algorithm} has protocol simple only, not {entry.protocol}"
        return [Finding("PAIR", _line(entry), f"{message}: the line is never used")]
    return []


def _ranges(group: list[TunerEntry], everything: Sequence[TunerEntry]) -> list[Finding]:
    """Overlaps and gaps among lines that match the same calls."""
    findings = []
    ordered = sorted(group, key=lambda entry: (entry.first_bytes, entry.last_bytes, entry.line))
    reach = ordered[0]
    for before, entry in pairwise(ordered):
        reach = max(reach, before, key=lambda known: known.last_bytes)
        if entry.first_bytes <= reach.last_bytes:
            last = min(entry.last_bytes, reach.last_bytes)
            message = (
                f"overlaps {_line(reach)} from {entry.first_bytes} to {last} bytes: there line "
                f"{min(entry.line, reach.line)} is used"
            )
            findings.append(Finding("OVERLAP", _line(max(entry, reach, key=_by_line)), message))
        elif entry.first_bytes > reach.last_bytes + 1:
            first, last = reach.last_bytes + 1, entry.first_bytes - 1
            if not _filled(first, last, entry, everything):
                message = f"a gap before it: no line for {first} to {last} bytes"
                findings.append(Finding("GAP", _line(entry), message))
    return findings


def _by_line(entry: TunerEntry) -> int:
    return entry.line


def _filled(first: int, last: int, entry: TunerEntry, everything: Sequence[TunerEntry]) -> bool:
    """Whether lines with wider filters leave nothing of a gap."""
    wider = [other for other in everything if other.covers(entry) and not other.inverted]
    for other in sorted(wider, key=lambda known: known.first_bytes):
        if other.first_bytes <= first <= other.last_bytes:
            first = other.last_bytes + 1
    return first > last


def _shadowed(entries: Sequence[TunerEntry]) -> list[Finding]:
    """Lines of which an earlier, wider one leaves nothing."""
    findings = []
    for i, entry in enumerate(entries):
        for other in entries[:i]:
            whole = other.first_bytes <= entry.first_bytes and entry.last_bytes <= other.last_bytes
            if whole and other.match != entry.match and other.covers(entry):
                message = f"{_line(other)} stands before it and matches all it does"
                findings.append(Finding("SHADOWED", _line(entry), message))
                break
    return findings


def _rows(text: str) -> list[tuple[int, list[str]]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                cells = next(csv.reader([line]))
            except csv.Error:
                cells = [line]
            found.append((number, [cell.strip() for cell in cells]))
    return found


def _nvidia(text: str, findings: list[Finding]) -> list[TunerEntry]:
    entries = []
    for number, cells in _rows(text):
        if cells[0].lower() in _NVIDIA_NAMES:
            continue
        if not 8 <= len(cells) <= 10:
            message = f"{len(cells)} columns, expected 8 to 10"
            findings.append(Finding("SYNTAX", f"line {number}", message))
            continue
        bad = [*_words(cells[0], cells[3], cells[4])]
        numbers = [_whole(cell) for cell in (cells[1], cells[2], *cells[5:])]
        if None in numbers:
            cell = [cells[1], cells[2], *cells[5:]][numbers.index(None)]
            bad.append(f"{cell[:40]!r} is no whole number")
        if bad:
            findings.extend(Finding("SYNTAX", f"line {number}", message) for message in bad)
            continue
        first, last, channels, *match = [value or 0 for value in numbers]
        match += [ANY] * (len(FILTERS) - len(match))
        entries.append(
            TunerEntry(
                number,
                cells[0].lower(),
                first,
                last,
                cells[3].lower(),
                cells[4].lower(),
                channels,
                tuple(zip(FILTERS, match, strict=True)),
            )
        )
    return entries


def _words(collective: str, algorithm: str, protocol: str) -> list[str]:
    found = []
    for word, known, what in (
        (collective, tuple(ALGORITHMS_OF), "collective"),
        (algorithm, ALGORITHMS, "algorithm"),
        (protocol, PROTOCOLS, "protocol"),
    ):
        if word.lower() not in known:
            found.append(f"{what} {word[:40]!r}: {nearest(word.lower(), known)}")
    return found


def _whole(text: str) -> int | None:
    if text == "-1":
        return -1
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return value if value is not None and value < _CODE_SIZE else None


def _ncclx(text: str, findings: list[Finding]) -> list[TunerEntry]:
    """Each line is one size; a range of one."""
    entries = []
    names = list(NCCLX)
    for number, cells in _rows(text.replace("#", "")):
        if "bytesPerRank" in cells:
            names = cells
            missing = [name for name in NCCLX[:4] if name not in names]
            if missing:
                message = f"columns {', '.join(missing)} are missing"
                findings.append(Finding("SYNTAX", f"line {number}", message))
                return []
            continue
        if len(cells) != len(names):
            message = f"{len(cells)} columns, the heading has {len(names)}"
            findings.append(Finding("SYNTAX", f"line {number}", message))
            continue
        named = dict(zip(names, cells, strict=True))
        bad = _words(named["collective"], named["algorithm"], named["protocol"])
        filters = [n for n in names if n in ("nNodes", "nLocalRanks", "numPipeOps", "regBuff")]
        values = {n: _whole(named[n]) for n in ("bytesPerRank", "channels", *filters) if n in named}
        bad.extend(f"{n}: {named[n][:40]!r} is no number" for n, v in values.items() if v is None)
        if bad:
            findings.extend(Finding("SYNTAX", f"line {number}", message) for message in bad)
            continue
        size = values["bytesPerRank"] or 0
        match = tuple((name, values[name] or 0) for name in filters)
        entries.append(
            TunerEntry(
                number,
                named["collective"].lower(),
                size,
                size,
                named["algorithm"].lower(),
                named["protocol"].lower(),
                values.get("channels") or ANY,
                match,
            )
        )
    return entries


def _sccl_config(name: str, text: str, findings: list[Finding]) -> list[TunerEntry]:
    """Read ``<load path minsize maxsize proto>``; ranges there are half open."""
    entries: list[TunerEntry] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        line = parser.CurrentLineNumber
        if tag == "sccl_algos":
            return
        if tag != "load":
            findings.append(Finding("SYNTAX", f"line {line}", f"<{tag[:40]}>: expected <load>"))
            return
        first, end = (_whole(attributes.get(key, "")) for key in ("minsize", "maxsize"))
        protocol = attributes.get("proto", "").lower()
        bad = [key for key in ("path", "minsize", "maxsize", "proto") if key not in attributes]
        if bad:
            message = f"attributes {', '.join(bad)} are missing"
        elif first is None or end is None or first < 0 or end < 0:
            message = "minsize and maxsize are no whole numbers of bytes"
        elif protocol not in PROTOCOLS:
            message = f"proto {attributes['proto'][:40]!r}: {nearest(protocol, PROTOCOLS)}"
        else:
            entry = TunerEntry(line, "", first, end - 1, attributes["path"], protocol)
            entries.append(entry)
            return
        findings.append(Finding("SYNTAX", f"line {line}", message))

    def refuse(*_: object) -> None:
        raise InputError(Problem(f"{name}:{parser.CurrentLineNumber}", "entities are not read"))

    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(Problem(f"{name}:{error.lineno}", f"no XML: {error}")) from None
    return entries
