"""A job's own bytes are not background (traffic of no job), whichever paths it was pinned to within the window."""

from __future__ import annotations

from collections import Counter

from controller.config import Config, CountersConfig, FabricConfig
from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import LinkId, PortRef
from controller.jobs.messages import RegisterJob
from controller.planning.messages import SetMode
from signalbox.words import Mode
from tests.support.busy_fabric import BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

SRC, DST = "10.0.1.1", "10.0.2.1"
STEP_S = 0.5
BYTES = int(0.8 * FABRIC_BPS * STEP_S / 8)
COUNTERS = CountersConfig(interval_s=5.0, window_s=6.0)
CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS), counters=COUNTERS)


class Sending(FakeFabric):
    """Fabric with one flow, which sends all the time along the path it is pinned to."""

    def __init__(self) -> None:
        super().__init__(leaves=2, spines=3, hosts_per_leaf=1)
        self._sent: Counter[PortRef] = Counter()
        self._of_flow = 0

    def path(self) -> tuple[LinkId, ...]:
        (job,) = self.status.jobs.values()
        routes = {flow: route for flow, route in job.routes.items() if flow.src_ip == SRC and route}
        ((subflow,),) = routes.values()
        return subflow.path

    def carry(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.run(STEP_S)
            self._sent.update(dict.fromkeys((link.at for link in self.path()), BYTES))
            self._of_flow += BYTES
            self.count(dict(self._sent), {(SRC, DST): self._of_flow})


def test_the_bytes_on_a_path_that_was_left_before_counters_were_evaluated_are_no_background() -> None:
    fabric = Sending()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("ring", [SRC, DST], lease_s=600)))
    fabric.run(2)
    fabric.carry(15)  # the controller evaluates counters every 5 s
    first = fabric.path()
    fabric.cut(first[0].dpid, first[0].port)
    fabric.carry(4.5)
    second = fabric.path()
    fabric.cut(second[0].dpid, second[0].port)
    fabric.carry(1.5)
    assert len({path[0] for path in (first, second, fabric.path())}) == 3
    links = fabric.status.links
    assert {link: links[link].background_bps for link in (first[1], second[1])} == {first[1]: 0, second[1]: 0}


def test_hashed_bytes_on_links_that_are_used_again_after_a_drain_are_no_background() -> None:
    """The job registers while the links are drained."""
    fabric = BusyFabric(4, 2, 3, seed=1)
    fabric.start(Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS)))
    fabric.run(3)
    fabric.all_speak()
    fabric.send(SetMode(Mode.ECMP))
    fabric.send(DrainParts(("spine2",)))
    fabric.run(2)
    ring = [f"10.0.{leaf}.1" for leaf in (1, 3, 2, 4)]
    fabric.send(RegisterJob(ring_job("ring", ring, lease_s=600)))
    fabric.run(2)
    fabric.rings = [Ring(ring)]
    fabric.carry(3)
    fabric.send(UndrainParts(("spine2",)))
    fabric.run(1)
    used = {fabric.switches[at.dpid].name for flow in fabric.rings[0].flows for at in fabric.ports_on(flow)}
    assert "spine2" in used
    fabric.carry(20)
    assert fabric.background_bps() == {}
