"""``explorer logs``: measurements and NCCL's own words out of logs."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli import options
from explorer.cli.output import number, print_json, print_table

if TYPE_CHECKING:
    from explorer.errors import Problem
    from explorer.measured.debug import DebugFacts
    from explorer.measured.explain import Explanation, LinkBound
    from explorer.measured.row import Reading, Row

NAME = "logs"
HELP = "Read nccl-tests and rccl-tests logs of any era, their JSON and CSV, and NCCL_DEBUG logs."
EXAMPLE = "explorer logs run.log --csv rows.csv --explain --topology dgx_a100"


def command(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG…", help="Logs, JSON or CSV files.")],
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the rows there.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what the best busbw of each run means.")
    ] = False,
    topology: Annotated[
        str | None,
        typer.Option("--topology", "-t", help="Machine whose links bound the busbw explained."),
    ] = None,
    nodes: options.Nodes = None,
    as_json: options.Json = False,
) -> None:
    """Print rows and problems; files without any measurement end with exit code 2."""
    from explorer.errors import InputError
    from explorer.measured.explain import explain as explained
    from explorer.measured.readers import read_log
    from explorer.measured.row import NOTHING

    readings: list[Reading] = []
    refused: list[Problem] = []
    for path in logs:
        try:
            readings.append(read_log(path))
        except InputError as error:
            refused.extend(error.problems)
    rows = [row for reading in readings for row in reading.rows]
    if csv is not None:
        _write_csv(csv, rows)
    bound_of = None
    if topology is not None:
        machine = topology

        def bound_of(row: Row) -> LinkBound:
            return _bound(row, machine, nodes)

    texts = explained(rows, bound_of) if explain or topology is not None else []
    if as_json:
        print_json(_document(readings, refused, texts))
    else:
        _print(readings, refused, texts)
    if not rows and all(reading.debug is None for reading in readings):
        raise InputError(f"{NOTHING} in {', '.join(str(path) for path in logs)}")


def _problems(readings: list[Reading], refused: list[Problem]) -> list[dict[str, object]]:
    from explorer.measured.readers import as_problem

    found: list[dict[str, object]] = [
        {
            "file": reading.file,
            "line": remark.line or None,
            "where": as_problem(reading, remark).where,
            "kind": remark.kind,
            "message": remark.message,
        }
        for reading in readings
        for remark in reading.remarks
    ]
    for problem in refused:
        file, _, line = problem.where.rpartition(":")
        numbered = line.isdigit() and bool(file)
        found.append(
            {
                "file": file if numbered else problem.where,
                "line": int(line) if numbered else None,
                "where": problem.where,
                "kind": "refused",
                "message": problem.message,
            }
        )
    return found


def _document(
    readings: list[Reading], refused: list[Problem], texts: list[Explanation]
) -> dict[str, object]:
    document: dict[str, object] = {
        "rows": [{**asdict(row), "usable": row.usable} for r in readings for row in r.rows],
        "problems": _problems(readings, refused),
        "files": [{"file": r.file, "format": r.format, "rows": len(r.rows)} for r in readings],
        "debug": [{"file": r.file, **asdict(r.debug)} for r in readings if r.debug is not None],
    }
    if texts:
        document["explanations"] = [asdict(text) for text in texts]
    return document


def _print(readings: list[Reading], refused: list[Problem], texts: list[Explanation]) -> None:
    columns = [("line", "right"), ("collective", "left"), ("ranks", "right"), ("bytes", "right")]
    columns += [("place", "left"), ("us", "right"), ("algbw GB/s", "right"), ("busbw", "right")]
    for reading in readings:
        cells = [
            [
                str(row.line),
                row.collective or "?",
                number(row.ranks),
                number(row.size_bytes),
                row.placement or "?",
                number(row.time_us),
                number(row.algbw_gbs),
                number(row.busbw_gbs),
                " ".join(filter(None, (row.variant, row.protocol, *row.marks))),
            ]
            for row in reading.rows
        ]
        if cells:
            print_table(f"{reading.file}: {reading.format}", [*columns, ("", "left")], cells)
        else:
            print(f"{reading.file}: {reading.format}")
        if reading.debug is not None:
            for line in _debug_lines(reading.debug):
                print(f"  {line}")
    for text in texts:
        print("\n  ".join(text.lines))
    for problem in _problems(readings, refused):
        print(f"{problem['where']}: {problem['kind']}: {problem['message']}")


def _debug_lines(facts: DebugFacts) -> list[str]:
    """Summarise what NCCL says."""
    lines = []
    if facts.versions:
        lines.append(f"NCCL {', '.join(facts.versions)}")
    if facts.ranks:
        where = f" on {facts.nodes} nodes" if facts.nodes else ""
        lines.append(f"{facts.ranks} ranks{where}")
    if facts.channels:
        lines.append(f"{facts.channels} channels")
    for ring in facts.rings:
        rest = "" if ring.complete else " (cut)"
        lines.append(f"ring {ring.channel}: {' '.join(map(str, ring.order))}{rest}")
    for tree in facts.trees:
        root = "no single root" if tree.root is None else f"root {tree.root}"
        part = "" if tree.complete else f", {len(tree.parents)} ranks only"
        lines.append(f"tree {tree.channel}: {root}{part}")
    if facts.nvls_heads:
        lines.append(f"NVLS heads {', '.join(str(head) for head, _ in facts.nvls_heads)}")
    lines.extend(
        f"{p.kind}: {p.channels} channels at {p.intra_gbs:g} GB/s in a node ({p.intra_path}), "
        f"{p.inter_gbs:g} between ({p.inter_path})"
        for p in facts.patterns
    )
    lines.extend(f"{link.src} -> {link.dst}: {link.kind} {link.gbs:g} GB/s" for link in facts.links)
    lines.extend(
        f"model: {p.collective} {p.algorithm}/{p.protocol}: {p.latency_us:g} us, "
        f"{p.algbw_gbs:g} GB/s"
        for p in facts.predictions
        if p.available
    )
    for c in facts.choices:
        channels = "" if c.channels is None else f" on {c.channels} channels"
        name = c.collective or "call"
        lines.append(f"chosen: {name} {c.size_bytes} B: {c.algorithm}/{c.protocol}{channels}")
    if facts.transports:
        lines.append(", ".join(f"{count} x {name}" for name, count in facts.transports))
    if facts.nics:
        lines.append(f"NICs {', '.join(facts.nics)}")
    lines.extend(f"{name}={value}" for name, value in facts.environment)
    return lines


def _write_csv(path: Path, rows: list[Row]) -> None:
    import csv

    from explorer.errors import InputError, Problem
    from explorer.measured.row import Row

    names = [field.name for field in fields(Row)]
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            for row in rows:
                values = asdict(row)
                values["marks"] = " ".join(row.marks)
                writer.writerow(["" if values[name] is None else values[name] for name in names])
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error))) from None


def _bound(row: Row, topology: str, nodes: int | None) -> LinkBound:
    """Bound of a machine's links for a row."""
    from explorer.core.collective import COLLECTIVES
    from explorer.evaluate.bounded import bound_row
    from explorer.measured.explain import LinkBound
    from explorer.topologies.load import load_topology

    ranks = load_topology(topology, nodes).ranks
    if row.collective not in COLLECTIVES:
        return LinkBound(missing=f"no bounds for {row.collective or 'an unknown collective'}")
    if row.ranks != ranks:
        return LinkBound(missing=f"{topology} has {ranks} ranks, the log {row.ranks or 'unknown'}")
    if not row.size_bytes:
        return LinkBound(missing="no byte is moved")
    found = bound_row(
        topology, nodes, row.collective, row.size_bytes, row.root or 0, None, "exclusive"
    )
    busbw = found["busbw_gbs"]
    return LinkBound(busbw if isinstance(busbw, float) else None, str(found["bottleneck"]))
