"""Every view shows messages that only a broken controller, or a controller of another version, would send."""

import math

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from signalbox.live import rows
from signalbox.live.colours import LIGHT
from signalbox.live.picture import picture
from signalbox.live.shown import moment, percent, rate, slowdown
from signalbox.live.state import State, load
from signalbox.report.gathered import Gathered
from signalbox.report.page import page
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.web import beside, charts
from tests.support.fabric_messages import leaf_spine, state_of


def state_with(bps: float, moment: Timestamp) -> State:
    fabric = leaf_spine(2, 2)
    for link in fabric.links:
        link.rate_bps = bps
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
