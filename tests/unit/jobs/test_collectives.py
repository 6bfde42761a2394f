from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import InvalidInput
from controller.jobs import collectives
from controller.jobs.collectives import MAX_VIRTUAL_LINKS, VirtualLink, check, virtual_links
from controller.jobs.spec import Algorithm, JobSpec


def spec(algorithm: str, n: int, size: int, **collective: object) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": "job",
            "endpoints": [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(n)],
            "groups": [{"name": "dp", "ranks": range(n)}],
            "collectives": [
                {"algorithm": algorithm, "groups": ["dp"], "bytes_per_iteration": size, "phase": 0, **collective}
            ],
        }
    )


def pairs(job: JobSpec) -> dict[tuple[int, int], int]:
    """Bytes by (sending rank, receiving rank)."""
    rank = {ip: r for r, ip in enumerate(job.endpoints)}
    return {(rank[v.src_ip], rank[v.dst_ip]): v.bytes for v in virtual_links(job)}


def test_ring_all_reduce_sends_each_rank_almost_twice_the_buffer_to_the_next() -> None:
    assert pairs(spec("ring_all_reduce", 4, 1000)) == {(0, 1): 1500, (1, 2): 1500, (2, 3): 1500, (3, 0): 1500}


@pytest.mark.parametrize("algorithm", ["ring_reduce_scatter", "ring_all_gather"])
def test_reduce_scatter_and_all_gather_are_half_an_all_reduce(algorithm: str) -> None:
    assert pairs(spec(algorithm, 4, 1000)) == {(0, 1): 750, (1, 2): 750, (2, 3): 750, (3, 0): 750}


def test_ring_follows_the_order_of_the_group() -> None:
    job = JobSpec.parse(
        {
            "job_id": "job",
            "endpoints": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
            "groups": [{"name": "dp", "ranks": [2, 0, 1]}],
            "collectives": [{"algorithm": "ring_all_gather", "groups": ["dp"], "bytes_per_iteration": 3}],
        }
    )
    assert pairs(job) == {(2, 0): 2, (0, 1): 2, (1, 2): 2}


def test_two_ranks_make_one_link_each_way() -> None:
    assert pairs(spec("ring_all_reduce", 2, 1000)) == {(0, 1): 1000, (1, 0): 1000}


def test_halving_doubling_exchanges_less_with_farther_ranks() -> None:
    sent = pairs(spec("halving_doubling_all_reduce", 8, 800))
    assert {dst: size for (src, dst), size in sent.items() if src == 0} == {1: 800, 2: 400, 4: 200}
    assert all(sent[dst, src] == size for (src, dst), size in sent.items())
    assert len(sent) == 8 * 3


def test_halving_doubling_needs_a_power_of_two() -> None:
    job = spec("halving_doubling_all_reduce", 6, 800)
    assert [str(problem) for problem in check(job)] == [
        "collectives[0].groups[0]: halving-doubling needs a power of two of ranks; group 'dp' has 6"
    ]
    with pytest.raises(InvalidInput, match="power of two"):
        virtual_links(job)


def test_all_to_all_sends_every_other_rank_one_share() -> None:
    sent = pairs(spec("all_to_all", 3, 10))
    assert sent == {(s, d): 4 for s in range(3) for d in range(3) if s != d}


@pytest.mark.parametrize("algorithm", ["broadcast", "pipeline_send"])
def test_chains_pass_everything_along_consecutive_ranks(algorithm: str) -> None:
    assert pairs(spec(algorithm, 4, 7)) == {(0, 1): 7, (1, 2): 7, (2, 3): 7}


@given(st.sampled_from([2, 4, 8, 16, 32]), st.integers(1, 1 << 40))
def test_ring_and_halving_doubling_send_the_same_volume(n: int, size: int) -> None:
    """Both are bandwidth optimal: 2(n-1)/n·M out of each rank, up to rounding."""
    for algorithm in ("ring_all_reduce", "halving_doubling_all_reduce"):
        out: Counter[int] = Counter()
        for (src, _), sent in pairs(spec(algorithm, n, size)).items():
            out[src] += sent
        ideal = ceil(2 * (n - 1) * size / n)
        assert all(abs(sent - ideal) <= 1e-9 * ideal + 2 * n.bit_length() for sent in out.values())


@given(st.sampled_from(list(Algorithm)), st.integers(1, 4), st.integers(1, 1 << 50))
def test_links_are_positive_between_different_hosts_sorted_and_unique(
    algorithm: Algorithm, log_n: int, size: int
) -> None:
    links = virtual_links(spec(algorithm, 1 << log_n, size))
    keys = [(v.src_ip, v.dst_ip, v.phase) for v in links]
    assert keys == sorted(set(keys))
    assert all(v.bytes > 0 and v.src_ip != v.dst_ip for v in links)


def two_collectives(phase: int) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": "job",
            "endpoints": ["10.0.0.1", "10.0.0.2"],
            "groups": [{"name": "dp", "ranks": [0, 1]}, {"name": "pp", "ranks": [0, 1]}],
            "collectives": [
                {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 10},
                {"algorithm": "pipeline_send", "groups": ["pp"], "bytes_per_iteration": 5, "phase": phase},
            ],
        }
    )


def test_collectives_of_one_phase_merge_on_a_pair() -> None:
    assert virtual_links(two_collectives(phase=0)) == (
        VirtualLink("10.0.0.1", "10.0.0.2", 0, 15),
        VirtualLink("10.0.0.2", "10.0.0.1", 0, 10),
    )


def test_phases_stay_apart() -> None:
    assert virtual_links(two_collectives(phase=3)) == (
        VirtualLink("10.0.0.1", "10.0.0.2", 0, 10),
        VirtualLink("10.0.0.1", "10.0.0.2", 3, 5),
        VirtualLink("10.0.0.2", "10.0.0.1", 0, 10),
    )


def test_a_group_named_twice_in_a_collective_is_refused() -> None:
    assert [p.path for p in check(spec("broadcast", 2, 1, groups=["dp", "dp"]))] == ["collectives[0].groups"]


def test_too_many_virtual_links_are_refused_before_they_are_made() -> None:
    job = spec("all_to_all", 4000, 1)
    assert [str(p) for p in check(job)] == [
        f"collectives: the collectives make {4000 * 3999} virtual links; at most {MAX_VIRTUAL_LINKS} are allowed"
    ]


def test_the_largest_job_is_accepted() -> None:
    assert len(virtual_links(spec("all_to_all", 256, 1))) == 256 * 255


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_virtual_links_are_counted_before_they_are_made(
    algorithm: Algorithm, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = spec(algorithm, n, 1000)
    links = len(virtual_links(job))
    monkeypatch.setattr(collectives, "MAX_VIRTUAL_LINKS", links)
    assert check(job) == []
    monkeypatch.setattr(collectives, "MAX_VIRTUAL_LINKS", links - 1)
    assert [problem.path for problem in check(job)] == ["collectives"]
