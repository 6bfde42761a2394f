"""The job that announces a pair of hosts, while jobs are added, change and are removed."""

from __future__ import annotations

from dataclasses import dataclass

from controller.jobs.job import Announcements
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing, Pair

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


@dataclass(frozen=True)
class Announced:
    id: JobId
    pairs: frozenset[Pair]
    dividing: Dividing
    registered_at: float


def announced(job: str, *pairs: Pair, at: float = 0.0, shares: bool = False) -> Announced:
    """Return an announcement; ``shares``: whether the job reports its connections."""
    return Announced(JobId(job), frozenset(pairs), Dividing(owner=job if shares else ""), at)


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
