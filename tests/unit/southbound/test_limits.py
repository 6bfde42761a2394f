from __future__ import annotations

from controller.config import OpenFlowConfig
from controller.fabric.topology import Dpid
from controller.southbound.limits import MAX_SWITCH_PORTS, Limits

ONE, OTHER = "192.0.2.1", "192.0.2.2"
SWITCHES = [Dpid(number) for number in range(1, 5)]


def limits(*known: Dpid, most: int = 8, of_address: int = 8, ports: int = 10_000) -> Limits:
    settings = OpenFlowConfig(max_connections=most, max_address_connections=of_address, max_ports=ports)
    return Limits(settings, known)


def enter(taken: Limits, address: str, *switches: Dpid) -> None:
    """Connect these switches from an address, without a refusal."""
    for switch in switches:
        assert taken.connect(address) is None
        assert taken.identify(switch) == ""


def test_an_address_and_all_together_take_no_more_connections_than_their_limits() -> None:
    taken = limits(of_address=2)
    assert [taken.connect(ONE), taken.connect(ONE)] == [None, None]
    refused = taken.connect(ONE)
    assert refused is not None
    assert refused[0] == "too_many_of_address"
    assert "max_address_connections = 2" in refused[1]
    assert taken.connect(OTHER) is None
    taken.leave(ONE, None, 0)
    assert taken.connect(ONE) is None
    taken = limits(most=3)
    assert [taken.connect(address) for address in (ONE, ONE, OTHER)] == [None] * 3
    refused = taken.connect("192.0.2.3")
    assert refused is not None
    assert refused[0] == "too_many"


def test_the_last_connections_are_kept_for_switches_that_were_there_before() -> None:
    taken = limits(*SWITCHES[:2], most=4)
    enter(taken, ONE, Dpid(101), Dpid(102))
    assert taken.connect(ONE) is None
    assert "reserved for known switches" in taken.identify(Dpid(103))
    taken.leave(ONE, None, 0)
    enter(taken, OTHER, *SWITCHES[:2])


def test_a_switch_that_was_admitted_finds_its_place_again() -> None:
    taken = limits(most=4)
    enter(taken, ONE, SWITCHES[0])
    taken.leave(ONE, SWITCHES[0], 0)
    enter(taken, OTHER, Dpid(101), Dpid(102), Dpid(103))
    taken.connect(OTHER)
    assert "reserved for known switches" in taken.identify(Dpid(104))
    taken.leave(OTHER, None, 0)
    enter(taken, ONE, SWITCHES[0])


def test_whoever_makes_up_dpids_leaves_half_of_the_connections_to_new_switches() -> None:
    taken = limits(most=8)
    for number in range(100):
        enter(taken, ONE, Dpid(1000 + number))
        taken.leave(ONE, Dpid(1000 + number), 0)
    enter(taken, OTHER, *SWITCHES)


def test_a_second_connection_of_a_known_switch_keeps_its_place_until_both_have_ended() -> None:
    taken = limits(SWITCHES[0], most=4)
    enter(taken, ONE, SWITCHES[0], SWITCHES[0])
    taken.leave(ONE, SWITCHES[0], 0)
    enter(taken, OTHER, Dpid(101), Dpid(102), Dpid(103))  # the known switch is connected: nothing is kept for it


def test_a_switch_and_all_together_have_only_so_many_ports_and_give_them_back() -> None:
    assert not limits().take_ports(0, MAX_SWITCH_PORTS)
    assert limits().take_ports(MAX_SWITCH_PORTS, 1)
    taken = limits(ports=100)
    taken.connect(ONE)
    assert taken.take_ports(0, 99) == ""
    assert taken.take_ports(0, 1) == ""
    assert "openflow.max_ports" in taken.take_ports(0, 1)
    taken.port_removed()
    assert taken.take_ports(0, 1) == ""
    taken.leave(ONE, None, 99)
    assert taken.take_ports(0, 99) == ""
