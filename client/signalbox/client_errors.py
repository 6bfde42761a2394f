"""What a failed call means to a program: the error of ``signalbox.errors`` that the status stands for.

In: gRPC's error. Out: ours, raised. The other way round is ``errors``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from signalbox.errors import (
    AlreadyExists,
    ConcurrentUpdate,
    Conflict,
    Exhausted,
    FieldProblem,
    Gone,
    HostNotAllowed,
    InvalidInput,
    NotAllowed,
    NotAnnounced,
    NotFound,
    NotKnownYet,
    SignalboxError,
    Superseded,
    TooSlow,
    Unauthenticated,
    Unavailable,
    Unreachable,
    WrongLeaseToken,
)
from signalbox.mapping import seconds

_BY_REASON: dict[str, type[SignalboxError]] = {
    "WRONG_LEASE_TOKEN": WrongLeaseToken,
    "HOST_NOT_ALLOWED": HostNotAllowed,
    "CONNECTIONS_NOT_ANNOUNCED": NotAnnounced,
    "NOT_KNOWN_YET": NotKnownYet,
    "SUPERSEDED": Superseded,
}
"""Where a status stands for several errors."""

_ERRORS: dict[grpc.StatusCode, type[SignalboxError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.ABORTED: ConcurrentUpdate,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
}

_REASONS = {
    "Connection refused": "no process listens there; is the controller running?",
    "Network is unreachable": "there is no route to it",
    "No route to host": "there is no route to it, or a firewall is before it",
    "No such file or directory": "there is no such socket; is it running?",
    "Permission denied": "this user may not open the socket",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not for this address, or not of an authority in --tls-ca",
    "Hostname Verification Check failed": "its certificate is not for this address",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "CERTIFICATE_REQUIRED": "it wants a client certificate",
    "lookup failed": "the name cannot be resolved",
    "DNS resolution failed": "the name cannot be resolved",
}
"""Parts of what gRPC says when there is no connection, and what that means to a user."""


_IN_SPEC = re.compile(r"^(jobs\[\d+\]\.)?spec\.")

_LOST = (
    "the connection was lost; if that stays so, the controller may want TLS (--tls-ca), or a client certificate of an "
    "authority that it knows (--tls-certificate and --tls-key)"
)
"""No reason reaches a client without TLS where it is wanted, nor one whose certificate is refused in TLS 1.3."""


def raise_ours(error: grpc.RpcError, address: str) -> NoReturn:
    """Of a call to the controller at ``address``."""
    assert isinstance(error, grpc.Call)
    info = _detail(error, error_details_pb2.ErrorInfo)
    ours = _ours(error, info.reason, address)
    ours.about = dict(info.metadata)
    if ours.reason != info.reason:
        ours.reason = info.reason
    raise ours from (error if type(ours) is SignalboxError else None)


def _ours(error: grpc.Call, reason: str, address: str) -> SignalboxError:
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidInput((*_problems(error), *_left_out(text)) or (FieldProblem("", text),))
    retry_s = _retry_s(error)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Exhausted(_oversized(text) or text, retry_s=retry_s)
    if code is grpc.StatusCode.NOT_FOUND and reason in tuple(Gone):
        return NotFound(text, Gone(reason))
    if kind := _BY_REASON.get(reason) or _ERRORS.get(code):
        return kind(text)
    if reason == "NOT_SAVED":
        return Unavailable(text, retry_s or 0.0)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        kind = TooSlow if code is grpc.StatusCode.DEADLINE_EXCEEDED else Unreachable
        return kind(f"no answer from the controller at {address}: {_why(code, text, address)}")
    return SignalboxError(f"{code.name}: {text}")


def _why(code: grpc.StatusCode, text: str, address: str) -> str:
    """What the controller itself says, or our words for what gRPC says."""
    if text.startswith("the controller "):
        return text
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it took too long"
    lost = "the connection was lost" if address.startswith("unix:") else _LOST
    return next((words for part, words in _REASONS.items() if part in text), lost)


def _oversized(text: str) -> str | None:
    """gRPC itself refuses messages that are far too large, before the server sees them."""
    sizes = re.search(r"larger than max \((\d+) vs\. \d+\)", text)
    if not sizes:
        return None
    return f"the message has {int(sizes[1]):,} bytes; the controller does not accept so many (api.max_message_bytes)"


def _problems(error: grpc.Call) -> tuple[FieldProblem, ...]:
    """The wrong fields. Of a spec the caller has the fields in a file or an object of its own."""
    violations = _detail(error, error_details_pb2.BadRequest).field_violations
    return tuple(FieldProblem(_IN_SPEC.sub(r"\1", v.field), v.description, v.reason) for v in violations)


def _left_out(text: str) -> tuple[FieldProblem, ...]:
    """How many more there are, which only the message says."""
    more = re.search(r"; (and \d+ more)$", text)
    return (FieldProblem("", more[1]),) if more else ()


def _retry_s(error: grpc.Call) -> float | None:
    info = _detail(error, error_details_pb2.RetryInfo)
    return seconds(info.retry_delay) if info.HasField("retry_delay") else None


def _detail(error: grpc.Call, kind: Callable[[], Any]) -> Any:
    """Return the detail of this kind that the status has; an empty one without."""
    status, found = rpc_status.from_call(error), kind()
    any(detail.Unpack(found) for detail in (status.details if status else ()))
    return found
