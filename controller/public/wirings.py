"""Circuits between servers: the search for a wiring, and the communication time of a job on it."""

from __future__ import annotations

from controller.circuits.wiring.circuits import Wiring, hops_by_offset
from controller.circuits.wiring.evaluation import COST_RATIO, Answer, Evaluated, Offer, Rates, Way, answers
from controller.circuits.wiring.rings import Steps, chosen_steps, totient_steps
from controller.circuits.wiring.traffic import RINGS

__all__ = (
    "COST_RATIO",
    "RINGS",
    "Answer",
    "Evaluated",
    "Offer",
    "Rates",
    "Steps",
    "Way",
    "Wiring",
    "answers",
    "chosen_steps",
    "hops_by_offset",
    "totient_steps",
)
