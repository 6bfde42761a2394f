"""Colours of loads."""

from __future__ import annotations

import pytest

from signalbox.live.colours import DARK, LIGHT, Paper, colour


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_loads_are_mixed_between_the_steps_of_the_scale(paper: Paper) -> None:
    assert [colour(step / 4, paper) for step in range(5)] == list(paper.scale)
    assert colour(-1.0, paper) == paper.scale[0]
    assert colour(1.7, paper) == paper.scale[-1]
    assert colour(None, paper) == paper.unknown


def test_a_load_between_two_steps_is_mixed_linearly() -> None:
    assert colour(0.125, DARK) == "#22385d"


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_fuller_is_further_from_the_paper(paper: Paper) -> None:
    def light(ink: str) -> float:
        red, green, blue = (int(ink[at : at + 2], 16) for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    distances = [abs(light(colour(load / 10, paper)) - light(paper.background)) for load in range(11)]
    assert distances == sorted(distances)
