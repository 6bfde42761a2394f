"""A client of the API that packs its HTTP/2 frames itself, for calls that no gRPC client would make."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from benchmarks.api_abuse import http2
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.waiting import DEADLINE_S
from tests.support.wire.control_stand_in import Running

STATUS = "/signalbox.v1.ControllerService/GetStatus"
HEALTH = "/grpc.health.v1.Health/Watch"


class RawClient:
    """Client on one connection.

    ``source``: its address, so that one machine can act as several clients."""

    def __init__(self, api: Running, source: str = "127.0.0.1") -> None:
        host, _, port = api.addresses[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S, source_address=(source, 0))

    def hello(self, window: int | None = None) -> None:
        self.socket.sendall(http2.hello(window))
        assert next(iter(http2.frames(self.socket))).kind == http2.Kind.SETTINGS

    def call(self, stream: int, path: str, message: bytes | None = None) -> None:
        """Begin a call; without a message the call stays half open."""
        data = b"" if message is None else http2.request(stream, message)
        self.socket.sendall(http2.headers(stream, path) + data)

    def answered(self) -> bool:
        return any(frame.kind == http2.Kind.DATA for frame in http2.frames(self.socket))

    def is_served(self) -> bool:
        self.hello()
        self.call(1, STATUS, b"")
        return self.answered()

    def ended_stream(self, stream: int = 1) -> http2.Frame | None:
        """Return the frame that ends the stream or the connection; None when the connection is closed."""
        for frame in http2.frames(self.socket):
            ends = frame.kind == http2.Kind.RST_STREAM or (
                frame.flags & http2.END_STREAM and frame.kind in (http2.Kind.HEADERS, http2.Kind.DATA)
            )
            if frame.kind == http2.Kind.GOAWAY or (frame.stream == stream and ends):
                return frame
        return None

    def wait_closed(self) -> None:
        for _ in http2.frames(self.socket):
            pass


@contextmanager
def raw(api: Running, source: str = "127.0.0.1") -> Iterator[RawClient]:
    client = RawClient(api, source)
    try:
        yield client
    finally:
        client.socket.close()


@contextmanager
def stub(api: Running) -> Iterator[Any]:
    with grpc.insecure_channel(api.addresses[0]) as channel:
        yield pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
