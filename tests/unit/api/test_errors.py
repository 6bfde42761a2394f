"""The status that the caller gets for each error."""

from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api import convert, errors
from controller.api.convert_analysis import what_if_request
from controller.fabric.topology import Fabric
from signalbox.errors import (
    MAX_PROBLEMS,
    AlreadyExists,
    Conflict,
    Exhausted,
    FieldProblem,
    InvalidInput,
    NotFound,
    NotKnownYet,
    SignalboxError,
    Superseded,
    Unavailable,
)
from signalbox.mapping import job_spec
from signalbox.v1 import signalbox_pb2 as pb

ADDRESSES = ("10.0.0.1", "10.0.0.2")


def details_of(status: status_pb2.Status) -> dict[str, Any]:
    found = {}
    for packed in status.details:
        kind = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])
        detail = kind()
        assert packed.Unpack(detail)
        found[kind.DESCRIPTOR.name] = detail
    return found


@pytest.mark.parametrize(("error", "code", "reason", "others"), [
    (InvalidInput.of("lease", "is missing"), "INVALID_ARGUMENT", "INVALID_FIELD", {"BadRequest"}),
    (NotFound("no job"), "NOT_FOUND", "NO_SUCH_JOB", set()),
    (AlreadyExists("there is one"), "ALREADY_EXISTS", "JOB_EXISTS", set()),
    (Conflict("taken"), "FAILED_PRECONDITION", "CONFLICT", set()),
    (Superseded("superseded: ecmp was set"), "ABORTED", "SUPERSEDED", set()),
    (Exhausted("full"), "RESOURCE_EXHAUSTED", "LIMIT_REACHED", {"QuotaFailure"}),
    (Exhausted("full", retry_s=1.5), "RESOURCE_EXHAUSTED", "LIMIT_REACHED", {"QuotaFailure", "RetryInfo"}),
    (NotKnownYet("routes are under way"), "FAILED_PRECONDITION", "NOT_KNOWN_YET", set()),
    (NotKnownYet("under way", {}, 0.5), "FAILED_PRECONDITION", "NOT_KNOWN_YET", {"RetryInfo"}),
    (Unavailable("no disk", 5.0), "UNAVAILABLE", "NOT_SAVED", {"RetryInfo"}),
    (errors.Stopping("stopping"), "UNAVAILABLE", "STOPPING", {"RetryInfo"}),
    (errors.TooSlow("too slow"), "DEADLINE_EXCEEDED", "TOO_SLOW", set()),
    (SignalboxError("the analysis failed"), "INTERNAL", "INTERNAL", set()),
    (ZeroDivisionError("secret"), "INTERNAL", "INTERNAL", set()),
], ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "")  # fmt: skip
def test_each_error_has_its_code_reason_and_details(error: Exception, code: str, reason: str, others: set[str]) -> None:
    status = errors.status_of(error)
    found = details_of(status)
    info = found.pop("ErrorInfo")
    assert (code_pb2.Code.Name(status.code), info.domain, info.reason) == (code, "signalbox", reason)
    assert f"ERROR_REASON_{reason}" in pb.ErrorReason.DESCRIPTOR.values_by_name
    assert set(found) == others
    assert "secret" not in str(status)
    assert not isinstance(error, SignalboxError) or str(error) == status.message


def test_a_subclass_counts_as_its_class_and_the_subject_of_a_limit_is_told() -> None:
    class Full(Exhausted):
        pass

    status = errors.status_of(Full("2 jobs are the limit", subject="tenant:red", retry_s=2.0))
    found = details_of(status)
    assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    (violation,) = found["QuotaFailure"].violations
    assert (violation.subject, violation.description) == ("tenant:red", "2 jobs are the limit")
    assert found["RetryInfo"].retry_delay.seconds == 2


@settings(max_examples=12)
@given(st.lists(st.builds(FieldProblem, st.text(max_size=600), st.text(min_size=1, max_size=600)), min_size=1))
def test_any_problems_fit_into_trailers(problems: list[FieldProblem]) -> None:
    status = errors.status_of(InvalidInput(tuple(problems)))
    assert len(status.SerializeToString()) + len(status.message) < 8192
    assert status.message.isascii()
    shown = details_of(status)["BadRequest"].field_violations
    assert 1 <= len(shown) <= errors.MAX_PROBLEMS


def test_the_message_says_how_many_problems_are_left_out_and_each_violation_has_a_field() -> None:
    status = errors.status_of(InvalidInput(tuple(FieldProblem(f"endpoints[{n}]", "is wrong") for n in range(31))))
    shown = details_of(status)["BadRequest"].field_violations
    assert [violation.field for violation in shown] == [f"endpoints[{n}]" for n in range(errors.MAX_PROBLEMS)]
    assert status.message.endswith("endpoints[15]: is wrong; and 15 more")


def test_a_long_problem_is_cut_to_what_is_allowed() -> None:
    for size in (errors.MAX_PROBLEM_CHARS, errors.MAX_PROBLEM_CHARS + 1):
        text = errors.status_of(InvalidInput.of("f", "x" * size)).message
        assert len(text) == len("f: ") + errors.MAX_PROBLEM_CHARS
        assert text.endswith("...") == (size > errors.MAX_PROBLEM_CHARS)


def test_what_programs_need_is_in_the_metadata_of_error_info() -> None:
    error = Conflict("taken", {"jobId": "second", "otherJobId": "first\u00e9" * 1000, "used": 3})
    info = details_of(errors.status_of(error))["ErrorInfo"]
    assert dict(info.metadata) == {
        "jobId": "second",
        "otherJobId": ("first\\xe9" * 1000)[: errors.MAX_ABOUT_CHARS],
        "used": "3",
    }


@given(st.text(max_size=5000), st.lists(st.text(max_size=500), max_size=4))
def test_any_text_for_people_and_programs_fits_into_trailers(text: str, values: list[str]) -> None:
    status = errors.status_of(Exhausted(text, about={f"name{n}": value for n, value in enumerate(values)}))
    assert len(status.SerializeToString()) * 4 / 3 + len(status.message) < 8192, "details travel in base64"
    assert len(status.message) <= errors.MAX_MESSAGE_BYTES


MANY = 65_536

OUTSIZED = {
    "connections of a long address": lambda: convert.connections(
        pb.ReportConnectionsRequest(address="a" * 60_000, connections=[pb.Connection()] * MANY)
    ),
    "connections of long addresses": lambda: convert.connections(
        pb.ReportConnectionsRequest(address="10.0.0.1", connections=[pb.Connection(src="a" * 10_000)] * 100)
    ),
    "kinds of failures": lambda: what_if_request(pb.WhatIfRequest(kinds=[cast(Any, 99)] * 1_000_000), Fabric()),
    "paths of a mask": lambda: convert.check_mask(pb.UpdateJobRequest(update_mask={"paths": [""] * 1_000_000})),
    "a long path of a mask": lambda: convert.check_mask(
        pb.UpdateJobRequest(update_mask={"paths": ["a" * 1_000_000] * 4})
    ),
    "transfers": lambda: job_spec(
        pb.JobSpec(job_id="a", endpoints=ADDRESSES, transfers=[pb.Transfer(bytes_per_iteration=0)] * MANY)
    ),
    "ranks of a group": lambda: job_spec(
        pb.JobSpec(job_id="a", endpoints=ADDRESSES, groups=[pb.ParallelGroup(name="a", ranks=[9] * 4096)] * 16)
    ),
    "empty groups": lambda: job_spec(
        pb.JobSpec(job_id="a", endpoints=ADDRESSES, groups=[pb.ParallelGroup()] * 500_000)
    ),
}


@pytest.mark.parametrize("refuse", OUTSIZED.values(), ids=OUTSIZED)
def test_a_refusal_says_no_more_than_the_request(refuse: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        refuse()
    assert len(refused.value.problems) <= MAX_PROBLEMS
    assert len(str(refused.value)) < 40_000
