"""Every view and command with arbitrary answers: wrong numbers and times, unknown words, and absent parts."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
import typer
from nicegui import json

from benchmarks.api_requests.values import fill
from signalbox.cli import app
from signalbox.client import Client
from signalbox.commands import watch
from signalbox.errors import SignalboxError
from signalbox.live import rows
from signalbox.live.jobs import circuits_of, job_facts, links_of, traffic_lines
from signalbox.live.picture import LIGHT, picture
from signalbox.live.shown import MOST_CHARS, NAME_CHARS, drain_state, plan_facts
from signalbox.live.state import State
from signalbox.report.gathered import Gathered
from signalbox.report.page import page
from signalbox.top.app import of_job
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.web import asking, beside, charts
from tests.support.fabric_messages import leaf_spine
from tests.support.long_cases import with_long

SEEDS = with_long(range(10), range(60))
LONG = "<b>" + ":a>" * 100_000 + "\n"
"""A name of 300 kB, which an expression that backtracks would read for hours."""


def odd(seed: int, kind: Any, **given: Any) -> Any:
    """Return a message with arbitrary fields, the same for each seed."""
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


@pytest.mark.parametrize("seed", SEEDS)
def test_a_watch_prints_any_message(seed: int) -> None:
    for lines, kind in (
        (watch.JobLines(), pb.WatchJobsResponse),
        (watch.FabricLines(), pb.WatchFabricResponse),
        (watch.alarm_lines, pb.WatchAlarmsResponse),
        (watch.plan_lines, pb.WatchPlanResponse),
    ):
        assert all(isinstance(line, str) for line in lines(odd(seed, kind)))


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
            app([*command.split(), "-o", form], prog_name="signalbox", standalone_mode=False)
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
