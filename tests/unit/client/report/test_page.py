"""What a report says, as the other views say it."""

from __future__ import annotations

import re

from signalbox.report.gathered import Gathered, state_of
from signalbox.report.page import page
from signalbox.v1 import signalbox_pb2 as pb


def test_of_a_job_that_waits_for_hosts_nothing_is_predicted_and_no_flow_is_forwarded() -> None:
    job = pb.Job(spec=pb.JobSpec(job_id="waits"), state=pb.JOB_STATE_PENDING, missing_hosts=["10.9.9.9"])
    job.efficiency_predicted = 0.0
    status = pb.GetStatusResponse(jobs=1, jobs_pending=1)
    state = state_of(status, pb.GetFabricResponse(), None, [job], 1.0)
    route = pb.ListedRoute(job_id="waits", src="10.0.1.2", dst="10.9.9.9")
    text = page(Gathered("a running controller", 1.0, state, status, [route]))
    jobs = text[text.index('id="jobs"') : text.index('id="plan"')]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", jobs[jobs.index(">waits<") :])[5:9] == ["-", "-", "-", "0"]
    assert "ECMP" not in jobs
