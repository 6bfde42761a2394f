"""The ``State`` of the live views, as the messages of watches change it."""

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
