"""Command ``python -m benchmarks NAME``; docs/benchmarks.md lists the results.

A benchmark prints tables, and writes JSON below ``out/bench``. An error is a line on stderr with exit status 1. Wrong
usage has exit status 2.
"""

import sys
from importlib import import_module

import typer

from signalbox.errors import InvalidInput, SignalboxError

MODULES = {
    "plan": "benchmarks.plan.command",
    "plan-scale": "benchmarks.plan_scale",
    "judge": "benchmarks.judge.command",
    "judgement": "benchmarks.judgement.command",
    "mixes": "benchmarks.judge.mixed_jobs",
    "certificates": "benchmarks.judge.certificates",
    "fabric": "benchmarks.fabric.command",
    "scale": "benchmarks.scale.command",
    "scrapes": "benchmarks.scrapes",
    "failures": "benchmarks.live.failures",
    "drains": "benchmarks.live.drains",
    "faults": "benchmarks.live.faults",
    "moves": "benchmarks.live.moves",
    "goal-plan": "benchmarks.live.goal_plan",
    "fuzz-openflow": "benchmarks.openflow.fuzz",
    "flood-openflow": "benchmarks.openflow.floods",
    "simulation": "benchmarks.simulation",
    "joining": "benchmarks.joining.command",
    "api-requests": "benchmarks.api_requests.command",
    "api-abuse": "benchmarks.api_abuse.command",
    "api-load": "benchmarks.api_load.command",
    "long-run": "benchmarks.long_run",
    "linearizability": "benchmarks.linearizability.command",
    "outages": "benchmarks.live.outages",
    "interrupts": "benchmarks.interrupts",
    "controllers": "benchmarks.controllers.command",
    "upgrades": "benchmarks.live.upgrades",
    "web": "benchmarks.web.command",
    "design": "benchmarks.design.command",
    "wiring": "benchmarks.wiring.command",
    "rewiring": "benchmarks.rewiring.command",
    "contention": "benchmarks.contention.command",
    "contention-lab": "benchmarks.contention.lab",
}
"""Module of each command; the module's function ``main`` is the command. Only the requested module is imported."""


def benchmarks() -> None:
    """Measure planning, and the controller on emulated fabrics."""


def main() -> None:
    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(benchmarks)
    for name in MODULES.keys() & sys.argv[1:2] or MODULES:
        app.command(name)(import_module(MODULES[name]).main)
    try:
        app(prog_name="python -m benchmarks")
    except (SignalboxError, OSError) as error:
        for problem in error.problems if isinstance(error, InvalidInput) else (error,):
            typer.echo(f"error: {problem}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
