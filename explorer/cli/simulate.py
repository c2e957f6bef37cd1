"""``explorer simulate``: time of a program or baseline over sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import note, number, print_json, print_table

NAME = "simulate"
HELP = "Simulate an MSCCL XML file, or a baseline by name, over one or many sizes."
EXAMPLE = "explorer simulate ring --topology ndv2 --collective allreduce --size 1K..1G"


def command(
    what: Annotated[str, typer.Argument(metavar="XML|METHOD", help="File or baseline name.")],
    topology: options.Topology,
    size: Annotated[
        str, typer.Option("--size", "-s", help="Size, comma list, or range such as 1K..1G x4.")
    ],
    nodes: options.Nodes = None,
    collective: Annotated[
        str | None, typer.Option("--collective", "-c", help="Needed with a baseline.")
    ] = None,
    placement: Annotated[
        str | None, typer.Option("--placement", help="in or out; default: what the program serves.")
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="compiled (numba) or simpy; equal results.")
    ] = "compiled",
    fidelity: options.Fidelity = "ideal",
    cost_model: options.CostModel = "exclusive",
    chunks: Annotated[int, typer.Option("--chunks", help="Chunks per rank of a baseline.")] = 1,
    channels: Annotated[int, typer.Option("--channels", help="Channels of a baseline.")] = 1,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a Chrome/Perfetto trace (one size).")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Simulate."""
    from explorer.evaluate.simulate_sizes import simulate_sizes
    from explorer.units import format_size, parse_sizes

    rows, notes = simulate_sizes(
        what,
        topology,
        nodes,
        collective,
        parse_sizes(size, "--size"),
        placement=placement,
        engine=engine,
        fidelity=fidelity,
        cost_model=cost_model,
        chunks=chunks,
        channels=channels,
        trace=trace,
    )
    for text in notes:
        note(f"note: {text}")
    if as_json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        worst = row["bottleneck"]
        limit = (
            f"{worst['resource']} {worst['utilisation']:.0%}" if isinstance(worst, dict) else "-"
        )
        cells.append(
            [
                format_size(int(str(row["requested_bytes"]))),
                number(row["size_bytes"]),
                number(row["time_us"]),
                number(row["algbw_gbs"]),
                number(row["busbw_gbs"]),
                number(row["transfers"]),
                limit,
                str(row["note"] or ""),
            ]
        )
    heads = ("size", "bytes", "time us", "algbw GB/s", "busbw GB/s", "transfers")
    columns = [(h, "right") for h in heads] + [("busiest", "left"), ("note", "left")]
    print_table(f"{what} on {topology}, {fidelity}, {cost_model}, {engine}", columns, cells)
