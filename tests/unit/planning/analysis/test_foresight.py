"""Questions to a live controller: asked of its own state, answered beside it, and true when the thing then happens."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from controller.config import Config, DiscoveryConfig, FabricConfig, Strategy
from controller.core.messages import Reply
from controller.errors import Conflict, Exhausted, NotFound, SignalboxError
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import IterationTime, RegisterJob, ReportIterations
from controller.jobs.spec import JobId
from controller.planning.messages import Explain, Foresee, SetStrategy, WhatIf
from controller.planning.questions import answering as foresight
from controller.planning.questions.answering import NOTHING_PINNED, ForesightWorker, answer
from controller.planning.questions.asked import Question
from controller.planning.questions.single_failures import Kind
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

CONFIG = Config(
    fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS), discovery=DiscoveryConfig(edge_after_s=1.0)
)
RINGS = [[f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4)] for host in (1, 2, 3)]
EVERYTHING = frozenset(Kind)


@pytest.fixture
def fabric() -> FakeFabric:
    """Three jobs run on four leaves and four spines, planned."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    for number, ips in enumerate(RINGS):
        fabric.send(RegisterJob(ring_job(f"job{number}", ips)))
    fabric.run(3)
    return fabric


def asked(fabric: FakeFabric, message: Explain | WhatIf) -> Question:
    """The question that the loop makes of the message. Raises the error that it replies with."""
    (command,) = fabric.loop.handle([message], fabric.now)
    if isinstance(command, Reply):
        assert isinstance(command.value, SignalboxError)
        raise command.value
    assert isinstance(command, Foresee)
    assert command.reply is message.reply
    return command.question


def explained(fabric: FakeFabric, job: str = "job0") -> dict[str, Any]:
    return answer(asked(fabric, Explain(JobId(job))))


def foreseen(fabric: FakeFabric, kinds: frozenset[Kind] = EVERYTHING) -> dict[str, Any]:
    return answer(asked(fabric, WhatIf(kinds, None, 30.0)))


# ---- explain


def test_a_job_that_runs_alone_on_its_links_is_not_slowed(fabric: FakeFabric) -> None:
    found = explained(fabric)
    assert (found["verdict"], found["level"], found["flows_hashed"]) == ("nothing", 1.0, 0)
    assert "efficiency_measured" not in found


def test_failed_uplinks_are_the_reason_that_is_given(fabric: FakeFabric) -> None:
    """Three flows leave every leaf; two of four spines are left."""
    for leaf in (1, 2, 3, 4):
        for spine in (1, 2):
            fabric.cut(Dpid(leaf), PortNo(spine))
    fabric.run(3)
    found = explained(fabric)
    assert (found["verdict"], found["level"]) == ("fabric", 2.0)
    assert (found["cut"]["links"], found["cut"]["failed"]) == (2, 2)
    assert "(2 more have failed)" in " ".join(found["answer"])
    assert found["split"]["level"] == pytest.approx(1.5)
    assert found["fullest_links"][0]["link"].startswith(("leaf", "spine"))


def test_measured_times_stand_beside_the_predicted_ones(fabric: FakeFabric) -> None:
    ideal_s = fabric.status.jobs[JobId("job0")].ideal_communication_s
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(0, 2.0, ideal_s / 0.6),)))
    found = explained(fabric)
    assert found["efficiency_measured"] == pytest.approx(0.6)
    assert "the difference is not the routing" in " ".join(found["answer"])


def test_under_ecmp_flows_are_hashed_and_routing_could_gain(fabric: FakeFabric) -> None:
    fabric.send(SetStrategy(Strategy.ECMP))
    fabric.run(1)
    found = explained(fabric)
    assert (found["verdict"], found["flows_hashed"]) == ("routing", 4)
    assert found["level"] > 1.3
    assert found["best"]["level"] == 1.0


def test_jobs_that_nothing_can_be_said_of(fabric: FakeFabric) -> None:
    with pytest.raises(NotFound, match="there is no job 'nix'; jobs: job0, job1, job2"):
        explained(fabric, "nix")
    fabric.send(RegisterJob(ring_job("late", ["10.0.1.1", "10.0.9.9"])))
    with pytest.raises(Conflict, match=r"job 'late' waits for 10\.0\.9\.9"):
        explained(fabric, "late")
    empty = FakeFabric()
    empty.start(CONFIG)
    with pytest.raises(NotFound, match="no job is announced"):
        explained(empty, "nix")


# ---- what-if


def test_what_is_foreseen_is_what_happens(fabric: FakeFabric) -> None:
    fabric.cut(Dpid(1), PortNo(1))
    fabric.run(3)
    cases = foreseen(fabric, frozenset({Kind.CABLE}))["outcomes"]
    foretold = {name: outcome["level"] for outcome in cases for name in outcome["failures"]}
    assert len(foretold) == 15, "all but the one that has failed"
    for leaf, spine in ((1, 2), (2, 1), (3, 4)):
        fabric.cut(Dpid(leaf), PortNo(spine))
        fabric.run(3)
        plan = fabric.status.plan
        assert plan
        assert foretold[f"leaf{leaf}:spine{spine}"] == pytest.approx(plan.max_level)
        fabric.plug(Dpid(leaf), PortNo(spine))
        fabric.run(10)


def test_flows_in_force_are_those_that_would_be_re_routed(fabric: FakeFabric) -> None:
    found = foreseen(fabric, frozenset({Kind.SPINE}))
    (spines,) = found["outcomes"]
    assert sorted(spines["failures"]) == ["spine1", "spine2", "spine3", "spine4"]
    pinned: dict[PortNo, int] = {}
    for job in fabric.status.jobs.values():
        for route in job.routes.values():
            assert route
            spine = route[0].path[0].port
            pinned[spine] = pinned.get(spine, 0) + 1
    used = [pinned.get(PortNo(spine), 0) for spine in (1, 2, 3, 4)]
    assert (spines["rerouted_fewest"], spines["rerouted_most"]) == (min(used), max(used))


def test_with_nothing_pinned_the_planned_routes_are_failed(fabric: FakeFabric) -> None:
    fabric.send(SetStrategy(Strategy.SHADOW))
    fabric.run(1)
    found = foreseen(fabric)
    assert found["answer"][0] == NOTHING_PINNED
    assert found["now"]["level"] == 1.0
    assert NOTHING_PINNED not in foreseen_of_an_idle_network()["answer"]


def foreseen_of_an_idle_network() -> dict[str, Any]:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    found = foreseen(fabric, frozenset({Kind.CABLE}))
    assert found["outcomes"] == []
    assert sum(len(case["failures"]) for case in found["unfelt"]) == found["failures"] == 16
    return found


# ---- the process


def test_too_many_questions_are_refused(fabric: FakeFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresight, "MOST_WAITING", 1)
    monkeypatch.setattr(ForesightWorker, "_run", lambda _self: None)
    worker = ForesightWorker()
    question = asked(fabric, Explain(JobId("job0")))
    replies: list[Future[Any]] = [Future(), Future()]
    for reply in replies:
        worker.submit(question, reply)
    assert not replies[0].done()
    with pytest.raises(Exhausted, match="questions wait already"):
        replies[1].result(timeout=0)
    worker.stop()


def test_a_question_survives_the_way_to_another_process(fabric: FakeFabric) -> None:
    question = asked(fabric, Explain(JobId("job0")))
    assert answer(pickle.loads(bytes(ForkingPickler.dumps(question)))) == answer(question)
