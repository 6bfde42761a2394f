"""The fabric as a chart: a graph, or a matrix when there are too many cables.

A graph has switches in tiers, a line per cable, and hosts below their switch. When only circuits connect switches, the
switches form a circle, and each circuit is an arrow. A matrix has a row per switch of the lower tier (or that sends),
and a column per switch of the higher tier (or that receives).

Text from outside is only ever a value, never a key, because the front end runs keys that begin with ``:`` as code.
Tooltips draw text, not HTML (``renderMode``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from signalbox.live.jobs import LinkAt
from signalbox.live.picture import Cable, Condition, Matrix, Node, Paper, Picture, colour, described

Options = dict[str, Any]


def common(paper: Paper) -> Options:
    return {
        "animation": False,
        "useUTC": True,  # like all other times of the page
        "textStyle": {"color": paper.text},
        "tooltip": {
            "renderMode": "richText",
            "confine": True,
            "backgroundColor": paper.background,
            "borderColor": paper.faint,
            "textStyle": {"color": paper.text},
        },
    }


def value_axis(paper: Paper) -> Options:
    """Return an axis for values. The grid lines of the axis are so faint on the background that they hide nothing."""
    return {"type": "value", "axisLabel": {"color": paper.text}, "splitLine": {"lineStyle": {"color": paper.unknown}}}


def plain(text: str) -> str:
    """Return the text without braces, which ECharts would interpret as a template."""
    return text.replace("{", "(").replace("}", ")")


def on_route(cable: Cable, route: Collection[LinkAt]) -> bool:
    return bool(route) and (cable.up in route or cable.down in route)


def fabric(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return a chart of the fabric: a graph, or a matrix if there are too many cables.

    - ``lower_tier``: the matrix has the cables between this tier and the next
    - ``route``: links to highlight
    - ``chosen``: name of the chosen cable, or dpid of the chosen switch (``0x101``)"""
    if picture.as_matrix:
        return _matrix(picture, lower_tier, paper, route, chosen)
    return graph(picture, paper, route, chosen)


def rates(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return the part of ``fabric`` that depends on the loads, the highlighted links and the chosen part."""
    if picture.as_matrix:
        return _matrix_rates(picture, lower_tier, route, chosen)
    return {"series": [{"id": "fabric", **_parts(picture, paper, route, chosen)}]}


MOST_HOSTS = 64
"""Largest number of hosts that are drawn. If there are more, no host is drawn."""
FADED = 0.25
"""Opacity of cables that the highlighted job does not use. Cables that are down or drained stay opaque."""
EMPTY, FULL, OF_ROUTE, CHOSEN = 1.5, 4.5, 6, 9
"""Widths in pixels of an empty cable, a full cable, a cable of the highlighted job, and the chosen cable."""
SWITCH, CHOSEN_SWITCH = 18, 30
"""Sizes in pixels of the symbol of a switch, and of the chosen switch."""
PAPER = 1000, 640
"""Width and height of a graph in its own units. The lowest ``HOST_HEIGHT`` units are for hosts."""
HOST_HEIGHT = 90
CURVE = 0.12
"""Curvature of the second cable between two switches, and of a circuit for which there is an opposite circuit."""
SIDEWAYS = 0.2
"""Distance that decides where the name of a switch on the circle is drawn, in diameters of the circle.

The distance is measured from the vertical line through the circle's middle. At a larger distance the name is beside the
switch, and at a smaller one above or below it, so that names do not overlap."""
ARROW = 9
"""Size of the arrow head of a circuit, in pixels."""

_SYMBOLS = {
    Condition.UP: "circle",
    Condition.UNSYNCED: "emptyCircle",
    Condition.DRAINED: "diamond",
    Condition.DOWN: "triangle",
}


def graph(picture: Picture, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    return {
        **common(paper),
        "graphic": [_scale(paper)],
        "series": [
            {
                "id": "fabric",
                "type": "graph",
                "layout": "none",
                "left": 40,
                "right": 40,
                "top": 60,
                "bottom": 40,
                "preserveAspect": True,
                "edgeSymbol": ["none", "none"],
                "emphasis": {"focus": "none", "lineStyle": {"width": OF_ROUTE}},
                **_parts(picture, paper, route, chosen),
            }
        ],
    }


def _scale(paper: Paper) -> Options:
    stops = [{"offset": place / (len(paper.scale) - 1), "color": ink} for place, ink in enumerate(paper.scale)]
    filled = {"type": "linear", "x": 0, "y": 0, "x2": 1, "y2": 0, "colorStops": stops}
    return {
        "type": "group",
        "right": 10,
        "top": 5,
        "silent": True,
        "children": [
            {"type": "text", "x": 0, "style": {"text": "load 0 %", "fill": paper.text}},
            {"type": "rect", "shape": {"x": 56, "y": 0, "width": 90, "height": 11}, "style": {"fill": filled}},
            {"type": "text", "x": 152, "style": {"text": "100 %", "fill": paper.text}},
        ],
    }


def _parts(picture: Picture, paper: Paper, route: Collection[LinkAt], chosen: str) -> Options:
    switches = (_node(node, picture, paper, chosen) for node in picture.nodes.values())
    return {
        "data": [*switches, *_hosts(picture, paper)],
        "links": [*edges(picture, paper, route, chosen), *_host_edges(picture, paper)],
    }


def _node(node: Node, picture: Picture, paper: Paper, chosen: str) -> Options:
    colours = {Condition.UP: paper.text, Condition.DRAINED: paper.drained, Condition.DOWN: paper.down}
    filled = colours.get(node.condition, paper.text)
    marked = chosen == f"{node.dpid:#x}"
    said = "" if node.condition is Condition.UP else f" ({node.condition.value})"
    x, y, side = _position(node, picture)
    return {
        "id": f"{node.dpid:#x}",
        "name": node.title,
        "x": x,
        "y": y,
        "symbol": _SYMBOLS[node.condition],
        "symbolSize": CHOSEN_SWITCH if marked else SWITCH,
        "itemStyle": {"color": filled, "borderColor": filled},
        "label": {
            "show": True,
            "position": side,
            "distance": 8,
            "formatter": plain(node.title + said),
            "fontWeight": "bold" if marked else "normal",
            "color": paper.text,
        },
        "tooltip": {"formatter": plain(f"{node.title}: {node.condition.value}, {_hosts_of(node)}")},
        "part": node.part,
        "dpid": f"{node.dpid:#x}",
    }


def _position(node: Node, picture: Picture) -> tuple[float, float, str]:
    """Return x and y of a switch, and the side of the switch at which its name is drawn."""
    if not picture.without_tiers:
        highest = max(len(picture.tiers) - 1, 1)
        y = (PAPER[1] - HOST_HEIGHT) * (1 - node.tier / highest)
        return node.x * PAPER[0], y, "top" if node.tier else "bottom"
    across, down = picture.on_circle(node)
    left = (PAPER[0] - PAPER[1]) / 2
    side = ("left" if across < 0.5 else "right") if abs(across - 0.5) > SIDEWAYS else "top" if down < 0.5 else "bottom"
    return left + across * PAPER[1], down * PAPER[1], side


def _hosts_of(node: Node) -> str:
    more = f" and {len(node.hosts) - 8} more" if len(node.hosts) > 8 else ""
    return f"hosts {', '.join(node.hosts[:8])}{more}" if node.hosts else "no hosts found"


def edges(picture: Picture, paper: Paper, route: Collection[LinkAt], chosen: str) -> list[Options]:
    """Return an edge of the graph per cable or circuit, in the order of ``picture.cables``."""
    circuits = {cable.ends for cable in picture.cables if cable.one_way}
    seen = {ends: 0 for ends in circuits if ends[::-1] in circuits}
    found = []
    for cable in picture.cables:
        number = seen[cable.ends] = seen.get(cable.ends, -1) + 1
        edge = _edge(cable, CURVE * number, paper, route, chosen)
        found.append({**edge, "tooltip": {"formatter": plain(described(cable, picture))}})
    return found


def _edge(cable: Cable, curve: float, paper: Paper, route: Collection[LinkAt], chosen: str) -> Options:
    marked = cable.part == chosen
    used = marked or on_route(cable, route)
    line: Options = {
        "color": {Condition.DOWN: paper.down, Condition.DRAINED: paper.drained}.get(
            cable.condition, colour(cable.load, paper)
        ),
        "type": {Condition.DOWN: "dashed", Condition.DRAINED: "dotted"}.get(cable.condition, "solid"),
        "width": CHOSEN if marked else OF_ROUTE if used else _width(cable),
        "opacity": FADED if route and not used and cable.condition is Condition.UP else 1,
        "curveness": curve,
        "shadowColor": paper.faint,  # an empty link is nearly as bright as the background
        "shadowBlur": 3,
    }
    head = {"symbol": ["none", "arrow"], "symbolSize": ARROW} if cable.one_way else {}
    return {
        **head,
        "source": f"{cable.ends[0]:#x}",
        "target": f"{cable.ends[1]:#x}",
        "value": None if cable.load is None else round(cable.load, 2),
        "lineStyle": line,
        "part": cable.part,
    }


def _width(cable: Cable) -> float:
    load = min(cable.load or 0.0, 1.0) if cable.condition is Condition.UP else 1.0
    return round(EMPTY + (FULL - EMPTY) * load, 1)


def _hosts(picture: Picture, paper: Paper) -> list[Options]:
    leaves = _drawn_hosts(picture)
    width = PAPER[0] / max(len(leaves), 1)
    return [
        {
            "id": ip,
            "name": ip,
            "x": node.x * PAPER[0] + width * 0.8 * ((place + 0.5) / len(node.hosts) - 0.5),
            "y": PAPER[1],
            "symbol": "rect",
            "symbolSize": 7,
            "itemStyle": {"color": paper.faint},
            "label": {"show": False},
            "tooltip": {"formatter": plain(f"host {ip} at {node.title}")},
        }
        for node in leaves
        for place, ip in enumerate(node.hosts)
    ]


def _host_edges(picture: Picture, paper: Paper) -> list[Options]:
    line = {"color": paper.unknown, "width": 1, "type": "solid", "opacity": 0.7}
    return [
        {"source": ip, "target": f"{node.dpid:#x}", "lineStyle": line, "tooltip": {"show": False}}
        for node in _drawn_hosts(picture)
        for ip in node.hosts
    ]


def _drawn_hosts(picture: Picture) -> list[Node]:
    """Return the switches whose hosts are drawn.

    On a circle no hosts are drawn; the tooltip of a server names its host."""
    leaves = [node for node in picture.nodes.values() if node.hosts and not node.tier and not picture.without_tiers]
    return leaves if sum(len(node.hosts) for node in leaves) <= MOST_HOSTS else []


_MARKS = {Condition.DRAINED: "D", Condition.DOWN: "✕"}
NOTHING = Matrix((), (), {})


def tier_names(picture: Picture) -> dict[int, str]:
    """Return the names of the matrices, by lower tier."""
    return {tier: f"tier {tier} and {tier + 1}" for tier in picture.matrices}


def _matrix(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    shown = picture.matrices.get(lower_tier, NOTHING)
    axis = {"type": "category", "triggerEvent": True, "axisTick": {"show": False}, "splitArea": {"show": False}}
    label = {"color": paper.text, "fontSize": 10}
    return {
        **common(paper),
        "grid": {"left": 70, "right": 90, "top": 60, "bottom": 10},
        "xAxis": {
            **axis,
            "position": "top",
            "data": _names(shown.columns, chosen),
            "axisLabel": {**label, "rotate": 60},
        },
        "yAxis": {**axis, "inverse": True, "data": _names(shown.rows, chosen), "axisLabel": label},
        "visualMap": {
            "seriesIndex": 0,
            "dimension": 2,
            "min": 0,
            "max": 100,
            "calculable": False,
            "orient": "vertical",
            "right": 0,
            "top": "middle",
            "text": ["100 %", "0 %"],
            "textStyle": {"color": paper.text},
            "inRange": {"color": list(paper.scale)},
        },
        "series": [
            {
                "id": "fabric",
                "type": "heatmap",
                **_dimensions(picture),
                "data": cells(shown),
                "emphasis": {"itemStyle": {"borderColor": paper.text, "borderWidth": 1}},
            },
            *_overlays(shown, paper, route, chosen),
        ],
    }


def _dimensions(picture: Picture) -> Options:
    """Return names for the numbers in a cell of a matrix, and the choice of numbers that a tooltip shows."""
    encode = {"x": 0, "y": 1, "value": 2}
    if picture.without_tiers:
        names = ["to", "from", "load %", "up %", "down %"]
        return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2]}}
    names = ["upper", "lower", "load %", "up %", "down %"]
    return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2, 3, 4]}}


def _overlays(shown: Matrix, paper: Paper, route: Collection[LinkAt], chosen: str) -> list[Options]:
    """Return the marks over the cells of a matrix, as series of the chart.

    Marks show unknown loads, cables that are down or drained, highlighted links, and the chosen cable."""
    overlay = {"type": "scatter", "symbol": "rect", "z": 3, "silent": True}
    return [
        {
            "id": "unknown",
            **overlay,
            "symbolSize": 7,
            "itemStyle": {"color": paper.unknown},
            "data": _unknown(shown),
        },
        {
            "id": "marks",
            **overlay,
            "symbolSize": 0.1,
            "label": {"show": True, "formatter": "{@[2]}", "color": paper.down, "fontWeight": "bold"},
            "data": _marks(shown),
        },
        {
            "id": "route",
            **overlay,
            "symbolSize": 9,
            "itemStyle": {"color": "transparent", "borderColor": paper.down, "borderWidth": 2},
            "data": _places(shown, lambda cable: on_route(cable, route)),
        },
        {
            "id": "chosen",
            **overlay,
            "symbolSize": 15,
            "itemStyle": {"color": "transparent", "borderColor": paper.text, "borderWidth": 3},
            "data": _places(shown, lambda cable: cable.part == chosen),
        },
    ]


def _names(nodes: Iterable[Node], chosen: str) -> list[Options]:
    styles = {chosen: {"textStyle": {"fontWeight": "bold", "fontSize": 14}}}
    return [{"value": node.title, **styles.get(f"{node.dpid:#x}", {})} for node in nodes]


def cells(shown: Matrix) -> list[list[Any]]:
    """Return the cells of a matrix: column, row, and three loads of the cell's fullest cable in per cent.

    The first load is the larger one of the two directions; then follow the loads of each direction. ``-`` is an unknown
    load."""
    of_pairs = ((x, y, fullest(cables)) for (x, y), cables in shown.cells.items())
    return [[x, y, _whole(each.load), _whole(each.up_load), _whole(each.down_load)] for x, y, each in of_pairs]


def fullest(cables: Iterable[Cable]) -> Cable:
    """Return the cable with the highest load, the first one if several have it.

    A cell shows the loads of this cable, and a click on the cell chooses this cable."""
    return max(cables, key=lambda cable: -1.0 if cable.load is None else cable.load)


def _whole(load: float | None) -> int | str:
    return "-" if load is None else round(load * 100)


def _places(shown: Matrix, wanted: Callable[[Cable], bool]) -> list[tuple[int, int]]:
    return [place for place, cables in shown.cells.items() for cable in cables if wanted(cable)]


def _marks(shown: Matrix) -> list[list[Any]]:
    return [
        [*place, _MARKS[cable.condition]]
        for place, cables in shown.cells.items()
        for cable in cables
        if cable.condition in _MARKS
    ]


def _unknown(shown: Matrix) -> list[tuple[int, int]]:
    """Return column and row of each cell whose loads are unknown: a heat map draws nothing there."""
    return [
        place
        for place, cables in shown.cells.items()
        if all(cable.load is None and cable.condition not in _MARKS for cable in cables)
    ]


def _matrix_rates(picture: Picture, lower_tier: int, route: Collection[LinkAt], chosen: str = "") -> Options:
    shown = picture.matrices.get(lower_tier, NOTHING)
    return {
        "xAxis": {"data": _names(shown.columns, chosen)},
        "yAxis": {"data": _names(shown.rows, chosen)},
        "series": [
            {"id": "fabric", "data": cells(shown)},
            {"id": "unknown", "data": _unknown(shown)},
            {"id": "route", "data": _places(shown, lambda cable: on_route(cable, route))},
            {"id": "chosen", "data": _places(shown, lambda cable: cable.part == chosen)},
        ],
    }
