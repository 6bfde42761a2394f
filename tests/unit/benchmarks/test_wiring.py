"""The benchmark of wirings: its results for a size agree with networkx, and its settings are those published."""

import pytest

from benchmarks.wiring import paper, sizes
from benchmarks.wiring.independent import most_and_mean_hops
from controller.circuits.wiring.traffic import traffic_of


def test_a_row_has_the_hops_that_networkx_finds_and_none_better_than_the_bound() -> None:
    row = sizes.row(12, 3)
    assert (row["searched_diameter"], row["searched_mean_hops"]) == (row["diameter"], pytest.approx(row["mean_hops"]))
    assert row["least_mean_hops"] <= row["mean_hops"] + 1e-9


def test_servers_that_are_not_connected_have_no_hops() -> None:
    assert most_and_mean_hops(3, [(0, 1), (1, 2), (2, 0)]) == (2, 1.5)
    with pytest.raises(ValueError, match="not connected"):
        most_and_mean_hops(3, [(0, 1), (1, 0)])


def test_every_server_sends_a_tenth_of_its_rings_to_pairs() -> None:
    traffic = sizes.job(12)
    assert traffic.of_pairs.sum() == pytest.approx(traffic.in_rings / 10)


@pytest.mark.parametrize("ratio", [0.0, 0.025, 0.8])
def test_the_job_of_the_publication_sends_what_its_batch_says(ratio: float) -> None:
    traffic = traffic_of(paper.dlrm(16, ratio))
    assert traffic.of_pairs.sum() / traffic.in_rings == pytest.approx(ratio, rel=1e-6)
