from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.errors import InvalidInput
from signalbox.jobs import collectives
from signalbox.jobs.collectives import VirtualLink, check, formulas_of, link_count, virtual_links
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, Algorithm, JobSpec, Library


def spec(algorithm: str, n: int, size: int, **more: object) -> JobSpec:
    send = {"algorithm": algorithm, "groups": ["dp"], "bytes_per_iteration": size, **more}
    groups, hosts = [{"name": "dp", "ranks": range(n)}], [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(n)]
    return JobSpec.parse({"job_id": "job", "endpoints": hosts, "groups": groups, "collectives": [send]})


def pairs(job: JobSpec) -> dict[tuple[int, int], int]:
    rank = {ip: r for r, ip in enumerate(job.endpoints)}
    total: Counter[tuple[int, int]] = Counter()
    for v in virtual_links(job):
        total[rank[v.src_ip], rank[v.dst_ip]] += v.bytes
    return dict(total)


RING, HALF = ({(0, 1): size, (1, 2): size, (2, 3): size, (3, 0): size} for size in (1500, 750))
CHAIN = {(0, 1): 7, (1, 2): 7, (2, 3): 7}


@pytest.mark.parametrize(("algorithm", "n", "size", "sent"), [
    ("ring_all_reduce", 4, 1000, RING),
    ("ring_all_reduce", 2, 1000, {(0, 1): 1000, (1, 0): 1000}),
    ("ring_reduce_scatter", 4, 1000, HALF),
    ("ring_all_gather", 4, 1000, HALF),
    ("all_to_all", 3, 10, {(src, dst): 4 for src in range(3) for dst in range(3) if src != dst}),
    ("broadcast", 4, 7, CHAIN),
    ("pipeline_send", 4, 7, CHAIN),
])  # fmt: skip
def test_what_ranks_send_each_other(algorithm: str, n: int, size: int, sent: dict[tuple[int, int], int]) -> None:
    assert pairs(spec(algorithm, n, size)) == sent


def test_ring_follows_the_order_of_the_group() -> None:
    groups = [{"name": "dp", "ranks": [2, 0, 1]}]
    found = pairs(job(3, groups=groups, collectives=[collective("ring_all_gather", 3, "dp")]))
    assert found == {(2, 0): 2, (0, 1): 2, (1, 2): 2}


def test_halving_doubling_exchanges_less_with_farther_ranks_in_phases_of_their_own() -> None:
    job = spec("halving_doubling_all_reduce", 8, 800)
    sent = pairs(job)
    assert {dst: size for (src, dst), size in sent.items() if src == 0} == {1: 800, 2: 400, 4: 200}
    assert all(sent[dst, src] == size for (src, dst), size in sent.items())
    assert len(sent) == 8 * 3
    assert {(v.phase, v.bytes) for v in virtual_links(job)} == {(0, 800), (1, 400), (2, 200)}


# ---- transfers and steps


def job(ranks: int = 4, hosts: int | None = None, **fields: Any) -> JobSpec:
    """Return a job; ``hosts``: number of hosts over which the ranks are divided in order, by default one per rank."""
    endpoints = [f"10.0.0.{1 + rank * (hosts or ranks) // ranks}" for rank in range(ranks)]
    return JobSpec.parse({"job_id": "job", "endpoints": endpoints, **fields})


def transfer(src: int, dst: int, size: int, phase: int = 0, step: int = 0) -> dict[str, int]:
    return {"src": src, "dst": dst, "bytes_per_iteration": size, "phase": phase, "step": step}


def collective(algorithm: str, size: int, *groups: str, phase: int = 0) -> dict[str, Any]:
    return {"algorithm": algorithm, "groups": groups, "bytes_per_iteration": size, "phase": phase}


HALVES = [{"name": "a", "ranks": [0, 1]}, {"name": "b", "ranks": [2, 3]}]
ALL = [{"name": "all", "ranks": [0, 1, 2, 3]}]


def by_phase(spec: JobSpec) -> list[dict[tuple[int, int], int]]:
    """Return the bytes by (source, destination) for each phase of the planner.

    Source and destination are the last numbers of the addresses, less 1."""
    links = virtual_links(spec)
    found: list[dict[tuple[int, int], int]] = [{} for _ in {v.phase for v in links}]
    for v in links:
        found[v.phase][int(v.src_ip.split(".")[-1]) - 1, int(v.dst_ip.split(".")[-1]) - 1] = v.bytes
    return found


def test_transfers_of_one_step_overlap_those_of_one_pair_are_added_up_and_steps_follow_each_other() -> None:
    sent = [transfer(0, 1, 10), transfer(2, 3, 5), transfer(0, 1, 1)]
    assert by_phase(job(transfers=sent)) == [{(0, 1): 11, (2, 3): 5}]
    sent = [transfer(0, 1, 1, phase=7, step=2), transfer(1, 2, 2, phase=7), transfer(2, 3, 3, phase=1, step=900)]
    assert by_phase(job(transfers=sent)) == [{(2, 3): 3}, {(1, 2): 2}, {(0, 1): 1}]


@pytest.mark.parametrize(("phase", "sent"), [
    (0, [{(0, 1): 15, (1, 0): 10}]),
    (3, [{(0, 1): 10, (1, 0): 10}, {(0, 1): 5}]),
])  # fmt: skip
def test_collectives_of_one_phase_merge_and_phases_are_numbered_in_their_order(
    phase: int, sent: list[dict[tuple[int, int], int]]
) -> None:
    groups = [{"name": name, "ranks": [0, 1]} for name in ("dp", "pp")]
    sends = [collective("ring_all_reduce", 10, "dp"), collective("pipeline_send", 5, "pp", phase=phase)]
    assert by_phase(job(2, groups=groups, collectives=sends)) == sent


def test_groups_take_steps_together_where_they_have_equally_many() -> None:
    spec = job(groups=HALVES, collectives=[collective("recursive_doubling_all_reduce", 8, "a", "b")])
    assert by_phase(spec) == [{(0, 1): 8, (1, 0): 8, (2, 3): 8, (3, 2): 8}]
    also = [transfer(0, 3, 5, step=1), transfer(0, 3, 6, step=4)]
    spec = job(groups=ALL, collectives=[collective("recursive_doubling_all_reduce", 8, "all")], transfers=also)
    first, second = {(0, 1): 8, (1, 0): 8, (2, 3): 8, (3, 2): 8}, {(0, 2): 8, (2, 0): 8, (1, 3): 8, (3, 1): 8}
    assert by_phase(spec) == [{**first, (0, 3): 5}, {**second, (0, 3): 6}]
    one, two = (collective("recursive_doubling_all_reduce", 8, "all", phase=phase) for phase in (0, 1))
    spec = job(groups=[*ALL, *HALVES], collectives=[one, collective("pipeline_send", 5, "b"), two])
    first, second = {(0, 1): 8, (1, 0): 8, (2, 3): 8, (3, 2): 8}, {(0, 2): 8, (2, 0): 8, (1, 3): 8, (3, 1): 8}
    assert by_phase(spec) == [{**first, **second, (2, 3): 13}, first, second]


def test_a_transfer_between_hosts_is_divided_evenly_over_the_nics_and_one_within_a_host_is_no_link() -> None:
    groups = [{"name": "all", "ranks": range(8)}]
    ring = job(8, hosts=2, groups=groups, collectives=[collective("ring_all_reduce", 800, "all")])
    assert by_phase(ring) == [{(0, 1): 1400, (1, 0): 1400}]
    doubling = job(8, hosts=2, groups=groups, collectives=[collective("recursive_doubling_all_reduce", 800, "all")])
    assert by_phase(doubling) == [{(0, 1): 3200, (1, 0): 3200}], "of its three steps only the last leaves the hosts"
    assert virtual_links(job(2, hosts=1, transfers=[transfer(0, 1, 5)])) == virtual_links(job()) == ()
    rails = [{"endpoints": ["10.1.0.1", "10.1.0.1", "10.1.0.2", "10.1.0.2"]}]
    spec = job(4, hosts=2, rails=rails, transfers=[transfer(0, 2, 5), transfer(0, 1, 9), transfer(3, 1, 2, phase=4)])
    assert virtual_links(spec) == (
        VirtualLink("10.0.0.1", "10.0.0.2", 0, 3),
        VirtualLink("10.0.0.2", "10.0.0.1", 1, 1),
        VirtualLink("10.1.0.1", "10.1.0.2", 0, 3),
        VirtualLink("10.1.0.2", "10.1.0.1", 1, 1),
    )


@given(
    algorithm=st.sampled_from(Algorithm),
    library=st.sampled_from(Library),
    n=st.integers(2, 17),
    hosts=st.integers(2, 4),
    rails=st.integers(0, 2),
)
def test_no_byte_between_hosts_is_lost(algorithm: Algorithm, library: Library, n: int, hosts: int, rails: int) -> None:
    """Bytes from host to host do not depend on the number of ranks and NICs per host."""
    size = 720_720 * 1024
    """Bytes, divisible by all divisors of the formulas, so that nothing is rounded."""
    fields: dict[str, Any] = {"groups": [{"name": "all", "ranks": range(n)}], "library": library}
    fields["collectives"] = [collective(algorithm, size * (rails + 1), "all")]
    apart = job(n, **fields)
    if check(apart):
        assert (library, n) in {("openmpi", 16), ("openmpi", 17)}
        return
    host = [rank * hosts // n for rank in range(n)]
    other_nics = [{"endpoints": [f"10.{1 + r}.0.{1 + h}" for h in host]} for r in range(rails)]
    shared = job(n, hosts=hosts, rails=other_nics, **fields)
    expected: Counter[tuple[int, int]] = Counter()
    for (src, dst), sent in pairs(apart).items():
        if host[src] != host[dst]:
            expected[host[src], host[dst]] += sent
    crossing: Counter[tuple[int, int]] = Counter()
    for v in virtual_links(shared):
        assert v.src_ip.rpartition(".")[0] == v.dst_ip.rpartition(".")[0], "NIC k to NIC k"
        crossing[int(v.src_ip.split(".")[-1]) - 1, int(v.dst_ip.split(".")[-1]) - 1] += v.bytes
    assert all(abs(crossing[pair] - expected[pair]) <= 64 * (rails + 1) for pair in crossing | expected)


# ---- refused specs


def test_every_group_transfer_and_nic_counts_towards_the_limit_before_links_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert check(spec("all_to_all", 256, 1)) == [], "the largest is accepted"
    assert [str(p) for p in check(spec("all_to_all", 4000, 1))] == [
        f"collectives: the collectives make {4000 * 3999} virtual links; at most {MAX_VIRTUAL_LINKS} are allowed"
    ]
    groups = [{"name": name, "ranks": range(200)} for name in ("a", "b")]
    assert check(job(200, groups=groups, collectives=[collective("all_to_all", 1, "a")])) == []
    both = job(200, groups=groups, collectives=[collective("all_to_all", 1, "a", "b")])
    assert [p.path for p in check(both)] == ["collectives"]
    monkeypatch.setattr(collectives, "MAX_VIRTUAL_LINKS", 4)
    rails = [{"endpoints": [f"10.1.0.{1 + rank}" for rank in range(4)]}]
    assert check(job(rails=rails, transfers=[transfer(0, 1, 1)] * 2)) == []
    assert [str(p) for p in check(job(rails=rails, transfers=[transfer(0, 1, 1)] * 3))] == [
        "transfers: the transfers and rails make 6 virtual links; at most 4 are allowed"
    ]


def test_no_job_and_no_parallelization_sends_more_than_the_api_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collectives.MAX_JOB_BYTES < 1 << 63
    monkeypatch.setattr(collectives, "MAX_JOB_BYTES", 2010)
    sent = [transfer(0, 1, 1000, phase) for phase in (0, 1)]
    too_much = [*sent, transfer(0, 1, 11)]
    assert len(virtual_links(job(transfers=sent))) == 2
    with pytest.raises(InvalidInput, match="transfers: the job sends 2011 bytes per iteration"):
        virtual_links(job(transfers=too_much))
    assert check(offer(BY_HAND, {"transfers": sent})) == []
    assert [p.path for p in check(offer(BY_HAND, {"transfers": too_much}))] == ["parallelizations[1].transfers"]


def test_what_a_library_does_is_refused_where_it_is_not_known() -> None:
    spec = job(groups=ALL, library="openmpi", collectives=[collective("broadcast", 100, "all")])
    assert [str(p) for p in check(spec)] == [
        "collectives[0].algorithm: the transfers of openmpi for broadcast of 100 bytes over 4 ranks are not known; "
        "announce another algorithm, or transfers"
    ]
    with pytest.raises(InvalidInput, match="not known"):
        virtual_links(spec)


# ---- parallelizations


def offer(*ways: dict[str, Any], **fields: Any) -> JobSpec:
    return job(**fields, parallelizations=[{"name": f"way {number}", **way} for number, way in enumerate(ways)])


RINGS: dict[str, Any] = {
    "groups": [{"name": "all", "ranks": range(4)}],
    "collectives": [collective("all_reduce", 1000, "all")],
}
BY_HAND: dict[str, Any] = {"transfers": [transfer(0, 1, 5)]}


def test_the_first_parallelization_says_what_is_sent() -> None:
    ring, by_hand = job(**RINGS), job(**BY_HAND)
    for spec, plain in ((offer(RINGS, BY_HAND), ring), (offer(BY_HAND, RINGS), by_hand)):
        assert virtual_links(spec) == virtual_links(plain) != ()
        assert link_count(spec) == link_count(plain)
        assert formulas_of(spec) == formulas_of(plain)
    assert virtual_links(offer(BY_HAND, RINGS).of_parallelization("way 1")) == virtual_links(ring)


def test_every_parallelization_is_checked_not_only_the_one_that_counts() -> None:
    twice = {**RINGS, "collectives": [collective("all_reduce", 1000, "all", "all")]}
    large = {"groups": [{"name": "all", "ranks": range(300)}], "collectives": [collective("all_to_all", 1, "all")]}
    assert [p.path for p in check(offer(BY_HAND, twice))] == ["parallelizations[1].collectives[0].groups"]
    found = check(offer(BY_HAND, large, large, ranks=300, hosts=100))
    assert [p.path for p in found] == ["parallelizations[1].collectives", "parallelizations[2].collectives"]
    with pytest.raises(
        InvalidInput, match=r"parallelizations\[1\].collectives: the collectives make 89700 virtual links"
    ):
        virtual_links(offer(BY_HAND, large, ranks=300, hosts=100))


@given(
    algorithm=st.sampled_from(Algorithm),
    library=st.sampled_from(Library),
    n=st.integers(2, 17),
    size=st.integers(1, 1 << 50),
    rails=st.integers(0, 2),
    limit=st.integers(1, 1 << 56),
)
def test_a_parallelization_that_is_accepted_can_be_made_into_virtual_links(
    algorithm: Algorithm, library: Library, n: int, size: int, rails: int, limit: int
) -> None:
    """An accepted parallelization sends at most ``MAX_JOB_BYTES``."""
    nics = [{"endpoints": [f"10.{1 + r}.0.{1 + rank}" for rank in range(n)]} for r in range(rails)]
    sends = {
        "groups": [{"name": "all", "ranks": range(n)}],
        "collectives": [collective(algorithm, size, "all")],
        "transfers": [transfer(0, 1, size), transfer(1, 0, 1)],
    }
    spec = offer(sends, ranks=n, rails=nics, library=library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "MAX_JOB_BYTES", limit)
        assert check(spec) or sum(link.bytes for link in virtual_links(spec.plain)) <= limit
