"""The lab and its Open vSwitch leave nothing behind when they are ended in any way, at some instants.

The benchmark ``interrupts`` ends them at many more instants."""

from pathlib import Path

import pytest

from benchmarks.interrupts import LAB, WAYS, interrupted

LITTLE = (*LAB, "--leaves", "2", "--spines", "1", "--hosts", "1")
UP = b"Ctrl-C ends it"
DEMO = (*LAB[:-1], "mininet_topos.demo")


STARTING = dict(zip(WAYS, (0.15, 0.45, 1.2, 0.3, 1.0, 0.8), strict=True))
SHORT = ("Ctrl-C", "closed shell")
"""Ways of which ``make test`` ends a lab that starts; the two tests after it close a terminal."""


@pytest.mark.parametrize(
    ("way", "instant_s"),
    [pytest.param(*item, marks=[pytest.mark.long] * (item[0] not in SHORT)) for item in STARTING.items()],
)
def test_a_lab_that_starts_leaves_nothing(way: str, instant_s: float) -> None:
    """The instants fall into the start of Open vSwitch, of Python or of the lab, depending on the machine."""
    assert interrupted("lab", LITTLE, way, instant_s).stayed == ()


@pytest.mark.parametrize("way", [WAYS[3], *(pytest.param(way, marks=pytest.mark.long) for way in WAYS[4:])])
def test_a_lab_that_is_up_leaves_nothing(way: str) -> None:
    assert interrupted("lab", LITTLE, way, 0, UP).stayed == ()


@pytest.mark.parametrize(
    ("way", "shown"), [("closed terminal", b""), pytest.param("Ctrl-C", b"fabric: ", marks=pytest.mark.long)]
)
def test_a_demo_leaves_nothing(way: str, shown: bytes, tmp_path: Path) -> None:
    """The demo is ended while its controller starts, and when the fabric is up."""
    assert interrupted("demo", (*DEMO, "--out", str(tmp_path)), way, 3.0, shown).stayed == ()
