"""Messages of the API as types of the client, and rules that job specs, messages and the API share."""

import json
import math
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import example, given, settings
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
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import (
    MAX_RANKS,
    Algorithm,
    Collective,
    Compute,
    JobSpec,
    Library,
    Parallelization,
    Striping,
    Transport,
)
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


NONSENSE = "nonsense"
"""Word that is a value of no enum."""

HOSTS = [f"10.0.{n}.1" for n in range(6)]


def specs_with(wrong: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for specs.

    ``wrong``: whether some values are invalid by themselves; otherwise values are at most inconsistent with each
    other."""

    def some(right: Iterable[Any], *mistakes: Any) -> st.SearchStrategy[Any]:
        return st.sampled_from([*right, *(mistakes if wrong else ())])

    at_least = 0 if wrong else 2
    endpoints = st.lists(some(HOSTS, "10.0.0.300", "127.0.0.1", ""), min_size=at_least, max_size=6)
    rails = [[f"10.{rail}.{n}.1" for n in range(6)] for rail in (0, 1, 1, 2)]
    sizes, numbers = some([1, 1000, 1 << 50], 0, -1, (1 << 50) + 1), some([0, 1, 2, 1000], 1001, -1)
    ranks, names = st.integers(0, 6), some(["dp", "tp"], "", "x" * 64)
    of_ranks = st.lists(ranks, min_size=at_least, max_size=4)
    of_groups = st.lists(names, min_size=at_least // 2, max_size=2)
    group = st.fixed_dictionaries({"name": names, "ranks": of_ranks})
    collective = st.fixed_dictionaries(
        {"algorithm": some(Algorithm, NONSENSE), "groups": of_groups, "bytes_per_iteration": sizes},
        optional={"phase": numbers},
    )
    transfer = st.fixed_dictionaries(
        {"src": ranks, "dst": ranks, "bytes_per_iteration": sizes}, optional={"phase": numbers, "step": numbers}
    )
    of_each = {"groups": group, "collectives": collective, "transfers": transfer}
    sends = {name: st.lists(each, max_size=3) for name, each in of_each.items()}
    compute = st.fixed_dictionaries({"seconds": some([0, 0.25, 1e6], -1.0, 1e7)}, optional={"phase": numbers})
    way = st.fixed_dictionaries({"name": names, **sends}, optional={"compute": st.lists(compute, max_size=2)})
    optional = {
        **sends,
        "parallelizations": st.lists(way, max_size=2),
        "rails": st.lists(st.fixed_dictionaries({"endpoints": st.sampled_from(rails) | endpoints}), max_size=4),
        "library": some(Library, NONSENSE),
        "transport": some(Transport, NONSENSE),
        "striping": some(Striping, NONSENSE),
        "max_subflows": some([1, 2, 16], 17),
        "reports_connections": st.booleans(),
        "lease_s": some([1.0, 59.5, 86_400.0], 0.0, 0.999, 86_400.5),
    }
    job_ids = some(["job", "a.b-c"], "", "Job", "x" * 64)
    return st.fixed_dictionaries({"job_id": job_ids, "endpoints": st.just(HOSTS) | endpoints}, optional=optional)


specs = specs_with(wrong=False) | specs_with(wrong=True)


def in_file(spec: dict[str, Any]) -> JobSpec | dict[str, str]:
    """Return the spec as read from a file, or its problems by their paths in the proto file."""
    try:
        found = JobSpec.parse(json.loads(json.dumps(spec)))
        InvalidInput.refuse(check(found))
    except InvalidInput as error:
        return problems(error)
    return found


def in_call(spec: dict[str, Any]) -> JobSpec | dict[str, str]:
    try:
        return job_spec(ParseDict(proto_json(spec), pb.JobSpec()))
    except InvalidInput as error:
        return problems(error)


def problems(error: InvalidInput) -> dict[str, str]:
    """Return the text of each problem by its path.

    The text is empty for values of enums, because files and calls word these problems differently."""
    found = {}
    for problem in error.problems:
        path, enum = mapping.path_in_proto(pb.JobSpec, problem.path)
        found[path] = "" if enum else problem.message
    return found


def proto_json(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec in the JSON form that ``grpcurl`` accepts."""
    message = dict(spec)
    for name in ("library", "transport", "striping"):
        if name in message:
            message[name] = enum_value(name, message[name])
    message |= with_enums(message)
    if "parallelizations" in message:
        message["parallelizations"] = [{**way, **with_enums(way)} for way in message["parallelizations"]]
    if "lease_s" in message:
        message["lease"] = f"{message.pop('lease_s')}s"
    return message


def with_enums(sends: dict[str, Any]) -> dict[str, Any]:
    def with_enum(each: dict[str, Any]) -> dict[str, Any]:
        return {**each, "algorithm": enum_value("algorithm", each["algorithm"])} if "algorithm" in each else each

    return {"collectives": [with_enum(each) for each in sends.get("collectives", ())]}


def enum_value(field: str, word: str) -> str | int:
    return 99 if word == NONSENSE else f"{field}_{word}".upper()


GOOD: dict[str, Any] = {"job_id": "job", "endpoints": HOSTS, "groups": [{"name": "dp", "ranks": [0, 1, 2, 3]}]}


def collective(**changes: Any) -> dict[str, Any]:
    return {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000, **changes}


BY_HAND: dict[str, Any] = {"name": "by hand", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1}]}


def offer(*ways: dict[str, Any], **more: Any) -> dict[str, Any]:
    parallelizations = [{**BY_HAND, "name": str(number), **way} for number, way in enumerate(ways)]
    return {"job_id": "job", "endpoints": HOSTS, "parallelizations": parallelizations, **more}


@settings(max_examples=40)
@given(specs)
@example({**GOOD, "collectives": [collective()], "lease_s": 59.5, "library": "nccl"})
@example({**GOOD, "collectives": [collective(algorithm="reduce_scatter")], "library": "openmpi"})
@example({**GOOD, "collectives": [collective(groups=["dp", "dp"])]})
@example({**GOOD, "collectives": [{"groups": ["dp"], "bytes_per_iteration": 1000}]})
@example({**GOOD, "rails": [{"endpoints": [f"10.1.{n}.1" for n in range(6)]}]})
@example(offer({"compute": [{"seconds": 0.25}, {"seconds": 0.5, "phase": 0}]}, {}, library="gloo"))
@example(offer({"groups": GOOD["groups"], "collectives": [collective(groups=["dp", "tp"], algorithm="nonsense")]}))
@example(offer({"groups": GOOD["groups"], "collectives": [collective(algorithm="reduce_scatter")]}, library="openmpi"))
@example(offer({}, groups=GOOD["groups"]))
def test_a_file_and_a_call_come_to_the_same(spec: dict[str, Any]) -> None:
    assert in_file(spec) == in_call(spec)


@pytest.mark.parametrize(
    "spec",
    [
        {**GOOD, "endpoints": ["10.0.0.1"] * 4097},
        {**GOOD, "groups": [{"name": f"g{n}", "ranks": [0, 1]} for n in range(4097)]},
        {**GOOD, "groups": [{"name": f"g{n}", "ranks": [0, 1] * 2000} for n in range(MAX_RANKS // 4000 + 1)]},
        {**GOOD, "collectives": [collective()] * 257},
        {**GOOD, "collectives": [collective(groups=["dp"] * 4000)] * 17},
        {**GOOD, "rails": [{"endpoints": [f"10.{rail}.{n}.1" for n in range(6)]} for rail in range(1, 9)]},
        offer(*[{}] * 33),
        offer({"collectives": [collective()] * 257}),
        offer({"compute": [{"seconds": 1}] * 1001}),
        offer(*[{"compute": [{"seconds": 1}] * 1000}] * 5),
    ],
    ids=[
        *("endpoints", "groups", "ranks", "collectives", "groups of collectives", "rails"),
        *("parallelizations", "collectives of one", "compute of one", "all compute"),
    ],
)
def test_what_is_too_long_in_a_call_is_too_long_in_a_file(spec: dict[str, Any]) -> None:
    """A call is refused for the length of a list before the items of the list are checked."""
    told, called = in_file(spec), in_call(spec)
    assert isinstance(told, dict)
    assert isinstance(called, dict)
    assert called
    assert called.items() <= told.items()
