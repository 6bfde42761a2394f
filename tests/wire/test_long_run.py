"""A short version of the long run: a real controller with TLS, tokens and a state directory, and changing jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.long_run import PARTS, Load, measured


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_long_run_has_a_sample_for_each_part_and_goes_on_in_the_same_folder(tmp_path: Path, runs: int) -> None:
    for _ in range(runs):
        first, *later = measured(tmp_path, Load(PARTS, 25, 500.0), PARTS)
        assert (first.cycles, first.renewals) == (0, 0)
        assert (later[-1].cycles, later[-1].renewals) == (PARTS, 25)
        assert len(later) <= PARTS  # fewer when the load ends a part before it was measured
        assert all(s.rss_mb > 10 and s.descriptors > 10 and s.state_kib and s.log_kib for s in later)
