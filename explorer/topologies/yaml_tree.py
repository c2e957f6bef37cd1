"""YAML text as a tree of text, lists and mappings that knows the line of everything.

Scalars stay text: what a number, a flag or a rate is, the field that reads it decides. Anchors,
tags and deep nesting have no use in a topology and are refused, so no file can unfold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from explorer.errors import InputError, Problem
from explorer.topologies.source import Source

MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Tree:
    """One value of a YAML file.

    Parameters
    ----------
    line
        Where it starts, from 1.
    value
        Text, a list, or a mapping.
    key_lines
        Line of every key of a mapping.
    """

    line: int
    value: str | list[Tree] | dict[str, Tree]
    key_lines: dict[str, int]


def parse_yaml(source: Source) -> Tree:
    """Parse one YAML document.

    Raises
    ------
    InputError
        If it is not YAML, has several documents, repeats a key, nests deeper than
        :data:`MAX_DEPTH`, or uses anchors or tags; with the line.
    """
    try:
        parser = _Parser(source, iter(YAML(typ="safe", pure=True).parse(source.text)))
        return parser.document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        what = " ".join(str(p) for p in (error.context, error.problem) if p)
        raise InputError(Problem(source.at(line), f"not valid YAML: {what}")) from None
    except (YAMLError, ValueError) as error:
        raise InputError(Problem(source.name, f"not valid YAML: {error}")) from None


class _Parser:
    def __init__(self, source: Source, events: Iterator[Event]) -> None:
        self.source = source
        self.events = events
        self.problems: list[Problem] = []

    def document(self) -> Tree:
        tree: Tree | None = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if tree is not None:
                    raise InputError(
                        Problem(self._at(event), "a second document starts, expected one")
                    )
                tree = self._tree(next(self.events), 1)
        if tree is None:
            raise InputError(Problem(self.source.name, "has no content, expected a topology"))
        if self.problems:
            raise InputError(self.problems)
        return tree

    def _at(self, event: Event) -> str:
        return self.source.at(event.start_mark.line + 1)

    def _tree(self, event: Event, depth: int) -> Tree:
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise InputError(
                Problem(self._at(event), "anchors and aliases are not allowed in a topology")
            )
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise InputError(Problem(self._at(event), f"the tag {tag} is not allowed"))
        if depth > MAX_DEPTH:
            raise InputError(Problem(self._at(event), f"nested deeper than {MAX_DEPTH} levels"))
        line = event.start_mark.line + 1
        if isinstance(event, MappingStartEvent):
            return self._mapping(line, depth)
        if isinstance(event, SequenceStartEvent):
            items = []
            while not isinstance(item := next(self.events), SequenceEndEvent):
                items.append(self._tree(item, depth + 1))
            return Tree(line, items, {})
        return Tree(line, str(event.value) if isinstance(event, ScalarEvent) else "", {})

    def _mapping(self, line: int, depth: int) -> Tree:
        table: dict[str, Tree] = {}
        lines: dict[str, int] = {}
        while not isinstance(key := next(self.events), MappingEndEvent):
            if not isinstance(key, ScalarEvent):
                raise InputError(Problem(self._at(key), "a key must be one word"))
            value = self._tree(next(self.events), depth + 1)
            name = str(key.value)
            if name in table:
                self.problems.append(
                    Problem(self._at(key), f"{name} is repeated, first given in line {lines[name]}")
                )
                continue
            table[name] = value
            lines[name] = key.start_mark.line + 1
        return Tree(line, table, lines)
