"""The store: what is written comes back, whoever writes, whatever happens to the file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import InputError
from explorer.store.export import to_csv, to_frame, to_parquet
from explorer.store.program_npz import program_bytes, program_from_bytes
from explorer.store.record import Record
from explorer.store.schema import POINT_COLUMNS, ROW_COLUMNS
from explorer.store.store import FILE_NAME, Store
from sim.program import Buffer, Op, Program, ProgramBuilder


def record(key: str = "k", **changes: object) -> Record:
    fields: dict = {
        "key": key,
        "identity": f"identity of {key}",
        "scenario": "s",
        "point": {
            "topology": "ring:4",
            "nodes": None,
            "collective": "allgather",
            "size_bytes": 1024,
            "method": "ring",
            "sketch": None,
            "placement": "out",
        },
        "status": "done",
        "row": {"time_us": 2.5, "size_bytes": 1024, "requested_bytes": 1030, "ranks": 4},
        "seconds": 0.5,
        "versions": {"explorer": "0.1.0"},
    }
    return Record(**(fields | changes))


def program(sends: int = 1) -> Program:
    builder = ProgramBuilder(ranks=2)
    out, into = builder.block(0, send=1), builder.block(1, recv=0)
    for k in range(sends):
        builder.step(out, Op.SEND, src=(Buffer.INPUT, k))
        builder.step(into, Op.RECV, dst=(Buffer.OUTPUT, k))
    return builder.build(name="p", collective="custom", nchunks=sends, max_bytes=1 << 40)


def same(a: Program, b: Program) -> bool:
    return all(
        np.array_equal(x, y) and x.dtype == y.dtype if isinstance(x, np.ndarray) else x == y
        for x, y in ((getattr(a, n), getattr(b, n)) for n in Program.__slots__)
    )


def test_a_record_and_its_program_come_back(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "out", create=True) as store:
        store.put(record(), program(3))
        store.put(record("bad", status="failed", row={}, error="no schedule", error_code=3))
    with Store(tmp_path / "new" / "out") as store:
        assert list(store.records()) == [
            record("bad", status="failed", row={}, error="no schedule", error_code=3),
            record(),
        ]
        assert store.statuses() == {"bad": "failed", "k": "done"}
        found = store.program("k")
        assert found is not None
        assert same(found, program(3))
        assert store.program("bad") is None
        assert store.mean_seconds() == {"ring": 0.5}


def test_a_newer_result_of_the_same_point_takes_the_place_of_the_older(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.put(record("old code", identity="same"), program())
        store.put(record("new code", identity="same", row={"time_us": 1.0}))
        assert [r.key for r in store.records()] == ["new code"]
        assert store.program("old code") is None
        store.put(record("new code", identity="same", row={"time_us": 7.0}), program())
        assert [r.row["time_us"] for r in store.records()] == [7.0]
        store.discard(["new code"])
        assert list(store.records()) == []
        assert store.program("new code") is None


@given(st.permutations(range(6)))
def test_the_order_does_not_depend_on_what_finished_first(order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        for i in order:
            size = 1 << (20 - i)
            point = dict(record().point) | {"size_bytes": size}
            store.put(record(f"k{i}", identity=f"i{i}", point=point))
        assert [r.key for r in store.records()] == ["k5", "k4", "k3", "k2", "k1", "k0"]
        assert [r.key for r in store.records(["k1", "k4"])] == ["k4", "k1"]


def test_equal_programs_give_equal_bytes_and_damage_is_told() -> None:
    data = program_bytes(program(5))
    assert data == program_bytes(program(5))
    assert same(program_from_bytes(data), program(5))
    for bad in (b"", b"PK", data[: len(data) // 2], data[:-1]):
        with pytest.raises(InputError, match="is not a packed program"):
            program_from_bytes(bad)


def test_a_row_that_json_cannot_say_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        with pytest.raises(ValueError, match="JSON compliant"):
            store.put(record(row={"time_us": float("nan")}))
        assert store.statuses() == {}


def _write(folder: Path, writer: int, count: int) -> None:
    with Store(folder, create=True) as store:
        for i in range(count):
            store.put(record(f"{writer}-{i}"), program(i % 4 + 1))


def test_processes_write_at_once_also_into_a_store_that_none_has_made_yet(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, w, 40)) for w in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [w.exitcode for w in writers] == [0, 0, 0, 0]
    with Store(tmp_path, read_only=True) as store:
        assert set(store.statuses()) == {f"{w}-{i}" for w in range(4) for i in range(40)}
        found = store.program("3-38")
        assert found is not None
        assert same(found, program(3))


def test_a_writer_killed_at_any_instant_leaves_every_stored_point(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_store import Store, program, record
        with Store({str(tmp_path)!r}, create=True) as store:
            for i in range(100000):
                store.put(record(f"k{{i}}"), program(200))
                print(i, flush=True)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == 25:
                child.send_signal(signal.SIGKILL)
                break
        told = [25, *(int(line) for line in child.stdout if line.endswith(b"\n"))]
    with Store(tmp_path) as store:
        kept = {int(key[1:]) for key in store.statuses()}
        assert kept >= set(range(told[-1] + 1))
        assert len(kept) <= told[-1] + 2
        assert all(store.program(f"k{i}") is not None for i in kept)
        store.put(record("more"))


def test_no_store_is_told_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no results\.sqlite; `explorer sweep"):
        Store(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be made a folder"):
        Store(tmp_path / "file", create=True)


def test_another_schema_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    Store(tmp_path, create=True).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
        db.execute("UPDATE meta SET value = '9.9.9' WHERE name = 'written_by'")
    db.close()
    for create in (True, False):
        with pytest.raises(InputError, match=r"version 99.*reads 1;.*another folder.*9\.9\.9"):
            Store(tmp_path, create=create)


def test_an_sqlite_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("CREATE TABLE recipes (name)")
    db.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(InputError, match="not a results store"):
        Store(tmp_path, create=True)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "truncated", "zeroed"])
def test_a_damaged_file_is_reported_and_never_overwritten(tmp_path: Path, damage: str) -> None:
    with Store(tmp_path, create=True) as store:
        for i in range(50):
            store.put(record(f"k{i}"), program(100))
    path = tmp_path / FILE_NAME
    data = path.read_bytes()
    if damage == "text":
        path.write_text("these are my notes")
    elif damage == "truncated":
        path.write_bytes(data[:5000])
    else:
        path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    before = path.read_bytes()
    with pytest.raises(InputError, match="is damaged"), Store(tmp_path, create=True) as store:
        list(store.records())
    assert path.read_bytes() == before


def test_an_empty_file_left_by_a_crash_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    with Store(tmp_path, create=True) as store:
        store.put(record())
        assert store.statuses() == {"k": "done"}


def test_a_full_disk_is_told_and_what_was_stored_stays(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.put(record())
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(InputError, match="disk is full; points stored so far are safe"):
            store.put(record("big", row={"text": "x" * 100_000}))
        assert store.statuses() == {"k": "done"}


@contextmanager
def no_superuser() -> Iterator[None]:
    """Run the body as a user whom file modes bind."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_written_can_be_read_and_writing_says_why() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(folder, create=True) as store:
            store.put(record(), program())
        (folder / FILE_NAME).chmod(0o444)
        folder.chmod(0o555)
        with no_superuser():
            with Store(folder, read_only=True) as store:
                assert [r.key for r in store.records()] == ["k"]
                assert store.program("k") is not None
            with (
                pytest.raises(InputError, match=r"results\.sqlite: cannot be written"),
                Store(folder, create=True) as store,
            ):
                store.put(record("more"))
            with pytest.raises(InputError, match="cannot be made a folder"):
                Store(folder / "below", create=True)
        folder.chmod(0o755)


def test_the_table_has_a_line_per_point_and_whole_numbers_stay_whole(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.put(record())
        store.put(record("bad", status="failed", row={}, error="why", error_code=3))
        frame = to_frame(store)
        to_csv(store, tmp_path / "a.csv")
        to_csv(store, tmp_path / "b.csv")
    assert list(frame["key"]) == ["bad", "k"]
    assert set(frame.columns) >= {*POINT_COLUMNS, *ROW_COLUMNS, "error", "seconds", "created"}
    assert frame["size_bytes"].tolist()[1] == 1024
    assert str(frame["size_bytes"].dtype) == "Int64"
    assert frame["time_us"].tolist()[1] == 2.5
    assert frame["error_code"].tolist() == [3, 0]
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("k,s,done,ring:4,")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_parquet_is_written_or_what_it_needs_is_said(tmp_path: Path) -> None:
    import importlib.util

    import pandas as pd

    with Store(tmp_path, create=True) as store:
        store.put(record())
        if importlib.util.find_spec("pyarrow") is None:
            with pytest.raises(InputError, match=r"collective-explorer\[parquet\]"):
                to_parquet(store, tmp_path / "a.parquet")
        else:
            to_parquet(store, tmp_path / "a.parquet")
            assert pd.read_parquet(tmp_path / "a.parquet").equals(to_frame(store))


def test_skipped_combinations_of_a_scenario_are_replaced_as_a_whole(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.set_skipped("a", [("ring alltoall", 4, "no ring"), ("x", 1, "y")])
        store.set_skipped("b", [("ring alltoall", 2, "no ring")])
        store.set_skipped("a", [("ring alltoall", 8, "no ring")])
        assert store.skipped() == [
            ("a", "ring alltoall", 8, "no ring"),
            ("b", "ring alltoall", 2, "no ring"),
        ]
