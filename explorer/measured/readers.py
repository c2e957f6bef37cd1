"""Readers of measurements, tried in order: a new format is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from explorer.errors import InputError, Problem
from explorer.measured.csv_results import looks_like_csv, read_csv
from explorer.measured.debug_log import read_debug
from explorer.measured.json_results import looks_like_json, read_json
from explorer.measured.nccl_tests_log import TableReader
from explorer.measured.row import NOTHING, Reading, Remark, Row
from explorer.measured.source import LogSource, read_source


def read_text(source: LogSource) -> Reading:
    """Read a text with tables of nccl-tests, lines of NCCL, or both.

    Raises
    ------
    InputError
        If there is nothing of either.
    """
    tables = TableReader(source)
    rows, said = tables.read()
    facts, more = read_debug(source)
    remarks = tuple(sorted((*said, *more), key=lambda remark: remark.line))
    if not tables.recognised and facts.empty:
        first = next((line.strip() for line in source.lines if line.strip()), "")
        message = f"{NOTHING}: neither a table of nccl-tests nor NCCL lines; starts {first[:60]!r}"
        raise InputError(Problem(source.name, message))
    name = "nccl-tests log" if rows or facts.empty else "NCCL_DEBUG log"
    return Reading(source.name, name, tuple(rows), remarks, None if facts.empty else facts)


@dataclass(frozen=True, slots=True)
class Reader:
    """A format: its name, whether a file is meant to be in it, and how it is read."""

    name: str
    recognises: Callable[[LogSource], bool]
    read: Callable[[LogSource], Reading]


READERS = (
    Reader("JSON", looks_like_json, read_json),
    Reader("CSV", looks_like_csv, read_csv),
    Reader("text", lambda _: True, read_text),
)

NOT_MEASUREMENTS = {
    "<sccl_algos": "a table of which algorithm for which size: `explorer verify` checks it",
    "<algo ": "an MSCCL program, not a measurement: `explorer verify` checks it",
    "<system": "an NCCL topology, not a measurement: `explorer topology import` reads it",
    "<graphs": "an NCCL graph file, not a measurement",
    "collective_type,min_bytes": "a tuner table: `explorer verify` checks it",
    "collective,min_bytes": "a tuner table: `explorer verify` checks it",
    "collective,bytesPerRank": "a tuner table (NCCLX): `explorer verify` checks it",
    "internode_sketch": "a TACCL sketch, which goes in --sketch",
}
"""Text near the start that shows a file is something else."""


def read_log(path: Path) -> Reading:
    """Read one file of measurements, recognised by its content.

    Raises
    ------
    InputError
        If it cannot be read or is in no known format. A log without rows is none: its reading
        says so in its remarks.
    """
    return reading_of(read_source(path))


def reading_of(source: LogSource) -> Reading:
    """Read a file that is in memory already; see :func:`read_log`."""
    start = source.text[:4096]
    for mark, what in NOT_MEASUREMENTS.items():
        if mark in start:
            line = start[: start.index(mark)].count("\n") + 1
            raise InputError(Problem(source.at(line), f"{NOTHING}: this is {what}"))
    reader = next(reader for reader in READERS if reader.recognises(source))
    reading = reader.read(source)
    remarks = list(reading.remarks)
    if source.junk:
        remarks.insert(0, Remark(0, "note", "some bytes are no UTF-8 text and are skipped"))
    if source.cut:
        lines = ", ".join(str(line) for line in source.cut[:5])
        remarks.insert(0, Remark(source.cut[0], "note", f"over-long lines are cut: {lines}"))
    if not reading.rows:
        remarks.append(Remark(0, "note", NOTHING))
    return replace(reading, remarks=tuple(remarks))


def read_logs(paths: Iterable[Path]) -> tuple[list[Row], list[Problem]]:
    """Read the rows of several files.

    Returns
    -------
    tuple
        Rows of all files, and everything that had to be said about them, with file and line.

    Raises
    ------
    InputError
        If no file has a row.

    Examples
    --------
    >>> rows, problems = read_logs([])
    Traceback (most recent call last):
    explorer.errors.InputError: no measurements found
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            reading = read_log(path)
        except InputError as error:
            problems.extend(error.problems)
            continue
        rows.extend(reading.rows)
        problems.extend(as_problem(reading, remark) for remark in reading.remarks)
    if not rows:
        raise InputError(problems or NOTHING)
    return rows, problems


def as_problem(reading: Reading, remark: Remark) -> Problem:
    """Name file and line of a remark."""
    where = f"{reading.file}:{remark.line}" if remark.line else reading.file
    return Problem(where, remark.message)
