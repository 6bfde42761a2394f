"""Fabric of Open vSwitch bridges and patch cables, whose cables can be cut and plugged in again.

The fabric is made in few transactions, and always removed. Hosts' ports are patch ports without a peer, which are up
too. Every bridge is marked with the id and start time of the process that made it. A later run can therefore remove the
bridges of a killed run, and no others.
"""

import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase, digits
from typing import NamedTuple, Self

from benchmarks.fabric.blueprint import Blueprint, Cable
from benchmarks.openflow_bytes import Type, message
from controller.fabric.topology import Dpid, PortRef
from mininet_topos.lab.record import run
from signalbox.addresses import host_and_port
from signalbox.errors import SignalboxError

MARK = "signalbox-bench"
MAX_BACKOFF_MS = 1000
"""Longest time between two attempts of a switch to connect; docs/how-to/install.md recommends this value."""
PORTS_AT_ONCE = 2000
"""Number of ports per transaction. The length of a command line is limited (execve(2))."""
DEADLINE_S = 300.0
CONNECT_S = 60.0
FOREIGN_COOKIE = 0xBAD


def rundir() -> Path:
    """Return the directory of the daemons' sockets (ovs-vswitchd(8), "OVS_RUNDIR")."""
    return Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))


def command(*argv: str) -> str:
    """Return the output of a command. Raises ``LabError`` with its error message."""
    return run(*argv, deadline_s=DEADLINE_S)


def check() -> None:
    """Raise ``SignalboxError`` with instructions unless bridges can be made here."""
    if os.geteuid():
        raise SignalboxError("the fabric benchmark needs root: it makes Open vSwitch bridges")
    command("ovs-vsctl", "--version")
    try:
        command("ovs-vsctl", "--timeout=5", "show")
        _control_socket()
    except (SignalboxError, OSError):
        raise SignalboxError(
            "Open vSwitch does not run; start the benchmark with: "
            "scripts/openvswitch.sh run .venv/bin/python -m benchmarks fabric ..."
        ) from None


def version() -> str:
    found = re.search(r"\d+(\.\d+)+", command("ovs-vsctl", "--version"))
    return found[0] if found else "unknown"


def free_tag() -> str:
    """Return three characters with which the name of no bridge or interface begins."""
    taken = {name[:3] for name in (*command("ovs-vsctl", "list-br").split(), *os.listdir("/sys/class/net"))}
    start = os.getpid() % 1296
    for first, second in islice(product(digits + ascii_lowercase, repeat=2), start, None):
        if f"f{first}{second}" not in taken:
            return f"f{first}{second}"
    return "fab"


class Rules(NamedTuple):
    """Rules of one switch as Open vSwitch prints them, one per line."""

    flows: frozenset[str]
    groups: frozenset[str]


class Bridges:
    """Open vSwitch bridges for the switches of a blueprint, made by ``build``.

    ``controllers``: addresses, as HOST:PORT, to which every bridge connects."""

    def __init__(self, blueprint: Blueprint, controllers: Sequence[str]) -> None:
        self.blueprint = blueprint
        self._controllers = controllers
        self._peer = {end: other for a, b in blueprint.cables for end, other in ((a, b), (b, a))}

    def build(self) -> Iterator[int]:
        """Make bridges and ports, and then set the controllers. Yields the number of ports made so far.

        No switch tries to connect while ports are still being made."""
        made: list[str] = []
        for dpid in self.blueprint.dpids:
            made += self._add_bridge(dpid)
        _transaction(made)
        ends = [PortRef(dpid, no) for dpid, switch in self.blueprint.fabric.switches.items() for no in switch.ports]
        for start in range(0, len(ends), PORTS_AT_ONCE):
            _transaction(word for end in ends[start : start + PORTS_AT_ONCE] for word in self._add_port(end))
            yield min(len(ends), start + PORTS_AT_ONCE)
        self._check_made(ends)
        names = [self.blueprint.bridge(dpid) for dpid in self.blueprint.dpids]
        targets = [f"tcp:{address}" for address in self._controllers]
        with ExitStack() as stack:
            greeters = [stack.enter_context(_Greeter(address)) for address in self._controllers]
            _transaction(word for bridge in names for word in ("--", "set-controller", bridge, *targets))
            for greeter in greeters:
                greeter.greet(len(names))
            made = [word for bridge in names for word in ("--", "get", "Bridge", bridge, "controller")]
            settings = re.findall(r"[0-9a-f-]{36}", command("ovs-vsctl", *made))
            limit = f"max_backoff={MAX_BACKOFF_MS}"
            _transaction(word for setting in settings for word in ("--", "set", "Controller", setting, limit))

    def _check_made(self, ends: Iterable[PortRef]) -> None:
        """Raise ``SignalboxError`` if a port is missing, because ovs-vsctl only prints a warning then."""
        found = json.loads(command("ovs-vsctl", "--format=json", "--columns=name,ofport", "list", "Interface"))
        made = dict(found["data"])
        failed = [self.blueprint.interface(end) for end in ends if made.get(self.blueprint.interface(end)) != end.port]
        if failed:
            message = f"Open vSwitch did not make {len(failed)} ports, such as {failed[0]}; its log has the reason"
            raise SignalboxError(f"{message} (a second ovs-vswitchd on this machine cannot have a userspace datapath)")

    def cut(self, cables: Iterable[Cable]) -> None:
        """Cut cables by deleting the ports at both ends in one transaction.

        If one of two patch ports is deleted, Open vSwitch reports nothing for the other."""
        _transaction(
            word
            for cable in cables
            for end in cable
            for word in ("--", "del-port", self.blueprint.bridge(end.dpid), self.blueprint.interface(end))
        )

    def plug(self, cables: Iterable[Cable]) -> None:
        _transaction(word for cable in cables for end in cable for word in self._add_port(end))

    def drop_lldp(self, ends: Iterable[PortRef]) -> None:
        """Drop the LLDP packets that arrive at these ports.

        The rule is not the controller's, and has the highest priority."""
        for end in ends:
            rule = f"cookie={FOREIGN_COOKIE:#x},priority=65535,in_port={end.port},dl_type=0x88cc,actions=drop"
            command("ovs-ofctl", "-O", "OpenFlow13", "add-flow", self.blueprint.bridge(end.dpid), rule)

    def pass_lldp(self, ends: Iterable[PortRef]) -> None:
        for dpid in {end.dpid for end in ends}:
            bridge = self.blueprint.bridge(dpid)
            command("ovs-ofctl", "-O", "OpenFlow13", "del-flows", bridge, f"cookie={FOREIGN_COOKIE:#x}/-1")

    def reconnect(self) -> None:
        """Make every bridge reconnect to the controller (ovs-vswitchd(8), "bridge/reconnect")."""
        with _control_socket() as control:
            for dpid in self.blueprint.dpids:
                request = {"id": dpid, "method": "bridge/reconnect", "params": [self.blueprint.bridge(dpid)]}
                control.sendall(json.dumps(request).encode())
                answer = json.loads(control.recv(1 << 16))
                if answer.get("error"):
                    raise SignalboxError(f"bridge/reconnect: {answer['error']}")

    def rules(self, dpid: Dpid) -> Rules:
        """Return the flows and groups of a switch, without counters and ages."""
        bridge = self.blueprint.bridge(dpid)
        flows = command("ovs-ofctl", "-O", "OpenFlow13", "--no-names", "--no-stats", "dump-flows", bridge)
        groups = command("ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-groups", bridge)
        return Rules(*(frozenset(map(str.strip, text.splitlines()[1:])) for text in (flows, groups)))

    def _add_bridge(self, dpid: Dpid) -> list[str]:
        bridge = self.blueprint.bridge(dpid)
        settings = ("datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13")
        more = (f"other_config:datapath-id={dpid:016x}", "other_config:disable-in-band=true")
        mark = f"external_ids:{MARK}={_owner(os.getpid())}"
        return ["--", "add-br", bridge, "--", "set", "Bridge", bridge, *settings, *more, mark]

    def _add_port(self, end: PortRef) -> list[str]:
        name, peer = self.blueprint.interface(end), self._peer.get(end)
        leads_to = self.blueprint.interface(peer) if peer else f"{name}-host"
        settings = ("type=patch", f"options:peer={leads_to}", f"ofport_request={end.port}")
        return [
            *("--", "add-port", self.blueprint.bridge(end.dpid), name),
            *("--", "set", "Interface", name, *settings),
        ]


class _Greeter:
    """Temporary server at a controller's address, to which every switch connects once.

    Open vSwitch 3.1 ignores ``max_backoff`` until it has reached a controller, and waits up to 8 s between attempts."""

    def __init__(self, address: str) -> None:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(socket.create_server(host_and_port(address), backlog=1024))
        self._server.settimeout(CONNECT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def greet(self, count: int) -> None:
        for _ in range(count):
            switch, _address = self._server.accept()
            self._stack.enter_context(switch)
            switch.settimeout(CONNECT_S)
            switch.sendall(message(Type.HELLO, 1))
            switch.recv(1024)


@contextmanager
def bridges(blueprint: Blueprint, controller: str) -> Iterator[Bridges]:
    """Yield bridges that are not made yet (see ``build``), and remove them at the end.

    ``controller``: address, as HOST:PORT, at which the controller will listen."""
    try:
        yield Bridges(blueprint, [controller])
    finally:
        mine = f"external_ids:{MARK}={_owner(os.getpid())}"
        remove(command("ovs-vsctl", "--bare", "--columns=name", "find", "Bridge", mine).split())


def remove_leftovers() -> int:
    """Remove the bridges of killed runs, and return their number."""
    found = command("ovs-vsctl", "--format=json", "--columns=name,external_ids", "find", "Bridge")
    dead = [name for name, ids in json.loads(found)["data"] if (owner := dict(ids[1]).get(MARK)) and not _lives(owner)]
    remove(dead)
    return len(dead)


def remove(names: Sequence[str]) -> None:
    _transaction(word for name in names for word in ("--", "--if-exists", "del-br", name))


def _owner(pid: int) -> str:
    """Return the id and start time of a process (proc(5), field 22 of ``stat``). No later process has both."""
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{pid}-{started}"


def _lives(owner: str) -> bool:
    try:
        return _owner(int(owner.partition("-")[0])) == owner
    except (OSError, ValueError):
        return False


def _transaction(words: Iterable[str]) -> None:
    words = list(words)
    if words:
        command("ovs-vsctl", *words)


def _control_socket() -> socket.socket:
    pid = (rundir() / "ovs-vswitchd.pid").read_text().strip()
    control = socket.socket(socket.AF_UNIX)
    control.settimeout(DEADLINE_S)
    control.connect(str(rundir() / f"ovs-vswitchd.{pid}.ctl"))
    return control
