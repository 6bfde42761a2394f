"""The fabric as a chart: a graph, or a matrix when there are too many cables; and in words."""

from __future__ import annotations

from collections.abc import Collection

from signalbox.live.colours import Paper
from signalbox.live.crossing import LinkAt
from signalbox.live.picture import Picture, counted_cables
from signalbox.live.shown import percent
from signalbox.live.state import State, out_of_use
from signalbox.web import graph, matrix
from signalbox.web.options import Options


def fabric(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return a graph; when there are too many cables for it, the matrix of ``lower_tier`` and the next tier.

    ``route``: links to highlight. ``chosen``: name of a cable, or dpid of a switch (``0x101``), to mark."""
    if picture.as_matrix:
        return matrix.matrix(picture, lower_tier, paper, route, chosen)
    return graph.graph(picture, paper, route, chosen)


def rates(picture: Picture, lower_tier: int, paper: Paper, route: Collection[LinkAt], chosen: str = "") -> Options:
    """Return the part of ``fabric`` that changes with the loads, the highlighted links and the chosen part."""
    if picture.as_matrix:
        return matrix.rates(picture, lower_tier, route, chosen)
    return graph.rates(picture, paper, route, chosen)


def summary(state: State, picture: Picture) -> str:
    """Return the picture in words, for people who cannot see it."""
    full = [cable for cable in picture.cables if cable.load is not None]
    busiest = max(full, key=lambda cable: cable.load or 0.0, default=None)
    parts = [f"{len(picture.nodes)} switches, {counted_cables(picture.cables)}, {len(state.hosts)} hosts"]
    parts += out_of_use(state)
    if busiest:
        kind = "circuit" if busiest.one_way else "cable"
        parts.append(f"fullest {kind} {busiest.name} at {percent(busiest.load)}")
    return "; ".join(parts)
