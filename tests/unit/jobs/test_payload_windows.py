"""Bytes of one iteration, derived from a window of counters."""

from __future__ import annotations

import numpy as np
import pytest

from controller.fabric.link_load import LAG_S
from controller.jobs.payload_windows import Window


def window(iterations: float | None) -> Window:
    bps = np.array([8e6, 0.0])
    return Window(0.0, bps, bps, 6.0, iterations, begun=True, whole=True)


def test_bytes_are_those_of_all_its_iterations_and_each_takes_its_part_of_the_time() -> None:
    assert window(4.0).iteration_s == 1.5
    assert window(4.0).bytes.tolist() == [6e6, 0.0]
    assert window(None).iteration_s is None


def test_an_iteration_that_is_there_in_part_makes_bytes_uncertain() -> None:
    assert window(None).error == pytest.approx(LAG_S / 6.0)
    assert window(4.0).error == pytest.approx(LAG_S / 6.0 + 0.125)
