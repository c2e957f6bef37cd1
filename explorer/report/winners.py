"""Winners leave as files: one program per size range, verified from the file alone."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.compare.envelope import WinnerRange, envelope
from explorer.errors import InputError, Problem
from explorer.evaluate.export import write_program
from explorer.formats.dialects import dialect_of
from explorer.store.program_npz import program_bytes
from explorer.store.store import Store
from sim.program import Program

TABLE = "winners.csv"
"""Name of the table in the export folder."""

FILES = "xml"
"""Folder of the programs in it: the executor loads every file beside an algorithm, so this holds
nothing else."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One written program, or the reason why a range has none.

    Parameters
    ----------
    setting
        Machine and call in words.
    algorithm
        Label of the winner.
    min_bytes, max_bytes
        Range it serves, inclusive; None in a profile's own units.
    time_us, bound_us
        Of the first swept size in the range.
    margin
        Smallest lead over the next algorithm in the winner's whole range.
    file
        File name; empty when nothing was written.
    problem
        Why not.
    """

    setting: str
    algorithm: str
    min_bytes: int | None
    max_bytes: int | None
    time_us: float
    bound_us: float
    margin: float | None
    file: str
    problem: str


def export_winners(store: Store, folder: Path, dialect: str) -> list[Exported]:
    """Write the winner of every size range as MSCCL XML, and a table of all.

    Parameters
    ----------
    store
        Results.
    folder
        Made when missing; what an earlier export wrote there is replaced.
    dialect
        Runtime the files are for.

    Returns
    -------
    list
        One entry per file; a range whose program the target cannot load has no file and a reason.

    Raises
    ------
    InputError
        If the store has no result, the target has no file form, or the folder cannot be written.
    """
    if not dialect_of(dialect).writable:
        raise InputError(
            Problem(
                "--dialect", f"{dialect!r} is a target for simulation only, no runtime loads it"
            )
        )
    ranges = envelope(record.flat() for record in store.records() if record.status == "done")
    if not ranges:
        raise InputError("the store has no finished result to export")
    files = folder / FILES
    try:
        files.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Problem(str(files), f"cannot be made: {error.strerror}")) from None
    _forget_earlier(folder)
    written = [item for span in ranges for item in _export_range(store, span, files, dialect)]
    _write_table(written, folder / TABLE)
    return written


def _export_range(
    store: Store, span: WinnerRange, folder: Path, dialect: str
) -> Iterator[Exported]:
    for rows, program in _same_programs(store, span.rows):
        low, high = _served(span, rows)
        problem = ""
        names: list[str] = []
        for placement in _placements(program, dialect):
            name = _file_name(span, low, placement)
            try:
                write_program(
                    program,
                    folder / name,
                    dialect,
                    placement=placement,
                    min_bytes=low or 0,
                    max_bytes=high,
                )
                names.append(name)
            except InputError as error:
                problem = "; ".join(str(p) for p in error.problems)
        yield Exported(
            f"{span.setting.collective} {span.setting.placement} on {span.setting.machine}",
            span.algorithm.label,
            low,
            high,
            float(rows[0]["time_us"]),
            float(rows[0]["bound_us"]),
            span.margin,
            " ".join(names),
            problem,
        )


def _same_programs(
    store: Store, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[list[dict[str, Any]], Program]]:
    """Neighbouring sizes that run the very same program, together."""
    kept: list[dict[str, Any]] = []
    last: Program | None = None
    key = b""
    for row in rows:
        program = store.program(str(row["point"]))
        if program is None:
            continue
        mine = program_bytes(program)
        if last is not None and mine != key:
            yield kept, last
            kept = []
        kept.append(row)
        last, key = program, mine
    if last is not None:
        yield kept, last


def _served(span: WinnerRange, rows: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Range of one program inside its winner's: from its first swept size to before the next."""
    sizes = [row["requested_bytes"] for row in span.rows]
    first = sizes.index(rows[0]["requested_bytes"])
    after = first + len(rows)
    low = span.min_bytes if first == 0 else sizes[first]
    high = span.max_bytes if after == len(sizes) or sizes[after] is None else sizes[after] - 1
    return low, high


def _placements(program: Program, dialect: str) -> list[str | None]:
    if dialect_of(dialect).one_placement and program.in_place and program.out_of_place:
        return ["in", "out"]
    return [None]


def _file_name(span: WinnerRange, low: int | None, placement: str | None) -> str:
    where = placement or span.setting.placement
    size = "profile" if low is None else f"from{low}"
    parts = (span.setting.machine, span.setting.collective, where, size, span.algorithm.label)
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", "_".join(parts)) + ".xml"


def _forget_earlier(folder: Path) -> None:
    """Delete the programs that an earlier export's table lists; no other file is touched."""
    table = folder / TABLE
    if not table.is_file():
        return
    with table.open(encoding="utf-8", newline="") as file:
        names = [name for row in csv.DictReader(file) for name in (row.get("file") or "").split()]
    for name in names:
        if name == Path(name).name:
            (folder / FILES / name).unlink(missing_ok=True)


def _write_table(rows: list[Exported], path: Path) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Exported.__dataclass_fields__)
            for row in rows:
                writer.writerow(getattr(row, name) for name in Exported.__dataclass_fields__)
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error))) from None
