"""Elements of HTML and SVG whose text cannot act as markup.

ElementTree escapes the text. Characters that browsers or terminals obey, such as those that change the direction of
writing, are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

from signalbox.live.shown import printable

Child = Element | str | None | Iterable["Child"]


def tag(name: str, *children: Child, **attributes: object) -> Element:
    """Return an element; attributes that are None are left out.

    ``class_`` is the attribute ``class``; other underscores become hyphens."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    made = Element(name, {key: printable(str(value)) for key, value in given.items() if value is not None})
    add(made, children)
    return made


def add(parent: Element, children: Iterable[Child]) -> None:
    for child in children:
        if isinstance(child, str):
            _add_text(parent, printable(child))
        elif isinstance(child, Element):
            parent.append(child)
        elif child is not None:
            add(parent, child)


def _add_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def document(root: Element) -> str:
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def table(columns: Iterable[str], rows: Iterable[Iterable[Child]], numbers: Iterable[int] = ()) -> Element:
    """Return a table. ``numbers``: positions, from 0, of right-aligned columns."""
    right = frozenset(numbers)
    kind = ["n" if place in right else None for place in range(100)]
    head = tag("tr", [tag("th", name, class_=kind[place], scope="col") for place, name in enumerate(columns)])
    body = (tag("tr", [tag("td", cell, class_=kind[place]) for place, cell in enumerate(row)]) for row in rows)
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide")


def facts(rows: Iterable[tuple[str, object]]) -> Element:
    return tag("dl", [(tag("dt", name), tag("dd", str(value))) for name, value in rows])
