"""The work of the ranks of a whole job in an iteration."""

import json
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.trainer.parts import Part, read_job
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Algorithm

JOB: dict[str, Any] = {
    "job_id": "recommender",
    "endpoints": [f"10.0.{server}.1" for server in range(1, 5)],
    "groups": [{"name": "ring", "ranks": [0, 2, 1, 3]}, {"name": "back", "ranks": [3, 1, 2, 0]}],
    "collectives": [
        {"algorithm": "all_to_all", "groups": ["ring"], "bytes_per_iteration": 1600, "phase": 3},
        {"algorithm": "all_reduce", "groups": ["ring", "back"], "bytes_per_iteration": 801, "phase": 1},
    ],
    "transfers": [
        {"src": 3, "dst": 1, "bytes_per_iteration": 400, "phase": 3, "step": 2},
        {"src": 3, "dst": 1, "bytes_per_iteration": 4, "phase": 3, "step": 2},
        {"src": 0, "dst": 3, "bytes_per_iteration": 8, "phase": 3, "step": 1},
    ],
    "compute": [
        {"seconds": 0.1},
        {"seconds": 0.2, "phase": 2},
        {"seconds": 0.4},
        {"seconds": 0.3, "phase": 1},
        {"seconds": 0.6, "before": 3},
    ],
}


def write(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(JOB | changes))
    return path


def test_what_is_in_a_phase_begins_together_and_steps_of_transfers_follow_each_other(tmp_path: Path) -> None:
    job = read_job(write(tmp_path / "job.json"))
    assert job.alone_s == pytest.approx(0.5)
    assert [phase[::2] for phase in job.phases] == [(1, 0.3), (2, 0.2), (3, 0)]
    assert [phase.before_s for phase in job.phases] == [0, 0, 0.6]
    rings, nothing, last = (phase.sequences for phase in job.phases)
    ring = Algorithm.RING_ALL_REDUCE
    assert rings == ((Part("1-0", (0, 2, 1, 3), ring, 201),), (Part("1-1", (3, 1, 2, 0), ring, 201),))
    assert nothing == ()
    first, second = Part("3.1", (0, 3), None, 0, {(0, 1): 2}), Part("3.2", (1, 3), None, 0, {(1, 0): 101})
    assert last == ((Part("0-0", (0, 2, 1, 3), Algorithm.ALL_TO_ALL, 400),), (first, second))
    assert len({part.name for part in job.parts}) == 5


@pytest.mark.parametrize(("changes", "problem"), [
    ({"library": "gloo"}, "library: 'gloo' is not emulated"),
    ({"max_subflows": 2}, "max_subflows: must be 1, because flows are not split here"),
    ({"rails": [{"endpoints": [f"10.1.{server}.1" for server in range(1, 5)]}]}, "rails: are not emulated"),
    ({"compute": [{"seconds": 1}, {"seconds": -1}]}, r"compute\[1\].seconds: must be"),
    ({"endpoints": ["10.0.1.1"]}, "endpoints: "),
    ({"collectives": [{"algorithm": "halving_doubling_all_reduce", "groups": ["ring"], "bytes_per_iteration": 8}]},
     r"collectives\[0\].algorithm: 'halving_doubling_all_reduce' is not emulated; choose one of ring_all_reduce"),
])  # fmt: skip
def test_what_is_not_emulated_is_refused_by_its_field(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_job(write(tmp_path / "job.json", **changes))


def test_a_file_that_is_no_job_is_refused(tmp_path: Path) -> None:
    for text, problem in (("{", "is not JSON"), ("[]", "must be an object")):
        (tmp_path / "job.json").write_text(text)
        with pytest.raises(InvalidInput, match=f"job.json: {problem}"):
            read_job(tmp_path / "job.json")
