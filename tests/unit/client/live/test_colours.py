"""Colours by which the live views show the loads of links."""

import pytest

from signalbox.live.colours import DARK, LIGHT, Paper, colour
from signalbox.live.picture import picture
from signalbox.web import graph
from signalbox.web.style import PRIMARY
from tests.support.fabric_messages import leaf_spine, state_of


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_loads_are_mixed_between_the_steps_of_the_scale(paper: Paper) -> None:
    assert [colour(step / 4, paper) for step in range(5)] == list(paper.scale)
    assert colour(0.125, DARK) == "#22385d"
    assert colour(-1.0, paper) == paper.scale[0]
    assert colour(1.7, paper) == paper.scale[-1]
    assert colour(None, paper) == paper.unknown


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(ink: str) -> float:
        parts = [int(ink[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_text_buttons_and_rims_of_empty_links_are_seen_on_their_paper(paper: Paper) -> None:
    inks = (paper.text, paper.faint, paper.down, paper.drained)
    assert min(contrast(ink, paper.background) for ink in inks) >= 4.5
    assert contrast(PRIMARY, "#ffffff") >= 4.5
    options = graph.graph(picture(state_of(leaf_spine(1, 1))), paper, ())
    rims = [each["lineStyle"]["shadowColor"] for each in options["series"][0]["links"] if "part" in each]
    assert [contrast(rim, paper.background) >= 3 for rim in rims] == [True]
