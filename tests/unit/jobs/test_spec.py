from typing import Any

import pytest

from controller.errors import InvalidInput
from controller.jobs.spec import MAX_ENDPOINTS, Algorithm, JobSpec

SPEC: dict[str, Any] = {
    "job_id": "gpt-3.train_1",
    "endpoints": ["10.0.1.1", "10.0.2.1", "10.0.3.1"],
    "groups": [{"name": "dp", "ranks": [0, 1, 2]}, {"name": "pp", "ranks": [0, 2]}],
    "collectives": [
        {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000},
        {"algorithm": "pipeline_send", "groups": ["pp"], "bytes_per_iteration": 10, "phase": 1},
    ],
}


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        JobSpec.parse({**SPEC, **changes})
    return {problem.path: problem.message for problem in error.value.problems}


def collective(**changes: Any) -> list[dict[str, Any]]:
    return [{**SPEC["collectives"][0], **changes}]


def test_a_good_spec_is_parsed_with_its_defaults() -> None:
    spec = JobSpec.parse(SPEC)
    assert (spec.lease_s, spec.collectives[0].phase, spec.collectives[1].algorithm) == (
        60.0,
        0,
        Algorithm.PIPELINE_SEND,
    )


def test_equal_data_make_equal_specs() -> None:
    assert JobSpec.parse(SPEC) == JobSpec.parse(JobSpec.parse(SPEC).model_dump(mode="json"))


@pytest.mark.parametrize("job_id", ["", "Upper", "a b", "-a", "a-", "a/b", "a" * 64, "a\n", "ä"])
def test_job_ids_that_are_no_names_are_refused(job_id: str) -> None:
    assert set(problems(job_id=job_id)) == {"job_id"}


@pytest.mark.parametrize(
    "address", ["10.0.0", "10.0.0.256", "fe80::1", "host", "", "127.0.0.1", "0.0.0.0", "224.0.0.1"]
)
def test_endpoints_that_are_no_hosts_are_refused(address: str) -> None:
    assert set(problems(endpoints=["10.0.1.1", "10.0.2.1", address])) == {"endpoints[2]"}


def test_an_address_has_one_rank() -> None:
    found = problems(endpoints=["10.0.1.1", "10.0.1.1", "10.0.3.1"])
    assert found == {"endpoints": "10.0.1.1 appears 2 times; one rank per address"}


@pytest.mark.parametrize("size", [0, -1, (1 << 50) + 1, 1.5, "many", None])
def test_bytes_that_are_no_size_are_refused(size: object) -> None:
    assert set(problems(collectives=collective(bytes_per_iteration=size))) == {"collectives[0].bytes_per_iteration"}


@pytest.mark.parametrize("lease", [0, 0.5, -1, 86_401, float("inf"), float("nan")])
def test_leases_out_of_range_are_refused(lease: float) -> None:
    assert set(problems(lease_s=lease)) == {"lease_s"}


def test_ranks_need_an_endpoint_and_appear_once() -> None:
    found = problems(groups=[{"name": "dp", "ranks": [0, 3]}, {"name": "pp", "ranks": [1, 1]}])
    assert found == {
        "groups[0].ranks[1]": "rank 3 has no endpoint; ranks go from 0 to 2",
        "groups[1].ranks": "a rank appears twice",
    }


def test_group_names_are_unique_and_known() -> None:
    assert set(problems(groups=[SPEC["groups"][0], SPEC["groups"][0]], collectives=collective())) == {
        "groups[0].name",
        "groups[1].name",
    }
    found = problems(collectives=collective(groups=["dp", "tp"]))
    assert found == {"collectives[0].groups[1]": "no group is called 'tp'; there are: dp, pp"}


def test_all_problems_are_reported_at_once() -> None:
    assert set(problems(job_id="?", endpoints=["x", "y"], color="blue", collectives=[])) == {
        "job_id",
        "endpoints[0]",
        "endpoints[1]",
        "color",
        "collectives",
    }


def test_a_list_whose_items_are_wrong_is_not_called_too_short_as_well() -> None:
    assert set(problems(collectives=collective(algorithm="magic"))) == {"collectives[0].algorithm"}


@pytest.mark.parametrize("name", ["endpoints", "groups", "collectives"])
def test_lists_must_not_be_empty(name: str) -> None:
    assert name in problems(**{name: []})


def test_too_many_endpoints_are_refused() -> None:
    endpoints = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(1, MAX_ENDPOINTS + 2)]
    count = MAX_ENDPOINTS + 1
    assert problems(endpoints=endpoints) == {"endpoints": f"at most 4096 endpoints are allowed (given: {count})"}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"job_id": "A b"}, "job_id", "must have 1 to 63 lower-case letters, digits, '.', '_' and '-'"),
        ({"job_id": 7}, "job_id", "must be text (given: 7)"),
        ({"endpoints": ["10.0.1.1"]}, "endpoints", "at least 2 endpoints are needed (given: 1)"),
        ({"endpoints": "10.0.1.1"}, "endpoints", "must be a list (given: '10.0.1.1')"),
        ({"lease_s": "soon"}, "lease_s", "must be a number (given: 'soon')"),
        ({"lease_s": 0}, "lease_s", "must be at least 1.0 (given: 0)"),
        (
            {"size": 1},
            "size",
            "unknown field; known are job_id, endpoints, groups, collectives, max_subflows, transport, lease_s",
        ),
        (
            {"collectives": collective(bytes=1)},
            "collectives[0].bytes",
            "unknown field; known are algorithm, groups, bytes_per_iteration, phase",
        ),
        ({"collectives": collective(algorithm="magic")}, "collectives[0].algorithm", "must be 'ring_all_reduce', "),
        ({"collectives": [3]}, "collectives[0]", "must be an object or table with the fields algorithm, groups, "),
        ({"groups": [{"name": "dp"}]}, "groups[0].ranks", "is missing"),
        ({"groups": [{"name": "g" * 64, "ranks": [0, 1]}]}, "groups[0].name", "must have at most 63 characters"),
    ],
)
def test_problems_are_told_in_words(changes: dict[str, Any], path: str, message: str) -> None:
    assert problems(**changes)[path].startswith(message)


@pytest.mark.parametrize("data", [None, [], "job", 3])
def test_what_is_no_mapping_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput):
        JobSpec.parse(data)
