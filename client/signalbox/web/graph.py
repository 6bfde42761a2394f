"""A fabric as a graph: switches in tiers, a line per cable, and hosts below their switch.

When only circuits connect switches, the switches form a circle, and each circuit is an arrow."""

from __future__ import annotations

from collections.abc import Collection

from signalbox.live.colours import Paper, colour
from signalbox.live.crossing import LinkAt
from signalbox.live.picture import Cable, Condition, Node, Picture, described
from signalbox.web.options import Options, common, on_route, shown

MOST_HOSTS = 64
"""Largest number of hosts that are drawn; with more hosts, none is drawn."""
FADED = 0.25
"""Opacity of cables that a highlighted job does not use; cables that are down or drained stay opaque."""
EMPTY, FULL, OF_ROUTE, CHOSEN = 1.5, 4.5, 6, 9
"""Widths in pixels of an empty and a full cable, of a highlighted job's cables, and of the chosen cable."""
SWITCH, CHOSEN_SWITCH = 18, 30
"""Sizes in pixels of the symbols of a switch and of the chosen switch."""
PAPER = 1000, 640
"""Width and height of a graph in its own units; the lowest ``HOST_HEIGHT`` units are for hosts."""
HOST_HEIGHT = 90
CURVE = 0.12
"""Curvature of the second of several cables between two switches, and of a circuit beside its opposite."""
SIDEWAYS = 0.2
"""Horizontal distance from a circle's middle, in diameters, beyond which names are drawn beside their switches.

There the names do not overlap."""
ARROW = 9
"""Size of a circuit's arrow head."""

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
    """Return the legend of colours and loads."""
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


def rates(picture: Picture, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return the part of ``graph`` that changes with the loads, the highlighted links and the chosen part."""
    return {"series": [{"id": "fabric", **_parts(picture, paper, route, chosen)}]}


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
    x, y, side = _place(node, picture)
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
            "formatter": shown(node.title + said),
            "fontWeight": "bold" if marked else "normal",
            "color": paper.text,
        },
        "tooltip": {"formatter": shown(f"{node.title}: {node.condition.value}, {_hosts_of(node)}")},
        "part": node.part,
        "dpid": f"{node.dpid:#x}",
    }


def _place(node: Node, picture: Picture) -> tuple[float, float, str]:
    """Return the position of a switch, and the side of the switch where its name is drawn."""
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
    """Return an edge per cable or circuit, in the order of ``picture.cables``."""
    circuits = {cable.ends for cable in picture.cables if cable.one_way}
    seen = {ends: 0 for ends in circuits if ends[::-1] in circuits}
    found = []
    for cable in picture.cables:
        number = seen[cable.ends] = seen.get(cable.ends, -1) + 1
        edge = _edge(cable, CURVE * number, paper, route, chosen)
        found.append({**edge, "tooltip": {"formatter": shown(described(cable, picture))}})
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
    """Return the width of a cable, which grows with its load so that full cables stand out on both backgrounds."""
    load = min(cable.load or 0.0, 1.0) if cable.condition is Condition.UP else 1.0
    return round(EMPTY + (FULL - EMPTY) * load, 1)


def _hosts(picture: Picture, paper: Paper) -> list[Options]:
    """Return the hosts, placed below their switch."""
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
            "tooltip": {"formatter": shown(f"host {ip} at {node.title}")},
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
    """Return the switches whose hosts are drawn; none on a circle, where a server's tooltip names its host."""
    leaves = [node for node in picture.nodes.values() if node.hosts and not node.tier and not picture.without_tiers]
    return leaves if sum(len(node.hosts) for node in leaves) <= MOST_HOSTS else []
