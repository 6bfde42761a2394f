"""A southbound process to which fake switches connect."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from controller.config import Config
from controller.core.messages import Message
from controller.fabric.messages import ConnectionRefused, SwitchConnected
from controller.fabric.topology import Dpid
from controller.tables.messages import InstallStage, StageDone, SwitchResult
from controller.tables.rules import RuleMod, Stage
from mininet_topos.controller_process import reserve_port
from tests.support.wire.fake_switch import FakeSwitch
from tests.support.wire.openflow_controller import Framework, Southbound, southbound


class Bench(NamedTuple):
    controller: Southbound
    port: int

    @property
    def now(self) -> int:
        return len(self.controller.received)

    def refused(self, since: int) -> ConnectionRefused:
        return self.controller.first(ConnectionRefused, since)

    def install(self, change_id: int, dpids: Sequence[int], *mods: RuleMod) -> None:
        self.controller.send(InstallStage(change_id, Stage("test", {Dpid(dpid): mods for dpid in dpids})))

    def results(self, change_id: int, *dpids: int) -> Mapping[Dpid, SwitchResult]:
        """Return the results of a change at these switches; a switch that answers late has a separate report."""

        def found(messages: Sequence[Message]) -> Mapping[Dpid, SwitchResult] | None:
            reports = [m.results for m in messages if isinstance(m, StageDone) and m.change_id == change_id]
            results = {dpid: result for report in reports for dpid, result in report.items()}
            return results if results.keys() >= {*dpids} else None

        return self.controller.wait_for(found)

    @contextmanager
    def switch(self, dpid: int, ports: int = 1) -> Iterator[FakeSwitch]:
        """Connect a switch, and wait until the southbound reports it as connected."""
        since = self.now
        switch = FakeSwitch(self.port, dpid)
        try:
            switch.connect(ports)
            self.controller.first(SwitchConnected, since, dpid=dpid)
            yield switch
        finally:
            switch.close()


@contextmanager
def running_bench(framework: Framework | None = None, known: Sequence[Dpid] = (), **openflow: Any) -> Iterator[Bench]:
    """Run a southbound.

    ``known``: switches that were known before. ``openflow``: further settings of the section ``openflow``."""
    settings = config(**openflow)
    with southbound(settings, framework, known) as controller:
        yield Bench(controller, settings.openflow.port)


def config(**openflow: Any) -> Config:
    return Config.model_validate(
        {
            "openflow": {"port": reserve_port(), "barrier_timeout_s": 2.0, **openflow},
            "discovery": {"probe_interval_s": 0.1, "link_timeout_s": 0.5},
            "counters": {"interval_s": 0.2},
        }
    )


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running_bench() as bench:
        yield bench
