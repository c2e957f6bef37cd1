"""XML as a tree with line numbers: no document type, no entities, bounded depth and size."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from explorer.errors import InputError, Problem
from explorer.topologies.source import Source

MAX_DEPTH = 64
MAX_ATTRIBUTE = 4096
MAX_ELEMENTS = 1 << 20


@dataclass(slots=True)
class Element:
    """One element.

    Parameters
    ----------
    tag, attributes, line
        Name, attributes and the line its tag starts in.
    children
        Elements inside, in order.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)


def root_tag(source: Source) -> str:
    """Name of a file's first element, empty if there is none; looks at the start only."""
    text = source.text[: 1 << 16]
    place = 0
    while (place := text.find("<", place)) >= 0:
        if text.startswith("<!--", place):
            place = text.find("-->", place)
            if place < 0:
                return ""
        elif text[place + 1 : place + 2].isalpha():
            name = text[place + 1 : place + 60]
            return name.split(">")[0].split("/")[0].split()[0]
        else:
            place += 1
    return ""


def parse_xml(source: Source) -> tuple[Element, Problem | None]:
    """Parse one element with all it holds.

    Returns
    -------
    tuple
        Its tree, and the problem that ended a file before its last tag (what came before it is in
        the tree); None for a whole file.

    Raises
    ------
    InputError
        If there is no element, or the file has a document type, nests deeper than
        :data:`MAX_DEPTH`, or holds an attribute longer than :data:`MAX_ATTRIBUTE`.
    """
    builder = _Builder(source)
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    builder.parser = parser
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = builder.doctype
    try:
        parser.Parse(source.text, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        cut = Problem(source.at(error.lineno), f"not whole XML: {what}")
        if builder.root is None:
            raise InputError(cut) from None
        return builder.root, cut
    except ValueError as error:
        raise InputError(Problem(source.name, f"not usable XML: {error}")) from None
    if builder.root is None:
        raise InputError(Problem(source.name, "holds no XML element"))
    return builder.root, None


class _Builder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.parser: expat.XMLParserType
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def _refuse(self, message: str) -> InputError:
        return InputError(Problem(self.source.at(self.parser.CurrentLineNumber), message))

    def doctype(self, *_: object) -> None:
        raise self._refuse("a document type (DOCTYPE, entities) is not allowed here")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= MAX_DEPTH:
            raise self._refuse(f"nested deeper than {MAX_DEPTH} elements")
        if self._count > MAX_ELEMENTS:
            raise self._refuse(f"more than {MAX_ELEMENTS} elements")
        for key, value in attributes.items():
            if len(value) > MAX_ATTRIBUTE or len(key) > MAX_ATTRIBUTE:
                raise self._refuse(
                    f"attribute {key[:40]!r} has {len(value)} characters, at most {MAX_ATTRIBUTE}"
                )
        element = Element(tag, attributes, self.parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _: str) -> None:
        self._open.pop()
