"""The elements of an MSCCL XML file with their line numbers, read safely.

Everything a runtime ignores is skipped here too: unknown elements (``<copy>`` of TACCL and TE-CCL
among them), unknown attributes, comments. What could harm a reader is refused: document types
and entities, deep nesting, long attributes, files too large to be a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from explorer.errors import InputError, Problem, nearest
from sim.program import BUFFER_TEXT, OP_TEXT

MAX_FILE_BYTES = 64 << 20
"""Largest file that is read; the largest published one has 1.4 MB."""
MAX_DEPTH = 16
"""Deepest nesting; the format needs 4."""
MAX_VALUE = 255
"""Longest attribute value the runtimes' parsers hold (``src/graph/xml.h``)."""
MAX_PROBLEMS = 20
"""Problems reported for one file."""

GPU_KEYS = ("id", "i_chunks", "o_chunks", "s_chunks")
TB_KEYS = ("id", "send", "recv", "chan")
STEP_KEYS = (
    "s",
    "type",
    "srcbuf",
    "srcoff",
    "dstbuf",
    "dstoff",
    "cnt",
    "depid",
    "deps",
    "hasdep",
)

_OPS = {text: value for value, text in enumerate(OP_TEXT)}
_BUFFERS = {text: value for value, text in enumerate(BUFFER_TEXT)}
# strtol with base 0, as the runtimes call it, on text that is a number to its end
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,21}|[1-9][0-9]{0,18})")
_WRITTEN_FOR = re.compile(r"\s*written for ([a-z0-9_]+):")


@dataclass(slots=True)
class BlockNode:
    """A ``<tb>``.

    Parameters
    ----------
    line
        Line of the element.
    tb_id, send, recv, channel
        Its attributes.
    steps
        Rows ``(op, src_buf, src_off, dst_buf, dst_off, cnt, depid, deps, hasdep, line)``.
    """

    line: int
    tb_id: int
    send: int
    recv: int
    channel: int
    steps: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(slots=True)
class GpuNode:
    """A ``<gpu>``: line, attributes and thread blocks in file order."""

    line: int
    rank: int
    chunks: tuple[int, int, int]
    blocks: list[BlockNode] = field(default_factory=list)


@dataclass(slots=True)
class AlgoNode:
    """The ``<algo>``: line, attributes as text, GPUs in file order, runtime it was written for."""

    line: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    gpus: list[GpuNode] = field(default_factory=list)
    written_for: str = ""


def integer(text: str) -> int:
    """Read an integer as the runtimes do (``010`` is 8, ``0x10`` is 16).

    Raises
    ------
    ValueError
        If it is not a number; a runtime would silently read 0 or a prefix.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    body = text.lstrip("+-")
    base = 16 if body[:2] in ("0x", "0X") else 8 if body[0] == "0" else 10
    value = int(body, base)
    return -value if text[0] == "-" else value


def read_tree(path: Path) -> AlgoNode:
    """Read the elements of a file.

    Raises
    ------
    InputError
        If it is no readable file of the format, every problem with ``file:line``.
    """
    try:
        if not path.is_file():
            raise InputError(Problem(str(path), "no such file"))
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            text = f"has {size} bytes, programs end at {MAX_FILE_BYTES}"
            raise InputError(Problem(str(path), text))
        data = path.read_bytes()
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}")) from None
    reader = _Reader(str(path))
    reader.parse(data)
    if reader.problems:
        raise InputError(reader.problems)
    return reader.algo


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.algo = AlgoNode()
        self.problems: list[Problem] = []
        self._depth = 0
        self._skip = 0  # depth of the unknown element that is being skipped, 0 for none
        self._integers: dict[str, int] = {}
        self._parser = parser = expat.ParserCreate("utf-8")  # whatever it declares
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = self._comment
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._doctype

    def parse(self, data: bytes) -> None:
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            text = f"not XML: {expat.ErrorString(error.code)}"
            raise InputError(
                [*self.problems, Problem(f"{self.file}:{error.lineno}", text)]
            ) from None
        finally:
            # the handlers are methods of this object: break the cycle
            self._parser.StartElementHandler = self._parser.EndElementHandler = None
            self._parser.CharacterDataHandler = self._parser.CommentHandler = None
            self._parser.StartDoctypeDeclHandler = self._parser.EntityDeclHandler = None

    def _problem(self, message: str) -> None:
        self.problems.append(Problem(f"{self.file}:{self._parser.CurrentLineNumber}", message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise InputError([*self.problems, Problem(self.file, "and more; reading stopped here")])

    def _stop(self, message: str) -> NoReturn:
        where = f"{self.file}:{self._parser.CurrentLineNumber}"
        raise InputError([*self.problems, Problem(where, message)])

    def _doctype(self, *_: object) -> None:
        self._stop("a document type or entity, which the format does not have")

    def _comment(self, text: str) -> None:
        match = _WRITTEN_FOR.match(text)
        if match and not self.algo.written_for:
            self.algo.written_for = match.group(1)

    def _text(self, text: str) -> None:
        if not self._skip and text.strip():
            self._problem(f"text {text.strip()[:40]!r} between elements")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._stop(f"elements nest deeper than {MAX_DEPTH}")
        if self._depth == 1 and tag != "algo":
            self._stop(f"the first element is <{tag[:40]}>, expected <algo>")
        if self._skip:
            return
        if tag == "step" and self._depth == 4:
            self._step(attributes)
        elif tag == "tb" and self._depth == 3:
            self._block(attributes)
        elif tag == "gpu" and self._depth == 2:
            self._gpu(attributes)
        elif self._depth == 1:
            self._check_lengths(attributes)
            self.algo.line, self.algo.attributes = self._parser.CurrentLineNumber, attributes
        else:
            self._check_lengths(attributes)
            self._skip = self._depth

    def _end(self, _: str) -> None:
        if self._skip == self._depth:
            self._skip = 0
        self._depth -= 1

    def _gpu(self, attributes: dict[str, str]) -> None:
        rank, *chunks = self._numbers("gpu", attributes, GPU_KEYS)
        line = self._parser.CurrentLineNumber
        self.algo.gpus.append(GpuNode(line, rank, (chunks[0], chunks[1], chunks[2])))

    def _block(self, attributes: dict[str, str]) -> None:
        tb_id, send, recv, channel = self._numbers("tb", attributes, TB_KEYS)
        line = self._parser.CurrentLineNumber
        self.algo.gpus[-1].blocks.append(BlockNode(line, tb_id, send, recv, channel))

    def _step(self, attributes: dict[str, str]) -> None:
        known = self._integers
        try:
            row: tuple[int, ...] = (
                _OPS[attributes["type"]],
                _BUFFERS[attributes["srcbuf"]],
                known[attributes["srcoff"]],
                _BUFFERS[attributes["dstbuf"]],
                known[attributes["dstoff"]],
                known[attributes["cnt"]],
                known[attributes["depid"]],
                known[attributes["deps"]],
                known[attributes["hasdep"]],
                self._parser.CurrentLineNumber,
            )
            known[attributes["s"]]
        except KeyError:
            row = self._unusual_step(attributes)
        self.algo.gpus[-1].blocks[-1].steps.append(row)

    def _unusual_step(self, attributes: dict[str, str]) -> tuple[int, ...]:
        """Read a step with a number not seen before, or something wrong with it."""
        words: dict[str, int] = {}
        for key, table in (("type", _OPS), ("srcbuf", _BUFFERS), ("dstbuf", _BUFFERS)):
            text = attributes.get(key)
            if text is not None and text not in table:
                self._problem(f"<step> {key}: got {text[:40]!r}, {nearest(text[:40], table)}")
            words[key] = table.get(text or "", 0)
        self._missing("step", attributes, STEP_KEYS)
        keys = [key for key in STEP_KEYS if key not in words]
        numbers = dict(
            zip(keys, self._numbers("step", attributes, keys, missing=False), strict=True)
        )
        value = {**words, **numbers}
        order = (key for key in STEP_KEYS if key != "s")
        return (*(value[key] for key in order), self._parser.CurrentLineNumber)

    def _numbers(
        self, tag: str, attributes: dict[str, str], keys: Iterable[str], *, missing: bool = True
    ) -> list[int]:
        """Integer of every key; problems are noted and read as 0."""
        keys = tuple(keys)
        self._check_lengths(attributes)
        if missing:
            self._missing(tag, attributes, keys)
        values = []
        for key in keys:
            text = attributes.get(key, "0")
            number = self._integers.get(text)
            if number is None:
                try:
                    number = integer(text)
                except ValueError:
                    number = 1 << 31
                if not -(1 << 31) <= number < 1 << 31:
                    self._problem(f"<{tag}> {key}: got {text[:40]!r}, expected a 32-bit integer")
                    number = 0
                else:
                    self._integers[text] = number
            values.append(number)
        return values

    def _missing(self, tag: str, attributes: dict[str, str], keys: Iterable[str]) -> None:
        absent = [key for key in keys if key not in attributes]
        if absent:
            self._problem(f"<{tag}> lacks {' '.join(absent)}, which every runtime requires")

    def _check_lengths(self, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            if len(value) > MAX_VALUE or len(key) > MAX_VALUE:
                self._stop(f"attribute {key[:40]!r} is longer than {MAX_VALUE} characters")
