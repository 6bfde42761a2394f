"""The order of commands where all are listed, by what they are for."""

from __future__ import annotations

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
    "The controller": ("serve", "token", "state", "support-bundle"),
    "Without a fabric": ("design", "generate-workload", "plan-file", "simulate", "verify", "lab"),
}

OF_CONTROLLER = {*PANELS["The controller"], *PANELS["Without a fabric"]}
"""Commands of another distribution than this one's."""

PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
