"""Refused messages change nothing and are visible: in the status, as a metric, and as an alarm that ends."""

from __future__ import annotations

import pytest

from controller.alarms import text
from controller.core.alarms import MOST_PORTS_OF_SWITCH
from controller.core.messages import Command, Message
from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    PacketsRefused,
    PortChanged,
    ProbePorts,
    RefusedPacket,
    SwitchFloods,
    SwitchLeft,
)
from controller.fabric.refusals import (
    CONNECTIONS_RECENT_S,
    DUPLICATES_RECENT_S,
    FLOODS_RECENT_S,
    MOST_DUPLICATES,
    MOST_OF_SWITCH,
    MOST_PORTS,
    PACKETS_RECENT_S,
    PortCounts,
    Refusals,
)
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.serving.event_log import events
from controller.tables.messages import Counters
from signalbox.words import AlarmKind
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG

LEAF, HOST_PORT = Dpid(1), PortNo(5)
VICTIM, THIEF_MAC = "10.0.1.1", "02:00:00:00:99:99"


class Fabric(FakeFabric):
    """Fabric that records the switches whose ports the controller has probed."""

    def __init__(self) -> None:
        super().__init__()
        self.probed: list[Dpid] = []

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, ProbePorts):
            self.probed += command.dpids
        return super()._carry_out(command)


@pytest.fixture
def fabric() -> Fabric:
    fabric = Fabric()
    fabric.start(CONFIG)
    fabric.run(5)
    for ip, at in fabric.hosts.items():
        fabric.send(ArpSeen(at, "request", ip, fabric.mac(ip), "10.0.1.1"))
    fabric.run(5)
    return fabric


def alarms(fabric: Fabric) -> str:
    return "\n".join(map(text, fabric.status.alarms.values()))


def refused_reasons(fabric: Fabric) -> set[str]:
    return {subject for kind, subject in fabric.status.alarms if kind is AlarmKind.CONNECTIONS_REFUSED}


def test_a_claim_is_refused_seen_and_moves_nothing(fabric: Fabric) -> None:
    thief = fabric.hosts["10.0.2.2"]
    before = fabric.status
    fabric.forget_mods()
    for _ in range(50):
        fabric.send(ArpSeen(thief, "reply", VICTIM, THIEF_MAC, "10.0.3.1"))
    fabric.run(2)
    after = fabric.status
    assert after.fabric.hosts[VICTIM].at == fabric.hosts[VICTIM]
    assert after.refused_claims == {thief: 50}
    assert "leaf2:6 claims addresses" in alarms(fabric)
    assert [what for _, what, _ in events(before, after)] == ["alarm"]
    assert fabric.mods == []
    fabric.run(70)
    fabric.count({}, {})
    assert not fabric.status.alarms.values()
    assert fabric.status.refused_claims == {thief: 50}, "counters stay"


def test_an_address_whose_owner_is_silent_moves_with_its_routes(fabric: Fabric) -> None:
    """A virtual machine moved to another port; the old port stays up."""
    fabric.silent_hosts = {VICTIM}
    fabric.send(ArpSeen(fabric.hosts["10.0.2.2"], "request", VICTIM, fabric.mac(VICTIM), "10.0.3.1"))
    before = fabric.status
    fabric.run(5)
    fabric.hosts[VICTIM] = fabric.hosts["10.0.2.2"]
    assert fabric.loop.fabric.hosts[VICTIM].at == fabric.hosts[VICTIM]
    assert fabric.trace("10.0.3.1", VICTIM)
    assert "host moved" in [what for _, what, _ in events(before, fabric.status)]


def test_refused_packets_are_added_up_by_port_and_an_alarm_while_recent(fabric: Fabric) -> None:
    here = PortRef(LEAF, HOST_PORT)
    fabric.forget_mods()
    for _ in range(2):
        fabric.send(PacketsRefused({RefusedPacket(here, "forged"): 3, RefusedPacket(here, "foreign"): 1}))
    status = fabric.status
    assert status.refused_packets == {RefusedPacket(here, "forged"): 6, RefusedPacket(here, "foreign"): 2}
    (alarm,) = status.alarms.values()
    assert (alarm.kind, alarm.subject, alarm.since) == (AlarmKind.LLDP_FORGED, "leaf1:5", fabric.now)
    assert alarm.severity == "critical"
    assert fabric.mods == []
    fabric.run(PACKETS_RECENT_S + 1)
    fabric.count({}, {})
    assert not fabric.status.alarms.values()


def test_refused_connections_are_one_alarm_per_reason_that_names_the_first_peer_until_a_minute_after_the_last(
    fabric: Fabric,
) -> None:
    refused = [("192.0.2.5:40000", "malformed"), ("192.0.2.6:40000", "malformed"), ("192.0.2.7:40000", "tls")]
    for peer, reason in refused:
        fabric.send(ConnectionRefused(peer, None, reason))  # type: ignore[arg-type]
    told = "connections to the OpenFlow port are refused (malformed), the first of them from 192.0.2."
    assert f"{told}5;" in alarms(fabric)
    assert refused_reasons(fabric) == {"malformed", "tls"}
    fabric.run(CONNECTIONS_RECENT_S - 5, step=1)
    fabric.send(ConnectionRefused("192.0.2.6:40001", None, "malformed"))
    fabric.run(10, step=1)
    assert refused_reasons(fabric) == {"malformed"}, "not yet a minute after its last"
    fabric.run(CONNECTIONS_RECENT_S, step=1)
    assert refused_reasons(fabric) == set()
    fabric.send(ConnectionRefused("192.0.2.6:40001", None, "malformed"))
    assert f"{told}6;" in alarms(fabric)


def test_what_everyday_life_brings_is_counted_and_no_alarm(fabric: Fabric) -> None:
    here = PortRef(LEAF, HOST_PORT)
    for reason in ("foreign", "not_a_port", "malformed_arp"):
        fabric.send(PacketsRefused({RefusedPacket(here, reason): 1}))
    assert len(fabric.status.refused_packets) == 3
    assert not alarms(fabric)
    for dpid in (None, LEAF):
        fabric.send(ConnectionRefused("192.0.2.5:40000", dpid, "not_reading"))
    assert fabric.status.refused_connections == {"not_reading": 2}
    assert "second switch" not in alarms(fabric)


def test_refused_packets_at_ports_and_switches_that_nobody_described_take_no_memory(fabric: Fabric) -> None:
    for number in range(1000, 1100):
        fabric.send(PacketsRefused({RefusedPacket(PortRef(LEAF, PortNo(number)), "forged"): 1}))
        fabric.send(PacketsRefused({RefusedPacket(PortRef(Dpid(number), HOST_PORT), "forged"): 1}))
    assert fabric.status.refused_packets == {RefusedPacket(PortRef(LEAF, PortNo(0)), "forged"): 100}


def test_a_switch_that_has_left_takes_no_memory(fabric: Fabric) -> None:
    fabric.send(PacketsRefused({RefusedPacket(PortRef(LEAF, HOST_PORT), "forged"): 1}))
    fabric.send(ArpSeen(PortRef(LEAF, HOST_PORT), "reply", "10.0.2.2", THIEF_MAC, "10.0.3.1"))
    fabric.run(5)
    assert fabric.status.refused_packets
    assert fabric.status.refused_claims
    fabric.send(SwitchLeft(LEAF))
    assert not fabric.status.refused_packets
    assert not fabric.status.refused_claims


def test_one_switch_and_all_switches_have_a_limited_number_of_counted_ports() -> None:
    counts = PortCounts()
    for dpid in range(1, 2 * MOST_PORTS // MOST_OF_SWITCH):
        for port in range(MOST_OF_SWITCH + 10):
            counts.count(PortRef(Dpid(dpid), PortNo(port)), 1, 0.0)
    assert len(counts.totals) == len(counts.last) == MOST_PORTS
    counts.switch_left(Dpid(2))
    assert len(counts.totals) == len(counts.last) == MOST_PORTS - MOST_OF_SWITCH
    counts.count(PortRef(Dpid(1), PortNo(0)), 1, 5.0)
    assert counts.totals[PortRef(Dpid(1), PortNo(0))] == 2, "a known port is counted on"


def test_a_switch_that_reports_refusable_packets_at_all_its_ports_raises_a_few_alarms(fabric: Fabric) -> None:
    for number in range(1000, 1100):
        fabric.send(PortChanged(LEAF, Port(PortNo(number), f"eth{number}", THIEF_MAC, True, 1e9)))
        fabric.send(PacketsRefused({RefusedPacket(PortRef(LEAF, PortNo(number)), "forged"): 1}))
    assert len(fabric.status.refused_packets) == 100
    assert sum(kind is AlarmKind.LLDP_FORGED for kind, _ in fabric.status.alarms) == MOST_PORTS_OF_SWITCH


def test_of_many_duplicate_dpids_some_are_remembered_and_later_others() -> None:
    refusals = Refusals()
    for dpid in range(MOST_DUPLICATES + 10):
        refusals.count_connection(ConnectionRefused("192.0.2.5:40000", Dpid(dpid), "duplicate_dpid"), 0.0)
    assert len(refusals.duplicates) == MOST_DUPLICATES
    later = DUPLICATES_RECENT_S + 1
    refusals.count_connection(ConnectionRefused("192.0.2.6:40000", Dpid(9999), "duplicate_dpid"), later)
    assert refusals.duplicates == {Dpid(9999): ("192.0.2.6", later)}


def test_the_ports_of_a_switch_are_probed_when_it_has_its_rules_once_per_connection(fabric: Fabric) -> None:
    assert sorted(fabric.probed) == sorted(fabric.switches)
    fabric.probed.clear()
    fabric.run(5)
    assert fabric.probed == []
    fabric.connect(LEAF)
    fabric.run(1)
    assert fabric.probed == [LEAF]


def test_a_switch_that_floods_is_named_until_it_has_stopped_or_has_left(fabric: Fabric) -> None:
    fabric.send(SwitchFloods(LEAF))
    assert "leaf1 sends messages faster than the controller reads them" in alarms(fabric)
    fabric.run(FLOODS_RECENT_S - 1)
    assert (AlarmKind.SWITCH_FLOODS, "leaf1") in fabric.status.alarms
    fabric.run(2)
    assert "sends more" not in alarms(fabric)
    fabric.send(SwitchFloods(LEAF))
    fabric.send(SwitchLeft(LEAF))
    assert "sends more" not in alarms(fabric)


def test_drops_of_a_port_that_is_removed_take_no_memory(fabric: Fabric) -> None:
    port = fabric.status.fabric.switches[LEAF].ports[HOST_PORT]
    at = fabric.now
    for turn in range(2):
        fabric.send(Counters(LEAF, at + turn, {}, {}, {HOST_PORT: 50}))
    assert fabric.loop.state.counters.drops.keys() == {PortRef(LEAF, HOST_PORT)}
    fabric.send(PortChanged(LEAF, port, removed=True))
    assert not fabric.loop.state.counters.drops
