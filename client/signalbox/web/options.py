"""Options that all charts share.

Text from outside is only ever a value, never a key, because the front end runs keys that begin with ``:`` as code.
Tooltips draw text, not HTML (``renderMode``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from signalbox.live.colours import Paper
from signalbox.live.crossing import LinkAt
from signalbox.live.picture import Cable

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
    """Return a value axis whose grid lines are faint on the given background, so that they hide nothing."""
    return {"type": "value", "axisLabel": {"color": paper.text}, "splitLine": {"lineStyle": {"color": paper.unknown}}}


def shown(text: str) -> str:
    """Return text for a place where ECharts fills in templates, which begin with ``{``."""
    return text.replace("{", "(").replace("}", ")")


def on_route(cable: Cable, route: Collection[LinkAt]) -> bool:
    return bool(route) and (cable.up in route or cable.down in route)
