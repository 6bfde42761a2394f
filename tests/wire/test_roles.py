"""Every method of both services, called by each kind of caller: refusals, which reveal nothing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controller.api.access import RULES
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import NotAllowed, NotFound, SignalboxError, Unauthenticated, WrongLeaseToken
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import EventKind
from tests.support.captured_logs import captured_logs
from tests.support.known_members import only_member
from tests.support.wire.api_calls import reason
from tests.support.wire.control_stand_in import H1, H2, LEAF1, Running, running_api
from tests.support.wire.secured import secret_file, token_table

METHODS: dict[str, Any] = {
    method.name: method for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods
}
JOB = "blues-job"
ADDRESSES = ("10.0.66.1", "10.0.77.1")
SECRETS = (*ADDRESSES, "first-uid", "reports")
"""Texts about the job, none of which may be in an answer to other callers."""

DENIED, NONE, OK = "PERMISSION_DENIED", "NOT_FOUND", "OK"
READS: tuple[str, ...] = (
    "GetFabric", "GetPlan", "Explain", "WhatIf", "GetPlanProof", "ListEvents", "ListRules", "ListMembers",
)  # fmt: skip
READS += ("WatchFabric", "WatchPlan", "WatchAlarms", "WatchEvents")
OPERATIONS = (
    "Replan",
    "SetMode",
    "SilenceAlarms",
    "EndSilence",
    "Drain",
    "Undrain",
    "ForgetParts",
    "DrainMember",
    "UndrainMember",
    "ForgetMember",
)
UPDATES = ("UpdateJob", "UpdateJobs", "DeregisterJob")
EXPECTED = {
    "RegisterJob": ("ALREADY_EXISTS", DENIED),
    **dict.fromkeys(("GetJob", "WatchRoutes", "ListRoutes"), (NONE, OK)),
    **dict.fromkeys(("ListJobs", "WatchJobs", "GetStatus"), (OK, OK)),
    **dict.fromkeys((*UPDATES, "RenewLease", "ReportIterations", "ReportConnections"), (NONE, DENIED)),
    **dict.fromkeys(READS, (DENIED, OK)),
    **dict.fromkeys(OPERATIONS, (DENIED, DENIED)),
}
"""Results of each method for a tenant that does not have the job, and for a reader.

They are written down a second time, so that a loosened rule makes a test fail."""
REASON = {DENIED: "NOT_ALLOWED", NONE: "NO_SUCH_JOB", "ALREADY_EXISTS": "JOB_EXISTS", OK: ""}
AUDITED = {"RegisterJob", *UPDATES, *OPERATIONS}

TENANTS = {"blue": "tenant", "red": "tenant", "reader": "reader", "operator": "operator"}


def spec(job_id: str = JOB, addresses: tuple[str, str] = ADDRESSES) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
    return JobSpec.parse(
        {"job_id": job_id, "endpoints": addresses, "transfers": transfers, "reports_connections": True, "lease_s": 600}
    )


def token(name: str) -> str:
    return f"token-of-{name}"


class Served(NamedTuple):
    """Running server with a job.

    ``lease_token``: token of the job.
    ``former``: token of its previous registration."""

    api: Running
    directory: Path
    channel: grpc.Channel
    lease_token: str
    former: str

    def client(self, name: str | None) -> Client:
        return client(self.api, self.directory, name)


def client(api: Running, directory: Path, name: str | None) -> Client:
    if name is None:
        return Client(api.addresses[0])
    file = secret_file(directory / name, token(name))
    return Client(api.addresses[0], credentials=Credentials(token_file=file))


def tokens_file(directory: Path, quotas: str = "") -> Path:
    tables = (token_table(name, token(name), role) for name, role in TENANTS.items())
    return secret_file(directory / "tokens.toml", "\n".join(tables) + quotas)


@contextmanager
def serving(directory: Path) -> Iterator[Served]:
    """Run a server with a job of the tenant blue, which has taken the job over from its own earlier registration."""
    with running_api(tokens=tokens_file(directory), socket_role="none") as api:
        api.control.board.history.add(EventKind.CONTROLLER, "started", {}, time.time())
        with client(api, directory, "blue") as blue:
            former = blue.register_job(spec()).lease_token
        with client(api, directory, "blue") as blue:
            lease_token = blue.register_job(spec(), lease_token="", take_over=True).lease_token
        with grpc.insecure_channel(api.addresses[0]) as channel:
            yield Served(api, directory, channel, lease_token, former)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("tokens")) as served:
        yield served


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """Run a server for one test alone, so that earlier tests have not used up the lines of its audit log."""
    with serving(tmp_path) as served:
        yield served


def requests(lease_token: str) -> dict[str, Message]:
    """Return a valid request of each method, about the job where it names one; the others are empty."""
    iteration = pb.Iteration(index=1, duration=Duration(seconds=2), communication=Duration(seconds=1))
    wire_spec = pb.JobSpec(
        job_id=JOB,
        endpoints=ADDRESSES,
        transfers=[pb.Transfer(src=0, dst=1, bytes_per_iteration=2_000_000)],
        reports_connections=True,
    )
    given: dict[str, Message] = {
        "RegisterJob": pb.RegisterJobRequest(spec=wire_spec, lease_token=lease_token, take_over=True),
        "GetJob": pb.GetJobRequest(job_id=JOB),
        "UpdateJob": pb.UpdateJobRequest(spec=wire_spec, lease_token=lease_token),
        "UpdateJobs": pb.UpdateJobsRequest(jobs=[pb.UpdateJobRequest(spec=wire_spec, lease_token=lease_token)]),
        "DeregisterJob": pb.DeregisterJobRequest(job_id=JOB, lease_token=lease_token, force=True),
        "RenewLease": pb.RenewLeaseRequest(job_id=JOB, lease_token=lease_token),
        "ReportIterations": pb.ReportIterationsRequest(job_id=JOB, iterations=[iteration], lease_token=lease_token),
        "ReportConnections": pb.ReportConnectionsRequest(job_id=JOB, address=ADDRESSES[0], lease_token=lease_token),
        "WatchRoutes": pb.WatchRoutesRequest(job_id=JOB),
        "ListRoutes": pb.ListRoutesRequest(job_ids=[JOB]),
        "SetMode": pb.SetModeRequest(mode=pb.MODE_SHADOW),
        "Explain": pb.ExplainRequest(job_id=JOB),
        "SilenceAlarms": pb.SilenceAlarmsRequest(kind=pb.ALARM_KIND_FOREIGN_RULES),
        "EndSilence": pb.EndSilenceRequest(kind=pb.ALARM_KIND_FOREIGN_RULES),
        "WatchEvents": pb.WatchEventsRequest(after=Timestamp(seconds=1)),
        "Drain": pb.DrainRequest(names=["spine1"]),
        "Undrain": pb.UndrainRequest(names=["spine1"]),
        "ListRules": pb.ListRulesRequest(dpid=LEAF1),
        "ForgetParts": pb.ForgetPartsRequest(names=["spine2"]),
    }
    return {method: given.get(method) or GetMessageClass(METHODS[method].input_type)() for method in EXPECTED}


class Answer(NamedTuple):
    """Answer of the server.

    ``text``: everything that the server has sent; tests search it for ``SECRETS``.
    ``reason``: reason of a refusal."""

    code: str
    text: str
    reason: str


def call(served: Served, method: str, metadata: tuple[tuple[str, str], ...], lease_token: str) -> Answer:
    """Make one call; of a stream, read the first message."""
    found = METHODS[method]
    path = f"/{found.containing_service.full_name}/{method}"
    request = requests(lease_token)[method]
    options: Any = {
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": GetMessageClass(found.output_type).FromString,
    }
    try:
        if found.server_streaming:
            ask: Any = served.channel.unary_stream(path, **options)
            stream = ask(request, metadata=metadata, timeout=60)
            response = next(stream)
            stream.cancel()
        else:
            ask = served.channel.unary_unary(path, **options)
            response = ask(request, metadata=metadata, timeout=60)
    except grpc.RpcError as error:
        refused: Any = error
        sent = f"{refused.details()} {refused.trailing_metadata()!r}"
        return Answer(refused.code().name, sent, reason(refused))
    return Answer("OK", str(response), "")


def of(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token(name)}"),)


def job_is_as_it_was(served: Served) -> bool:
    with served.client("blue") as blue:
        job = blue.get_job(JOB)
        blue.renew_lease(JOB, served.lease_token)
    return (job.tenant, job.iterations, job.spec.transfers[0].bytes_per_iteration) == ("blue", 0, 1_000_000)


def tells_nothing(answer: Answer) -> bool:
    return not any(secret in answer.text for secret in SECRETS)


def test_every_method_is_tried_here() -> None:
    assert set(EXPECTED) == set(METHODS)
    assert len(METHODS) == len(RULES)


NOBODY: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("authorization", "Bearer token-of-nobody"),),
    (("authorization", "Bearer "),),
)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_for_those_who_may_call_it_and_tells_others_nothing(served: Served, method: str) -> None:
    """Neither another tenant nor a reader changes the job, even with its lease token."""
    for metadata in NOBODY:
        answer = call(served, method, metadata, served.lease_token)
        assert (answer.code, answer.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED"), metadata
        assert tells_nothing(answer)
    red, reader = EXPECTED[method]
    for lease_token in (served.lease_token, ""):
        answer = call(served, method, of("red"), lease_token)
        assert (answer.code, answer.reason) == (red, REASON[red])
        assert tells_nothing(answer)
        assert method == "GetStatus" or answer.code != OK or JOB not in answer.text
    answer = call(served, method, of("reader"), served.lease_token)
    if reader == OK:
        assert answer.code not in ("UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND")
    else:
        assert (answer.code, answer.reason) == ("PERMISSION_DENIED", "NOT_ALLOWED")
        assert tells_nothing(answer)
    assert job_is_as_it_was(served)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_change_nothing_of_that(served: Served, method: str) -> None:
    """Permitted callers learn that the bytes are invalid; all others get the refusal that a valid message gets."""
    path = f"/{METHODS[method].containing_service.full_name}/{method}"
    red, reader = EXPECTED[method]
    expected = {"red": red != DENIED, "reader": reader != DENIED}
    streams = METHODS[method].server_streaming
    kind: Any = served.channel.unary_stream if streams else served.channel.unary_unary
    for name, allowed in {**expected, "nobody": False, "operator": True}.items():
        with pytest.raises(grpc.RpcError) as error:
            list(kind(path)(b"\xff\xff\xff", metadata=of(name), timeout=60))
        refused: Any = error.value
        code = "UNAUTHENTICATED" if name == "nobody" else "INVALID_ARGUMENT" if allowed else "PERMISSION_DENIED"
        assert refused.code().name == code


def test_a_call_that_changes_something_has_a_line_in_the_audit_log(fresh: Served) -> None:
    first = ("RenewLease", "ReportIterations", "ReportConnections")  # the next calls end the registration
    board = fresh.api.control.board
    board.membership, board.holders = only_member(), dict  # more refused calls would not all have a line
    with captured_logs() as lines:
        for method in (*first, *(method for method in METHODS if method not in first)):
            call(fresh, method, of("operator"), fresh.lease_token)
    found = Counter(line["method"] for line in lines if line["event"] == "audit" and "method" in line)
    assert found == dict.fromkeys(AUDITED, 1)


CHANGES_WITH_A_LEASE_TOKEN: dict[str, Callable[[Client, str], object]] = {
    "RenewLease": lambda client, token: client.renew_lease(JOB, token),
    "ReportIterations": lambda client, token: client.report_iterations(JOB, [], token),
    "ReportConnections": lambda client, token: client.report_connections(JOB, ADDRESSES[0], [], token),
    "UpdateJob": lambda client, token: client.update_job(spec(addresses=(H1, H2)), lease_token=token),
    "UpdateJobs": lambda client, token: client.update_jobs([spec(addresses=(H1, H2))], lease_tokens={JOB: token}),
    "DeregisterJob": lambda client, token: client.deregister_job(JOB, token),
}


def has_lease_token(message: Any) -> bool:
    fields = message.fields_by_name
    return "lease_token" in fields or ("jobs" in fields and "lease_token" in fields["jobs"].message_type.fields_by_name)


def test_every_method_with_a_lease_token_is_tried_with_a_former_owners() -> None:
    with_token = {name for name, method in METHODS.items() if has_lease_token(method.input_type)}
    assert with_token - {"RegisterJob"} == set(CHANGES_WITH_A_LEASE_TOKEN)


@pytest.mark.parametrize("name", ["blue", "operator"])
@pytest.mark.parametrize("method", CHANGES_WITH_A_LEASE_TOKEN)
def test_a_former_owners_lease_token_changes_nothing(served: Served, method: str, name: str) -> None:
    with served.client(name) as caller:
        with pytest.raises(NotFound, match="taken over"):
            CHANGES_WITH_A_LEASE_TOKEN[method](caller, served.former)
        for no_token in ("", "first-uid.AAAA"):
            with pytest.raises(WrongLeaseToken):
                CHANGES_WITH_A_LEASE_TOKEN[method](caller, no_token)
    with served.client("blue") as blue, pytest.raises(SignalboxError, match="belongs to another registration"):
        blue.register_job(spec(), lease_token=served.former)
    assert job_is_as_it_was(served)


def test_a_tenant_has_its_own_jobs_and_alarms_only(served: Served) -> None:
    seen = {}
    for name in TENANTS:
        with served.client(name) as caller:
            alarms = [alarm.subject for alarm in caller.get_status().alarms]
            seen[name] = [job.spec.job_id for job in caller.list_jobs()], alarms
    assert seen == {
        "blue": ([JOB], []),
        "red": ([], []),
        "reader": ([JOB], ["spine1"]),
        "operator": ([JOB], ["spine1"]),
    }


def test_health_is_for_everyone(served: Served) -> None:
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status == health_pb2.HealthCheckResponse.SERVING


def test_a_tenant_that_lost_its_job_id_learns_how(served: Served) -> None:
    """The tenant red had the id once. It may learn of its own end, and nothing of the present owner."""
    with served.client("red") as red, served.client("operator") as operator, served.client("blue") as blue:
        old = red.register_job(spec("shared", ("10.0.88.1", "10.0.88.2")))
        operator.deregister_job("shared", force=True)
        new = blue.register_job(spec("shared", ADDRESSES))
        for lease_token in (old.lease_token, ""):
            with pytest.raises(NotFound, match="was deregistered") as ended:
                red.renew_lease("shared", lease_token)
        with pytest.raises(NotFound, match="there is no job"):
            red.renew_lease("shared", new.lease_token)
        with pytest.raises(NotFound):
            red.deregister_job("shared", new.lease_token)
        with pytest.raises(NotFound):
            red.get_job("shared")
        assert not any(secret in str(ended.value) for secret in SECRETS)
        blue.deregister_job("shared")


def audited(served: Served, name: str | None, act: Callable[[Client], object]) -> list[Any]:
    refused = (NotAllowed, NotFound, Unauthenticated, WrongLeaseToken)
    with captured_logs() as lines, served.client(name) as caller, suppress(*refused):
        act(caller)
    # A line without a method counts suppressed lines, maybe those of another server of this process.
    return [line for line in lines if line["event"] == "audit" and "method" in line]


def test_changes_and_what_is_not_allowed_are_in_the_audit_log(fresh: Served) -> None:
    """Reads and renewals that succeed have no line, and no line has a token."""
    assert audited(fresh, "blue", lambda client: client.renew_lease(JOB, fresh.lease_token)) == []
    assert audited(fresh, "reader", lambda client: client.get_fabric()) == []
    (renewed,) = audited(fresh, "blue", lambda client: client.register_job(spec(), lease_token=fresh.lease_token))
    (line,) = audited(fresh, "operator", lambda client: client.replan())
    assert (line["name"], line["role"], line["method"], line["code"]) == ("operator", "operator", "Replan", "OK")
    assert line["peer"].startswith("127.0.0.1:")
    (line,) = audited(fresh, "red", lambda client: client.deregister_job(JOB, fresh.lease_token))
    assert (line["tenant"], line["job_id"], line["code"]) == ("red", JOB, "NOT_FOUND")
    assert not any(secret in f"{renewed}{line}" for secret in (fresh.lease_token, token("blue"), token("red")))
    (line,) = audited(fresh, None, lambda client: client.get_fabric())
    assert (line["method"], line["code"]) == ("GetFabric", "UNAUTHENTICATED")
    assert "name" not in line
    (line,) = audited(fresh, "blue", lambda client: client.renew_lease(JOB, "no token"))
    assert (line["method"], line["code"]) == ("RenewLease", "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "methods", [("RenewLease", "ReportIterations", "ReportConnections"), ("DeregisterJob", "GetJob", "WatchRoutes")]
)
def test_what_a_tenant_tries_on_anothers_job_has_a_line(fresh: Served, methods: tuple[str, ...]) -> None:
    with captured_logs() as lines:
        for method in methods:
            call(fresh, method, of("red"), fresh.lease_token)
    found = [line for line in lines if line["event"] == "audit" and "method" in line]
    assert [line["method"] for line in found] == [*methods]
    for line in found:
        assert (line["tenant"], line["job_id"], line["code"]) == ("red", JOB, "NOT_FOUND")
        assert line["why"] == "the job belongs to another tenant"
    assert audited(fresh, "red", lambda client: client.get_job("none")) == [], "there is no such job"


def test_the_audit_log_has_the_registrations_that_began_and_ended_also_without_a_token(fresh: Served) -> None:
    def uids(*lines: Any) -> list[tuple[Any, ...]]:
        defaults = {"take_over": False, "force": False, "uid_begun": "", "uid_ended": ""}
        return [tuple(line.get(key, default) for key, default in defaults.items()) for line in lines]

    first = fresh.lease_token.partition(".")[0]
    (renewed,) = audited(fresh, "blue", lambda client: client.register_job(spec(), lease_token=fresh.lease_token))
    (taken,) = audited(fresh, "blue", lambda client: client.register_job(spec(), lease_token="", take_over=True))
    second = taken["uid_begun"]
    assert second != first
    (refused,) = audited(fresh, "blue", lambda client: client.deregister_job(JOB, "none"))
    (forced,) = audited(fresh, "operator", lambda client: client.deregister_job(JOB, force=True))
    (again,) = audited(fresh, "operator", lambda client: client.deregister_job(JOB, force=True))
    (new,) = audited(fresh, "blue", lambda client: client.register_job(spec()))
    third = new["uid_begun"]
    assert uids(renewed, taken, refused, forced, again, new) == [
        (False, False, "", ""), (True, False, second, first), (False, False, "", ""), (False, True, "", second),
        (False, True, "", ""), (False, False, third, ""),
    ]  # fmt: skip
