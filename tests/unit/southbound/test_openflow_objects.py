"""What Ryu parses for us: ports and errors."""

from __future__ import annotations

from typing import Any

import pytest

from controller.fabric.topology import Dpid, Port, PortNo
from controller.southbound import openflow_objects as objects
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser


def desc(number: int = 1, config: int = 0, state: int = 0, name: bytes = b"s1-eth1") -> Any:
    return ofp_parser.OFPPort(number, "02:00:00:00:00:01", name, config, state, 0, 0, 0, 0, 10_000_000, 0)


def test_a_port_has_its_speed_in_bits_per_second() -> None:
    assert objects.port(desc()) == Port(PortNo(1), "s1-eth1", "02:00:00:00:00:01", True, 1e10)


@pytest.mark.parametrize(("config", "state"), [(ofp.OFPPC_PORT_DOWN, 0), (0, ofp.OFPPS_LINK_DOWN)])
def test_a_port_is_up_only_when_nobody_and_nothing_holds_it_down(config: int, state: int) -> None:
    read = objects.port(desc(config=config, state=state))
    assert read is not None
    assert not read.up


def test_the_switchs_own_port_is_not_a_port_but_names_it() -> None:
    local = desc(ofp.OFPP_LOCAL, name=b"leaf1")
    assert objects.port(local) is None
    assert objects.switch_name(Dpid(1), [desc(), local]) == "leaf1"
    assert objects.switch_name(Dpid(0xAB), [desc()]) == "00000000000000ab"


def test_a_name_cannot_steer_the_terminal_or_the_log_that_shows_it() -> None:
    read = objects.port(desc(name=b"\x1b[31meth\n1\xff"))
    assert read is not None
    assert read.name == "\ufffd[31meth\ufffd1\ufffd"


def test_an_error_is_told_by_its_names() -> None:
    refused = ofp_parser.OFPErrorMsg(PROTOCOL, ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_OUT_GROUP, b"")
    assert "OFPBAC_BAD_OUT_GROUP" in objects.error_reason(refused)
