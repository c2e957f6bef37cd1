"""RawRow: one line of an nccl-tests table, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.measured.layout import Layout

TYPE_BYTES = {
    **dict.fromkeys(("int8", "char", "uint8", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "fp16", "bfloat16", "bf16", "f16"), 2),
    **dict.fromkeys(("int32", "int", "uint32", "float", "float32", "fp32", "f32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64", "fp64", "f64"), 8),
}
"""Bytes of an element of each type nccl-tests and rccl-tests name."""

REDOPS = frozenset(("sum", "prod", "min", "max", "avg", "none", "mulsum", "premulsum", "all"))

_TYPES = "|".join(sorted(TYPE_BYTES, key=len, reverse=True))
START = re.compile(rf"(?<![\w.,])(\d[\d_,]*)[ \t|]+(\d[\d_,]*)[ \t|]+({_TYPES})(?![\w.])")
"""Size, count and type: where a row starts."""

_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?")
_GLUED = re.compile(r"\d+\.\d\d")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_GAP = re.compile(r" {20,}\d")
"""An out-of-place block left empty: 28 to 34 blanks, where other columns have 12 at most."""

MAX_SIZE = 1 << 60
"""Sizes end below this."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number with half a unit of its last printed digit."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """Least value that is printed like this."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Largest value that is printed like this."""
        return self.value + self.half


@dataclass(frozen=True, slots=True)
class Block:
    """Time and bandwidths of one placement.

    ``check`` is the last column as printed: a count, a tolerance, ``N/A`` or nothing.
    """

    time: Cell
    algbw: Cell | None
    busbw: Cell | None
    check: str | None


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row.

    Parameters
    ----------
    line
        Line number.
    size, count, dtype, redop, root
        Leading columns; None where absent.
    out, inside
        Out-of-place and in-place block, None where absent or torn.
    alone
        The only block of a table that does not say which placement it is.
    complaint
        What of the line could not be used.
    """

    line: int
    size: int
    count: int | None = None
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    out: Block | None = None
    inside: Block | None = None
    alone: Block | None = None
    complaint: str | None = None


def whole(text: str) -> int | None:
    """Read a whole number with ``_`` or ``,`` between thousands; None if it is none."""
    plain = text.replace("_", "").replace(",", "")
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 20 else None


def cell(token: str) -> Cell | None:
    """Read a printed number; None if it is none (also for ``nan`` and ``inf``).

    Examples
    --------
    >>> cell("12.90"), cell("nan")
    (Cell(value=12.9, half=0.005), None)
    """
    if len(token) > 40 or not _NUMBER.fullmatch(token.lower()):
        return None
    mantissa, _, exponent = token.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    power = int(exponent or 0)
    if abs(power) > 30:
        return None
    return Cell(float(token), 0.5 * 10.0 ** (power - places))


def read_row(line: int, text: str, layout: Layout) -> RawRow | None:
    """Take a row apart; None if the line is none.

    Parameters
    ----------
    line
        Line number.
    text
        The line without launcher prefix, from its first row on.
    layout
        Columns of the table it stands in.
    """
    match = START.search(text)
    if match is None:
        return _bare_row(line, text, layout) if layout.bare else None
    size, count = whole(match.group(1)), whole(match.group(2))
    if size is None or count is None or size >= MAX_SIZE:
        return RawRow(line, 0, complaint="size and count are no whole numbers below 2^60")
    rest = _STAMP.sub("", text[match.end() :])
    tokens = _split(rest)
    redop = tokens.pop(0) if tokens and tokens[0].lower() in REDOPS else None
    root = _root(tokens, layout)
    row = RawRow(line, size, count, match.group(3), redop, root)
    return _with_blocks(row, tokens, rest, layout)


def _split(rest: str) -> list[str]:
    """Tokens, numbers that ran into one another (``0.1911281.0811281.08``) taken apart."""
    tokens: list[str] = []
    for token in rest.replace("|", " ").split():
        parts = _GLUED.findall(token) if token.count(".") > 1 else []
        tokens.extend(parts if "".join(parts) == token else [token])
    return tokens


def _root(tokens: list[str], layout: Layout) -> int | None:
    """Take the root off the front: a whole number that the columns leave room for."""
    if not tokens or not re.fullmatch(r"-1|\d{1,6}", tokens[0]):
        return None
    width, stated = len(layout.block), "root" in layout.leading
    fits = tokens[0] == "-1" or (
        stated if layout.stated else len(tokens) in (width + 1, 2 * width + 1)
    )
    return int(tokens.pop(0)) if fits else None


def _with_blocks(row: RawRow, tokens: list[str], rest: str, layout: Layout) -> RawRow:
    width = len(layout.block)
    full = width * layout.groups
    complaint = None
    if len(tokens) > full:
        complaint = f"text after the row is not read: {' '.join(tokens[full:])[:60]!r}"
        tokens = tokens[:full]
    if layout.groups == 1:
        block = _block(tokens, layout)
        if block is None:
            return _refused(row, tokens, full)
        return _filled(row, alone=block, complaint=complaint)
    if len(tokens) == width and _GAP.search(rest):
        block = _block(tokens, layout)
        return _filled(row, inside=block) if block else _refused(row, tokens, full)
    out = _block(tokens[:width], layout)
    inside = _block(tokens[width:], layout)
    if out is None and (inside is None or len(tokens) < full):
        return _refused(row, tokens, full)
    if len(tokens) < full or inside is None:
        complaint = "the line is torn: its in-place half is not used"
        return _filled(row, out=out, complaint=complaint)
    if out is None:
        complaint = "its out-of-place half holds no numbers and is not used"
    return _filled(row, out=out, inside=inside, complaint=complaint)


def _filled(
    row: RawRow,
    *,
    out: Block | None = None,
    inside: Block | None = None,
    alone: Block | None = None,
    complaint: str | None = None,
) -> RawRow:
    return RawRow(
        row.line, row.size, row.count, row.dtype, row.redop, row.root, out, inside, alone, complaint
    )


def _refused(row: RawRow, tokens: list[str], full: int) -> RawRow:
    odd = next((t for t in tokens if t not in ("N/A", "-") and cell(t) is None), None)
    if odd is not None:
        return _filled(row, complaint=f"{odd[:40]!r} is no number: the row is not used")
    got = f"{len(tokens)} of {full} numbers after the type"
    return _filled(row, complaint=f"the line is torn ({got}): the row is not used")


def _block(tokens: list[str], layout: Layout) -> Block | None:
    """Read one block; None if it is incomplete or holds something else than numbers."""
    if len(tokens) != len(layout.block):
        return None
    named = dict(zip(layout.block, tokens, strict=True))
    time = cell(named["time"])
    algbw = cell(named["algbw"]) if "algbw" in named else None
    busbw = cell(named["busbw"]) if "busbw" in named else None
    if time is None or ("algbw" in named) != (algbw is not None):
        return None
    if ("busbw" in named) != (busbw is not None):
        return None
    check = named.get("error", named.get("#wrong"))
    if check is not None and check.upper() not in ("N/A", "NA", "-") and cell(check) is None:
        return None
    unit = layout.unit_us
    return Block(Cell(time.value * unit, time.half * unit), algbw, busbw, check)


def _bare_row(line: int, text: str, layout: Layout) -> RawRow | None:
    tokens = text.replace("|", " ").split()
    if not tokens or not re.fullmatch(r"\d[\d_,]*", tokens[0]):
        return None
    lead = len(layout.leading)
    size = whole(tokens[0])
    if size is None or size >= MAX_SIZE:
        return RawRow(line, 0, complaint="the size is no whole number below 2^60")
    row = RawRow(line, size)
    if len(tokens) != lead + layout.groups * len(layout.block):
        return _refused(row, tokens[lead:], layout.groups * len(layout.block))
    return _with_blocks(row, tokens[lead:], "", layout)
