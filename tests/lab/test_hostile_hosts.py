"""A host that forges and replays LLDP, claims another's address, and floods: all is refused, and nothing changes."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.southbound.ethernet_frames import Arp, arp_frame
from controller.tables.rules import BROADCAST_MAC
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from offline.scenarios.topologies import Host
from signalbox.client import Client
from tests.support.lab import raw_frames
from tests.support.lab.counters import metric
from tests.support.lab.pings import assert_pings
from tests.support.lab.snoop import Snoop
from tests.support.lab.waits import wait_for
from tests.support.waiting import line

LINK_MBPS = 20.0
"""Rate of a link, enough for 10,000 ARP requests a second out of one host."""
FLOOD_PPS = 10_000
FLOOD_S = 2.0
FRESH_S = 15.0
"""Seconds that three link time-outs take; a probe that old is refused."""
TOOL = Path(raw_frames.__file__)
PROBE_MARK = bytes.fromhex("02534201")
ATTACKER, OTHER, VICTIM = "h1_2", "h2_2", "h2_1"


class Attack:
    """Running fabric whose hosts are all known, and the packets that the attacker has heard."""

    def __init__(self, lab: Lab, controller: ControllerProcess, client: Client, folder: Path) -> None:
        self.lab, self.controller, self.client = lab, controller, client
        self._log = controller.log
        self._folder = folder
        for host in lab.hosts:
            assert_pings(lab, host.name, "h1_1" if host.name != "h1_1" else VICTIM, count=3)
        wait_for(lambda: len(client.get_fabric().hosts) == len(lab.hosts), "every host is known")
        self.old_frame, self.heard_at = self.listen(ATTACKER), time.monotonic()

    def host(self, name: str) -> Host:
        return next(host for host in self.lab.hosts if host.name == name)

    def neighbour(self, name: str, ip: str) -> str:
        argv = ["ip", "-json", "neigh", "show", ip]
        out = self.lab.popen(name, argv, stdout=subprocess.PIPE, text=True).communicate()[0]
        return str(json.loads(out)[0]["lladdr"])

    def _tool(self, name: str, command: str, *arguments: object) -> subprocess.Popen[str]:
        interface = self.lab.topo.interface(name, 0)
        argv = [sys.executable, str(TOOL), command, interface, *map(str, arguments)]
        return self.lab.popen(name, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def listen(self, name: str) -> bytes:
        """Return a probe that the controller sends out of the host's port."""
        tool = self._tool(name, "listen", 20)
        frame = bytes.fromhex(line(tool))
        tool.kill()
        tool.communicate()
        return frame

    def send(self, name: str, *frames: bytes) -> None:
        self.start_sending(name, *frames).communicate()

    def start_sending(self, name: str, *frames: bytes, rate: float = 0, seconds: float = 0) -> subprocess.Popen[str]:
        tool = self._tool(name, "send", rate, seconds)
        assert tool.stdin
        with tool.stdin as lines:
            lines.write("\n".join(frame.hex() for frame in frames))
        tool.stdin = None
        return tool

    def metric(self, name: str, host: str, **labels: str) -> float:
        """Return the metric of the host's port, or 0 when there is no such series."""
        at = self.host(host)
        series = {"switch": self.lab.topo.prefix + at.leaf, "port": str(at.port), **labels}
        return sum(metric(self.controller, name, **series))

    def refused(self, host: str, reason: str) -> float:
        return self.metric("signalbox_refused_packets_total", host, reason=reason)

    def wait_refused(self, host: str, reason: str) -> None:
        wait_for(lambda: self.refused(host, reason) > 0, f"{reason} frames of {host} are counted")

    def wait_alarm(self, text: str) -> None:
        """Wait for the alarm in the status and, with the name of the attacker's port, in the log."""
        wait_for(lambda: any(text in alarm.text for alarm in self.client.get_status().alarms), f"an alarm: {text}")
        assert re.search(f"alarm .*{re.escape(text)}", self._log.read_text())

    def port_name(self, host: str) -> str:
        return f"{self.lab.topo.prefix}{self.host(host).leaf}:{self.host(host).port}"

    def _picture(self) -> object:
        fabric = self.client.get_fabric()
        links = sorted((link.src.dpid, link.src.port, link.dst.dpid, link.dst.port) for link in fabric.links)
        return links, sorted((host.ip, host.at.dpid, host.at.port, host.mac) for host in fabric.hosts)

    @contextmanager
    def nothing_changes(self) -> Iterator[Snoop]:
        """Assert that the block changes no link, no host and no rule on any switch."""
        before = self._picture()
        with Snoop(self.lab, self._folder) as snoop:
            wait_for(lambda: snoop.count("OFPT_PACKET_OUT") > 0, "the snoop sees the probes")
            yield snoop
            assert snoop.count("OFPT_FLOW_MOD") == snoop.count("OFPT_GROUP_MOD") == 0
        assert self._picture() == before
        assert_pings(self.lab, "h1_1", VICTIM, count=3)


@pytest.fixture(scope="module")
def attack(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    size = LeafSpine(2, 2, 2, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    folder = tmp_path_factory.mktemp("hostile")
    with running_fabric(size, folder, LINK_MBPS) as (lab, controller, client):
        yield Attack(lab, controller, client, folder)


def test_lldp_that_is_forged_or_sent_back_makes_no_link(attack: Attack) -> None:
    with attack.nothing_changes():
        frame = bytearray(attack.listen(ATTACKER))
        attack.send(ATTACKER, bytes(frame))
        said = frame.index(PROBE_MARK) + len(PROBE_MARK)
        frame[said : said + 12] = bytes.fromhex("0000000000000001 00000001")  # port of a spine instead
        attack.send(ATTACKER, bytes(frame))
        attack.wait_refused(ATTACKER, "forged")
        attack.wait_refused(ATTACKER, "reflected")
        attack.wait_alarm(f"{attack.port_name(ATTACKER)} sends link discovery packets (LLDP) with a wrong signature")


def test_a_claim_for_another_hosts_address_is_refused_and_poisons_nobody(attack: Attack) -> None:
    """The claims are broadcast, and unicast to a neighbour that knows the victim and would accept a claim."""
    attacker, victim, neighbour = (attack.host(name) for name in (ATTACKER, VICTIM, OTHER))
    claims = [
        arp_frame(to_mac, attacker.mac, Arp(op, attacker.mac, victim.ip, to_mac, to_ip))
        for op in ("request", "reply")
        for to_mac, to_ip in ((BROADCAST_MAC, victim.ip), (neighbour.mac, neighbour.ip))
    ]
    assert_pings(attack.lab, OTHER, VICTIM, count=3)
    with attack.nothing_changes():
        attack.send(ATTACKER, *claims * 5)
        wait_for(lambda: attack.metric("signalbox_refused_host_claims_total", ATTACKER) > 0, "the claim is refused")
        attack.wait_alarm(f"{attack.port_name(ATTACKER)} claims addresses of hosts at other ports")
        assert attack.neighbour(OTHER, victim.ip) == victim.mac


@pytest.mark.alone
def test_a_host_that_sends_ten_thousand_arp_a_second_hurts_only_itself(attack: Attack) -> None:
    """The host sends broadcast requests for addresses that no host has.

    Meanwhile other hosts find each other again with empty neighbour tables, discovery continues, and few requests reach
    the controller."""
    attacker = attack.host(ATTACKER)
    asked = [f"10.0.{leaf}.{number}" for leaf in (1, 2) for number in range(100, 108)]
    flood = [
        arp_frame(BROADCAST_MAC, attacker.mac, Arp("request", attacker.mac, attacker.ip, "00:00:00:00:00:00", ip))
        for ip in asked
    ]
    with attack.nothing_changes() as snoop:
        tool = attack.start_sending(ATTACKER, *flood, rate=FLOOD_PPS, seconds=FLOOD_S)
        for source, target in (("h1_1", VICTIM), (VICTIM, "h1_1"), (OTHER, "h1_1")):
            assert attack.lab.popen(source, ["ip", "neigh", "flush", "all"]).wait() == 0
            assert_pings(attack.lab, source, target, count=3)
        sent = int(tool.communicate()[0].split()[0])
        assert snoop.count("OFPT_PACKET_IN") < sent / 10


def test_lldp_that_is_replayed_from_another_port_makes_no_link(attack: Attack) -> None:
    """Another host sends the recorded frame when it is too old; the controller must refuse the frame."""
    time.sleep(max(0.0, attack.heard_at + FRESH_S + 0.5 - time.monotonic()))
    with attack.nothing_changes():
        attack.send(OTHER, attack.old_frame)
        attack.wait_refused(OTHER, "replayed")
        attack.wait_alarm(f"{attack.port_name(OTHER)} sends link discovery packets (LLDP) that are repeated or too old")
