"""Charts of a fabric, its plans and its jobs, as option dictionaries of ECharts. Pure.

Text that comes from outside is only ever a value, never a key (the front end runs keys that begin with ``:`` as code),
and tooltips draw text, not HTML (``renderMode``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from signalbox.live.colours import Paper, colour
from signalbox.live.picture import Cable, Condition, Node, Picture
from signalbox.live.shown import percent, rate
from signalbox.live.state import Job, Levels, LinkAt, State

Options = dict[str, Any]

MOST_HOSTS = 64
"""That are drawn; of more only their number is."""
MOST_POINTS = 600
MOST_PAIRS = 20
FADED = 0.12
"""Opacity of cables that a highlighted job does not use."""
WIDTH, WIDTH_OF_ROUTE = 2.5, 5
PAPER = 1000, 640
"""Width and height of a graph, of which hosts have ``HOST_HEIGHT`` at the bottom."""
HOST_HEIGHT = 90
CURVE = 0.12
"""Of the second of several cables between two switches."""

_SYMBOLS = {
    Condition.UP: "circle",
    Condition.UNSYNCED: "emptyCircle",
    Condition.DRAINED: "diamond",
    Condition.DOWN: "triangle",
}
_MARKS = {Condition.DRAINED: "D", Condition.DOWN: "✕"}


def fabric(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt]) -> Options:
    """A graph, or where there are too many cables the matrix of a tier and the next. ``route``: links to highlight."""
    if picture.as_matrix:
        return _matrix(picture, lower_tier, paper, route)
    return {
        **_common(paper),
        "series": [
            {
                "id": "fabric",
                "type": "graph",
                "layout": "none",
                "left": 40,
                "right": 40,
                "top": 40,
                "bottom": 40,
                "preserveAspect": True,
                "edgeSymbol": ["none", "none"],
                "emphasis": {"focus": "none", "lineStyle": {"width": WIDTH_OF_ROUTE}},
                "data": [
                    *(_node(node, len(picture.tiers), paper) for node in picture.nodes.values()),
                    *_hosts(picture, paper),
                ],
                "links": [*edges(picture, paper, route), *_host_edges(picture, paper)],
            }
        ],
    }


def rates(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt]) -> Options:
    """What of ``fabric`` changes with loads and with what is highlighted."""
    if picture.as_matrix:
        shown = between(picture, lower_tier)
        return {
            "series": [
                {"id": "fabric", "data": cells(picture, shown)},
                {"id": "route", "data": _places(picture, [c for c in shown if on_route(c, route)])},
            ]
        }
    return {"series": [{"id": "fabric", "links": [*edges(picture, paper, route), *_host_edges(picture, paper)]}]}


def _common(paper: Paper) -> Options:
    return {
        "animation": False,
        "textStyle": {"color": paper.text},
        "tooltip": {
            "renderMode": "richText",
            "confine": True,
            "backgroundColor": paper.background,
            "borderColor": paper.faint,
            "textStyle": {"color": paper.text},
        },
    }


# ---- as a graph


def _switches(picture: Picture, paper: Paper) -> list[Options]:
    tiers = len(picture.tiers)
    return [_node(node, tiers, paper) for node in picture.nodes.values()]


def _node(node: Node, tiers: int, paper: Paper) -> Options:
    colours = {Condition.UP: paper.text, Condition.DRAINED: paper.drained, Condition.DOWN: paper.down}
    filled = colours.get(node.condition, paper.text)
    said = "" if node.condition is Condition.UP else f" ({node.condition.value})"
    return {
        "id": f"{node.dpid:#x}",
        "name": node.name,
        "x": node.x * PAPER[0],
        "y": (PAPER[1] - HOST_HEIGHT) * (1 - node.tier / max(tiers - 1, 1)),
        "symbol": _SYMBOLS[node.condition],
        "symbolSize": 18,
        "itemStyle": {"color": filled, "borderColor": filled},
        "label": {
            "show": True,
            "position": "top" if node.tier else "bottom",
            "distance": 8,
            "formatter": _shown(node.name + said),
            "color": paper.text,
        },
        "tooltip": {"formatter": _shown(f"{node.name}: {node.condition.value}, {_hosts_of(node)}")},
        "part": node.name,
        "dpid": f"{node.dpid:#x}",
    }


def _hosts_of(node: Node) -> str:
    more = f" and {len(node.hosts) - 8} more" if len(node.hosts) > 8 else ""
    return f"hosts {', '.join(node.hosts[:8])}{more}" if node.hosts else "no hosts found"


def edges(picture: Picture, paper: Paper, route: Collection[LinkAt]) -> list[Options]:
    """A cable each, in the order of ``picture.cables``."""
    seen: dict[tuple[int, int], int] = {}
    found = []
    for cable in picture.cables:
        number = seen[cable.ends] = seen.get(cable.ends, -1) + 1
        found.append(_edge(cable, CURVE * number, paper, route))
    return found


def _edge(cable: Cable, curve: float, paper: Paper, route: Collection[LinkAt]) -> Options:
    used = on_route(cable, route)
    line: Options = {
        "color": {Condition.DOWN: paper.down, Condition.DRAINED: paper.drained}.get(
            cable.condition, colour(cable.load, paper)
        ),
        "type": {Condition.DOWN: "dashed", Condition.DRAINED: "dotted"}.get(cable.condition, "solid"),
        "width": WIDTH_OF_ROUTE if used else WIDTH,
        "opacity": 1 if used or not route else FADED,
        "curveness": curve,
    }
    return {
        "source": f"{cable.ends[0]:#x}",
        "target": f"{cable.ends[1]:#x}",
        "value": None if cable.load is None else round(cable.load, 2),
        "lineStyle": line,
        "tooltip": {"formatter": _shown(said_of(cable))},
        "part": cable.name,
    }


def said_of(cable: Cable) -> str:
    """Its name and loads in words."""
    if cable.condition is Condition.DOWN:
        return f"{cable.name}: down"
    drained = ", drained" if cable.condition is Condition.DRAINED else ""
    return f"{cable.name}: up {percent(cable.up_load)}, down {percent(cable.down_load)}{drained}"


def _hosts(picture: Picture, paper: Paper) -> list[Options]:
    """Below their switch."""
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
            "tooltip": {"formatter": _shown(f"host {ip} at {node.name}")},
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
    leaves = [node for node in picture.nodes.values() if node.hosts and not node.tier]
    return leaves if sum(len(node.hosts) for node in leaves) <= MOST_HOSTS else []


# ---- as a matrix


def tier_names(picture: Picture) -> dict[int, str]:
    """Of the lower one, by what can be shown as a matrix."""
    found = sorted({picture.nodes[cable.ends[0]].tier for cable in picture.cables})
    return {tier: f"tier {tier} and {tier + 1}" for tier in found}


def between(picture: Picture, lower_tier: int) -> list[Cable]:
    return [cable for cable in picture.cables if picture.nodes[cable.ends[0]].tier == lower_tier]


def on_route(cable: Cable, route: Collection[LinkAt]) -> bool:
    return bool(route) and (cable.up in route or cable.down in route)


def _matrix(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt]) -> Options:
    shown = between(picture, lower_tier)
    lower, upper = axes(picture, shown)
    axis = {"type": "category", "triggerEvent": True, "axisTick": {"show": False}, "splitArea": {"show": False}}
    label = {"color": paper.text, "fontSize": 10}
    overlay = {"type": "scatter", "symbol": "rect", "z": 3}
    return {
        **_common(paper),
        "grid": {"left": 70, "right": 90, "top": 60, "bottom": 10},
        "xAxis": {**axis, "position": "top", "data": [n.name for n in upper], "axisLabel": {**label, "rotate": 60}},
        "yAxis": {**axis, "inverse": True, "data": [n.name for n in lower], "axisLabel": label},
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
            "outOfRange": {"color": [paper.unknown]},
        },
        "series": [
            {
                "id": "fabric",
                "type": "heatmap",
                "dimensions": ["upper", "lower", "load %", "up %", "down %"],
                "encode": {"x": 0, "y": 1, "value": 2, "tooltip": [1, 0, 2, 3, 4]},
                "data": cells(picture, shown),
                "emphasis": {"itemStyle": {"borderColor": paper.text, "borderWidth": 1}},
            },
            {
                "id": "marks",
                **overlay,
                "symbolSize": 0.1,
                "silent": True,
                "label": {"show": True, "formatter": "{@[2]}", "color": paper.down, "fontWeight": "bold"},
                "data": _marks(picture, shown),
            },
            {
                "id": "route",
                **overlay,
                "symbolSize": 9,
                "silent": True,
                "itemStyle": {"color": "transparent", "borderColor": paper.down, "borderWidth": 2},
                "data": _places(picture, [cable for cable in shown if on_route(cable, route)]),
            },
        ],
    }


def axes(picture: Picture, shown: Iterable[Cable]) -> tuple[list[Node], list[Node]]:
    """The lower and upper switches, each from left to right."""
    ends = [cable.ends for cable in shown]
    lower, upper = ({picture.nodes[pair[side]].dpid for pair in ends} for side in (0, 1))
    return _in_order(picture, lower), _in_order(picture, upper)


def _in_order(picture: Picture, dpids: Iterable[int]) -> list[Node]:
    return sorted((picture.nodes[dpid] for dpid in dpids), key=lambda node: (node.tier, node.x))


def cells(picture: Picture, shown: Sequence[Cable]) -> list[list[Any]]:
    """Per pair of switches: places on the axes, the load in per cent of the fullest of their cables, and of its two
    directions; ``-`` where it is unknown."""
    fullest: dict[tuple[int, int], list[Any]] = {}
    for cable, (x, y) in zip(shown, _places(picture, shown), strict=True):
        known = fullest.get((x, y))
        load = -1 if cable.load is None else round(cable.load * 100)
        if known is None or known[2] == "-" or load > known[2]:
            fullest[x, y] = [x, y, "-" if load < 0 else load, _whole(cable.up_load), _whole(cable.down_load)]
    return list(fullest.values())


def _whole(load: float | None) -> int | str:
    return "-" if load is None else round(load * 100)


def _places(picture: Picture, shown: Sequence[Cable]) -> list[tuple[int, int]]:
    """Column and row of each, in the matrix of their tier and the next."""
    tiers = {picture.nodes[cable.ends[0]].tier for cable in shown}
    lower, upper = axes(picture, [cable for tier in tiers for cable in between(picture, tier)])
    x, y = ({node.dpid: place for place, node in enumerate(nodes)} for nodes in (upper, lower))
    return [(x[cable.ends[1]], y[cable.ends[0]]) for cable in shown]


def _marks(picture: Picture, shown: Sequence[Cable]) -> list[list[Any]]:
    marked = [cable for cable in shown if cable.condition in _MARKS]
    places = _places(picture, marked)
    return [[*place, _MARKS[cable.condition]] for place, cable in zip(places, marked, strict=True)]


# ---- beside it


def cables_of(picture: Picture, dpid: int, paper: Paper) -> Options:
    """Loads of a switch's cables, both directions."""
    shown = picture.at(dpid)
    node = picture.nodes[dpid]

    def bars(loads: Iterable[float | None]) -> list[Any]:
        return ["-" if load is None else round(load * 100) for load in loads]

    def other(cable: Cable) -> str:
        end = picture.nodes[cable.ends[0] if cable.ends[1] == dpid else cable.ends[1]].name
        return end if cable.condition is Condition.UP else f"{end} ({cable.condition.value})"

    return {
        **_common(paper),
        "title": {
            "left": 0,
            "text": f"Cables of {node.name}, load in %",
            "textStyle": {"color": paper.text, "fontSize": 13},
        },
        "legend": {"top": 0, "right": 0, "textStyle": {"color": paper.text}},
        "grid": {"left": 40, "right": 10, "top": 40, "bottom": 70},
        "xAxis": {
            "type": "category",
            "data": [other(cable) for cable in shown],
            "axisLabel": {"color": paper.text, "rotate": 45, "fontSize": 10},
        },
        "yAxis": {"type": "value", "min": 0, "max": 100, "axisLabel": {"color": paper.text}},
        "series": [
            {
                "id": "up",
                "name": "towards the higher tier",
                "type": "bar",
                "data": bars(cable.up_load for cable in shown),
                "itemStyle": {"color": paper.scale[3]},
            },
            {
                "id": "down",
                "name": "towards the lower tier",
                "type": "bar",
                "data": bars(cable.down_load for cable in shown),
                "itemStyle": {"color": paper.scale[1], "borderColor": paper.text, "borderType": "dashed"},
            },
        ],
    }


def levels(found: Sequence[Levels], paper: Paper) -> Options:
    """Of plans, of ECMP and the bound over time."""
    shown = list(found)[-MOST_POINTS:]

    def line(name: str, values: Iterable[float | None], kind: str, ink: str) -> Options:
        points = [[round(each.unix_s * 1000), value] for each, value in zip(shown, values, strict=True)]
        return {
            "id": name,
            "name": name,
            "type": "line",
            "step": "end",
            "symbolSize": 5,
            "data": points,
            "lineStyle": {"type": kind, "color": ink, "width": 2},
            "itemStyle": {"color": ink},
        }

    return {
        **_common(paper),
        "title": {
            "left": 0,
            "text": "Worst level: plan, ECMP, bound",
            "textStyle": {"color": paper.text, "fontSize": 13},
        },
        "legend": {"top": 26, "left": 0, "textStyle": {"color": paper.text}},
        "grid": {"left": 45, "right": 15, "top": 62, "bottom": 25},
        "xAxis": {"type": "time", "axisLabel": {"color": paper.text}},
        "yAxis": {"type": "value", "scale": True, "axisLabel": {"color": paper.text}},
        "series": [
            line("ECMP", (each.ecmp for each in shown), "dotted", paper.down),
            line("plan", (each.plan for each in shown), "solid", paper.text),
            line("bound", (each.bound for each in shown), "dashed", paper.faint),
        ],
    }


def demand(job: Job, paper: Paper) -> Options:
    """Bytes per iteration of its pairs, declared and measured; those that send most. Without measured bytes (the job
    reports no iterations) the rates are in the names."""
    pairs = sorted(job.demand.pairs, key=lambda pair: -max(pair.declared_bytes, pair.measured_bytes))[:MOST_PAIRS]
    return {
        **_common(paper),
        "title": {
            "left": 0,
            "text": _title(job),
            "textStyle": {"color": paper.text, "fontSize": 13, "width": 480, "overflow": "truncate"},
        },
        "legend": {"top": 26, "left": 0, "textStyle": {"color": paper.text}},
        "grid": {"left": 50, "right": 15, "top": 62, "bottom": 95},
        "xAxis": {
            "type": "category",
            "data": [f"{pair.src} to {pair.dst}, {rate(pair.measured_bps)}" for pair in pairs],
            "axisLabel": {"color": paper.text, "rotate": 45, "fontSize": 9, "width": 110, "overflow": "truncate"},
        },
        "yAxis": {"type": "value", "name": "MB", "axisLabel": {"color": paper.text}},
        "series": [
            {
                "id": "declared",
                "name": "declared",
                "type": "bar",
                "data": [round(pair.declared_bytes / 1e6, 3) for pair in pairs],
                "itemStyle": {"color": paper.scale[3]},
            },
            {
                "id": "measured",
                "name": "measured",
                "type": "bar",
                "data": [
                    round(pair.measured_bytes / 1e6, 3) if pair.HasField("measured_bytes") else "-" for pair in pairs
                ],
                "itemStyle": {"color": paper.scale[1], "borderColor": paper.text, "borderType": "dashed"},
            },
        ],
    }


def _title(job: Job) -> str:
    left = len(job.demand.pairs) - MOST_PAIRS
    return f"{job.spec.job_id}: MB per iteration, declared and measured" + (
        f" ({MOST_PAIRS} of {len(job.demand.pairs)} pairs)" if left > 0 else ""
    )


def _shown(text: str) -> str:
    """Text in a place where ECharts fills in templates: ``{`` would begin one."""
    return text.replace("{", "(").replace("}", ")")


def summary(state: State, picture: Picture) -> str:
    """The picture in words, for those who do not see it."""
    full = [cable for cable in picture.cables if cable.load is not None]
    busiest = max(full, key=lambda cable: cable.load or 0.0, default=None)
    conditions = [node.condition for node in picture.nodes.values()] + [cable.condition for cable in picture.cables]
    down, drained = conditions.count(Condition.DOWN), conditions.count(Condition.DRAINED)
    parts = [f"{len(picture.nodes)} switches, {len(picture.cables)} cables, {len(state.hosts)} hosts"]
    parts += [f"{down} down"] * (down > 0) + [f"{drained} drained"] * (drained > 0)
    parts += [f"fullest cable {busiest.name} at {percent(busiest.load)}"] if busiest else []
    return "; ".join(parts)
