"""Jobs of ``Keeper`` objects that exchange hosts: their changes are made together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from controller.jobs.messages import RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import Conflict, HostNotAllowed, InvalidInput, SignalboxError, Unreachable, WrongLeaseToken
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.keeping import Keeper, update_with_others
from signalbox.membership import Change
from tests.support.waiting import until
from tests.unit.client.test_keeping import FakeController, kept

PAIRS = [("10.0.1.1", "10.0.2.1"), ("10.0.3.1", "10.0.4.1"), ("10.0.5.1", "10.0.6.1"), ("10.0.7.1", "10.0.8.1")]


def job(job_id: str, pair: int, **more: Any) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
    return JobSpec.parse({"job_id": job_id, "endpoints": PAIRS[pair], "transfers": transfers, "lease_s": 600.0, **more})


class Controller(FakeController):
    """Controller that accepts and refuses pairs of hosts as the real controller does.

    ``sets``: ids of jobs that were updated together."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = JobRegistry(max_jobs=10)
        self.sets: list[list[str]] = []

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, **more: Any) -> Any:
        registered = super().register_job(spec, lease_token=lease_token, request_id=request_id, **more)
        if JobId(spec.job_id) not in self.registry.jobs:
            self.registry.register(RegisterJob(spec, uid=registered.lease_token), 0.0)
        return registered

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._called("update", spec.job_id)
        self._update([UpdateJob(spec, owner=lease_token)])

    def update_jobs(self, specs: Sequence[JobSpec], *, lease_tokens: Mapping[str, str]) -> None:
        entries = enumerate(specs)
        self._update([UpdateJob(one, owner=lease_tokens[one.job_id], entry=f"jobs[{n}]") for n, one in entries])
        self.sets.append([one.job_id for one in specs])

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        super().deregister_job(job_id, lease_token)
        self.registry.deregister(JobId(job_id), lease_token, 0.0)

    def _update(self, updates: list[UpdateJob]) -> None:
        self.registry.update(updates)
        self.jobs |= {update.spec.job_id: (update.spec, str(update.owner)) for update in updates}

    def has(self, *specs: JobSpec) -> bool:
        return all(self.jobs.get(spec.job_id, (None,))[0] == spec for spec in specs)


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def keeper(controller: Controller) -> Iterator[Keeper]:
    with kept(controller) as keeper:
        for n, name in enumerate("abc"):
            keeper.keep(job(name, n))
        until(lambda: len(controller.jobs) == 3)
        yield keeper


def test_three_jobs_take_turns_one_spec_after_the_other(controller: Controller, keeper: Keeper) -> None:
    for name, pair in (("a", 1), ("b", 2)):
        keeper.keep(job(name, pair))
        until(lambda name=name: "update" in controller.told(name))  # type: ignore[misc]
    assert controller.has(job("a", 0), job("b", 1)), "each is refused until the last one has changed"
    keeper.keep(job("c", 0))
    until(lambda: controller.has(job("a", 1), job("b", 2), job("c", 0)))
    until(lambda: not any(one.membership.change for one in keeper._jobs.values()))


def test_what_was_refused_is_tried_again_when_a_job_is_released(controller: Controller, keeper: Keeper) -> None:
    keeper.keep(job("a", 1))
    until(lambda: "update" in controller.told("a"))
    keeper.release("b")
    until(lambda: controller.has(job("a", 1)))


# ---- choice of the other jobs


class Refusing:
    """Client whose first calls raise ``errors``, one each, and whose later calls succeed.

    ``asked``: the job ids of each call, joined."""

    def __init__(self, *errors: SignalboxError) -> None:
        self.errors = list(errors)
        self.asked: list[str] = []

    def update_jobs(self, specs: Sequence[JobSpec], *, lease_tokens: Mapping[str, str]) -> None:
        assert list(lease_tokens) == [spec.job_id for spec in specs]
        self.asked.append("".join(spec.job_id for spec in specs))
        if self.errors:
            raise self.errors.pop(0)


CHANGES = [Change(job(name, n), f"token of {name}") for n, name in enumerate("abc")]
ALONE = Conflict("alone")


def at(entry: int, kind: type[SignalboxError] = Conflict) -> SignalboxError:
    return kind("refused", {"field": f"jobs[{entry}]"})


def test_those_at_fault_are_left_out_and_a_controller_that_does_not_answer_has_not_refused() -> None:
    client = Refusing(at(2), InvalidInput.of("jobs[1].transfers[3].src", "is wrong"))
    assert update_with_others(client, CHANGES[0], ALONE, CHANGES[1:]) == ()
    assert client.asked == ["abc", "ab", "a"]
    for kind in (WrongLeaseToken, HostNotAllowed):
        client = Refusing(at(1, kind))
        assert update_with_others(client, CHANGES[0], ALONE, CHANGES[1:]) == ("c",)
    with pytest.raises(Unreachable):
        update_with_others(Refusing(Unreachable("no answer")), CHANGES[0], ALONE, CHANGES[1:])


NO_SUCH_CALL = SignalboxError("there is no such method")
NO_SUCH_CALL.reason = "NO_SUCH_METHOD"


@pytest.mark.parametrize("error", [at(0), Conflict("of none"), InvalidInput.of("jobs", "too many"), NO_SUCH_CALL])
def test_the_first_conflict_stays_when_others_do_not_help(error: SignalboxError) -> None:
    with pytest.raises(Conflict, match="alone"):
        update_with_others(Refusing(error), CHANGES[0], ALONE, CHANGES[1:])
