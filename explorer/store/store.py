"""Store: the results of sweeps in one SQLite file, written by any number of processes at once.

Write-ahead logging lets readers read while a sweep writes; every point is one transaction, so a
process killed at any instant loses no point that was stored. Write-ahead logs need a local disk.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import explorer
from explorer.errors import InputError, Problem
from explorer.store.program_npz import program_bytes, program_from_bytes
from explorer.store.record import Record
from explorer.store.schema import APPLICATION_ID, ORDER, SCHEMA_VERSION, TABLES
from sim.program import Program

FILE_NAME = "results.sqlite"
"""Name of the file in the output folder."""

BUSY_SECONDS = 60.0
"""How long a writer waits for others before it gives up."""

_HEADER = b"SQLite format 3\x00"
_COLUMNS = "key, identity, scenario, point, status, row, error, error_code, seconds, versions"


class Store:
    """Results of sweeps; use as a context manager.

    Parameters
    ----------
    folder
        Output folder of a sweep.
    create
        Make the folder and the file where they are missing.
    read_only
        Refuse every write; works on folders that cannot be written.

    Raises
    ------
    InputError
        If there is no store and ``create`` is false, the file is damaged, is something else, was
        written by another schema version, or cannot be written. A file that cannot be used is
        left as it is.
    """

    def __init__(
        self, folder: str | Path, *, create: bool = False, read_only: bool = False
    ) -> None:
        self.path = Path(folder) / FILE_NAME
        if create:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    Problem(str(folder), f"cannot be made a folder: {error.strerror}")
                ) from None
        self._check_file(create)
        with self._translated():
            self._db = _connect(self.path, read_only)
        try:
            with self._translated():
                self._prepare(create and not read_only)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; further use is an error."""
        self._db.close()

    def put(self, record: Record, program: Program | bytes | None = None) -> None:
        """Store a point in one transaction, in place of an older one of the same identity.

        Parameters
        ----------
        record
            The point.
        program
            Its program, or the bytes :func:`~explorer.store.program_npz.program_bytes` made.

        Raises
        ------
        InputError
            If the file cannot be written.
        ValueError
            If the row holds something JSON has no words for, such as NaN.
        """
        values = (
            record.key,
            record.identity,
            record.scenario,
            _json(record.point),
            record.status,
            _json(record.row),
            record.error,
            record.error_code,
            record.seconds,
            _json(record.versions),
        )
        packed = program_bytes(program) if isinstance(program, Program) else program
        with self._transaction() as db:
            _delete(db, "key = ? OR identity = ?", (record.key, record.identity))
            marks = ", ".join("?" * len(values))
            db.execute(f"INSERT INTO points ({_COLUMNS}) VALUES ({marks})", values)
            if packed is not None:
                db.execute("INSERT INTO programs VALUES (?, ?)", (record.key, packed))

    def discard(self, keys: Iterable[str]) -> None:
        """Forget points, all in one transaction."""
        with self._transaction() as db:
            for key in keys:
                _delete(db, "key = ?", (key,))

    def set_skipped(self, scenario: str, skipped: Iterable[tuple[str, int, str]]) -> None:
        """Keep which combinations a scenario left out: (what, points, reason) each."""
        with self._transaction() as db:
            db.execute("DELETE FROM skipped WHERE scenario = ?", (scenario,))
            db.executemany(
                "INSERT INTO skipped VALUES (?, ?, ?, ?)",
                [(scenario, *item) for item in skipped],
            )

    def skipped(self) -> list[tuple[str, str, int, str]]:
        """Combinations left out: (scenario, what, points, reason), sorted."""
        with self._translated():
            return self._db.execute("SELECT * FROM skipped ORDER BY scenario, what").fetchall()

    def statuses(self) -> dict[str, str]:
        """Status of every stored key."""
        with self._translated():
            return dict(self._db.execute("SELECT key, status FROM points ORDER BY key"))

    def records(self, keys: Iterable[str] | None = None) -> Iterator[Record]:
        """Every record, or those of some keys, in the documented order."""
        wanted = None if keys is None else set(keys)
        with self._translated():
            cursor = self._db.execute(f"SELECT {_COLUMNS} FROM points ORDER BY {ORDER}")
            for key, identity, scenario, point, status, row, *rest in cursor:
                if wanted is None or key in wanted:
                    error, code, seconds, versions = rest
                    yield Record(
                        key,
                        identity,
                        scenario,
                        json.loads(point),
                        status,
                        json.loads(row),
                        error,
                        code,
                        seconds,
                        json.loads(versions),
                    )

    def program(self, key: str) -> Program | None:
        """Program of a point; None when none was stored."""
        with self._translated():
            found = self._db.execute("SELECT npz FROM programs WHERE key = ?", (key,)).fetchone()
        return None if found is None else program_from_bytes(found[0], f"{self.path}: {key}")

    def mean_seconds(self) -> dict[str, float]:
        """Mean wall-clock seconds of a stored point by method, for estimates."""
        with self._translated():
            return dict(
                self._db.execute(
                    "SELECT json_extract(point, '$.method') AS method, avg(seconds) FROM points"
                    " GROUP BY method ORDER BY method"
                )
            )

    def results(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of the ``results`` view."""
        with self._translated():
            cursor = self._db.execute("SELECT * FROM results")
            return [column[0] for column in cursor.description], cursor.fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself when the disk is full.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say what a database error means for the person who owns the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(Problem(str(self.path), _meaning(error))) from error
        except json.JSONDecodeError as error:
            raise InputError(Problem(str(self.path), _DAMAGED.format(error))) from error

    def _check_file(self, create: bool) -> None:
        if not self.path.exists():
            if create:
                return
            raise InputError(
                Problem(
                    str(self.path.parent),
                    f"has no {FILE_NAME}; `explorer sweep SCENARIO.yaml -o OUT` makes one",
                )
            )
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_HEADER))
        except OSError as error:
            raise InputError(Problem(str(self.path), f"cannot be read: {error.strerror}")) from None
        if head not in (b"", _HEADER):
            raise InputError(Problem(str(self.path), _DAMAGED.format("not an SQLite file")))

    def _prepare(self, create: bool) -> None:
        if create and not _tables(self._db):
            self._create()
        if "meta" not in _tables(self._db):
            raise InputError(
                Problem(str(self.path), "is an SQLite file but not a results store; choose another")
            )
        meta = dict(self._db.execute("SELECT name, value FROM meta"))
        if meta.get("schema_version") != str(SCHEMA_VERSION):
            raise InputError(
                Problem(
                    str(self.path),
                    f"has schema version {meta.get('schema_version')}, this explorer reads"
                    f" {SCHEMA_VERSION}; sweep into another folder, or read it with explorer"
                    f" {meta.get('written_by', 'of its own version')}",
                )
            )

    def _create(self) -> None:
        # Switching to WAL takes an exclusive lock without honouring the busy timeout.
        for attempt in range(200):
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                if attempt == 199:
                    raise
                time.sleep(0.02)
        self._db.execute("BEGIN IMMEDIATE")
        if not _tables(self._db):
            for statement in TABLES.split(";\n"):
                if statement.strip():
                    self._db.execute(statement)
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [
                    ("schema_version", str(SCHEMA_VERSION)),
                    ("written_by", explorer.__version__),
                ],
            )
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute("COMMIT")


_DAMAGED = (
    "is damaged ({}); it is left as it is. Move it away and sweep again, or try"
    " `sqlite3 results.sqlite .recover`"
)


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        db.execute("PRAGMA synchronous = NORMAL")
        return db
    # A reader of a write-ahead log makes files beside it; where it may not and no log is left
    # over, nobody can be writing either, and the file may be taken as immutable.
    effective = os.access in os.supports_effective_ids
    writable = os.access(path.parent, os.W_OK, effective_ids=effective)
    alone = not writable and not path.with_name(f"{FILE_NAME}-wal").exists()
    mode = "immutable=1" if alone else "mode=ro"
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?{mode}", timeout=BUSY_SECONDS, isolation_level=None, uri=True
    )


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}


def _delete(db: sqlite3.Connection, condition: str, values: tuple[str, ...]) -> None:
    db.execute(
        f"DELETE FROM programs WHERE key IN (SELECT key FROM points WHERE {condition})", values
    )
    db.execute(f"DELETE FROM points WHERE {condition}", values)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), allow_nan=False, separators=(",", ":"))


def _meaning(error: sqlite3.Error) -> str:
    text = str(error)
    if "readonly" in text or "unable to open" in text:
        return f"cannot be written ({text}); check who owns the folder, or choose another with -o"
    if "full" in text:
        return "the disk is full; points stored so far are safe, free space and sweep again"
    if "locked" in text or "busy" in text:
        return f"another process held it for more than {BUSY_SECONDS:.0f} s; try again"
    if isinstance(error, sqlite3.OperationalError) and "no such" in text:
        return _DAMAGED.format(text)
    return _DAMAGED.format(text) if isinstance(error, sqlite3.DatabaseError) else text
