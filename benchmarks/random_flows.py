"""Workloads of random flows, for measurements at any size.

The input is a fabric, numbers and a seed. The result is lines of workload files, for ``generator.jobs_of``.
"""

from __future__ import annotations

import random

from controller.fabric.topology import Fabric
from offline.scenarios.generator import Workload, ring_lines
from offline.scenarios.workloads import Numbering
from signalbox.errors import FieldProblem, InvalidInput

STEP_BYTES = 1 << 20
"""Bytes of a flow per step of its ring."""


def random_flows(fabric: Fabric, flows: int, jobs: int, seed: int) -> Workload:
    """Return ``flows`` equal flows in one ring per job; each random host sends and receives one flow.

    Raises ``InvalidInput`` when there are fewer hosts than flows, or fewer than two flows per job."""
    numbering = Numbering(fabric)
    if not 2 * jobs <= flows <= len(numbering.ips):
        message = (
            f"{flows} flows in {jobs} jobs need as many hosts (there are {len(numbering.ips)}) and two flows per job"
        )
        raise InvalidInput((FieldProblem("workload", message),))
    first = numbering.first_host
    hosts = random.Random(seed).sample(range(first, first + len(numbering.ips)), flows)
    cuts = [flows * job // jobs for job in range(jobs + 1)]
    return {
        f"job_{job}-random": ring_lines(hosts[cuts[job] : cuts[job + 1]], 0, 0, STEP_BYTES, 0, numbering)
        for job in range(jobs)
    }
