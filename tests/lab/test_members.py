"""Two controllers on one etcd that divide the switches: routes, packets and rules while switches get other holders.

As in a real cluster, all connections between switches, controllers and etcd use TLS with certificates on both sides."""

import os
import signal
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from controller.fabric.topology import Dpid
from controller.store.assignment import Holder, Site, assign
from controller.tables.rules import COOKIE_MAGIC
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import explained, fabric_links, masters, settled
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client, Unreachable
from signalbox.errors import SignalboxError
from tests.support.lab.fabric import pinned, ring, routes
from tests.support.lab.pings import assert_pings
from tests.support.lab.snoop import Snoop
from tests.support.lab.waits import wait_for
from tests.support.wire.certificates import Authority
from tests.support.wire.etcd import EtcdProcess, running_etcd
from tests.support.wire.fake_switch import MASTER, NOCHANGE, SLAVE

LEAVES, SPINES, HOSTS = 4, 2, 1
HOLD_S = 120.0
LEASE_S = 3


def member(folder: Path, name: str, etcd: str, authority: Authority) -> ControllerProcess:
    (folder / name).mkdir()
    own = authority.sign(name, also="IP:127.0.0.1")
    files = {"certificate": str(own.certificate), "private_key": str(own.private_key)}
    files["ca_certificates"] = str(authority.certificate)
    api = {"name": name, "api": f"127.0.0.1:{reserve_port()}", "certificate_names": ["one", "two"]}
    settings: Settings = {
        "openflow": files,
        "members": {**api, **files},
        "etcd": {"lease_s": LEASE_S, **files},
        "discovery": {"edge_after_s": 1.0},
        "fabric": {"link_bps": 5e6, "host_link_bps": 5e6},
    }
    return ControllerProcess(folder / name, settings=settings, store=f"etcd://{etcd}")


@dataclass
class Pair:
    """Lab whose switches connect to two members. ``client``: client of the first member, the leader."""

    lab: Lab
    one: ControllerProcess
    two: ControllerProcess
    client: Client
    folder: Path
    etcd: EtcdProcess

    def held(self) -> dict[str, int]:
        return {found.name: found.switches for found in self.client.list_members() if found.switches}

    def roles(self) -> Counter[tuple[str, str]]:
        """Return how many switches say that a member has a role, by its name and the role."""
        found = run("ovs-vsctl", "--format=csv", "--no-headings", "--columns=target,role", "list", "controller")
        names = {target(self.one): "one", target(self.two): "two"}
        lines = (line.replace('"', "").split(",") for line in found.splitlines())
        return Counter((names[whose], role) for whose, role in lines)

    def masters(self) -> dict[str, str]:
        names = {target(self.one): "one", target(self.two): "two"}
        return {switch: names[whose] for switch, whose in masters(self.lab).items()}

    def holders(self) -> dict[str, str]:
        """Return the name of the member that the leader knows as the holder of each switch."""
        found = {switch.dpid: switch.holder for switch in self.client.get_fabric().switches}
        return {switch.name: found.get(switch.dpid, "") for switch in self.lab.switches}

    def groups(self, switch: str) -> list[str]:
        found = run("ovs-ofctl", "-O", "OpenFlow13", "dump-groups", self.lab.bridge(switch)).splitlines()
        return sorted(line.strip() for line in found if "type=select" in line)

    def is_divided(self) -> bool:
        """Return whether each switch names its holder and no other as its master, and no switch is about to move."""
        held = Counter(self.held())
        one, two = held["one"], held["two"]
        masters = {("one", "master"): one, ("one", "slave"): two, ("two", "master"): two, ("two", "slave"): one}
        if self.roles() != Counter(masters):
            return False
        names = self.masters()
        if self.holders() != names:
            return False
        holders = {Dpid(switch.dpid): Holder(names[switch.name], "") for switch in self.lab.switches}
        members = frozenset(Holder(name, "") for name in ("one", "two"))
        return not assign(Site(members, dict.fromkeys(holders, members), holders))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            try:
                return condition()
            except (Unreachable, SignalboxError):
                return False

        with explained(self.one, self.client):
            wait_for(holds, what, HOLD_S, 0.1)

    def wait_settled(self) -> None:
        links = fabric_links(self.lab)
        self.wait(lambda: settled(self.client, links), f"{links} directed links")

    def wait_pinned(self) -> None:
        self.wait(lambda: pinned(self.client, "ring") == LEAVES, "pins")
        self.wait_settled()


def target(controller: ControllerProcess) -> str:
    return controller.target.replace("tcp:", "ssl:")


@pytest.fixture
def pair(lab_prefix: str, tmp_path: Path) -> Iterator[Pair]:
    topo = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=5.0, fabric_mbps=5.0, prefix=lab_prefix)
    authority = Authority(tmp_path, "authority")
    server, switches = authority.sign("etcd", also="IP:127.0.0.1"), authority.sign("switches")
    guard = ["--cert-file", server.certificate, "--key-file", server.private_key]
    guard += ["--trusted-ca-file", authority.certificate]
    with ExitStack() as stack:
        etcd = stack.enter_context(
            running_etcd(tmp_path / "etcd", "--client-cert-auth", *map(str, guard), scheme="https")
        )
        run("ovs-vsctl", "set-ssl", *map(str, (switches.private_key, switches.certificate, authority.certificate)))
        stack.callback(run, "ovs-vsctl", "del-ssl")
        one, two = (member(tmp_path, name, etcd.endpoint, authority) for name in ("one", "two"))
        for controller, options in ((one, ()), (two, ("--standby",))):
            stack.callback(controller.kill)
            controller.start(*options)
            own = stack.enter_context(Client(controller.address))
            wait_for(partial(is_answered, own), "an answer", HOLD_S, 0.1)
        lab = stack.enter_context(Lab(topo, target(one)))
        for switch in lab.switches:
            run("ovs-vsctl", "set-controller", lab.bridge(switch.name), target(one), target(two))
        client = stack.enter_context(Client(one.address))
        found = Pair(lab, one, two, client, tmp_path, etcd)
        found.wait_settled()
        yield found


def is_answered(client: Client) -> bool:
    try:
        client.get_status()
    except (Unreachable, SignalboxError):
        return False
    return True


def test_switches_are_divided_and_handed_over_without_a_change_of_rules(pair: Pair) -> None:
    lab, client, switches = pair.lab, pair.client, LEAVES + SPINES
    pair.wait(pair.is_divided, "masters as assigned")
    client.register_job(ring(lab, "ring", [f"h{leaf}_1" for leaf in range(1, LEAVES + 1)]))
    pair.wait_pinned()
    before = sorted(str(route) for route in routes(client, "ring"))
    assert_pings(lab, "h1_1", f"h{LEAVES}_1")
    with Snoop(lab, pair.folder) as snoop:
        client.drain_member("two")
        pair.wait(lambda: pair.held() == {"one": switches}, "all switches at one")
        pair.wait(lambda: pair.roles()["one", "master"] == switches, "one as master everywhere")
        pair.wait_settled()
        client.undrain_member("two")
        pair.wait(pair.is_divided, "masters as assigned again")
        pair.wait_settled()
        pair.two.kill()
        pair.wait(lambda: pair.held() == {"one": switches}, "the switches of a killed member at the other one")
        pair.wait(lambda: pair.roles()["one", "master"] == switches, "one as master everywhere")
        pair.wait_settled()
        assert_pings(lab, "h1_1", f"h{LEAVES}_1", count=10)
        assert (snoop.count("OFPT_FLOW_MOD"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)
    assert sorted(str(route) for route in routes(client, "ring")) == before


def test_a_stranger_that_claims_a_switch_with_its_generation_id_does_not_keep_it(pair: Pair) -> None:
    pair.wait(pair.is_divided, "masters as assigned")
    switch = next(name for name, holder in sorted(pair.masters().items()) if holder == "two")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(HOLD_S)
        stranger.connect(f"{os.environ.get('OVS_RUNDIR', '/var/run/openvswitch')}/{pair.lab.bridge(switch)}.mgmt")
        stranger.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        _, generation = role(stranger, NOCHANGE)
        assert role(stranger, MASTER, generation) == (MASTER, generation)
        pair.wait(lambda: role(stranger, NOCHANGE)[0] == SLAVE, "the switch taken back")
        assert role(stranger, NOCHANGE)[1] > generation
        pair.wait(pair.is_divided, "masters as assigned")
        pair.wait_settled()


def role(stranger: socket.socket, wanted: int, generation: int = 0) -> tuple[int, int]:
    """Request a role over a connection to a switch, and return role and generation id in the reply."""
    stranger.sendall(struct.pack("!BBHIIxxxxQ", 4, 24, 24, 2, wanted, generation))
    while True:
        _, kind, length, _ = struct.unpack("!BBHI", stranger.recv(8, socket.MSG_WAITALL))
        body = stranger.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""
        if kind == 25:
            found = struct.unpack("!IxxxxQ", body)
            return int(found[0]), int(found[1])


def test_a_paused_member_gets_no_switch_back_that_it_lost(pair: Pair) -> None:
    lab, switches = pair.lab, LEAVES + SPINES
    pair.wait(pair.is_divided, "masters as assigned")
    pair.wait_settled()
    assert pair.two.process
    with Snoop(lab, pair.folder) as snoop:
        os.killpg(pair.two.process.pid, signal.SIGSTOP)
        pair.wait(lambda: pair.roles()["one", "master"] == switches, "one as master everywhere")
        pair.wait_settled()
        os.killpg(pair.two.process.pid, signal.SIGCONT)
        pair.wait(lambda: 0 < pair.held().get("two", 0) == pair.roles()["two", "master"], "switches at both again")
        pair.wait_settled()
        assert (snoop.count("OFPT_FLOW_MOD"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)


def test_a_follower_takes_the_place_of_a_killed_leader_without_a_change_of_rules(pair: Pair) -> None:
    lab, client = pair.lab, pair.client
    pair.wait(lambda: len(pair.held()) == 2, "switches at both members")
    client.register_job(ring(lab, "ring", [f"h{leaf}_1" for leaf in range(1, LEAVES + 1)]))
    pair.wait_pinned()
    before = sorted(str(route) for route in routes(client, "ring"))
    with Snoop(lab, pair.folder) as snoop, Client(pair.two.address) as other:
        pair.one.kill()
        pair.client = other
        pair.wait(lambda: pair.held() == {"two": LEAVES + SPINES}, "all switches at two")
        pair.wait_settled()
        pair.wait(lambda: pinned(other, "ring") == LEAVES, "pins")
        assert_pings(lab, "h1_1", f"h{LEAVES}_1", count=10)
        # The new control loop does not continue to count unannounced pairs, so it deletes the rules that counted them.
        assert (snoop.count(f"OFPT_FLOW_MOD(?!.*:0x{COOKIE_MAGIC:x}ff)"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)
        assert sorted(str(route) for route in routes(other, "ring")) == before
