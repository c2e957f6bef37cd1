"""A shipped smoke scenario through the real evaluation: store, ranking, winners, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.compare.envelope import envelope
from explorer.compare.ranking import rank
from explorer.core.collective import Collective
from explorer.report.plots import plot_rows
from explorer.scenario.load import load_scenario
from explorer.store.store import Store
from explorer.sweep.run import SweepSummary, run_sweep
from explorer.verify.program import verify_program

SMOKE = Path(__file__).parent.parent / "scenarios" / "smoke"
MEASURED = ("synth_seconds", "sim_seconds", "stages")


def run(name: str, out: Path, executor: str) -> SweepSummary:
    return run_sweep(load_scenario(SMOKE / name), out, jobs=2, executor=executor)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepSummary]:
    out = tmp_path_factory.mktemp("sweep")
    return out, run("reductions_full4.yaml", out, "serial")


def test_every_point_is_done_and_times_are_what_the_links_make_of_them(
    swept: tuple[Path, SweepSummary],
) -> None:
    _, summary = swept
    assert (summary.points, summary.done, summary.failed) == (36, 36, 0)
    # Links of 0.5 us and 50 GB/s; all-pairs AllReduce sends quarters twice, at once to all.
    for row in summary.rows:
        if (row["method"], row["collective"], row["instances"]) == ("allpairs", "allreduce", 1):
            quarter_us = row["size_bytes"] / 4 / 50e3
            assert row["time_us"] == pytest.approx(2 * (0.5 + quarter_us))
        assert row["time_us"] >= row["bound_us"] * (1 - 1e-9)


def test_stored_programs_are_the_verified_ones(swept: tuple[Path, SweepSummary]) -> None:
    out, summary = swept
    with Store(out, read_only=True) as store:
        for row in summary.rows:
            program = store.program(row["point"])
            assert program is not None
            chunks = program.nchunks // program.ranks
            report = verify_program(program, Collective(row["collective"], 4, chunks))
            assert report.ok, report.errors


def test_processes_store_the_same_rows_and_the_same_program_bytes(
    swept: tuple[Path, SweepSummary], tmp_path: Path
) -> None:
    out, _ = swept
    run("reductions_full4.yaml", tmp_path, "processes")

    def stored(folder: Path) -> list[object]:
        with Store(folder, read_only=True) as store:
            programs = dict(store._db.execute("SELECT key, npz FROM programs"))
            return [
                (r.key, {k: v for k, v in r.row.items() if k not in MEASURED}, programs[r.key])
                for r in store.records()
            ]

    assert stored(out) == stored(tmp_path)


def test_winners_cover_the_swept_sizes_and_pictures_are_drawn(
    swept: tuple[Path, SweepSummary], tmp_path: Path
) -> None:
    _, summary = swept
    rows = rank(summary.rows)
    assert {row["place"] for row in rows} >= {1, 2}
    for collective in ("allreduce", "reducescatter"):
        ranges = [r for r in envelope(rows) if r.setting.collective == collective]
        assert (ranges[0].min_bytes, ranges[-1].max_bytes) == (1 << 10, 1 << 20)
    names = [f.name for f in plot_rows(rows, tmp_path)]
    assert names == ["full-4_allreduce.png", "full-4_reducescatter.png"]


def test_odd_sizes_stay_as_rows_without_rates(tmp_path: Path) -> None:
    """C11, C12: zero, below one element per chunk, not divisible."""
    summary = run("sizes_odd.yaml", tmp_path, "serial")
    assert (summary.done, summary.failed) == (summary.points, 0)
    for row in summary.rows:
        chunk_bytes = 4 * 3 * row["chunks_per_rank"]
        assert row["size_bytes"] == row["requested_bytes"] // chunk_bytes * chunk_bytes
        if row["size_bytes"] == 0:
            assert (row["time_us"], row["algbw_gbs"], row["busbw_gbs"]) == (0.0, None, None)
        else:
            assert row["time_us"] > 0
            assert row["algbw_gbs"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)
    kept = [r for r in rank(summary.rows) if r["requested_bytes"] == 100]
    assert {r["size_bytes"] for r in kept} == {96, 60}
    assert all(r["size_bytes"] == 96 for r in kept if r["place"] == 1)


def test_one_rank_takes_no_time_and_has_no_rate(tmp_path: Path) -> None:
    """C39."""
    text = "topology: ring:1\ncollectives: allreduce\nsizes: 1MiB\nfidelity: ideal\nmethods: ring\n"
    (tmp_path / "one.yaml").write_text(text)
    found = run_sweep(load_scenario(tmp_path / "one.yaml"), tmp_path / "out", executor="serial")
    (row,) = rank(found.rows)
    assert (row["place"], row["ranks"], row["time_us"]) == (1, 1, 0.0)
    assert (row["algbw_gbs"], row["busbw_gbs"]) == (None, None)
    assert plot_rows(found.rows, tmp_path / "plots") == []
