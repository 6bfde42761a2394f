"""Errors in the words of this project: their texts, and the errors that failed calls stand for."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Detail
from google.rpc import status_pb2

from signalbox.client import Client
from signalbox.client_errors import raise_ours
from signalbox.errors import (
    MAX_SHOWN_CHARS,
    MAX_TEXT_CHARS,
    Exhausted,
    FieldProblem,
    InvalidInput,
    NotFound,
    SignalboxError,
    cut,
    no_such_job,
)
from signalbox.v1 import signalbox_pb2 as pb

RED = "\x1b[31mred\u202e\x07"
ESCAPED = r"\x1b[31mred\u202e\x07"


@pytest.mark.parametrize(
    "error",
    [
        NotFound("none", about={"jobId": RED}),
        no_such_job(RED),
        InvalidInput.of(RED, f"'{RED}' is wrong"),
        InvalidInput.of("a", RED).within(RED).under(RED),
        InvalidInput((FieldProblem(f"a\nerror: {RED}", "b\nc"),)),
    ],
)
def test_no_error_has_what_a_terminal_obeys(error: SignalboxError) -> None:
    said = str(error) + "".join(error.about.values())
    assert ESCAPED in said
    assert said.isprintable()


def test_long_values_are_shortened_but_many_problems_told_whole_with_their_lines() -> None:
    assert str(no_such_job("a" * 100_000)).startswith(f"there is no job '{'a' * (MAX_SHOWN_CHARS - 3)}...'; ")
    said = str(InvalidInput.of("b" * 30_000_000, f"'{'a' * 30_000_000}' is wrong; choose another name"))
    assert len(said) < 2 * MAX_TEXT_CHARS + 100
    assert said.endswith("is wrong; choose another name")
    assert cut("\n" * 100) == r"\n" * (MAX_SHOWN_CHARS - 3) + "..."
    problems = tuple(FieldProblem(f"field{number}", "x" * 1000) for number in range(50))
    error = InvalidInput(problems)
    assert str(error) == "; ".join(map(str, problems))
    assert str(SignalboxError("its log ends:\none\ntwo")).count("\n") == 2


class Failed(grpc.RpcError, grpc.Call):
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
    with Client(max_answer_bytes=100_000) as client, pytest.raises(SignalboxError, match="limit of 100,000 bytes"):
        client.list_jobs()
    assert len(pages) < 101
