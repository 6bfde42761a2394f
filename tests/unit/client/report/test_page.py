"""The page of a report, compared to the other views."""

import re

from signalbox.report.gathered import Gathered, slow_jobs, state_of
from signalbox.report.page import page
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.circuit_messages import WIRED, rings, unwired_job, wired_job


def test_of_a_job_that_waits_for_hosts_nothing_is_predicted_and_no_flow_is_forwarded() -> None:
    job = pb.Job(spec=pb.JobSpec(job_id="waits"), state=pb.JOB_STATE_PENDING, missing_hosts=["10.9.9.9"])
    job.efficiency_predicted = 0.0
    text = reported(pb.GetFabricResponse(), job)
    jobs = text[text.index('id="jobs"') : text.index('id="plan"')]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", jobs[jobs.index(">waits<") :])[5:9] == ["-", "-", "-", "0"]
    assert "ECMP" not in jobs


def reported(fabric: pb.GetFabricResponse, *jobs: pb.Job) -> str:
    status = pb.GetStatusResponse(jobs=len(jobs), jobs_pending=sum(job.state == pb.JOB_STATE_PENDING for job in jobs))
    state = state_of(status, fabric, None, jobs, 1.0)
    routes = [pb.ListedRoute(job_id=job.spec.job_id, src="10.0.1.1", dst="10.0.2.1") for job in jobs]
    return page(Gathered("a running controller", 1.0, state, status, routes))


def test_circuits_are_arrows_each_and_a_job_says_how_it_is_wired_or_why_it_is_not() -> None:
    fabric = rings(5, (1, 2))
    text = reported(fabric, wired_job(fabric), unwired_job("waits for servers that other jobs use: ring"))
    assert 'aria-label="5 switches, 10 circuits"' in text
    assert text.count('class="head l5"') == 10
    assert "server1:2&gt;server2: server1 to server2 25%, one way" in text
    assert f"10 circuits {WIRED}" in text
    assert "It has no circuits: waits for servers that other jobs use: ring." in text
    assert "1 job without circuits" in text
    assert "waiting for hosts" not in text


def test_many_circuits_are_a_matrix_without_a_second_direction() -> None:
    text = reported(rings(90, (1, 2, 7)))
    assert "Circuits from switches (rows) to switches (columns)" in text
    assert text.count('class="half l5"') == 270
    assert 'class="half lu"' not in text


def test_a_job_is_slow_by_measured_efficiencies_that_are_possible_and_mean_something() -> None:
    wrong = pb.Job(
        spec=pb.JobSpec(job_id="wrong"), slowdown=2.0, efficiency_predicted=0.5, efficiency_measured=1.62, iterations=9
    )
    assert slow_jobs([wrong]) == [wrong]
    withheld = "up to 3 hosts send to one host at once; how they share its port is not known"
    experts = pb.Job(slowdown=1.0, efficiency_measured=0.57, prediction_withheld=withheld)
    assert slow_jobs([experts]) == [], "an all-to-all on an idle fabric"
    experts.slowdown = 2.0
    assert slow_jobs([experts]) == [experts]
    shown = reported(pb.GetFabricResponse(), wrong)
    assert "162.0% !" in shown
    assert "Its measured efficiency, 162%, is not possible: it announced too much" in shown


def test_what_counters_have_not_confirmed_is_said_of_each_job() -> None:
    unconfirmed = pb.Demand(source=pb.DEMAND_SOURCE_DECLARED)
    new = pb.Job(spec=pb.JobSpec(job_id="new"), state=pb.JOB_STATE_PINNED, demand=unconfirmed, flows_without_path=2)
    shown = reported(pb.GetFabricResponse(), new)
    assert "<td>pinned, 2 flows without a path</td>" in shown, "no mark beside the word for it"
    assert "<td>unconfirmed</td>" in shown
    assert "what it announced, which counters have not yet confirmed" in shown
