"""DeepPool's two text layouts of layer profiles.

``A100_*.prof``: ``op{params}[batch][shape]  total ms  forward us  backward us``;
``*LayerGpuProfile*.txt``: ``op{params}[batch][shape]  avg p50 p90 p99`` in ms, both directions
together. Rows stand in the network's order, in a block per batch that a ``SUM`` line ends. Neither
has the layer graph: rows are read as a chain, which is wrong for networks with branches, and said.
In the first layout a convolution's backward time is booked under the ReLU that follows in place
(DeepPool's runtime fuses them), so a ReLU is merged into the layer before it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from explorer.burst.profile import Layer, Profile, check_layer
from explorer.errors import InputError, Problem

ROW = re.compile(r"^\s*([A-Za-z_]\w*)(\{.*\})\[(\d+)\]\[?([\d,]+)\]?\s+(\S.*)$")
FORWARD_SHARE = 1 / 3
"""Forward's share where a file gives only the sum: two of three matrix products are backward's."""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    op: str
    settings: dict[str, object]
    batch: int
    shape: tuple[int, ...]
    forward_us: float
    backward_us: float


def is_text_profile(text: str) -> bool:
    """Whether a text has rows of either layout."""
    return any(ROW.match(line) for line in text.splitlines()[:40])


def profile_of_text(text: str, source: str) -> Profile:
    """Read either layout.

    A last block that ends before its ``SUM`` line is dropped, and said.

    Raises
    ------
    InputError
        If a row cannot be read, or blocks do not list the same layers; lines are named.
    """
    blocks, cut, problems = _blocks(text, source)
    if not blocks and not problems:
        problems.append(Problem(source, "no block of rows ends with a SUM line"))
    if problems:
        raise InputError(problems)
    first = blocks[0]
    shape_of = [(row.op, row.settings, row.shape) for row in first]
    for block in blocks[1:]:
        if [(row.op, row.settings, row.shape) for row in block] != shape_of:
            problems.append(
                Problem(
                    f"{source}:{block[0].line}",
                    f"the block of batch {block[0].batch} lists other layers than the first",
                )
            )
    batches = [block[0].batch for block in blocks]
    problems += [
        Problem(f"{source}:{block[0].line}", f"a second block of batch {block[0].batch}")
        for k, block in enumerate(blocks)
        if block[0].batch in batches[:k]
    ]
    if problems:
        raise InputError(problems)
    blocks.sort(key=lambda block: block[0].batch)
    layers = _layers(blocks)
    for layer in layers:
        problems += check_layer(f"{source}: {layer.name}", layer)
    if problems:
        raise InputError(problems)
    notes = ["the file has no layer graph: its rows are read as a chain"]
    if cut:
        notes.append(f"the block of batch {cut} has no SUM line: incomplete, left out")
    return Profile(source, tuple(layers), source, notes=tuple(notes))


def _blocks(text: str, source: str) -> tuple[list[list[_Row]], int, list[Problem]]:
    blocks: list[list[_Row]] = []
    rows: list[_Row] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("SUM"):
            if rows:
                blocks.append(rows)
            rows = []
            continue
        try:
            row = _row(number, line)
        except ValueError as error:
            problems.append(Problem(f"{source}:{number}", str(error)))
            continue
        if rows and row.batch != rows[0].batch:
            problems.append(
                Problem(
                    f"{source}:{number}",
                    f"batch {row.batch} inside the block of batch {rows[0].batch}",
                )
            )
        rows.append(row)
    if problems:
        return [], 0, problems
    return blocks, rows[0].batch if rows else 0, []


def _row(number: int, line: str) -> _Row:
    match = ROW.match(line)
    if not match:
        raise ValueError("expected op{…}[batch][shape] and times")
    op, settings, batch, shape, rest = match.groups()
    try:
        times = [float(word) for word in rest.split()]
        parsed = json.loads(settings)
    except ValueError:
        raise ValueError(f"cannot read the numbers of {line.strip()[:60]!r}") from None
    if len(times) == 3:
        forward, backward = times[1], times[2]
    elif len(times) == 4:
        forward = times[0] * 1e3 * FORWARD_SHARE
        backward = times[0] * 1e3 - forward
    else:
        raise ValueError(f"{len(times)} numbers after the shape, expected 3 or 4")
    dims = tuple(int(part) for part in shape.split(",") if part.strip())
    return _Row(number, op, parsed, int(batch), dims, forward, backward)


def _layers(blocks: list[list[_Row]]) -> list[Layer]:
    layers: list[Layer] = []
    batches = tuple(block[0].batch for block in blocks)
    first = blocks[0]
    index = 0
    while index < len(first):
        after = index + 1
        if after < len(first) and first[after].op.lower().startswith("relu"):
            after += 1
        columns = [block[index:after] for block in blocks]
        row = first[index]
        # A row's output is the next row's input; the last row's is not in the file.
        out = first[after].shape if after < len(first) else (_out_features(row),)
        layers.append(
            Layer(
                f"{row.op}{len(layers)}",
                row.op.lower(),
                (len(layers) - 1,) if layers else (),
                _params(row),
                math.prod(out),
                batches,
                tuple(sum(r.forward_us for r in rows) for rows in columns),
                tuple(sum(r.backward_us for r in rows) for rows in columns),
            )
        )
        index = after
    return layers


def _number(settings: dict[str, object], key: str) -> int:
    value = settings.get(key, 0)
    return value if isinstance(value, int) else 0


def _out_features(row: _Row) -> int:
    return _number(row.settings, "out_features") or math.prod(row.shape)


def _params(row: _Row) -> int:
    """Parameters of convolutions, linear layers and bottlenecks of ResNets; 0 of others."""
    get = row.settings.get
    if row.op == "conv2d":
        kernel = get("kernel_size", 1)
        area = math.prod(kernel) if isinstance(kernel, list) else int(str(kernel)) ** 2
        outputs = _number(row.settings, "out_channels")
        return _number(row.settings, "in_channels") * area * outputs + outputs
    if row.op == "linear":
        outputs = _number(row.settings, "out_features")
        return (_number(row.settings, "in_features") + 1) * outputs
    if row.op == "ResnetBottleneck":
        return _bottleneck(row)
    return 0


def _bottleneck(row: _Row) -> int:
    """Parameters of torchvision's ``Bottleneck`` with its batch norms."""
    planes = _number(row.settings, "planes")
    inside = planes * _number(row.settings, "base_width") // 64 or planes
    inputs, outputs = _number(row.settings, "inplanes"), 4 * planes
    weights = inputs * inside + 9 * inside * inside + inside * outputs
    norms = 2 * (inside + inside + outputs)
    down = row.settings.get("downsampleParams")
    return weights + norms + (inputs * outputs + 2 * outputs if down else 0)
