"""Reader of measured matrices in CSV: bandwidth or latency of every ordered pair.

Each cell was measured alone, so cells do not say what pairs share. A rank sends all through one
port and receives all through another, as wide as its best pair; the pair's own rate and latency
stand between the ports. So every cell is kept and ports are still shared.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.source import Source

UNITS = {
    "gb/s": ("bandwidth", 1.0),
    "gbs": ("bandwidth", 1.0),
    "gbytes": ("bandwidth", 1.0),
    "mb/s": ("bandwidth", 1e-3),
    "mbps": ("bandwidth", 1e-3),
    "gb/sec": ("bandwidth", 1.0),
    "mb/sec": ("bandwidth", 1e-3),
    "gbit/s": ("bandwidth", 0.125),
    "gbit": ("bandwidth", 0.125),
    "us": ("latency", 1.0),
    "usec": ("latency", 1.0),
    "ns": ("latency", 1e-3),
    "ms": ("latency", 1e3),
}
"""Words for units, what they measure, and the factor to GB/s or us."""

MAX_RANKS = 512
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A measured matrix.

    Parameters
    ----------
    source
        Where it comes from.
    names
        Ends, in order.
    measure
        ``bandwidth`` in GB/s or ``latency`` in us.
    cells
        ``[i][j]`` from i to j; the diagonal is not used.
    """

    source: Source
    names: tuple[str, ...]
    measure: str
    cells: tuple[tuple[float, ...], ...]
    unit: str


def looks_like_matrix(source: Source) -> bool:
    """Whether the first line is a header of names that the rows repeat."""
    lines = [line for line in source.text.splitlines() if line.strip()][:3]
    if len(lines) < 2 or "," not in lines[0]:
        return False
    head = [cell.strip() for cell in lines[0].split(",")]
    row = [cell.strip() for cell in lines[1].split(",")]
    numeric = sum(bool(_NUMBER.fullmatch(cell)) for cell in row[1:])
    return len(head) > 2 and bool(head[1]) and row[0] == head[1] and numeric >= (len(row) - 1) / 2


def read_matrix_topology(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a bandwidth matrix; see :func:`matrix_topology`."""
    if nodes is not None:
        raise InputError(
            Problem("--nodes", f"got {nodes}, a measured matrix has all its ranks already")
        )
    return matrix_topology(read_matrix(source), None)


def read_matrix(source: Source) -> Matrix:
    """Read a matrix.

    Raises
    ------
    InputError
        If its unit is unknown, or a cell is missing, no number, or not above 0; with the line.
    """
    problems: list[Problem] = []
    reader = csv.reader(source.text.splitlines(), strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        where = source.at(max(1, reader.line_num))
        raise InputError(Problem(where, f"not valid CSV: {error}")) from None
    if not rows:
        raise InputError(Problem(source.name, "holds no row"))
    head = rows[0][1]
    names = head[1:]
    if not 1 < len(names) <= MAX_RANKS or len(set(names)) < len(names) or not all(names):
        raise InputError(
            Problem(source.at(rows[0][0]), f"expected 2 to {MAX_RANKS} different names")
        )
    unit, measure, factor = _unit(source, head[0])
    if [row[0] for _, row in rows[1:]] != names:
        problems.append(
            Problem(
                source.at(rows[-1][0]),
                f"{len(rows) - 1} rows, the header names {len(names)}; expected a row for each in"
                " the same order",
            )
        )
    cells: list[tuple[float, ...]] = []
    for i, (line, row) in enumerate(rows[1:]):
        if len(row) != len(names) + 1:
            problems.append(
                Problem(source.at(line), f"row {row[0]}: {len(row) - 1} of {len(names)} cells")
            )
            continue
        values = [_value(cell) * factor for cell in row[1:]]
        problems += [
            Problem(
                source.at(line),
                f"row {row[0]}, column {names[j]}: got {row[j + 1][:20]!r}, expected a number"
                f" above 0 in {unit}",
            )
            for j, value in enumerate(values)
            if j != i and not 0 < value < 1e5
        ]
        cells.append(tuple(values))
    if problems:
        raise InputError(problems[:50])
    return Matrix(source, tuple(names), measure, tuple(cells), unit)


def _value(text: str) -> float:
    try:
        return float(text[:40])
    except ValueError:
        return math.nan


def _unit(source: Source, corner: str) -> tuple[str, str, float]:
    """Unit from the first cell or the file name."""
    words = re.split(r"[\s_()\[\]\-.]+", f"{corner} {source.stem}".lower())
    found = {word for word in words if word in UNITS}
    measures = {UNITS[word] for word in found}
    if len(measures) != 1:
        raise InputError(
            Problem(
                source.at(1),
                "nothing says the unit; expected one of GB/s, MB/s, Gbit/s, us, ns in the first"
                " cell, or MBps, GBs, us at the end of the file name",
            )
        )
    word = min(found)
    return (word, *UNITS[word])


def matrix_topology(matrix: Matrix, latency: Matrix | None) -> Topology:
    """Build the machine of a bandwidth matrix, with latencies if they were measured too.

    Raises
    ------
    InputError
        If there are no bandwidths, or the two matrices are of different ends.
    """
    if matrix.measure == "latency":
        raise InputError(
            Problem(
                matrix.source.name,
                "these are latencies only; give the matrix of bandwidths as a second file",
            )
        )
    if latency is not None and latency.names != matrix.names:
        raise InputError(
            Problem(
                latency.source.name,
                f"names {', '.join(latency.names[:3])} … ({len(latency.names)}),"
                f" {matrix.source.name} {', '.join(matrix.names[:3])} … ({len(matrix.names)})",
            )
        )
    nodes = _nodes(matrix.names)
    machine = Assembly(matrix.source.stem, max(nodes) + 1)
    ports: list[tuple[int, int]] = []
    size = len(matrix.names)
    for i in range(size):
        gpu = machine.gpu(nodes[i])
        out = machine.device(f"{i}.tx", "nic", nodes[i])
        into = machine.device(f"{i}.rx", "nic", nodes[i])
        best_out = max((matrix.cells[i][j] for j in range(size) if j != i), default=1.0)
        best_in = max((matrix.cells[j][i] for j in range(size) if j != i), default=1.0)
        machine.one_way(gpu, out, "pcie", 0.0, best_out)
        machine.one_way(into, gpu, "pcie", 0.0, best_in)
        ports.append((out, into))
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            far = nodes[i] != nodes[j]
            alpha = generations.NETWORK_ALPHA_US if far else generations.NVLINK_ALPHA_US
            if latency is not None:
                alpha = latency.cells[i][j]
            machine.one_way(ports[i][0], ports[j][1], "network", alpha, matrix.cells[i][j])
    topology = machine.build(_notes(matrix, latency, nodes))
    return replace(topology, name=matrix.source.stem)


def _nodes(names: tuple[str, ...]) -> list[int]:
    """Group ``Local_mlx5_0 … Remote_mlx5_0`` by what stands before the first underscore."""
    heads = [name.partition("_")[0] for name in names]
    tails = [name.partition("_")[2] for name in names]
    order = list(dict.fromkeys(heads))
    groups = {head: [t for h, t in zip(heads, tails, strict=True) if h == head] for head in order}
    alike = len(order) > 1 and all(tails) and len({tuple(g) for g in groups.values()}) == 1
    return [order.index(head) if alike else 0 for head in heads]


def _notes(matrix: Matrix, latency: Matrix | None, nodes: list[int]) -> tuple[str, ...]:
    count = max(nodes) + 1
    notes = [
        f"measured bandwidths of {len(matrix.names)} ends ({matrix.names[0]} …), read in"
        f" {matrix.unit}, decimal; each counts as one rank",
        "pairs were measured alone, so the file does not say what they share; assumed: a rank"
        " sends through one port and receives through another, as wide as its best pair",
    ]
    if count > 1:
        notes.append(f"{count} nodes, by the first word of the names")
    if latency is None:
        notes.append(
            f"assumed: {generations.NETWORK_ALPHA_US} us between nodes,"
            f" {generations.NVLINK_ALPHA_US} us inside; give the matrix of latencies beside it"
        )
    else:
        notes.append(f"latencies from {latency.source.name}")
    return tuple(notes)
