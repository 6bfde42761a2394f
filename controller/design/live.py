"""Wirings for a running controller: the strategy of one job that is best on its servers, and the circuits for it.

In: a question of the control loop. Out: the answer, or an error that says why there is none. The model is that of
``signalbox design wiring`` (docs/wiring.md).
"""

from __future__ import annotations

from controller.design.strategies import Offer, Way
from controller.design.wiring import Answer, Rates, answers
from controller.scenarios.scenario import GIGABIT
from controller.wiring.break_even import COST_RATIO
from controller.wiring.messages import FindWiring, FoundWiring
from signalbox.errors import InvalidInput


def find_wiring(asked: FindWiring) -> FoundWiring:
    """Raises ``SignalboxError`` when the planner has no answer, and ``InvalidInput`` for a job that says nothing of
    what it sends."""
    if asked.spec.observed:
        raise InvalidInput.of("collectives", "what the job sends is not known, so no circuits can be chosen for it")
    interface_gbps, interfaces = asked.interface_bps / GIGABIT, len(asked.optical)
    rates = Rates(interface_gbps, interfaces * interface_gbps / COST_RATIO)
    offer = Offer(asked.job_id, len(asked.servers), (Way("", asked.spec, ()),))
    (answer,) = answers([offer], interfaces, rates, asked.limits)
    best = answer.best
    runs = best.spec.model_copy(update={"endpoints": asked.spec.endpoints})
    times_s = best.planned_s, best.bound_s, best.other_s
    return FoundWiring(best.name, runs, best.found.wiring.peers, *times_s, refusal(answer) if answer.refused else "")


def refusal(answer: Answer) -> str:
    """Which alternative is better, and by how much."""
    best, other = answer.best, answer.other
    return (
        f"one switch with {best.rates.other_gbps:g} Gbit/s per server is better: {other.other_s:.4g} s per iteration, "
        f"{best.planned_s:.4g} s here (circuits have to carry {best.break_even.slow_down:.4g} times what they could)"
    )
