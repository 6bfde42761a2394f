"""How long it takes to compute the rules of every switch and what to send, in stages: at first, and after a cut."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from controller.config import Config
from controller.fabric.topology import Dpid, Fabric
from controller.offline.fabrics import without
from controller.planning.problem import Routes
from controller.tables.pinned_table import Pin
from controller.tables.pipeline import PipelineSettings, desired_rules
from controller.tables.rules import RuleSet
from controller.tables.rules_diff import stages
from controller.tables.running_routes import PinnedJob, RunningRoutes

Row = dict[str, str | float]

SETTINGS = PipelineSettings(Config().discovery.punt_rate_pps, Config().fabric.leaf_prefix_length)


def install_and_cut(fabric: Fabric, jobs: Sequence[PinnedJob], planned: Routes) -> list[Row]:
    """A full install on empty switches, then the repair after one cable was cut; ``planned`` stays pinned.
    ``rules``: what the switches hold afterwards. ``mods``: the messages of all stages."""
    routes = RunningRoutes()
    routes.routes = dict(planned)
    empty = {dpid: RuleSet() for dpid in fabric.switches}
    install, held = _change("full install", fabric, routes.pins(fabric, jobs), empty)
    cut = without(fabric, [next(iter(fabric.links))])
    repair, _ = _change("cable cut", cut, routes.pins(cut, jobs), held)
    return [install, repair]


def _change(
    name: str, fabric: Fabric, pins: Sequence[Pin], held: Mapping[Dpid, RuleSet]
) -> tuple[Row, Mapping[Dpid, RuleSet]]:
    started = time.perf_counter()
    desired = desired_rules(fabric, pins, held, SETTINGS)
    computed = time.perf_counter()
    staged = stages(desired, held)
    done = time.perf_counter()
    return {
        "change": name,
        "rules": sum(map(len, desired.values())),
        "stages": len(staged),
        "mods": sum(len(mods) for stage in staged for mods in stage.mods.values()),
        "desired_ms": 1000 * (computed - started),
        "diff_ms": 1000 * (done - computed),
    }, desired
