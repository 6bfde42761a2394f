"""Conversion of errors into the status of a call. Pure.

In: an error of ``signalbox.errors``, or any other exception. Out: ``google.rpc.Status`` with ``ErrorInfo`` and the
details that the proto file promises for its code. Texts are shortened until they fit into HTTP/2 trailers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from signalbox.errors import (
    AlreadyExists,
    ConcurrentUpdate,
    Conflict,
    Exhausted,
    FieldProblem,
    HostNotAllowed,
    InvalidInput,
    NotAllowed,
    NotAnnounced,
    NotFound,
    NotKnownYet,
    SignalboxError,
    Superseded,
    Unauthenticated,
    Unavailable,
    WrongLeaseToken,
)
from signalbox.mapping import duration
from signalbox.v1 import signalbox_pb2 as pb

DOMAIN = "signalbox"

MAX_PROBLEMS = 16
MAX_PROBLEM_CHARS = 400
"""Largest number of characters of the text about one field: enough to list the names of all algorithms."""
MAX_ABOUT_CHARS = 128
"""Largest number of characters of a value in the metadata of ``ErrorInfo``."""
MAX_MESSAGE_BYTES = 1800
"""Largest size of the message in bytes. HTTP/2 trailers contain it twice, as text and in the details, and peers refuse
trailers above 8 KiB."""


class Stopping(SignalboxError):
    """The controller is stopping and will not answer the call.

    ``retry_s``: seconds after which a restarted controller may answer."""

    retry_s = 2.0


class NoLeader(SignalboxError):
    """No controller is known to be active, or this controller may no longer be the active one.

    ``retry_s``: seconds after which another controller may be active."""

    retry_s = 1.0


class TooSlow(SignalboxError):
    """The call has exceeded its time limit."""


class NotServed(SignalboxError):
    """The server has no such method."""


class _Kind(NamedTuple):
    code: grpc.StatusCode
    reason: pb.ErrorReason


_KINDS: dict[type[BaseException], _Kind] = {
    InvalidInput: _Kind(grpc.StatusCode.INVALID_ARGUMENT, pb.ERROR_REASON_INVALID_FIELD),
    NotFound: _Kind(grpc.StatusCode.NOT_FOUND, pb.ERROR_REASON_NO_SUCH_JOB),
    AlreadyExists: _Kind(grpc.StatusCode.ALREADY_EXISTS, pb.ERROR_REASON_JOB_EXISTS),
    WrongLeaseToken: _Kind(grpc.StatusCode.PERMISSION_DENIED, pb.ERROR_REASON_WRONG_LEASE_TOKEN),
    Conflict: _Kind(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_REASON_CONFLICT),
    ConcurrentUpdate: _Kind(grpc.StatusCode.ABORTED, pb.ERROR_REASON_CONCURRENT_UPDATE),
    Superseded: _Kind(grpc.StatusCode.ABORTED, pb.ERROR_REASON_SUPERSEDED),
    NotAnnounced: _Kind(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_REASON_CONNECTIONS_NOT_ANNOUNCED),
    NotKnownYet: _Kind(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_REASON_NOT_KNOWN_YET),
    Exhausted: _Kind(grpc.StatusCode.RESOURCE_EXHAUSTED, pb.ERROR_REASON_LIMIT_REACHED),
    Unauthenticated: _Kind(grpc.StatusCode.UNAUTHENTICATED, pb.ERROR_REASON_UNAUTHENTICATED),
    NotAllowed: _Kind(grpc.StatusCode.PERMISSION_DENIED, pb.ERROR_REASON_NOT_ALLOWED),
    HostNotAllowed: _Kind(grpc.StatusCode.PERMISSION_DENIED, pb.ERROR_REASON_HOST_NOT_ALLOWED),
    Unavailable: _Kind(grpc.StatusCode.UNAVAILABLE, pb.ERROR_REASON_NOT_SAVED),
    Stopping: _Kind(grpc.StatusCode.UNAVAILABLE, pb.ERROR_REASON_STOPPING),
    NoLeader: _Kind(grpc.StatusCode.UNAVAILABLE, pb.ERROR_REASON_NO_LEADER),
    TooSlow: _Kind(grpc.StatusCode.DEADLINE_EXCEEDED, pb.ERROR_REASON_TOO_SLOW),
    NotServed: _Kind(grpc.StatusCode.UNIMPLEMENTED, pb.ERROR_REASON_NO_SUCH_METHOD),
    BaseException: _Kind(grpc.StatusCode.INTERNAL, pb.ERROR_REASON_INTERNAL),
}
"""Code and reason by class of error; a subclass without an entry uses the entry of its nearest base class."""


def status_of(error: BaseException) -> status_pb2.Status:
    """Return the status for an error. Only the text of a ``SignalboxError`` is shown to the client."""
    code, reason = _kind(error)
    text = "internal error; the controller's log has the details"
    if isinstance(error, InvalidInput):
        found, error = len(error.problems), InvalidInput(_first_problems(error.problems))
        left_out = found - len(error.problems)
        text = f"{error}; and {left_out} more" if left_out else str(error)
    elif isinstance(error, SignalboxError):
        text = _ascii(str(error))[:MAX_MESSAGE_BYTES]
    name = error.reason.value if isinstance(error, NotFound) else reason_name(reason)
    about = {key: _ascii(value)[:MAX_ABOUT_CHARS] for key, value in getattr(error, "about", {}).items()}
    details = [error_details_pb2.ErrorInfo(domain=DOMAIN, reason=name, metadata=about), *_details(error, text)]
    return status_pb2.Status(code=code.value[0], message=text, details=map(_packed, details))


def code_of(error: BaseException) -> grpc.StatusCode:
    """Return the status code of a call that ends with this error.

    The code is ``CANCELLED`` for a cancelled call, whose client waits no longer."""
    if isinstance(error, asyncio.CancelledError):
        return grpc.StatusCode.CANCELLED
    return _kind(error).code


def _kind(error: BaseException) -> _Kind:
    return next(_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)


def reason_name(reason: pb.ErrorReason) -> str:
    return pb.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")


def _details(error: BaseException, text: str) -> Iterator[Message]:
    if isinstance(error, InvalidInput):
        yield error_details_pb2.BadRequest(
            field_violations=[
                {"field": problem.path, "description": problem.message, "reason": problem.reason}
                for problem in error.problems
            ]
        )
    if isinstance(error, Exhausted):
        yield error_details_pb2.QuotaFailure(violations=[{"subject": error.subject, "description": text}])
    if isinstance(error, Exhausted | Unavailable | Stopping | NoLeader | NotKnownYet) and error.retry_s is not None:
        yield error_details_pb2.RetryInfo(retry_delay=duration(error.retry_s))


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


# ---- shortening


def _first_problems(problems: tuple[FieldProblem, ...]) -> tuple[FieldProblem, ...]:
    shown: list[FieldProblem] = []
    size = 0
    for problem in problems[:MAX_PROBLEMS]:
        short = FieldProblem(_short(problem.path), _short(problem.message), problem.reason)
        size += len(str(short)) + 2
        if shown and size > MAX_MESSAGE_BYTES:
            break
        shown.append(short)
    return tuple(shown)


def _short(text: str) -> str:
    text = _ascii(text)
    return text if len(text) <= MAX_PROBLEM_CHARS else text[: MAX_PROBLEM_CHARS - 3] + "..."


def _ascii(text: str) -> str:
    """Return the text with characters beyond ASCII escaped.

    gRPC would percent-encode them, and replace each of their bytes by three characters."""
    return text.encode("ascii", "backslashreplace").decode("ascii")
