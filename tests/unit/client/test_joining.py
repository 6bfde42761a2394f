"""The functions that users call: after any error the training program continues, unless it requested errors."""

import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import signalbox
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput
from signalbox.jobs.reports import REPORT_S, Accepted, Connected, IterationTime, Step
from signalbox.jobs.spec import JobSpec
from signalbox.joining import AT_ONCE, _between
from signalbox.membership import Ended, Membership
from signalbox.remote_client import RemoteClient
from signalbox.rounds import Rounds
from signalbox.route_following import PackedRoutes
from signalbox.slots import Slot
from tests.support.waiting import until

ENDPOINTS = ["10.0.1.1", "10.0.2.1"]
SPEC = {"job_id": "job", "endpoints": ENDPOINTS, "lease_s": 30.0}


class FakeClient:
    """Stand-in for all instances of ``RemoteClient``."""

    made: list[Any]
    specs: list[JobSpec]
    took_over: list[bool]
    reported: list[IterationTime]
    wait_s: float | None = None

    def __init__(self, address: str, _timeout_s: float, credentials: Credentials) -> None:
        self.made.append((address, credentials))

    def register_job(self, spec: JobSpec, **how: Any) -> Any:
        self.specs.append(spec)
        self.took_over.append(how["take_over"])
        return SimpleNamespace(lease_token="token")

    def update_job(self, spec: JobSpec, **_: Any) -> None:
        self.specs.append(spec)

    def report_iterations(self, _job_id: str, iterations: list[IterationTime], _token: str) -> Accepted:
        self.reported.extend(iterations)
        return Accepted(len(iterations), self.wait_s)

    def deregister_job(self, *_: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    FakeClient.made, FakeClient.specs, FakeClient.took_over, FakeClient.reported = [], [], [], []
    for name in ("SIGNALBOX_JOB", "SIGNALBOX_TAKE_OVER", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("signalbox.joining.RemoteClient", FakeClient)
    return FakeClient


@pytest.mark.parametrize(("given", "fields"), [
    ("job", {"endpoints": ENDPOINTS}), (SPEC, {}), (SPEC, {"lease_s": 5.0}), (JobSpec.parse(SPEC), {"lease_s": 5.0}),
], ids=["keywords", "mapping", "changed mapping", "changed spec"])  # fmt: skip
def test_a_spec_is_given_in_any_form(given: Any, fields: dict[str, Any], clients: type[FakeClient]) -> None:
    with signalbox.join(given, **fields) as job:
        until(lambda: job.registered)
        assert (job.id, job.ended) == ("job", None)
    spec = {**({} if given == "job" else SPEC), "job_id": "job", "keeps_slots": True, **fields}
    assert clients.specs == [JobSpec.parse(spec)]
    assert job.ended is Ended.LEFT


@pytest.mark.parametrize(
    ("environment", "given", "takes_over"),
    [("", None, False), ("1", None, True), ("0", None, False), ("1", False, False), ("", True, True)],
)
def test_a_program_has_the_id_of_what_started_it_and_takes_its_job_over_unless_told_otherwise(
    environment: str, given: bool | None, takes_over: bool, clients: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_JOB", "of-the-launcher")
    monkeypatch.setenv("SIGNALBOX_TAKE_OVER", environment)
    with signalbox.join(endpoints=ENDPOINTS, take_over=given) as job:
        until(lambda: job.registered)
        assert job.id == clients.specs[0].job_id == "of-the-launcher"
    assert clients.took_over == [takes_over]


def test_an_announcement_is_updated_and_wrong_updates_are_only_logged(
    clients: type[FakeClient], caplog: pytest.LogCaptureFixture
) -> None:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
    with signalbox.join(SPEC) as job:
        job.update(transfers=[{"src": 0, "dst": 2, "bytes_per_iteration": 1000}])
        assert "cannot be changed (the training continues): transfers[0].dst: rank 2" in caplog.text
        job.update(transfers=transfers)
        until(lambda: len(clients.specs) == 2)
    job.update(transfers=[])
    spec = {**SPEC, "keeps_slots": True}
    assert clients.specs == [JobSpec.parse(spec), JobSpec.parse({**spec, "transfers": transfers})]


def test_address_and_credentials_are_those_of_the_environment_unless_given(
    clients: type[FakeClient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files of credentials stay the same when the program changes its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_ADDRESS", "192.0.2.10:50051")
    monkeypatch.setenv("SIGNALBOX_TLS_CA", "/etc/signalbox/ca.pem")
    with signalbox.join(SPEC):
        until(lambda: bool(clients.specs))
    with signalbox.join(SPEC, address="unix:/run/signalbox/api.sock", credentials=Credentials(tls_ca="ca.pem")):
        until(lambda: len(clients.specs) == 2)
    assert clients.made == [
        ("192.0.2.10:50051", Credentials(tls_ca=Path("/etc/signalbox/ca.pem"))),
        ("unix:/run/signalbox/api.sock", Credentials(tls_ca=tmp_path / "ca.pem")),
    ]


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a field": ("job", {"endpoints": ["10.0.1.1", "10.0.2.300"]}, "endpoints[1]: must be an IPv4 address"),
    "an option": ("job", {"endpoints": ENDPOINTS, "adress": "192.0.2.10:50051"}, "adress: unknown field"),
    "nothing else": ("job", {}, "endpoints: is missing"),
    "no id": (None, {"endpoints": ENDPOINTS}, "job: the id of the job is missing: give it, or set SIGNALBOX_JOB"),
    "a number": (7, {"endpoints": ENDPOINTS}, "job_id: must be text"),
    "no address": (SPEC, {"address": "192.0.2.10"}, "address: must be HOST:PORT or unix:PATH"),
    "a rank": (SPEC, {"rank": "first"}, "first"),
    "a mapping": ({"job": "job"}, {}, "job: unknown field"),
}


@pytest.mark.parametrize(("given", "more", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_logged_once_and_the_training_goes_on_unless_it_is_strict(
    given: Any, more: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture, clients: type[FakeClient]
) -> None:
    with signalbox.join(given, **more) as job:
        with job.step():
            pass
        job.iteration(1.0, 0.5)
        assert (job.routes, job.shares, job.registered) == ((), {}, False)
    assert job.ended is Ended.REFUSED
    assert not clients.made
    (record,) = caplog.records
    assert said in record.getMessage()
    with pytest.raises((InvalidInput, ValueError)) as error:
        signalbox.join(given, strict=True, **more)
    assert said in str(error.value)


def test_an_environment_whose_grpc_cannot_be_imported_trains_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('built for another C library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("signalbox.joining.RemoteClient", RemoteClient)
    with signalbox.join(SPEC) as job:
        until(lambda: bool(caplog.records))
        assert not job.registered
    assert "does not start: ImportError: built for another C library" in caplog.text
    assert len(caplog.records) == 1
    with pytest.raises(AttributeError, match="no attribute 'leave'"):
        getattr(signalbox, "leave")  # noqa: B009


def test_other_ranks_announce_nothing_and_a_kernel_that_does_not_tell_what_sockets_carry_is_logged_once(
    clients: type[FakeClient], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("signalbox.socket_bytes.NETLINK_SOCK_DIAG", 255)
    threads = threading.active_count()
    with signalbox.join("job", rank=1) as job:
        job.iteration(1.0, 0.5)
        assert threading.active_count() <= threads + 1, "at most that of SIGTERM"
        assert job.exchanged() == job.exchanged() == {}
        assert job.connections() == frozenset()
    assert not clients.made
    assert len(caplog.records) == 1


def test_iterations_are_numbered_and_times_that_cannot_be_are_left_out(
    clients: type[FakeClient], caplog: pytest.LogCaptureFixture
) -> None:
    wrong: tuple[Any, ...] = (0.0, -1.0, float("nan"), float("inf"), 8 * 86_400.0, None, "long")
    with signalbox.join(SPEC) as job:
        job.iteration(1.0, 0.5)
        for duration_s in wrong:
            job.iteration(duration_s)
        job.iteration(1.0, 0.0)
        job.iteration(1.0, float("nan"))
        job.iteration(2.0)
        job.iteration(3.0, 3.5)
        until(lambda: job.registered)
    times = [(one.index, one.duration_s, one.communication_s) for one in clients.reported]
    assert times == [(0, 1.0, 0.5), (1, 2.0, 2.0), (2, 3.0, 3.0)]
    assert len(caplog.records) == 1


def test_the_first_iterations_and_long_ones_are_reported_at_once(
    clients: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of calls in this test are caused by iterations alone; no regular round is due."""
    one_round, hurry = Membership.round, Rounds.hurry
    hurried: list[Rounds] = []

    def counted(rounds: Rounds) -> None:
        hurried.append(rounds)
        hurry(rounds)

    monkeypatch.setattr(Membership, "round", lambda *of: one_round(*of) and threading.TIMEOUT_MAX)
    monkeypatch.setattr(Rounds, "hurry", counted)
    with signalbox.join(SPEC, keeps_slots=False) as job:
        until(lambda: job.registered)
        for _ in range(AT_ONCE):
            job.iteration(0.01)
        assert len(hurried) == AT_ONCE
        job.iteration(REPORT_S - 0.01)
        assert len(hurried) == AT_ONCE, "it waits for the next round"
        began = time.monotonic()
        job.iteration(REPORT_S)
        assert len(hurried) == AT_ONCE + 1
        until(lambda: len(clients.reported) == AT_ONCE + 2)
        ended_at = clients.reported[-1].ended_at
        assert ended_at is not None
        assert began <= ended_at <= time.monotonic()


def test_a_step_is_timed_with_its_communication_unless_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("signalbox.jobs.reports.time", SimpleNamespace(perf_counter=lambda: now))
    reported: list[tuple[float | None, ...]] = []

    def report(*times: float | None) -> None:
        reported.append(times)

    with Step(report):
        now += 2.0
    with Step(report) as step:
        now += 1.0
        for part_s in (0.5, 0.25):
            with step.communication():
                now += part_s
    with pytest.raises(KeyboardInterrupt), Step(report):
        raise KeyboardInterrupt
    assert reported == [(2.0, None, None), (1.75, 0.75, 1.0)]


def test_a_program_that_reports_iterations_itself_does_not_keep_slots(clients: type[FakeClient]) -> None:
    with signalbox.join(SPEC) as job:
        with job.step():
            pass
        job.iteration(2.0, 1.0, 0.5)
        job.iteration(2.0, 1.0, 9.0)
        until(lambda: len(clients.reported) == 3 and len(clients.specs) == 2)
    assert [spec.keeps_slots for spec in clients.specs] == [True, False]
    assert [each.until_communication_s for each in clients.reported] == [None, 0.5, 2.0]


def test_a_late_step_waits_before_its_first_communication_and_leaves_the_wait_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("signalbox.jobs.reports.time", SimpleNamespace(perf_counter=lambda: now))
    reported: list[tuple[float | None, ...]] = []

    def wait() -> None:
        nonlocal now
        now += 8.0

    with Step(lambda *times: reported.append(times), wait, late=True) as step:
        now += 1.0
        assert now == 101.0
        for part_s in (0.5, 0.25):
            with step.communication():
                assert now >= 109.0
                now += part_s
    with Step(lambda *times: reported.append(times), wait, late=True):
        now += 2.0
    assert reported == [(1.75, 0.75, 1.0), (2.0, None, None)]


@pytest.mark.parametrize("measures", [False, True])
def test_a_step_waits_for_the_slot_of_the_job(
    clients: type[FakeClient], monkeypatch: pytest.MonkeyPatch, measures: bool
) -> None:
    """The stream of routes opens when the controller first says how long to wait, and has the slot."""
    slot = Slot(1.0, 0.02, 1)
    monkeypatch.setattr(FakeClient, "wait_s", 0.01)
    monkeypatch.setattr(FakeClient, "watch_routes", lambda *_: iter([PackedRoutes("", (), slot)]), raising=False)
    with signalbox.join(SPEC) as job:
        with job.step():
            pass
        until(lambda: job._waits.has_slot)
        for _ in range(2):  # after more, the program corrects waits by the times of its own iterations
            with job.step() as step, step.communication() if measures else nullcontext():
                pass
            until(lambda: job._waits._granted[0] == job._waits._last)
        with job.step() as step, step.communication() if measures else nullcontext():
            pass
        until(lambda: len(clients.reported) == 4)
    waits = [each.waited_s for each in clients.reported]
    assert waits[0] == 0.0
    assert waits[-1] >= 0.01
    with job.step():
        pass
    assert job._waited_s == 0.0, "who has left does not wait"


def test_threads_that_report_at_the_same_time_lose_nothing(clients: type[FakeClient]) -> None:
    with signalbox.join(SPEC) as job:

        def report() -> None:
            for _ in range(100):
                job.iteration(1.0)

        threads = [threading.Thread(target=report) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: job.registered)
    assert sorted(iteration.index for iteration in clients.reported) == list(range(800))


def test_connections_that_cannot_be_asked_for_are_logged_once_and_hold_nothing_up(
    clients: type[FakeClient], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.membership.REPORT_S", 0.001)
    asked = []

    def fail() -> None:
        asked.append(1)
        raise ZeroDivisionError("a fault of the training program")

    with signalbox.join(SPEC, reports_connections=True, connections=fail) as job:
        until(lambda: len(asked) > 1)
        job.iteration(1.0)
        until(lambda: bool(clients.reported))
    assert ["a fault of the training program" in record.getMessage() for record in caplog.records] == [True]


HERE, THERE, ELSEWHERE = "10.0.1.1", "10.0.2.1", "10.0.9.9"


def test_connections_of_the_job_are_those_between_its_addresses_but_not_that_to_a_controller() -> None:
    by_name, socket = "controller.example:50051", "unix:/run/signalbox/api.sock"
    for controllers in (("10.0.2.1:50051",), (by_name,), ("10.9.9.9:50052", "10.0.2.1:50051"), (socket,)):
        counts = _between(frozenset({HERE, THERE}), controllers)
        assert counts(Connected(HERE, 40_000, THERE, 29_500))
        assert counts(Connected(THERE, 29_500, HERE, 40_000))
        assert not counts(Connected(HERE, 40_000, ELSEWHERE, 443))
        assert not counts(Connected(HERE, 40_000, HERE, 29_500))
        assert counts(Connected(HERE, 40_001, THERE, 50_051)) is (controllers == (socket,))
