"""Wirings for a running controller: the strategy of one job that is best on its servers, and the circuits for it; and
other circuits in place of those that are lost.

In: a question of the control loop. Out: the answer, or an error that says why there is none. The model is that of
``signalbox design wiring`` (docs/wiring.md).
"""

from __future__ import annotations

import numpy as np

from controller.design.strategies import Offer, Way
from controller.design.wiring import Answer, Rates, answers
from controller.scenarios.scenario import GIGABIT
from controller.wiring.break_even import COST_RATIO
from controller.wiring.circuits import Peers, Wiring
from controller.wiring.hops import Floats
from controller.wiring.mending import mended
from controller.wiring.messages import FindWiring, FoundWiring, MendWiring
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import virtual_links


def find_wiring(asked: FindWiring) -> FoundWiring:
    """Raises ``SignalboxError`` when the planner has no answer, and ``InvalidInput`` for a job that says nothing of
    what it sends."""
    if asked.spec.observed:
        raise InvalidInput.of("collectives", "what the job sends is not known, so no circuits can be chosen for it")
    interface_gbps, interfaces = asked.interface_bps / GIGABIT, len(asked.optical)
    rates = Rates(interface_gbps, interfaces * interface_gbps / COST_RATIO)
    ways = tuple(Way(each.name, asked.spec.of_strategy(each.name), each.compute) for each in asked.spec.strategies)
    offer = Offer(asked.job_id, len(asked.servers), ways or (Way("", asked.spec, ()),))
    (answer,) = answers([offer], interfaces, rates, asked.limits)
    best = answer.best
    runs = best.spec.model_copy(update={"endpoints": asked.spec.endpoints})
    times_s = best.planned_s, best.bound_s, best.other_s
    return FoundWiring(best.name, runs, best.found.wiring.peers, *times_s, refusal(answer) if answer.refused else "")


def mend_wiring(asked: MendWiring) -> tuple[Peers, ...]:
    """By optical switch and server the server that receives."""
    runs = asked.wiring.runs
    place = {ip: number for number, ip in enumerate(dict.fromkeys(runs.endpoints))}
    sent: dict[int, Floats] = {}
    for link in virtual_links(runs):
        in_phase = sent.setdefault(link.phase, np.zeros((len(place), len(place))))
        in_phase[place[link.src_ip], place[link.dst_ip]] += link.bytes
    wiring = Wiring(len(asked.servers), asked.peers)
    return mended(sent, wiring, asked.lost, asked.dead).peers


def refusal(answer: Answer) -> str:
    """Which alternative is better, and by how much."""
    best, other = answer.best, answer.other
    return (
        f"one switch with {best.rates.other_gbps:g} Gbit/s per server is better: {other.other_s:.4g} s per iteration, "
        f"{best.planned_s:.4g} s here (circuits have to carry {best.break_even.slow_down:.4g} times what they could)"
    )
