"""Contact sheets of the dashboards: readable at the width of a page, and no larger than what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.text import Text

from benchmarks.dashboards import WIDTH, Drawn, sheet

LINE = {"metric": {"link": "leaf1:1>spine1"}, "values": [[0, "1e6"], [1, "2e6"]]}
ROW = {"metric": {"link": "leaf1:1>spine1"}, "value": [0, "0.5"]}


def drawn(kind: str, answers: Sequence[Mapping[str, Any]], y: int = 0) -> Drawn:
    at = {"x": 0, "y": y, "w": 12, "h": 12}
    return Drawn(f"a {kind}", kind, "bps", at, [answers], ["{{link}}"])


def test_text_can_be_read_at_the_width_of_a_page() -> None:
    figure = sheet("fabric", [drawn("timeseries", [LINE]), drawn("table", [ROW], 12), drawn("stat", [ROW], 24)])
    sizes = {float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_text()}
    assert figure.get_figwidth() == WIDTH
    assert min(sizes) * figure.dpi / 72 >= 10, "pixels"


def test_axes_have_their_unit() -> None:
    figure = sheet("fabric", [drawn("timeseries", [LINE])])
    figure.canvas.draw()
    (axes,) = figure.axes
    assert any("Mbit/s" in label.get_text() for label in axes.get_yticklabels())


def test_a_table_is_as_high_as_its_rows() -> None:
    heights = [sheet("fabric", [drawn("table", [ROW] * rows)]).get_figheight() for rows in (0, 1, 12)]
    assert heights[0] < 1.5
    assert heights[1] < heights[2] < 3
