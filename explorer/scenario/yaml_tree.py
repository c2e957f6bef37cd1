"""YAML text to plain data that remembers the line of every key and list item.

Files come from anywhere, so what a scenario never needs is refused before it can cost anything:
deep nesting, application tags, documents that unfold through aliases, several documents in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from explorer.errors import InputError, Problem

MAX_BYTES = 1 << 20
"""Largest file that is read: the parser is quadratic in places, and no scenario comes near."""

MAX_DEPTH = 12
"""Deepest nesting; a scenario has three levels."""

MAX_VALUES = 50_000
"""Most values after aliases are unfolded."""

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_TYPED = {_TAG + name for name in ("int", "float", "bool", "null")}
_COLLECTION = {_TAG + name for name in ("map", "seq")}
_TEXT = {_TAG + name for name in ("str", "timestamp")}


@dataclass(frozen=True, slots=True)
class YamlTree:
    """Plain data and where it stood.

    Parameters
    ----------
    source
        Name of the file in messages.
    data
        Dicts, lists, text, int, float, bool and None.
    lines
        Line, from 1, of every key path.
    """

    source: str
    data: object
    lines: Mapping[KeyPath, int]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Say what is wrong at a key path, or at the nearest part of it that the file has."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        where = f"{self.source}:{self.lines.get(known, 1)}"
        text = path_text(path)
        return Problem(where, f"{text}: {message}" if text else message)


def path_text(path: KeyPath) -> str:
    """Write a key path.

    Examples
    --------
    >>> path_text(("scenarios", 0, "sizes", 2))
    'scenarios[0].sizes[2]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_yaml(path: Path) -> YamlTree:
    """Read a YAML file.

    Raises
    ------
    InputError
        If it cannot be read, is not one YAML document, repeats a key, or is nested, tagged or
        aliased beyond what a scenario needs.
    """
    source = str(path)
    try:
        size = path.stat().st_size if path.is_file() else 0
        if size > MAX_BYTES:
            raise InputError(
                Problem(source, f"has {size} bytes, a scenario has at most {MAX_BYTES}")
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(source, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise InputError(
            Problem(source, f"is not UTF-8 text (byte {error.start}); expected YAML")
        ) from None
    return parse_yaml(text, source)


def parse_yaml(text: str, source: str) -> YamlTree:
    """Read YAML text; ``source`` names it in messages. Raises as :func:`read_yaml`."""
    yaml = YAML(typ="safe", pure=True)
    try:
        _check_depth(yaml, text, source)
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        what = " ".join(str(p) for p in (error.problem, error.context) if p)
        raise InputError(Problem(f"{source}:{line}", f"not valid YAML: {what}")) from None
    except (YAMLError, ValueError) as error:
        raise InputError(Problem(source, f"not valid YAML: {error}")) from None
    if root is None:
        raise InputError(Problem(source, "is empty; expected a scenario"))
    reader = _Reader(yaml, source)
    data = reader.value(root, ())
    if reader.problems:
        raise InputError(reader.problems)
    return YamlTree(source, data, reader.lines)


def _check_depth(yaml: YAML, text: str, source: str) -> None:
    """Refuse deep nesting on the flat stream of events: composing it would recurse."""
    depth = 0
    for event in yaml.parse(text):
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InputError(
                Problem(
                    f"{source}:{event.start_mark.line + 1}",
                    f"is nested deeper than {MAX_DEPTH} levels",
                )
            )


@dataclass(slots=True)
class _Reader:
    """Turns nodes into values, once per place where an alias puts them."""

    yaml: YAML
    source: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def value(self, node: Node, path: KeyPath) -> object:
        """Value of a node; problems are collected, and a bad part reads as None."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.values += 1
        if self.values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise InputError(
                Problem(
                    f"{self.source}:{line}",
                    f"{path_text(path)}: aliases unfold to more than {MAX_VALUES} values"
                    f" or {MAX_DEPTH} levels",
                )
            )
        if not isinstance(node, ScalarNode) and str(node.tag) not in _COLLECTION:
            self._complain(line, path, f"the tag {node.tag} is not allowed")
            return None
        if isinstance(node, MappingNode):
            return dict(self._items(node, path))
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path) if isinstance(node, ScalarNode) else None

    def _items(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, object]]:
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._complain(line, path, "a key must be one word, got a list or mapping")
                continue
            key = str(key_node.value)
            if key in first:
                self._complain(line, (*path, key), f"repeated, first given in line {first[key]}")
                continue
            first[key] = line
            self.lines[*path, key] = line
            yield key, self.value(value_node, (*path, key))

    def _scalar(self, node: ScalarNode, path: KeyPath) -> object:
        tag = str(node.tag)
        if tag in _TEXT:
            return str(node.value)
        if tag in _TYPED:
            try:
                return self.yaml.constructor.construct_object(node)
            except (ValueError, YAMLError):
                return str(node.value)
        self._complain(node.start_mark.line + 1, path, f"the tag {tag} is not allowed")
        return None

    def _complain(self, line: int, path: KeyPath, message: str) -> None:
        text = path_text(path)
        self.problems.append(
            Problem(f"{self.source}:{line}", f"{text}: {message}" if text else message)
        )
