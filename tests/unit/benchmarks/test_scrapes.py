"""The measurement of scrapes works on a small fabric; times are not checked."""

from __future__ import annotations

from benchmarks.scrapes import measured


def test_scrapes_are_measured_without_and_with_compression() -> None:
    plain, packed = measured(leaves=2, spines=2, hosts_per_leaf=3, jobs=2, scrapes=1)
    assert [row["scrapes"] for row in (plain, packed)] == ["identity", "gzip"]
    links = 2 * 2 * 2 + 2 * 6
    assert int(plain["series"]) > 2 * links
    assert 0 < float(packed["MB"]) < float(plain["MB"])
    assert all(float(row["over plain loop"]) > 0 for row in (plain, packed))
