"""Conversion between instances and the controller's types; the only module of the judge that imports both.

``answer`` plans an ``Instance``, and returns the plan's claims as plain data.
"""

from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from time import perf_counter, process_time
from typing import Any

from benchmarks.judge import instances
from benchmarks.judge.verdicts import Answer
from controller.config import Config
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from controller.planning.analysis.messages import FabricNames
from controller.planning.certificate import certificate
from controller.planning.plan import NoPlan, answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.snapshot import take_snapshot
from offline.scenarios.workloads import WorkloadJob
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import JobId
from signalbox.words import Objective

MAX_PATHS, OBJECTIVE = Config().planning.max_paths, Config().planning.objective
"""Largest number of candidate paths between two switches, and objective: the defaults of a running controller."""
_TRIES = 5
_UNDISTURBED = 0.8
"""Share of the wall time for which a plan must have had a processor, to count as undisturbed by other processes."""


def answer(
    instance: instances.Instance, max_subflows: int, limits: PlanLimits, objective: Objective = OBJECTIVE
) -> Answer:
    """Return the planner's claims for a plan with at most ``max_subflows`` subflows per flow.

    On a busy machine the planner achieves less within its time limit. If this may have made the plan worse, the
    instance is planned again, up to ``_TRIES`` times."""
    for _ in range(_TRIES):
        problem = problem_of(instance, max_subflows, objective)
        wall_s, cpu_s = perf_counter(), process_time()
        found = plan(problem, limits)
        wall_s, cpu_s = perf_counter() - wall_s, process_time() - cpu_s
        if not disturbed(wall_s, cpu_s, limits.time_limit_s):
            break
    if isinstance(found, NoPlan):
        return Answer(max_subflows, (), {}, 1.0, 1.0, 1.0, 0, f"none: {found.reason}", "", wall_s, cpu_s)
    number = _link_numbers(instance)
    route_of = {(flow.job_id, *flow.id.pair): found.routes.get(flow.id, ()) for flow in problem.flows}
    flows = dict.fromkeys((str(send.job), address(send.src), address(send.dst)) for send in instance.sends)
    routes = tuple(
        tuple((tuple(number[link] for link in path), Fraction(share)) for path, share in route_of[JobId(job), src, dst])
        for job, src, dst in flows
    )
    return Answer(
        max_subflows,
        routes,
        {int(job): slowdown for job, slowdown in found.job_slowdown.items()},
        found.bound,
        found.fluid_bound,
        found.integer_bound,
        found.slowdowns_proven,
        found.certificate,
        found.solver,
        wall_s,
        cpu_s,
    )


def certificate_of(
    instance: instances.Instance, max_subflows: int, limits: PlanLimits, objective: Objective = OBJECTIVE
) -> dict[str, Any]:
    """Return the plan with its proofs, as plain data."""
    problem = problem_of(instance, max_subflows, objective)
    return certificate(problem, answered(plan(problem, limits)), FabricNames(_fabric(instance)[0]))


def disturbed(wall_s: float, cpu_s: float, limit_s: float) -> bool:
    """Return whether a plan may be worse because other processes used the processors.

    Only a plan that took at least half of its time limit counts as disturbed."""
    return wall_s >= limit_s / 2 and cpu_s < _UNDISTURBED * wall_s


def problem_of(instance: instances.Instance, max_subflows: int, objective: Objective = OBJECTIVE) -> Problem:
    fabric, background = _fabric(instance)
    sent: defaultdict[int, list[VirtualLink]] = defaultdict(list)
    for send in instance.sends:
        sent[send.job].append(VirtualLink(address(send.src), address(send.dst), send.phase, send.size))
    jobs = [
        WorkloadJob(JobId(str(job)), tuple(own), (), 0.0, 0.0, 0.0, instances.limit_of(max_subflows, job))
        for job, own in sorted(sent.items())
    ]
    return take_snapshot(1, fabric, jobs, background, {}, MAX_PATHS, objective)


@lru_cache(maxsize=1)
def _fabric(instance: instances.Instance) -> tuple[Fabric, dict[LinkId, float]]:
    """Return the fabric, and the other traffic on its links in bit/s."""
    background: dict[LinkId, float] = {}
    ports: defaultdict[int, dict[PortNo, Port]] = defaultdict(dict)

    def plug(switch: int, bps: int) -> PortRef:
        port = PortNo(len(ports[switch]) + 1)
        ports[switch][port] = Port(port, f"eth{port}", "", True, float(bps))
        return PortRef(Dpid(switch + 1), port)

    links: dict[LinkId, Link] = {}
    for cable in instance.cables:
        a, b = plug(cable.a, cable.bps), plug(cable.b, cable.bps)
        for src, dst, taken in ((a, b, cable.taken_ab), (b, a, cable.taken_ba)):
            link = Link(src, dst, float(cable.bps))
            links[link.id] = link
            background[link.id] = float(taken)
    hosts: dict[str, Host] = {}
    for index, of in enumerate(instance.hosts):
        host = Host(address(index), None, plug(of.switch, of.bps), float(of.bps))
        hosts[host.ip] = host
        background |= {host.uplink: float(of.taken_out), host.downlink: float(of.taken_in)}
    switches = {Dpid(n + 1): Switch(Dpid(n + 1), f"s{n}", ports[n]) for n in range(instance.switches)}
    return Fabric(1, switches, links, hosts), background


def address(host: int) -> str:
    return f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"


def _link_numbers(instance: instances.Instance) -> dict[LinkId, int]:
    """Return the number of each link, as it appears in ``exact.Path``."""
    used: defaultdict[int, int] = defaultdict(int)
    numbers: dict[LinkId, int] = {}
    for number, switch in enumerate(chain.from_iterable((cable.a, cable.b) for cable in instance.cables)):
        used[switch] += 1
        numbers[LinkId(Dpid(switch + 1), PortNo(used[switch]))] = number
    return numbers
