"""Rows of the tables in which the live views show a ``State``."""

from signalbox.live import rows
from signalbox.live.state import State
from signalbox.top.app import of_job
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.circuit_messages import WIRED, rings, unwired_job, wired_job
from tests.support.fabric_messages import link


def test_unannounced_traffic_that_is_not_known_yet_is_not_none() -> None:
    state = State()
    known = link((1, 2), (0x102, 1), "leaf1:2>spine2", 0.25)
    known.background_bps = 0.0
    state.take_fabric(pb.WatchFabricResponse(links=[link((1, 1), (0x101, 1), "leaf1:1>spine1", 0.5), known]))
    found = rows.links(state, 9)
    assert found == [("leaf1:1>spine1", "50%", "500 Mbit/s", "-"), ("leaf1:2>spine2", "25%", "250 Mbit/s", "0 bit/s")]


def test_the_slowdowns_are_those_of_a_plan_that_there_is() -> None:
    state = State()
    assert rows.plan(state) == "no plan yet"
    state.take_plan(pb.Plan(generation=1, max_slowdown=2.0, bound=1.5), 10.0)
    assert rows.plan(state) == "plan: worst slowdown 2.000, bound 1.500, under ECMP -"
    state.take_plan(None, 11.0)
    assert rows.plan(state) == "no plan yet"


def test_a_job_says_its_circuits_and_without_any_that_nothing_is_hashed() -> None:
    fabric = rings(4, (1, 3))
    routes = [pb.ListedRoute(src="10.0.1.1", dst="10.0.2.1")]
    found = of_job(wired_job(fabric), "Nothing slows it.", routes).splitlines()
    assert found == ["Nothing slows it.", f"8 circuits {WIRED}", "", "10.0.1.1 > 10.0.2.1: ecmp"]
    waits = of_job(unwired_job("circuits are being worked out"), "It waits.", routes).splitlines()
    assert waits[1:] == ["no circuits: circuits are being worked out", "", "10.0.1.1 > 10.0.2.1: no circuits"]
    assert of_job(None, "It has ended.", ()).splitlines() == ["It has ended."]


def test_a_row_has_a_mark_where_counters_do_not_confirm_what_the_job_announced() -> None:
    state = State()
    for name, source in (("known", pb.DEMAND_SOURCE_CONFIRMED), ("new", pb.DEMAND_SOURCE_DECLARED)):
        spec, demand = pb.JobSpec(job_id=name), pb.Demand(source=source)
        job = pb.Job(spec=spec, state=pb.JOB_STATE_PINNED, demand=demand)
        state.take_jobs(pb.WatchJobsResponse(jobs=[job]))
    assert {row[0]: row[1] for row in rows.jobs(state.jobs_by_urgency())} == {"known": "pinned", "new": "pinned ?"}
    said = of_job(state.jobs["new"], "Nothing slows it.", []).splitlines()
    assert said[1] == "It is planned for what it announced, not yet confirmed by counters."


def test_an_alarm_that_operators_know_of_says_so_first_and_is_the_last() -> None:
    state = State()
    known = pb.Alarm(kind=pb.ALARM_KIND_LINK_DOWN, severity=pb.SEVERITY_CRITICAL, text="a", silence=pb.Silence())
    new = pb.Alarm(kind=pb.ALARM_KIND_HOST_DOWN, severity=pb.SEVERITY_WARNING, text="b")
    state.take_alarms(pb.WatchAlarmsResponse(raised=[known, new]))
    found = [line for _, line in rows.alarms(state, 9)]
    assert found == ["warning host_down: b", "known: critical link_down: a (acknowledged)"]
