"""``explorer bound``: what no algorithm can beat, and why."""

from __future__ import annotations

from explorer.cli import options
from explorer.cli.output import number, print_json

NAME = "bound"
HELP = "Lower bounds on a collective's time, and the path, port or cut that sets them."
EXAMPLE = "explorer bound --topology ndv2 --nodes 2 --collective allgather --size 1G"


def command(
    topology: options.Topology,
    collective: options.Collective,
    nodes: options.Nodes = None,
    size: options.Size = None,
    root: options.Root = 0,
    sketch: options.Sketch = None,
    cost_model: options.CostModel = "exclusive",
    as_json: options.Json = False,
) -> None:
    """Print bounds."""
    from explorer.evaluate.bounded import bound_row

    row = bound_row(topology, nodes, collective, options.one_size(size), root, sketch, cost_model)
    if as_json:
        print_json(row)
        return
    unit = "us" if row["time_unit"] == "us" else "(profile units)"
    size = number(row["size_bytes"])
    print(f"{collective} on {row['topology']}, {row['ranks']} ranks, {size} bytes")
    print(f"latency    {number(row['latency_us'])} {unit}")
    print(f"bandwidth  {number(row['bandwidth_us'])} {unit}")
    print(f"bound      {number(row['bound_us'])} {unit}, set by {row['bottleneck']}")
    if row["algbw_gbs"]:
        print(f"at most    {number(row['algbw_gbs'])} GB/s algbw, {number(row['busbw_gbs'])} busbw")
