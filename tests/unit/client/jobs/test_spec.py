from contextlib import nullcontext
from ipaddress import AddressValueError, IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import MAX_ENDPOINTS, Algorithm, JobSpec, same_traffic

SPEC: dict[str, Any] = {
    "job_id": "gpt-3.train_1",
    "endpoints": ["10.0.1.1", "10.0.2.1", "10.0.3.1"],
    "groups": [{"name": "dp", "ranks": [0, 1, 2]}, {"name": "pp", "ranks": [0, 2]}],
    "collectives": [
        {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000},
        {"algorithm": "pipeline_send", "groups": ["pp"], "bytes_per_iteration": 10, "phase": 1},
    ],
}


def problems(of: dict[str, Any] = SPEC, **changes: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        JobSpec.parse({**of, **changes})
    return {problem.path: problem.message for problem in error.value.problems}


def collective(**changes: Any) -> list[dict[str, Any]]:
    return [{**SPEC["collectives"][0], **changes}]


def test_a_good_spec_has_its_defaults_and_is_observed_without_collectives_and_transfers() -> None:
    spec = JobSpec.parse(SPEC)
    found = (spec.lease_s, spec.collectives[0].phase, spec.collectives[1].algorithm)
    assert found == (60.0, 0, Algorithm.PIPELINE_SEND)
    assert JobSpec.parse(spec.model_dump(mode="json")) == spec
    spec = JobSpec.parse({"job_id": "job", "endpoints": ["10.0.1.1", "10.0.2.1"]})
    assert spec.observed
    assert (spec.library, spec.striping, spec.reports_connections) == ("generic", "by_share", False)
    assert JobSpec.parse({**SPEC, "collectives": []}).observed
    assert not JobSpec.parse(SPEC).observed


@pytest.mark.parametrize("job_id", ["", "Upper", "a b", "-a", "a-", "a/b", "a" * 64, "a\n", "ä"])
def test_job_ids_that_are_no_names_are_refused(job_id: str) -> None:
    assert set(problems(job_id=job_id)) == {"job_id"}


@pytest.mark.parametrize("size", [0, -1, (1 << 50) + 1, 1.5, "many", "480000", True, None])
def test_bytes_that_are_no_size_are_refused(size: object) -> None:
    assert set(problems(collectives=collective(bytes_per_iteration=size))) == {"collectives[0].bytes_per_iteration"}


@pytest.mark.parametrize("lease", [0, 0.5, -1, 86_401, float("inf"), float("nan"), "60", True])
def test_leases_out_of_range_are_refused(lease: object) -> None:
    assert set(problems(lease_s=lease)) == {"lease_s"}


def test_ranks_and_names_of_groups_are_known_and_unique() -> None:
    found = problems(groups=[{"name": "dp", "ranks": [0, 3]}, {"name": "pp", "ranks": [1, 1]}])
    assert found == {
        "groups[0].ranks[1]": "rank 3 has no endpoint; ranks go from 0 to 2",
        "groups[1].ranks": "rank 1 appears 2 times; name each rank once per group",
    }
    shown = set(problems(groups=[SPEC["groups"][0], SPEC["groups"][0]], collectives=collective()))
    assert shown == {"groups[0].name", "groups[1].name"}
    found = problems(collectives=collective(groups=["dp", "tp"]))
    assert found == {"collectives[0].groups[1]": "no group is called 'tp'; there are: dp, pp"}

    found = problems(groups=[], collectives=collective())
    assert found == {"collectives[0].groups[0]": "no group is called 'dp'; there are: none"}


def transfer(**changes: Any) -> list[dict[str, Any]]:
    return [{"src": 0, "dst": 1, "bytes_per_iteration": 1, **changes}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": 3}, "src: rank 3 has no endpoint; ranks go from 0 to 2"),
        ({"dst": 4}, "dst: rank 4 has no endpoint; ranks go from 0 to 2"),
        ({"src": "10.0.1.1"}, "src: must be the number of a rank (given: '10.0.1.1')"),
        ({"src": -1}, "src: must be at least 0 (given: -1)"),
        ({"dst": 0}, "dst: rank 0 sends to itself"),
        ({"bytes_per_iteration": (1 << 50) + 1}, "bytes_per_iteration: must be at most 1125899906842624 "),
        ({"phase": 1001}, "phase: must be at most 1000 (given: 1001)"),
        ({"step": -1}, "step: must be at least 0 (given: -1)"),
        ({"step": 1001}, "step: must be at most 1000 (given: 1001)"),
        ({"size": 1}, "size: unknown field; known are src, dst, bytes_per_iteration, phase, step"),
    ],
)
def test_transfers_that_are_none_are_refused(changes: dict[str, Any], message: str) -> None:
    ((path, told),) = problems(transfers=transfer(**changes)).items()
    assert f"{path}: {told}".startswith(f"transfers[0].{message}")


@pytest.mark.parametrize(("rails", "path", "message"), [
    ([["10.1.1.1", "10.1.2.1"]], "rails[0].endpoints", "one address per rank is needed: 3 (given: 2)"),
    ([["10.1.1.1", "10.1.1.1", "10.0.3.1"]], "rails[0].endpoints[2]",
     "10.0.3.1 is also in endpoints; each address may be in one rail only"),
    ([["10.1.1.1", "10.1.1.1", "10.1.3.1"], ["10.2.1.1", "10.2.1.1", "10.1.3.1"]], "rails[1].endpoints[2]",
     "10.1.3.1 is also in rails[0].endpoints; each address may be in one rail only"),
    ([["10.1.1.1", "10.1.2.1", "10.1.3.1"]], "rails[0].endpoints[1]",
     "another rank on 10.0.1.1 has 10.1.1.1; ranks on one host need the same address in a rail"),
    ([["10.1.1.1", "10.1.1.1", "10.1.1.1"]], "rails[0].endpoints[2]",
     "ranks on 10.0.1.1 also have 10.1.1.1; ranks on different hosts need different addresses"),
    ([["10.1.1.1", "10.1.1.1", "nic"]], "rails[0].endpoints[2]", "must be an IPv4 address such as 10.0.1.2"),
])  # fmt: skip
def test_rails_that_do_not_fit_the_endpoints_are_refused(rails: list[list[str]], path: str, message: str) -> None:
    """Ranks 0 and 1 are on one host."""
    endpoints = ["10.0.1.1", "10.0.1.1", "10.0.3.1"]
    found = problems(endpoints=endpoints, rails=[{"endpoints": rail} for rail in rails])
    assert {at: told.partition(" (given: 'nic')")[0] for at, told in found.items()} == {path: message}


@given(
    st.one_of(
        st.ip_addresses(v=4).map(str),
        st.lists(st.sampled_from(["0", "00", "01", "1", "127", "223", "224", "239", "240", "255", "256", ""])).map(
            ".".join
        ),
        st.text(st.sampled_from(list("0123456789abx. :/-+_\0\n\ud800\u0661"))),
    )
)
def test_addresses_are_what_the_standard_library_takes_for_addresses_of_hosts(text: str) -> None:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        expected = False
    else:
        expected = not (address.is_multicast or address.is_unspecified or address.is_loopback or address.is_reserved)
    given_as = {**SPEC, "endpoints": [text, "10.0.2.1", "10.0.3.1"]}
    with nullcontext() if expected else pytest.raises(InvalidInput):
        assert JobSpec.parse(given_as).endpoints[0] == text


def test_lists_have_limits() -> None:
    rails = [{"endpoints": [f"10.{1 + r}.0.{1 + rank}" for rank in range(3)]} for r in range(8)]
    assert len(JobSpec.parse({**SPEC, "rails": rails[:7]}).rails) == 7
    assert problems(rails=rails) == {"rails": "at most 7 rails are allowed (given: 8)"}
    endpoints = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(1, MAX_ENDPOINTS + 2)]
    count = MAX_ENDPOINTS + 1
    assert problems(endpoints=endpoints) == {"endpoints": f"at most 4096 endpoints are allowed (given: {count})"}
    transfers = transfer() * 65_537
    assert problems(transfers=transfers) == {"transfers": "at most 65536 transfers are allowed (given: 65537)"}


def test_all_problems_are_reported_at_once_but_a_flood_of_them_in_part() -> None:
    found = problems(job_id="?", endpoints=["x", "y"], color="blue", striping="fair")
    assert found.keys() == {"job_id", "endpoints[0]", "endpoints[1]", "color", "striping"}
    assert len(problems(transfers=transfer(src=9, dst=8) * 1000)) == 100


@pytest.mark.parametrize(("changes", "path", "message"), [
    ({"job_id": "A b"}, "job_id", "must have 1 to 63 lower-case letters, digits, '.', '_' and '-'"),
    ({"job_id": ""}, "job_id", "is missing"),
    ({"endpoints": ["10.0.1.1"]}, "endpoints", "must have at least 2 entries (given: 1)"),
    ({"lease_s": "soon"}, "lease_s", "must be a number (given: 'soon')"),
    ({"lease_s": 0}, "lease_s", "must be at least 1 s (given: 0 s)"),
    ({"size": 1}, "size",
     "unknown field; known are job_id, endpoints, groups, collectives, transfers, library, rails, "),
    ({"collectives": collective(algorithm="magic")}, "collectives[0].algorithm", "must be 'ring_all_reduce', "),
    ({"library": "mpich"}, "library", "must be 'generic', 'gloo', 'openmpi' or 'nccl' (given: 'mpich')"),
    ({"library": "NCCL"}, "library",
     "must be 'generic', 'gloo', 'openmpi' or 'nccl' (given: 'NCCL'; did you mean 'nccl'?)"),
    ({"reports_connections": "often"}, "reports_connections", "must be true or false (given: 'often')"),
    ({"collectives": collective(groups=[])}, "collectives[0].groups", "must have at least 1 entry (given: 0)"),
    ({"collectives": [3]}, "collectives[0]", "must be an object or table with the fields algorithm, groups, "),
    ({"groups": [{"name": "dp"}]}, "groups[0].ranks", "is missing"),
    ({"groups": [{"name": "g" * 64, "ranks": [0, 1]}]}, "groups[0].name", "must have at most 63 characters"),
    ({"groups": [{"name": "a\x1b[31m", "ranks": [0, 1]}]}, "groups[0].name", "must have printable characters only"),
    ({"groups": [{"name": "\u202eb", "ranks": [0, 1]}]}, "groups[0].name", "must have printable characters only"),
])  # fmt: skip
def test_each_problem_is_told_once_in_words(changes: dict[str, Any], path: str, message: str) -> None:
    """A list with wrong items, for example, causes no second error that the list is too short."""
    ((place, told),) = problems(**changes).items()
    assert place == path
    assert told.startswith(message)


@pytest.mark.parametrize("data", [None, [], "job", 3])
def test_what_is_no_mapping_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput):
        JobSpec.parse(data)


COMMON = {name: SPEC[name] for name in ("job_id", "endpoints")}
SENDS = {name: SPEC[name] for name in ("groups", "collectives")}
OFFER: dict[str, Any] = {
    **COMMON,
    "library": "nccl",
    "parallelizations": [
        {"name": "as ever", **SENDS, "compute": [{"seconds": 0.5}, {"seconds": 1, "phase": 1}]},
        {"name": "by hand", "transfers": [{"src": 0, "dst": 2, "bytes_per_iteration": 7}]},
    ],
}


def parallelizations(**changes: Any) -> list[dict[str, Any]]:
    first, second = OFFER["parallelizations"]
    return [first, {**second, **changes}]


def test_each_parallelization_is_a_plain_spec_with_what_all_have_in_common() -> None:
    spec = JobSpec.parse(OFFER)
    assert not spec.observed
    assert spec.addresses == frozenset(SPEC["endpoints"])
    assert spec.plain == spec.of_parallelization("as ever") == JobSpec.parse({**SPEC, "library": "nccl"})
    by_hand = spec.of_parallelization("by hand")
    assert by_hand == JobSpec.parse(
        {**COMMON, "library": "nccl", "transfers": OFFER["parallelizations"][1]["transfers"]}
    )
    assert by_hand.plain is by_hand
    with pytest.raises(KeyError):
        spec.of_parallelization("by chance")
    with pytest.raises(KeyError):
        by_hand.of_parallelization("by hand")
    compute = spec.parallelizations[0].compute
    assert [(each.seconds, each.phase) for each in compute] == [(0.5, None), (1.0, 1)]
    assert spec.parallelizations[1].compute == ()
    assert JobSpec.parse(spec.model_dump(mode="json")) == spec


def test_what_was_measured_counts_as_long_as_all_parallelizations_send_the_same() -> None:
    spec = JobSpec.parse(OFFER)
    assert same_traffic(spec, JobSpec.parse({**OFFER, "lease_s": 5, "max_subflows": 2}))
    assert not same_traffic(spec, spec.plain)
    other = [{"src": 0, "dst": 2, "bytes_per_iteration": 8}]
    assert not same_traffic(spec, JobSpec.parse({**OFFER, "parallelizations": parallelizations(transfers=other)}))


TIMING: dict[str, Any] = {
    "compute": [{"seconds": 0.5}, {"seconds": 0.25, "before": 1}, {"seconds": 1, "phase": 1}],
    "gpus": 24,
    "work_per_iteration": 1e15,
    "weight": 2.5,
    "keeps_slots": True,
}


def test_times_of_computing_are_read_and_are_no_traffic() -> None:
    spec = JobSpec.parse({**SPEC, **TIMING})
    assert [(each.seconds, each.phase, each.before) for each in spec.compute] == [
        (0.5, None, None),
        (0.25, None, 1),
        (1.0, 1, None),
    ]
    assert (spec.gpus, spec.work_per_iteration, spec.weight, spec.keeps_slots) == (24, 1e15, 2.5, True)
    assert JobSpec.parse(spec.model_dump(mode="json")) == spec
    plain = JobSpec.parse(SPEC)
    assert (plain.compute, plain.gpus, plain.work_per_iteration, plain.weight, plain.keeps_slots) == (
        (),
        *[None] * 3,
        False,
    )
    assert same_traffic(spec, plain)


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"compute": [{"seconds": -1}]}, "compute[0].seconds", "must be at least 0"),
        ({"compute": [{"seconds": 1}] * 1001}, "compute", "at most 1000 compute are allowed"),
        ({"compute": [{"seconds": 1, "before": 1001}]}, "compute[0].before", "must be at most 1000"),
        ({"compute": [{"seconds": 1, "phase": 0, "before": 1}]}, "compute[0].before", "cannot be combined with phase"),
        ({"gpus": 0}, "gpus", "must be at least 1"),
        ({"gpus": 1000}, "gpus", "at most"),
        ({"work_per_iteration": 0}, "work_per_iteration", "must be more than 0"),
        ({"weight": 2e6}, "weight", "must be at most 1000000"),
        ({"keeps_slots": "yes"}, "keeps_slots", "must be true or false"),
    ],
)
def test_wrong_times_of_computing_are_refused_with_their_place(
    changes: dict[str, Any], path: str, message: str
) -> None:
    (found,) = problems(SPEC, **changes).items()
    assert (found[0], found[1][: len(message)]) == (path, message)


def test_each_parallelization_has_the_traffic_and_groups_of_its_own() -> None:
    """Parallelizations may have groups of the same name."""
    told = "cannot be combined with parallelizations, each of which has its own: omit one of them"
    assert problems(OFFER, **SENDS) == {"groups": told, "collectives": told}
    assert problems(OFFER, transfers=transfer()) == {"transfers": told}
    assert problems(OFFER, compute=[{"seconds": 1}]) == {"compute": told}
    own = {"groups": [{"name": "dp", "ranks": [2, 1]}], "collectives": collective()}
    spec = JobSpec.parse({**OFFER, "parallelizations": parallelizations(**own)})
    assert [spec.of_parallelization(way.name).groups[0].ranks for way in spec.parallelizations] == [(0, 1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"name": "as ever"}, "parallelizations[1].name", "'as ever' is the name of several"),
        ({"name": ""}, "parallelizations[1].name", "must have at least 1 characters"),
        ({"transfers": []}, "parallelizations[1]", "has no traffic: give collectives or transfers"),
        ({"collectives": collective()}, "parallelizations[1].collectives[0].groups[0]", "no group is called 'dp'"),
        ({"groups": [{"name": "a", "ranks": [0, 0]}]}, "parallelizations[1].groups[0].ranks", "rank 0 appears 2 times"),
        ({"transfers": transfer(src=3)}, "parallelizations[1].transfers[0].src", "rank 3 has no endpoint"),
        ({"compute": [{"seconds": -1}]}, "parallelizations[1].compute[0].seconds", "must be at least 0"),
        ({"compute": [{"seconds": 1e7}]}, "parallelizations[1].compute[0].seconds", "must be at most 1000000"),
    ],
)
def test_what_is_wrong_with_a_parallelization_is_told_with_its_place(
    changes: dict[str, Any], path: str, message: str
) -> None:
    found = problems(OFFER, parallelizations=parallelizations(**changes))
    assert found[path].startswith(message)


def groups(count: int, ranks: int = 2) -> list[dict[str, Any]]:
    return [{"name": f"g{number}", "ranks": range(ranks)} for number in range(count)]


def test_limits_hold_for_each_parallelization_and_those_that_save_memory_for_all_together() -> None:
    one = parallelizations()[1]
    many = [{**one, "name": str(number)} for number in range(33)]
    assert len(JobSpec.parse({**OFFER, "parallelizations": many[:32]}).parallelizations) == 32
    assert problems(OFFER, parallelizations=many) == {
        "parallelizations": "at most 32 parallelizations are allowed (given: 33)"
    }
    found = problems(OFFER, parallelizations=[{**one, "groups": groups(4097)}])
    assert found == {"parallelizations[0].groups": "at most 4096 groups are allowed (given: 4097)"}

    def all_with(count: int, **more: Any) -> list[dict[str, Any]]:
        return [{**each, **more} for each in many[:count]]

    four = all_with(4, groups=groups(4096))
    JobSpec.parse({**OFFER, "parallelizations": four})
    for too_many, most in (
        ([*four, {**many[4], "groups": groups(1)}], "16384 groups are allowed (given: 16385)"),
        (all_with(2, transfers=transfer() * 32_769), "65536 transfers are allowed (given: 65538)"),
        (all_with(5, compute=[{"seconds": 1}] * 1000), "4000 times of computing are allowed (given: 5000)"),
    ):
        assert problems(OFFER, parallelizations=too_many) == {"parallelizations": f"at most {most}"}
    endpoints, of_all = [f"10.0.{n >> 8}.{n & 255}" for n in range(1, 4097)], all_with(3, groups=groups(11, 4096))
    most = "at most 131072 ranks in all groups are allowed (given: 135168)"
    assert problems(OFFER, endpoints=endpoints, parallelizations=of_all) == {"parallelizations": most}
