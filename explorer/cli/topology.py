"""``explorer topology``: list machines, show one, import one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import number, print_json, print_table
from explorer.errors import InputError, Problem

app = typer.Typer(help="List machines, show one, or convert a file to our YAML.")

Spec = Annotated[str, typer.Argument(metavar="T", help="Builder name, or a topology file.")]


@app.command("list", help="Machines that can be asked for by name.")
def list_machines(as_json: options.Json = False) -> None:
    """Print the table of builders and shipped files."""
    from explorer.topologies.describe import machine_table

    rows = machine_table()
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    cells = [
        [row.name, number(row.ranks), number(row.nodes), number(row.links), row.summary[:110]]
        for row in rows
    ]
    columns = [("name", "left"), ("ranks", "right"), ("nodes", "right"), ("links", "right")]
    print_table("Machines (counts of the smallest form)", [*columns, ("what", "left")], cells)


@app.command(
    "show",
    help="Picture, links, costs and assumptions of a machine.",
    epilog="Example: explorer topology show ndv2 --nodes 2 --links",
)
def show(
    spec: Spec,
    nodes: options.Nodes = None,
    links: Annotated[bool, typer.Option("--links", help="Also every link.")] = False,
    route: Annotated[
        str | None, typer.Option("--route", help="How rank A reaches rank B, as A,B.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Describe one machine."""
    from explorer.topologies.describe import link_table, nic_table, route_text, show_text
    from explorer.topologies.load import load_topology

    topology = load_topology(spec, nodes)
    table = link_table(topology)
    if as_json:
        print_json(
            {
                "name": topology.name,
                "ranks": topology.ranks,
                "nodes": topology.nodes,
                "time_unit": topology.time_unit,
                "notes": list(topology.notes),
                "nics": {str(rank): nic for rank, nic in nic_table(topology).items()},
                "links": [asdict(row) for row in table],
            }
        )
        return
    if route is not None:
        print(route_text(topology, *_pair(route, topology.ranks)))
        return
    print(show_text(topology))
    if links:
        cells = [
            [r.src, r.dst, r.kind, number(r.lanes), number(r.alpha_us), number(r.gbs)]
            for r in table
        ]
        columns = [("from", "left"), ("to", "left"), ("kind", "left"), ("lanes", "right")]
        print_table("Links", [*columns, ("alpha us", "right"), ("GB/s", "right")], cells)


@app.command(
    "import",
    help="Convert any known topology format to our YAML.",
    epilog="Example: explorer topology import topo-ndv2-1MB.json --nodes 2 -o ndv2x2.yaml",
)
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Topology file.")],
    nodes: options.Nodes = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; default stdout.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Read a file and write it as YAML."""
    from explorer.topologies.load import read_topology
    from explorer.topologies.topology_write import topology_yaml

    topology = read_topology(file, nodes)
    text = topology_yaml(topology)
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(Problem(str(output), error.strerror or str(error))) from None
    if as_json:
        where = None if output is None else str(output)
        notes = list(topology.notes)
        print_json({"name": topology.name, "ranks": topology.ranks, "file": where, "notes": notes})
    elif output is None:
        print(text, end="")
    else:
        print(f"{output}: {topology.ranks} ranks, {len(topology.links)} links")
        for line in topology.notes:
            print(f"  {line}")


def _pair(text: str, ranks: int) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) == 2 and all(p.strip().isdigit() and int(p) < ranks for p in parts):
        return int(parts[0]), int(parts[1])
    raise InputError(
        Problem("--route", f"got {text!r}, expected two ranks below {ranks} such as 0,5")
    )
