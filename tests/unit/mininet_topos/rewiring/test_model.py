"""The model of jobs on fabrics, random wirings, and the fabrics of the demo of rewiring."""

from itertools import chain
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import circulant
from mininet_topos.demo.report import ideal_goodput_bps
from mininet_topos.lab.record import LabError
from mininet_topos.rewiring.fabrics import means, one_way
from mininet_topos.rewiring.model import (
    Size,
    evaluated,
    on_wiring,
    planned_s,
    random_wiring,
    recommender,
    scaled,
    sends,
    ways_of,
)
from mininet_topos.trainer.log import Iteration, RankLog

SIZE = Size(12, 4, 2.0)
ADDRESSES = [f"10.0.{number}.1" for number in range(1, 13)]
CIRCUIT_BPS = ideal_goodput_bps(2e6)
M = 1_200_000
RING_BITS = 2 * 11 / 12 * M * 8
EVERYONE = {"groups": [{"name": "all", "ranks": list(range(12))}]}


def all_reduce(**more: Any) -> dict[str, Any]:
    return {**EVERYONE, "collectives": [sends("all_reduce", ["all"], M)], **more}


def test_on_other_circuits_as_many_rings_run_or_one_in_rank_order_where_that_is_better() -> None:
    (way,) = ways_of(all_reduce(compute=[{"seconds": 0.5}]), ADDRESSES)
    best = evaluated([way], SIZE).best
    assert best.other_s == pytest.approx(0.5 + 3.2 * RING_BITS / 4 / CIRCUIT_BPS), "the switch of the same cost"
    chosen = on_wiring(way, best.found.orders, best.found.wiring, SIZE)
    assert chosen.rings == 4
    assert chosen.planned_s == pytest.approx(0.5 + RING_BITS / 4 / CIRCUIT_BPS)
    assert chosen.planned_s == pytest.approx(planned_s(way, chosen.spec, best.found.wiring, SIZE))
    # If circuits lead to the next server only, all four rings use the same circuits, and most rings use a circuit
    # several times, so one ring is better.
    chain = circulant(12, [1])
    one = on_wiring(way, best.found.orders, chain, Size(12, 1, 2.0))
    assert one.rings == 1
    assert one.planned_s == pytest.approx(0.5 + RING_BITS / CIRCUIT_BPS)


def test_phases_follow_each_other_and_computing_overlaps_with_its_own() -> None:
    job = {
        "groups": [{"name": "all", "ranks": list(range(7))}],
        "collectives": [sends("all_to_all", ["all"], M), sends("all_reduce", ["all"], M, 1)],
        "compute": [{"seconds": 0.25}, {"seconds": 100.0, "phase": 1}],
    }
    size = Size(7, 3, 2.0)
    (way,) = ways_of(job, ADDRESSES[:7])
    found = evaluated([way], size).best
    all_to_all_s = 9 / 3 * M / 7 * 8 / CIRCUIT_BPS  # 9 hops of each server's parts on three interfaces
    assert found.found.wiring.steps is not None
    assert planned_s(way, found.spec, found.found.wiring, size) == pytest.approx(100.25 + all_to_all_s)


def test_the_demos_job_is_that_of_the_documentation() -> None:
    job = scaled(recommender(), 100)
    assert [way.name for way in ways_of(job, ADDRESSES)] == ["data", "hybrid", "pipeline"]
    answer = evaluated([way for way in ways_of(job, ADDRESSES) if way.name != "pipeline"], SIZE)
    assert answer.best.name == "hybrid"
    assert answer.best.found.wiring.steps == (1, 5, 11, 7)
    assert not answer.refused
    # docs/wiring.md: 88 ms and 32 ms with 25 Gbit/s, and 100 ms of computing
    times = 25e9 / CIRCUIT_BPS / 100
    assert answer.best.planned_s == pytest.approx(0.1 + 0.12 * times)


def test_bytes_are_divided_and_nothing_else() -> None:
    found = scaled({**all_reduce(), "compute": [{"seconds": 0.5}], "transfers": [{"bytes_per_iteration": 1}]}, 8)
    assert found["collectives"][0]["bytes_per_iteration"] == M / 8
    assert found["transfers"] == [{"bytes_per_iteration": 1}]
    assert (found["compute"], found["groups"]) == ([{"seconds": 0.5}], EVERYONE["groups"])


def test_one_parallelization_alone_is_a_job_without_parallelizations() -> None:
    job = one_way(recommender(), "pipeline")
    (way,) = ways_of(job, ADDRESSES)
    assert [each.seconds for each in way.compute] == [0.15]
    assert one_way(all_reduce(), "") == all_reduce()


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    servers = draw(st.integers(2, 16))
    return servers, draw(st.integers(1, min(6, servers - 1)))


@given(sizes(), st.integers(0, 1 << 30))
def test_it_is_connected_and_every_server_has_a_neighbour_per_interface(size: tuple[int, int], seed: int) -> None:
    servers, interfaces = size
    wiring = random_wiring(servers, interfaces, seed)
    graph = nx.DiGraph([(each.src.server, each.dst.server) for each in wiring.circuits])
    assert nx.is_strongly_connected(graph)
    assert set(graph) == set(range(servers))
    assert {degree for _, degree in chain(graph.in_degree, graph.out_degree)} == {interfaces}
    for peers in wiring.peers:
        assert sorted(peer for peer in peers if peer is not None) == list(range(servers))


def test_the_seed_decides() -> None:
    found = [random_wiring(12, 4, seed) for seed in range(20)]
    assert len({wiring.peers for wiring in found}) == 20
    assert found[3] == random_wiring(12, 4, 3)
    assert all(wiring.steps is None for wiring in found)


@pytest.mark.parametrize(("servers", "interfaces"), [(4, 4), (4, 0), (1, 1)])
def test_more_interfaces_than_other_servers_are_refused(servers: int, interfaces: int) -> None:
    with pytest.raises(ValueError, match="may have 1 to"):
        random_wiring(servers, interfaces, 1)


def log(rank: int, *durations: float, ok: bool = True) -> RankLog:
    ends = [sum(durations[: number + 1]) for number in range(len(durations))]
    done = tuple(
        Iteration(number, end - took, end, ok, (), took, 1)
        for number, (took, end) in enumerate(zip(durations, ends, strict=True))
    )
    return RankLog("job", rank, f"10.0.{rank + 1}.1", done, None)


def test_iterations_that_began_before_are_left_out_and_so_are_those_that_not_all_have_ended() -> None:
    logs = [log(0, 9.0, 2.0, 3.0, 4.0), log(1, 9.0, 4.0, 3.0)]
    assert means(logs, 0.0) == (9.0, 3.0, 3.0)
    assert means(logs, 5.0) == (3.0, 3.0)


def test_a_wrong_sum_is_an_error() -> None:
    with pytest.raises(LabError, match="job: a result of iteration 0 is wrong"):
        means([log(0, 1.0), log(1, 1.0, ok=False)], 0.0)
