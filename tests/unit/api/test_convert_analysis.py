"""Requests and results of analyses on the wire, with the sentences of their answers."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from controller.api.convert import demand_message
from controller.api.convert_analysis import what_if_message, what_if_request
from controller.api.convert_explain import explain_message
from controller.fabric.topology import Fabric
from controller.planning.analysis.messages import (
    Case,
    Failure,
    FailureAnalysis,
    FlowEnds,
    JobAnalysis,
    JobFlows,
    Outcome,
    Present,
    Verdict,
)
from controller.planning.efficiency import EcmpSlowdown
from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind
from tests.support.planning.analyses import BEST, BOUNDED, CUT, FINE, LINK, NIC, SLOWED, SPLIT, A, B
from tests.support.planning.fabrics import rings
from tests.support.status_example import demand

ECMP = EcmpSlowdown(2.5, 3.0)
SPINES = tuple(Failure(FailureKind.SPINE, name, frozenset()) for name in ("s101", "s102"))
CABLES = tuple(Failure(FailureKind.CABLE, f"s1:{spine.name}", frozenset()) for spine in SPINES)
WORST = Outcome(Case(FailureKind.SPINE, SPINES), SPINES[0], (), (1, 2), "plan", 2.0, 1.5, 2.0, ECMP, 3.0, 2.0, 1)
FAILURES = FailureAnalysis(
    pinned=True, present=Present(1.0, 1.0, 1.0, 1.0, ECMP, ()), outcomes=(WORST,), felt=(WORST.case,),
    unfelt=(Case(FailureKind.CABLE, CABLES),),
)  # fmt: skip


def said(found: JobAnalysis, **changed: Any) -> str:
    return " ".join(explain_message(replace(found, **changed)).answer)


def said_of_failures(found: FailureAnalysis, **changed: Any) -> str:
    return " ".join(what_if_message(replace(found, **changed)).answer)


def test_all_parts_of_a_job_analysis_are_sent() -> None:
    whole = replace(
        BOUNDED,
        efficiency_measured=0.4,
        demand=demand(),
        hashed_slowdown=2.5,
        fullest_nic=NIC,
        own_link=NIC,
    )
    message = explain_message(whole)
    assert set(message.DESCRIPTOR.fields_by_name) - {field.name for field, _ in message.ListFields()} == {
        *("flows_inside_a_leaf", "flows_hashed", "flows_without_a_path"),
        *("prediction_withheld", "awaits_iterations", "pinning_gains_nothing"),
    }, "those are 0"
    assert message.demand == demand_message(demand())
    assert message.hashed_slowdown == 2.5
    assert (message.verdict, message.slowdown, message.efficiency_predicted) == (pb.VERDICT_FABRIC, 2.0, 0.5)
    assert message.fullest_links[0].jobs[1] == pb.JobShare(job_id="b", flows=1, load=1.0)
    assert message.cut == pb.LeafCut(
        leaf="s1", direction=pb.DIRECTION_OUT, links=3, failed=1, drained=2, fluid_slowdown=4 / 3, whole_slowdown=2.0,
        jobs=[pb.JobFlows(job_id="a", flows=4)],
    )  # fmt: skip
    assert message.split.most_subflows == 2


def test_a_job_that_is_cut_off_is_at_0_and_says_so_before_everything_else() -> None:
    """The answer does not mention an efficiency that was measured before."""
    cut_off = replace(FINE, verdict=Verdict.CUT_OFF, flows_without_a_path=1, efficiency_measured=0.9)
    assert explain_message(cut_off).HasField("efficiency_predicted")
    assert explain_message(cut_off).efficiency_predicted == 0
    assert said(cut_off) == (
        "The network stops job 'a': 1 flow has no path. The slowdown of the other 3 flows is 1.00. "
        "Routing can gain nothing until cables or switches are repaired."
    )


def test_what_there_is_none_of_is_left_out() -> None:
    message = explain_message(FINE)
    assert not any(map(message.HasField, ("efficiency_measured", "cut", "best", "split")))
    assert not explain_message(BOUNDED).cut.HasField("other_leaf")


@pytest.mark.parametrize(("found", "expected"), [
    (FINE, "The network does not slow job 'a': no link that the job uses is loaded above its capacity"),
    (FINE, "Routing can gain nothing."),
    (replace(FINE, flows_inside_a_leaf=4), "All flows of the job stay inside a leaf."),
    (SLOWED, "takes up to 2.00 times as long as on an idle fabric (efficiency 50.0%)."),
    (SLOWED, "s1>s101. It is loaded to 2.00 times its capacity by 1 flow of the job and 1 of job 'b'."),
    (
        replace(SLOWED, best=replace(BEST, moves=300, cycles=2, first_slowdown=1.25)),
        "slowdown to 1.00, with 300 flows moved in at most 2 planning cycles (1.25 after the first).",
    ),
    (
        replace(SLOWED, best=replace(BEST, moves=300, cycles=None)),
        "reduce the job's slowdown to 1.00, with 300 flows moved, which planning.max_moves does not allow.",
    ),
    (SLOWED, "Routing can gain 50%: the planner's routes reduce the job's slowdown to 1.00, with 1 flow moved."),
    (replace(SLOWED, flows_hashed=1), "on average over hash draws"),
    (
        replace(SLOWED, flows_hashed=1, slowdown=3.0),
        "1 flow of the job is hashed: switches choose the links of hashed flows.",
    ),
    (replace(SLOWED, equally_full_links=8), "s1>s101 (one of 8 equally full). It is loaded"),
    (
        replace(SLOWED, fullest_links=(replace(LINK, background=0.5),)),
        "unannounced traffic takes 50% of the capacity.",
    ),
    (replace(SLOWED, verdict=Verdict.NIC, nic_slowdown=2.0), "the load of a NIC does not depend on routes"),
    (replace(SLOWED, verdict=Verdict.UNPROVEN, least_slowdown=1.2), "only slowdowns below 1.20 are proven impossible."),
    (BOUNDED, "s1 sends 4 whole flows over 3 links (1 more has failed, 2 more are drained): whatever"),
    (replace(BOUNDED, cut=replace(CUT, max_subflows=2)), "s1 sends 4 flows of at most 2 subflows over 3 links"),
    (BOUNDED, "Splitting flows would gain 33%: slowdown 1.33"),
    (replace(BOUNDED, split=replace(SPLIT, slowdown=2.0)), "Splitting flows would gain nothing either."),
    (
        replace(BOUNDED, least_slowdown=1.0, cut=None),
        "Any routes that are better for this job than the planner's are worse for another job.",
    ),
])  # fmt: skip
def test_the_answer_says(found: JobAnalysis, expected: str) -> None:
    assert expected in said(found)


def test_a_cut_between_two_leaves_names_both_and_the_other_jobs() -> None:
    cut = replace(CUT, other_leaf="s2", links=1, fluid_slowdown=2.0, jobs=(JobFlows(A, 1), JobFlows(B, 1)))
    words = said(BOUNDED, cut=cut)
    sends = "s1 sends 2 flows (including those of job 'b') to s2 over the 1 link that still leads there: 2.00 times"
    assert sends in words
    assert "receives 2 flows (including those of job 'b') from s2" in said(BOUNDED, cut=replace(cut, direction="in"))


def test_all_parts_of_an_outcome_are_sent() -> None:
    message = what_if_message(FAILURES)
    assert (message.failures, message.cases) == (4, 1)
    assert message.unfelt == [pb.UnfeltFailures(kind=pb.FAILURE_KIND_CABLE, failures=["s1:s101", "s1:s102"])]
    assert message.now.ecmp_slowdown == pb.EcmpSlowdowns(mean=2.5, p95=3.0)
    assert message.outcomes == [
        pb.FailureOutcome(
            kind=pb.FAILURE_KIND_SPINE,
            example="s101",
            failures=["s101", "s102"],
            basis=pb.OUTCOME_BASIS_PLAN,
            slowdown=2.0,
            repaired_slowdown=3.0,
            bound=1.5,
            integer_bound=2.0,
            proven=True,
            ecmp_slowdown=pb.EcmpSlowdowns(mean=2.5, p95=3.0),
            rerouted_fewest=1,
            rerouted_most=2,
            moved=1,
        )
    ]


def test_slowdowns_that_were_not_computed_are_left_out() -> None:
    bounded = replace(WORST, basis="bound", slowdown=None, repaired_slowdown=None, ecmp=None)
    (outcome,) = what_if_message(replace(FAILURES, outcomes=(bounded,))).outcomes
    assert not any(map(outcome.HasField, ("slowdown", "repaired_slowdown", "ecmp_slowdown")))
    words = said_of_failures(FAILURES, outcomes=(bounded,))
    assert "The worst failure is that of s101 (or one of 1 like it), with a slowdown of at least 2.00." in words
    assert "The time limit ended before 1 case was computed: only bounds are known." in words


def test_the_answer_counts_what_can_fail_and_names_the_worst() -> None:
    assert said_of_failures(FAILURES) == (
        "Now the worst job's slowdown is 1.00 (no routing is better); under ECMP 2.50 on average. "
        "2 switches without hosts can fail. This makes 1 case, because failures that differ only by interchangeable "
        "switches count as one. No flow uses the other 2 cables, so their failure changes nothing. "
        "The worst failure is that of s101 (or one of 1 like it), with a slowdown of 2.00 after planning (no routing "
        "is better); under ECMP 2.50 on average. "
        "No failure leaves a flow without a path."
    )


LOST = FlowEnds("x", "y", "s1", "s2")
REPAIRED = replace(WORST, basis="repair", slowdown=3.0)


@pytest.mark.parametrize(("changed", "expected"), [
    ({"outcomes": (), "felt": (), "unfelt": ()}, "The fabric has no part of the chosen kinds that can fail."),
    ({"outcomes": (), "felt": ()}, "No flow uses the 2 cables that can fail: no failure changes anything."),
    ({"outcomes": (replace(WORST, lost=(LOST,)),)}, "2 failures leave up to 1 flow without a path."),
    ({"present": replace(FAILURES.present, unrouted=(LOST, LOST))}, "2 flows have no path even without a failure."),
    ({"pinned": False}, "No flow is pinned now: these results are for"),
    (
        {"outcomes": (REPAIRED,)},
        "before 1 case was planned: only the slowdown after the repair is known. To see the slowdown",
    ),
    ({"outcomes": (REPAIRED,)}, "with a slowdown of 3.00 after the repair (at most 50.0% above the best)"),
])  # fmt: skip
def test_the_answer_about_failures_says(changed: dict[str, Any], expected: str) -> None:
    assert expected in said_of_failures(FAILURES, **changed)


@pytest.mark.parametrize(("fields", "problem"), [
    ({"kinds": [pb.FAILURE_KIND_SPINE, 9]}, "kinds[1]"),
    ({"kinds": [0]}, "kinds[0]"),
    ({"within": Duration(seconds=121)}, "within"),
    ({"within": Duration(seconds=-1)}, "within"),
    ({"within": Duration()}, "within"),
    ({"names": ["spine2"], "kinds": [pb.FAILURE_KIND_SPINE]}, "names"),
    ({"kinds": [pb.FAILURE_KIND_PARTS]}, "kinds"),
])  # fmt: skip
def test_a_wrong_request_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        what_if_request(pb.WhatIfRequest(**fields), Fabric())
    assert [found.path for found in refused.value.problems] == [problem]


def test_named_parts_come_once_and_names_of_circuits_are_told_from_those_of_other_parts() -> None:
    request = pb.WhatIfRequest(names=["server3", "server1:2", "server1:2", "server3"])
    asked = what_if_request(request, rings(3, (1,)))
    assert asked.names == ("server3",)
    assert [(each.name, len(each.links)) for each in asked.circuits] == [("server1:2", 2)]


def test_the_answer_about_named_parts_is_about_them_alone() -> None:
    parts = Failure(FailureKind.PARTS, "spine2, leaf1:3", frozenset())
    outcome = replace(WORST, case=Case(FailureKind.PARTS, (parts,)), example=parts)
    felt = what_if_message(replace(FAILURES, outcomes=(outcome,), felt=(outcome.case,), unfelt=()))
    assert list(felt.answer[1:]) == [
        "Without spine2, leaf1:3 the worst job has a slowdown of 2.00 after planning (no routing is better); under "
        "ECMP 2.50 on average.",
        "All flows keep a path.",
    ]
    unfelt = what_if_message(replace(FAILURES, outcomes=(), felt=(), unfelt=(outcome.case,)))
    assert list(unfelt.answer[1:]) == ["No flow uses the named parts: their failure changes nothing."]


def test_a_measured_efficiency_is_not_compared_where_none_is_predicted() -> None:
    answer = said(SLOWED, efficiency_measured=0.3, withheld="it depends on the library")
    assert "(efficiency" not in answer
    assert "No efficiency is predicted: it depends on the library. The measured efficiency is 30.0%." in answer


def test_a_repair_that_is_proven_was_not_too_late() -> None:
    proven = replace(WORST, basis="repair", repaired_slowdown=2.0)
    assert "time limit ended" not in said_of_failures(FAILURES, outcomes=(proven,))
