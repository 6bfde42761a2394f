"""The factor by which an announcement is reported to be wrong, from the first report on."""

from __future__ import annotations

import pytest

from tests.support.training_cluster import FOUR, RIGHT, Cluster, spec


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("reads_s", [0.0, 0.7])
@pytest.mark.parametrize("begins_s", [0.1, 9.0])
def test_the_factor_is_right_whenever_a_job_begins_and_though_it_pauses_between_iterations(
    begins_s: float, reads_s: float, factor: float
) -> None:
    """Programs read their data outside of the iterations that they report."""
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    cluster.iteration_s = 1.0
    cluster.train(begins_s, {}, pause=True)
    traffic, found = {pair: factor * size for pair, size in RIGHT.items()}, list[float | None]()
    for _ in range(20):
        for demand in (cluster.train(1.0, traffic), cluster.train(reads_s, {}, pause=True)):
            found += [demand.difference.factor] if demand.contradicted and demand.difference else []
    if factor < 1 or not reads_s:  # the surplus may belong to iterations that were not reported
        assert found
    assert all(named == pytest.approx(factor, rel=0.3) for named in found)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_pause_does_not_retract_the_factor(factor: float) -> None:
    """The bounds of the windows at either end of a pause exclude the announced amount of some pairs only."""
    traffic = {pair: factor * size for pair, size in RIGHT.items()}
    for tenths in range(0, 40, 3):
        cluster = Cluster(spec(FOUR), lag_s=0.5, apart_s=0.3, bursts=0.3)
        cluster.until(lambda demand: bool(demand.difference and demand.difference.factor), traffic, 60)
        for seconds in (tenths / 10, 3.0, 8.0):
            cluster.train(12 + tenths / 10, traffic)
            cluster.train(seconds, {}, pause=True)
            for _ in range(4):
                difference = cluster.train(1.0, {}, pause=True).difference
                assert difference
                assert difference.factor == pytest.approx(factor, rel=0.3), tenths


def test_the_factor_is_retracted_once_other_pairs_carry_the_announced_bytes() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.until(lambda demand: demand.contradicted, {pair: 0.5 * size for pair, size in RIGHT.items()}, 20)
    one = FOUR[0], FOUR[1]
    difference = cluster.train(24, {**RIGHT, one: 0.5 * RIGHT[one]}).difference
    assert difference
    assert difference.factor is None
    assert [pair for pair, _ in difference.off] == [one]
