"""Generated requests to the API, from correct to hostile. ``case(seed, number, known)`` is a pure function.

A fifth of the requests is correct, and two fifths have one changed field. The rest is hostile: many changed fields,
broken bytes, wrong methods, odd metadata, cancelled calls, or deadlines that are too short. gRPC's own client can send
all of these requests; the module ``raw`` has requests that this client cannot send.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.api_requests.values import METHODS, Known, change_one, correct, fill

SECONDS_PER_CALL = 30.0
MAX_MESSAGE_BYTES = 1 << 20
"""Largest message that the controller accepts, in bytes."""
Metadata = tuple[tuple[str, str | bytes], ...]

_SLOW = ("Explain", "WhatIf", "Replan")
"""Methods that start processes or plan, and are therefore called less often."""
_OFTEN = ("RegisterJob", "UpdateJob", "UpdateJobs", "ReportIterations", "ReportConnections")
_WEIGHTS = [1 if m.name in _SLOW else 12 if m.name in _OFTEN else 5 for m in METHODS.values()]


@dataclass(frozen=True, slots=True)
class Case:
    what: str
    path: str
    messages: tuple[bytes, ...]
    """Serialized requests; exactly one, unless the method takes a stream of requests."""
    metadata: Metadata = ()
    timeout_s: float = SECONDS_PER_CALL
    cancel_after_s: float | None = None
    """Seconds after which the client cancels the call; None to wait for the answer."""
    takes: int = 1
    """Number of responses that the client reads from a stream before it ends the call."""
    odd: bool = False
    """Whether the metadata are so odd that gRPC may refuse them."""

    def __str__(self) -> str:
        shown = ", ".join(
            one.hex() if len(one) <= 400 else f"{one[:400].hex()}... ({len(one)} bytes)" for one in self.messages
        )
        more = f" metadata={self.metadata!r:.200}" if self.metadata else ""
        times = f" timeout={self.timeout_s} cancel={self.cancel_after_s}"
        return f"{self.what}: {self.path} [{shown}]{more}{times}"

    @property
    def by_grpc(self) -> bool:
        """Whether gRPC itself may refuse the call. Such a refusal has no error details of the controller."""
        return self.odd or any(len(one) > MAX_MESSAGE_BYTES for one in self.messages)

    @property
    def ends_early(self) -> bool:
        """Whether the client may stop waiting before the answer; it then cannot know whether the call had an effect."""
        return self.cancel_after_s is not None or self.timeout_s < SECONDS_PER_CALL


def case(seed: int, number: int, known: Known) -> Case:
    rng = Random(f"{seed}/{number}")
    (path,) = rng.choices(tuple(METHODS), _WEIGHTS)
    (what,) = rng.choices(tuple(_SHARES), tuple(_SHARES.values()))
    made = _parts(what, rng, path, known)
    parts: Parts = {"path": path, "takes": rng.choices((0, 1, 2), (2, 7, 1))[0], **made}
    return Case(what, **parts)


# ---- kinds


Parts = dict[str, Any]
_SHARES = {
    "correct": 20,
    "one field changed": 38,
    "fields changed": 8,
    "any fields": 7,
    "bytes": 12,
    "oversized": 1,
    "elsewhere": 3,
    "metadata": 3,
    "hurried": 3,
    "cancelled": 5,
}


def _messages(rng: Random, path: str, known: Known, change: Callable[[bytes], bytes] = bytes) -> tuple[bytes, ...]:
    count = rng.randint(0, 4) if METHODS[path].sends_many else 1
    return tuple(change(correct(rng, path, known).SerializeToString(deterministic=True)) for _ in range(count))


def _parts(what: str, rng: Random, path: str, known: Known) -> Parts:
    """Return the fields of a ``Case`` of kind ``what`` (a key of ``_SHARES``) that calls the method ``path``."""
    match what:
        case "one field changed" | "fields changed":
            request = correct(rng, path, known)
            for _ in range(1 if what == "one field changed" else rng.randint(2, 6)):
                change_one(rng, request)
            return {"messages": (request.SerializeToString(deterministic=True),)}
        case "any fields":
            request = METHODS[path].request()
            fill(rng, request)
            return {"messages": (request.SerializeToString(deterministic=True),)}
        case "bytes":
            return {"messages": _messages(rng, path, known, lambda data: _broken(rng, data)) or (rng.randbytes(20),)}
        case "oversized":
            size = MAX_MESSAGE_BYTES + rng.choice((-1, 0, 1, 1000, 1 << 20, 3 << 20))
            return {"messages": (_field(2047, 2, bytes(size)),)}
    messages = _messages(rng, path, known)
    match what:
        case "elsewhere":
            return {"path": _elsewhere(rng, path), "messages": messages[:1] or (b"",)}
        case "metadata":
            return {"messages": messages, "metadata": _metadata(rng), "odd": True}
        case "hurried":
            return {"messages": messages, "timeout_s": rng.choice((0.0, 0.001, 0.003, 0.01))}
        case "cancelled":
            return {"messages": messages, "cancel_after_s": rng.choice((0.0, 0.0005, 0.002, 0.01)) * rng.random()}
    return {"messages": messages}


def _elsewhere(rng: Random, path: str) -> str:
    """Return the path of an unknown method or service, or of another method."""
    _, service, name = path.split("/")
    unknown = f"/{service}/{name}s", f"/{service}/", f"/{service}x/{name}", f"/{name}", f"/{service}/{name}/{name}"
    return rng.choice((*unknown, "/x", "/", rng.choice(tuple(METHODS))))


def _metadata(rng: Random) -> Metadata:
    odd: Metadata = rng.choice(
        (
            (("authorization", rng.choice(("", "Bearer ", "Bearer x", "Basic eDp4", "bearer " + "y" * 3000))),),
            (("authorization", "Bearer x"), ("authorization", "Bearer y")),
            (("x-bin", rng.randbytes(rng.choice((0, 1, 500)))),),
            (("grpc-previous-rpc-attempts", rng.choice(("1", "-1", "x"))),),
            (("x-" + "k" * rng.choice((1, 2000)), "v" * rng.choice((0, 3000))),),
            tuple((f"k{n}", str(n)) for n in range(rng.choice((10, 150)))),
            (("x", "v" * rng.choice((9000, 20_000, 200_000))),),
            (("accept-encoding", "br"), ("grpc-accept-encoding", "nonsense"), ("user-agent", "\x20\x7e")),
            (("grpc-trace-bin", rng.randbytes(40)), ("grpc-tags-bin", rng.randbytes(300))),
            (("grpc-internal-encoding-request", rng.choice(("gzip", "deflate", "nonsense"))),),
        )
    )
    return odd


# ---- bytes of messages


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _field(number: int, kind: int, data: bytes) -> bytes:
    """Return a serialized field. ``kind``: its wire type; data of wire type 2 are preceded by their length."""
    return _varint(number << 3 | kind) + (_varint(len(data)) if kind == 2 else b"") + data


def fields_of(data: bytes) -> Iterator[bytes]:
    """Yield the serialized fields of a correct message, each with its tag."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        match tag & 7:
            case 0:
                _, at = _read_varint(data, at)
            case 1:
                at += 8
            case 2:
                size, at = _read_varint(data, at)
                at += size
            case _:
                at += 4
        yield data[start:at]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            break
    return value, at


_BREAKING = (
    *("shuffle", "repeat", "truncate", "truncate", "flip", "flip", "flip", "flip", "random", "unknown", "wire type"),
    *("no UTF-8", "no UTF-8", "too long", "endless", "nested", "packed"),
)


def _broken(rng: Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2))):
        data = _broken_once(rng.choice(_BREAKING), rng, data)
    return data


def _broken_once(how: str, rng: Random, data: bytes) -> bytes:
    match how:
        case "shuffle":
            fields = list(fields_of(data))
            rng.shuffle(fields)
            return b"".join(fields)
        case "repeat":
            fields = list(fields_of(data))
            return b"".join((*fields, *rng.choices(fields, k=rng.choice((1, 3, 100))))) if fields else data
        case "truncate":
            return data[: rng.randrange(len(data) + 1)]
        case "flip":
            changed = bytearray(data or b"\0")
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case "random":
            return rng.randbytes(rng.choice((0, 1, 2, 10, 100, 2000)))
        case "unknown":
            number = rng.choice((0, 100, 19_000, (1 << 29) - 1))
            return data + _field(number, rng.randrange(8), rng.randbytes(rng.choice((1, 4, 8))))
        case "wire type":
            return data + _field(rng.randint(1, 12), rng.randrange(6), rng.randbytes(rng.choice((1, 4, 8))))
        case "no UTF-8":  # in one of the first fields, which are texts in most requests
            wrong = rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"job-\xe9"))
            return data + _field(rng.randint(1, 3), 2, rng.choice((wrong, _field(rng.randint(1, 2), 2, wrong))))
        case "too long":  # the length of the field exceeds the message
            size = _varint(rng.choice((1 << 20, (1 << 31) - 1, 1 << 32, (1 << 64) - 1)))
            return data + _varint(rng.randint(1, 4) << 3 | 2) + size
        case "endless":  # a number of more than ten bytes
            return data + _varint(rng.randint(1, 4) << 3) + b"\xff" * rng.choice((10, 11, 500))
        case "nested":  # groups or messages, in an unknown field or the first one
            depth = rng.choice((50, 99, 100, 101, 2000))
            if rng.random() < 0.5:
                return data + b"\xa3\x06" * depth + b"\xa4\x06" * rng.choice((0, depth))
            inner = b""
            for _ in range(min(depth, 300)):
                inner = _field(rng.choice((1, 100)), 2, inner)
            return data + inner
        case _:  # a long run of numbers
            return data + _field(rng.randint(1, 4), 2, struct.pack("<Q", rng.getrandbits(64)) * rng.choice((1, 4000)))
