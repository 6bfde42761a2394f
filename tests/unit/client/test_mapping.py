"""Every value of an enum has its value on the wire and vice versa; JSON has the same words."""

import math
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from controller.alarms import Severity as AlarmSeverity
from controller.demand.job_demand import DemandSource
from controller.planning.analysis.messages import LeafCut, Outcome, Verdict
from controller.planning.messages import ReplanOutcome
from controller.planning.plan import Certificate
from controller.status import JobState
from signalbox import mapping
from signalbox.commands.output import fields
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Algorithm, Collective, Compute, JobSpec, Library, Parallelization, Striping, Transport
from signalbox.mapping import job_spec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind, FailureKind, Mode

ENUMS: list[tuple[Any, Iterable[str]]] = [
    (pb.Algorithm, Algorithm),
    (pb.Library, Library),
    (pb.Striping, Striping),
    (pb.Transport, Transport),
    (pb.JobState, get_args(JobState)),
    (pb.DemandSource, DemandSource),
    (pb.Mode, Mode),
    (pb.PlanCertificate, get_args(Certificate)),
    (pb.RoutingScheme, ("ecmp", "greedy", "edge-coloring", "first-fit")),
    (pb.AlarmKind, AlarmKind),
    (pb.Severity, get_args(AlarmSeverity)),
    (pb.ReplanOutcome, get_args(get_type_hints(ReplanOutcome)["outcome"])),
    (pb.Verdict, Verdict),
    (pb.Direction, get_args(get_type_hints(LeafCut)["direction"])),
    (pb.FailureKind, FailureKind),
    (pb.OutcomeBasis, get_args(get_type_hints(Outcome)["basis"])),
]


@pytest.mark.parametrize(("enum", "words"), ENUMS, ids=[enum.DESCRIPTOR.name for enum, _ in ENUMS])
def test_our_values_and_those_of_the_wire_are_the_same(enum: Any, words: Iterable[str]) -> None:
    numbers = [mapping.number_of(enum.DESCRIPTOR, word) for word in words]
    assert sorted(numbers) == sorted(set(enum.values()) - {0})
    assert [mapping.word_of(enum.DESCRIPTOR, number) for number in numbers] == [
        word.replace("-", "_").replace(" ", "_") for word in words
    ]


def test_what_has_no_counterpart_on_the_other_side() -> None:
    assert mapping.word_of(pb.Mode.DESCRIPTOR, 0) is None
    assert mapping.word_of(pb.Mode.DESCRIPTOR, 99) is None
    with pytest.raises(KeyError):
        mapping.number_of(pb.Mode.DESCRIPTOR, "best")
    for value_s in (-1.0, float("nan"), float("-inf")):
        assert mapping.duration(value_s) == Duration()
    assert mapping.duration(float("inf")).ToJsonString() == "315576000000s"
    assert mapping.timestamp(1.5) == Timestamp(seconds=1, nanos=500_000_000)


@given(st.floats(0, 1e6))
def test_durations_keep_their_nanoseconds(value_s: float) -> None:
    assert mapping.seconds(mapping.duration(value_s)) == pytest.approx(value_s, abs=1e-9)


@pytest.mark.parametrize(
    ("path", "in_proto", "enum"),
    [
        ("lease_s", "lease", None),
        ("collectives[3].algorithm", "collectives[3].algorithm", "Algorithm"),
        ("groups[0].ranks[2]", "groups[0].ranks[2]", None),
        ("parallelizations[2].collectives[3].algorithm", "parallelizations[2].collectives[3].algorithm", "Algorithm"),
        ("striping", "striping", "Striping"),
        ("", "", None),
    ],
)
def test_paths_are_told_as_in_the_proto_file(path: str, in_proto: str, enum: str | None) -> None:
    found, kind = mapping.path_in_proto(pb.JobSpec, path)
    assert (found, kind.name if kind else None) == (in_proto, enum)


@pytest.mark.parametrize(
    ("message", "model"),
    [
        (pb.JobSpec, JobSpec),
        (pb.Collective, Collective),
        (pb.Parallelization, Parallelization),
        (pb.Compute, Compute),
    ],
)
def test_the_file_and_the_wire_have_the_same_fields(message: Any, model: Any) -> None:
    in_file = [mapping.path_in_proto(message, name)[0] for name in model.model_fields]
    assert sorted(in_file) == sorted(message.DESCRIPTOR.fields_by_name)


def test_json_has_words_seconds_and_times_and_what_is_absent_only_where_it_was_set() -> None:
    sends = pb.Collective(algorithm=pb.ALGORITHM_ALL_TO_ALL, bytes_per_iteration=1 << 40)
    given = pb.Job(spec=pb.JobSpec(collectives=[sends]), state=pb.JOB_STATE_PARTLY_PINNED, slowdown=1.25)
    given.register_time.seconds = 1_700_000_000
    given.lease_left.FromMilliseconds(2500)
    job = fields(given)
    in_seconds = ("lease_left", "ideal_communication", "last_communication")
    assert [*job] == [name + "_s" * (name in in_seconds) for name in pb.Job.DESCRIPTOR.fields_by_name]
    assert (job["state"], job["lease_left_s"], job["register_time"]) == ("partly_pinned", 2.5, "2023-11-14T22:13:20Z")
    found = (job["slowdown"], job["efficiency_predicted"], job["last_communication_s"], job["demand"])
    assert found == (1.25, *[None] * 3)
    assert (job["spec"]["lease_s"], job["spec"]["library"]) == (None, None), "they are not specified"
    collective = {"algorithm": "all_to_all", "groups": [], "bytes_per_iteration": "1099511627776", "phase": 0}
    assert job["spec"]["collectives"] == [collective]
    assert (job["missing_hosts"], job["pinned"]) == ([], 0)
    assert mapping.data_of(pb.Compute(seconds=1.5)) == {"seconds": 1.5}
    assert mapping.data_of(pb.Compute(seconds=1.5, phase=0)) == {"seconds": 1.5, "phase": 0}
    for compute in (Compute(seconds=2), Compute(seconds=2, phase=0)):
        assert Compute.model_validate(mapping.data_of(mapping.message_of(pb.Compute, compute))) == compute


@pytest.mark.parametrize(("whole", "nanos"), [(60, 1_000_000_000), (60, -5), (-1, 5), (0, -1_000_000_000)])
def test_durations_that_protobuf_forbids_are_none(whole: int, nanos: int) -> None:
    assert math.isnan(mapping.seconds(Duration(seconds=whole, nanos=nanos)))
    spec = pb.JobSpec(job_id="a", endpoints=["10.0.0.1", "10.0.0.2"], lease=Duration(seconds=whole, nanos=nanos))
    with pytest.raises(InvalidInput, match="lease: "):
        job_spec(spec)
