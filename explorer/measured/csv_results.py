"""Read measurements in CSV: tables of several programs or libraries, tuner samples, our own."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from explorer.errors import ExplorerError, InputError, Problem
from explorer.measured.collective_words import key_of, named_by_heading, ranks_between
from explorer.measured.row import MARKS, Reading, Remark, Row
from explorer.measured.row_check import SLACK, with_bandwidths, with_mark
from explorer.measured.source import LogSource
from explorer.units import parse_size

_ALIASES = {
    "size": "size_bytes",
    "size_b": "size_bytes",
    "bytes": "size_bytes",
    "message_size": "size_bytes",
    "coll": "collective",
    "collective_type": "collective",
    "nranks": "ranks",
    "n_gpus": "ranks",
    "nnodes": "nodes",
    "nchannels": "channels",
    "time": "time_us",
    "latency_us": "time_us",
    "algbw": "algbw_gbs",
    "algbw_gbps": "algbw_gbs",
    "busbw": "busbw_gbs",
    "busbw_gbps": "busbw_gbs",
    "bandwidth_gbps": "algbw_gbs",
    "type": "dtype",
}
_LIBRARY = "library_outofplace_time_us"
_RATIO_FROM_GBS = 1.0
"""Printed bandwidths below say nothing about the factor: they have two decimals."""


def looks_like_csv(source: LogSource) -> bool:
    """Whether the first line names columns of measurements."""
    return bool(_heading(source)[1])


def _heading(source: LogSource) -> tuple[int, list[str]]:
    """Line and column names of the heading; no names if the file has none."""
    for number, line in enumerate(source.lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        names = [word.strip().strip('"').lower() for word in line.split(",")]
        named = [_ALIASES.get(name, name) for name in names]
        timed = any(name == "time_us" or name.endswith("_us") for name in named)
        return number, named if len(named) > 1 and timed and "size_bytes" in named else []
    return 0, []


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    cells: Mapping[str, str]


def read_csv(source: LogSource) -> Reading:
    """Read a CSV file with a heading.

    Raises
    ------
    InputError
        If a column stands twice.
    """
    start, names = _heading(source)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"columns {', '.join(twice)} stand twice"
        raise InputError(Problem(source.at(start), message))
    remarks: list[Remark] = []
    lines = list(_lines(source, start, names, remarks))
    rows: list[Row] = []
    for line in lines:
        try:
            rows.extend(_rows(source, line, names))
        except ExplorerError as error:
            remarks.append(Remark(line.number, "refused", str(error)))
    rows = _with_ranks(rows, start, remarks)
    done = [_checked(row) for row in rows]
    _complain(done, remarks)
    if done and all(row.collective is None for row in done):
        remarks.append(Remark(start, "assumed", "no column and no file name tells the collective"))
    ordered = sorted(dict.fromkeys(remarks), key=lambda remark: remark.line)
    return Reading(source.name, "CSV of measurements", tuple(done), tuple(ordered))


def _lines(
    source: LogSource, start: int, names: Sequence[str], remarks: list[Remark]
) -> Iterator[_Line]:
    for number, line in enumerate(source.lines[start:], start=start + 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            cells = next(csv.reader([line]))
        except csv.Error as error:
            remarks.append(Remark(number, "refused", f"no CSV: {error}"))
            continue
        if len(cells) != len(names):
            message = f"{len(cells)} columns, the heading has {len(names)}: the line is torn"
            remarks.append(Remark(number, "refused", message))
            continue
        yield _Line(number, dict(zip(names, (cell.strip() for cell in cells), strict=True)))


def _rows(source: LogSource, line: _Line, names: Sequence[str]) -> Iterator[Row]:
    cells = line.cells
    base = _base(source, line)
    if _LIBRARY in names:  # programs that are in-place only, beside the library out-of-place
        program = replace(
            base, placement="in", time_us=_time(cells, "time_us"), variant=cells.get("algorithm")
        )
        library = replace(
            program,
            placement="out",
            time_us=_time(cells, _LIBRARY),
            variant="library",
            algorithm=None,
            protocol=None,
            channels=None,
            instances=None,
            printed_algbw_gbs=None,
            printed_busbw_gbs=None,
        )
        if cells.get("program_used") == "no":
            program = with_mark(program, "library-fallback")
        if cells.get("run_complete") == "no":
            program = with_mark(program, "run-stopped")
        yield from (program, library)
    elif "time_us" in names:
        yield replace(base, time_us=_time(cells, "time_us"))
    else:
        for name in names:
            if name.endswith("_us"):
                yield replace(base, time_us=_time(cells, name), variant=name.removesuffix("_us"))


def _base(source: LogSource, line: _Line) -> Row:
    cells = line.cells
    algorithm = cells.get("algorithm") or None
    stated = cells.get("collective") or ""
    by_name = named_by_heading(source.name.replace("\\", "/").rsplit("/", 1)[-1])
    placement = cells.get("placement") or None
    marks = tuple(sorted(m for m in (cells.get("marks") or "").split() if m in MARKS))
    return Row(
        file=source.name,
        line=line.number,
        collective=key_of(stated) or key_of((algorithm or "").split("_")[0]) or by_name,
        ranks=_whole(cells, "ranks"),
        size_bytes=parse_size(cells["size_bytes"], "size"),
        placement=placement if placement in ("in", "out") else None,
        time_us=0.0,
        printed_algbw_gbs=_number(cells, "algbw_gbs"),
        printed_busbw_gbs=_number(cells, "busbw_gbs"),
        count=_whole(cells, "count"),
        dtype=cells.get("dtype") or None,
        redop=cells.get("redop") or None,
        root=_whole(cells, "root"),
        wrong=_whole(cells, "wrong"),
        tolerance=_number(cells, "tolerance"),
        nodes=_whole(cells, "nodes"),
        algorithm=algorithm,
        protocol=cells.get("protocol") or None,
        channels=_whole(cells, "channels"),
        instances=_whole(cells, "instances"),
        variant=cells.get("variant") or None,
        marks=marks,
    )


def _number(cells: Mapping[str, str], name: str) -> float | None:
    text = cells.get(name) or ""
    if not text or text in ("-", "N/A", "None"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e18:
        raise InputError(f"{name}: got {text[:40]!r}, expected a number that is not negative")
    return value


def _time(cells: Mapping[str, str], name: str) -> float:
    value = _number(cells, name)
    if value is None:
        raise InputError(f"{name}: no time")
    return value


def _whole(cells: Mapping[str, str], name: str) -> int | None:
    value = cells.get(name) or ""
    if value in ("", "-1", "-", "None"):
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise InputError(f"{name}: got {value[:40]!r}, expected a whole number")
    return int(value)


def _with_ranks(rows: list[Row], start: int, remarks: list[Remark]) -> list[Row]:
    """Derive the ranks of each collective that has none from its largest bandwidths."""
    found: dict[str | None, int | None] = {}
    for collective in sorted({row.collective or "" for row in rows if row.ranks is None}):
        pairs = [
            (row.printed_algbw_gbs, row.printed_busbw_gbs)
            for row in rows
            if row.collective == (collective or None)
            and (row.printed_algbw_gbs or 0) >= _RATIO_FROM_GBS
            and row.printed_busbw_gbs
        ]
        best = max(pairs, default=None)
        if best is None or best[0] is None or best[1] is None:
            continue
        low, high = (best[1] - 0.005) / (best[0] + 0.005), (best[1] + 0.005) / (best[0] - 0.005)
        fitting = ranks_between(collective or None, low, high)
        if len(fitting) == 1:
            found[collective or None] = fitting[0]
            message = f"{collective or 'all rows'}: {fitting[0]} ranks, from busbw over algbw"
            remarks.append(Remark(start, "assumed", message))
    if any(row.ranks is None and row.collective not in found for row in rows):
        remarks.append(Remark(start, "assumed", "the number of ranks is unknown"))
    return [replace(r, ranks=found.get(r.collective)) if r.ranks is None else r for r in rows]


def _checked(row: Row) -> Row:
    row = replace(row, marks=tuple(mark for mark in row.marks if mark != "inconsistent"))
    if row.printed_algbw_gbs and row.time_us > 0:
        algbw = row.size_bytes / (row.time_us * 1e3)
        room = 0.006 + 0.5 * SLACK * algbw + 0.01 * algbw * (row.time_us < 10)
        return with_bandwidths(row, fits=abs(algbw - row.printed_algbw_gbs) <= room)
    return with_bandwidths(row)


def _complain(rows: Sequence[Row], remarks: list[Remark]) -> None:
    odd = [row for row in rows if "inconsistent" in row.marks]
    if not odd:
        return
    first = odd[0]
    rate = first.size_bytes / (first.time_us * 1e3) if first.time_us else math.inf
    remarks.append(
        Remark(
            first.line,
            "conflict",
            f"bandwidth and time do not belong together in {len(odd)} of {len(rows)} rows: here "
            f"{first.size_bytes} bytes in {first.time_us:g} us are {rate:.3g} GB/s, the file says "
            f"{first.printed_algbw_gbs:g}"
            if first.printed_algbw_gbs
            else f"{first.size_bytes} bytes in {first.time_us:g} us",
        )
    )
