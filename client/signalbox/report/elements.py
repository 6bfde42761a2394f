"""Elements of HTML and SVG whose text cannot act as markup, and their style sheet.

ElementTree escapes the text. Characters that browsers or terminals interpret, such as those that change the direction
of writing, are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

from signalbox.live.picture import DARK, LIGHT, Paper, colour
from signalbox.live.shown import printable

Child = Element | str | None | Iterable["Child"]


def tag(name: str, *children: Child, **attributes: object) -> Element:
    """Return an element with these children and attributes. Attributes that are None are left out.

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
    """Return a table. ``numbers``: positions of columns with numbers, from 0; these are right-aligned."""
    right = frozenset(numbers)
    kind = ["n" if place in right else None for place in range(100)]
    head = tag("tr", [tag("th", name, class_=kind[place], scope="col") for place, name in enumerate(columns)])
    body = (tag("tr", [tag("td", cell, class_=kind[place]) for place, cell in enumerate(row)]) for row in rows)
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide")


def facts(rows: Iterable[tuple[str, object]]) -> Element:
    return tag("dl", [(tag("dt", name), tag("dd", str(value))) for name, value in rows])


STEPS = 20
"""Number of steps between the colours of load 0 and load 1."""


def step(load: float | None) -> str:
    """Return the name of the style class for a load. None and NaN have the class of unknown loads."""
    known = load is not None and load == load
    return f"l{round(min(max(load, 0.0), 1.0) * STEPS)}" if known and load is not None else "lu"


def _paper(paper: Paper) -> str:
    loads = "".join(f".l{each}{{--c:{colour(each / STEPS, paper)}}}" for each in range(STEPS + 1))
    named = (
        f"--bg:{paper.background};--text:{paper.text};--faint:{paper.faint};--down:{paper.down};"
        f"--drained:{paper.drained};--line:{paper.unknown}"
    )
    return f":root{{{named}}}{loads}.lu{{--c:{paper.unknown}}}"


SHEET = (
    ":root{color-scheme:light dark}"
    + _paper(LIGHT)
    + "@media screen and (prefers-color-scheme:dark){"
    + _paper(DARK)
    + "}"
    + """
body{margin:0 auto;max-width:1120px;padding:0 20px 40px;background:var(--bg);color:var(--text);
 font:14px/1.45 system-ui,sans-serif}
h1{font-size:22px;margin:18px 0 2px}h2{font-size:18px;margin:30px 0 8px;border-bottom:1px solid var(--line)}
h3{font-size:15px;margin:18px 0 6px}p{margin:6px 0}a{color:inherit}
.faint,dt,th,figcaption{color:var(--faint)}
nav a{margin-right:14px}
.verdict{border:1px solid var(--line);border-left:8px solid var(--faint);padding:8px 14px;margin:12px 0;
 border-radius:4px}
.verdict.bad{border-left-color:var(--down)}.verdict.look{border-left-color:var(--drained)}
.verdict strong{font-size:18px}.verdict ul{margin:6px 0;padding-left:20px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:8px;margin:12px 0}
.cards div{border:1px solid var(--line);border-radius:4px;padding:6px 10px}
.cards b{display:block;font-size:18px;font-weight:600;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:2px 12px 2px 0;border-bottom:1px solid var(--line);
 overflow-wrap:anywhere}
th{font-weight:500;white-space:nowrap}.n{text-align:right;white-space:nowrap}
td:not(.n){min-width:7em}td:first-child,th:first-child{min-width:12em}figure{margin:8px 0}.wide{overflow-x:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:6px 0}dd{margin:0;overflow-wrap:anywhere}
details{margin:4px 0}summary{cursor:pointer}
svg{width:100%;height:auto;display:block}svg text{fill:var(--text);font:11px system-ui,sans-serif}
svg .small{font-size:9px;fill:var(--faint)}
.link{fill:none;stroke:var(--c);stroke-width:2.6;filter:drop-shadow(0 0 .7px var(--faint))}
.drained .link{stroke:var(--drained);stroke-dasharray:2 5}.down .link{stroke:var(--down);stroke-dasharray:7 4}
.node rect{fill:var(--bg);stroke:var(--text);stroke-width:1.2}
.node.drained rect{stroke:var(--drained);stroke-dasharray:2 3}.node.down rect{stroke:var(--down);stroke-dasharray:5 3}
.node.unsynced rect{stroke-width:3}
.lane{fill:none;stroke:var(--line)}.lane.free{stroke:var(--c);stroke-width:2;stroke-dasharray:6 4}
.half,.bar,.head{fill:var(--c)}.drained .head{fill:var(--drained)}
.mark{fill:none;stroke-width:1.6}.down .mark{stroke:var(--down)}
.drained .mark{stroke:var(--drained)}
.swatch{display:inline-block;width:14px;height:12px;background:var(--c)}
.legend{margin:4px 0 10px}.legend span+b{font-weight:400;margin-left:8px}
.key-down{color:var(--down)}.key-drained{color:var(--drained)}
@media print{body{max-width:none;font-size:11px}nav{display:none}h2{break-after:avoid}tr,figure,svg{break-inside:avoid}
 details::details-content{content-visibility:visible;display:block}*{print-color-adjust:exact;
 -webkit-print-color-adjust:exact}}
"""
)
