"""Translate the status of a failed call into an error of ``signalbox.errors``.

The controller's module ``errors`` translates its errors into these statuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
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
"""Class of the error by the API's reason, for reasons that share a gRPC status with other reasons."""

NOT_SAVED = "NOT_SAVED"
"""Reason of the API's error when a controller could not save a change."""

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
    "Network is unreachable": "there is no route to this address",
    "No route to host": "there is no route to this address, or a firewall blocks it",
    "No such file or directory": "there is no such socket; is the controller running?",
    "Permission denied": "this user may not open the socket; run this as a member of the socket's group",
    "CERTIFICATE_VERIFY_FAILED": "the controller's certificate does not name this address, or no authority in "
    "--tls-ca signed it",
    "Hostname Verification Check failed": "the controller's certificate does not name this address",
    "WRONG_VERSION_NUMBER": "the controller does not speak TLS; omit --tls-ca",
    "CERTIFICATE_REQUIRED": "the controller requires a client certificate (--tls-certificate and --tls-key)",
    "lookup failed": "the name cannot be resolved",
    "DNS resolution failed": "the name cannot be resolved",
}
"""Explanations for users when gRPC has no connection, by a phrase in gRPC's error text."""


_BROKEN_OFF = "Stream removed"
"""Phrase in gRPC's error text when a stream ends without a status, with the code UNKNOWN.

HAProxy ends a stream in this way when the controller is gone."""

_IN_SPEC = re.compile(r"^(jobs\[\d+\]\.)?spec\.")

_LOST = (
    "the connection was lost; if it persists, the controller may require TLS (--tls-ca), or a client certificate of an "
    "authority that it knows (--tls-certificate and --tls-key)"
)
"""Explanation for users when a connection is lost and gRPC gives no reason.

gRPC gives no reason when the server requires TLS and the client does not use it. It also gives no reason when the
server refuses the client's certificate in TLS 1.3."""


def raise_ours(error: grpc.RpcError, address: str) -> NoReturn:
    """Raise the error of ``signalbox.errors`` for a failed call to the controller at ``address``."""
    assert isinstance(error, grpc.Call)
    info = _detail(error, error_details_pb2.ErrorInfo)
    ours = _ours(error, info.reason, address)
    ours.about = dict(info.metadata)
    if ours.reason != info.reason:
        ours.reason = info.reason
    raise ours from (error if type(ours) is SignalboxError else None)


def is_unsaved(error: grpc.RpcError) -> bool:
    """Return whether the call failed because the controller could not save the change. The change was not made."""
    assert isinstance(error, grpc.Call)
    return bool(_detail(error, error_details_pb2.ErrorInfo).reason == NOT_SAVED)


def is_away(error: grpc.RpcError) -> bool:
    """Return whether the error means that no controller accepts calls at the address.

    A controller at another address may accept the call."""
    assert isinstance(error, grpc.Call)
    return error.code() is grpc.StatusCode.UNAVAILABLE or _BROKEN_OFF in (error.details() or "")


def why_away(error: grpc.RpcError, address: str) -> str:
    """Return why a probe of the controller at ``address`` has failed."""
    assert isinstance(error, grpc.Call)
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return _explanation(code, text, address)
    return "there is no answer" if code is grpc.StatusCode.DEADLINE_EXCEEDED else f"{code.name}: {text}"


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
    if reason == NOT_SAVED:
        return Unavailable(text, retry_s or 0.0)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) or _BROKEN_OFF in text:
        kind = TooSlow if code is grpc.StatusCode.DEADLINE_EXCEEDED else Unreachable
        return kind(f"no answer from the controller at {address}: {_explanation(code, text, address)}")
    return SignalboxError(f"{code.name}: {text}")


def _explanation(code: grpc.StatusCode, text: str, address: str) -> str:
    if text.startswith("the controller "):
        return text
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "the answer did not arrive in time"
    tried = re.search(r"ipv[46]:(\S+): .*Connection refused", text)
    if tried and (last := unquote(tried[1])) != address:
        return (
            f"no process listens at {last}, one of the addresses of this name; is the controller running? If it "
            "listens at another of these addresses, give that address instead of the name"
        )
    lost = "the connection was lost" if address.startswith("unix:") else _LOST
    return next((words for part, words in _REASONS.items() if part in text), lost)


def _oversized(text: str) -> str | None:
    """Return an explanation if gRPC refused a message because it was too large; None for any other error text."""
    sizes = re.search(r"larger than max \((\d+) vs\. \d+\)", text)
    if not sizes:
        return None
    size = f"{int(sizes[1]):,} bytes"
    if "CLIENT: " in text:
        return f"the controller's answer has {size}; this is more than this program accepts"
    return f"the message has {size}; this is more than the controller accepts (api.max_message_bytes)"


def _problems(error: grpc.Call) -> tuple[FieldProblem, ...]:
    """Return the wrong fields of the request, with paths as in the caller's job spec.

    The request has the job spec in its field ``spec``, so ``spec`` is removed from the paths."""
    violations = _detail(error, error_details_pb2.BadRequest).field_violations
    return tuple(FieldProblem(_IN_SPEC.sub(r"\1", v.field), v.description, v.reason) for v in violations)


def _left_out(text: str) -> tuple[FieldProblem, ...]:
    """Return the note at the end of an error's text about problems that are not listed, such as ``and 3 more``."""
    more = re.search(r"; (and \d+ more)$", text)
    return (FieldProblem("", more[1]),) if more else ()


def _retry_s(error: grpc.Call) -> float | None:
    info = _detail(error, error_details_pb2.RetryInfo)
    return seconds(info.retry_delay) if info.HasField("retry_delay") else None


def _detail(error: grpc.Call, kind: Callable[[], Any]) -> Any:
    """Return the detail of type ``kind`` (a message class) from the error's status.

    The result is an empty message if there is no such detail, or if the details are malformed or belong to another
    status."""
    try:
        status, found = rpc_status.from_call(error), kind()
        any(detail.Unpack(found) for detail in (status.details if status else ()))
    except (DecodeError, ValueError):
        return kind()
    return found
