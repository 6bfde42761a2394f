"""Southbound with switches in memory, which execute each command at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from benchmarks.api_load.setting import fabric_of
from controller.config import Config
from controller.fabric.messages import LinkSeen, ProbeAnew, SwitchConnected
from controller.fabric.topology import Dpid, Fabric
from controller.serving import alone
from controller.southbound.holding import Holding
from controller.southbound.limits import Put
from controller.southbound.outbox import Outbox
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import RuleSet, applied
from controller.tls import TlsContext


def replace_southbound(size: str) -> None:
    """Give this controller the switches of a fabric in memory. ``size``: see ``fabric_of``."""
    vars(alone)["run_hub"] = Switches(fabric_of(size))


class Switches:
    """Replacement of ``run_hub``."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._rules = dict.fromkeys(fabric.switches, RuleSet())

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
        from controller.southbound.framework import wait_readable
        from controller.southbound.run_hub import SWITCH_INTERVAL_S

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._put = put
        on_ready()
        for dpid, switch in self._fabric.switches.items():
            put(SwitchConnected(dpid, switch.name, tuple(switch.ports.values()), holding.generation(dpid) or 0))
        for link in self._fabric.links.values():
            put(LinkSeen(link.src, link.dst))
        for command in outbox.receive(wait_readable):
            self._carry_out(command)

    def _carry_out(self, command: Any) -> None:
        match command:
            case ProbeAnew(ports):
                for link in self._fabric.links.values():
                    if link.src in ports:
                        self._put(LinkSeen(link.src, link.dst))
            case ReadRules(dpid):
                self._put(SwitchRules(dpid, self._rules[dpid], 0))
            case InstallStage(change_id, stage):
                self._rules |= {dpid: applied(self._rules[dpid], mods) for dpid, mods in stage.mods.items()}
                self._put(StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult())))
