"""The cables between two tiers as a matrix: a row per lower switch, a column per higher one. Circuits within a tier: a
row per switch that sends, a column per one that receives. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from signalbox.live.colours import Paper
from signalbox.live.crossing import LinkAt
from signalbox.live.picture import Cable, Condition, Node, Picture
from signalbox.web.options import Options, common, on_route

_MARKS = {Condition.DRAINED: "D", Condition.DOWN: "✕"}


def tier_names(picture: Picture) -> dict[int, str]:
    """Of the lower one, by what can be shown as a matrix."""
    found = sorted({picture.nodes[cable.ends[0]].tier for cable in picture.cables})
    return {tier: f"tier {tier} and {tier + 1}" for tier in found}


def between(picture: Picture, lower_tier: int) -> list[Cable]:
    return [cable for cable in picture.cables if picture.nodes[cable.ends[0]].tier == lower_tier]


def matrix(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    shown = between(picture, lower_tier)
    found = cells(picture, shown)
    columns, rows = _names(picture, shown, chosen)
    axis = {"type": "category", "triggerEvent": True, "axisTick": {"show": False}, "splitArea": {"show": False}}
    label = {"color": paper.text, "fontSize": 10}
    return {
        **common(paper),
        "grid": {"left": 70, "right": 90, "top": 60, "bottom": 10},
        "xAxis": {**axis, "position": "top", "data": columns, "axisLabel": {**label, "rotate": 60}},
        "yAxis": {**axis, "inverse": True, "data": rows, "axisLabel": label},
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
                "data": found,
                "emphasis": {"itemStyle": {"borderColor": paper.text, "borderWidth": 1}},
            },
            *_overlays(picture, shown, found, paper, route, chosen),
        ],
    }


def _dimensions(picture: Picture) -> Options:
    """What a tooltip calls the figures of a cell, and which of them it says."""
    encode = {"x": 0, "y": 1, "value": 2}
    if picture.without_tiers:
        names = ["to", "from", "load %", "up %", "down %"]
        return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2]}}
    names = ["upper", "lower", "load %", "up %", "down %"]
    return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2, 3, 4]}}


def _overlays(
    picture: Picture,
    shown: Sequence[Cable],
    found: Iterable[Sequence[Any]],
    paper: Paper,
    route: Collection[LinkAt],
    chosen: str,
) -> list[Options]:
    """What is drawn upon the cells."""
    overlay = {"type": "scatter", "symbol": "rect", "z": 3}
    return [
        {
            "id": "unknown",
            **overlay,
            "symbolSize": 7,
            "silent": True,
            "itemStyle": {"color": paper.unknown},
            "data": _unknown(shown, found, picture),
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
        {
            "id": "chosen",
            **overlay,
            "symbolSize": 15,
            "silent": True,
            "itemStyle": {"color": "transparent", "borderColor": paper.text, "borderWidth": 3},
            "data": _places(picture, [cable for cable in shown if cable.part == chosen]),
        },
    ]


def _names(picture: Picture, shown: Iterable[Cable], chosen: str) -> tuple[list[Options], list[Options]]:
    """Of columns and rows; that of the chosen switch is bold and large."""
    lower, upper = axes(picture, shown)
    styles = {chosen: {"textStyle": {"fontWeight": "bold", "fontSize": 14}}}
    columns, rows = (
        [{"value": node.title, **styles.get(f"{node.dpid:#x}", {})} for node in nodes] for nodes in (upper, lower)
    )
    return columns, rows


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
    pairs: dict[tuple[int, int], list[Cable]] = {}
    for cable, place in zip(shown, _places(picture, shown), strict=True):
        pairs.setdefault(place, []).append(cable)
    of_pairs = ((x, y, fullest(cables)) for (x, y), cables in pairs.items())
    return [[x, y, _whole(each.load), _whole(each.up_load), _whole(each.down_load)] for x, y, each in of_pairs]


def fullest(cables: Iterable[Cable]) -> Cable:
    """Whose loads a cell has, and which a click on it chooses; of equally full ones the first."""
    return max(cables, key=lambda cable: -1.0 if cable.load is None else cable.load)


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


def _unknown(shown: Sequence[Cable], found: Iterable[Sequence[Any]], picture: Picture) -> list[list[int]]:
    """Places of cables that are not measured. A heat map draws nothing there, as where there is no cable."""
    marked = {tuple(mark[:2]) for mark in _marks(picture, shown)}
    return [[x, y] for x, y, load, *_ in found if load == "-" and (x, y) not in marked]


def rates(picture: Picture, lower_tier: int, route: Collection[LinkAt], chosen: str = "") -> Options:
    """What of ``matrix`` changes with loads and with what is highlighted or marked."""
    shown = between(picture, lower_tier)
    found = cells(picture, shown)
    columns, rows = _names(picture, shown, chosen)
    return {
        "xAxis": {"data": columns},
        "yAxis": {"data": rows},
        "series": [
            {"id": "fabric", "data": found},
            {"id": "unknown", "data": _unknown(shown, found, picture)},
            {"id": "route", "data": _places(picture, [cable for cable in shown if on_route(cable, route)])},
            {"id": "chosen", "data": _places(picture, [cable for cable in shown if cable.part == chosen])},
        ],
    }
