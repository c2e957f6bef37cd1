"""``explorer sweep``: everything a scenario asks for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli import options
from explorer.cli.output import note, number, print_json

if TYPE_CHECKING:
    from explorer.sweep.estimate import Estimate
    from explorer.sweep.run import Progress, SweepSummary

NAME = "sweep"
HELP = "Run a scenario: evaluate what is not stored yet, rank, plot."
EXAMPLE = "explorer sweep scenarios/smoke/demo.yaml -o out/demo --jobs 2"


def command(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", help="What to sweep.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Result folder; default out/NAME.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Worker processes.")] = 1,
    executor: Annotated[
        str | None, typer.Option("--executor", help="serial or processes; default by --jobs.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget stored results of this scenario.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run stored failures again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many points and about how long.")
    ] = False,
    top: Annotated[int | None, typer.Option("--top", help="Best N of each size only.")] = None,
    as_json: options.Json = False,
) -> None:
    """Sweep."""
    from explorer.compare.ranking import rank
    from explorer.compare.selection import select
    from explorer.scenario.load import load_scenario
    from explorer.sweep.estimate import estimate
    from explorer.sweep.run import run_sweep

    loaded = load_scenario(scenario)
    out = output or Path("out") / loaded.name
    if dry_run:
        _print_estimate(estimate(loaded, out, fresh=fresh), as_json)
        return
    with _progress(as_json) as report:
        summary = run_sweep(
            loaded,
            out,
            jobs=jobs,
            executor=executor or ("processes" if jobs > 1 else "serial"),
            fresh=fresh,
            retry_failed=retry_failed,
            progress=report,
        )
    rows = select(rank(summary.rows), top=top)
    if summary.ran:
        from explorer.report.plots import plot_rows

        plot_rows(summary.rows, out / "plots")
    if as_json:
        print_json({**_counts(summary), "out": str(out), "rows": rows})
    else:
        from explorer.cli.ranked import print_ranked

        print_ranked(rows)
        _print_summary(summary, out)
    if summary.interrupted:
        note(f"stopped by {summary.interrupted}; the same command goes on from here")
        raise typer.Exit(130)


def _counts(summary: SweepSummary) -> dict[str, object]:
    return {
        "points": summary.points,
        "done": summary.done,
        "failed": summary.failed,
        "skipped": summary.skipped,
        "ran": summary.ran,
        "reused": summary.reused,
        "failures": list(summary.failures),
        "left_out": [
            {"scenario": s.scenario, "what": s.what, "points": s.points, "reason": s.reason}
            for s in summary.left_out
        ],
    }


def _print_summary(summary: SweepSummary, out: Path) -> None:
    for left in summary.left_out:
        note(f"left out: {left.what} ({left.points} points): {left.reason}")
    for row in summary.failures:
        note(
            f"failed: {row['method']} {row['collective']} on {row['topology']},"
            f" {row['size_bytes']} bytes: {row['error']}"
        )
    print(
        f"{summary.done} of {summary.points} points done ({summary.ran} run now,"
        f" {summary.reused} stored), {summary.failed} failed, {summary.skipped} left out;"
        f" results in {out}, pictures in {out / 'plots'}"
    )


def _print_estimate(found: Estimate, as_json: bool) -> None:
    document = {
        "points": found.points,
        "stored": found.stored,
        "to_run": found.to_run,
        "skipped": found.skipped,
        "by_method": found.by_method,
        "seconds": found.seconds,
        "unknown": list(found.unknown),
    }
    if as_json:
        print_json(document)
        return
    methods = ", ".join(f"{count} {method}" for method, count in found.by_method.items())
    print(f"{found.points} points, {found.stored} stored, {found.to_run} to run ({methods or '-'})")
    if found.seconds is not None:
        print(f"about {number(found.seconds, 2)} s of work on one process")
    if found.unknown:
        print(f"no stored time yet for: {', '.join(found.unknown)}")
    for left in found.left_out:
        print(f"left out: {left.what} ({left.points} points): {left.reason}")


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Draw a bar on stderr when it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sweep", total=None)

        def report(state: Progress) -> None:
            failed = f", {state.failed} failed" if state.failed else ""
            bar.update(
                task, total=state.total, completed=state.finished, description=f"sweep{failed}"
            )

        yield report
