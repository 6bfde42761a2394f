"""From what somebody wants to know to a question that can be answered away from the control loop.

In: ``Explain`` or ``WhatIf``, the network as it is, the accepted jobs. Out: a ``Question``, or the error that the asker
should read.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.errors import Conflict, NotFound
from controller.fabric.topology import Fabric
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.planning.efficiency import ideal_communication_s
from controller.planning.messages import Explain, WhatIf
from controller.planning.questions.asked import AboutFailures, AboutJob, Network, Question
from controller.planning.snapshot import missing_hosts


def question(asked: Explain | WhatIf, network: Network, jobs: Mapping[JobId, Job]) -> Question:
    """Raises ``NotFound`` for a job that nobody announced, ``Conflict`` for one whose hosts are not all known."""
    if isinstance(asked, WhatIf):
        return AboutFailures(network, asked.kinds, asked.top, asked.within_s)
    job = jobs.get(asked.job_id)
    if job is None:
        known = f"jobs: {', '.join(sorted(jobs))}" if jobs else "no job is announced"
        raise NotFound(f"there is no job '{asked.job_id}'; {known}")
    missing = missing_hosts(network.fabric.hosts, job.pairs)
    if missing:
        raise Conflict(f"job '{job.id}' waits for {', '.join(missing[:4])}: where its traffic goes is not known yet")
    return AboutJob(network, job.id, _measured(network.fabric, job))


def _measured(fabric: Fabric, job: Job) -> float | None:
    if not job.mean_communication_s:
        return None
    nic_bps = {ip: fabric.hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    return ideal_communication_s(job.virtual_links, nic_bps) / job.mean_communication_s
