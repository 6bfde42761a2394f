"""The measurement of rules works on the smallest fabric; nothing is said about times."""

from __future__ import annotations

from benchmarks.rules import measured


def test_the_rules_of_a_plan_are_measured_at_first_and_after_a_cut() -> None:
    install, cut, repair = measured(leaves=3, spines=2, hosts_per_leaf=2)
    assert (install["fabric"], install["change"], cut["change"]) == ("3x2x2", "full install", "cable cut")
    assert install["mods"] == install["rules"]
    assert 0 < float(cut["mods"]) < float(install["mods"])
    assert 0 < float(repair["mods"]) < float(install["mods"])
    assert float(repair["plan_ms"]) > 0
    assert all(float(row[key]) >= 0 for row in (install, cut, repair) for key in ("desired_ms", "diff_ms"))
