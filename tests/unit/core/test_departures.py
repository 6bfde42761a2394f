"""Lost control connections: one switch is given up at once, a large part of the fabric only when packets are lost."""

from __future__ import annotations

import pytest

from controller.core.sending import GRACE_S, Departures
from controller.fabric.messages import PortChanged, SwitchConnected, SwitchLeft
from controller.fabric.topology import Dpid, Fabric
from controller.jobs.messages import DeregisterJob, ReportIterations
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import spines_used, started


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0, 1, 2, lease_s=1000)


def test_a_switch_is_given_up_once() -> None:
    departures = Departures()
    departures.left(Dpid(1), Fabric(), 0.0)
    assert (departures.waiting, departures.due(0.0)) == (True, [])
    assert departures.due(GRACE_S) == [Dpid(1)]
    assert (departures.waiting, departures.due(GRACE_S)) == (False, [])


def test_one_that_is_back_within_that_moment_was_never_given_up(fabric: FakeFabric) -> None:
    fabric.send(SwitchLeft(Dpid(257)))
    assert any(link.dpid == 257 for link in fabric.loop.fabric.links)
    fabric.connect(Dpid(257))
    fabric.run(5)
    assert sum(link.dpid == 257 for link in fabric.loop.fabric.links) == 4
    assert fabric.status.switches[Dpid(257)].in_sync


def test_switches_that_leave_one_after_the_other_are_given_up_a_moment_later(fabric: FakeFabric) -> None:
    for number, spine in enumerate((257, 258, 259), 1):
        fabric.lose(Dpid(spine))
        fabric.run(0.3)
        assert not fabric.status.adopting
        assert len({link.dpid for link in fabric.loop.fabric.links if link.dpid > 256}) == 4 - number
        fabric.run(1.7)
    assert set(spines_used(fabric).values()) == {"spine4"}


def test_two_switches_are_no_large_part_of_the_fabric(fabric: FakeFabric) -> None:
    """Two switches are a quarter of the fabric, but fewer than ``MANY_AT_LEAST``."""
    for spine in (257, 258):
        fabric.loop.handle([SwitchLeft(Dpid(spine))], fabric.now)
    fabric.run(1)
    assert not fabric.status.adopting
    assert {link.dpid for link in fabric.loop.fabric.links if link.dpid > 256} == {259, 260}


def test_when_all_connections_end_and_return_nothing_is_rewritten(fabric: FakeFabric) -> None:
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(1, 1.0, 0.5),)))
    jobs, before = fabric.status.jobs, spines_used(fabric)
    fabric.forget_mods()
    for dpid in fabric.switches:
        fabric.now += 0.01
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
    fabric.run(2)
    fabric._connected.clear()
    for dpid in fabric.switches:
        fabric.run(0.5)
        fabric.connect(dpid)
    fabric.run(10)
    assert fabric.mods == []
    assert spines_used(fabric) == before
    assert not fabric.status.adopting
    for job_id, job in fabric.status.jobs.items():
        assert (job.state, job.routes_generation) == ("pinned", jobs[job_id].routes_generation)
        assert job.mean_communication_s == jobs[job_id].mean_communication_s


def test_when_many_die_their_neighbours_say_so_and_nobody_waits(fabric: FakeFabric) -> None:
    """Three of four spines lose power: half of the connections end, and the leaves' ports go down."""
    dead = [Dpid(257), Dpid(258), Dpid(259)]
    for dpid in dead:
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
        fabric._connected.discard(dpid)
    for dpid in dead:
        for at in filter(None, fabric.switches[dpid].peers.values()):
            fabric.switches[at.dpid].up[at.port] = False
            port = next(port for port in fabric.switches[at.dpid].ports() if port.number == at.port)
            fabric.send(PortChanged(at.dpid, port))
    fabric.run(0.5)
    assert set(spines_used(fabric).values()) == {"spine4"}


def test_switches_without_links_are_no_part_of_the_fabric(fabric: FakeFabric) -> None:
    """A client connects and disconnects six times, each time with another dpid."""
    for number in range(6):
        dpid = Dpid(0xBAD0 + number)
        fabric.loop.handle([SwitchConnected(dpid, "stranger", ())], fabric.now)
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
    assert not fabric.status.adopting


def test_when_a_quarter_of_the_connections_ends_nothing_is_rewritten_either(fabric: FakeFabric) -> None:
    """Three of eight switches disconnect; their ports stay up, and the others keep running."""
    before = spines_used(fabric)
    fabric.run(70)
    fabric.forget_mods()
    gone = [Dpid(257), Dpid(258), Dpid(1)]
    for dpid in gone:
        fabric.now += 0.005
        fabric.send(SwitchLeft(dpid))
        fabric._connected.discard(dpid)
    fabric.run(2)
    assert fabric.mods == []
    fabric.connect(*gone)
    fabric.run(10)
    assert fabric.mods == []
    assert (spines_used(fabric), fabric.status.adopting) == (before, False)


def test_what_a_job_leaves_behind_while_nobody_is_connected_goes_with_the_return(fabric: FakeFabric) -> None:
    fabric.run(70)
    for dpid in fabric.switches:
        fabric.loop.handle([SwitchLeft(dpid)], fabric.now)
    fabric._connected.clear()
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(1)
    fabric.connect(*fabric.switches)
    fabric.run(10)
    assert fabric.loop.state.routes.orphans == ()
    assert sum(not pin.learning for pin in fabric.loop.state.wanted.pins) == 16, "two jobs of four flows, both ways"
