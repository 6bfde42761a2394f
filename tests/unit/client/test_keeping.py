"""Many jobs of one process: their registrations, the messages about each, and the work of the next process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from signalbox.commands.lease_files import LeaseFiles
from signalbox.errors import AlreadyExists, Gone, InvalidInput, NotFound, SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import JobSpec
from signalbox.keeping import WORKERS, Keeper, NoTokens
from signalbox.membership import Ended
from tests.support.waiting import DEADLINE_S, until

HERE, THERE, ELSEWHERE = "10.0.1.1", "10.0.2.1", "10.0.3.1"


def spec(job: str, *endpoints: str) -> JobSpec:
    return JobSpec.parse({"job_id": job, "endpoints": endpoints or (HERE, THERE), "lease_s": 600.0})


@dataclass
class FakeController:
    """Controller with its jobs, and the token of each.

    ``away``: the error that every call raises."""

    away: Exception | None = None
    jobs: dict[str, tuple[JobSpec, str]] = field(default_factory=dict)
    ends: dict[str, Gone] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    opened: int = 0
    closed: int = 0
    answering: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answering.set()

    def connect(self) -> FakeController:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, **_: Any) -> Any:
        self._called("register", spec.job_id)
        held = self.jobs.get(spec.job_id)
        if held and held[1] != lease_token:
            raise AlreadyExists("another registration has the id", {"heldBy": "other"})
        if held and held[0] != spec:
            raise AlreadyExists("has another spec", {"heldBy": "caller"})
        token = held[1] if held else f"token of {request_id}"
        self.jobs[spec.job_id] = (spec, token)
        return SimpleNamespace(lease_token=token)

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._owned("update", spec.job_id, lease_token)
        self.jobs[spec.job_id] = (spec, lease_token)

    def renew_lease(self, job_id: str, lease_token: str) -> float:
        self._owned("renew", job_id, lease_token)
        return 600.0

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._owned("deregister", job_id, lease_token)
        del self.jobs[job_id]

    def told(self, job_id: str) -> list[str]:
        return [call for call, job in self.calls if job == job_id]

    def _owned(self, call: str, job_id: str, token: str) -> None:
        self._called(call, job_id)
        if job_id not in self.jobs:
            raise NotFound("no such job", self.ends.get(job_id, Gone.NO_SUCH_JOB))
        if self.jobs[job_id][1] != token:
            raise WrongLeaseToken("the lease token is not the job's")

    def _called(self, call: str, job_id: str) -> None:
        self.threads.add(threading.get_ident())
        assert self.answering.wait(DEADLINE_S)
        self.calls.append((call, job_id))
        if self.away:
            raise self.away


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def keeper(controller: FakeController) -> Iterator[Keeper]:
    with kept(controller) as keeper:
        yield keeper


@contextmanager
def kept(
    controller: FakeController, connect: Callable[[], FakeController] | None = None, **more: Any
) -> Iterator[Keeper]:
    keeper = Keeper(connect or controller.connect, **more)
    try:
        yield keeper
    finally:
        controller.answering.set()
        keeper.close()
        assert not any(thread.is_alive() for thread in keeper._threads)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signalbox.membership.pause_after", lambda *_: 0.01)


def test_jobs_are_registered_changed_and_released(controller: FakeController, keeper: Keeper) -> None:
    for job in ("a", "a", "b"):
        keeper.keep(spec(job))
    until(lambda: set(controller.jobs) == {"a", "b"})
    keeper.keep(changed := spec("a", HERE, ELSEWHERE))
    until(lambda: controller.jobs["a"][0] == changed)
    keeper.release("b")
    until(lambda: set(controller.jobs) == {"a"})
    assert controller.told("a") == ["register", "update"]


def test_a_few_threads_keep_thousands_of_jobs(controller: FakeController, keeper: Keeper) -> None:
    before = threading.active_count()
    for n in range(1000):
        keeper.keep(spec(f"job{n}"))
    until(lambda: len(controller.jobs) == 1000)
    assert threading.active_count() <= before  # a thread of another test may end meanwhile
    assert len(controller.threads) <= WORKERS
    assert controller.opened <= WORKERS


def test_what_comes_while_a_call_is_under_way_is_told_after_it(controller: FakeController, keeper: Keeper) -> None:
    controller.answering.clear()
    keeper.keep(spec("a"))
    until(lambda: bool(controller.threads))
    keeper.keep(spec("a", HERE, ELSEWHERE))
    keeper.release("a")
    keeper.keep(last := spec("a", THERE, ELSEWHERE))
    controller.answering.set()
    until(lambda: "a" in controller.jobs and controller.jobs["a"][0] == last)


def test_a_job_that_comes_back_while_it_is_released_is_registered_again(
    controller: FakeController, keeper: Keeper
) -> None:
    keeper.keep(spec("a"))
    until(lambda: keeper.registered("a"))
    first = controller.jobs["a"][1]
    controller.threads.clear()
    controller.answering.clear()
    keeper.release("a")
    until(lambda: bool(controller.threads))
    keeper.keep(spec("a"))
    controller.answering.set()
    until(lambda: "a" in controller.jobs and controller.jobs["a"][1] != first)
    until(lambda: keeper.registered("a"))


def test_nothing_is_lost_while_the_controller_is_away(controller: FakeController, keeper: Keeper) -> None:
    keeper.keep(spec("a"))
    until(lambda: keeper.registered("a"))
    controller.away = SignalboxError("no answer")
    keeper.release("a")
    keeper.keep(spec("b"))
    until(lambda: len(controller.told("b")) > 2)
    controller.away = None
    until(lambda: set(controller.jobs) == {"b"})


def test_wrong_credentials_are_read_again(controller: FakeController) -> None:
    broken = True

    def connect() -> FakeController:
        if broken:
            raise InvalidInput.of("token", "No such file or directory")
        return controller.connect()

    with kept(controller, connect) as keeper:
        keeper.keep(spec("a"))
        broken = False
        until(lambda: keeper.registered("a"))


# ---- jobs that end


def left_alone(controller: FakeController, keeper: Keeper, job_id: str, *specs: JobSpec) -> bool:
    """Return whether the keeper makes no call for the job when the test lets it keep ``specs`` one after the other.

    ``keeper`` has one worker. The worker has handled ``specs`` when it registers the next job."""
    until(lambda: not keeper._jobs[job_id].busy)
    calls = len(controller.told(job_id))
    for one in (*specs, spec(f"after-{job_id}")):
        keeper.keep(one)
    until(lambda: keeper.registered(f"after-{job_id}"))
    return len(controller.told(job_id)) == calls


def test_a_job_that_was_taken_over_is_waited_for_after_its_release_and_one_that_an_operator_ended_with_another_spec(
    controller: FakeController,
) -> None:
    """The training program takes over job a. The keeper does not take the job back when its spec changes."""
    ends: list[tuple[str, Ended]] = []
    with kept(controller, on_end=lambda *end: ends.append(end), workers=1) as keeper:
        keeper.keep(spec("a"))
        until(lambda: keeper.registered("a"))
        controller.jobs["a"] = (spec("a"), "the program's")
        keeper.keep(spec("a", HERE, ELSEWHERE))
        until(lambda: ends == [("a", Ended.TAKEN_OVER)])
        assert left_alone(controller, keeper, "a", spec("a", THERE, ELSEWHERE), spec("a"))
        keeper.release("a")
        keeper.keep(spec("a"))
        until(lambda: len(controller.told("a")) > 3)
        assert (controller.jobs["a"][1], keeper.registered("a")) == ("the program's", False)
        del controller.jobs["a"]
        until(lambda: keeper.registered("a"))
        keeper.keep(spec("b"))
        until(lambda: keeper.registered("b"))
        controller.ends["b"] = Gone.JOB_DEREGISTERED
        del controller.jobs["b"]
        keeper.keep(changed := spec("b", HERE, ELSEWHERE))
        until(lambda: ends[1:] == [("b", Ended.DEREGISTERED)])
        assert left_alone(controller, keeper, "b", changed)
        keeper.keep(spec("b"))
        until(lambda: keeper.registered("b"))


def test_whoever_looks_while_a_job_begins_sees_that_it_is_not_registered(controller: FakeController) -> None:
    keepers: list[Keeper] = []
    seen: list[bool] = []

    class Looking(NoTokens):
        def kept(self, job_id: str, /) -> str:
            seen.extend(keeper.registered(job_id) for keeper in keepers)
            return ""

    with kept(controller, tokens=Looking()) as one:
        keepers.append(one)
        one.keep(spec("a"))
        assert seen == [False]
        until(lambda: one.registered("a"))


def test_a_job_that_ended_and_is_released_is_kept_again_also_before_its_release_is_done(
    controller: FakeController,
) -> None:
    ended, go_on = threading.Event(), threading.Event()

    def on_end(_job_id: str, _why: Ended) -> None:
        ended.set()
        assert go_on.wait(DEADLINE_S)

    with kept(controller, on_end=on_end, workers=1) as keeper:
        keeper.keep(spec("a"))
        until(lambda: keeper.registered("a"))
        controller.ends["a"] = Gone.JOB_DEREGISTERED
        del controller.jobs["a"]
        keeper.keep(spec("a", HERE, ELSEWHERE))
        assert ended.wait(DEADLINE_S)
        keeper.release("a")
        keeper.keep(spec("a"))
        go_on.set()
        until(lambda: keeper.registered("a"))
        assert controller.jobs["a"][0] == spec("a")


# ---- processes that succeed each other


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeaseFiles:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return LeaseFiles("10.0.0.1:50051", tmp_path / "jobs")


def test_a_process_that_is_started_anew_goes_on_with_its_registrations_and_forgets_the_tokens_of_released_jobs(
    controller: FakeController, tokens: LeaseFiles
) -> None:
    with kept(controller, tokens=tokens) as keeper:
        for job in ("same", "changed"):
            keeper.keep(spec(job))
        until(lambda: len(controller.jobs) == 2)
    before = dict(controller.jobs)
    with kept(controller, tokens=tokens) as keeper:
        keeper.keep(spec("same"))
        keeper.keep(spec("changed", HERE, ELSEWHERE))
        until(lambda: keeper.registered("same") and keeper.registered("changed"))
        assert controller.jobs["same"] == before["same"]
        assert controller.jobs["changed"] == (spec("changed", HERE, ELSEWHERE), before["changed"][1])
        assert tokens.kept("same") == before["same"][1]
        for job in ("same", "changed"):
            keeper.release(job)
        until(lambda: (tokens.kept("same"), tokens.kept("changed"), controller.jobs) == ("", "", {}))


def test_tokens_that_cannot_be_written_keep_no_job_from_its_registration(
    controller: FakeController, tokens: LeaseFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "signalbox").write_text("no folder")
    with kept(controller, tokens=tokens) as keeper:
        keeper.keep(spec("a"))
        until(lambda: keeper.registered("a"))
    assert "job 'a': " in caplog.text
