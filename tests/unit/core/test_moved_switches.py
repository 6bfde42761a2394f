"""A switch that moves to another southbound: what the control loop keeps, and what it looks at again."""

from dataclasses import replace

import pytest

from controller.core.messages import Tick
from controller.fabric.messages import SwitchMoved
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import RegisterJob
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import started

HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]


@pytest.fixture
def fabric() -> FakeFabric:
    fabric = started(FakeFabric(4, 4, 1))
    fabric.send(RegisterJob(ring_job("job", HOSTS), uid="u"))
    fabric.run(3)
    assert fabric.job().state == "pinned"
    fabric.forget_mods()
    return fabric


def moved(fabric: FakeFabric, dpid: Dpid) -> SwitchMoved:
    switch = fabric.switches[dpid]
    return SwitchMoved(dpid, switch.name, switch.ports())


def test_a_move_of_all_switches_changes_neither_rules_nor_routes(fabric: FakeFabric) -> None:
    links, routes = fabric.loop.state.fabric.links, fabric.job().routes
    for dpid in fabric.switches:
        fabric.send(moved(fabric, dpid))
        assert fabric.job().routes == routes
    fabric.run(5)
    assert fabric.loop.state.fabric.links == links
    assert (fabric.job().routes, fabric.mods) == (routes, [])


def test_a_port_that_went_down_during_the_move_is_down(fabric: FakeFabric) -> None:
    leaf = next(iter(fabric.switches))
    fabric.switches[leaf].set_up(PortNo(1), False)
    fabric.send(moved(fabric, leaf))
    assert not any(link.at == (leaf, 1) for link in fabric.loop.state.fabric.links)
    fabric.run(3)
    assert fabric.mods, "the lost cable is replaced"


def test_a_read_that_was_lost_with_the_former_southbound_is_requested_again(fabric: FakeFabric) -> None:
    leaf = next(iter(fabric.switches))
    (read,) = (c for c in fabric.loop.handle([moved(fabric, leaf)], fabric.now) if isinstance(c, ReadRules))
    (again,) = (c for c in fabric.loop.handle([moved(fabric, leaf)], fabric.now) if isinstance(c, ReadRules))
    assert read == again == ReadRules(leaf)
    rules = fabric.switches[leaf].rules()
    lost = next(iter(rules.flows))
    fewer = replace(rules, flows={key: flow for key, flow in rules.flows.items() if key != lost})
    fabric.send(SwitchRules(leaf, fewer, 0))
    assert lost in {mod.rule.key for mod in fabric.mods}, "what the read shows is mended"


def test_a_change_that_was_lost_with_the_former_southbound_is_made_by_the_next(fabric: FakeFabric) -> None:
    leaf = next(iter(fabric.switches))
    fabric.switches[leaf].set_up(PortNo(1), False)
    commands = fabric.loop.handle([moved(fabric, leaf)], fabric.now)
    stages = [command for command in commands if isinstance(command, InstallStage)]
    assert stages
    for stage in stages:
        results = dict.fromkeys(stage.stage.mods, SwitchResult(timed_out=True))
        fabric.loop.handle([StageDone(stage.change_id, results)], fabric.now)
    fabric.send(moved(fabric, leaf))
    fabric.run(5)
    fabric.send(Tick())
    assert fabric.loop.state.sync.settled == frozenset(fabric.switches)
