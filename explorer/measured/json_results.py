"""Read measurements in JSON: nccl-tests' own (option -J, 2025 on) and the shapes proposed before.

nccl-tests (``src/util.cu``, version 1) writes ``config`` with ``devices`` and a list ``results``
of ``size``, ``count``, …, ``out_of_place`` and ``in_place``, each with ``time``, ``alg_bw``,
``bus_bw`` and ``nwrong``. A patch of 2025 has sizes as keys and ``oop_``/``ip_`` before the names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from explorer.errors import InputError, Problem
from explorer.measured.collective_words import named_by_binary
from explorer.measured.facts import Facts
from explorer.measured.layout import Layout
from explorer.measured.row import Reading, Remark
from explorer.measured.source import LogSource
from explorer.measured.table import Table
from explorer.measured.table_row import MAX_SIZE, TYPE_BYTES, Block, Cell, RawRow

_TIME = ("time", "cpu_time", "time_us")
_ALGBW = ("alg_bw", "algbw", "algbw_gbs")
_BUSBW = ("bus_bw", "busbw", "busbw_gbs")
_WRONG = ("nwrong", "wrong", "error", "errors")
_NESTED = {"out": "out_of_place", "in": "in_place"}
_FLAT = {"out": ("oop_", "out_of_place_"), "in": ("ip_", "in_place_")}
_START = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"])')
MAX_CHARACTERS = 64 << 20
"""Longest text that is parsed; parsed JSON takes about ten times its memory."""

_DIGITS = 5e-7
"""Half a unit of the last digit of C's ``%lf``."""


def looks_like_json(source: LogSource) -> bool:
    """Whether a file is meant to be JSON."""
    return _START.match(source.text) is not None


@dataclass(slots=True)
class _State:
    source: LogSource
    facts: Facts = field(default_factory=Facts)
    remarks: list[Remark] = field(default_factory=list)
    rows: list[RawRow] = field(default_factory=list)
    at: int = 0
    line: int = 1


def read_json(source: LogSource) -> Reading:
    """Read a JSON file.

    Raises
    ------
    InputError
        If it is no JSON, or nested beyond reason.
    """
    state = _State(source)
    document = _parsed(state)
    _facts(document, state.facts)
    for size, record in _records(document):
        _row(state, size, record)
    if not state.rows:
        return Reading(source.name, "JSON", (), tuple(state.remarks))
    layout = Layout(stated=False)
    table = Table(source.name, state.rows[0].line, layout, state.facts, state.rows)
    rows, said = table.finish()
    remarks = sorted({*state.remarks, *said}, key=lambda remark: (remark.line, remark.message))
    return Reading(source.name, "nccl-tests JSON", tuple(rows), tuple(remarks))


def _parsed(state: _State) -> object:
    name, text = state.source.name, state.source.text
    if len(text) > MAX_CHARACTERS:
        message = f"JSON of {len(text)} characters, at most {MAX_CHARACTERS} are read"
        raise InputError(Problem(name, message))

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = sorted({key for key in keys if keys.count(key) > 1})[:5]
            message = f"keys stand twice, the last is read: {', '.join(twice)}"
            state.remarks.append(Remark(0, "conflict", message))
        return found

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=str)
    except json.JSONDecodeError as error:
        raise InputError(Problem(state.source.at(error.lineno), f"no JSON: {error.msg}")) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else "a number is too long"
        raise InputError(Problem(name, f"JSON that is {reason}")) from None


def _walk(value: object) -> Iterator[Mapping[str, object]]:
    """Objects of a document, outside in and in its order."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            pending.extend(reversed(value))


def _facts(document: object, facts: Facts) -> None:
    for record in _walk(document):
        rank, host = record.get("rank"), record.get("hostname")
        if isinstance(rank, int) and isinstance(host, str) and 0 <= rank < 1 << 22:
            group = record.get("group")
            facts.devices[rank] = (host, group if isinstance(group, int) else 0)
        args = record.get("args")
        words = args if isinstance(args, list) else []
        for word in [*words, record.get("name"), record.get("collective")]:
            named = named_by_binary(f"{word} ") if isinstance(word, str) else None
            if named and not facts.collective:
                facts.collective, facts.sure = named, True


def _records(document: object) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Objects that hold a measurement, with their size."""
    for record in _walk(document):
        size = record.get("size", record.get("size_bytes", record.get("bytes")))
        if isinstance(size, int) and not isinstance(size, bool):
            yield size, record
        for key, inner in record.items():
            if key.isascii() and key.isdigit() and len(key) < 20 and isinstance(inner, dict):
                yield int(key), inner


def _row(state: _State, size: int, record: Mapping[str, object]) -> None:
    line = _line_of(state, size)
    if not 0 <= size < MAX_SIZE:
        state.remarks.append(Remark(line, "refused", f"{size} is no size"))
        return
    blocks = {side: _block(record, side) for side in ("out", "in", "")}
    if not any(blocks.values()):
        state.remarks.append(Remark(line, "refused", f"size {size}: no time that is a number"))
        return
    for side, name in _NESTED.items():
        told = isinstance(record.get(name), dict)
        if blocks[side] is None and told:
            message = f"size {size}: {name} holds no time that is a number"
            state.remarks.append(Remark(line, "refused", message))
    dtype, redop, root = (record.get(key) for key in ("type", "redop", "root"))
    count = record.get("count")
    state.rows.append(
        RawRow(
            line,
            size,
            count if isinstance(count, int) and 0 <= count < MAX_SIZE else None,
            dtype if isinstance(dtype, str) and dtype in TYPE_BYTES else None,
            redop if isinstance(redop, str) else None,
            _whole(root),
            blocks["out"],
            blocks["in"],
            blocks[""],
        )
    )


def _line_of(state: _State, size: int) -> int:
    """Line of the next mention of a size; records are met in the order of the text."""
    mark = re.compile(rf'"(?:size|size_bytes|bytes)"\s*:\s*{size}(?!\d)|"{size}"\s*:')
    text = state.source.text
    match = mark.search(text, state.at)
    if match is None:
        state.at = len(text)  # spelt in a way that is not found: no second search
        return state.line
    state.line += text.count("\n", state.at, match.start())
    state.at = match.start()
    line = state.line
    state.line += text.count("\n", match.start(), match.end())
    state.at = match.end()
    return line


def _block(record: Mapping[str, object], side: str) -> Block | None:
    inner = record.get(_NESTED.get(side, ""))
    if isinstance(inner, dict):
        return _cells(inner, ("",))
    return _cells(record, _FLAT.get(side, ("",)))


def _cells(record: Mapping[str, object], starts: tuple[str, ...]) -> Block | None:
    def value(names: tuple[str, ...]) -> object:
        keys = (start + name for start in starts for name in names)
        return next((record[key] for key in keys if key in record), None)

    time = _cell(value(_TIME))
    if time is None:
        return None
    wrong = value(_WRONG)
    check = None if wrong is None else str(wrong)
    return Block(time, _cell(value(_ALGBW)), _cell(value(_BUSBW)), check)


def _cell(value: object) -> Cell | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Cell(float(value), _DIGITS) if 0 <= value < 1e18 else None


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -1 <= value < 1 << 22 else None
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if re.fullmatch(r"-1|\d{1,6}", text) else None
