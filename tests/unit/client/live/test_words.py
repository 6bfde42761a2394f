"""Words and pictures of the live state, for any message that the API may send."""

from __future__ import annotations

import math
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import typer
from google.protobuf.timestamp_pb2 import Timestamp
from nicegui import json

from benchmarks.api_requests.values import fill
from signalbox.cli import command_tree
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.live import rows
from signalbox.live.jobs import circuits_of, job_facts, links_of, traffic_lines, traffic_mark
from signalbox.live.picture import LIGHT, picture
from signalbox.live.rows import event_line
from signalbox.live.shown import MOST_CHARS, NAME_CHARS, drain_state, moment, percent, plan_facts, rate, slowdown
from signalbox.live.state import State, load
from signalbox.report.gathered import Gathered
from signalbox.report.page import page
from signalbox.top.app import of_job
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.web import asking, beside, charts
from tests.support.circuit_messages import WIRED, rings, unwired_job, wired_job
from tests.support.fabric_messages import leaf_spine, link, state_of
from tests.support.long_cases import with_long


def test_unannounced_traffic_and_slowdowns_that_are_not_known_yet_are_not_none() -> None:
    state = State()
    known = link((1, 2), (0x102, 1), "leaf1:2>spine2", 0.25)
    known.background_bps = 0.0
    state.take_fabric(pb.WatchFabricResponse(links=[link((1, 1), (0x101, 1), "leaf1:1>spine1", 0.5), known]))
    found = rows.links(state, 9)
    assert found == [("leaf1:1>spine1", "50%", "500 Mbit/s", "-"), ("leaf1:2>spine2", "25%", "250 Mbit/s", "0 bit/s")]
    assert rows.plan(state) == "no plan yet"
    state.take_plan(pb.Plan(generation=1, max_slowdown=2.0, bound=1.5), 10.0)
    assert rows.plan(state) == "plan: worst slowdown 2.000, bound 1.500, under ECMP -"


def test_a_job_says_its_circuits_and_without_any_that_nothing_is_hashed() -> None:
    fabric = rings(4, (1, 3))
    routes = [pb.ListedRoute(src="10.0.1.1", dst="10.0.2.1")]
    found = of_job(wired_job(fabric), "Nothing slows it.", routes).splitlines()
    assert found == ["Nothing slows it.", f"8 circuits {WIRED}", "", "10.0.1.1 > 10.0.2.1: ecmp"]
    waits = of_job(unwired_job("circuits are being worked out"), "It waits.", routes).splitlines()
    assert waits[1:] == ["no circuits: circuits are being worked out", "", "10.0.1.1 > 10.0.2.1: no circuits"]
    assert of_job(None, "It has ended.", ()).splitlines() == ["It has ended."]


def test_rows_mark_jobs_that_counters_do_not_confirm_and_alarms_that_operators_know_of() -> None:
    state = State()
    for name, source in (("known", pb.DEMAND_SOURCE_CONFIRMED), ("new", pb.DEMAND_SOURCE_DECLARED)):
        spec, demand = pb.JobSpec(job_id=name), pb.Demand(source=source)
        job = pb.Job(spec=spec, state=pb.JOB_STATE_PINNED, demand=demand)
        state.take_jobs(pb.WatchJobsResponse(jobs=[job]))
    assert {row[0]: row[1] for row in rows.jobs(state.jobs_by_urgency())} == {"known": "pinned", "new": "pinned ?"}
    state = State()
    known = pb.Alarm(kind=pb.ALARM_KIND_LINK_DOWN, severity=pb.SEVERITY_CRITICAL, text="a", silence=pb.Silence())
    new = pb.Alarm(kind=pb.ALARM_KIND_HOST_DOWN, severity=pb.SEVERITY_WARNING, text="b")
    state.take_alarms(pb.WatchAlarmsResponse(raised=[known, new]))
    found = [line for _, line in rows.alarms(state, 9)]
    assert found == ["warning host_down: b", "known: critical link_down: a (acknowledged)"]


@pytest.mark.parametrize(("bps", "said"), [
    (0.0, "0 bit/s"), (999.6, "1 kbit/s"), (4.886e6, "4.89 Mbit/s"), (999.4e6, "999 Mbit/s"), (999.6e6, "1 Gbit/s"),
    (800e9, "800 Gbit/s"), (1.6e12, "1.6 Tbit/s"),
])  # fmt: skip
def test_a_rate_has_three_digits_and_never_an_exponent(bps: float, said: str) -> None:
    assert rate(bps) == said


HALF = pb.Demand(source=pb.DEMAND_SOURCE_MEASURED, difference="all pairs carry 2.0 times what was announced")
DECLARED, CONFIRMED = (pb.Demand(source=source) for source in (pb.DEMAND_SOURCE_DECLARED, pb.DEMAND_SOURCE_CONFIRMED))
SILENT = pb.Demand(source=pb.DEMAND_SOURCE_CONFIRMED, findings=[pb.DEMAND_FINDING_SILENT])


IMPOSSIBLE = "it announced too much, or reports its iterations as too short."
CHANGES = pb.Demand(source=pb.DEMAND_SOURCE_CONFIRMED, patterns=2, pattern=1)
PROVISIONAL = pb.Demand(source=pb.DEMAND_SOURCE_PROVISIONAL)


@pytest.mark.parametrize(("job", "mark", "lines"), [
    (pb.Job(), "", []),
    (pb.Job(demand=CONFIRMED, efficiency_measured=0.97), "", []),
    (pb.Job(demand=SILENT), "", ["It sends nothing now."]),
    (pb.Job(demand=CHANGES), "", ["It changes between 2 traffic patterns, and sends pattern 1 now."]),
    (pb.Job(demand=DECLARED, efficiency_measured=0.97), " ?",
     ["It is planned for what it announced, which counters have not yet confirmed."]),
    (pb.Job(demand=PROVISIONAL), " ?",
     ["It is planned for pairs that send, with bytes that counters have not yet confirmed."]),
    (pb.Job(demand=HALF), " !", [f"Its announcement is wrong: {HALF.difference}.",
                                 "It is planned for what switches count."]),
    (pb.Job(demand=CONFIRMED, efficiency_measured=1.62), " !",
     [f"Its measured efficiency, 162%, is not possible: {IMPOSSIBLE}"]),
])  # fmt: skip
def test_sentences_say_what_the_mark_of_a_job_means_and_what_is_remarkable_otherwise(
    job: pb.Job, mark: str, lines: list[str]
) -> None:
    assert traffic_mark(job) == mark
    assert traffic_lines(job) == lines


def line(what: str, **details: str) -> str:
    return event_line(
        pb.Event(what=what, details=[pb.EventDetail(name=name, value=value) for name, value in details.items()])
    )


@pytest.mark.parametrize(("what", "details", "said"), [
    ("alarm over", {"kind": "link_down", "text": "link a is down"}, "alarm over: link a is down"),
    ("drained", {"part": "spine2", "flows": "0"}, "spine2 drained: no flow is left on it"),
    ("drained", {"part": "spine2", "flows": "6"}, "spine2 drained: 6 flows still to move"),
    ("link down", {"count": "1", "names": "leaf1:1>spine1"}, "link down: leaf1:1>spine1"),
    ("switch up again", {"count": "6", "names": "a, b, c, d"}, "6 switches up again: a, b, c, d and 2 more"),
    ("host down", {"count": "1", "names": "10.0.0.1", "at": "leaf1"}, "host down: 10.0.0.1 at leaf1"),
    ("host found", {"ip": "10.0.0.1", "at": "leaf1:3", "left_out": "7"},
     "host 10.0.0.1 found at leaf1:3 (7 earlier events of this kind left out)"),
    ("job ended", {"job": "ring", "uid": "7f", "reason": "lease_ran_out"}, "job ring ended: lease ran out"),
    ("circuits changed", {"count": "12", "ms": "310.4"}, "12 circuits set up or removed, in 310 ms"),
    ("plan kept: no better one", {"worst_slowdown": "1.5", "bound": "1.0", "ecmp": "2.1", "solver": "a", "ms": "3"},
     "plan kept: no better one (worst slowdown 1.5, under ECMP 2.1, bound 1.0)"),
])  # fmt: skip
def test_an_event_is_told_by_a_sentence(what: str, details: dict[str, str], said: str) -> None:
    assert line(what, **details) == said


def test_an_event_of_another_version_is_told_as_it_is() -> None:
    assert line("links lost", links="2", ms="3") == "links lost  links=2  ms=3"
    assert line("drained", part="spine2") == "drained  part=spine2"
    assert line("drained", part="spine2", flows="many") == "drained  part=spine2  flows=many"
    assert line("something") == "something"


def state_with(bps: float, moment: Timestamp) -> State:
    fabric = leaf_spine(2, 2)
    for each in fabric.links:
        each.rate_bps = bps
    fabric.parts_down.add(kind=pb.PART_KIND_SWITCH, id="leaf9", name="leaf9", down_time=moment)
    state = state_of(fabric)
    alarm = pb.Alarm(subject="leaf9", raise_time=moment)
    alarm.kind = 99  # type: ignore[assignment]
    state.take_alarms(pb.WatchAlarmsResponse(raised=[alarm]))
    state.take_events([pb.Event(number=1, event_time=moment)])
    job = pb.Job(spec=pb.JobSpec(job_id="odd"), slowdown=bps, efficiency_predicted=bps, efficiency_measured=bps)
    state.take_jobs(pb.WatchJobsResponse(jobs=[job]))
    state.take_plan(pb.Plan(max_slowdown=bps, bound=bps), 1.0)
    return state


@pytest.mark.parametrize("bps", [math.nan, math.inf, -math.inf, -1.0, 1e308])
def test_what_is_no_number_no_time_or_no_word_is_not_shown_and_the_rest_is(bps: float) -> None:
    state = state_with(bps, Timestamp(seconds=-(2**63) if bps < 0 else 2**63 - 1))
    drawn = picture(state)
    assert {cable.load for cable in drawn.cables} == {None}
    charts.fabric(drawn, 0, LIGHT, ())
    beside.cables_of(drawn, 1, LIGHT)
    beside.slowdowns(state.slowdowns, LIGHT)
    assert [row[0] for row in rows.alarms(state, 9)] == ["-"]
    assert [row[0] for row in rows.events(state, 9)] == ["-"]
    assert [row[0] for row in rows.jobs(state.jobs_by_urgency())] == ["odd"]
    assert rows.links(state, 9) == []
    assert "leaf1:1&gt;spine1" in page(Gathered("a test", 0.0, state, pb.GetStatusResponse()))


def test_figures_that_are_no_numbers_are_said_as_unknown() -> None:
    for value in (math.nan, math.inf):
        assert {percent(value), slowdown(value), rate(value), moment(value, "%Y")} == {"-"}
    assert load(pb.Link(rate_bps=2.0, capacity_bps=1.0)) == 2.0


SEEDS = with_long(range(10), range(60))
LONG = "<b>" + ":a>" * 100_000 + "\n"
"""A name of 300 kB, which a regular expression that backtracks would read for hours."""


def odd(seed: int, kind: Any, **given: Any) -> Any:
    message = kind()
    fill(Random(f"{seed} {kind.__name__}"), message)
    message.MergeFrom(kind(**given))
    return message


def odd_state(seed: int) -> State:
    state = State(lost="")
    has = leaf_spine(2, 2)
    given = {"switches": has.switches, "links": has.links, "hosts": has.hosts}
    state.take_fabric(odd(seed, pb.WatchFabricResponse, snapshot=True, **given))
    state.take_fabric(odd(seed + 1000, pb.WatchFabricResponse))
    state.take_jobs(odd(seed, pb.WatchJobsResponse))
    state.take_alarms(odd(seed, pb.WatchAlarmsResponse))
    state.take_events(odd(seed, pb.WatchEventsResponse).events)
    for again in (0, 0, 1):
        state.take_plan(odd(seed + again, pb.Plan), 1.0)
    state.take_status(odd(seed, pb.GetStatusResponse))
    return state


@pytest.mark.parametrize("seed", SEEDS)
def test_a_view_shows_any_message(seed: int) -> None:
    state = odd_state(seed)
    drawn, routes = picture(state), odd(seed, pb.ListRoutesResponse).routes
    options: list[Any] = [charts.fabric(drawn, tier, LIGHT, links_of(routes), "0x1") for tier in (0, *drawn.matrices)]
    options += [beside.cables_of(drawn, dpid, LIGHT) for dpid in drawn.nodes]
    options.append(beside.slowdowns(state.slowdowns, LIGHT))
    sentences = [asking.summary(state, drawn), asking.facts(state), asking.wrong(state), rows.facts(state)]
    sentences += map(drain_state, state.drains.values())
    for job in state.jobs_by_urgency():
        options.append(beside.demand(job, LIGHT))
        assert circuits_of(job) is not None
        sentences += [*traffic_lines(job), *map(str, job_facts(job).values()), of_job(job, "", routes)]
    table = [*rows.jobs(state.jobs.values()), *rows.links(state, 9), *rows.alarms(state, 9), *rows.events(state, 9)]
    assert all(len(cell) <= MOST_CHARS for row in table for cell in row)
    sentences += [asking.carried(cable, routes) for cable in drawn.cables]
    assert json.dumps([options, sentences])
    assert plan_facts(state.plan or pb.Plan())
    assert page(Gathered("a test", 0.0, state, state.status or pb.GetStatusResponse(), routes))


COMMANDS = (
    *("jobs list", "jobs show ring", "status", "fabric", "plan", "plan diff", "events", "alarms list", "mode", "drain"),
    *("get jobs", "get links", "get links --top 3", "get switches", "get hosts", "get alarms", "get plan"),
    *("get topology", "describe job ring", "describe link leaf1:1", "describe switch 0x1", "describe host 10.0.1.1"),
    *("rules 0x1", "explain ring", "what-if", "undrain leaf1", "forget leaf1"),
)


@pytest.mark.parametrize(
    ("command", "form"), [*((each, "table") for each in COMMANDS), *((each, "yaml") for each in COMMANDS[1:3])]
)
def test_a_command_prints_any_answer(
    command: str, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):

        def answer(_client: Client, _method: object, request: Any, *_: object, seed: int = seed) -> Any:
            made = odd(seed, getattr(pb, request.DESCRIPTOR.name.replace("Request", "Response")))
            if request.DESCRIPTOR.name == "GetFabricRequest":
                made.MergeFrom(leaf_spine(2, 2))
            if hasattr(made, "next_page_token"):
                made.next_page_token = ""
            return made

        monkeypatch.setattr(Client, "_call", answer)
        with suppress(SignalboxError, typer.Exit, typer.BadParameter):
            command_tree()([*command.split(), "-o", form], prog_name="signalbox", standalone_mode=False)
        printed = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in printed.out + printed.err)


def test_long_names_are_shortened_where_they_are_shown() -> None:
    has = leaf_spine(1, 2)
    has.switches[0].name = has.links[0].name = has.hosts[0].ip = LONG
    has.drains.add(name=LONG)
    has.parts_down.add(kind=pb.PART_KIND_LINK, name=LONG, id=LONG)
    has.parts_down.add(kind=pb.PART_KIND_LINK, name=LONG, id="0x1:9 0x101:9")
    state = State()
    state.take_fabric(has)
    state.take_jobs(pb.WatchJobsResponse(jobs=[pb.Job(spec=pb.JobSpec(job_id=LONG), missing_hosts=[LONG])]))
    state.take_events([pb.Event(number=1, what=LONG)])
    drawn = picture(state)
    assert {node.part for node in drawn.nodes.values()} == {"0x1", "spine1", "spine2"}
    assert {cable.part for cable in drawn.cables} == {"0x1:1", "0x1:2", "0x1:9 0x101:9"}
    titles = [*(node.title for node in drawn.nodes.values()), *(cable.title for cable in drawn.cables)]
    assert max(map(len, titles)) < 2 * NAME_CHARS
    assert len(json.dumps(charts.fabric(drawn, 0, LIGHT, ()))) < 50_000
    assert len(state.events[0].what) == MOST_CHARS
    assert [len(cell) for row in rows.jobs(state.jobs.values()) for cell in row[:2]] == [MOST_CHARS, MOST_CHARS]


def test_a_job_says_how_it_shares_links_in_time() -> None:
    timing = pb.Timing(
        state=pb.TIMING_STATE_KEEPING, traffic_class=1, jitter=0.05, slots=[pb.CirclePart(start=0.5, length=0.25)]
    )
    for field, value_s in (("guaranteed", 4.1), ("promised", 6.0), ("drift", 0.03), ("waited", 1.5)):
        getattr(timing, field).FromNanoseconds(round(value_s * 1e9))
    job = pb.Job(timing=timing)
    assert job_facts(job)["slot"] == (
        "keeping, 50% to 75% of the circle; iteration at most 4.1 s, without slots 6 s; 0.03 s too early, jitter 5.0%; "
        "waited 1.5 s in all"
    )
    job.timing.ClearField("slots")
    job.timing.MergeFrom(pb.Timing(state=pb.TIMING_STATE_FREE, reason="the plan gives it no slot", traffic_class=2))
    assert job_facts(job)["slot"] == "free: the plan gives it no slot; waited 1.5 s in all; class 2"
    assert "slot" not in job_facts(pb.Job())
