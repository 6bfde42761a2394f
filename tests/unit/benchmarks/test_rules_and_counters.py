"""The measurements of rules, counters and scrapes work on the smallest fabric; times are not checked."""

import pytest

from benchmarks.counters import measured as counters_measured
from benchmarks.rules import measured
from benchmarks.scrapes import measured as scrapes_measured


def test_the_rules_of_a_plan_are_measured_at_first_and_after_a_cut() -> None:
    install, cut, repair = measured(leaves=3, spines=2, hosts_per_leaf=2)
    assert (install["fabric"], install["change"], cut["change"]) == ("3x2x2", "full install", "cable cut")
    assert install["mods"] == install["rules"]
    assert 0 < float(cut["mods"]) < float(install["mods"])
    assert 0 < float(repair["mods"]) < float(install["mods"])
    assert float(repair["plan_ms"]) > 0
    assert all(float(row[key]) >= 0 for row in (install, cut, repair) for key in ("desired_ms", "diff_ms"))


@pytest.mark.parametrize("busy", [False, True])
def test_the_cost_of_counters_is_measured_by_stage(busy: bool) -> None:
    row = counters_measured(leaves=4, spines=2, hosts_per_leaf=3, busy=busy, seconds=2)
    assert row["links"] == 2 * 4 * 2 + 2 * 12
    assert int(row["counted rules"]) > 3
    stages = [float(value) for name, value in row.items() if name.endswith("ms/s")]
    assert len(stages) == 4
    assert all(value > 0 for value in stages)
    assert float(row["percent of a core"]) == pytest.approx((sum(stages) + float(row["scrape ms"]) / 15) / 10)


def test_scrapes_are_measured_without_and_with_compression() -> None:
    plain, packed = scrapes_measured(leaves=2, spines=2, hosts_per_leaf=3, jobs=2, scrapes=1)
    assert [row["scrapes"] for row in (plain, packed)] == ["identity", "gzip"]
    links = 2 * 2 * 2 + 2 * 6
    assert int(plain["series"]) > 2 * links
    assert 0 < float(packed["MB"]) < float(plain["MB"])
    assert all(float(row["over plain loop"]) > 0 for row in (plain, packed))
