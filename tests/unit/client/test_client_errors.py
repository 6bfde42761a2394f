"""Statuses of a controller that is broken, as errors of this package; and lists without an end."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Detail
from google.rpc import status_pb2

from signalbox.client import Client
from signalbox.client_errors import raise_ours
from signalbox.errors import Exhausted, SignalboxError
from signalbox.v1 import signalbox_pb2 as pb


class Failed(grpc.RpcError, grpc.Call):
    """A call that failed with a status and details."""

    def __init__(self, code: grpc.StatusCode, text: str, details: bytes) -> None:
        self._code, self._text, self._details = code, text, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> Any:
        return (("grpc-status-details-bin", self._details),)

    def _none(self, _: object = None) -> Any:
        raise NotImplementedError

    initial_metadata = is_active = time_remaining = cancel = _none

    def add_callback(self, callback: object) -> bool:
        return callback is None


BROKEN = Detail(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff")


@pytest.mark.parametrize(
    "details",
    [
        b"\xff\xff",
        status_pb2.Status(code=5, message="full").SerializeToString(),
        status_pb2.Status(code=8, message="other").SerializeToString(),
        status_pb2.Status(code=8, message="full", details=[BROKEN]).SerializeToString(),
    ],
)
def test_malformed_details_of_a_status_are_left_out(details: bytes) -> None:
    with pytest.raises(Exhausted, match=r"^full$") as raised:
        raise_ours(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", details), "c:1")
    assert (raised.value.reason, raised.value.about) == ("", {})


def test_an_answer_is_not_called_a_request_when_it_is_too_large() -> None:
    larger = "Received message larger than max (5000 vs. 10)"
    for text, whose in (
        (f"Stream removed (CLIENT: {larger})", "the controller's answer has 5,000 bytes"),
        (f"SERVER: {larger}", "the message has 5,000 bytes; this is more than the controller accepts"),
    ):
        with pytest.raises(Exhausted, match=whose):
            raise_ours(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, text, b""), "c:1")


def test_a_list_without_an_end_is_refused_when_answers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = []

    def page(*_: object) -> pb.ListJobsResponse:
        pages.append(1)
        return pb.ListJobsResponse(next_page_token="more")

    monkeypatch.setattr(Client, "_call", page)
    with Client(max_answer_bytes=100_000) as client, pytest.raises(SignalboxError, match="more than 100,000 bytes"):
        client.list_jobs()
    assert len(pages) < 101
