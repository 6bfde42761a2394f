"""Read YAML and JSON as plain data in which every value has a line and a column.

Errors are ``InvalidInput`` with the path ``LINE:COLUMN``. Unquoted words have the meaning of YAML 1.2 (core schema),
not of 1.1: ``no`` is text, ``1e9`` is a number, ``1:30`` and dates are text. Forms that are easily misread are refused:
numbers with leading zeros (octal in 1.1), repeated fields, and tags. An alias stands for a copy of its anchor; the size
of all copies together is limited, and no value can contain itself.

This module builds the values from PyYAML's events, in time linear in the text's length, whatever its depth and its
aliases. ruamel.yaml 0.19 took 24 times the CPU time, and its recursion was too deep for 5,000 nested lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

from signalbox.errors import InvalidInput, cut
from signalbox.files import MAX_DEPTH, MAX_DIGITS, MAX_FIELDS, MAX_LISTS, MAX_VALUES

MAX_DOCUMENTS = 10_000
"""Largest number of documents in one text."""

Key: TypeAlias = str | int
"""Key of an entry: the name of a field, or the number of an item."""

Entry: TypeAlias = "tuple[int, int, Node | None]"
"""Place and value of a field or item: line and column where it begins, both from 1, and the node of its value.

The place of a field is that of its name. Only lists and objects have a node; for any other value the node is None."""


@dataclass(slots=True)
class Node:
    """A list or object of a document, or a whole document.

    - ``data``: the value as JSON would have it
    - ``entries``: places of the fields or items
    - ``values``: number of all values inside, plus one"""

    line: int
    column: int
    data: Any
    entries: dict[Key, Entry] = field(default_factory=dict)
    values: int = 1

    def place_of(self, path: str) -> tuple[int, int]:
        """Return line and column of the field at ``path`` (``groups[0].ranks``), or of the object that lacks it."""
        place: tuple[int, int] = (self.line, self.column)
        node: Node | None = self
        for name, item in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            entry = node.entries.get(name or int(item)) if node else None
            if entry is None:
                break
            place, node = entry[:2], entry[2]
        return place


def documents(text: str, most_fields: int = MAX_FIELDS) -> list[Node]:
    """Return the documents of a text. Empty documents are left out. Raises ``InvalidInput``.

    ``most_fields``: largest number of fields of one object."""
    if wrong := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: wrong.start()]
        mark = _Mark(before.count("\n"), len(before) - before.rfind("\n") - 1)
        raise _wrong(mark, f"not YAML: the character U+{ord(wrong[0]):04X} is not allowed")
    try:
        return [node for node in _documents(text, most_fields) if node.data is not None]
    except yaml.MarkedYAMLError as error:
        at: Any = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        if at and text[at.index : at.index + 1] == "\t":
            what = "a tab; indent with spaces"
        raise _wrong(at, f"not YAML: {what}") from None


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Open:
    """List or object whose end has not been read yet.

    ``name``: name of the field whose value comes next, and line and column of this name; None between fields, and in a
    list."""

    node: Node
    anchor: str | None
    most_fields: int
    name: tuple[str, int, int] | None = None

    def add(self, line: int, column: int, data: Any, node: Node | None) -> None:
        """Add a value to the list or object. ``node``: node of ``data`` if this is a list or object, else None."""
        inside = self.node
        inside.values += node.values if node else 1
        if inside.values > MAX_VALUES:
            raise _too_many(line, column)
        if isinstance(inside.data, list):
            inside.entries[len(inside.data)] = line, column, node
            inside.data.append(data)
        elif self.name is None:
            self._begin_field(line, column, data)
        else:
            (name, at_line, at_column), self.name = self.name, None
            inside.entries[name] = at_line, at_column, node
            inside.data[name] = data

    def _begin_field(self, line: int, column: int, name: Any) -> None:
        if not isinstance(name, str):
            raise _wrong_at(line, column, "the name of a field must be text; put it in quotes")
        if name in self.node.entries:
            first = self.node.entries[name][0]
            raise _wrong_at(line, column, f"'{cut(name)}' appears twice in one object, first in line {first}")
        if len(self.node.entries) == self.most_fields:
            raise _wrong_at(line, column, f"at most {self.most_fields} fields are allowed in an object")
        self.name = name, line, column


def _documents(text: str, most_fields: int) -> Iterator[Node]:
    opened: list[_Open] = []
    anchors: dict[str | None, tuple[Any, Node | None]] = {}
    values = lists = texts = 0
    for event in yaml.parse(text, Loader=_Parser):
        mark: Any = event.start_mark
        line, column, node, anchor = mark.line + 1, mark.column + 1, None, None
        data: Any
        if event.__class__ is yaml.ScalarEvent:  # most events are scalars
            data, anchor = _value(event), event.anchor
        elif isinstance(event, yaml.CollectionStartEvent):
            lists += 1
            _check(event, len(opened), lists)
            data = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            opened.append(_Open(Node(line, column, data), event.anchor, most_fields))
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            node, anchor = ended.node, ended.anchor
            line, column, data = node.line, node.column, node.data
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _wrong(mark, f"the alias *{cut(event.anchor or '')} refers to no complete anchor before it")
            data, node = anchors[event.anchor]
        else:
            if isinstance(event, yaml.DocumentStartEvent):
                anchors.clear()
                texts += 1
                if texts > MAX_DOCUMENTS:
                    raise _wrong(mark, f"at most {MAX_DOCUMENTS} documents are allowed")
            continue
        if anchor is not None:
            anchors[anchor] = data, node
        if opened:
            opened[-1].add(line, column, data, node)
        else:
            root = node or Node(line, column, data)
            values += root.values
            if values > MAX_VALUES:
                raise _too_many(line, column)
            yield root


def _check(event: yaml.CollectionStartEvent, depth: int, lists: int) -> None:
    """Raise ``InvalidInput`` if a list or object must not begin at this place.

    - ``depth``: number of lists and objects around it
    - ``lists``: number of lists and objects that have begun so far, this one included"""
    _without_tag(event)
    if depth == MAX_DEPTH:
        raise _wrong(event.start_mark, f"at most {MAX_DEPTH} lists and objects may be nested")
    if lists > MAX_LISTS:
        raise _wrong(event.start_mark, f"at most {MAX_LISTS} lists and objects are allowed")


class _Mark(NamedTuple):
    """Line and column, counted from 0 as in PyYAML's marks."""

    line: int
    column: int


def _wrong(mark: Any, message: str) -> InvalidInput:
    return _wrong_at(mark.line + 1, mark.column + 1, message) if mark else InvalidInput.of("", message)


def _wrong_at(line: int, column: int, message: str) -> InvalidInput:
    return InvalidInput.of(f"{line}:{column}", message)


def _too_many(line: int, column: int) -> InvalidInput:
    message = f"at most {MAX_VALUES} values are allowed, including each repetition by an alias"
    return _wrong_at(line, column, message)


# ---- words without quotes

_INTEGER = r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+)"
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_PLAIN_INTEGER = re.compile(_INTEGER)
_PLAIN_NUMBER = re.compile(_NUMBER)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _value(event: yaml.ScalarEvent) -> Any:
    _without_tag(event)
    text: str = event.value
    if not event.implicit[0]:  # quoted, or a block
        return text
    if text.isdecimal() and text.isascii() and text[0] != "0" and len(text) <= MAX_DIGITS:
        return int(text)
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _LEADING_ZERO.fullmatch(text):
        raise _wrong(event.start_mark, f"write {cut(text)} without leading zeros, or as text in quotes")
    if not _PLAIN_INTEGER.fullmatch(text):
        return float(text) if _PLAIN_NUMBER.fullmatch(text) else text
    if len(text) > MAX_DIGITS:
        raise _wrong(event.start_mark, f"a number of {len(text)} digits is too long")
    return int(text, 0)


def _without_tag(event: Any) -> None:
    if event.tag is not None:
        raise _wrong(event.start_mark, "tags such as !!str are not allowed; put text that could be a number in quotes")


# ---- writing


class _Dumper(yaml.SafeDumper):
    """Writer that quotes a text if readers of YAML 1.1, or this module, would otherwise take it for another type."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"(?:{_INTEGER}|{_NUMBER})$"), [*"-+.0123456789"])


def dump(data: object) -> str:
    """Return plain data as YAML that this module and readers of YAML 1.1 read alike.

    Innermost lists and objects are written in one line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
