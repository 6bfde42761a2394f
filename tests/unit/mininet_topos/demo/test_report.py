"""The figures of the demo, from timestamps that can be checked by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mininet_topos.demo.plot import draw, job_series
from mininet_topos.demo.report import (
    Moments,
    Observed,
    PlanFacts,
    RouteChange,
    build_report,
    ideal_goodput_bps,
    ideal_ring_iteration_s,
    longest_silence_s,
    lost_iterations,
    mean_iteration_s,
    pooled_iteration_s,
    reaction,
    receivers_of_cable,
    targets,
)
from mininet_topos.trainer.log import Iteration, RankLog, read_rank_log

MOMENTS = Moments(training=0, planning=40, planned=41, cut=80, replug=100, unannounced=120, end=160)
LEAF_OF = {"10.0.1.1": "leaf1", "10.0.2.1": "leaf2", "10.0.3.1": "leaf3"}


def rank_log(rank: int, durations: list[float], *, ended: bool = True, wrong: tuple[int, ...] = ()) -> RankLog:
    """Return a log of back-to-back iterations from time 0 on, with an arrival every 0.1 s."""
    iterations, start = [], 0.0
    for index, duration in enumerate(durations):
        count = round(duration / 0.1)
        arrivals = tuple(start + 0.1 * (k + 1) for k in range(count))
        iterations.append(Iteration(index, start, start + duration, index not in wrong, arrivals, duration, 1))
        start += duration
    return RankLog("ring1", rank, f"10.0.{rank + 1}.1", tuple(iterations), start if ended else None)


def observed(*routes: RouteChange) -> Observed:
    return Observed(
        datapath="userspace",
        ideal_iteration_s=1.0,
        links_discovered=32,
        links_expected=32,
        plan=PlanFacts(12.0, 1.0, "optimal", ecmp_mean=2.0, ecmp_p95=3.0, pins=24, install_s=0.1),
        cable=("leaf1", "spine2"),
        leaf_of=LEAF_OF,
        routes=routes,
        alarms=(),
    )


def routes(at: float, **paths: str) -> RouteChange:
    """Return a change of routes; ``a_b="leaf1 spine2 leaf2"`` is the flow from host a to host b."""
    told = {}
    for name, path in paths.items():
        src, dst = name.strip("f").split("_")
        told[f"10.0.{src}.1", f"10.0.{dst}.1"] = tuple(path.split())
    return RouteChange(at, "ring1", told)


def test_a_ring_of_four_sends_one_and_a_half_vectors() -> None:
    assert ideal_goodput_bps(5e6) == pytest.approx(4.68e6, rel=1e-3), "with headers and the other direction's ACKs"
    assert ideal_ring_iteration_s(4, 120_000, 5e6) == pytest.approx(1.5 * 480_000 * 8 / ideal_goodput_bps(5e6))


def test_a_mean_is_over_all_ranks_and_a_job_weighs_the_same_however_many_iterations_it_finishes() -> None:
    log = rank_log(0, [1.0, 2.0, 3.0, 4.0])
    assert mean_iteration_s([log], 0.5, 6.5) == pytest.approx(2.5), "the iterations that lie wholly in the phase"
    assert mean_iteration_s([log], 0.5, 2.5) is None
    assert mean_iteration_s([rank_log(0, [1.0]), rank_log(1, [2.0])], 0, 5) == pytest.approx(1.5)
    logs = [replace(rank_log(0, [1.0] * 40), job_id="lucky"), rank_log(0, [2.0] * 20)]
    assert mean_iteration_s(logs, 0, 41) == pytest.approx(1.5)
    assert pooled_iteration_s(logs, 0, 41) == pytest.approx(4 / 3)


def test_a_wrong_result_at_one_rank_loses_the_iteration_in_the_phase_it_began() -> None:
    right = rank_log(0, [1.0] * 5)
    assert lost_iterations([right, rank_log(1, [1.0] * 5)], 0, 100) == 0
    logs = [right, rank_log(1, [1.0] * 5, wrong=(3,))]
    assert [lost_iterations(logs, *phase) for phase in ((0, 100), (3, 4), (4, 100))] == [1, 1, 0]
    unfinished = [rank_log(0, [1.0] * 5, ended=False), rank_log(1, [1.0] * 4, ended=False)]
    assert lost_iterations(unfinished, 0, 100) == 2, "also the one that a dead rank left unfinished"


def test_silence_is_the_longest_gap_that_overlaps_the_window() -> None:
    arrivals = (1.0, 1.1, 1.9, 2.0, 2.1, 5.0)
    log = RankLog("ring1", 0, "10.0.1.1", (Iteration(0, 0, 6, True, arrivals, 6, 1),), 6.0)
    assert longest_silence_s(log, 1.5, 2.05) == pytest.approx(0.8)
    assert longest_silence_s(log, 1.95, 2.05) == pytest.approx(0.1)
    assert longest_silence_s(log, 1.95, 4.0) == pytest.approx(2.9)


def test_silence_that_never_ends_counts_to_the_end_of_the_window() -> None:
    log = RankLog("ring1", 0, "10.0.1.1", (Iteration(0, 0, 2, True, (1.0, 2.0), 2, 1),), None)
    assert longest_silence_s(log, 1.5, 11.5) == pytest.approx(9.5)


def test_receivers_of_a_cable_are_the_destinations_of_flows_that_use_it_in_the_window() -> None:
    before = routes(10, f1_2="leaf1 spine2 leaf2", f3_1="leaf3 spine2 leaf1", f2_3="leaf2 spine2 leaf3")
    assert receivers_of_cable([before], ("leaf1", "spine2"), LEAF_OF, 20, 30) == {"10.0.2.1", "10.0.1.1"}
    changes = [routes(10, f1_2="leaf1 spine2 leaf2"), routes(15, f1_2="leaf1 spine1 leaf2")]
    changes.append(routes(25, f3_1="leaf3 spine2 leaf1"))
    assert receivers_of_cable(changes, ("leaf1", "spine2"), LEAF_OF, 20, 30) == {"10.0.1.1"}
    assert receivers_of_cable([], ("leaf2", "spine2"), LEAF_OF, 20, 30) == {"10.0.2.1"}, (
        "all hosts when no pin is known"
    )


def test_the_reaction_is_the_last_change_of_routes_in_the_phase() -> None:
    changes = [routes(110), routes(131), routes(125), routes(170)]
    assert reaction(changes, 120, 160) == 131
    assert reaction(changes, 132, 160) is None


def test_the_report_has_each_phase_s_own_iterations() -> None:
    durations = [2.0] * 20 + [1.0] * 80 + [2.0] * 5 + [1.0] * 30
    logs = [rank_log(rank, durations) for rank in range(3)]
    report = build_report(
        logs, MOMENTS, observed(routes(41, f1_2="leaf1 spine2 leaf2"), routes(130, f1_2="leaf1 spine1 leaf2"))
    )
    assert report["ecmp_iteration_s"] == pytest.approx(2.0)
    assert report["planned_iteration_s"] == pytest.approx(1.0)
    assert report["ecmp_over_planned"] == pytest.approx(2.0)
    assert report["cut"]["recovery_s"] == pytest.approx(0.1)
    assert report["cut"]["iterations_lost"] == report["replug"]["iterations_lost"] == 0
    assert report["unannounced"]["before_s"] == pytest.approx(1.0)
    assert report["unannounced"]["during_s"] == pytest.approx(2.0)
    assert report["unannounced"]["after_replan_s"] == pytest.approx(1.0)
    assert report["arithmetic_errors"] == 0
    assert all(target.met for target in targets(report))


def test_what_is_wrong_missing_or_not_measured_misses_its_target() -> None:
    report = build_report([rank_log(0, [1.0] * 160, wrong=(60,))], MOMENTS, observed())
    assert report["arithmetic_errors"] == report["iterations_lost"] == 1
    missed = {target.name for target in targets(report) if not target.met}
    assert {"arithmetic errors", "iterations lost"} <= missed
    report = build_report([], MOMENTS, replace(observed(), links_discovered=31))
    found = {target.name: target for target in targets(report)}
    assert found["links discovered"] == ("links discovered", "31 of 32", "all", False)
    assert next(target.met for name, target in found.items() if name.startswith("planned")) is None


def test_a_trainer_s_file_is_read_up_to_the_line_that_was_not_finished(tmp_path: Path) -> None:
    head = {"job": "ring1", "rank": 2, "ip": "10.0.3.1", "size": 4, "elements": 10, "mono": 5.0, "wall": 0.0}
    line = {"i": 0, "start": 5.0, "end": 6.0, "wall": 0.0, "comm_s": 1.0, "ok": True, "slices_ms": [500.0, 900.0]}
    (tmp_path / "log").write_text("\n".join(map(json.dumps, (head, {**line, "subflows": 1}))) + '\n{"i": 1, "sta')
    log = read_rank_log(tmp_path / "log")
    assert (log.job_id, log.rank, log.ip, log.ended) == ("ring1", 2, "10.0.3.1", None)
    assert log.iterations == (Iteration(0, 5.0, 6.0, True, (5.5, 5.9), 1.0, 1),)


def test_the_picture_shows_each_job_s_mean_over_its_ranks(tmp_path: Path) -> None:
    logs = [rank_log(0, [1.0] * 160), rank_log(1, [2.0] * 80)]
    ends, durations = job_series(logs, "ring1")
    assert (ends[0], durations[0]) == (1.5, 1.5)
    draw(tmp_path / "iterations.png", logs, MOMENTS, 1.0, "leaf1-spine2", 130.0)
    assert (tmp_path / "iterations.png").read_bytes().startswith(b"\x89PNG")
