"""Convert between a job spec and its message in the API.

Problems have the paths of the message's fields. The time is linear in the size of the message."""

from __future__ import annotations

from dataclasses import replace

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import JobSpec, oversized
from signalbox.mapping import data_of, message_of, names, path_in_proto
from signalbox.v1 import signalbox_pb2 as pb


def job_spec(message: pb.JobSpec) -> JobSpec:
    """Return the announced job. Raises ``InvalidInput`` with every wrong field, by its path inside ``spec``."""
    InvalidInput.refuse(oversized(message))
    data = data_of(message)
    data["max_subflows"] = message.max_subflows or 1
    try:
        spec = JobSpec.parse(data)
    except InvalidInput as error:
        raise InvalidInput(tuple(map(_in_proto_words, error.problems))) from None
    InvalidInput.refuse(check(spec))
    return spec


def _in_proto_words(problem: FieldProblem) -> FieldProblem:
    path, enum = path_in_proto(pb.JobSpec, problem.path)
    if enum is None:
        return replace(problem, path=path)
    _, given, value = problem.message.partition(" (given: ")
    return FieldProblem(path, f"choose one of {', '.join(names(enum))}{given}{value}")


def spec_message(spec: JobSpec) -> pb.JobSpec:
    return message_of(pb.JobSpec, spec)
