"""A spec in a file and the same spec in a call are both accepted, or refused for the same fields."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import example, given, settings
from hypothesis import strategies as st

from signalbox import mapping
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import MAX_RANKS, Algorithm, JobSpec, Library, Striping, Transport
from signalbox.mapping import job_spec
from signalbox.v1 import signalbox_pb2 as pb

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
    """Return an offer of parallelizations with the names 0, 1 and so on."""
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
