"""Sentences of ``explain`` about announcements, measured efficiencies, NICs and pins, as people read them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from controller.api.convert_explain import explain_message
from controller.demand.job_demand import DemandSource, Difference, Finding, JobDemand, Measurement
from controller.planning.analysis.messages import BusyLink, FoundRoutes, JobAnalysis, JobShare, Verdict
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.planning import analyses

G1, G2 = JobId("g1"), JobId("g2")
PAIR, BACK = ("10.0.1.1", "10.0.2.1"), ("10.0.2.1", "10.0.1.1")
FINE = replace(
    analyses.FINE, job_id=G1, fullest_links=(BusyLink("leaf1:1>spine1", False, 1.0, 0.0, (JobShare(G1, 1, 1.0),)),)
)
NOT_SLOWED = (
    "The network does not slow job 'g1': no link that the job uses is loaded above its capacity, so the job "
    "communicates as fast as its NICs allow (slowdown 1.00)."
)


def demand(source: DemandSource, difference: Difference | None = None) -> JobDemand:
    return JobDemand(
        source=source, virtual_links=VirtualLinks(), declared={PAIR: 1_000_000},
        measurement=Measurement((PAIR,), np.array([3e6]), 6.0, 2.5), difference=difference,
    )  # fmt: skip


DECLARED, CONFIRMED, MEASURED = map(demand, (DemandSource.DECLARED, DemandSource.CONFIRMED, DemandSource.MEASURED))
HALF = demand(DemandSource.MEASURED, Difference((Finding.OTHER_AMOUNTS,), off=((PAIR, 2.0),), factor=2.0))
DOUBLE = demand(DemandSource.MEASURED, Difference((Finding.OTHER_AMOUNTS,), off=((PAIR, 0.5),), factor=0.5))
BACKWARDS = demand(
    DemandSource.MEASURED, Difference((Finding.OTHER_TRAFFIC,), undeclared=((BACK, 3e6),), backwards=True)
)
OTHER = demand(DemandSource.MEASURED, Difference((Finding.OTHER_TRAFFIC,), undeclared=((BACK, 3e6),)))
SILENT = demand(DemandSource.CONFIRMED, Difference((Finding.SILENT,)))
SLOWER = demand(DemandSource.CONFIRMED, Difference((Finding.SLOWER,)))
SEEN = replace(
    demand(DemandSource.PROVISIONAL), virtual_links=VirtualLinks([VirtualLink(*BACK, 0, 1)]), declared={PAIR: 1_000_000}
)
WRONG = "The announcement of job 'g1' is wrong:"
COUNTED = "What follows rests on the bytes that switches count."
UNDECLARED = "10.0.2.1 > 10.0.1.1 carries 3 Mbit/s that are not announced."
PROVISIONAL = (
    "Job 'g1' announced its traffic as provisional, and counters have not yet confirmed it. What follows rests on the "
    "announcement."
)


def said(found: JobAnalysis) -> list[str]:
    return list(explain_message(found).answer)


def test_a_job_that_collides_with_itself_is_named_with_the_link() -> None:
    link = BusyLink("leaf1:1>spine1", False, 3.0, 0.0, (JobShare(G1, 2, 2.0), JobShare(G2, 1, 1.0)))
    collides = (
        "Job 'g1' collides with itself on leaf1:1>spine1: the 2 flows of the job there load it to 2.00 times its "
    )
    slow = replace(FINE, slowdown=3.0, own_link=link)
    for least, after in ((1.0, "sends."), (2.0, "sends. No routes avoid this.")):
        (sentence,) = (text for text in said(replace(slow, least_slowdown=least)) if "collides" in text)
        assert sentence == f"{collides}capacity even while no other job {after}"
    one = replace(link, jobs=(JobShare(G1, 1, 2.0),))
    assert not any("collides" in text for of in (None, one) for text in said(replace(slow, own_link=of)))


def changes(patterns: str, now: str) -> str:
    return (
        f"According to the counters of switches, job 'g1' changes between {patterns} traffic patterns, and sends {now}"
    )


@pytest.mark.parametrize(("of_job", "expected"), [
    (None, ""),
    (CONFIRMED, ""),
    (
        DECLARED,
        "Counters have not yet confirmed the announcement of job 'g1'. What follows rests on the announcement.",
    ),
    (
        MEASURED,
        "The routes of job 'g1' are planned for the bytes that switches count, not for those that it announced. "
        "What follows rests on the counted bytes.",
    ),
    (replace(MEASURED, declared={}), ""),
    (replace(MEASURED, declared={}, patterns=1), ""),
    (replace(SEEN, virtual_links=VirtualLinks([VirtualLink(*PAIR, 0, 1)])), PROVISIONAL),
    (demand(DemandSource.PROVISIONAL), PROVISIONAL),
    (
        replace(SEEN, difference=OTHER.difference),
        f"{WRONG} {UNDECLARED} What follows rests on the pairs of hosts that were seen to send.",
    ),
    (
        SEEN,
        "Job 'g1' sends on pairs of hosts that it did not announce; counters have not yet confirmed how much. "
        "What follows assumes that these pairs send equal bytes.",
    ),
    (
        replace(SEEN, declared={}),
        "Counters show which hosts of job 'g1' send to each other, but have not yet confirmed how much. What "
        "follows assumes that all these pairs of hosts send equal bytes.",
    ),
    (HALF, f"{WRONG} all announced pairs carry 2.0 times what was announced. {COUNTED}"),
    (DOUBLE, f"{WRONG} all announced pairs carry 0.50 times what was announced. {COUNTED}"),
    (
        BACKWARDS,
        f"{WRONG} all announced pairs carry traffic in the other direction only; {UNDECLARED} {COUNTED}",
    ),
    (OTHER, f"{WRONG} {UNDECLARED} {COUNTED}"),
    (
        replace(MEASURED, patterns=2, pattern=1),
        f"{changes('2', 'pattern 1 now')}. What follows rests on all of these patterns.",
    ),
    (
        replace(MEASURED, patterns=2, pattern=2, idle_phases=frozenset({0})),
        f"{changes('2', 'pattern 2 now')}. What follows rests on this pattern.",
    ),
    (
        replace(MEASURED, patterns=3),
        f"{changes('3', 'another pattern now')}. What follows rests on all of these patterns.",
    ),
    (SILENT, "Job 'g1' has stopped sending."),
    (SLOWER, "The current iteration of job 'g1' takes longer than the iterations before it."),
])  # fmt: skip
def test_the_answer_begins_with_what_it_rests_on(of_job: JobDemand | None, expected: str) -> None:
    answer = said(replace(FINE, demand=of_job))
    assert answer == [*filter(None, [expected]), NOT_SLOWED, "Routing can gain nothing."]


LOOK = "slow ranks, lost packets, or unannounced traffic."
NOT_ROUTING = f"the predicted efficiency 100.0%: the routes do not explain this. Look for {LOOK}"
NOT_POSSIBLE = (
    "which is not possible: the job announced too much, about {} times what it sends, or the job reports its "
    "iterations as too short."
)
OF_BYTES = " (for the bytes that switches count)"


@pytest.mark.parametrize(("of_job", "slowdown", "measured", "expected"), [
    (CONFIRMED, 1.0, 0.97, " is 97.0%, about as predicted."),
    (DECLARED, 1.0, 0.97, " is 97.0%, about as predicted."),
    (CONFIRMED, 1.0, 0.6, f" is 60.0%, {NOT_ROUTING}"),
    (
        DECLARED,
        1.0,
        0.276,
        " is 27.6%, the predicted efficiency 100.0%. The job may send more than it announced: counters will show "
        f"whether it does. Otherwise look for {LOOK}",
    ),
    (DECLARED, 1.0, 1.62, " is 162.0%, " + NOT_POSSIBLE.format("1.6")),
    (CONFIRMED, 1.0, 1.06, " is 106.0%, " + NOT_POSSIBLE.format("1.1")),
    (DECLARED, 2.0, 1.62, " is 162.0%, " + NOT_POSSIBLE.format("1.6")),
    (None, 1.0, 1.04, " is 104.0%, about as predicted."),
    (HALF, 1.0, 0.55, f"{OF_BYTES} is 55.0%, {NOT_ROUTING}"),
    (DOUBLE, 1.0, 0.81, f"{OF_BYTES} is 81.0%, the predicted efficiency"),
    (
        replace(MEASURED, declared={}),
        1.0,
        1.5,
        f"{OF_BYTES} is 150.0%, which is not possible: switches count bytes of other programs between the "
        "job's hosts, or the job reports its iterations as too short.",
    ),
    (
        CONFIRMED,
        2.0,
        0.8,
        " is 80.0%, better than the predicted 50.0%: the jobs on the same links do not always send at the same "
        "time.",
    ),
])  # fmt: skip
def test_a_measured_efficiency_is_judged(
    of_job: JobDemand | None, slowdown: float, measured: float, expected: str
) -> None:
    found = replace(FINE, demand=of_job, slowdown=slowdown, efficiency_measured=measured, efficiency_usual=measured)
    assert f"The measured efficiency{expected}" in said(found)[-1]
    assert explain_message(found).efficiency_measured == measured


@pytest.mark.parametrize(("usual", "expected"), [
    (0.6, "the routes do not explain this. Look for slow ranks, lost packets, or unannounced traffic."),
    (0.97, "some slow iterations, such as the first, reduce the mean. The efficiency of most iterations is 97.0%."),
    (None, "First iterations are often slow: ask again in a while."),
])  # fmt: skip
def test_hosts_are_not_blamed_for_single_slow_iterations(usual: float | None, expected: str) -> None:
    answer = said(replace(FINE, demand=CONFIRMED, efficiency_measured=0.6, efficiency_usual=usual))[-1]
    assert answer.startswith("The measured efficiency is 60.0%, the predicted efficiency 100.0%")
    assert answer.endswith(expected)


def test_an_efficiency_that_is_not_measured_yet_is_awaited_in_words() -> None:
    found = replace(FINE, demand=CONFIRMED, awaits_iterations=True)
    awaited = (
        "No efficiency is measured yet: the job has reported no iteration that began after the last change of its "
        "routes or planned bytes."
    )
    assert said(found)[-1] == awaited
    assert explain_message(found).awaits_iterations
    assert said(replace(found, withheld="it is a tree"))[-1] == f"No efficiency is predicted: it is a tree. {awaited}"


def nic(background: float, *jobs: JobId) -> BusyLink:
    return BusyLink("leaf1:5", True, 1.25, background, tuple(JobShare(job, 3, 1.25 / len(jobs)) for job in jobs))


BEST = FoundRoutes(1.25, 1.25, 1.25, "optimal", True, 0, 1, 1.25, 0)


TAKES = "its communication takes up to 1.25 times as long as on an idle fabric (efficiency 80.0%)."
OWN = "The fullest link of the job is leaf1:5. It is loaded to 1.25 times its capacity by 3 flows of the job"


@pytest.mark.parametrize(("of_nic", "slowed", "where"), [
    (
        nic(0.0, G1, G2),
        f"Job 'g1' is slowed by a NIC that it shares with job 'g2', not by the fabric: {TAKES}",
        f"{OWN} and 3 of job 'g2'.",
    ),
    (
        nic(0.2, G1),
        f"Job 'g1' is slowed by unannounced traffic at one of its NICs, not by the fabric: {TAKES}",
        f"{OWN} alone; unannounced traffic takes 20% of the capacity.",
    ),
    (
        nic(0.0, G1),
        f"Job 'g1' is slowed at the NIC leaf1:5 by its own flows, which alone use this NIC: {TAKES}",
        f"{OWN} alone.",
    ),
])  # fmt: skip
def test_a_job_shares_a_nic_only_with_others(of_nic: BusyLink, slowed: str, where: str) -> None:
    found = replace(FINE, slowdown=1.25, nic_slowdown=1.25, fullest_links=(of_nic,), fullest_nic=of_nic, best=BEST)
    found = replace(found, verdict=Verdict.NIC)
    assert said(found) == [slowed, where, "Routing can gain nothing: the load of a NIC does not depend on routes."]
    shares = len(of_nic.jobs) > 1
    rest = said(replace(found, verdict=Verdict.FABRIC))[2]
    assert ("a NIC that the job shares" in rest, "one of the job's NICs" in rest) == (shares, not shares)


def test_what_is_not_noticeable_is_not_called_slow() -> None:
    """A slowdown of 1.01 is below the noticeable 5 %, so no sentence names the NIC as its cause."""
    own = nic(0.0123, G1)
    found = replace(FINE, slowdown=1.0123, nic_slowdown=1.0123, fullest_links=(own,), fullest_nic=own)
    assert said(found) == [
        "The network does not slow job 'g1' noticeably: its communication takes up to 1.01 times as long as on an "
        "idle fabric, and an increase of less than 5% is not noticeable.",
        "Routing can gain 1.2% at most.",
    ]


@pytest.mark.parametrize(("found", "hashed", "best"), [
    (FINE, 1.0, 1.0),
    (replace(FINE, verdict=Verdict.ROUTING, slowdown=1.3, best=BEST), 1.27, 1.25),
])  # fmt: skip
def test_where_pinning_gains_nothing_the_answer_says_so(found: JobAnalysis, hashed: float, best: float) -> None:
    found = replace(found, hashed_slowdown=hashed, pinning_gains_nothing=True)
    (sentence,) = [each for each in said(found) if each.startswith("Pinning gains nothing for job 'g1' now: ")]
    assert (
        f"its slowdown is {hashed:.2f} on average if the switches hash its flows, and {best:.2f} with the" in sentence
    )
    message = explain_message(found)
    assert (message.hashed_slowdown, message.pinning_gains_nothing) == (hashed, True)
    assert not any("Pinning" in each for each in said(replace(found, pinning_gains_nothing=False)))


def test_numbers_in_sentences_are_those_of_the_fields() -> None:
    found = replace(FINE, demand=HALF, slowdown=2.125, efficiency_measured=0.3125, hashed_slowdown=2.0, best=BEST)
    found = replace(found, verdict=Verdict.ROUTING, pinning_gains_nothing=True)
    message = explain_message(found)
    numbers = set(re.findall(r"\d+\.\d+%?", " ".join(message.answer)))
    assert message.demand.findings == [pb.DEMAND_FINDING_OTHER_AMOUNTS]
    assert {f"{message.demand.factor:.1f}", f"{message.slowdown:.2f}", f"{message.hashed_slowdown:.2f}"} <= numbers
    assert {f"{message.efficiency_measured:.1%}", f"{message.efficiency_predicted:.1%}"} <= numbers
    assert f"{message.best.slowdown:.2f}" in numbers
