"""Jobs in time on shared links: cases, choices, and the times that they guarantee; parts of two published systems."""

from __future__ import annotations

from controller.planning.contention.cassini import shifts as cassini_shifts
from controller.planning.contention.circles import Circle, circles
from controller.planning.contention.crux import crux as crux_choices
from controller.planning.contention.fluid import Case, Choice, Choices, Objective, Phase, TimedJob
from controller.planning.contention.large import Search, best_routes
from controller.planning.contention.routing import least_congested, searched_routes

__all__ = (
    "Case",
    "Choice",
    "Choices",
    "Circle",
    "Objective",
    "Phase",
    "Search",
    "TimedJob",
    "best_routes",
    "cassini_shifts",
    "circles",
    "crux_choices",
    "least_congested",
    "searched_routes",
)
