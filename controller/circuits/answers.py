"""Answers about wirings: the best parallelization and circuits of a job, and replacements for lost circuits.

``signalbox design wiring`` uses the same model (docs/wiring.md). If no answer is found, the raised error has the
reason.
"""

from __future__ import annotations

import math

from controller.circuits.questions import FindWiring, FoundWiring, MendedWiring, MendWiring, PlacedRoutes
from controller.circuits.wiring.circuits import Port, Wiring
from controller.circuits.wiring.evaluation import (
    COST_RATIO,
    FIRST_PORT,
    GIGABIT,
    Answer,
    Evaluated,
    Offer,
    Rates,
    Way,
    answers,
    evaluated_on,
)
from controller.circuits.wiring.finder import Found
from controller.circuits.wiring.mending import mended
from controller.circuits.wiring.traffic import traffic_as_it_runs
from controller.fabric.topology import Path
from controller.planning.problem import PlanLimits
from signalbox.jobs.spec import JobSpec

MENDED_LIMITS = PlanLimits(time_limit_s=0.5, ecmp_draws=0)
"""Limits of the plan for a mended wiring. The limits are small, because the new circuits wait for this plan."""


def find_wiring(asked: FindWiring) -> FoundWiring:
    """Return the best wiring for a job. Raises ``SignalboxError`` if the planner finds no plan."""
    interface_gbps, interfaces = asked.interface_bps / GIGABIT, len(asked.optical)
    rates = Rates(interface_gbps, interfaces * interface_gbps / COST_RATIO)
    ways = tuple(
        Way(each.name, asked.spec.of_parallelization(each.name), each.compute) for each in asked.spec.parallelizations
    )
    offer = Offer(asked.job_id, len(asked.servers), ways or (Way("", asked.spec, ()),))
    (answer,) = answers([offer], interfaces, rates, asked.limits)
    best = answer.best
    runs = best.spec.model_copy(update={"endpoints": asked.spec.endpoints})
    times_s = best.planned_s, best.bound_s, best.other_s
    refused = refusal(answer) if answer.refused else ""
    return FoundWiring(best.name, runs, best.found.wiring.peers, *times_s, refused, _placed(best, runs))


def mend_wiring(asked: MendWiring) -> MendedWiring:
    """Return a wiring that replaces lost circuits. Raises ``SignalboxError`` if the planner finds no plan."""
    runs, parallelization = asked.wiring.runs, asked.wiring.parallelization
    traffic = traffic_as_it_runs(runs)
    wiring = mended(traffic.pairs, Wiring(len(asked.servers), asked.peers), asked.lost, asked.dead, asked.fixed)
    found = Found(traffic, wiring, (), asked.interface_bps)
    if math.isinf(found.expected_time_s):
        return MendedWiring(wiring.peers, math.inf, math.inf)
    compute = next((each.compute for each in asked.spec.parallelizations if each.name == parallelization), ())
    interface_gbps = asked.interface_bps / GIGABIT
    rates = Rates(interface_gbps, wiring.interfaces * interface_gbps / COST_RATIO)
    best = evaluated_on(found, Way(parallelization, runs, compute), rates, MENDED_LIMITS)
    return MendedWiring(wiring.peers, best.planned_s, best.bound_s)


def _placed(best: Evaluated, runs: JobSpec) -> PlacedRoutes:
    """Return the routes of the plan, with the job's own addresses.

    The plan was made with invented addresses (``Way.spec``). Each invented address is replaced by the address at the
    same position in ``runs``."""
    address = dict(zip(best.spec.endpoints, runs.endpoints, strict=True))

    def ports(path: Path) -> tuple[Port, ...]:
        return tuple(Port(link.dpid - 1, link.port - FIRST_PORT) for link in path)

    return {
        flow._replace(src_ip=address[flow.src_ip], dst_ip=address[flow.dst_ip]): tuple(
            (ports(path), share) for path, share in route
        )
        for flow, route in best.plan.routes.items()
    }


def refusal(answer: Answer) -> str:
    """Return the text with which the controller refuses circuits for a job.

    The text says that one switch would be better, and gives the time of an iteration on the switch and on circuits."""
    best, other = answer.best, answer.other
    return (
        f"one switch with {best.rates.other_gbps:g} Gbit/s per server is better: an iteration takes "
        f"{other.other_s:.4g} s on the switch, and {best.planned_s:.4g} s on circuits; on circuits the same bytes "
        f"take at least {best.break_even.time_ratio:.4g} times as long"
    )
