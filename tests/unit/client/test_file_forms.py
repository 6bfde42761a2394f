"""Short forms of job files: hosts in place of endpoints, and a model in place of groups and collectives."""

from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.file_forms import job_in
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec

OBSERVED: dict[str, Any] = {"job_id": "a", "hosts": "10.0.1-2.1-2"}
MODEL = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 8, "global_batch": 8}
ADDRESSES = "must be IPv4 addresses such as 10.0.1.2, 10.0.1.1-8 or 10.0.1-4.1-8"


def problems(**job: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        job_in({"job_id": "a", **job})
    return {problem.path: problem.message for problem in error.value.problems}


def test_hosts_with_ranges_stand_for_their_ranks_with_all_nics() -> None:
    assert job_in(OBSERVED).endpoints == ("10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2")
    assert job_in({**OBSERVED, "hosts": ["10.0.9.9", "10.0.1.1-2"]}).endpoints == ("10.0.9.9", "10.0.1.1", "10.0.1.2")
    spec = job_in({**OBSERVED, "hosts": "10.0.1.1-2", "ranks_per_host": 2, "rails": [{"hosts": "10.1.1.1-2"}]})
    assert spec.endpoints == ("10.0.1.1", "10.0.1.1", "10.0.1.2", "10.0.1.2")
    assert [rail.endpoints for rail in spec.rails] == [("10.1.1.1", "10.1.1.1", "10.1.1.2", "10.1.1.2")]


def test_a_spec_without_short_forms_is_the_same_spec_and_a_model_stands_for_one() -> None:
    hosts = {"endpoints": ["10.0.1.1", "10.0.2.1"], "rails": [{"endpoints": ["10.1.1.1", "10.1.2.1"]}]}
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 5}]
    plain = {"job_id": "a", **hosts, "transfers": transfers, "library": "gloo", "lease_s": 3600}
    assert job_in(plain) == JobSpec.parse(plain)
    spec = job_in({**OBSERVED, "model": MODEL, "parallelism": {"pipeline": 2}, "max_subflows": 4})
    again = job_in(spec.model_dump(mode="json", exclude_defaults=True))
    assert again == spec
    assert virtual_links(again)
    assert spec.max_subflows == 4


@pytest.mark.parametrize(("job", "path", "message"), [
    ({}, "endpoints", "is missing: give the address of each rank, or hosts"),
    ({**OBSERVED, "endpoints": ["10.0.1.1", "10.0.1.2"]}, "hosts", "give hosts or endpoints, not both"),
    ({"hosts": "10.0.1.1"}, "hosts", "must have at least 2 entries (given: 1)"),
    ({"hosts": "10.0.1.1,10.0.2.1"}, "hosts[0]", f"{ADDRESSES}; several are a list, [10.0.1.1, 10.0.2.1]"),
    ({"hosts": ["node1", "node2"]}, "hosts[1]", f"{ADDRESSES}; only signalbox run --hosts and"),
    ({"hosts": "10.0.1.3-1"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": "10.0.1.01-2"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": "10.0.1.250-256"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": ["10.0.1.1", 7]}, "hosts[1]", "must be text (given: 7)"),
    ({"hosts": "127.0.0.1-2"}, "hosts", "endpoints[1]: must be the address of a host (given: '127.0.0.2')"),
    ({"hosts": ["10.0.1.1-2", "10.0.1.2"]}, "hosts", "10.0.1.2 appears 2 times; list a host once, with ranks_per"),
    ({"hosts": "10.0-255.0-255.1"}, "hosts", "at most 4096 hosts are allowed (given: 65536)"),
    ({"hosts": "10.0.0-3.1-255", "ranks_per_host": 8}, "hosts", "1020 hosts with 8 ranks each make 8160; at most 4096"),
    ({"ranks_per_host": 2, "endpoints": ["10.0.1.1"] * 2}, "ranks_per_host", "is only for jobs with hosts"),
    ({**OBSERVED, "rails": [{"hosts": "10.1.1.1"}]}, "rails[0].hosts", "one address per host is needed: 4 (given: 1)"),
    ({**OBSERVED, "rails": [{}]}, "rails[0]", "give either endpoints or hosts"),
    ({**OBSERVED, "rails": [{"hosts": "10.0.1.1-4"}]}, "rails[0].hosts", "10.0.1.1 is also in endpoints"),
    ({"endpoints": ["10.0.1.1", "10.0.2.1"], "rails": [{"hosts": "10.1.1.1-2"}]}, "rails[0].hosts",
     "is for jobs with hosts; give endpoints, an address per rank"),
    ({**OBSERVED, "parallelism": {"tensor": 2}}, "parallelism",
     "needs a model: give both or neither"),
    ({**OBSERVED, "model": MODEL, "groups": []}, "groups", "cannot be combined with a model"),
    ({**OBSERVED, "model": MODEL, "library": "openmpi"}, "library", "must not be openmpi with a model"),
    ({**OBSERVED, "model": {**MODEL, "width": 3}}, "model.width", "unknown field; known are preset, layers, hidden"),
    ({**OBSERVED, "model": "gpt4"}, "model.preset", "must be 'gpt3-175b', 'llama2-70b', "),
    ({**OBSERVED, "model": MODEL, "parallelism": {"zero": 2}}, "parallelism.zero", "must be 0, 1 or 3 (given: 2)"),
    ({**OBSERVED, "model": {**MODEL, "micro_batch": 4}}, "model.global_batch",
     "must be a multiple of 16: data 4 x micro"),
    ({**OBSERVED, "model": MODEL, "parallelism": {"tensor": 3}}, "parallelism",
     "tensor 3 x pipeline 1: a multiple of 3 ranks"),
])  # fmt: skip
def test_what_is_wrong_is_told_as_it_was_given(job: dict[str, Any], path: str, message: str) -> None:
    found = problems(**job)
    assert path in found
    assert found[path].startswith(message)


def test_limits_of_a_spec_are_those_of_the_model_too() -> None:
    """The job has 4,096 ranks with 8 NICs."""
    rails = [{"hosts": f"10.{rail}.0-1.0-255"} for rail in range(1, 8)]
    job = {"hosts": "10.0.0-1.0-255", "ranks_per_host": 8, "rails": rails, "model": {**MODEL, "global_batch": 2048}}
    (message,) = problems(**job, parallelism={"pipeline": 4}).values()
    assert message.endswith("rails make 98304 virtual links; at most 65536 are allowed")
    job_in({"job_id": "a", **job, "rails": [], "parallelism": {"pipeline": 2}})


OFFER: dict[str, Any] = {
    **OBSERVED,
    "library": "nccl",
    "parallelizations": [
        {"name": "by model", "model": MODEL, "parallelism": {"pipeline": 2}, "compute": [{"seconds": 2}]},
        {"name": "by hand", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": "2 kB"}]},
    ],
}


def ways(**changes: Any) -> list[dict[str, Any]]:
    """Return two parallelizations; ``changes`` replace fields of the second one."""
    first, second = OFFER["parallelizations"]
    return [first, {**second, **changes}]


def test_each_parallelization_has_short_forms_of_its_own() -> None:
    spec = job_in({**OFFER, "max_subflows": 4})
    model = {"model": MODEL, "parallelism": {"pipeline": 2}}
    assert spec.of_parallelization("by model") == job_in({**OBSERVED, **model, "library": "nccl", "max_subflows": 4})
    assert spec.of_parallelization("by hand").transfers[0].bytes_per_iteration == 2000
    assert [len(way.compute) for way in spec.parallelizations] == [1, 0]
    plain = spec.model_dump(mode="json", exclude_defaults=True)
    assert plain.keys() == {"job_id", "endpoints", "library", "max_subflows", "parallelizations"}
    assert JobSpec.parse(plain) == job_in(plain) == spec


@pytest.mark.parametrize(("changes", "path", "message"), [
    ({"model": MODEL}, "parallelizations[1].transfers", "cannot be combined with a model"),
    ({"name": "by model"}, "parallelizations[1].name", "'by model' is the name of several"),
    ({"transfers": []}, "parallelizations[1]", "has no traffic: give a model, collectives or transfers"),
    ({"transfers": [{"src": 0, "dst": 4, "bytes_per_iteration": 1}]}, "parallelizations[1].transfers[0].dst",
     "rank 4 has no endpoint"),
])  # fmt: skip
def test_what_is_wrong_in_a_parallelization_is_told_as_it_was_given(
    changes: dict[str, Any], path: str, message: str
) -> None:
    found = problems(**{**OFFER, "parallelizations": ways(**changes)})
    assert list(found) == ([path] if "several" not in message else ["parallelizations[0].name", path])
    assert found[path].startswith(message)


def test_what_is_wrong_with_all_parallelizations_alike_is_told_once() -> None:
    both = [OFFER["parallelizations"][0], {**OFFER["parallelizations"][0], "name": "again"}]
    assert problems(**{**OFFER, "hosts": "127.0.0.1-4", "parallelizations": ways()}).keys() == {"hosts"}
    assert problems(**{**OFFER, "library": "openmpi", "parallelizations": both}).keys() == {"library"}
    assert problems(parallelizations=ways()) == {"endpoints": "is missing: give the address of each rank, or hosts"}
    told = "cannot be combined with parallelizations, each of which has its own: omit one of them"
    assert problems(**OFFER, groups=[], parallelism={}) == {"groups": told, "parallelism": told}
