"""Answers that a controller gets about the circuits of a job."""

from pathlib import Path

from controller.circuits.questions import FindWiring, FoundWiring
from controller.circuits.wiring.circuits import circulant
from controller.fabric.topology import Dpid
from controller.planning.problem import PlanLimits
from mininet_topos.rewiring.answers import accept, answer, give
from signalbox.jobs.spec import JobId, JobSpec

ALL_TO_ALL = {"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": 8_000_000}


def asked(job_id: str) -> FindWiring:
    """Return the request of a job that belongs on a switch: two circuits per server would forward most of its bytes."""
    endpoints, groups = [f"10.0.{n}.1" for n in range(1, 13)], [{"name": "all", "ranks": range(12)}]
    spec = JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "groups": groups, "collectives": [ALL_TO_ALL]})
    servers = tuple(Dpid(number) for number in range(1, 13))
    optical = Dpid(0x101), Dpid(0x102)
    return FindWiring(JobId(job_id), "uid", spec, servers, optical, 2e6, PlanLimits(time_limit_s=0.5, ecmp_draws=0))


def test_a_wiring_that_is_given_is_the_answer_for_this_job_alone(tmp_path: Path) -> None:
    question, wiring = asked("given"), circulant(12, [3, 4])
    give(tmp_path, "given", wiring, "hybrid", question.spec, 7.5)
    assert answer(tmp_path, question) == FoundWiring("hybrid", question.spec, wiring.peers, 7.5, 7.5, 7.5)
    other = answer(tmp_path, asked("other"))
    assert isinstance(other, FoundWiring)
    assert other.peers != wiring.peers


def test_a_job_that_is_refused_can_be_accepted(tmp_path: Path) -> None:
    refused = answer(tmp_path, asked("job"))
    assert isinstance(refused, FoundWiring)
    assert "is better" in refused.refused
    accept(tmp_path, "job")
    accepted = answer(tmp_path, asked("job"))
    assert isinstance(accepted, FoundWiring)
    assert (accepted.refused, accepted.peers) == ("", refused.peers)
