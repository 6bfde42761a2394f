"""Requests that failed in earlier versions, each with a description of its fault. Every run sends them first."""

from __future__ import annotations

from benchmarks.api_requests.cases import Case
from benchmarks.api_requests.raw import NO_UTF8, Raw, call

_STATUS = "/signalbox.v1.ControllerService/GetStatus"

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
        _STATUS,
        call(_STATUS.encode(), b"", (b"authorization", b"Bearer \xff\xff")),
    ),
    Raw("a path that is not UTF-8: grpcio 1.84.0 to 1.85.1 end the whole server", _STATUS, call(NO_UTF8, b"")),
)
