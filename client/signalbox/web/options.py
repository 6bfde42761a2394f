"""What all charts share.

Text that comes from outside is only ever a value, never a key (the front end runs keys that begin with ``:`` as code),
and tooltips draw text, not HTML (``renderMode``).
"""

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
        "useUTC": True,  # as all other times of the page
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
    """With lines that do not hide what is drawn, on both papers."""
    return {"type": "value", "axisLabel": {"color": paper.text}, "splitLine": {"lineStyle": {"color": paper.unknown}}}


def shown(text: str) -> str:
    """Text in a place where ECharts fills in templates: ``{`` would begin one."""
    return text.replace("{", "(").replace("}", ")")


def on_route(cable: Cable, route: Collection[LinkAt]) -> bool:
    return bool(route) and (cable.up in route or cable.down in route)
