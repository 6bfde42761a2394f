"""Faults of ``benchmarks faults``: how each is made and repaired, and the alarms and alerts that must follow."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.live.relay import OpenFlowRelay
from benchmarks.monitoring import kinds_with_an_alert
from benchmarks.second_vswitchd import SecondSpine
from controller.alarms import severity
from controller.tables.rules import learning_cookie
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import BRIDGE_MARK, LabError, run
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.errors import Unavailable
from signalbox.jobs.spec import Algorithm, JobSpec
from signalbox.words import AlarmKind


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of ``size`` (such as ``128k``) at ``folder``/``state`` while the block runs."""
    state = folder / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(state)], check=True)
    try:
        yield state
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)


def fill(file: Path) -> None:
    """Fill up the file system of ``file``, so that not even the state of one job can be saved."""
    with suppress(OSError), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(512))


OUT_OF_SYNC_S = 60.0
"""Seconds for which a switch must be out of sync until ``SignalboxSwitchOutOfSync`` takes notice."""
LIMITS_READ_S = 4.0
"""Seconds until the controller reads the table limits of a switch that has refused a rule for lack of room."""
LEARNING = f"cookie={learning_cookie(0) >> 40:#x}"
"""Beginning of the cookie of each rule that counts traffic that no job has announced."""
UNKNOWN_HOST = "10.0.1.99"
GARBAGE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HOSTILE_EVERY_S = 0.5
SECOND_LEAVES = ("leaf1", "leaf2")
PAIR_ELEMENTS = 40_000


@dataclass(frozen=True, slots=True)
class Named:
    """Alarm that must be raised. ``says``: part of its text."""

    kind: AlarmKind
    subject: str
    says: str


@dataclass(frozen=True, slots=True)
class Series:
    """Metric series that must have a value from ``low`` to ``high``. ``begin``: beginning of its name with labels."""

    begin: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Alert:
    """Alert that must fire.

    ``after_s``: seconds after the alarm until the alert's expression can be true. ``holds_s``: seconds for which the
    expression looks back, and may stay true after the repair."""

    name: str
    labels: Mapping[str, str]
    after_s: float = 0.0
    holds_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    name: str
    within_s: float
    """Seconds in which the controller must raise its alarm."""
    make: Callable[[], object]
    repair: Callable[[], object]
    alarms: tuple[Named, ...]
    series: tuple[Series, ...]
    own_alerts: tuple[Alert, ...]
    also: frozenset[AlarmKind] = frozenset()
    """Kinds of other alarms that the fault may raise."""
    tidy: Callable[[], object] = lambda: None
    """Function that is called after the repair, to clean up."""
    lasts_s: float = 0.0
    """Seconds for which the alarm may stay after the repair, for example until the next check."""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts that must fire: the fault's own, and a general alert for each other kind of alarm."""
        kinds = dict.fromkeys(named.kind for named in self.alarms if named.kind not in kinds_with_an_alert())
        return (*self.own_alerts, *(of_kind(kind) for kind in kinds))


def of_kind(kind: AlarmKind) -> Alert:
    name = "SignalboxCriticalAlarm" if severity(kind) == "critical" else "SignalboxAlarm"
    return Alert(name, {"kind": kind})


@dataclass
class Site:
    """Lab in which the faults are made.

    ``relay``: relay between leaf2 and the controller. ``state``: folder of the controller's state, on a small disk."""

    lab: Lab
    controller: ControllerProcess
    client: Client
    relay: OpenFlowRelay
    second: SecondSpine
    state: Path
    folder: Path
    _programs: list[subprocess.Popen[Any]] = field(default_factory=list)
    _hostile: threading.Event = field(default_factory=threading.Event)

    def ip(self, host: str) -> str:
        return next(one.ip for one in self.lab.hosts if one.name == host)

    def ofctl(self, switch: str, command: str, *arguments: str) -> str:
        return run("ovs-ofctl", "-O", "OpenFlow13", command, self.lab.bridge(switch), *arguments)

    # ---- parts of the fabric

    def spine(self) -> Fault:
        name = self.lab.bridge("spine4")
        return Fault(
            "spine deleted",
            2.0,
            lambda: self.lab.stop_switch("spine4"),
            lambda: self.lab.start_switch("spine4"),
            (Named(AlarmKind.SWITCH_DOWN, name, name),),
            (Series(f'signalbox_switch_up{{switch="{name}"', 0, 0),),
            (Alert("SignalboxSwitchDown", {"switch": name}),),
        )

    def cable(self) -> Fault:
        leaf, spine, subject = self._cable("leaf1", "spine1")
        return Fault(
            "leaf–spine cable",
            3.0,
            lambda: self.lab.cut("leaf1", "spine1"),
            lambda: self.lab.plug("leaf1", "spine1"),
            (Named(AlarmKind.LINK_DOWN, subject, subject),),
            (Series(f'signalbox_link_up{{link="{subject}"', 0, 0),),
            tuple(Alert("SignalboxLinkDown", {"src": a, "dst": b}) for a, b in ((leaf, spine), (spine, leaf))),
        )

    def _cable(self, leaf: str, spine: str) -> tuple[str, str, str]:
        """Return the names of both switches, and the name of the cable between them in alarms."""
        port = next(cable.a_port for cable in self.lab.links if (cable.a, cable.b) == (leaf, spine))
        a, b = self.lab.bridge(leaf), self.lab.bridge(spine)
        return a, b, f"{a}:{port}>{b}"

    def host_cable(self) -> Fault:
        ip = self.ip("h1_1")
        return Fault(
            "host cable",
            3.0,
            lambda: self.lab.cut("h1_1", "leaf1"),
            lambda: self.lab.plug("h1_1", "leaf1"),
            (Named(AlarmKind.HOST_DOWN, ip, ip), Named(AlarmKind.FLOWS_WITHOUT_PATH, "plan", "ring1")),
            (Series(f'signalbox_host_up{{host="{ip}"', 0, 0), Series("signalbox_network_efficiency_ratio", 0, 0)),
            (Alert("SignalboxHostDown", {"host": ip}),),
        )

    def leaf(self) -> Fault:
        name = self.lab.bridge("leaf4")
        return Fault(
            "leaf's bridge deleted",
            3.0,
            lambda: self.lab.stop_switch("leaf4"),
            lambda: self.lab.start_switch("leaf4"),
            (Named(AlarmKind.SWITCH_DOWN, name, name), Named(AlarmKind.FLOWS_WITHOUT_PATH, "plan", "ring1")),
            (Series(f'signalbox_switch_up{{switch="{name}"', 0, 0), Series("signalbox_network_efficiency_ratio", 0, 0)),
            (Alert("SignalboxSwitchDown", {"switch": name}),),
        )

    def frozen(self) -> Fault:
        """Freeze the second Open vSwitch: its cables pass no probes, and it does not answer echo requests."""
        name = self.second.name
        return Fault(
            "second vswitchd frozen",
            22.0,
            self.second.freeze,
            self.second.thaw,
            (Named(AlarmKind.SWITCH_DOWN, name, name),),
            (Series(f'signalbox_switch_up{{switch="{name}"', 0, 0),),
            (Alert("SignalboxSwitchDown", {"switch": name}),),
            frozenset({AlarmKind.LINK_DOWN, AlarmKind.COUNTERS_STALE}),
        )

    def no_path(self) -> Fault:
        """Cut all cables between a leaf and the spines."""
        spines = [cable.b for cable in self.lab.links if cable.a == "leaf3" and cable.b.startswith("spine")]

        def each(act: Callable[[str, str], None]) -> None:
            for spine in spines:
                act("leaf3", spine)

        names = [self._cable("leaf3", spine)[2] for spine in spines]
        return Fault(
            "flows without a path",
            3.0,
            lambda: each(self.lab.cut),
            lambda: each(self.lab.plug),
            (Named(AlarmKind.FLOWS_WITHOUT_PATH, "plan", "ring1"),),
            (
                Series("signalbox_network_efficiency_ratio", 0, 0),
                *(Series(f'signalbox_link_up{{link="{name}"', 0, 0) for name in names),
            ),
            (),
            frozenset({AlarmKind.LINK_DOWN}),
        )

    # ---- answers and rules of switches

    def ports(self) -> Fault:
        name = self.lab.bridge("leaf2")
        return Fault(
            "port statistics dropped",
            25.0,
            lambda: setattr(self.relay, "drops_ports", True),
            lambda: setattr(self.relay, "drops_ports", False),
            (Named(AlarmKind.COUNTERS_STALE, name, "ports"),),
            (Series(f'signalbox_switch_counters_age_seconds{{switch="{name}",kind="ports"', 20, 3600),),
            (Alert("SignalboxCountersStale", {"switch": name, "kind": "ports"}),),
        )

    def foreign(self) -> Fault:
        """Add a foreign rule, and delete pins as if by hand; the controller must restore the pins."""
        name = self.lab.bridge("leaf3")
        theirs = "table=1,priority=5,udp,tp_dst=9"

        def make() -> None:
            self.ofctl("leaf3", "del-flows", "table=1,ip")
            self.ofctl("leaf3", "add-flow", f"{theirs},cookie=0x77,actions=drop")

        return Fault(
            "foreign rule",
            65.0,
            make,
            lambda: self.ofctl("leaf3", "del-flows", "--strict", theirs),
            (Named(AlarmKind.FOREIGN_RULES, name, name),),
            (
                Series(f'signalbox_switch_foreign_rules{{switch="{name}"', 1, 1),
                Series(f'signalbox_healed_rules_total{{switch="{name}"', 1, 1e6),
            ),
            (Alert("SignalboxRulesRepaired", {"switch": name}, holds_s=600),),
            lasts_s=60,
        )

    def full_table(self) -> Fault:
        name = self.lab.bridge("leaf4")

        def make() -> None:
            rules = self.ofctl("leaf4", "dump-flows", "--no-stats", "table=1").splitlines()
            used = sum(LEARNING not in rule for rule in rules)  # learning rules may be removed before the repair
            full = ("--id=@t", "create", "Flow_Table", f"flow_limit={used}", "overflow_policy=refuse")
            run("ovs-vsctl", "--", *full, "--", "set", "bridge", name, "flow_tables:1=@t")
            self.client.register_job(pipeline("one-more", [self.ip("h4_4"), self.ip("h3_4")]))

        return Fault(
            "full table",
            10.0,
            make,
            lambda: run("ovs-vsctl", "clear", "bridge", name, "flow_tables"),
            (
                Named(AlarmKind.RULES_REFUSED, name, "TABLE_FULL"),
                Named(AlarmKind.TABLE_NEARLY_FULL, f"{name}:table1", "is full"),
            ),
            (Series(f'signalbox_switch_in_sync{{switch="{name}"', 0, 0),),
            (
                Alert("SignalboxSwitchOutOfSync", {"switch": name}, after_s=OUT_OF_SYNC_S),
                Alert("SignalboxTableNearlyFull", {"switch": name}, after_s=LIMITS_READ_S),
            ),
            tidy=lambda: self.client.deregister_job("one-more"),
        )

    # ---- others

    def hostile(self) -> Fault:
        """Connect to the OpenFlow port again and again, and send HTTP."""

        def attack() -> None:
            while not self._hostile.wait(HOSTILE_EVERY_S):
                with suppress(OSError), socket.create_connection(("127.0.0.1", self.controller.openflow_port)) as peer:
                    peer.sendall(GARBAGE)
                    peer.recv(1)

        thread = threading.Thread(target=attack, daemon=True)
        return Fault(
            "hostile connections",
            2.0,
            thread.start,
            self._hostile.set,
            (Named(AlarmKind.CONNECTIONS_REFUSED, "malformed", "127.0.0.1"),),
            (Series('signalbox_refused_connections_total{reason="malformed"', 1, 1e6),),
            (Alert("SignalboxConnectionsRefused", {"reason": "malformed"}, holds_s=300),),
            lasts_s=60,
        )

    def twin(self) -> Fault:
        """Add a second switch with the dpid of leaf1. The repair, or at last the end of the lab, removes it."""
        name, leaf = f"{self.lab.topo.prefix}twin", self.lab.bridge("leaf1")
        dpid = next(switch.dpid for switch in self.lab.switches if switch.name == "leaf1")
        made = ["datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure"]
        made += [f"other_config:datapath-id={dpid:016x}", "other_config:disable-in-band=true"]
        made += [f"external_ids:{BRIDGE_MARK}={self.lab.topo.prefix}"]
        target = ("--", "set-controller", name, self.controller.target)
        return Fault(
            "dpid of another switch",
            5.0,
            lambda: run("ovs-vsctl", "add-br", name, "--", "set", "bridge", name, *made, *target),
            lambda: run("ovs-vsctl", "--if-exists", "del-br", name),
            (Named(AlarmKind.DUPLICATE_DPID, leaf, leaf),),
            (Series('signalbox_refused_connections_total{reason="duplicate_dpid"', 1, 1e6),),
            (),
            lasts_s=30,
        )

    def disk(self) -> Fault:
        filler = self.state / "other"

        def make() -> None:
            fill(filler)
            with suppress(Unavailable):
                for number in range(100):  # reserved space may suffice for the first jobs
                    self.client.register_job(pipeline(f"unsaved{number}", [self.ip("h3_4"), self.ip("h2_4")]))
                    self.client.deregister_job(f"unsaved{number}")
                raise LabError("all jobs were saved, although the disk is full")

        return Fault(
            "full disk",
            2.0,
            make,
            filler.unlink,
            (Named(AlarmKind.STATE_NOT_SAVED, "state", "full"),),
            (Series("signalbox_state_failed_commits_total", 1, 1e6),),
            (Alert("SignalboxCommitsFail", {}, holds_s=600),),
        )

    # ---- jobs

    def unknown_host(self) -> Fault:
        """Announce a job with a host that does not exist. The repair gives its address to a host."""
        device = ("dev", self.lab.topo.interface("h1_4", 0))

        def address(act: str) -> None:
            if self.lab.popen("h1_4", ["ip", "address", act, f"{UNKNOWN_HOST}/16", *device]).wait():
                raise LabError(f"cannot {act} an address")

        def tidy() -> None:
            self.client.deregister_job("waiting")
            address("delete")

        return Fault(
            "unknown host",
            3.0,
            lambda: self.client.register_job(pipeline("waiting", [UNKNOWN_HOST, self.ip("h4_4")])),
            lambda: address("add"),
            (Named(AlarmKind.HOSTS_MISSING, "waiting", UNKNOWN_HOST),),
            (Series('signalbox_job_missing_hosts{job_id="waiting"', 1, 1),),
            (Alert("SignalboxJobWaitsForHosts", {"job_id": "waiting"}),),
            tidy=tidy,
        )

    def differs(self) -> Fault:
        """Announce two ranks, which train without a controller, in reverse order."""
        ips = [self.ip("h1_4"), self.ip("h2_4")]

        def tidy() -> None:
            self.client.deregister_job("backwards")
            for program in self._programs:
                program.kill()

        def make() -> None:
            self._train("backwards", ips)
            self.client.register_job(pipeline("backwards", ips[::-1]))

        return Fault(
            "declared ≠ sent",
            60.0,
            make,
            lambda: self.client.update_job(pipeline("backwards", ips)),
            (Named(AlarmKind.DEMAND_DIFFERS, "backwards", "other direction"),),
            (Series('signalbox_job_demand_differs{job_id="backwards"', 1, 1),),
            (Alert("SignalboxDemandDiffers", {"job_id": "backwards"}),),
            tidy=tidy,
        )

    def _train(self, job: str, ips: list[str]) -> None:
        names = {host.ip: host.name for host in self.lab.hosts}
        meets = self.folder / f"{job}-meets"
        for rank, ip in enumerate(ips):
            words = ["--job", job, "--rank", rank, "--peers", ",".join(ips), "--algorithm", "pipeline_send"]
            words += ["--elements", PAIR_ELEMENTS, "--rendezvous", meets, "--out", self.folder / f"{job}-{rank}.jsonl"]
            argv = [sys.executable, "-m", "mininet_topos.trainer", *map(str, words)]
            self._programs.append(self.lab.popen(names[ip], argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def pipeline(job: str, ips: list[str]) -> JobSpec:
    """Return a job whose first host sends to its second."""
    return announcement(job, ips, Algorithm.PIPELINE_SEND, 4 * PAIR_ELEMENTS, 3600)
