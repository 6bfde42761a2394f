"""Colours of loads and conditions, on white and on black backgrounds.

Loads have five steps of cividis (Nuñez, Anderton, Renslow: Optimizing colormaps with consideration for color vision
deficiency, PLOS ONE 2018), which people with and without colour vision deficiency read alike. Parts that are down or
drained differ in more than colour wherever they are drawn: by dashes, or by a word."""

from __future__ import annotations

from dataclasses import dataclass

SCALE = ("#00224e", "#434e6c", "#7d7c78", "#bcae6c", "#fee838")
"""Colours from load 0 to 1, equally spaced; in between they are mixed linearly."""


@dataclass(frozen=True, slots=True)
class Paper:
    """Colours that depend on the background."""

    background: str
    text: str
    faint: str
    unknown: str
    """Colour of a load that is not measured."""
    down: str
    drained: str
    scale: tuple[str, ...]


LIGHT = Paper("#ffffff", "#1b1f24", "#6b7280", "#c4c8ce", "#c4320a", "#6d4aa2", SCALE[::-1])
DARK = Paper("#14171c", "#e6e8eb", "#9aa2ad", "#4a4f57", "#ff7a4d", "#b79be8", SCALE)
"""Palettes in which an empty link is nearly as bright as the background, and a full link is not."""


def colour(load: float | None, paper: Paper) -> str:
    """Return the colour of a load as ``#rrggbb``. Loads are limited to 0 to 1; None is unknown."""
    if load is None:
        return paper.unknown
    place = min(max(load, 0.0), 1.0) * (len(paper.scale) - 1)
    step = min(int(place), len(paper.scale) - 2)
    mixed = (
        round(int(low, 16) + (int(high, 16) - int(low, 16)) * (place - step))
        for low, high in zip(_parts(paper.scale[step]), _parts(paper.scale[step + 1]), strict=True)
    )
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _parts(of: str) -> tuple[str, str, str]:
    return of[1:3], of[3:5], of[5:7]
