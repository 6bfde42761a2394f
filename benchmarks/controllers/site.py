"""Site of the benchmark: etcd, members, switches and hosts, with a router between them that can cut any two apart.

Each controller, each etcd member and each host has a network namespace. Open vSwitch and this process share another
one. The namespace of a router forwards between the namespaces, except those of hosts. A member uses one address for
each kind of peer, so a rule of the router (ip-rule(8), ``blackhole``) cuts it off from its switches or from etcd, both
ways or one way. The sender gets no error. The namespaces end with those of the benchmark (scripts/lab_python.sh).
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.controllers.judge import CLOCKS, Fault, Judge
from benchmarks.fabric.blueprint import Blueprint
from benchmarks.fabric.capture import Recorder
from benchmarks.fabric.openvswitch import Bridges, rundir
from controller.fabric.topology import Dpid, PortRef
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.record import run, wait_for
from mininet_topos.probe.probing import Probing
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.topologies import Host, leaf_spine
from signalbox.client import Client
from signalbox.errors import SignalboxError

ETCD_MEMBERS = 3
RING = 4
"""Hosts of a job that sends packets."""
HOSTS_PER_LEAF = 3
"""Hosts per leaf. The first is real and belongs to a ring; the others exist for the controller only."""
LINK_BPS = 1e9
PACKET_S = 0.05
"""Seconds between the packets of one host to the next one of its ring."""
RESTART_S = 1.0
"""Seconds after which a member that has ended is started again, as by deploy/systemd."""
SETTLE_S = 60.0
HOUR_S = 3600
PREFIX = b"/signalbox/"

SWITCHES = "10.90.0.1"
"""Address from which switches connect to members, and from which this process calls them."""
ETCD_NET = "10.94.0.0/24"
UPLINK = "uplink"
"""Interface towards the router, in every namespace."""
CLOCK = "clock.so"
"""Library that changes the time of day that a member reads."""


class _Switches(Bridges):
    """Bridges whose first host on every leaf is real, with a namespace of the host's name."""

    real: Sequence[PortRef] = ()

    def _add_port(self, end: PortRef) -> list[str]:
        if end not in self.real:
            return super()._add_port(end)
        name = self.blueprint.interface(end)
        add = ["--", "add-port", self.blueprint.bridge(end.dpid), name]
        return [*add, "--", "set", "Interface", name, f"ofport_request={end.port}"]


@dataclass
class EtcdMember:
    """Member of etcd in a namespace. ``number`` begins at 1."""

    number: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"etcd{self.number}"

    @property
    def endpoint(self) -> str:
        return f"10.94.0.{self.number}:2379"

    def start(self) -> None:
        peers = {f"etcd{n}": f"http://10.94.0.{n}:2380" for n in range(1, ETCD_MEMBERS + 1)}
        words = ["etcd", "--name", self.name, "--data-dir", str(self.folder / self.name)]
        words += [
            "--listen-client-urls",
            f"http://{self.endpoint}",
            "--advertise-client-urls",
            f"http://{self.endpoint}",
        ]
        words += ["--listen-peer-urls", peers[self.name], "--initial-advertise-peer-urls", peers[self.name]]
        words += ["--initial-cluster", ",".join(f"{name}={url}" for name, url in peers.items())]
        words += ["--heartbeat-interval", "50", "--election-timeout", "500"]
        inside = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*inside, *words], stdout=log, stderr=log, start_new_session=True)

    def read(self, path: str) -> str:
        """Return a page of the member, or the empty text if it does not answer."""
        with suppress(OSError), urlopen(f"http://{self.endpoint}/{path}", timeout=1) as reply:
            return str(reply.read().decode())
        return ""

    @property
    def is_leader(self) -> bool:
        return "\netcd_server_is_leader 1\n" in self.read("metrics")

    @property
    def is_healthy(self) -> bool:
        return '"true"' in self.read("health")


@dataclass
class Member:
    """Controller in a namespace. ``number`` begins at 1."""

    number: int
    controller: ControllerProcess
    recorder: Recorder | None = None
    ended_at: float | None = None

    @property
    def name(self) -> str:
        return f"member{self.number}"

    @property
    def api(self) -> str:
        return f"10.92.0.{self.number}:50051"

    @property
    def pid(self) -> int:
        assert self.controller.process
        return self.controller.process.pid


@dataclass
class _Sink:
    """Listener of one member's messages."""

    member: str
    messages: list[tuple[float, str, Dpid, bytes]]

    def message(self, at: float, dpid: Dpid, data: bytes) -> None:
        self.messages.append((at, self.member, dpid, data))


@dataclass
class Site:
    """Running site."""

    blueprint: Blueprint
    rings: Sequence[Sequence[Host]]
    """Hosts of each job that sends packets."""
    pairs: Sequence[Sequence[str]]
    """Addresses of two hosts of each leaf, which are in no ring; a job of them needs no rules."""
    etcd: Sequence[EtcdMember]
    members: Sequence[Member]
    switches: Bridges
    store: Etcd
    probing: Probing
    judge: Judge = field(default_factory=Judge)

    # ---- state

    def holder(self) -> Member | None:
        """Return the member that has the claim of the state."""
        with suppress(EtcdError):
            if claim := self.store.get(PREFIX + b"claim"):
                text = claim.value.decode()
                return next((m for m in self.members if f'process {m.pid}"' in text), None)
        return None

    def known_members(self) -> int:
        """Return the number of members that etcd has."""
        with suppress(EtcdError):
            return len(self.store.keys(PREFIX + b"members/")[0])
        return 0

    def in_order(self) -> str:
        """Return what is not in order yet, or the empty text."""
        if unwell := [each.name for each in self.etcd if not each.is_healthy]:
            return f"{', '.join(unwell)} not healthy"
        if not (holder := self.holder()):
            return "nobody has the claim"
        if (known := self.known_members()) != len(self.members):
            return f"etcd has {known} members"
        try:
            with Client(holder.api, timeout_s=2) as client:
                status = client.get_status()
        except SignalboxError as error:
            return f"{holder.name}: {error}"
        if status.switches_in_sync != len(self.blueprint.dpids) or status.adopting:
            return f"{status.switches_in_sync} of {status.switches} switches in sync"
        if status.links != len(self.blueprint.fabric.links) or status.jobs_pending or status.jobs_unplanned:
            return f"{status.links} links, {status.jobs_pending + status.jobs_unplanned} jobs not planned"
        return ""

    def wait_settled(self, deadline_s: float = SETTLE_S) -> str:
        """Wait until everything is in order, and return what is not, or the empty text."""
        ends = time.monotonic() + deadline_s
        while (why := self.in_order()) and time.monotonic() < ends:
            self.tend()
            time.sleep(0.1)
        return why

    def tend(self) -> None:
        """Start members again that have ended."""
        now = time.monotonic()
        for member in self.members:
            process = member.controller.process
            if process is None or process.poll() is None:
                continue
            member.ended_at = member.ended_at or now
            if now - member.ended_at >= RESTART_S:
                member.ended_at = None
                member.controller.start("--standby")

    def read(self) -> None:
        """Pass on to the judge what was captured so far."""
        messages: list[tuple[float, str, Dpid, bytes]] = []
        for member in self.members:
            if member.recorder:
                member.recorder.read(_Sink(member.name, messages))
        for at, who, dpid, data in sorted(messages, key=lambda message: message[0]):
            self.judge.message(who, at, dpid, data)

    def rules(self) -> set[str]:
        """Return all rules of all switches with their switch, without counters."""
        found = ((self.blueprint.bridge(dpid), self.switches.rules(dpid)) for dpid in self.blueprint.dpids)
        return {f"{bridge}: {rule}" for bridge, (flows, groups) in found for rule in flows | groups}

    # ---- faults

    def make(self, fault: Fault, active: Member, standby: Member) -> Callable[[], object]:
        """Make the fault, and return a function that mends it."""
        if fault.who == "Open vSwitch":
            # The monitor starts the daemon again after this signal, which leaves no core file.
            os.kill(int((rundir() / "ovs-vswitchd.pid").read_text()), signal.SIGALRM)
            return lambda: None
        if fault.who in ("active", "standby"):
            return self._of_member(fault.what, active if fault.who == "active" else standby)
        leader = next((each for each in self.etcd if each.is_leader), self.etcd[0])
        followers = [each for each in self.etcd if each is not leader]
        count = {"etcd follower": 0, "etcd leader": 1, "etcd majority": 2}[fault.who]
        victims = [leader, *followers][:count] or followers[:1]
        return self._of_etcd(fault.what, victims)

    def _of_etcd(self, what: str, victims: Sequence[EtcdMember]) -> Callable[[], object]:
        number = signal.SIGSTOP if what == "paused" else signal.SIGKILL
        for victim in victims:
            assert victim.process
            victim.process.send_signal(number)

        def mend() -> None:
            for victim in victims:
                assert victim.process
                if what == "paused":
                    victim.process.send_signal(signal.SIGCONT)
                else:
                    victim.process.wait()
                    victim.start()

        return mend

    def _of_member(self, what: str, member: Member) -> Callable[[], object]:
        if what == "killed":
            _signal(member.pid, signal.SIGKILL)
            return lambda: None
        if what == "paused":
            _signal(member.pid, signal.SIGSTOP)
            return partial(_signal, member.pid, signal.SIGCONT)
        if what in CLOCKS:
            _set_clock(member.controller.folder, HOUR_S if what == CLOCKS[0] else -HOUR_S)
            return partial(_set_clock, member.controller.folder, 0)
        both = what.startswith("cut off")
        rules = []
        for peer, mine, theirs in (("etcd", 93, ETCD_NET), ("switches", 91, f"{SWITCHES}/32")):
            if peer in what or what.endswith("both"):
                own = f"10.{mine}.0.{member.number}/32"
                rules += [f"from {own} to {theirs}"] * (both or what.startswith("mute"))
                rules += [f"from {theirs} to {own}"] * (both or what.startswith("deaf"))
        _rules("add", rules)
        return partial(_rules, "delete", rules)


class _Hosts:
    """Namespaces of the hosts."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(["ip", "netns", "exec", host, *argv], start_new_session=True, **options)


def _signal(group: int, number: signal.Signals) -> None:
    """Send a signal to a controller and its processes, unless it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _rules(what: str, rules: Sequence[str]) -> None:
    """Add or delete rules of the router that drop packets."""
    for rule in rules:
        run("ip", "-n", "router", "rule", what, *rule.split(), "blackhole")


# ---- making


@contextmanager
def site(folder: Path, leaves: int, spines: int, members: int, tell: Callable[[str], None]) -> Iterator[Site]:
    """Yield the site when every member has started; its jobs are not registered yet."""
    topology = leaf_spine(leaves, spines, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    blueprint = Blueprint(fabric_of(topology), "mc")
    at_leaf = [topology.hosts[n : n + HOSTS_PER_LEAF] for n in range(0, len(topology.hosts), HOSTS_PER_LEAF)]
    hosts = [first for first, *_ in at_leaf]
    pairs = [[host.ip for host in others] for _, *others in at_leaf]
    of_ring = max(1, len(hosts) // RING)
    rings = [hosts[ring::of_ring][:RING] for ring in range(of_ring)]
    hosts = [host for ring in rings for host in ring]
    with ExitStack() as stack:
        _namespace("router")
        run("ip", "netns", "exec", "router", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _join("", 0, [SWITCHES])
        tell("starting etcd")
        etcd = [EtcdMember(number, folder) for number in range(1, ETCD_MEMBERS + 1)]
        for each in etcd:
            _join(each.name, each.number, [f"10.94.0.{each.number}"])
            stack.callback(_kill, each)
            each.start()
        endpoints = tuple(each.endpoint for each in etcd)
        wait_for(lambda: all(each.is_healthy for each in etcd), "etcd", SETTLE_S, 0.1)
        run("cc", "-shared", "-fPIC", "-O2", "-o", str(folder / CLOCK), str(Path(__file__).with_name("clock.c")))
        inventory = folder / "inventory.toml"
        inventory.write_text(blueprint.inventory())
        all_members = [_member(folder, blueprint, inventory, endpoints, n) for n in range(1, members + 1)]
        tell("making bridges")
        switches = _bridges(blueprint, hosts, [f"10.91.0.{m.number}:{m.controller.openflow_port}" for m in all_members])
        for member in all_members:
            addresses = [f"10.{kind}.0.{member.number}" for kind in (92, 91, 93)]
            _join(member.name, 100 + member.number, addresses, f"{ETCD_NET} src {addresses[2]}")
            file = folder / f"{member.name}.openflow"
            member.recorder = Recorder.start(file, member.controller.openflow_port, UPLINK)
            stack.callback(member.recorder.stop)
            stack.callback(member.controller.kill)
            member.controller.start("--standby")
        store = Etcd(EtcdAccess(endpoints))
        stack.callback(store.close)
        probing = stack.enter_context(Probing(_Hosts(), hosts, folder / "probes"))
        yield Site(blueprint, rings, pairs, etcd, all_members, switches, store, probing)


def send_packets(made: Site) -> None:
    """Let each host of a ring send to the next one."""
    for ring in made.rings:
        for host, after in pairwise([*ring, ring[0]]):
            made.probing.send((host.ip, after.ip), PACKET_S)


def _member(folder: Path, blueprint: Blueprint, inventory: Path, endpoints: Sequence[str], number: int) -> Member:
    its_folder = folder / f"member{number}"
    its_folder.mkdir()
    settings = {
        **blueprint.settings(inventory),
        "openflow": {"host": "0.0.0.0"},
        "api": {"listen": [f"10.92.0.{number}:50051"], "insecure": True},
    }
    _set_clock(its_folder, 0)
    inside = ["ip", "netns", "exec", f"member{number}"]
    inside += ["env", f"LD_PRELOAD={folder / CLOCK}", f"SIGNALBOX_CLOCK={its_folder / 'clock'}"]
    store = f"etcd://{','.join(endpoints)}"
    controller = ControllerProcess(its_folder, 6650 + number, settings, store=store, inside=tuple(inside))
    return Member(number, controller)


def _set_clock(folder: Path, ahead_s: int) -> None:
    """Set the seconds by which a member's time of day is ahead; a negative number sets it back."""
    with (folder / "clock").open("r+b" if (folder / "clock").exists() else "wb") as file:
        file.write(ahead_s.to_bytes(8, "little", signed=True))


def _namespace(name: str) -> None:
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def _join(name: str, number: int, addresses: Sequence[str], route: str = "") -> None:
    """Connect a namespace with these addresses to the router; the empty name stands for that of this process.

    ``route``: further route over the router. Without one, packets leave with the first address as source."""
    if name:
        _namespace(name)
    here = ["-n", name] if name else []
    net, far = f"10.95.{number}", f"r{number}"
    run("ip", *here, "link", "add", UPLINK, "type", "veth", "peer", "name", far, "netns", "router")
    run("ip", "-n", "router", "address", "add", f"{net}.254/24", "dev", far)
    run("ip", "-n", "router", "link", "set", far, "up")
    for address in (f"{net}.1/24", *(f"{each}/32" for each in addresses)):
        run("ip", *here, "address", "add", address, "dev", UPLINK)
    run("ip", *here, "link", "set", UPLINK, "up")
    for each in addresses:
        run("ip", "-n", "router", "route", "add", f"{each}/32", "via", f"{net}.1")
    for more in filter(None, (f"10.88.0.0/13 src {addresses[0]}", route)):
        to, *source = more.split()
        run("ip", *here, "route", "add", to, "via", f"{net}.254", *source)


def _bridges(blueprint: Blueprint, hosts: Sequence[Host], controllers: Sequence[str]) -> Bridges:
    """Make the bridges, and let them connect once to a stand-in at the address of each controller."""
    switches = _Switches(blueprint, controllers)
    switches.real = [blueprint.fabric.hosts[host.ip].at for host in hosts]
    for host, at in zip(hosts, switches.real, strict=True):
        _namespace(host.name)
        name = blueprint.interface(at)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", UPLINK, "netns", host.name)
        run("ip", "link", "set", name, "up")
        run("ip", "-n", host.name, "link", "set", UPLINK, "address", host.mac, "up")
        run("ip", "-n", host.name, "address", "add", f"{host.ip}/8", "dev", UPLINK)
        run("ip", "netns", "exec", host.name, "ethtool", "-K", UPLINK, "tx", "off")
        run("ip", "netns", "exec", host.name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
    own = [f"{address.rpartition(':')[0]}/32" for address in controllers]
    for address in own:
        run("ip", "address", "add", address, "dev", "lo")
    for _ in switches.build():
        pass
    for address in own:
        run("ip", "address", "delete", address, "dev", "lo")
    return switches


def _kill(member: EtcdMember) -> None:
    if member.process:
        member.process.kill()
        member.process.wait()


def check() -> None:
    """Raise ``SignalboxError`` with instructions where the site cannot be made."""
    if b"scripts/openvswitch.sh" not in Path("/proc/1/cmdline").read_bytes():
        raise SignalboxError("start the benchmark with: sudo scripts/lab_python.sh -m benchmarks controllers")
    for program in ("etcd", "ovs-vsctl", "ethtool", "cc"):
        if not shutil.which(program):
            raise SignalboxError(f"{program} is not installed; run scripts/bootstrap.sh")
