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
    from explorer.topologies.combine import combine
    from explorer.topologies.describe import link_table, nic_table, route_text, show_text

    topology = combine([spec], nodes)
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
    help="Convert any known topology formats to our YAML; several files are combined.",
    epilog="Example: explorer topology import smi.txt topology.conf --nic 400Gb/s -o cluster.yaml",
)
def import_file(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Topology files: of one machine (compared), of its network, or both.",
        ),
    ],
    nodes: options.Nodes = None,
    prefer: Annotated[
        str | None, typer.Option("--prefer", help="File that wins where files disagree.")
    ] = None,
    rails: Annotated[
        bool, typer.Option("--rails", help="NIC i of every node on leaf switch i.")
    ] = False,
    leaf: Annotated[int | None, typer.Option("--leaf", help="Nodes below a leaf switch.")] = None,
    oversubscription: Annotated[
        float, typer.Option("--oversubscription", help="NICs below a leaf per uplink.")
    ] = 1.0,
    nvlink: Annotated[
        str | None, typer.Option("--nvlink", help="Rate of one NVLink or xGMI lane: 50GB/s.")
    ] = None,
    pcie: Annotated[
        str | None, typer.Option("--pcie", help="Rate of PCIe x16 links: 52GB/s.")
    ] = None,
    nic: Annotated[
        str | None, typer.Option("--nic", help="Rate of NICs and cables: 400Gb/s.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Only these ranks, as 0-2,5; others are idle.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; default stdout.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Read files and write them as one YAML."""
    from explorer.topologies.adjust import parse_gpus, with_leaves, with_rates
    from explorer.topologies.combine import combine
    from explorer.topologies.subset import subset
    from explorer.topologies.topology_write import topology_yaml
    from explorer.units import parse_rate_gbs

    def rate(text: str | None, option: str) -> float | None:
        return None if text is None else parse_rate_gbs(text, option)

    topology = combine(files, nodes, prefer=prefer)
    if rails or leaf is not None or oversubscription != 1.0:
        topology = with_leaves(
            topology, rails=rails, per_leaf=leaf, oversubscription=oversubscription
        )
    topology = with_rates(
        topology,
        nvlink_gbs=rate(nvlink, "--nvlink"),
        pcie_gbs=rate(pcie, "--pcie"),
        nic_gbs=rate(nic, "--nic"),
    )
    if gpus is not None:
        topology = subset(topology, parse_gpus(gpus))
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
