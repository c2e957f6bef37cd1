"""Tags of an MSCCL XML file, read the way the runtimes' hand-written readers do, but strictly.

microsoft/msccl ``src/graph/xml.cc`` and Azure/msccl-executor-nccl ``src/misc/msccl/
msccl_parser.cc`` know a subset of XML. What XML allows and they do not is a finding; what is not
XML at all, or could blow up a reader (DTDs and with them entities, endless tags), is refused.

Memory: the file, at most :data:`MAX_FILE_BYTES`, and one tag of at most :data:`MAX_TAG_BYTES`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import InputError, Problem
from explorer.verify.report import Ledger

MAX_FILE_BYTES = 256 << 20
"""Largest file read; 64 ranks with all steps a runtime takes are 40 MB."""

MAX_TAG_BYTES = 1 << 16
"""Longest tag read; the longest step of a valid file has about 150 bytes."""

MAX_ATTRIBUTES = 16
"""Attributes of an element that the runtimes keep (``MAX_ATTR_COUNT``)."""

MAX_VALUE_BYTES = 255
"""Longest value they keep (``MAX_STR_LEN``)."""

_STRICT = re.compile(r'([A-Za-z_][\w.\-]*)((?: +[A-Za-z_][\w.\-:]*="[^"]*")*) *(/?)', re.ASCII)
_ATTRIBUTE = re.compile(r'([A-Za-z_][\w.\-:]*)="([^"]*)"', re.ASCII)
_LENIENT_NAME = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_LENIENT = re.compile(
    r"""[ \t\n\r]+([A-Za-z_][\w.\-:]*)[ \t\n\r]*=[ \t\n\r]*(?:"([^"]*)"|'([^']*)')""", re.ASCII
)
_CLOSE = re.compile(r"/[ ]*([A-Za-z_][\w.\-]*)[ ]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag.

    Parameters
    ----------
    name
        Element name.
    line
        Line it starts in, from 1.
    opens, closes
        An empty element does both.
    attributes
        Values by name, as text.
    """

    name: str
    line: int
    opens: bool
    closes: bool
    attributes: dict[str, str]


def read_bytes(path: Path) -> bytes:
    """Read a file that may be an algorithm.

    Raises
    ------
    InputError
        If it cannot be read, is too long, empty, or binary.
    """
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "does not exist"
            raise InputError(Problem(str(path), what))
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}")) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            Problem(str(path), f"is longer than {MAX_FILE_BYTES} bytes, the most that is read")
        )
    if not data.strip():
        raise InputError(Problem(str(path), "is empty, expected an MSCCL algorithm"))
    if b"\0" in data:
        raise InputError(Problem(str(path), "is binary, expected an MSCCL algorithm in XML"))
    return data


class TagReader:
    """Iterates over the tags of a file.

    Parameters
    ----------
    data
        The file's bytes.
    file
        Its name, for errors.
    ledger
        Gets what XML allows but the runtimes' readers do not.
    """

    def __init__(self, data: bytes, file: str, ledger: Ledger) -> None:
        self._data = data
        self._file = file
        self._ledger = ledger
        self.line = 1

    def refuse(self, message: str, line: int | None = None) -> InputError:
        """Make the error for something that is not XML."""
        return InputError(Problem(f"{self._file}:{line or self.line}", message))

    def __iter__(self) -> Iterator[Tag]:
        data, at = self._data, 0
        while True:
            start = data.find(b"<", at)
            self._check_between(data[at : start if start >= 0 else len(data)])
            if start < 0:
                return
            if data.startswith(b"<!--", start):
                at = self._comment(start)
            elif data.startswith(b"<!", start):
                raise self.refuse("DTDs, entities and CDATA are refused")
            elif data.startswith(b"<?", start):
                self._finding("<?…?> is not accepted by any runtime's reader")
                at = self._end(b"?>", start)
            else:
                at, tag = self._tag(start)
                yield tag
                continue
            self.line += data.count(b"\n", start, at)

    def _finding(self, message: str) -> None:
        self._ledger.error("SYNTAX", f"line {self.line}", message)

    def _check_between(self, text: bytes) -> None:
        rest = text.strip(b" \n\r")
        if rest:
            line = self.line + text[: text.index(rest)].count(b"\n")
            if rest.strip(b"\t \n\r"):
                shown = rest.strip()[:20].decode("utf-8", "replace")
                message = f"text {shown!r} between elements: readers stop or skip wrongly"
            else:
                message = "tab between elements, readers accept spaces and line ends only"
            self._ledger.error("SYNTAX", f"line {line}", message)
        self.line += text.count(b"\n")

    def _end(self, mark: bytes, start: int) -> int:
        end = self._data.find(mark, start)
        if end < 0:
            raise self.refuse(f"{self._data[start : start + 4].decode()!r} without {mark.decode()}")
        return end + len(mark)

    def _comment(self, start: int) -> int:
        end = self._end(b"-->", start + 4)
        first = self._data[start + 4 : min(end - 3, start + 4 + MAX_TAG_BYTES)].split(None, 1)
        if first and b"=" in first[0]:
            self._finding("first word of a comment contains '=', which readers take for a tag")
        return end

    def _tag(self, start: int) -> tuple[int, Tag]:
        data, limit = self._data, start + MAX_TAG_BYTES
        end = data.find(b">", start, limit)
        quotes = data.count(b'"', start, max(end, start))
        while end >= 0 and quotes % 2:  # a '>' inside a value
            further = data.find(b">", end + 1, limit)
            quotes += data.count(b'"', end, max(further, end))
            end = further
        if end < 0:
            if limit >= len(data):
                raise self.refuse("file ends inside a tag")
            raise self.refuse(f"tag longer than {MAX_TAG_BYTES} bytes")
        body = data[start + 1 : end].decode("utf-8", "replace")
        line = self.line
        strict = _STRICT.fullmatch(body)
        spare = 0
        if strict:
            name, inside, slash = strict.groups()
            pairs = _ATTRIBUTE.findall(inside)
            if "  " in body:
                runs = re.findall(r" {2,}", re.sub(r'"[^"]*"', "", body))
                spare = sum(len(spaces) - 1 for spaces in runs)
        elif body.startswith("/"):
            close = _CLOSE.fullmatch(body)
            if not close:
                raise self.refuse(f"malformed closing tag <{body[:40]}>")
            return end + 1, Tag(close[1], line, False, True, {})
        else:
            name, pairs, slash = self._lenient(body)
        attributes = dict(reversed(pairs))
        if len(body) > MAX_VALUE_BYTES or "&" in body or len(attributes) < len(pairs):
            self._check_attributes(pairs)
        if len(pairs) + spare > MAX_ATTRIBUTES:
            self._ledger.error(
                "LIMIT",
                f"line {line}",
                f"{len(pairs)} attributes and {spare} double spaces, limit {MAX_ATTRIBUTES}"
                " together (all runtimes): the rest is dropped",
            )
        self.line += body.count("\n")
        return end + 1, Tag(name, line, True, slash == "/", attributes)

    def _lenient(self, body: str) -> tuple[str, list[tuple[str, str]], str]:
        """Read a tag that XML allows and the runtimes do not, and say what they trip over."""
        name = _LENIENT_NAME.match(body)
        if not name:
            raise self.refuse(f"malformed tag <{body[:40]}>")
        at = name.end()
        pairs = []
        while found := _LENIENT.match(body, at):
            pairs.append((found[1], found[2] if found[2] is not None else found[3]))
            if found[3] is not None:
                self._finding("single-quoted value: readers run on to the next double quote")
            at = found.end()
        rest = body[at:].strip(" \t\n\r")
        if rest not in ("", "/"):
            raise self.refuse(
                f'malformed tag <{body[:40]}> at {rest[:40]!r}, expected name="value"'
            )
        outside = re.sub(r'"[^"]*"', "", body)
        if "\n" in outside or "\r" in outside:
            self._finding("line break inside a tag, which readers do not accept")
        if "\t" in outside:
            self._finding("tab inside a tag, readers accept single spaces only")
        if " =" in outside or "= " in outside:
            self._finding("space beside '=', which readers do not accept")
        return name[0], pairs, rest

    def _check_attributes(self, pairs: list[tuple[str, str]]) -> None:
        """What is wrong with single attributes; called where something can be."""
        double = [key for key, count in Counter(k for k, _ in pairs).items() if count > 1]
        if double:
            self._finding(f"attribute {', '.join(sorted(double)[:4])} given more than once")
        for key, value in pairs:
            length = max(len(key.encode()), len(value.encode()))
            if length > MAX_VALUE_BYTES:
                self._ledger.error(
                    "LIMIT",
                    f"line {self.line}",
                    f"attribute {key[:40]} has {length} characters, limit {MAX_VALUE_BYTES}"
                    " (all runtimes)",
                )
            if "&" in value:
                self._finding(f"'&' in attribute {key[:40]}: readers know no entities")
