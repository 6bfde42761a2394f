"""Switches, cables and hosts that an inventory file declares."""

from pathlib import Path

import pytest

from controller.fabric.parts import Declared, DeclaredBundle, DeclaredCable, DeclaredSwitch, SwitchRole
from controller.fabric.topology import Dpid
from controller.fabric.topology_state import DeclaredHost
from controller.serving import inventory
from signalbox.errors import InvalidInput

GOOD = """
[[host]]
ip = "10.0.1.1"
mac = "02:00:00:00:01:01"
switch = "leaf1"
port = "leaf1-eth5"

[[host]]
ip = "10.0.1.2"
switch = "leaf1"
port = "leaf1-eth6"
"""


HOST = '[[host]]\nip = "10.0.1.1"\nswitch = "leaf1"\nport = "e1"\n'
WITH_MAC = HOST + 'mac = "02:00:00:00:00:01"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    return path


def test_a_file_declares_hosts_and_no_file_none(tmp_path: Path) -> None:
    assert inventory.load(None) == Declared()
    assert inventory.load(written(tmp_path, GOOD)).hosts == (
        DeclaredHost("10.0.1.1", "02:00:00:00:01:01", "leaf1", "leaf1-eth5"),
        DeclaredHost("10.0.1.2", None, "leaf1", "leaf1-eth6"),
    )


def test_a_file_declares_switches_and_cables_by_their_ports_or_counted(tmp_path: Path) -> None:
    text = """
[[switch]]
name = "leaf1"
dpid = 0x101
role = "leaf"
rack = "r1"

[[link]]
ends = ["leaf1:leaf1-eth5", "spine2:spine2-eth1"]

[[link]]
ends = ["leaf2", "spine2"]
cables = 2

[[link]]
ends = ["leaf1", "spine1"]
"""
    found = inventory.load(written(tmp_path, text))
    assert found == Declared(
        switches=(DeclaredSwitch("leaf1", Dpid(0x101), SwitchRole.LEAF, "r1"),),
        cables=(DeclaredCable(("leaf1", "leaf1-eth5"), ("spine2", "spine2-eth1")),),
        bundles=(DeclaredBundle("leaf2", "spine2", 2), DeclaredBundle("leaf1", "spine1", 1)),
    )
    assert found.rack_of == {0x101: "r1"}
    assert found.dpid_of == {"leaf1": 0x101, "leaf2": None, "spine1": None, "spine2": None}


@pytest.mark.parametrize(("text", "said"), [
    ('[[link]]\nends = ["a:1", "b"]', r"link\[0\].ends: name the ports of both ends"),
    ('[[link]]\nends = ["a:1", "b:1"]\ncables = 2', r"link\[0\].cables: must be left out, because the ends name ports"),
    ('[[link]]\nends = ["a", "a"]', r"link\[0\].ends: both ends are a"),
    ('[[switch]]\nname = "a"\nrole = "core"', r"switch\[0\].role: must be 'leaf' or 'spine'"),
    ('[[switch]]\nname = "a"\nrack = "r1"', r"switch\[0\].rack: needs the dpid of the switch too"),
    ('[[link]]\nends = ["a"]', r"link\[0\].ends"),
    ('[[link]]\nends = ["a", ":b"]', r"link\[0\].ends\[1\]: must be the name of a switch"),
    ('[[link]]\nends = ["a", "b"]\ncables = 0', r"link\[0\].cables: must be at least 1"),
    ('[[link]]\nends = ["a:1", "b:1"]\n[[link]]\nends = ["c:1", "a:1"]', r"another \[\[link\]\] has the port a:1"),
    ('[[link]]\nends = ["a:1", "b:1"]\n[[link]]\nends = ["b", "a"]', "declares the cables between a and b"),
    ('[[link]]\nends = ["a", "b"]\n[[link]]\nends = ["b", "a"]', "declares the cables between a and b"),
    ('[[switch]]\nname = "a"\n[[switch]]\nname = "a"', r"another \[\[switch\]\] has the name 'a' too"),
    ('[[switch]]\nname = "a"\ndpid = 1\n[[switch]]\nname = "b"\ndpid = 1', r"switch\[1\].dpid: .* same dpid, 0x1"),
    (HOST.replace("10.0.1.1", "127.0.0.1"), r"host\[0\].ip: "),
    (2 * HOST, r"host\[1\].ip: another \[\[host\]\] has the address 10.0.1.1 too"),
    (WITH_MAC + WITH_MAC.replace(".1.1", ".2.1").replace("leaf1", "leaf2"),
     r"host\[1\].mac: a \[\[host\]\] at another switch has the same MAC, 02:00:00:00:00:01"),
    (HOST + '[[link]]\nends = ["leaf1:e1", "b:1"]', r"host\[0\].port: a \[\[link\]\] ends at the same port, leaf1:e1"),
    ('[[switch]]\nname = "a"\ndpid = 0', r"switch\[0\].dpid: must be at least 1"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        inventory.load(written(tmp_path, text))


def test_every_problem_is_named_with_its_path(tmp_path: Path) -> None:
    text = '[[host]]\nip = "10.0.1"\nswitch = "leaf1"\nspeed = 3\n[[host]]\nip = "10.0.1.2"\nmac = "x"\n'
    with pytest.raises(InvalidInput) as caught:
        inventory.load(written(tmp_path, text))
    named = {problem.path.rpartition(": ")[2] for problem in caught.value.problems}
    assert {"host[0].ip", "host[0].port", "host[0].speed", "host[1].mac", "host[1].switch", "host[1].port"} <= named
