"""Content of an MSCCL XML file: elements in their places, attributes as numbers.

The parser of this package's writer is another one on purpose: what is exported is checked by code
that shares nothing with the code that wrote it.

Memory: about 100 bytes per step beside the file.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from explorer.verify.report import Ledger
from explorer.verify.xml_text import Tag, TagReader, read_bytes

STEP_COLUMNS = (
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
"""Attributes of a step, all of them required by every runtime; also the columns of a document."""

STEP_TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
STEP_BUFFERS = ("i", "o", "s")

_WORDS = {"type": STEP_TYPES, "srcbuf": STEP_BUFFERS, "dstbuf": STEP_BUFFERS}
_DEFAULTS = {"srcoff": -1, "dstoff": -1, "depid": -1, "deps": -1}
_PLACE = {"gpu": "algo", "tb": "gpu", "step": "tb"}
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_STRTOL = re.compile(r"[ \t\n\r\f\v]*([-+]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([0-9]+))", re.ASCII)
_MAX_DEPTH = 32
_MAX_ELEMENTS = 1 << 22  # 1024 gpus with all the elements a runtime reads
_INT64 = 1 << 63


@dataclass(slots=True)
class Node:
    """An ``algo``, ``gpu`` or ``tb``.

    Parameters
    ----------
    line
        Where it starts.
    text
        Its attributes.
    first, end
        Range of its children among the nodes or steps of the next level.
    """

    line: int
    text: dict[str, str]
    first: int = 0
    end: int = 0


@dataclass(slots=True)
class Document:
    """A file as written.

    Parameters
    ----------
    file
        Its path.
    algo
        The algorithm element; its children are ``gpus``, whose children are ``blocks``, whose
        children are the steps.
    steps
        One array per attribute of :data:`STEP_COLUMNS` and ``line``, -1 in words that are
        unknown or missing.
    gaps
        Steps (indices) that lack an attribute, by attribute.
    """

    file: str
    algo: Node
    gpus: list[Node] = field(default_factory=list)
    blocks: list[Node] = field(default_factory=list)
    steps: dict[str, array[int]] = field(
        default_factory=lambda: {c: array("q") for c in (*STEP_COLUMNS, "line")}
    )
    gaps: dict[str, list[int]] = field(default_factory=dict)


def read_document(path: Path, ledger: Ledger) -> Document:
    """Read a file.

    Parameters
    ----------
    path
        The file.
    ledger
        Gets what is wrong but can be read over.

    Raises
    ------
    InputError
        If it is not an MSCCL algorithm.
    """
    return _Builder(TagReader(read_bytes(path), str(path), ledger), str(path), ledger).build()


def integer(text: str, what: str, where: str, ledger: Ledger) -> int:
    """Read a number like the runtimes, ``strtol`` with base 0; say so where that surprises."""
    if _DECIMAL.fullmatch(text) and -_INT64 <= int(text) < _INT64:
        return int(text)
    match = _STRTOL.match(text)
    value = 0
    if match:
        sign, hexadecimal, octal, decimal = match.groups()
        digits, base = (hexadecimal, 16) if hexadecimal else (octal, 8) if octal else (decimal, 10)
        value = min(int(digits[:64], base), _INT64 - 1)  # longer ones saturate anyway
        value = -value if sign == "-" else value
    ledger.error(
        "NUMBER", where, f"{what} is {text[:40]!r}, which runtimes read as {value}: write decimals"
    )
    return value


class _Builder:
    def __init__(self, reader: TagReader, file: str, ledger: Ledger) -> None:
        self._reader = reader
        self._file = file
        self._ledger = ledger
        self._numbers: dict[str, int] = {}
        self._ignored: Counter[str] = Counter()
        self._document: Document | None = None

    def build(self) -> Document:
        stack: list[Tag] = []
        skipping = 0  # depth at which an element without meaning began
        elements = 0
        for tag in self._reader:
            if tag.opens:
                elements += 1
                if elements > _MAX_ELEMENTS:
                    raise self._reader.refuse(f"more than {_MAX_ELEMENTS} elements")
                stack.append(tag)
                if len(stack) > _MAX_DEPTH:
                    raise self._reader.refuse(f"elements are nested deeper than {_MAX_DEPTH}")
                if not skipping and not self._open(tag, stack):
                    skipping = len(stack)
            if tag.closes:
                if not stack or stack[-1].name != tag.name:
                    inside = f", inside <{stack[-1].name}>" if stack else ""
                    raise self._reader.refuse(f"</{tag.name}> closes nothing{inside}", tag.line)
                if not skipping:
                    self._close(tag)
                if len(stack) == skipping:
                    skipping = 0
                stack.pop()
        if self._document is None:
            raise self._reader.refuse("no element in it, expected <algo>")
        if stack:
            raise self._reader.refuse(
                f"file ends inside <{stack[-1].name}> of line {stack[-1].line}"
            )
        for name, count in sorted(self._ignored.items()):
            advice = ": a local copy must be a cpy step" if name == "copy" else ""
            self._ledger.warning(
                "IGNORED", "", f"{count} <{name}> element(s), which no runtime reads{advice}"
            )
        return self._document

    def _open(self, tag: Tag, stack: list[Tag]) -> bool:
        """Take an element; whether its children have a meaning."""
        if self._document is None:
            if tag.name != "algo":
                raise self._reader.refuse(
                    f"first element is <{tag.name[:40]}>, expected <algo>: not an MSCCL algorithm",
                    tag.line,
                )
            self._document = Document(self._file, Node(tag.line, tag.attributes))
            return True
        parent = stack[-2].name if len(stack) > 1 else ""
        if tag.name not in _PLACE:
            if tag.name == "algo":
                self._ledger.error(
                    "SYNTAX", f"line {tag.line}", "a second <algo>, which no runtime reads"
                )
            else:
                self._ignored[tag.name[:40]] += 1
            return False
        if parent != _PLACE[tag.name]:
            self._ledger.error(
                "SYNTAX",
                f"line {tag.line}",
                f"<{tag.name}> inside <{parent or 'nothing'}>, expected <{_PLACE[tag.name]}>",
            )
            return False
        document = self._document
        if tag.name == "gpu":
            document.gpus.append(Node(tag.line, tag.attributes, len(document.blocks)))
        elif tag.name == "tb":
            document.blocks.append(Node(tag.line, tag.attributes, len(document.steps["s"])))
        else:
            self._step(document, tag)
        return tag.name != "step"

    def _close(self, tag: Tag) -> None:
        document = self._document
        if document is None:
            return
        if tag.name == "gpu":
            document.gpus[-1].end = len(document.blocks)
        elif tag.name == "tb":
            document.blocks[-1].end = len(document.steps["s"])
        elif tag.name == "algo":
            document.algo.end = len(document.gpus)

    def _step(self, document: Document, tag: Tag) -> None:
        for column in STEP_COLUMNS:
            text = tag.attributes.get(column)
            if text is None:
                document.gaps.setdefault(column, []).append(len(document.steps["line"]))
                value = _DEFAULTS.get(column, -1 if column in _WORDS else 0)
            elif column in _WORDS:
                value = self._word(column, text, tag)
            else:
                known = self._numbers.get(text)
                if known is None:
                    known = integer(text, column, f"line {tag.line}", self._ledger)
                    if _DECIMAL.fullmatch(text) and len(self._numbers) < 1 << 16:
                        self._numbers[text] = known
                value = known
            document.steps[column].append(value)
        document.steps["line"].append(tag.line)

    def _word(self, column: str, text: str, tag: Tag) -> int:
        words = _WORDS[column]
        if text in words:
            return words.index(text)
        self._ledger.error(
            "WORD",
            f"line {tag.line}",
            f"{column} is {text[:40]!r}, expected one of {', '.join(words)}",
        )
        return -1
