"""Options that several verbs share, spelt once."""

from __future__ import annotations

from typing import Annotated

import typer

Topology = Annotated[
    str,
    typer.Option("--topology", "-t", help="Builder name (`topology list`), or a topology file."),
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", help="Node count, for builders and one-node files.")
]
Collective = Annotated[
    str,
    typer.Option("--collective", "-c", help="allgather, reducescatter, allreduce or alltoall."),
]
Size = Annotated[
    str | None,
    typer.Option("--size", "-s", help="nccl-tests' size: 64K, 1MiB (powers of two), 1MB (of ten)."),
]
Root = Annotated[int, typer.Option("--root", help="Root of broadcast and reduce.")]
Sketch = Annotated[
    str | None,
    typer.Option("--sketch", "-k", help="Shipped sketch, YAML or TACCL JSON file."),
]
CostModel = Annotated[
    str, typer.Option("--cost-model", help="exclusive (TACCL, TACOS) or pipelined (TE-CCL).")
]
Fidelity = Annotated[str, typer.Option("--fidelity", help="Simulation fidelity: ideal.")]
Dialect = Annotated[
    str, typer.Option("--dialect", help="Target runtime: executor, msccl or rccl; or unlimited.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def one_size(text: str | None) -> int | None:
    """Read one size; None stays None."""
    from explorer.units import parse_size

    return None if text is None else parse_size(text, "--size")
