"""Output of watches, a line per change."""

from controller.alarms import Alarm
from controller.api import convert, convert_plan
from signalbox.commands.watch import FabricLines, JobLines, alarm_lines, plan_lines
from signalbox.mapping import timestamp
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind
from tests.support.status_example import status as example_status


def test_ended_jobs_come_first_and_a_job_has_a_line_when_what_it_is_planned_for_changes() -> None:
    message = pb.WatchJobsResponse(
        jobs=[pb.Job(spec=pb.JobSpec(job_id="ring"), state=pb.JOB_STATE_PENDING, missing_hosts=["10.0.9.9"])],
        ended=[pb.JobEnd(job_id="ring", reason=pb.JOB_END_REASON_LEASE_RAN_OUT)],
    )
    assert list(JobLines()(message)) == [
        "job ring: lease ran out",
        "job ring: pending, waits for 10.0.9.9, 0 of 0 flows pinned, planned for -, slowdown -, 0 iterations",
    ]
    lines = JobLines()
    job = pb.Job(spec=pb.JobSpec(job_id="ring"), state=pb.JOB_STATE_PINNED, pinned=2, virtual_links=2, slowdown=1.0)
    job.demand.source = pb.DEMAND_SOURCE_DECLARED
    begin = "job ring: pinned, 2 of 2 flows pinned, planned for"
    end = "slowdown 1.000, 0 iterations"
    message = pb.WatchJobsResponse(jobs=[job])
    assert list(lines(message)) == [f"{begin} unconfirmed, {end}"]
    message.jobs[0].demand.difference = "10.0.1.1 > 10.0.2.1 carries 3 Mbit/s that are not announced"
    assert list(lines(message)) == []
    message.jobs[0].demand.source, message.jobs[0].demand.learning = pb.DEMAND_SOURCE_MEASURED, True
    assert list(lines(message)) == [f"{begin} measured, learning, {end}"]
    gone = pb.WatchJobsResponse(ended=[pb.JobEnd(job_id="ring", reason=pb.JOB_END_REASON_LEASE_RAN_OUT)])
    assert list(lines(gone)) == ["job ring: lease ran out"]
    assert list(lines(message)) == [f"{begin} measured, learning, {end}"]


def test_a_link_has_a_line_when_it_comes_and_goes_but_none_for_its_rate() -> None:
    lines = FabricLines()
    at = pb.PortRef(dpid=1, port=2)
    link = pb.Link(src=at, name="leaf1:2>spine1", capacity_bps=1e11)
    found = list(lines(pb.WatchFabricResponse(snapshot=True, links=[link])))
    assert found == ["the whole fabric now:", "link leaf1:2>spine1: 100 Gbit/s"]
    link.rate_bps = 5e9
    assert list(lines(pb.WatchFabricResponse(links=[link]))) == []
    assert list(lines(pb.WatchFabricResponse(links_gone=[at]))) == ["link leaf1:2>spine1: gone"]
    assert list(lines(pb.WatchFabricResponse(links=[link]))) == ["link leaf1:2>spine1: 100 Gbit/s"]
    link.one_way = True
    assert list(lines(pb.WatchFabricResponse(links=[link]))) == ["circuit leaf1:2>spine1: 100 Gbit/s"]
    assert list(lines(pb.WatchFabricResponse(links_gone=[at]))) == ["circuit leaf1:2>spine1: gone"]


def test_what_is_gone_is_named_as_far_as_its_name_was_told_and_what_is_down_is_told_since_when() -> None:
    lines = FabricLines()
    switch = pb.Switch(dpid=1, name="leaf1", in_sync=True, rules=12, foreign_rules=3)
    host = pb.Host(ip="10.0.1.1", switch_name="leaf1", at=pb.PortRef(dpid=1, port=4))
    found = list(lines(pb.WatchFabricResponse(switches=[switch], hosts=[host])))
    assert found == ["switch leaf1: in sync, 12 rules, 3 foreign rules", "host 10.0.1.1: at leaf1, port 4"]
    gone = pb.WatchFabricResponse(
        switches_gone=[1, 2], hosts_gone=["10.0.1.1"], links_gone=[pb.PortRef(dpid=1, port=9)]
    )
    shown = list(lines(gone))
    assert shown == ["switch leaf1: gone", "switch 2: gone", "link at 1, port 9: gone", "host 10.0.1.1: gone"]
    part = pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf1:3>spine2", down_time=timestamp(1e9))
    assert list(lines(pb.WatchFabricResponse(parts_down=[part]))) == [
        "link leaf1:3>spine2: down since 2001-09-09 01:46:40 UTC"
    ]
    assert list(lines(pb.WatchFabricResponse(parts_back=[part]))) == ["link leaf1:3>spine2: no longer down"]


def test_alarms_say_when_they_are_over_and_a_plan_has_one_line() -> None:
    alarm = convert.alarm_message(Alarm(AlarmKind.MASTERSHIP_LOST, "leaf1"), 0.0)
    assert list(alarm_lines(pb.WatchAlarmsResponse(snapshot=True))) == ["no alarms now"]
    assert list(alarm_lines(pb.WatchAlarmsResponse(raised=[alarm]))) == [f"critical mastership_lost: {alarm.text}"]
    assert list(alarm_lines(pb.WatchAlarmsResponse(ended=[alarm]))) == [f"over: {alarm.text}"]
    status = example_status()
    assert status.plan is not None
    encoded = convert_plan.plan_bytes(pb.WatchPlanResponse(), status.plan, status, installed=True)
    message = pb.WatchPlanResponse.FromString(encoded)
    (line,) = plan_lines(message)
    assert line.startswith(f"plan {status.plan.generation}: worst slowdown ")
    assert line.endswith(", installed")
    assert list(plan_lines(pb.WatchPlanResponse())) == ["no plan yet"]
