"""API calls in hand-made HTTP/2 frames that gRPC's own client would not send (RFC 9113, RFC 7541).

``raw(seed, number)`` is a pure function. ``send_raw`` sends a call and returns the status of the answer. Header fields
are sent in full, without the compression that needs a table of earlier fields.

``KEPT`` and ``KEPT_RAW`` are requests that failed in earlier versions, each described by its fault. Every run sends
them first.
"""

import re
import socket
import struct
import time
from dataclasses import dataclass
from random import Random

import grpc

from benchmarks.api_abuse.http2 import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    Header,
    Kind,
    frame,
    headers_frame,
    hello,
    request,
    usual,
)
from benchmarks.api_requests.cases import Case
from benchmarks.api_requests.values import METHODS, Known, correct

ANSWER_S = 0.5
"""Seconds to wait for a status. Many raw calls never get one."""
_STATUS = re.compile(rb"grpc-status[\x01\x02]([0-9]{1,2})")
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}

NO_UTF8 = b"/signalbox.v1.JobService/GetJob\xff\xfe"


@dataclass(frozen=True, slots=True)
class Raw:
    """Call in raw bytes, sent on a new connection."""

    what: str
    path: str
    data: bytes
    message: bytes = b""
    """Serialized request inside ``data`` that the server might decode; empty if there is none."""

    def wrong(self, status: str) -> str:
        """Return the status if it proves a fault of the controller, else an empty text.

        A fault of the controller appears as UNKNOWN, and as an error in its log. gRPC itself answers INTERNAL to
        frames that break its protocol, and UNKNOWN to a path that is not UTF-8."""
        return status if status == "UNKNOWN" and NO_UTF8 not in self.data else ""

    def __str__(self) -> str:
        return f"raw, {self.what}: {self.path} {self.data[len(PREFACE) :][:600].hex()} ({len(self.data)} bytes)"


def raw(seed: int, number: int) -> Raw:
    rng = Random(f"raw/{seed}/{number}")
    path = rng.choice(tuple(METHODS))
    what = rng.choice(_KINDS)
    message = correct(rng, path, Known()).SerializeToString(deterministic=True)
    return Raw(what, path, hello() + _calling(what, rng, path.encode(), message), message)


def call(path: bytes, message: bytes, *more: Header) -> bytes:
    """Return a correct call with additional header fields."""
    return hello() + headers_frame(1, [*usual(path), *more]) + request(1, message)


def send_raw(socket_path: str, sent: Raw, answer_s: float = ANSWER_S) -> str:
    """Send a call, and return the name of its status; empty when none arrives within ``answer_s``."""
    received = b""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(answer_s)
        sock.connect(socket_path)
        ends = time.monotonic() + answer_s
        try:
            sock.sendall(sent.data)
            while time.monotonic() < ends and not _STATUS.search(received):
                got = sock.recv(65_536)
                if not got:
                    break
                received += got
        except OSError:
            pass
    found = _STATUS.search(received)
    return _CODES.get(int(found[1]), "") if found else ""


# ---- calls

_CONTENT_TYPES = (b"text/html", b"application/json", b"", b"application/grpc+json", b"application/grpc-web", b"\xff")
_KINDS = (
    *("content type", "HTTP method", "path", "header", "header", "a header is missing", "compression", "length"),
    *("messages", "reset", "frames"),
)


def _calling(what: str, rng: Random, path: bytes, message: bytes) -> bytes:
    """Return the frames of a call with one fault. ``what``: kind of the fault, one of ``_KINDS``."""
    fields, body = usual(path), request(1, message)
    match what:
        case "content type":
            fields[4] = (b"content-type", rng.choice(_CONTENT_TYPES))
        case "HTTP method":
            fields[0] = (b":method", rng.choice((b"GET", b"PUT", b"HEAD", b"", b"P\xd6ST")))
        case "path":
            odd = (b"", b"*", path + b"?x=1", path[1:], b"/" * 3000, path.upper(), b"/\xc3\xa9/\xe2\x98\x83", NO_UTF8)
            fields[2] = (b":path", rng.choice(odd))
        case "header":
            fields.append(_odd_header(rng))
        case "a header is missing":
            del fields[rng.randrange(len(fields))]
        case "compression":  # the message is marked as compressed and is not
            encoding = rng.choice((None, b"gzip", b"deflate", b"identity"))
            fields += [(b"grpc-encoding", encoding)] if encoding else []
            body = request(1, message, compressed=rng.choice((1, 1, 2, 255)))
        case "length":  # the stated length of the message is too large or too small
            wrong = rng.choice((0, 1, len(message) + 1, len(message) - 1, 1 << 20, (1 << 32) - 1))
            body = request(1, message, size=max(0, wrong))
        case "messages":  # no request, half of a request's head, an empty frame, or two requests
            half, empty = frame(Kind.DATA, END_STREAM, 1, b"\0\0"), frame(Kind.DATA, END_STREAM, 1)
            body = rng.choice((b"", half, empty, request(1, message, flags=0) + body))
            return headers_frame(1, fields, END_HEADERS if body else END_HEADERS | END_STREAM) + body
        case "reset":  # sent without a request, or after an open or a complete request
            reset = frame(Kind.RST_STREAM, 0, 1, struct.pack("!I", rng.choice((0, 2, 8, 11, 99))))
            body = rng.choice((b"", request(1, message, flags=0), body)) + reset
        case "frames":
            kind, flags, stream = rng.choice((*range(11), 99, 255)), rng.getrandbits(8), rng.choice((0, 1, 2, 3))
            other = frame(kind, flags, stream, rng.randbytes(rng.choice((0, 4, 5, 8, 40))))
            made = headers_frame(1, fields) + body
            large = headers_frame(1, [(b"x", b"y" * 30_000)])
            return rng.choice((other + made, made + other, rng.randbytes(300), large + made))
    return headers_frame(1, fields) + body


def _odd_header(rng: Random) -> Header:
    odd: Header = rng.choice(
        (
            (b"x", b"\xff\xfe\x80"),
            (b"x\xff", b"y"),
            (b"X-Upper", b"y"),
            (b"x-bin", b"!!!not base64!!!"),
            (b"grpc-timeout", rng.choice((b"", b"1", b"-1S", b"99999999999H", b"1Q", b"0n"))),
            (b"grpc-encoding", rng.choice((b"gzip", b"deflate", b"identity", b"nonsense", b"\xff"))),
            (b"grpc-status", b"13"),
            (b"authorization", b"Bearer \xff\xff"),
            (b"", b"x"),
            (b":extra", b"x"),
            (b"connection", b"close"),
            (b"content-length", b"3"),
            (b"user-agent", b"\x80" * 50),
        )
    )
    return odd


_GET_STATUS = "/signalbox.v1.ControllerService/GetStatus"

KEPT: tuple[Case, ...] = (
    Case(
        "bytes that are no message: UNKNOWN, and a traceback in the log",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        (bytes.fromhex("d4d19ebd9b27b24ef96f2e95d3b50887ef2f1688"),),
    ),
    Case("no such method: no details", "/signalbox.v1.JobService/", (b"",)),
    Case("no such service: no details", "/SetMode", (bytes.fromhex("0801"),)),
)

KEPT_RAW = (
    Raw(
        "metadata that is not UTF-8: a traceback in the log, with the token",
        _GET_STATUS,
        call(_GET_STATUS.encode(), b"", (b"authorization", b"Bearer \xff\xff")),
    ),
    Raw("a path that is not UTF-8: grpcio 1.84.0 to 1.85.1 end the whole server", _GET_STATUS, call(NO_UTF8, b"")),
)
