"""Southbound with switches in memory, which execute each command at once.

Each controller has the whole fabric in memory, and announces only the switches of which it is the holder. A switch that
moves to another member has no rules there. The division of the switches must therefore not change once there are jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.api_load.setting import fabric_of
from controller.config import Config
from controller.fabric.messages import LinkSeen, ProbeAnew, SwitchConnected, SwitchesInReach, SwitchLeft
from controller.fabric.topology import Dpid, Fabric
from controller.link.messages import Welcome
from controller.serving import alone, southbound_process
from controller.southbound.holding import Holding
from controller.southbound.limits import Put
from controller.southbound.outbox import Outbox
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import RuleSet, applied
from controller.tls import TlsContext

LOOK_S = 0.05


def replace_southbound(size: str) -> None:
    """Give this controller, or its southbound's process if it is a member, the switches of a fabric in memory.

    ``size``: see ``fabric_of``."""
    vars(alone)["run_hub"] = Switches(fabric_of(size))
    vars(southbound_process)["run"] = partial(_run, size)


def _run(size: str, connection: Connection, config: Config, logging: Callable[[], object]) -> None:
    from controller.southbound import own_process

    vars(own_process)["run_hub"] = Switches(fabric_of(size))
    own_process.run(connection, config, logging)


class Switches:
    """Replacement of ``run_hub``: the switches of which this process is the holder."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._rules = dict.fromkeys(fabric.switches, RuleSet())
        self._held: dict[Dpid, int] = {}
        """Generation id of each switch that this process holds."""

    def __call__(
        self,
        config: Config,  # noqa: ARG002
        put: Put,
        outbox: Outbox,
        tls: TlsContext,  # noqa: ARG002
        holding: Holding,
        on_ready: Callable[[], None] = lambda: None,
        known: Collection[Dpid] = (),  # noqa: ARG002
    ) -> None:
        from controller.southbound.framework import spawn, wait_readable
        from controller.southbound.run_hub import SWITCH_INTERVAL_S

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._put, self._holding = put, holding
        spawn(outbox, self._follow)
        on_ready()
        for command in outbox.receive(wait_readable):
            self._carry_out(command)

    def _follow(self) -> None:
        """Announce the switches of which this process has become the holder, and report those that it has lost."""
        from controller.southbound.framework import pause

        while True:
            for dpid in self._fabric.switches:
                generation = self._holding.generation(dpid)
                if generation is None and dpid in self._held:
                    del self._held[dpid]
                    self._put(SwitchLeft(dpid, released=True))
                elif generation and dpid not in self._held and self._holding.may_claim(dpid, 0.0):
                    self._held[dpid] = generation
                    self._announce(dpid)
            pause(LOOK_S)

    def _announce(self, dpid: Dpid) -> None:
        switch = self._fabric.switches[dpid]
        self._put(SwitchConnected(dpid, switch.name, tuple(switch.ports.values()), self._held[dpid]))
        for link in self._fabric.links.values():
            if link.src.dpid in self._held and dpid in (link.src.dpid, link.dst.dpid):
                self._put(LinkSeen(link.src, link.dst))

    def _carry_out(self, command: Any) -> None:
        match command:
            case Welcome():
                self._put(SwitchesInReach(frozenset(self._fabric.switches)))
                for dpid in self._held:
                    self._announce(dpid)
            case ProbeAnew(ports):
                for link in self._fabric.links.values():
                    if link.src in ports:
                        self._put(LinkSeen(link.src, link.dst))
            case ReadRules(dpid):
                self._put(SwitchRules(dpid, self._rules[dpid], 0))
            case InstallStage(change_id, stage):
                self._rules |= {dpid: applied(self._rules[dpid], mods) for dpid, mods in stage.mods.items()}
                self._put(StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult())))
