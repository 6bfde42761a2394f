"""A southbound process to which fake switches connect, once on Ryu and once on os-ken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from controller.config import Config
from controller.fabric.messages import SwitchConnected
from mininet_topos.controller_process import reserve_port
from tests.support.wire.fake_switch import FakeSwitch
from tests.support.wire.openflow_controller import Southbound, southbound


def config(**openflow: Any) -> Config:
    return Config.model_validate(
        {
            "openflow": {"port": reserve_port(), "barrier_timeout_s": 0.5, **openflow},
            "discovery": {"probe_interval_s": 0.1, "link_timeout_s": 0.5},
            "counters": {"interval_s": 0.2},
        }
    )


class Bench(NamedTuple):
    controller: Southbound
    port: int

    @contextmanager
    def switch(self, dpid: int, ports: int = 1) -> Iterator[FakeSwitch]:
        """Connect a switch, and wait until the southbound knows it."""
        since = len(self.controller.received)
        switch = FakeSwitch(self.port, dpid)
        try:
            switch.connect(ports)
            self.controller.first(SwitchConnected, since, dpid=dpid)
            yield switch
        finally:
            switch.close()


@pytest.fixture(scope="module", params=["ryu", "os_ken"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    settings = config()
    with southbound(settings, request.param) as controller:
        yield Bench(controller, settings.openflow.port)
