"""What the benchmark of an emulated design compares, without the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.design.lab import DESIGNED, EQUAL, Scaled, measured, misses, scaled
from mininet_topos.dimensions.training import Timing
from signalbox.errors import InvalidInput
from tests.support.doc_pages import ROOT

EXAMPLE = ROOT / "examples/design"


@pytest.fixture(scope="module")
def what() -> Scaled:
    return scaled(EXAMPLE / "network.yaml", [EXAMPLE / "jobs.yaml"], total_mbps=12, iteration_s=6)


def test_the_example_is_scaled_to_the_rates_and_the_time_that_are_asked_for(what: Scaled) -> None:
    assert sum(what.rates(DESIGNED)) == pytest.approx(12)
    assert what.rates(EQUAL) == pytest.approx((4, 4, 4))
    assert sum(what.model_s(DESIGNED)) == pytest.approx(6)
    assert sum(what.model_s(EQUAL)) / 6 > 1.5


def test_sizes_fit_to_what_is_left_of_a_rate_without_headers(what: Scaled) -> None:
    """The second job's all-reduce takes 2/3 of the bytes on each board's links, for three NPUs."""
    reduced = what.to_run()[-1]
    board_bps = what.rates(DESIGNED)[0] * 1e6 * 1448 / (1514 + 33)
    assert 2 * 8 * reduced.size * (2 / 3) / board_bps == pytest.approx(what.model_s(DESIGNED)[-1])


@pytest.mark.parametrize(
    ("slower", "right", "missed"),
    [
        ({DESIGNED: 1.04, EQUAL: 0.96}, True, 0),
        ({DESIGNED: 1.06, EQUAL: 1.0}, True, 1),
        ({DESIGNED: 1.06, EQUAL: 0.9}, True, 3),
        ({DESIGNED: 1.0, EQUAL: 1.0}, False, 1),
    ],
)
def test_what_is_outside_of_the_tolerances_is_named(
    what: Scaled, slower: dict[str, float], right: bool, missed: int
) -> None:
    timings = {
        name: [Timing(tuple(factor * each for each in what.model_s(name)), right)] for name, factor in slower.items()
    }
    rows = [measured(what, name, each) for name, each in timings.items()]
    assert len(misses(rows, timings)) == missed


@pytest.mark.parametrize(
    ("network", "job", "message"),
    [
        (("size: 3", "size: 100"), ("", ""), "network.yaml:3:1: dimensions: make 400 NPUs; at most 256 are emulated"),
        (("total_gbps: 600", ""), ("", ""), "network.yaml:3:1: total_gbps: is missing: what is split"),
        (("", ""), ("40_000_000_000", "900_000_000_000_000"), "--total-mbps: must be at least 67.4: "),
    ],
)
def test_what_cannot_be_emulated_is_refused(
    network: tuple[str, str], job: tuple[str, str], message: str, tmp_path: Path
) -> None:
    """In the last case almost all bandwidth is on the board, and packets to the switch would take seconds."""
    for name, change in (("network.yaml", network), ("jobs.yaml", job)):
        text = (EXAMPLE / name).read_text()
        (tmp_path / name).write_text(text.replace(*change) if change[0] else text)
    with pytest.raises(InvalidInput) as error:
        scaled(tmp_path / "network.yaml", [tmp_path / "jobs.yaml"], total_mbps=12, iteration_s=6)
    assert message in str(error.value)
