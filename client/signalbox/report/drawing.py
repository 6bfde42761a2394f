"""Drawings of a report, as SVG: the fabric as a graph or as matrices, slowdowns as bars, and slots as lanes.

Lengths are in SVG units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import atan2, cos, degrees, hypot, isfinite, radians, sin
from typing import NamedTuple
from xml.etree.ElementTree import Element

from signalbox.live.picture import Cable, Condition, Matrix, Node, Picture, counted_cables, described
from signalbox.live.shown import counted, short, slowdown
from signalbox.live.timeline import Timeline
from signalbox.report.elements import Child, step, tag

WIDTH = 1080
MARGIN = 30
ROW = 150
"""Vertical distance between two tiers."""
ACROSS = 620
"""Diameter of the circle on which switches are drawn when there are no tiers."""
BESIDE = 4
"""Distance of a circuit's line from the straight line between its two switches."""
MOST_CELLS = 8192
"""Largest number of cables that ``matrices`` draws. For more cables, ``matrices`` draws nothing."""
CLASSES = {Condition.UP: "up", Condition.UNSYNCED: "unsynced", Condition.DRAINED: "drained", Condition.DOWN: "down"}


def svg(width: float, height: float, label: str, *children: Child, **attributes: object) -> Element:
    view = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", children, viewBox=view, role="img", aria_label=label, **attributes)


# ---- a graph


class _Places(NamedTuple):
    """Positions of switches in a graph.

    - ``at``: position of each switch, by dpid
    - ``room``: free width around each switch, by dpid
    - ``outward``: direction in which a switch has no cables, in degrees clockwise from the right, by dpid
    - ``hosts_below``: whether the number of hosts fits below a switch"""

    height: float
    at: Mapping[int, tuple[float, float]]
    room: Mapping[int, float]
    outward: Mapping[int, float]
    hosts_below: bool


def _in_tiers(picture: Picture, edge: int) -> _Places:
    tiers = picture.tiers
    height = 2 * edge + ROW * (len(tiers) - 1) + 26
    row_of = {node.dpid: row for row, tier in enumerate(tiers) for node in tier}
    width = WIDTH - 2 * MARGIN
    return _Places(
        height,
        {
            n.dpid: (MARGIN + n.x * width, float(height - edge - 13 - ROW * row_of[n.dpid]))
            for n in picture.nodes.values()
        },
        {dpid: width / len(tiers[row]) for dpid, row in row_of.items()},
        {dpid: -90.0 if row else 90.0 for dpid, row in row_of.items()},
        hosts_below=True,
    )


def _on_circle(picture: Picture, edge: int) -> _Places:
    points = {node.dpid: picture.on_circle(node) for node in picture.nodes.values()}
    left = (WIDTH - ACROSS) / 2
    return _Places(
        ACROSS + 2 * edge + 26,
        {dpid: (left + x * ACROSS, edge + 13 + y * ACROSS) for dpid, (x, y) in points.items()},
        dict.fromkeys(points, min(WIDTH / 6, 3 * ACROSS / len(points))),
        {dpid: degrees(atan2(y - 0.5, x - 0.5)) for dpid, (x, y) in points.items()},
        hosts_below=False,
    )


def graph(picture: Picture) -> Element:
    """Return the fabric as a graph, with the switches in tiers or on a circle."""
    crowded = max(map(len, picture.tiers), default=0) > MOST_UPRIGHT
    places = (_on_circle if picture.without_tiers else _in_tiers)(picture, 90 if crowded else 30)
    together: defaultdict[tuple[int, int], list[Cable]] = defaultdict(list)
    for cable in picture.cables:
        together[cable.ends].append(cable)
    cables = [
        (_circuit if cable.one_way else _cable)(cable, picture, places.at, number - (len(group) - 1) / 2)
        for group in together.values()
        for number, cable in enumerate(group)
    ]
    nodes = [_node(node, places, crowded=len(tier) > MOST_UPRIGHT) for tier in picture.tiers for node in tier]
    label = f"{counted(len(picture.nodes), 'switch', 'switches')}, {counted_cables(picture.cables)}"
    return svg(WIDTH, places.height, label, cables, nodes, id="graph")


MOST_UPRIGHT = 16
"""Largest number of switches in a tier whose names are drawn horizontally; more names are turned."""


def _circuit(cable: Cable, picture: Picture, at: Mapping[int, tuple[float, float]], place: float) -> Element:
    """Return a circuit as a line with an arrow head in its middle.

    The line is shifted to the right of its direction, so that it does not cover a circuit in the opposite direction."""
    (x1, y1), (x2, y2) = (at[end] for end in cable.ends)
    far = hypot(x2 - x1, y2 - y1) or 1.0
    along, down = (x2 - x1) / far, (y2 - y1) / far
    side = BESIDE + 7 * place
    x1, y1, x2, y2 = x1 - side * down, y1 + side * along, x2 - side * down, y2 + side * along
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    head = " ".join(
        f"{x + 7 * (forward * along - across * down):.1f},{y + 7 * (forward * down + across * along):.1f}"
        for forward, across in ((1, 0), (-1, 0.7), (-1, -0.7))
    )
    ink = step(cable.load)
    return tag(
        "g",
        tag("title", described(cable, picture)),
        tag("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=f"link {ink}"),
        tag("polygon", points=head, class_=f"head {ink}"),
        class_=f"cable {CLASSES[cable.condition]}",
    )


def _cable(cable: Cable, picture: Picture, places: Mapping[int, tuple[float, float]], place: float) -> Element:
    """Return a cable as two lines, one per direction, coloured by load.

    ``place``: shift among cables of the same switches."""
    (x1, y1), (x2, y2) = (places[end] for end in cable.ends)
    far = hypot(x2 - x1, y2 - y1) or 1.0
    across, along = (y1 - y2) / far, (x2 - x1) / far

    def line(load: float | None, side: float) -> Element:
        by = 7 * place + side
        dx, dy = by * across, by * along
        bend = f"Q{(x1 + x2) / 2 + dx:.1f} {y1 - 60 + dy:.1f} " if y1 == y2 else "L"
        return tag(
            "path", d=f"M{x1 + dx:.1f} {y1 + dy:.1f}{bend}{x2 + dx:.1f} {y2 + dy:.1f}", class_=f"link {step(load)}"
        )

    ways = [line(cable.up_load, -1.7), line(cable.down_load, 1.7)]
    return tag("g", tag("title", described(cable, picture)), ways, class_=f"cable {CLASSES[cable.condition]}")


def _node(node: Node, places: _Places, crowded: bool) -> Element:
    x, y = places.at[node.dpid]
    room = places.room[node.dpid]
    width = min(92.0, 0.8 * room)
    hosts = counted(len(node.hosts), "host")
    words = [node.name, node.condition, *([f"{hosts}: {', '.join(node.hosts[:50])}"] if node.hosts else [])]
    parts: list[Child] = [tag("title", ", ".join(words))]
    parts.append(tag("rect", x=f"{x - width / 2:.1f}", y=f"{y - 13:.1f}", width=f"{width:.1f}", height=26, rx=4))
    if not crowded:
        name = short(node.name, max(3, int(width / 6.5)))
        parts.append(tag("text", name, x=f"{x:.1f}", y=f"{y + 4:.1f}", text_anchor="middle"))
        if node.hosts and places.hosts_below:
            under = hosts if room > 50 else str(len(node.hosts))
            parts.append(tag("text", under, x=f"{x:.1f}", y=f"{y + 25:.1f}", text_anchor="middle", class_="small"))
    elif room > 9:
        away = radians(outward := places.outward[node.dpid])
        flipped = not -90 <= outward < 90
        turn = outward - 180 if flipped else outward
        turned = f"translate({x + 17 * cos(away):.1f} {y + 17 * sin(away):.1f}) rotate({turn:.0f})"
        anchor = "end" if flipped else "start"
        parts.append(tag("text", short(node.name, 12), transform=turned, dy=4, text_anchor=anchor))
    return tag("g", parts, class_=f"node {CLASSES[node.condition]}")


# ---- matrices


def matrices(picture: Picture) -> list[tuple[str, Element]]:
    """Return a title and a matrix for each pair of adjacent tiers; empty when there are too many cables.

    In a matrix of circuits within a tier, rows are the switches that send, and columns are the switches that
    receive."""
    if len(picture.cables) > MOST_CELLS:
        return []
    return [(_title(tier, picture), _matrix(matrix, picture)) for tier, matrix in picture.matrices.items()]


def _title(tier: int, picture: Picture) -> str:
    if picture.without_tiers:
        return "Circuits from switches (rows) to switches (columns)"
    return f"Tier {tier} (rows) and tier {tier + 1} (columns)"


def _matrix(matrix: Matrix, picture: Picture) -> Element:
    """Return a matrix with a cell per pair of switches.

    The left half of a cell is the direction to the column's switch, the right half the direction to the row's
    switch. Cells of circuits have one direction only."""
    left, top, rows, columns = 80.0, 80.0, matrix.rows, matrix.columns
    width = min(28.0, max(5.0, (WIDTH - left) / len(columns)))
    high = min(width, 14.0)
    cells = [
        _cell(group, picture, left + column * width, top + row * high, width, high)
        for (column, row), group in matrix.cells.items()
    ]
    names: list[Child] = [
        tag("text", short(node.name, 12), x=left - 4, y=f"{top + (n + 0.8) * high:.1f}", text_anchor="end")
        for n, node in enumerate(rows)
    ]
    for n, node in enumerate(columns):
        turned = f"translate({left + (n + 0.5) * width + 4:.1f} {top - 4}) rotate(-90)"
        names.append(tag("text", short(node.name, 12), transform=turned))
    label = f"{len(rows)} x {len(columns)} switches"
    total = max(left + len(columns) * width + 4, WIDTH)
    return svg(total, top + len(rows) * high + 4, label, names, cells, class_="matrix")


def _cell(group: Sequence[Cable], picture: Picture, x: float, y: float, width: float, height: float) -> Element:
    """Return a cell: per direction the highest load of its cables, and a mark if a cable is down or drained."""
    worst = max(group, key=lambda cable: (cable.condition is Condition.DOWN, cable.condition is Condition.DRAINED))
    ways = 1 if all(cable.one_way for cable in group) else 2
    part, inner = (width - 1) / ways, height - 1

    def fullest(loads: Iterable[float | None]) -> float | None:
        return max((load for load in loads if load is not None and isfinite(load)), default=None)

    parts: list[Child] = [tag("title", "; ".join(described(cable, picture) for cable in group))]
    loads = (fullest(c.up_load for c in group), fullest(c.down_load for c in group))[:ways]
    for place, load in enumerate(loads):
        at = {"x": f"{x + place * part:.1f}", "y": f"{y:.1f}", "width": f"{part:.1f}", "height": f"{inner:.1f}"}
        parts.append(tag("rect", class_=f"half {step(load)}", **at))
    if worst.condition is not Condition.UP:
        corner = f"M{x:.1f} {y:.1f}l{width - 1:.1f} {inner:.1f}"
        crossed = f"m0 {-inner:.1f}l{1 - width:.1f} {inner:.1f}" if worst.condition is Condition.DOWN else ""
        parts.append(tag("path", d=corner + crossed, class_="mark"))
    return tag("g", parts, class_=f"cell {CLASSES[worst.condition]}")


# ---- slowdowns


def bars(values: Sequence[tuple[str, float]]) -> Element:
    """Return a horizontal bar per value, one below the other. Values that are infinite or no number are left out."""
    shown = [(name, value) for name, value in values if isfinite(value)]
    most = max((value for _, value in shown), default=1.0) or 1.0
    left, long = 210, 560
    rows = []
    for number, (name, value) in enumerate(shown):
        y = 4 + 22 * number
        rows += [
            tag("text", name, x=left - 8, y=y + 13, text_anchor="end"),
            tag("rect", x=left, y=y, width=f"{max(0.0, value) / most * long:.1f}", height=16, class_="bar l14"),
            tag("text", slowdown(value), x=f"{left + max(0.0, value) / most * long + 6:.1f}", y=y + 13),
        ]
    return svg(WIDTH, 8 + 22 * len(shown), "worst slowdowns", rows, class_="bars")


# ---- slots

CLASS_STEPS = {1: "l16", 2: "l10", 3: "l5"}
"""Style class of each class of priority."""


def timeline(found: Timeline) -> Element:
    """Return a lane per job of a link over one common period. A dashed lane is of a job that sends at any time."""
    left, long, high = 210, 800, 24
    rows: list[Child] = []
    for number, lane in enumerate(found.lanes):
        y, ink = 4 + high * number, CLASS_STEPS.get(lane.traffic_class, "l5")
        rows.append(tag("text", lane.title, x=left - 8, y=y + 14, text_anchor="end"))
        rows.append(
            tag("rect", x=left, y=y, width=long, height=18, class_="lane" if lane.slots else f"lane free {ink}")
        )
        for start_s, end_s in lane.slots:
            place, width = (each / found.period_s * long for each in (start_s, end_s - start_s))
            rows.append(tag("rect", x=f"{left + place:.1f}", y=y, width=f"{width:.1f}", height=18, class_=f"bar {ink}"))
        if not lane.slots:
            rows.append(tag("text", "at any time", x=left + long / 2, y=y + 13, text_anchor="middle"))
    bottom = 4 + high * len(found.lanes)
    for quarter in range(5 if found.period_s else 0):
        x, at_s = left + long * quarter / 4, found.period_s * quarter / 4
        rows.append(tag("text", f"{at_s:.3g} s", x=f"{x:.0f}", y=bottom + 12, text_anchor="middle"))
    return svg(WIDTH, bottom + 18, found.title, rows, class_="lanes")
