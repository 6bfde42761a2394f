"""The lab on real Open vSwitch: it starts, carries traffic, breaks on request, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import BRIDGE_MARK, RECORDS, LabError, LabRecord, interface_exists, namespaces, run
from mininet_topos.lab.running_fabric import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from tests.support.lab.counters import described_ports, ofctl
from tests.support.lab.pings import address, send
from tests.support.lab.waits import wait_for
from tests.support.waiting import line


@pytest.fixture(scope="module")
def shared(lab_prefix: str) -> Iterator[Lab]:
    with Lab(LeafSpine(2, 2, 2, prefix=f"s{lab_prefix[1:]}"), controller=None) as lab:
        install_static_routes(lab)
        yield lab


def traces(prefix: str) -> list[str]:
    """Return everything on this machine that has the lab's prefix."""
    bridges = [name for name in run("ovs-vsctl", "list-br").split() if name.startswith(prefix)]
    spaces = [name for name in namespaces() if name.startswith(f"signalbox-{prefix}")]
    interfaces = [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(prefix)]
    return bridges + spaces + interfaces


def pings(lab: Lab, source: str, ip: str) -> bool:
    ping = lab.popen(source, ["ping", "-c", "1", "-W", "1", ip], stdout=subprocess.DEVNULL)
    return ping.wait() == 0


def port_state(lab: Lab, switch: str, port: int) -> str:
    described = ofctl(lab, switch, "show")
    match = re.search(rf"^ {port}\(.*?state: +(\S+)", described, re.MULTILINE | re.DOTALL)
    assert match
    return match[1]


def test_hosts_reach_each_other_over_the_fabric(shared: Lab) -> None:
    assert pings(shared, "h1_1", address(shared, "h1_2"))
    assert pings(shared, "h1_1", address(shared, "h2_2"))


def test_without_rules_nothing_is_forwarded(lab_prefix: str) -> None:
    with Lab(LeafSpine(1, 1, 2, prefix=lab_prefix), controller=None) as lab:
        assert not pings(lab, "h1_1", address(lab, "h1_2"))


def test_switches_have_the_dpids_and_ports_of_the_topology(shared: Lab) -> None:
    for switch in shared.switches:
        described = ofctl(shared, switch.name, "show")
        assert f"dpid:{switch.dpid:016x}" in described
        ports = {int(port) for port in re.findall(r"^ (\d+)\(", described, re.MULTILINE)}
        assert ports == {c.a_port for c in shared.links if c.a == switch.name} | {
            c.b_port for c in shared.links if c.b == switch.name
        }


@pytest.mark.alone
def test_a_link_carries_its_rate_and_not_more(shared: Lab) -> None:
    assert 2 < send(shared, "h1_1", "h2_1", 1_000_000) < 5.1  # 4.8 is the ideal; a busy machine may give less


def test_hosts_are_silent_by_themselves(shared: Lab) -> None:
    program = shared.popen("h1_1", ["ip", "-6", "addr", "show", "scope", "link"], stdout=subprocess.PIPE, text=True)
    assert program.communicate()[0] == ""


def test_a_program_is_its_own_process(shared: Lab) -> None:
    program = shared.popen("h1_1", ["sleep", "60"])
    wait_for(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n", "the program to start")
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == -signal.SIGTERM


def test_a_cut_stops_packets_and_the_carrier_and_plugging_brings_both_back(shared: Lab) -> None:
    cable = next(c for c in shared.links if (c.a, c.b) == ("leaf1", "spine1"))
    shared.cut("leaf1", "spine1")
    assert not pings(shared, "h1_1", address(shared, "h2_1"))
    wait_for(lambda: port_state(shared, "leaf1", cable.a_port) == "LINK_DOWN", "leaf1 to lose the carrier")
    wait_for(lambda: port_state(shared, "spine1", cable.b_port) == "LINK_DOWN", "spine1 to lose the carrier")
    shared.plug("leaf1", "spine1")
    wait_for(lambda: port_state(shared, "leaf1", cable.a_port) == "LIVE", "leaf1 to have the carrier")
    wait_for(lambda: pings(shared, "h1_1", address(shared, "h2_1")), "packets to pass")
    assert "tbf" in run("tc", "qdisc", "show", "dev", shared.topo.interface("leaf1", cable.a_port))


def test_a_cut_host_loses_its_leaf_and_keeps_its_route(shared: Lab) -> None:
    shared.cut("h1_1", "leaf1")
    assert not pings(shared, "h1_1", address(shared, "h1_2"))
    shared.plug("h1_1", "leaf1")
    wait_for(lambda: pings(shared, "h1_2", address(shared, "h1_1")), "the host to be back")


def test_a_stopped_switch_takes_its_neighbours_carrier_and_returns_empty(shared: Lab) -> None:
    cable = next(c for c in shared.links if (c.a, c.b) == ("leaf1", "spine1"))
    shared.cut("leaf2", "spine1")
    shared.stop_switch("spine1")
    wait_for(lambda: port_state(shared, "leaf1", cable.a_port) == "LINK_DOWN", "leaf1 to lose the carrier")
    assert shared.bridge("spine1") not in run("ovs-vsctl", "list-br").split()
    shared.start_switch("spine1")
    wait_for(lambda: port_state(shared, "leaf1", cable.a_port) == "LIVE", "leaf1 to have the carrier")
    assert "actions" not in ofctl(shared, "spine1", "dump-flows")
    assert "tbf" in run("tc", "qdisc", "show", "dev", shared.topo.interface("spine1", cable.b_port))
    assert port_state(shared, "spine1", 2) == "LINK_DOWN"  # its cable is still cut
    shared.plug("leaf2", "spine1")
    install_static_routes(shared)


def test_a_leaf_that_returns_has_its_dpid_its_ports_its_rates_and_its_hosts(shared: Lab) -> None:
    before = described_ports(shared, "leaf2")
    shared.stop_switch("leaf2")
    wait_for(lambda: port_state(shared, "spine1", 2) == "LINK_DOWN", "spine1 to lose the carrier")
    assert not pings(shared, "h1_1", address(shared, "h2_1"))
    shared.start_switch("leaf2")
    wait_for(lambda: port_state(shared, "spine1", 2) == "LIVE", "spine1 to have the carrier")
    assert described_ports(shared, "leaf2") == before
    for port, _ in before[1]:
        assert "tbf" in run("tc", "qdisc", "show", "dev", shared.topo.interface("leaf2", int(port)))
    install_static_routes(shared)
    wait_for(lambda: pings(shared, "h1_1", address(shared, "h2_1")), "its hosts to be reached")


def test_a_lab_leaves_nothing_behind_and_kills_its_programs_also_after_an_error(lab_prefix: str) -> None:
    with suppress(ZeroDivisionError), Lab(LeafSpine(2, 2, 1, prefix=lab_prefix), controller=None) as lab:
        assert traces(lab_prefix)
        program = lab.popen("h1_1", ["sleep", "600"])
        raise ZeroDivisionError
    assert traces(lab_prefix) == []
    assert program.returncode == -signal.SIGKILL


def lab_process(prefix: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "signalbox", "lab", "--leaves", "2", "--spines", "1", "--hosts", "1"]
    owner = subprocess.Popen([*argv, "--prefix", prefix], stdout=subprocess.PIPE, text=True)
    while "Ctrl-C" not in (said := line(owner)):
        assert said, "the lab did not come up"
    return owner


def test_a_lab_ends_when_its_owner_is_interrupted(lab_prefix: str) -> None:
    """``test_endless`` ends a lab with SIGTERM."""
    with lab_process(lab_prefix) as owner:
        owner.send_signal(signal.SIGINT)
        assert owner.wait(timeout=60) == 0
    assert traces(lab_prefix) == []


def test_what_a_killed_lab_left_goes_with_the_next_labs_start(lab_prefix: str) -> None:
    with lab_process(lab_prefix) as owner:
        orphan = int(run("ip", "netns", "pids", f"signalbox-{lab_prefix}h1_1").split()[0])
        program = subprocess.Popen(["mnexec", "-a", str(orphan), "sleep", "600"])
        owner.kill()
    assert traces(lab_prefix)
    other = f"u{lab_prefix[1:]}"
    with Lab(LeafSpine(1, 1, 1, prefix=other), controller=None):
        assert traces(lab_prefix) == []
        assert program.wait(60) == -signal.SIGKILL


def test_taps_of_a_lab_go_though_open_vswitch_stopped(
    lab_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device of a bridge outlives Open vSwitch (userspace datapath)."""
    tap = f"w{lab_prefix[1:]}leaf1"
    left = RECORDS / f"w{lab_prefix[1:]}.json"
    run("ip", "tuntap", "add", "dev", tap, "mode", "tap")
    left.write_text(json.dumps(asdict(LabRecord(f"w{lab_prefix[1:]}", 0, (tap,), (), ()))))
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))  # no daemon answers there
    with (
        pytest.raises(LabError, match="database connection failed"),
        Lab(LeafSpine(1, 1, 1, prefix=lab_prefix), controller=None),
    ):
        pass
    assert not interface_exists(tap)
    assert not left.exists()


def test_a_bridge_that_no_lab_has_a_record_of_any_more_goes(lab_prefix: str) -> None:
    """Open vSwitch remembers bridges that were deleted while it did not run."""
    bridge = f"w{lab_prefix[1:]}leaf1"
    run("ovs-vsctl", "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev")
    run("ovs-vsctl", "set", "Bridge", bridge, f"external_ids:{BRIDGE_MARK}=w{lab_prefix[1:]}")
    with Lab(LeafSpine(1, 1, 1, prefix=lab_prefix), controller=None):
        assert bridge not in run("ovs-vsctl", "list-br").split()


def test_labs_live_beside_each_other_but_not_with_one_prefix(lab: Lab, lab_prefix: str) -> None:
    with Lab(LeafSpine(2, 2, 2, prefix=f"v{lab_prefix[1:]}"), controller=None):
        assert pings(lab, "h1_1", address(lab, "h2_1"))
    assert pings(lab, "h1_1", address(lab, "h2_1"))
    with (
        pytest.raises(LabError, match=f"is running: process {os.getpid()}"),
        Lab(LeafSpine(1, 1, 1, prefix=lab_prefix), controller=None),
    ):
        pass
    assert pings(lab, "h1_1", address(lab, "h2_1"))


def test_what_is_not_a_labs_is_refused_and_kept(lab_prefix: str) -> None:
    taken = f"{lab_prefix}leaf1-eth1"
    run("ip", "link", "add", taken, "type", "veth", "peer", "name", f"{lab_prefix}peer")
    try:
        with (
            pytest.raises(LabError, match=f"names are taken: {taken}"),
            Lab(LeafSpine(1, 1, 1, prefix=lab_prefix), controller=None),
        ):
            pass
        assert interface_exists(taken)
    finally:
        run("ip", "link", "delete", taken)
    assert traces(lab_prefix) == []


def test_waiting_for_a_controller_that_is_not_there_says_so(lab_prefix: str) -> None:
    with Lab(LeafSpine(1, 1, 1, prefix=lab_prefix), "tcp:127.0.0.1:1") as lab:
        started = time.monotonic()
        with pytest.raises(LabError, match=r"tcp:127\.0\.0\.1:1 to accept"):
            lab.wait_connected(deadline_s=0.2)
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("target", ["foo", "127.0.0.1:6653", "tcp:"])
def test_what_a_switch_cannot_connect_to_is_refused(target: str) -> None:
    with pytest.raises(LabError, match=f"'{target}' is not the address of a controller"):
        Lab(LeafSpine(1, 1, 1), target)
