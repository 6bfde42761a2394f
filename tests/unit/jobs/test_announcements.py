"""The job that announces a pair of hosts, while jobs are added, change and are removed."""

from __future__ import annotations

from controller.jobs.job import Announcements, Job, Vitals
from controller.jobs.messages import Registration
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.subflows import Dividing, Pair
from tests.support.fake_fabric import ring_job

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


def announced(job: str, *pairs: Pair, at: float = 0.0, shares: bool = False) -> Job:
    """Return a job that announces these pairs; ``shares``: whether the job reports its connections."""
    links = VirtualLinks(VirtualLink(src, dst, 0, 1) for src, dst in pairs)
    registration = Registration(ring_job(job, ["10.0.0.1", "10.0.0.2"]), registered_at=at)
    return Job(registration, links, Vitals(0.0), Dividing(owner=job if shares else ""), links.addresses)


def test_a_job_that_changes_has_its_new_pairs_and_no_others() -> None:
    for shares in (False, True):
        announcements = Announcements()
        before = announced("job", AB, BC, shares=shares)
        announcements.add(before)
        announcements.change(before, announced("job", BC, CD, shares=shares))
        assert [announcements.first(pair) for pair in (AB, BC, CD)] == [None, "job", "job"]


def test_of_jobs_that_share_a_pair_the_first_that_was_registered_holds_it() -> None:
    announcements = Announcements()
    late, early = announced("late", AB, at=2.0, shares=True), announced("early", AB, at=1.0, shares=True)
    for job in (late, early):
        announcements.add(job)
    assert (announcements.first(AB), announcements.owner(AB)) == ("early", None)
    announcements.change(early, announced("early", AB, at=3.0, shares=True))
    assert announcements.first(AB) == "late"
    announcements.remove(late)
    assert announcements.first(AB) == "early"


def test_a_job_that_begins_to_report_its_connections_shares_its_pairs() -> None:
    announcements = Announcements()
    before = announced("job", AB)
    announcements.add(before)
    assert (announcements.owner(AB), announcements.holder(("b", "a"))) == ("job", "job")
    announcements.change(before, announced("job", AB, shares=True))
    assert (announcements.owner(AB), announcements.first(AB)) == (None, "job")
    assert list(announcements.near([("b", "a")])) == [("job", AB)]


def test_a_job_that_is_found_on_a_reverse_pair_owns_it_until_that_is_forgotten() -> None:
    announcements = Announcements()
    other = announced("other", CD)
    for job in (announced("job", AB), other):
        announcements.add(job)
    added = announcements.version
    announcements.found(other, [("b", "a"), CD])
    found = announcements.version
    assert found > added
    assert announcements.owner(("b", "a")) == "other"
    assert announcements.forget_found(other.id) == {("b", "a")}
    assert announcements.version > found
    assert announcements.owner(("b", "a")) == "job"
