"""The order of commands where all are listed, by what they are for."""

from __future__ import annotations

from signalbox.distributions import CONTROLLER, OFFLINE

PANELS = {
    "Jobs": ("jobs", "run", "kubernetes"),
    "Look": (
        "status",
        "top",
        "web",
        "report",
        "events",
        "watch",
        "get",
        "describe",
        "fabric",
        "plan",
        "rules",
        "explain",
        "what-if",
    ),
    "Operate": ("alarms", "strategy", "drain", "undrain", "forget"),
    "The controller": ("serve", "token", "state", "support-bundle", "verify"),
    "Without a fabric": ("design", "generate-workload", "plan-file", "simulate", "lab"),
}

BROUGHT_BY = {
    name: distribution
    for panel, distribution in (("The controller", CONTROLLER), ("Without a fabric", OFFLINE))
    for name in PANELS[panel]
}
"""Distribution of each command that is not one of this distribution's."""

PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
