"""Methods of the API, and requests to them: correct requests, and boundary values for every field.

``METHODS`` is built from the protobuf descriptors of the API port, so new methods and fields are included. A request
depends only on the random number generator and on the tokens of earlier answers (``Known``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from signalbox.v1 import signalbox_pb2 as pb

_FILES: tuple[Any, ...] = (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class Method:
    """Method of the API. ``sends_many``: whether it takes a stream of requests.

    ``answers_many``: whether it returns one."""

    path: str
    request: type[Message]
    response: type[Message]
    sends_many: bool
    answers_many: bool

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def _methods() -> Iterator[Method]:
    for file in _FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                yield Method(
                    f"/{service.full_name}/{method.name}",
                    GetMessageClass(method.input_type),
                    GetMessageClass(method.output_type),
                    method.client_streaming,
                    method.server_streaming,
                )


METHODS = {method.path: method for method in _methods()}


JOB_IDS = tuple(f"job-{number}" for number in range(24))
HOSTS = tuple(f"10.0.{leaf}.{host}" for leaf in range(1, 5) for host in range(1, 5))
LEASE_S = 3600
MANY = (64, 300, 1100, 4097, 10_001, 65_537)
MOST_BYTES = 1 << 20
"""Limit, in bytes, of the total size of a repeated field."""
DEEP = 6

_INTS: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"))
_INTERESTING = (0, 1, 2, 15, 16, 17, 666, 999, 1000, 1001, 4096, 65_535, 65_536, 1 << 50, (1 << 50) + 1)
_TEXTS = (
    *("", " ", "a", "A", "job-1 ", "job-999", "-", "..", "a" * 63, "a" * 64, "x" * 5000, "é", "\N{SNOWMAN}" * 40),
    *("\N{GRINNING FACE}", "\N{RIGHT-TO-LEFT OVERRIDE}job-1", "job-1\n", "\0", "a\0b", "\x1b[31m\r\n\t\x7f"),
    *("%s{0}{job_id}%n", "'; drop table jobs; --", "../../etc/passwd", "NaN", "*", "10.0.1.1", "10.0.1.1 ", "10.0.1"),
    *("010.0.1.1", "10.0.1.256", "10.0.1.1/24", "0x0a000101", "167772417", "0.0.0.0", "127.0.0.1", "224.0.0.1"),
    *("255.255.255.255", "::ffff:10.0.1.1", "fe80::1%eth0", "\N{ARABIC-INDIC DIGIT ONE}0.0.1.1", "spec", "spec.lease"),
    *("lease", "job_id", "transfers.src", "signalbox.v1.JobService", "YWZ0ZXI6", "YWZ0ZXI6am9iLTE=", "YWZ0ZXI6/w=="),
    *("====", "0.0.0", "x.y"),
)


@dataclass
class Known:
    """Tokens from earlier answers.

    ``tokens``: lease tokens by job id. ``pages``: page tokens. ``resume``: resume tokens by name of the request
    message."""

    tokens: dict[str, str] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    resume: dict[str, list[str]] = field(default_factory=dict)


# ---- correct requests


def correct(rng: Random, path: str, known: Known) -> Message:
    """Return a well-formed request. The controller may still refuse it because of the jobs that exist."""
    method = METHODS[path]
    request = method.request()
    _fill_in(method.name, rng, request, known)
    return request


def spec(rng: Random, job_id: str) -> pb.JobSpec:
    """Return a correct spec with 2 to 6 ranks on ``HOSTS``."""
    endpoints = rng.sample(HOSTS, rng.randint(2, 6))
    ranks = range(len(endpoints))
    subflows = rng.choice((0, 1, 1, 2, 16))
    found = pb.JobSpec(job_id=job_id, endpoints=endpoints, max_subflows=subflows)
    made: Any = found
    made.transport = rng.choice(pb.Transport.values())
    made.library = rng.choice((pb.LIBRARY_UNSPECIFIED, pb.LIBRARY_GENERIC, *pb.Library.values()))
    made.striping = rng.choice(pb.Striping.values())
    made.reports_connections = rng.random() < 0.7
    made.lease.seconds = LEASE_S
    match rng.randrange(5):
        case 0:
            pass
        case 1:
            for number in range(rng.randint(1, 3)):
                parallelization = made.parallelizations.add(name=f"parallelization {number}")
                _sends(rng, parallelization, ranks)
                parallelization.compute.add(seconds=rng.choice((0.0, 0.5)), phase=rng.choice((None, 1)))
        case _:
            _sends(rng, made, ranks)
    if rng.random() < 0.1:
        made.rails.add(endpoints=[address.replace("10.0", "10.1") for address in endpoints])
    return found


def _sends(rng: Random, made: Any, ranks: range) -> None:
    """Add one transfer or one collective to ``made``, a spec or a parallelization."""
    if rng.randrange(3) == 0:
        src, dst = rng.sample(ranks, 2)
        made.transfers.add(src=src, dst=dst, bytes_per_iteration=rng.choice((1, 1000, 1 << 30)), phase=1, step=2)
        return
    made.groups.add(name="dp", ranks=ranks)
    algorithm = rng.choice((pb.ALGORITHM_RING_ALL_REDUCE, *pb.Algorithm.values()[1:]))
    made.collectives.add(algorithm=algorithm, groups=["dp"], bytes_per_iteration=rng.choice((1000, 1 << 20)))


def _token(rng: Random, known: Known, job_id: str) -> str:
    """Return a lease token: mostly that of the job, else another job's, an invalid one, or an empty text."""
    if rng.random() < 0.9:
        return known.tokens.get(job_id, "")
    return rng.choice(("", "x.y", *known.tokens.values()))


def _fill_in(name: str, rng: Random, request: Any, known: Known) -> None:
    """Fill in the request of the method ``name``. Requests of methods that are not listed here stay empty."""
    match name:
        case "RegisterJob":
            job_id = rng.choice(JOB_IDS)
            request.spec.CopyFrom(spec(rng, job_id))
            request.request_id = rng.choice(("", f"request-{rng.getrandbits(32):08x}"))
            request.lease_token = rng.choice(("", _token(rng, known, job_id)))
            request.take_over = rng.random() < 0.5
        case "UpdateJob":
            job_id = rng.choice(JOB_IDS)
            request.spec.CopyFrom(spec(rng, job_id))
            names = [name for name in pb.JobSpec.DESCRIPTOR.fields_by_name if name != "job_id"]
            request.update_mask.paths.extend(rng.choice(([], ["*"], rng.sample(names, rng.randint(1, 3)))))
            request.revision = rng.choice((0, 0, 1, 2, 2**64 - 1))
            request.lease_token = _token(rng, known, job_id)
        case "UpdateJobs":
            for _ in range(rng.randint(1, 3)):
                _fill_in("UpdateJob", rng, request.jobs.add(), known)
        case "GetJob" | "Explain" | "RenewLease" | "DeregisterJob" | "ReportIterations" | "ReportConnections":
            _of_job(name, rng, request, known)
        case "ListJobs":
            request.page_size = rng.choice((0, 1, 3, 1000))
            request.page_token = rng.choice(("", *known.pages))
        case "WatchRoutes" | "WatchJobs" | "WatchFabric" | "WatchPlan" | "WatchAlarms":
            if name == "WatchRoutes":
                _of_job(name, rng, request, known)
            request.resume_token = rng.choice(("", *known.resume.get(request.DESCRIPTOR.name, ())))
        case "SetMode":
            request.mode = rng.choice(pb.Mode.values())
        case "ForgetParts":
            parts = ("leaf1", "spine2", "leaf1:3", "leaf1:3>spine2", *HOSTS)
            request.names.extend(rng.sample(parts, rng.randint(1, 3)))
        case "WhatIf":
            request.kinds.extend(rng.sample(pb.FailureKind.values()[1:], rng.randint(0, 2)))
            request.top = rng.choice((0, 1, 5))
            request.within.seconds = 1
        case "Check" | "Watch" if "service" in request.DESCRIPTOR.fields_by_name:
            request.service = rng.choice(("", "signalbox.v1.JobService", "grpc.health.v1.Health", "no.such.Service"))
        case "ServerReflectionInfo":
            _reflection(rng, request)


def _of_job(name: str, rng: Random, request: Any, known: Known) -> None:
    request.job_id = rng.choice(JOB_IDS)
    if "lease_token" in request.DESCRIPTOR.fields_by_name:
        request.lease_token = _token(rng, known, request.job_id)
    match name:
        case "DeregisterJob":
            request.force = rng.random() < 0.3
        case "ReportIterations":
            first = rng.choice((0, 1, rng.getrandbits(20)))
            for index in range(first, first + rng.randint(0, 5)):
                made = request.iterations.add(index=index)
                made.duration.FromMilliseconds(rng.randint(100, 5000))
                made.communication.FromMilliseconds(rng.randint(1, 100))
        case "ReportConnections":
            request.address, *others = rng.sample(HOSTS, 4)
            for dst in others[: rng.randint(0, 3)]:
                ports = {name: rng.randint(1, 65_535) for name in ("src_port", "dst_port")}
                request.connections.add(src=request.address, dst=dst, **ports)


def _reflection(rng: Random, request: Any) -> None:
    match rng.randrange(5):
        case 0:
            request.file_by_filename = "signalbox/v1/signalbox.proto"
        case 1:
            request.file_containing_symbol = rng.choice(("signalbox.v1.JobService", "signalbox.v1.Job.uid", "no.such"))
        case 2:
            request.file_containing_extension.containing_type = "google.protobuf.FieldOptions"
            request.file_containing_extension.extension_number = rng.choice((1, 1000))
        case 3:
            request.all_extension_numbers_of_type = rng.choice(("google.protobuf.FieldOptions", "signalbox.v1.Job"))
        case _:
            request.list_services = ""


# ---- boundary values


def change_one(rng: Random, message: Message) -> None:
    """Change one field, possibly in a nested message: set a boundary value, clear it, or repeat its items."""
    target: Message = message
    for _ in range(DEEP):
        fields: Sequence[Any] = target.DESCRIPTOR.fields
        if not fields:
            return
        chosen = rng.choice(fields)
        inside = _messages_in(target, chosen)
        if not inside or rng.random() < 0.3:
            set_boundary(rng, target, chosen)
            return
        target = rng.choice(inside)


def _messages_in(message: Any, chosen: FieldDescriptor) -> Sequence[Message]:
    """Return the messages in a field, after adding one if there is none; empty for a field of another type."""
    if chosen.message_type is None:
        return ()
    if chosen.is_repeated:
        repeated = getattr(message, chosen.name)
        return list(repeated) or [repeated.add()]
    value: Message = getattr(message, chosen.name)
    value.SetInParent()
    return [value]


def set_boundary(rng: Random, message: Any, chosen: FieldDescriptor) -> None:
    if rng.random() < 0.1:
        message.ClearField(chosen.name)
    elif chosen.is_repeated:
        _set_repeated(rng, message, chosen)
    elif chosen.message_type is not None:
        fill(rng, getattr(message, chosen.name))
    else:
        setattr(message, chosen.name, scalar(rng, chosen))


def _set_repeated(rng: Random, message: Any, chosen: FieldDescriptor) -> None:
    items = getattr(message, chosen.name)
    if rng.random() < 0.06 and items:
        _repeat(items, rng.choice(MANY))
    elif rng.random() < 0.2 and items:
        _repeat(items, len(items) + 1)
    elif chosen.message_type is not None:
        fill(rng, items.add())
    elif items and rng.random() < 0.7:
        items[rng.randrange(len(items))] = scalar(rng, chosen)
    else:
        items.extend(scalar(rng, chosen) for _ in range(rng.randint(1, 4)))


def _repeat(items: Any, count: int) -> None:
    """Append copies of the items, in order, until there are ``count`` or until ``MOST_BYTES`` is reached."""
    given = list(items)
    size = 1 + max(one.ByteSize() if isinstance(one, Message) else len(str(one)) for one in given)
    more = min(count, MOST_BYTES // size) - len(given)
    items.extend(given[n % len(given)] for n in range(more))


def fill(rng: Random, message: Message, depth: int = 0) -> None:
    """Set about half of the fields, also in nested messages, to boundary values of their types."""
    message.SetInParent()
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    for chosen in fields:
        if rng.random() < 0.5 or depth > DEEP:
            continue
        if chosen.message_type is None:
            set_boundary(rng, message, chosen)
            continue
        target = getattr(message, chosen.name)
        for one in [target.add() for _ in range(rng.randint(0, 2))] if chosen.is_repeated else [target]:
            fill(rng, one, depth + 1)


def scalar(rng: Random, chosen: FieldDescriptor) -> Any:
    """Return a value of the field's type: an end of its range, a value near a limit of the API, or nonsense."""
    kind = chosen.cpp_type
    if kind in _INTS:
        least, most = _INTS[kind]
        near = (least, least + 1, -1, most - 1, most, rng.randint(least, most), -999_999_999, 1_000_000_000)
        fitting = [value for value in (*near, *_INTERESTING, 315_576_000_001) if least <= value <= most]
        return rng.choice(fitting)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice(_FLOATS)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        known = chosen.enum_type.values_by_number if chosen.enum_type else {0: None}
        return rng.choice((*known, max(known) + 1, -1, 666, (1 << 31) - 1, -(1 << 31)))
    text = _text(rng)
    return text.encode() if chosen.type == FieldDescriptor.TYPE_BYTES else text


def _text(rng: Random) -> str:
    if rng.random() < 0.9:
        return rng.choice((*_TEXTS, *JOB_IDS[:3], *HOSTS[:3]))
    if rng.random() < 0.2:
        return rng.choice(_TEXTS[2:]) * rng.choice((100, 20_000))
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(1, 0xD800)))) for _ in range(rng.randint(1, 80))
    )
