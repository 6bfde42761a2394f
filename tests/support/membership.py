"""A job's ``Membership`` (its registration) on a clock that tests move, and a fake controller that it calls."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

from signalbox.client import Unreachable
from signalbox.errors import AlreadyExists, Gone, InvalidInput, NotFound, WrongLeaseToken
from signalbox.jobs.reports import Accepted, Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.membership import Ended, Membership

LEASE_S = 60.0
HOUR_S = 3600.0
THERE, BACK = Connected("10.0.1.1", 40_001, "10.0.2.1", 50_001), Connected("10.0.2.1", 40_002, "10.0.1.1", 50_002)


def spec(**more: object) -> JobSpec:
    return JobSpec.parse({"job_id": "job", "endpoints": ["10.0.1.1", "10.0.2.1"], "lease_s": LEASE_S, **more})


@dataclass
class FakeController:
    """Controller that keeps one job.

    ``away``: the error that every call raises."""

    away: Exception | None = None
    held: str = ""  # token of the registration that holds the job id
    spec: JobSpec | None = None  # spec of that registration
    gone: Gone = Gone.NO_SUCH_JOB
    registrations: list[dict[str, Any]] = field(default_factory=list)
    renewals: int = 0
    calls: int = 0
    reported: list[int] = field(default_factory=list)
    told: list[tuple[str, set[Connected]]] = field(default_factory=list)
    refuses_iterations: bool = False
    refuses_updates: Exception | None = None
    updates: list[JobSpec] = field(default_factory=list)
    wait_s: float | None = None
    ended: int = 0
    opened: int = 0
    closed: int = 0

    def connect(self) -> Self:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, take_over: bool) -> Any:
        self._called()
        if self.held and self.held != lease_token and not take_over:
            raise AlreadyExists("job 'job' belongs to another registration", {"heldBy": "other"})
        if self.held and self.held == lease_token:
            if spec != self.spec:
                raise AlreadyExists("job 'job' is registered with another spec", {"heldBy": "caller"})
            return SimpleNamespace(lease_token=self.held)
        self.registrations.append({"request_id": request_id, "take_over": take_over, "spec": spec})
        self.held, self.spec = f"token {len(self.registrations)}", spec
        return SimpleNamespace(lease_token=self.held)

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._called(lease_token)
        if self.refuses_updates:
            raise self.refuses_updates
        self.spec = spec
        self.updates.append(spec)

    def renew_lease(self, job_id: str, lease_token: str) -> float:
        self._called(lease_token, job_id)
        self.renewals += 1
        return LEASE_S

    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> Accepted:
        self._called(lease_token, job_id)
        if self.refuses_iterations:
            raise InvalidInput.of("iterations[0].duration", "must be more than 0")
        self.reported += [iteration.index for iteration in iterations]
        return Accepted(len(iterations), self.wait_s)

    def report_connections(self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str) -> None:
        self._called(lease_token, job_id)
        self.told.append((address, set(connections)))

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._called(lease_token, job_id)
        self.held = ""
        self.ended += 1

    def forget(self, gone: Gone = Gone.LEASE_RAN_OUT) -> None:
        self.held, self.gone = "", gone

    def _called(self, token: str | None = None, job_id: str = "job") -> None:
        self.calls += 1
        assert job_id == "job"
        if self.away:
            raise self.away
        if token is not None and not self.held:
            raise NotFound("there is no job 'job'", self.gone)
        if token is not None and token != self.held:
            raise WrongLeaseToken("the lease token is not the job's")


@dataclass
class Training:
    """``Membership`` whose rounds of calls run only when the test calls ``round`` or ``go_on``.

    After each round the clock stands at the time of the following round."""

    controller: FakeController
    spec: JobSpec = field(default_factory=spec)
    connections: Callable[[], frozenset[Connected] | None] = lambda: None
    take_over: bool = False
    hands_over: bool = False
    now: float = 1000.0
    ended: list[Ended] = field(default_factory=list)
    contacts: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        connect = self.controller.connect
        self.membership = Membership(
            connect, self.spec, self.ended.append, self.connections, self.take_over, self._on_contact, self.hands_over
        )
        self.over = False

    def _on_contact(self) -> None:
        self.contacts.append(self.membership.in_touch)

    def report(self, *indices: int) -> None:
        for index in indices:
            self.membership.report(IterationTime(index, 1.0, 0.9))

    def round(self) -> float | None:
        """Run one round, and return the seconds until the next round; None after the last one."""
        pause_s = self.membership.round(self.now)
        self.over = pause_s is None
        self.now += pause_s or 0.0
        return pause_s

    def go_on(self, for_s: float) -> list[float]:
        until, pauses = self.now + for_s, []
        while self.now < until and not self.over:
            pauses.append(self.round() or 0.0)
        return pauses


UNREACHABLE = Unreachable("no answer from the controller at 10.0.0.1:50051: the answer did not arrive in time")
