"""Live state of a controller: what watches change, and how it is followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from signalbox.errors import SignalboxError
from signalbox.live import following as module
from signalbox.live import state as kept
from signalbox.live.following import Following
from signalbox.live.state import MOST_EVENTS, Kind, State, load
from signalbox.mapping import duration, timestamp
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.fabric_messages import leaf_spine, link, state_of


def test_rates_alone_do_not_change_the_shape_but_what_goes_is_down_or_a_snapshot_does() -> None:
    state = state_of(leaf_spine(2, 2))
    again = link((1, 1), (0x101, 1), "leaf1:1>spine1", 0.75)
    assert state.take_fabric(pb.WatchFabricResponse(links=[again])) == {Kind.RATES}
    assert load(state.links[1, 1]) == 0.75
    again.capacity_bps *= 2
    assert state.take_fabric(pb.WatchFabricResponse(links=[again])) == {Kind.SHAPE, Kind.RATES}
    state = state_of(leaf_spine(2, 2))
    gone = pb.WatchFabricResponse(
        links_gone=[pb.PortRef(dpid=1, port=1)], switches_gone=[0x102], hosts_gone=["10.0.1.1"]
    )
    assert Kind.SHAPE in state.take_fabric(gone)
    assert ((1, 1) in state.links, 0x102 in state.switches, "10.0.1.1" in state.hosts) == (False, False, False)
    state.take_fabric(pb.WatchFabricResponse(snapshot=True, switches=[pb.Switch(dpid=7, name="other")]))
    assert (list(state.switches), state.links, state.hosts) == ([7], {}, {})
    state, part = State(), pb.DownPart(kind=pb.PART_KIND_SWITCH, name="leaf1", id="0x1")
    assert Kind.SHAPE in state.take_fabric(pb.WatchFabricResponse(parts_down=[part]))
    assert list(state.parts_down.values()) == [part]
    assert Kind.SHAPE in state.take_fabric(pb.WatchFabricResponse(parts_back=[part]))
    assert not state.parts_down
    assert state.take_fabric(pb.WatchFabricResponse()) == frozenset()


def test_the_end_of_a_registration_does_not_end_the_next_one_of_the_same_id() -> None:
    state = State()
    second = pb.Job(spec=pb.JobSpec(job_id="ring"), uid="b")
    state.take_jobs(pb.WatchJobsResponse(jobs=[second]))
    state.take_jobs(pb.WatchJobsResponse(ended=[pb.JobEnd(job_id="ring", uid="a")]))
    assert state.jobs == {"ring": second}
    state.take_jobs(pb.WatchJobsResponse(ended=[pb.JobEnd(job_id="ring", uid="b")]))
    assert not state.jobs


def test_events_are_taken_once_and_the_newest_kept() -> None:
    state = State()
    events = [pb.Event(number=number, what="links lost") for number in range(1, MOST_EVENTS + 3)]
    assert state.take_events(events) == {Kind.EVENTS}
    assert state.take_events(events[-5:]) == frozenset()
    assert len(state.events) == MOST_EVENTS
    assert [event.number for event in state.newest_events(2)] == [MOST_EVENTS + 2, MOST_EVENTS + 1]
    state = State()
    state.take_events([pb.Event(number=900, event_time=timestamp(100.0))])
    fresh = [pb.Event(number=number, event_time=timestamp(200.0 + number)) for number in (1, 2)]
    assert state.take_events(fresh) == {Kind.EVENTS}
    assert [event.number for event in state.newest_events(3)] == [2, 1, 900], "the controller counts anew"


def test_a_refusal_is_told_until_the_controller_shows_it() -> None:
    state = State()
    assert state.take_refused("jobs", "") == frozenset()
    for what in ("fabric", "plan"):
        state.take_refused(what, "role tenant may not")
    assert state.refused == "role tenant may not"
    assert state.take_refused("fabric", "") == frozenset()
    assert state.take_refused("plan", "") == {Kind.REACHED}
    assert state.refused == ""


def test_a_plan_that_comes_again_with_its_ecmp_slowdown_is_the_same_point() -> None:
    state = State()
    assert state.take_plan(None, 1.0) == frozenset()
    state.take_plan(pb.Plan(generation=3, max_slowdown=2.0, bound=1.0), 10.0)
    state.take_plan(pb.Plan(generation=3, max_slowdown=2.0, bound=1.0, ecmp_slowdown=pb.EcmpSlowdowns(mean=2.5)), 11.0)
    state.take_plan(pb.Plan(generation=4, max_slowdown=1.5, bound=1.0), 12.0)
    assert [(each.unix_s, each.plan, each.ecmp) for each in state.slowdowns] == [(10.0, 2.0, 2.5), (12.0, 1.5, None)]
    state = State()
    state.take_plan(pb.Plan(generation=1, max_slowdown=2.0, plan_time=duration(0.02)), 10.0)
    assert state.take_plan(None, 11.0) == {Kind.PLAN}
    assert state.plan is None
    state.take_plan(pb.Plan(generation=1, max_slowdown=2.0, plan_time=duration(0.03)), 12.0)
    state.take_plan(pb.Plan(generation=1, max_slowdown=1.0, plan_time=duration(0.04)), 13.0)
    points = [(each.unix_s, each.plan) for each in state.slowdowns]
    assert points == [(10.0, 2.0), (12.0, 2.0), (13.0, 1.0)], "the controller has started again and counts anew"


def test_alarms_that_operators_know_of_come_last() -> None:
    state = State()
    known = pb.Alarm(kind=pb.ALARM_KIND_SWITCH_DOWN, subject="a", severity=pb.SEVERITY_CRITICAL, silence=pb.Silence())
    warning = pb.Alarm(kind=pb.ALARM_KIND_LINK_DOWN, subject="b", severity=pb.SEVERITY_WARNING)
    critical = pb.Alarm(kind=pb.ALARM_KIND_SWITCH_DOWN, subject="c", severity=pb.SEVERITY_CRITICAL)
    state.take_alarms(pb.WatchAlarmsResponse(snapshot=True, raised=[known, warning, critical]))
    assert [alarm.subject for alarm in state.alarms_by_urgency()] == ["c", "b", "a"]
    state.take_alarms(pb.WatchAlarmsResponse(ended=[critical]))
    assert [alarm.subject for alarm in state.alarms_by_urgency()] == ["b", "a"]


WAIT_S = 60.0


class Controller:
    """Client of a controller whose watch of the fabric sends ``messages``, and which answers nothing else."""

    def __init__(self, messages: Callable[[], Iterator[pb.WatchFabricResponse]]) -> None:
        self._messages = messages
        self._closed = False
        self.tokens: list[str] = []

    def watch_fabric(self, resume_token: str) -> Iterator[pb.WatchFabricResponse]:
        self.tokens.append(resume_token)
        for message in self._messages():
            if self._closed:
                raise ValueError("the channel is closed")
            yield message

    def _nothing(self, *_: object, **__: object) -> Any:
        raise SignalboxError("refused")

    watch_jobs = watch_alarms = watch_plan = watch_events = get_status = _nothing

    def close(self) -> None:
        self._closed = True


def follows(controller: Controller, found: Callable[[Following], object]) -> None:
    client: Any = controller
    with Following(lambda: client) as following:
        end = time.monotonic() + WAIT_S
        while not found(following):
            assert time.monotonic() < end, following.state.refused
            following.changes(0.05)


def named(number: int, token: str) -> pb.WatchFabricResponse:
    return pb.WatchFabricResponse(switches=[pb.Switch(dpid=number, name="s" * 100)], resume_token=token)


def test_messages_that_arrive_meanwhile_are_left_to_the_next_call() -> None:
    client: Any = Controller(lambda: iter(()))
    following = Following(lambda: client)
    calls = []

    def again() -> frozenset[Kind]:
        calls.append(1)
        following._put(again)
        return frozenset({Kind.RATES})

    following._put(again)
    assert [following.changes() for _ in range(3)] == [{Kind.RATES}] * 3
    assert len(calls) == 3


def test_a_change_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    endless = Controller(lambda: (named(number, "") for number in count()))
    follows(endless, lambda found: "limit of 10,000 bytes" in found.state.refused)


def test_after_many_changes_a_watch_begins_with_a_snapshot_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGED_BYTES", 10_000)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    endless = Controller(lambda: (named(number, "1") for number in count()))
    follows(endless, lambda _: len(endless.tokens) > 2)
    assert set(endless.tokens) == {""}


def test_too_many_entries_are_refused_and_the_view_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_ENTRIES", 50)
    endless = Controller(lambda: (named(number, "1") for number in count()))
    sizes = []

    def said(following: Following) -> bool:
        sizes.append(len(following.state.switches))
        return "more than 50 messages of the type Switch" in following.state.refused

    follows(endless, said)
    assert max(sizes) == 50


def test_what_was_never_received_is_named() -> None:
    follows(
        Controller(lambda: iter([named(1, "1")])),
        lambda found: found.state.switches and found.state.refused == "refused",
    )
    client: Any = Controller(lambda: iter(()))
    silent = Following(lambda: client)
    assert silent.state.refused == "alarms not received yet; fabric not received yet; jobs not received yet"
