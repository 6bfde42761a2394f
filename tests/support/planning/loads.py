"""Load of links, from the loads of the jobs on them."""

from __future__ import annotations

from controller.fabric.topology import LinkId
from controller.planning.efficiency import job_loads
from controller.planning.problem import Problem, Routes


def link_loads(problem: Problem, routes: Routes) -> dict[LinkId, float]:
    """Return the load of every link that the routed flows use, as a share of its capacity."""
    return {link: sum(loads.values()) for link, loads in job_loads(problem, routes).items()}
