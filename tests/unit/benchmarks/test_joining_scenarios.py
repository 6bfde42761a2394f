"""Schedules, rows, ratios, states and verdicts of the scenarios, from invented logs and observations."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.joining import command
from benchmarks.joining.command import SCENARIOS, Scenario
from benchmarks.joining.mixes import Announced, Mode
from benchmarks.joining.scenarios import churn, elephants, kinds, mixed, patterns, swap
from benchmarks.joining.scenarios.churn import Life, schedule, state_of
from benchmarks.joining.scenarios.elephants import Sends, slowdowns
from benchmarks.joining.scenarios.rows import Row, Run, Target, by_mode
from benchmarks.joining.scenarios.stage import Look, Shown, moves
from mininet_topos.joining.rank import collectives_at
from mininet_topos.lab.lab import Lab
from mininet_topos.leaf_spine import LeafSpine
from offline.scenarios.topologies import leaf_spine

HOSTS = leaf_spine(4, 4, 4, 5e6, 5e6).hosts


def row(mode: Mode, took: Sequence[float], job: str = "c0-0-a", begin: float = 10.0, **more: Any) -> Row:
    """Return a row with iterations that follow each other from ``begin`` on."""
    iterations = [(begin + sum(took[:n]), each) for n, each in enumerate(took)]
    run: dict[str, Any] = {"scenario": "churn", "seed": 0, "repeat": 0, "seconds": 60.0, "mode": mode}
    of_job: dict[str, Any] = {"job": job, "collective": "all_reduce", "ranks": 4, "wrong": 0, "load": 1.0}
    of_all: dict[str, Any] = {"states": [], "first_byte_s": begin, "known_s": None, **more}
    return Row(iterations=iterations, more=of_all, **run, **of_job)


def look(after_s: float, source: str = "confirmed", paths: Mapping[Any, Any] | None = None, **more: Any) -> Look:
    jobs = {"a": Shown(source, 1.0, None, "", True)}
    return Look(**{"after_s": after_s, "jobs": jobs, "alarms": {}, "paths": paths or {}, **more})


# ---- churn


@pytest.mark.parametrize("seed", range(4))
def test_a_schedule_has_three_jobs_at_once_and_no_host_twice_and_hosts_rest_where_there_are_enough(seed: int) -> None:
    """The pause of a host leaves time for a job that ends late under ECMP."""
    arrivals = schedule(seed, churn.SECONDS)
    assert 28 <= len(arrivals) <= 33
    assert arrivals == schedule(seed, churn.SECONDS)
    for arrival in arrivals:
        at = arrival.at_s + arrival.life_s / 2
        meanwhile = [a for a in arrivals if a.at_s <= at < a.at_s + a.life_s]
        assert 1 <= len(meanwhile) <= churn.AT_ONCE
        taken = Counter(host for each in meanwhile for host in each.job.hosts)
        assert set(taken.values()) == {1}
        assert arrival.life_s <= churn.LIFE_S[1]
        recent = [a for a in arrivals if a.at_s < arrival.at_s < a.at_s + a.life_s + churn.REST_S]
        rested = set(range(16)) - {host for each in recent for host in each.job.hosts}
        assert set(arrival.job.hosts) <= rested or len(rested) < len(arrival.job.hosts)


@pytest.mark.parametrize(
    ("begin", "state"),
    [
        (5.0, "itself"),
        (9.5, "early"),  # the newcomer's first byte arrives during this iteration
        (12.5, "early"),
        (13.5, "late"),
        (17.5, "quiet"),
    ],
)
def test_an_iteration_is_counted_by_what_is_known_when_it_begins(begin: float, state: str) -> None:
    newcomer = Life(first_byte_s=10.0, known_s=17.0, end_s=30.0)
    assert state_of(begin, begin + 1, Life(1.0, 8.0, 30.0), [newcomer]) == state
    never_known = Life(first_byte_s=10.0, known_s=None, end_s=30.0)
    states = [state_of(at, at + 1, Life(1.0, 8.0, 40.0), [never_known]) for at in (25.0, 31.0)]
    assert states == ["late", "quiet"], "it is being learnt until it ends"


def test_provisional_pairs_are_not_known_yet() -> None:
    looks = [look(1.0, "learning"), look(2.0, "provisional"), look(3.0, "measured")]
    assert churn.known_s("a", looks) == 3.0
    assert churn.known_s("a", looks[:2]) is None


def test_churn_is_judged_by_ratios_to_the_flat_switch_without_the_first_iteration() -> None:
    flat = row(Mode.FLAT, [9.0, 1.0, 1.0, 1.0])
    ecmp = row(Mode.ECMP, [9.0, 2.0, 3.0])
    planned = row(Mode.PLANNED, [9.0, 1.0, 1.2, 1.1], states=["itself", "itself", "late", "quiet"], known_s=16.0)
    lines = {line["mode"]: line for line in by_mode([flat, ecmp, planned])}
    assert lines[Mode.ECMP]["mean"] == 2.5
    assert lines[Mode.ECMP]["worst_iteration"] == 3.0
    assert lines[Mode.PLANNED]["mean"] == pytest.approx(1.1)
    found = churn.judge([flat, ecmp, planned])
    assert [target.figure for target in found.targets] == pytest.approx([1.1, 1.1, 1.2])
    assert [target.met for target in found.targets] == [True, True, False]
    [known] = found.tables["Seconds until a job is known"]
    assert known == {"joined": "recorded", "jobs": 1, "known": 1, "mean_s": 6.0, "max_s": 6.0}


# ---- elephants


def test_rings_and_idle_hosts_have_one_host_of_every_leaf() -> None:
    rings, idle = elephants.layout(HOSTS, 1)
    for hosts in (*rings, idle):
        assert [host.leaf for host in hosts] == ["leaf1", "leaf2", "leaf3", "leaf4"]
    assert len({host.ip for hosts in (*rings, idle) for host in hosts}) == 16


def test_iterations_count_by_when_they_begin_after_the_traffic() -> None:
    flat = row(Mode.FLAT, [1.0, 1.0], began_s=0.0, off_s=None, moves=0, slowdowns=None)
    moments = [(13.0, 1.0, 1.5), (15.0, 1.4, 1.5)]
    took = [1.0, 1.0, 2.0, 2.0, 1.5, 1.0]
    planned = row(Mode.PLANNED, took, began_s=12.0, off_s=3.0, moves=2, slowdowns=moments)
    line = next(line for line in elephants.by_time([flat, planned]) if line["mode"] == Mode.PLANNED)
    assert (line["before"], line["first 3 s"], line["later"]) == (1.0, 2.0, 1.25)
    assert (line["worst_later"], line["slow_until_s"]) == (1.5, 5.5)
    slow, off = elephants.judge([flat, planned]).targets
    assert (slow.figure, slow.met) == (1.5, False)
    assert (off.figure, off.met) == (3.0, True)


def test_the_slowdown_is_what_other_traffic_leaves_of_the_fullest_link() -> None:
    """A ring's flow of full rate runs over links of 8 Mbit/s; 2 Mbit/s of other traffic pass the second link."""
    second_s = 8e6 / 8
    sends = Sends([(0.0, 2.0), (2.0, 2.0)], {("x", "y"): second_s * 2 * 1448 / 1514}, {("x", "y"): 1.0})
    paths = {("a", "x", "y"): ("leaf1", "spine1", "leaf2")}

    def bytes_at(seconds: float, others_bps: float) -> dict[tuple[str, str], int]:
        own = round(second_s * seconds)
        return {("leaf1", "spine1"): own, ("spine1", "leaf2"): own + round(others_bps / 8 * seconds)}

    samples = [(at, bytes_at(at, 2e6)) for at in (0.0, 1.0, 2.0, 3.0, 4.0)]
    assert slowdowns({"a": sends}, paths, samples, 4.0, 2.0, 8e6) == {"a": pytest.approx(1 / 0.75)}
    alone = [(at, bytes_at(at, 0.0)) for at, _ in samples]
    assert slowdowns({"a": sends}, paths, alone, 4.0, 2.0, 8e6) == {"a": pytest.approx(1.0)}
    assert slowdowns({"a": sends}, paths, samples[:1], 4.0, 2.0, 8e6) == {}, "nothing counted"


def test_bytes_of_cables_are_those_of_the_receiving_end_by_the_names_that_the_controller_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topo = LeafSpine(2, 1, 1, 5.0, 5.0, prefix="jn")
    monkeypatch.setattr(elephants, "INTERFACES", tmp_path)
    for number, cable in enumerate(topo.fabric.cables):
        for end, port, count in ((cable.b, cable.b_port, 10 + number), (cable.a, cable.a_port, number)):
            folder = tmp_path / topo.interface(end, port) / "statistics"
            folder.mkdir(parents=True)
            (folder / "rx_bytes").write_text(f"{count}\n")
    ports = elephants.PortBytes(Lab(topo, controller=None))
    ports.sample(1.0)
    ((at, counts),) = ports.samples
    assert (at, {f"{src}>{dst}": count for (src, dst), count in counts.items()}) == (
        1.0,
        {"jnleaf1>jnspine1": 10, "jnspine1>jnleaf1": 0, "jnleaf2>jnspine1": 11, "jnspine1>jnleaf2": 1},
    )


def test_moves_are_flows_that_are_pinned_elsewhere() -> None:
    flow, other = ("a", "x", "y"), ("a", "y", "x")
    first = look(1.0, paths={flow: ("leaf1", "spine1", "leaf2")})
    second = look(2.0, paths={flow: ("leaf1", "spine2", "leaf2"), other: ("leaf2", "spine1", "leaf1")})
    assert moves([first, second, second, look(3.0)]) == 1
    assert moves([first, look(1.5), second]) == 1, "hashed in between"


# ---- patterns and kinds


def pattern_row(mode: Mode, ddp: float, other: float, alarms: Sequence[float] = ()) -> Row:
    """Return a row of twenty iterations, two of each pattern in turn; the third period begins after eight of them."""
    took = [ddp if collectives_at(patterns.pattern(2), i)[0] == "ddp" else other for i in range(20)]
    made = row(mode, took, alarms_s=list(alarms), third_s=10 + sum(took[:8]), moves=4)
    return Row(**{**asdict(made), "collective": patterns.pattern(2)})


def test_each_pattern_is_compared_with_itself_and_the_all_to_all_with_ecmp() -> None:
    rows = [pattern_row(Mode.FLAT, 1.0, 0.5), pattern_row(Mode.ECMP, 2.0, 0.55), pattern_row(Mode.PLANNED, 1.04, 0.5)]
    ddp, other, alarms = patterns.judge(rows).targets
    assert [ddp.figure, other.figure, other.limit] == pytest.approx([1.04, 1.0, 1.1])
    assert ddp.met
    assert alarms.met
    [_, _, late] = patterns.judge([*rows[:2], pattern_row(Mode.PLANNED, 1.0, 0.5, [11.0, 18.0])]).targets
    assert (late.figure, late.met) == (1, False), "the first is before the third period"


@pytest.mark.parametrize(
    ("announced", "answer", "named"),
    [
        (Announced.HALF, "The announcement of job 'g1' is wrong: all pairs carry 2.0 times what was announced.", True),
        (Announced.HALF, "The announcement of job 'g1' is wrong: all pairs carry 1.3 times what was announced.", False),
        (Announced.DOUBLE, "The announcement of job 'g1' is wrong: a pair carries less.", False),
        (Announced.REVERSED, "The announcement of job 'g1' is wrong: traffic in the other direction only.", True),
        (Announced.OTHER, "The announcement of job 'g1' is wrong: a pair carries traffic that is not announced.", True),
        (Announced.OTHER, "The measured efficiency is 27.6 %; the routes do not explain this.", False),
    ],
)
def test_what_names_a_wrong_announcement(announced: Announced, answer: str, named: bool) -> None:
    assert kinds.names(announced, answer) is named


def kind_row(mode: Mode, took: Sequence[float], announced: Announced, **more: Any) -> Row:
    said = {"alarms": 0, "alarm_text": "", "counted_s": 2.0, "differs_s": None, "asked": True, "named_s": None, **more}
    return row(mode, took, announced=announced, moves=0, **said)


def test_kinds_are_judged_by_alarms_and_by_how_long_a_wrong_one_hurts() -> None:
    right = kind_row(Mode.PLANNED, [1.0, 1.0], Announced.RIGHT, alarms=3, alarm_text="differs")
    rows = [kind_row(Mode.FLAT, [1.0, 1.0], Announced.RIGHT), right]
    rows.append(kind_row(Mode.PLANNED, [1.0, 2.0, 1.0, 1.5, 1.0, 1.0, 1.0], Announced.HALF, named_s=6.0))
    false, settled, named = kinds.judge(rows).targets
    assert (false.figure, false.met) == (3, False)
    assert (settled.figure, settled.met) == (5.5, False), "three good ones in a row"
    assert (named.figure, named.met) == (4.0, True)
    rows.append(kind_row(Mode.PLANNED, [1.0, 1.0, 2.0], Announced.OTHER))
    _, settled, named = kinds.judge(rows).targets
    assert [settled.figure, named.figure] == [None, None], "one did not settle and was not named"
    assert not settled.met


def test_runs_that_are_there_are_not_made_again_and_a_missed_target_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Run] = []

    def rows_of(of: Run, _scenario: Scenario, _out: Path) -> list[Row]:
        made.append(of)
        took = [1.0, 1.0, 2.0] if of.repeat and of.mode == Mode.PLANNED else [1.0, 1.0, 1.0]
        written = row(Mode(of.mode), took, states=["quiet"] * 3, known_s=12.0)
        return [Row(**{**asdict(written), "repeat": of.repeat, "seconds": of.seconds})]

    monkeypatch.setattr(command, "rows_of", rows_of)
    given: dict[str, Any] = {"seeds": [0], "modes": set(Mode), "seconds": 60.0, "out": tmp_path}
    command.run("churn", repeat=1, **given)
    assert [of.mode for of in made] == [*Mode]
    command.run("churn", repeat=1, **given)
    assert len(made) == 3
    with pytest.raises(typer.Exit) as ended:
        command.run("churn", repeat=2, **given)
    assert (len(made), ended.value.exit_code) == (6, 1)
    targets = json.loads((tmp_path / "churn.json").read_text())["targets"]
    known = "worst known job, from 3 s after a new job's first byte on"
    assert {each["target"]: each[""] for each in targets} == dict.fromkeys(
        ("mean of all jobs", "worst job", known), "missed"
    )


def test_every_scenario_says_what_it_missed_when_nothing_was_planned() -> None:
    for scenario in SCENARIOS.values():
        assert not all(target.met for target in scenario.judge([]).targets)
    assert not any(target.met for target in churn.judge([row(Mode.FLAT, [1.0, 1.0])]).targets)
    assert Target("a", 1.0, 1.0).met


# ---- mixes


def test_mixes_are_compared_with_the_flat_switch_from_the_warm_up_on_and_with_the_shown_slowdown() -> None:
    def of(mode: Mode, took: Sequence[float], announced: Announced = Announced.RIGHT, **more: Any) -> Row:
        return row(mode, took, **{"of": "a", "announced": announced, "from_s": 12.0, "slowdown": None, **more})

    draws = [of(Mode.ECMP, [9.0, 2.0, 2.0]), of(Mode.ECMP, [9.0, 3.0])]
    planned = of(Mode.PLANNED, [1.0, 1.0, 2.0, 2.4], slowdown=2.0)
    observed = of(Mode.PLANNED, [1.0, 1.0, 2.4], Announced.OBSERVED, slowdown=None)
    found = mixed.judge([of(Mode.FLAT, [9.0, 1.0, 1.0]), *draws, planned, observed])
    lines = {
        (line["mode"], line["announced"]): line for line in found.tables["Iteration times / those on the flat switch"]
    }
    ecmp = lines[Mode.ECMP, Announced.RIGHT]
    assert (ecmp["draws"], ecmp["mean"], ecmp["worst"]) == (2, 2.5, 3.0)
    assert lines[Mode.PLANNED, Announced.RIGHT]["mean / slowdown"] == pytest.approx(1.1)
    [target] = found.targets
    assert target.figure == pytest.approx(2.4), "without a shown slowdown it counts as 1"
    assert not target.met


# ---- swap


def test_an_exchange_moves_nothing_when_every_pair_stays_on_its_path() -> None:
    path, elsewhere = ("leaf1", "spine1", "leaf2"), ("leaf1", "spine2", "leaf2")
    before = look(9.0, paths={("a", "x", "y"): path, ("b", "u", "v"): path})
    swapped = look(11.0, paths={("b", "x", "y"): path, ("a", "u", "v"): path})
    assert swap.moved([before, swapped], 10.0) == 0
    assert swap.moved([before, look(11.0, paths={("b", "x", "y"): elsewhere})], 10.0) == 2, "one is on no path"
    assert swap.moved([swapped], 10.0) == 0, "nothing was planned before"


def test_a_swap_is_judged_by_iterations_after_it_and_by_what_is_sent_again() -> None:
    said: dict[str, Any] = {"at_s": 12.0, "took_s": 0.1, "again_before": 5, "again_after": 60, "moved": 0}
    rows = [row(mode, [1.0, 1.0, took, 1.0], **said) for mode, took in ((Mode.FLAT, 1.0), (Mode.PLANNED, 1.3))]
    after, moved, lost = swap.judge(rows).targets
    assert (after.figure, after.met) == (1.3, False)
    assert moved.met
    assert (lost.figure, lost.met) == (55, False)
