"""Client that sends generated requests one by one, and a record of the jobs that the controller has acknowledged.

``Sender`` sends each ``Case`` through gRPC's own client and returns its ``Outcome``. It stores the tokens that later
requests need in ``Known``. ``Ledger`` records which jobs were acknowledged, and compares them with the jobs that the
controller lists.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from benchmarks.api_requests.cases import Case
from benchmarks.api_requests.values import METHODS, Known
from signalbox.v1 import signalbox_pb2 as pb

STREAM_S = 0.3
"""Seconds to wait for the messages of a response stream."""
REMEMBERED = 8
"""Largest number of tokens of each kind that are kept for later requests."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    code: grpc.StatusCode
    text: str
    reason: str
    """Reason from the ErrorInfo of the answer; empty if the answer has no ErrorInfo."""
    responses: tuple[Message, ...]
    seconds: float
    cut: bool
    """Whether the client may have ended the call; CANCELLED and DEADLINE_EXCEEDED are then no fault."""

    def wrong(self, case: Case) -> str:
        """Return a sentence about the controller's fault; empty when the outcome is allowed."""
        if self.code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            return f"{self.code.name} {self.reason}: {self.text:.300}"
        ended_by_client = self.cut and self.code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
        if self.code is grpc.StatusCode.OK or ended_by_client or self.reason or case.by_grpc:
            return ""
        if case.path.startswith("/grpc.") and self.code is not grpc.StatusCode.UNAVAILABLE:
            return ""  # services of gRPC itself, whose proto files promise no details
        return f"{self.code.name} without ErrorInfo: {self.text:.300}"


class Sender:
    """Client that sends cases. ``address``: address of the controller, as gRPC writes it (such as ``unix:PATH``)."""

    def __init__(self, address: str, known: Known) -> None:
        self.known = known
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def send(self, case: Case) -> Outcome:
        began = time.monotonic()
        method = METHODS.get(case.path)
        responses: list[bytes] = []
        cut = case.ends_early
        try:
            if method and (method.sends_many or method.answers_many):
                call, cut = self._stream(case, method.sends_many, responses)
            else:
                call = self.begin(case)
                if case.cancel_after_s is not None:
                    time.sleep(case.cancel_after_s)
                    call.cancel()
                with suppress(grpc.FutureCancelledError):
                    responses.append(call.result())
        except grpc.RpcError as error:
            call = error
        outcome = self._outcome(case, call, responses, time.monotonic() - began, cut)
        self._learn(outcome)
        return outcome

    def begin(self, case: Case) -> Any:
        """Begin a call with one request and one response, and return its future."""
        make: Any = self._channel.unary_unary(case.path)
        return make.future(case.messages[0] if case.messages else b"", **_options(case, case.timeout_s))

    def _stream(self, case: Case, sends_many: bool, responses: list[bytes]) -> tuple[Any, bool]:
        """Make a call with a stream, and append its first ``case.takes`` messages to ``responses``.

        Returns the call, and whether the client ended it."""
        options = _options(case, min(STREAM_S, case.timeout_s))
        if sends_many:
            make: Any = self._channel.stream_stream(case.path)
            call: Any = make(iter(case.messages), **options)
        else:
            make = self._channel.unary_stream(case.path)
            call = make(case.messages[0], **options)
        if case.cancel_after_s is not None:
            time.sleep(case.cancel_after_s)
            call.cancel()
        try:
            responses.extend(islice(call, case.takes))
        except grpc.RpcError:
            return call, True
        if len(responses) < case.takes:
            return call, False
        call.cancel()
        return call, True

    def _outcome(self, case: Case, call: Any, responses: list[bytes], seconds: float, cut: bool) -> Outcome:
        method = METHODS.get(case.path)
        code, reason = call.code(), ""
        for key, value in (call.trailing_metadata() or ()) if code is not grpc.StatusCode.OK else ():
            if key == "grpc-status-details-bin":
                code, reason = _verdict(value)
        messages: list[Message] = []
        for data in responses:
            try:
                messages += [method.response.FromString(data)] if method else []
            except DecodeError:
                code, reason = grpc.StatusCode.INTERNAL, "the response is no message of the method"
        return Outcome(code, call.details() or "", reason, tuple(messages), seconds, cut)

    def _learn(self, outcome: Outcome) -> None:
        known = self.known
        for response in outcome.responses:
            for name, token in _tokens(response):
                match name:
                    case "lease_token":
                        known.tokens[response.job.spec.job_id] = token  # type: ignore[attr-defined]
                    case "next_page_token":
                        known.pages[:] = [*known.pages[-REMEMBERED:], token]
                    case "resume_token":
                        request = response.DESCRIPTOR.name.replace("Response", "Request")
                        known.resume[request] = [*known.resume.get(request, [])[-REMEMBERED:], token]


def _verdict(details: bytes) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the reason from a response's error details.

    The details have the code that the server sent. If the client cancels the call after the answer has arrived, gRPC
    replaces the code of the call, but not the details."""
    status, info = status_pb2.Status.FromString(details), error_details_pb2.ErrorInfo()
    reasons = [info.reason for detail in status.details if detail.Unpack(info)]
    return _CODES[status.code], "".join(reasons)


def _tokens(response: Message) -> Iterator[tuple[str, str]]:
    for name in response.DESCRIPTOR.fields_by_name:
        if name.endswith("_token") and getattr(response, name):
            yield name, getattr(response, name)


def _options(case: Case, timeout_s: float) -> dict[str, Any]:
    return {"timeout": timeout_s, "metadata": case.metadata}


SHORT_LEASE_S = 600
"""Lease in seconds below which a job may expire during the run, so that it need not exist at the end."""

_CHANGES = {f"/signalbox.v1.JobService/{name}" for name in ("RegisterJob", "UpdateJob", "UpdateJobs", "DeregisterJob")}
_UNDECIDED = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


class Ledger:
    """Record of the jobs that the controller must have.

    ``jobs``: acknowledged jobs by id. ``undecided``: ids of jobs that may or may not exist, with any spec."""

    def __init__(self) -> None:
        self.jobs: dict[str, pb.Job] = {}
        self.undecided: set[str] = set()

    def record(self, case: Case, outcome: Outcome) -> None:
        if case.path not in _CHANGES:
            return
        request = _request(case)
        job_ids = _job_ids(request)
        if job_ids and outcome.code in _UNDECIDED:
            self._open(job_ids)
        elif outcome.code is grpc.StatusCode.OK and isinstance(request, pb.DeregisterJobRequest):
            self._deregistered(request)
        elif outcome.code is grpc.StatusCode.OK:
            for response in outcome.responses:
                if isinstance(response, pb.RegisterJobResponse | pb.UpdateJobResponse):
                    self._keep(response.job)
                elif isinstance(response, pb.UpdateJobsResponse):
                    for job in response.jobs:
                        self._keep(job)

    def open(self, case: Case) -> None:
        """Record a request without a known answer: its jobs are undecided from now on."""
        if case.path in _CHANGES:
            self._open(_job_ids(_request(case)))

    def _open(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.jobs.pop(job_id, None)
            self.undecided.add(job_id)

    def _deregistered(self, request: pb.DeregisterJobRequest) -> None:
        """Record a successful deregistration.

        A request with ``force``, or without a lease token, ends the job that now has this id. A request with a token
        ends only the registration that the token belongs to; the job with this id may be a newer one. A token begins
        with the uid of its registration."""
        job = self.jobs.get(request.job_id)
        if request.force or not request.lease_token:
            self.jobs.pop(request.job_id, None)
            self.undecided.discard(request.job_id)
        elif job and request.lease_token.startswith(f"{job.uid}."):
            del self.jobs[request.job_id]

    def _keep(self, job: pb.Job) -> None:
        job_id = job.spec.job_id
        self.jobs.pop(job_id, None)
        self.undecided.discard(job_id)
        if job.spec.lease.seconds < SHORT_LEASE_S:
            self.undecided.add(job_id)
        else:
            self.jobs[job_id] = job

    def differences(self, found: Mapping[str, pb.Job]) -> Iterator[str]:
        """Yield a sentence for each difference between ``found`` (the controller's jobs by id) and the record."""
        for job_id, job in self.jobs.items():
            now = found.get(job_id)
            if now is None:
                yield f"job '{job_id}' was acknowledged, but the controller does not list it"
            elif now.uid != job.uid:
                yield f"job '{job_id}' has the uid {now.uid}, not {job.uid}"
            elif now.spec != job.spec:
                yield f"job '{job_id}' has another spec than the acknowledged one"
        for job_id in found.keys() - self.jobs.keys() - self.undecided:
            yield f"job '{job_id}' is listed, but was not registered or was deregistered"


def _request(case: Case) -> Any:
    try:
        return METHODS[case.path].request.FromString(case.messages[0] if case.messages else b"")
    except DecodeError:
        return None


def _job_ids(request: Any) -> list[str]:
    if request is None:
        return []
    entries = request.jobs if hasattr(request, "jobs") else [request]
    found = (str(entry.spec.job_id if hasattr(entry, "spec") else entry.job_id) for entry in entries)
    return [job_id for job_id in found if job_id]
