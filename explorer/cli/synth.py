"""``explorer synth``: one design point."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import note, number, print_json

NAME = "synth"
HELP = "Synthesize (or build) one collective, verify it, time it, and write it as MSCCL XML."
EXAMPLE = (
    "explorer synth --topology ndv2 --nodes 2 --collective allgather --size 1M"
    " --sketch ndv2-sk-1 --method milp -o ag.xml"
)


def command(
    topology: options.Topology,
    collective: options.Collective,
    nodes: options.Nodes = None,
    size: options.Size = None,
    root: options.Root = 0,
    placement: Annotated[
        str, typer.Option("--placement", help="Calls it serves: in, out or both.")
    ] = "out",
    sketch: options.Sketch = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="milp, or a baseline such as ring.")
    ] = "milp",
    chunks: Annotated[
        str | None, typer.Option("--chunks", help="Chunks per rank; default: the sketch's, or 1.")
    ] = None,
    cost_model: options.CostModel = "exclusive",
    protocol: Annotated[str, typer.Option("--protocol", help="Simple, LL or LL128.")] = "Simple",
    channels: Annotated[int, typer.Option("--channels", help="Channels of a baseline.")] = 1,
    instances: Annotated[
        int, typer.Option("--instances", help="Parallel copies over split chunks.")
    ] = 1,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds of wall clock for synthesis.")
    ] = None,
    dialect: options.Dialect = "executor",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the program as MSCCL XML.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run one design point."""
    from explorer.evaluate.export import write_program
    from explorer.evaluate.point import evaluate_point
    from explorer.scenario.point import DesignPoint

    point = DesignPoint(
        topology=topology,
        nodes=nodes,
        collective=collective,
        size_bytes=options.one_size(size),
        method=method,
        root=root,
        placement=placement,
        sketch=sketch,
        chunks=_chunks(chunks),
        cost_model=cost_model,
        protocol=protocol,
        channels=channels,
        instances=instances,
        dialect=dialect,
        time_limit_s=time_limit,
    )
    with _sigterm_interrupts():
        result = evaluate_point(point)
    row = dict(result.row)
    row["program_time_us"] = row.pop("time_us")
    row["time_us"] = row.pop("plan_time_us")
    row["seconds"] = row.pop("synth_seconds")
    row["xml"] = None
    if output is not None and result.program is not None:
        row["xml"] = str(write_program(result.program, output, dialect))
    if as_json:
        print_json(row)
    else:
        _print(row)
    if result.program is None:
        note(f"not lowered for {dialect}: {row['not_lowered']}")


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Treat the first SIGTERM like Ctrl-C: synthesis ends with the best it has, which is written.

    A second one ends the process.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _chunks(text: str | None) -> int | None:
    from explorer.errors import InputError, Problem

    if text is None or text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise InputError(Problem("--chunks", f"got {text!r}, expected a number >= 1 or auto"))
    return int(text)


def _print(row: dict[str, object]) -> None:
    unit = "us" if row["time_unit"] == "us" else "(profile units)"
    guide = f" with {row['sketch']}" if row["sketch"] else ""
    what = f"{row['collective']} on {row['topology']}, {row['ranks']} ranks, {row['method']}{guide}"
    sketch_bound = f"{number(row['sketch_bound_us'])} {unit}" if row["sketch_bound_us"] else "-"
    lines = [
        ("what", what),
        ("size", f"{number(row['size_bytes'])} bytes, {row['chunks_per_rank']} chunks per rank"),
        ("plan", f"{number(row['time_us'])} {unit} ({row['cost_model']})"),
        ("program", f"{number(row['program_time_us'])} {unit} at ideal fidelity"),
        ("bound", f"{number(row['bound_us'])} {unit}, set by {row['bound_limit']}"),
        ("sketch bound", sketch_bound),
        ("optimality", number(row["optimality"])),
        ("algbw, busbw", f"{number(row['algbw_gbs'])}, {number(row['busbw_gbs'])} GB/s"),
        ("verified", "yes, by replay of plan and program"),
        ("seconds", number(row["seconds"]) + (" (limited)" if row["limited"] else "")),
    ]
    stages = row["stages"]
    lines += [
        (
            f"stage {stage['name']}",
            f"{stage['status']}, objective {number(stage['objective'])},"
            f" bound {number(stage['bound'])}, {number(stage['seconds'])} s",
        )
        for stage in (stages if isinstance(stages, list) else [])
    ]
    if row["xml"]:
        lines.append(("xml", str(row["xml"])))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
