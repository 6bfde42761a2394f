"""Cables between two tiers as a matrix: a row per lower switch, a column per higher switch.

For circuits within a tier, rows are the switches that send, and columns are the switches that receive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from signalbox.live.colours import Paper
from signalbox.live.crossing import LinkAt
from signalbox.live.picture import Cable, Condition, Matrix, Node, Picture
from signalbox.web.options import Options, common, on_route

_MARKS = {Condition.DRAINED: "D", Condition.DOWN: "✕"}


NOTHING = Matrix((), (), {})


def tier_names(picture: Picture) -> dict[int, str]:
    """Return names of the tiers that can be shown as matrices."""
    return {tier: f"tier {tier} and {tier + 1}" for tier in picture.matrices}


def matrix(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
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
    """Return the names of a cell's figures in tooltips, and which of them are shown."""
    encode = {"x": 0, "y": 1, "value": 2}
    if picture.without_tiers:
        names = ["to", "from", "load %", "up %", "down %"]
        return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2]}}
    names = ["upper", "lower", "load %", "up %", "down %"]
    return {"dimensions": names, "encode": {**encode, "tooltip": [1, 0, 2, 3, 4]}}


def _overlays(shown: Matrix, paper: Paper, route: Collection[LinkAt], chosen: str) -> list[Options]:
    """Return the series that are drawn over the cells: unknown loads, marks, the route and the chosen cable."""
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
    """Return the names of columns or rows; the name of the chosen switch is bold and large."""
    styles = {chosen: {"textStyle": {"fontWeight": "bold", "fontSize": 14}}}
    return [{"value": node.title, **styles.get(f"{node.dpid:#x}", {})} for node in nodes]


def cells(shown: Matrix) -> list[list[Any]]:
    """Return a cell per pair of switches: column, row, and three loads of its fullest cable in per cent.

    The loads are the higher load of the two directions, then the load of each direction; ``-`` is an unknown load."""
    of_pairs = ((x, y, fullest(cables)) for (x, y), cables in shown.cells.items())
    return [[x, y, _whole(each.load), _whole(each.up_load), _whole(each.down_load)] for x, y, each in of_pairs]


def fullest(cables: Iterable[Cable]) -> Cable:
    """Return the fullest cable, the first of equally full ones.

    A cell shows the loads of this cable, and a click on the cell chooses it."""
    return max(cables, key=lambda cable: -1.0 if cable.load is None else cable.load)


def _whole(load: float | None) -> int | str:
    return "-" if load is None else round(load * 100)


def _places(shown: Matrix, wanted: Callable[[Cable], bool]) -> list[tuple[int, int]]:
    """Return column and row of each cable for which ``wanted`` is true."""
    return [place for place, cables in shown.cells.items() for cable in cables if wanted(cable)]


def _marks(shown: Matrix) -> list[list[Any]]:
    return [
        [*place, _MARKS[cable.condition]]
        for place, cables in shown.cells.items()
        for cable in cables
        if cable.condition in _MARKS
    ]


def _unknown(shown: Matrix) -> list[tuple[int, int]]:
    """Return the positions of cables that are not measured, where a heat map draws nothing."""
    return [
        place
        for place, cables in shown.cells.items()
        if all(cable.load is None and cable.condition not in _MARKS for cable in cables)
    ]


def rates(picture: Picture, lower_tier: int, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return the part of ``matrix`` that changes with the loads, the highlighted links and the chosen part."""
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
