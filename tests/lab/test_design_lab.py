"""A designed network of several dimensions, with real all-reduces, of which one is of some ranks alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.design.lab import DESIGNED, EQUAL, measured, run, scaled
from mininet_topos.lab.record import namespaces

NETWORK = {
    "total_gbps": 100,
    "dimensions": [{"name": "box", "kind": "ring", "size": 3}, {"name": "pod", "kind": "switch", "size": 2}],
}
JOB = {
    "job_id": "job",
    "groups": [{"name": "all", "ranks": [*range(6)]}, {"name": "first", "ranks": [0, 1, 2]}],
    "collectives": [
        {"algorithm": "all_reduce", "groups": ["first"], "bytes_per_iteration": 10**9},
        {"algorithm": "all_reduce", "groups": ["all"], "bytes_per_iteration": 10**9, "phase": 1},
    ],
}


@pytest.mark.alone
def test_jobs_take_about_as_long_as_a_design_says(tmp_path: Path) -> None:
    for name, data in (("network", NETWORK), ("job", JOB)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data))
    before = namespaces()
    what = scaled(tmp_path / "network.yaml", [tmp_path / "job.yaml"], total_mbps=6, iteration_s=1.5)
    found = run(what, rounds=1, chunks=32)
    rows = {name: measured(what, name, timings) for name, timings in found.items()}
    assert all(timing.ok for timings in found.values() for timing in timings)
    assert all(row.ratio == pytest.approx(1, abs=0.5) for row in rows.values())
    assert rows[EQUAL].measured_s > 1.2 * rows[DESIGNED].measured_s
    assert namespaces() <= before, "nothing is left"
