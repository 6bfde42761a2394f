"""Figures and messages of the API in words."""

from __future__ import annotations

import pytest

from signalbox.live.shown import rate


@pytest.mark.parametrize(
    ("bps", "said"),
    [
        (0.0, "0 bit/s"),
        (999.6, "1 kbit/s"),
        (4.886e6, "4.89 Mbit/s"),
        (999.4e6, "999 Mbit/s"),
        (999.6e6, "1 Gbit/s"),
        (800e9, "800 Gbit/s"),
        (1.6e12, "1.6 Tbit/s"),
    ],
)
def test_a_rate_has_three_digits_and_never_an_exponent(bps: float, said: str) -> None:
    assert rate(bps) == said
