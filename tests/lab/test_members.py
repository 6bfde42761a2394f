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

    def wait_all_at(self, name: str) -> None:
        switches = LEAVES + SPINES
        self.wait(lambda: self.held() == {name: switches}, f"all switches at {name}")
        self.wait(lambda: self.roles()[name, "master"] == switches, f"{name} as master everywhere")
        self.wait_settled()

    def pins(self) -> list[str]:
        return sorted(str(route) for route in routes(self.client, "ring"))

    def wait_settled(self) -> None:
        links = fabric_links(self.lab)
        self.wait(lambda: settled(self.client, links), f"{links} directed links")

    def wait_divided(self) -> None:
        self.wait(self.is_divided, "masters as assigned")
        self.wait_settled()

    def wait_pinned(self) -> None:
        self.wait(lambda: pinned(self.client, "ring") == LEAVES, "pins")
        self.wait_settled()


def target(controller: ControllerProcess) -> str:
    return controller.target.replace("tcp:", "ssl:")


@pytest.fixture(scope="module")
def pair(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Yield two members that both hold switches, and a ring that is pinned. Each test but the last one leaves it so."""
    tmp_path = tmp_path_factory.mktemp("members")
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
        found.wait_divided()
        client.register_job(ring(lab, "ring", [f"h{leaf}_1" for leaf in range(1, LEAVES + 1)]))
        found.wait_pinned()
        found.wait_divided()
        yield found


def is_answered(client: Client) -> bool:
    try:
        client.get_status()
    except (Unreachable, SignalboxError):
        return False
    return True


def test_a_stranger_that_claims_a_switch_with_its_generation_id_does_not_keep_it(pair: Pair) -> None:
    switch = next(name for name, holder in sorted(pair.masters().items()) if holder == "two")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(HOLD_S)
        stranger.connect(f"{os.environ.get('OVS_RUNDIR', '/var/run/openvswitch')}/{pair.lab.bridge(switch)}.mgmt")
        stranger.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        _, generation = role(stranger, NOCHANGE)
        assert role(stranger, MASTER, generation) == (MASTER, generation)
        pair.wait(lambda: role(stranger, NOCHANGE)[0] == SLAVE, "the switch taken back")
        assert role(stranger, NOCHANGE)[1] > generation
        pair.wait_divided()


def role(stranger: socket.socket, wanted: int, generation: int = 0) -> tuple[int, int]:
    """Request a role over a connection to a switch, and return role and generation id in the reply."""
    stranger.sendall(struct.pack("!BBHIIxxxxQ", 4, 24, 24, 2, wanted, generation))
    while True:
        _, kind, length, _ = struct.unpack("!BBHI", stranger.recv(8, socket.MSG_WAITALL))
        body = stranger.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""
        if kind == 25:
            found = struct.unpack("!IxxxxQ", body)
            return int(found[0]), int(found[1])


def test_switches_are_handed_over_without_a_change_of_rules_or_routes(pair: Pair) -> None:
    """Member two is drained, then paused, then killed; its switches refuse it until they are assigned to it again."""
    before = pair.pins()
    assert pair.two.process
    with Snoop(pair.lab, pair.folder) as snoop:
        pair.client.drain_member("two")
        pair.wait_all_at("one")
        pair.client.undrain_member("two")
        pair.wait_divided()
        os.killpg(pair.two.process.pid, signal.SIGSTOP)
        try:
            pair.wait_all_at("one")
            assert_pings(pair.lab, "h1_1", f"h{LEAVES}_1")
        finally:
            os.killpg(pair.two.process.pid, signal.SIGCONT)
        pair.wait_divided()
        assert_pings(pair.lab, "h1_1", f"h{LEAVES}_1")
        pair.two.kill()
        pair.wait_all_at("one")
        assert_pings(pair.lab, "h1_1", f"h{LEAVES}_1", count=10)
        assert (snoop.count("OFPT_FLOW_MOD"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)
    assert pair.pins() == before
    pair.two.start("--standby")
    pair.wait_divided()


def test_a_follower_takes_the_place_of_a_killed_leader_without_a_change_of_rules(pair: Pair) -> None:
    before = pair.pins()
    with Snoop(pair.lab, pair.folder) as snoop, Client(pair.two.address) as other:
        pair.one.kill()
        pair.client = other
        pair.wait_all_at("two")
        pair.wait(lambda: pinned(other, "ring") == LEAVES, "pins")
        assert_pings(pair.lab, "h1_1", f"h{LEAVES}_1", count=10)
        # The new control loop does not continue to count unannounced pairs, so it deletes the rules that counted them.
        assert (snoop.count(f"OFPT_FLOW_MOD(?!.*:0x{COOKIE_MAGIC:x}ff)"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)
        assert pair.pins() == before
