"""The fabric as a chart: a graph, or where there are too many cables a matrix; and in words. Pure."""

from __future__ import annotations

from collections.abc import Collection

from signalbox.live.colours import Paper
from signalbox.live.picture import Condition, Picture
from signalbox.live.shown import percent
from signalbox.live.state import LinkAt, State
from signalbox.web import graph, matrix
from signalbox.web.options import Options


def fabric(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt]) -> Options:
    """A graph, or where there are too many cables the matrix of a tier and the next. ``route``: links to highlight."""
    if picture.as_matrix:
        return matrix.matrix(picture, lower_tier, paper, route)
    return graph.graph(picture, paper, route)


def rates(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt]) -> Options:
    """What of ``fabric`` changes with loads and with what is highlighted."""
    if picture.as_matrix:
        return matrix.rates(picture, lower_tier, route)
    return graph.rates(picture, paper, route)


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
