"""YAML and JSON as plain data in which every value has a line and a column.

In: text. Out: a ``Node`` per document, or ``InvalidInput`` whose path is ``LINE:COLUMN``. Words without quotes mean
what they mean in YAML 1.2 (core schema), not in 1.1: ``no`` is text, ``1e9`` a number, ``1:30`` and dates are text.
Beyond that, what is easily misread is refused: numbers with leading zeros (octal in 1.1), a field that is there twice,
tags. An alias stands for a copy of what it names; all copies together are limited, and nothing contains itself.

PyYAML reads events; nodes are made here, so that neither depth nor copies cost more than the text has characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

from signalbox.errors import InvalidInput, cut
from signalbox.standard_input import MAX_DEPTH, MAX_DIGITS

MAX_VALUES = 2_000_000
"""In one document, copies counted; a spec within its limits has less than a third."""

Key: TypeAlias = str | int
"""Of a field its name, of an item its number."""


class Entry(NamedTuple):
    """``line``, ``column``: from 1; of a field where its name begins, of an item where it begins."""

    line: int
    column: int
    node: Node


@dataclass(slots=True)
class Node:
    """``data``: as JSON would have it. ``entries``: of an object or list. ``values``: how many these are, and one."""

    line: int
    column: int
    data: Any
    entries: dict[Key, Entry] = field(default_factory=dict)
    values: int = 1

    def place_of(self, path: str) -> tuple[int, int]:
        """Line and column of what ``path`` names (``groups[0].ranks``), or of what contains it where it is missing."""
        place, node = (self.line, self.column), self
        for name, item in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            entry = node.entries.get(name or int(item))
            if entry is None:
                break
            place, node = (entry.line, entry.column), entry.node
        return place


def documents(text: str) -> list[Node]:
    """Those of the text; empty ones, as between two separators, are left out."""
    if wrong := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: wrong.start()]
        mark = _Mark(before.count("\n"), len(before) - before.rfind("\n") - 1)
        raise _wrong(mark, f"not YAML: the character U+{ord(wrong[0]):04X} is not allowed")
    try:
        return [node for node in _documents(text) if node.data is not None]
    except yaml.MarkedYAMLError as error:
        at: Any = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        if at and text[at.index : at.index + 1] == "\t":
            what = "a tab; indent with spaces"
        raise _wrong(at, f"not YAML: {what}") from None


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The faster one where PyYAML was built with it."""


@dataclass(slots=True)
class _Open:
    """A list or object of which not all was read. ``name``: of the field whose value comes next."""

    node: Node
    anchor: str | None
    name: Entry | None = None

    def add(self, mark: Any, node: Node) -> None:
        inside = self.node
        inside.values += node.values
        if inside.values > MAX_VALUES:
            raise _wrong(mark, f"at most {MAX_VALUES} values are allowed, those that aliases repeat counted each time")
        if isinstance(inside.data, list):
            inside.entries[len(inside.data)] = Entry(mark.line + 1, mark.column + 1, node)
            inside.data.append(node.data)
        elif self.name is None:
            self._begin_field(mark, node)
        else:
            name, self.name = self.name, None
            inside.entries[name.node.data] = name._replace(node=node)
            inside.data[name.node.data] = node.data

    def _begin_field(self, mark: Any, name: Node) -> None:
        if not isinstance(name.data, str):
            raise _wrong(mark, "the name of a field must be text; put it in quotes")
        if name.data in self.node.entries:
            first = self.node.entries[name.data].line
            raise _wrong(mark, f"'{cut(name.data)}' is there twice in one object, first in line {first}")
        self.name = Entry(mark.line + 1, mark.column + 1, name)


def _documents(text: str) -> Iterator[Node]:
    opened: list[_Open] = []
    anchors: dict[str | None, Node] = {}
    for event in yaml.parse(text, Loader=_Parser):
        mark: Any = event.start_mark
        if isinstance(event, yaml.DocumentStartEvent):
            anchors.clear()
            continue
        if isinstance(event, yaml.CollectionStartEvent):
            _without_tag(event)
            if len(opened) == MAX_DEPTH:
                raise _wrong(mark, f"at most {MAX_DEPTH} lists and objects may be in each other")
            data: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            opened.append(_Open(Node(mark.line + 1, mark.column + 1, data), event.anchor))
            continue
        if isinstance(event, yaml.ScalarEvent):
            node, anchor = Node(mark.line + 1, mark.column + 1, _value(event)), event.anchor
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _wrong(mark, f"the alias *{cut(event.anchor or '')} names nothing that ends before it")
            node, anchor = anchors[event.anchor], None
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            node, anchor = ended.node, ended.anchor
            mark = _Mark(node.line - 1, node.column - 1)
        else:
            continue
        if anchor is not None:
            anchors[anchor] = node
        if opened:
            opened[-1].add(mark, node)
        else:
            yield node


class _Mark(NamedTuple):
    """As PyYAML's: from 0."""

    line: int
    column: int


def _wrong(mark: Any, message: str) -> InvalidInput:
    return InvalidInput.of(f"{mark.line + 1}:{mark.column + 1}" if mark else "", message)


# ---- words without quotes

_INTEGER = r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+)"
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _value(event: yaml.ScalarEvent) -> Any:
    _without_tag(event)
    text: str = event.value
    if not event.implicit[0]:  # in quotes, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _LEADING_ZERO.fullmatch(text):
        raise _wrong(event.start_mark, f"write {cut(text)} without leading zeros, or as text in quotes")
    if not re.fullmatch(_INTEGER, text):
        return float(text) if re.fullmatch(_NUMBER, text) else text
    if len(text) > MAX_DIGITS:
        raise _wrong(event.start_mark, f"a number of {len(text)} digits is too long")
    return int(text, 0)


def _without_tag(event: Any) -> None:
    if event.tag is not None:
        raise _wrong(event.start_mark, "tags such as !!str are not allowed; put text that could be a number in quotes")


# ---- writing


class _Dumper(yaml.SafeDumper):
    """Quotes text that is something else to readers of YAML 1.1, or to this one."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"(?:{_INTEGER}|{_NUMBER})$"), [*"-+.0123456789"])


def dump(data: object) -> str:
    """Plain data as YAML that ``documents`` reads, and readers of YAML 1.1; innermost lists and objects on a line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
