"""The picture of wirings."""

from pathlib import Path

import numpy as np
from matplotlib import image

from controller.circuits.wiring.circuits import Wiring, circulant
from mininet_topos.rewiring.picture import COLOURS, Panel, draw, places


def colours(path: Path) -> set[str]:
    pixels = (image.imread(path)[..., :3] * 255).round().astype(int)
    return {f"#{number:06x}" for number in np.unique(pixels @ [1 << 16, 1 << 8, 1]).tolist()}


def test_servers_are_on_a_circle_clockwise_from_the_top() -> None:
    assert [(round(x), round(y)) for x, y in places(4)] == [(0, 1), (1, 0), (0, -1), (-1, 0)]


def test_each_optical_switch_has_a_colour_and_dark_interfaces_nothing(tmp_path: Path) -> None:
    dark = Wiring(3, ((1, None, 0), (None, None, None)))
    draw(tmp_path / "wirings.png", [Panel("before", "1 s", dark), Panel("after", "2 s", circulant(5, [1, 2]))])
    found = colours(tmp_path / "wirings.png")
    assert set(COLOURS[:2]) <= found  # in the keys; the background shows through arrows
    assert not set(COLOURS[2:]) & found
