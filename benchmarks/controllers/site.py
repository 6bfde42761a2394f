"""Site of the benchmark ``controllers``: etcd, controllers, switches and hosts, and faults that cut them off.

Each controller and each etcd member has a network namespace. Open vSwitch and this process share another namespace. A
router, in a namespace of its own, forwards between all of these namespaces. Hosts have namespaces too, but send only
through the switches.

A controller uses a different address for each kind of peer: switches, etcd and other controllers. A rule of the router
(ip-rule(8), ``blackhole``) between two addresses can therefore cut it off from one kind of peer, in both directions or
in one. The sender gets no error. The namespaces end with those of the benchmark (scripts/lab_python.sh).
"""

import json
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

from benchmarks.controllers.judge import CLOCKS, RESTORED, Fault, Judge
from benchmarks.controllers.trace import Assigned
from benchmarks.fabric.blueprint import Blueprint
from benchmarks.fabric.capture import Recorder
from benchmarks.fabric.openvswitch import Bridges, rundir
from controller.fabric.topology import Dpid, PortRef
from controller.store.assignment import Holder, assign
from controller.store.assignment import Site as Assignable
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import run, wait_for
from mininet_topos.probe.probing import Probing
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.topologies import Host, leaf_spine
from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.support.wire.certificates import Authority

ETCD_MEMBERS = 3
RING = 4
"""Number of hosts of a job that sends packets."""
HOSTS_PER_LEAF = 3
"""Hosts per leaf. The first host is real and sends packets in a ring; the other hosts exist only in the inventory."""
LINK_BPS = 1e9
PACKET_S = 0.05
"""Seconds between two packets that a host sends to the next host of its ring."""
RESTART_S = 1.0
"""Seconds after which an ended controller is started again, as deploy/systemd does."""
SETTLE_S = 180.0
HOUR_S, DAY_S = 3600, 86_400
READ_S = 10.0
"""Seconds to wait for changes of the assignments that etcd already has."""
PREFIX = b"/signalbox/"

SWITCHES = "10.90.0.1"
"""Address of Open vSwitch, and of this process when it calls a member."""
ETCD_NET = "10.94.0.0/24"
EVERYBODY = "10.88.0.0/13"
UPLINK = "uplink"
"""Name of the interface towards the router in each namespace."""
PEERS = {
    "switches": ((91, f"{SWITCHES}/32"),),
    "etcd": ((93, ETCD_NET),),
    "members": ((89, EVERYBODY), (93, "10.89.0.0/24")),  # second: where members prove to each other that they are alive
}
"""Pair (K, network) of each kind of peer: member n has the address 10.K.0.n, the peers are in the network."""
CLOCK = "clock.so"
"""Library that shifts the time of day of a process (``clock.c``)."""


class _Switches(Bridges):
    """Bridges whose first host at each leaf is real: it has a namespace and an interface."""

    real: Sequence[PortRef] = ()

    def _add_port(self, end: PortRef) -> list[str]:
        if end not in self.real:
            return super()._add_port(end)
        name = self.blueprint.interface(end)
        add = ["--", "add-port", self.blueprint.bridge(end.dpid), name]
        return [*add, "--", "set", "Interface", name, f"ofport_request={end.port}"]


@dataclass
class EtcdMember:
    """Member of etcd in a namespace. ``number``: counted from 1."""

    number: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"etcd{self.number}"

    @property
    def endpoint(self) -> str:
        return f"10.94.0.{self.number}:2379"

    @property
    def _cluster(self) -> list[str]:
        peers = {f"etcd{n}": f"http://10.94.0.{n}:2380" for n in range(1, ETCD_MEMBERS + 1)}
        words = ["--name", self.name, "--data-dir", str(self.folder / self.name)]
        words += ["--initial-advertise-peer-urls", peers[self.name]]
        return [*words, "--initial-cluster", ",".join(f"{name}={url}" for name, url in peers.items())]

    def start(self) -> None:
        own = f"http://{self.endpoint}"
        words = ["etcd", *self._cluster, "--listen-client-urls", own, "--advertise-client-urls", own]
        words += ["--listen-peer-urls", f"http://10.94.0.{self.number}:2380"]
        words += ["--heartbeat-interval", "50", "--election-timeout", "500"]
        inside = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*inside, *words], stdout=log, stderr=log, start_new_session=True)

    def restore(self, snapshot: Path) -> None:
        """Replace all data by the data of a snapshot, and start."""
        self.kill()
        shutil.rmtree(self.folder / self.name)
        _etcdctl("snapshot", "restore", str(snapshot), *self._cluster)
        self.start()

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def read(self, path: str) -> str:
        """Return the body of an HTTP GET of ``path``; empty if the member does not answer."""
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
    """Controller in a namespace. ``number``: counted from 1."""

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
    member: str
    messages: list[tuple[float, str, Dpid, bytes]]

    def message(self, at: float, dpid: Dpid, data: bytes) -> None:
        self.messages.append((at, self.member, dpid, data))


@dataclass
class Site:
    blueprint: Blueprint
    rings: Sequence[Sequence[Host]]
    """Hosts that send packets, one sequence per job."""
    pairs: Sequence[Sequence[str]]
    """Addresses of the two hosts of each leaf that send nothing.

    A job between them stays in the leaf and needs no rules."""
    etcd: Sequence[EtcdMember]
    members: Sequence[Member]
    switches: Bridges
    store: Etcd
    probing: Probing
    judge: Judge = field(default_factory=Judge)
    restarts: list[float] = field(default_factory=list)
    """Times at which Open vSwitch, and with it all switches, restarted."""
    assigned: list[Assigned] = field(default_factory=list)
    """Assignments of switches so far, read from etcd."""
    _read_revision: int = 0

    # ---- state

    def leader(self) -> Member | None:
        with suppress(EtcdError):
            if claim := self.store.get(PREFIX + b"claim"):
                text = claim.value.decode()
                return next((m for m in self.members if f'process {m.pid}"' in text), None)
        return None

    def is_divided(self) -> bool:
        """Return whether all members run, and every switch is assigned to the member that should have it.

        Raises ``EtcdError``."""
        keys, _ = self.store.keys(PREFIX + b"members/")
        names = (key.key.decode().split("/")[-2:] for key in keys)
        members = frozenset(Holder(name, id_) for name, id_ in names)
        found = [_assigned(key.key, key.value, key.mod_revision) for key in self.store.keys(PREFIX + b"assign/")[0]]
        holders = {each.dpid: Holder(each.holder, each.process) for each in found}
        connected = dict.fromkeys(self.blueprint.dpids, members)
        return len(members) == len(self.members) and not assign(Assignable(members, connected, holders))

    def in_order(self) -> str:
        """Return what is not in order yet, or an empty text; only the first such thing is reported."""
        if unwell := [each.name for each in self.etcd if not each.is_healthy]:
            return f"{', '.join(unwell)} not healthy"
        if not (leader := self.leader()):
            return "no controller leads"
        try:
            if not self.is_divided():
                return "switches are not assigned yet as they should be"
            with Client(leader.api, timeout_s=2) as client:
                status = client.get_status()
        except (EtcdError, SignalboxError) as error:
            return f"{leader.name}: {error}"
        if status.switches_in_sync != len(self.blueprint.dpids) or status.adopting:
            return f"{status.switches_in_sync} of {status.switches} switches in sync"
        if status.links != len(self.blueprint.fabric.links) or status.jobs_pending or status.jobs_unplanned:
            return f"{status.links} links, {status.jobs_pending + status.jobs_unplanned} jobs not planned"
        return ""

    def wait_settled(self, deadline_s: float = SETTLE_S) -> str:
        """Wait until everything is in order. Returns an empty text, or after ``deadline_s`` what is not in order."""
        ends = time.monotonic() + deadline_s
        while (why := self.in_order()) and time.monotonic() < ends:
            self.tend()
            time.sleep(0.1)
        return why

    def tend(self) -> None:
        """Start the members again that ended at least ``RESTART_S`` ago."""
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
        """Pass the messages captured since the last call to ``judge``, and read the new assignments."""
        messages: list[tuple[float, str, Dpid, bytes]] = []
        for member in self.members:
            if member.recorder:
                member.recorder.read(_Sink(member.name, messages))
        for at, who, dpid, data in sorted(messages, key=lambda message: message[0]):
            self.judge.message(who, at, dpid, data)
        self._read_assignments()

    def _read_assignments(self) -> None:
        with suppress(EtcdError):  # the next call reads them
            newest = max((kv.mod_revision for kv in self.store.keys(PREFIX + b"assign/")[0]), default=0)
            if newest <= self._read_revision:
                return
            for events, _ in self.store.changes(PREFIX + b"assign/", self._read_revision, READ_S):
                for kv in (event.kv for event in events if event.kv.value):
                    self.assigned.append(_assigned(kv.key, kv.value, kv.mod_revision))
                self._read_revision = events[-1].kv.mod_revision
                if self._read_revision >= newest:
                    return

    def rules(self) -> set[str]:
        """Return all rules as texts that begin with the switch and have no counters."""
        found = ((self.blueprint.bridge(dpid), self.switches.rules(dpid)) for dpid in self.blueprint.dpids)
        return {f"{bridge}: {rule}" for bridge, (flows, groups) in found for rule in flows | groups}

    # ---- faults

    def make(self, fault: Fault, leader: Member, standby: Member) -> Callable[[], object]:
        """Cause the fault, and return a function that repairs it."""
        if fault.who == "Open vSwitch":
            # SIGALRM leaves no core file, and the monitor process starts the daemon again.
            self.restarts.append(time.monotonic())
            os.kill(int((rundir() / "ovs-vswitchd.pid").read_text()), signal.SIGALRM)
            return lambda: None
        if fault.who in ("leader", "standby"):
            return self._of_member(fault.what, leader if fault.who == "leader" else standby)
        if fault.what == RESTORED:
            return self._restored(standby)
        first = next((each for each in self.etcd if each.is_leader), self.etcd[0])
        followers = [each for each in self.etcd if each is not first]
        count = {"etcd follower": 0, "etcd leader": 1, "etcd majority": 2}[fault.who]
        victims = [first, *followers][:count] or followers[:1]
        return self._of_etcd(fault.what, victims)

    def _restored(self, standby: Member) -> Callable[[], object]:
        """Save a snapshot of etcd, then kill a member, so that its switches are assigned anew.

        The returned function restores the snapshot and kills all members, which ``tend`` then starts again."""
        snapshot = self.etcd[0].folder / "snapshot"
        snapshot.unlink(missing_ok=True)
        _etcdctl("--endpoints", self.etcd[0].endpoint, "snapshot", "save", str(snapshot))
        _signal(standby.pid, signal.SIGKILL)

        def mend() -> None:
            self._read_assignments()
            for member in self.members:
                _signal(member.pid, signal.SIGKILL)
            for each in self.etcd:
                each.kill()
            for each in self.etcd:
                each.restore(snapshot)
            self._read_revision = 0

        return mend

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
        for peer, ways in PEERS.items():
            for kind, theirs in ways if peer in what or what.endswith("all") else ():
                own = f"10.{kind}.0.{member.number}/32"
                rules += [f"from {own} to {theirs}"] * (both or what.startswith("mute"))
                rules += [f"from {theirs} to {own}"] * (both or what.startswith("deaf"))
        _rules("add", rules)
        return partial(_rules, "delete", rules)


class _Hosts:
    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(["ip", "netns", "exec", host, *argv], start_new_session=True, **options)


def _assigned(key: bytes, value: bytes, revision: int) -> Assigned:
    """Return the assignment stored under a key of etcd. ``revision``: etcd's revision of the last change of the key."""
    found = json.loads(value)
    dpid = Dpid(int(key.rpartition(b"/")[2], 16))
    return Assigned(dpid, found["base"] + revision, found["name"], found["id"])


def _etcdctl(*words: str) -> None:
    run("env", "ETCDCTL_API=3", "etcdctl", *words)


def _signal(group: int, number: signal.Signals) -> None:
    """Send a signal to a controller and its child processes, if it still runs."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _rules(what: str, rules: Sequence[str]) -> None:
    """Add or delete (``what``) rules of the router that drop packets, such as "from ADDRESS to ADDRESS"."""
    for rule in rules:
        run("ip", "-n", "router", "rule", what, *rule.split(), "blackhole")


# ---- making


@contextmanager
def site(folder: Path, leaves: int, spines: int, members: int, tell: Callable[[str], None]) -> Iterator[Site]:
    """Run a site, and yield it once every member was started. No job is registered."""
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
            stack.callback(each.kill)
            each.start()
        endpoints = tuple(each.endpoint for each in etcd)
        wait_for(lambda: all(each.is_healthy for each in etcd), "etcd", SETTLE_S, 0.1)
        run("cc", "-shared", "-fPIC", "-O2", "-o", str(folder / CLOCK), str(Path(__file__).with_name("clock.c")))
        inventory = folder / "inventory.toml"
        inventory.write_text(blueprint.inventory())
        common = {**blueprint.settings(inventory), "openflow": {"host": "0.0.0.0"}}
        all_members = _members(folder, common, endpoints, members)
        tell("making bridges")
        switches = _bridges(blueprint, hosts, [f"10.91.0.{m.number}:{m.controller.openflow_port}" for m in all_members])
        for member in all_members:
            addresses = [f"10.{kind}.0.{member.number}" for kind in (92, 91, 93, 89)]
            routes = [f"{ETCD_NET} src {addresses[2]}", *(f"10.{kind}.0.0/24 src {addresses[3]}" for kind in (89, 93))]
            _join(member.name, 100 + member.number, addresses, routes)
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
    """Let each host of a ring send packets to the next host of the ring."""
    for ring in made.rings:
        for host, after in pairwise([*ring, ring[0]]):
            made.probing.send((host.ip, after.ip), PACKET_S)


def _members(folder: Path, common: Settings, endpoints: Sequence[str], count: int) -> list[Member]:
    """Return the members, not started. ``common``: settings of all members."""
    names = [f"member{number}" for number in range(1, count + 1)]
    with _yesterday(folder):
        authority = Authority(folder, "members")
        signed = [authority.sign(name, also=f"IP:10.89.0.{number}") for number, name in enumerate(names, 1)]
    made = []
    for number, (name, own) in enumerate(zip(names, signed, strict=True), 1):
        files = {**own._asdict(), "ca_certificates": authority.certificate}
        settings = {
            **common,
            "api": {"listen": [f"10.92.0.{number}:50051"], "insecure": True},
            "members": {
                "name": name,
                "api": f"10.89.0.{number}:50052",
                "certificate_names": names,
                **{key: str(path) for key, path in files.items()},
            },
        }
        its_folder = folder / name
        its_folder.mkdir()
        _set_clock(its_folder, 0)
        clock = [f"{key}={value}" for key, value in _clock_of(folder, its_folder).items()]
        inside = ("ip", "netns", "exec", name, "env", *clock)
        store = f"etcd://{','.join(endpoints)}"
        made.append(Member(number, ControllerProcess(its_folder, 6650 + number, settings, store=store, inside=inside)))
    return made


@contextmanager
def _yesterday(folder: Path) -> Iterator[None]:
    """Let the block's commands see yesterday's time of day.

    Certificates made in the block are already valid for a member whose clock is set back."""
    _set_clock(folder, -DAY_S)
    clock = _clock_of(folder, folder)
    os.environ |= clock
    try:
        yield
    finally:
        for name in clock:
            del os.environ[name]


def _clock_of(folder: Path, own: Path) -> dict[str, str]:
    """Return the environment variables of a process whose clock ``_set_clock`` shifts. ``own``: its folder."""
    return {"LD_PRELOAD": str(folder / CLOCK), "SIGNALBOX_CLOCK": str(own / "clock")}


def _set_clock(folder: Path, ahead_s: int) -> None:
    """Shift a member's time of day by ``ahead_s`` seconds; negative numbers set it back."""
    with (folder / "clock").open("r+b" if (folder / "clock").exists() else "wb") as file:
        file.write(ahead_s.to_bytes(8, "little", signed=True))


def _namespace(name: str) -> None:
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def _join(name: str, number: int, addresses: Sequence[str], routes: Sequence[str] = ()) -> None:
    """Create a namespace, connect it to the router, and give it the addresses.

    An empty name means the present namespace.

    ``routes``: further routes over the router, each with its source address. All other packets through the router
    have the first address as their source."""
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
    for route in (f"{EVERYBODY} src {addresses[0]}", *routes):
        to, *source = route.split()
        run("ip", *here, "route", "add", to, "via", f"{net}.254", *source)


def _bridges(blueprint: Blueprint, hosts: Sequence[Host], controllers: Sequence[str]) -> Bridges:
    """Return the bridges, after each has connected once to a temporary server at the address of each controller.

    Open vSwitch waits longer between attempts to reach an address that it has never reached
    (``openvswitch._Greeter``)."""
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


def check() -> None:
    """Raise ``SignalboxError`` with instructions unless this machine can run the site."""
    if b"scripts/openvswitch.sh" not in Path("/proc/1/cmdline").read_bytes():
        raise SignalboxError("start the benchmark with: sudo scripts/lab_python.sh -m benchmarks controllers")
    for program in ("etcd", "ovs-vsctl", "ethtool", "cc"):
        if not shutil.which(program):
            raise SignalboxError(f"{program} is not installed; run scripts/bootstrap.sh")
