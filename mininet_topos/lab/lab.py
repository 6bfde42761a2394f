"""Emulated fabric: Open vSwitch bridges and hosts in namespaces, created by a ``with`` block and removed after it.

In: a ``FabricTopo`` and the controller's address. The lab runs programs in hosts, cuts and plugs in cables, and stops
and starts switches. Mininet makes namespaces and cables; the lab makes all bridges in one transaction. The lab is
always removed: on Ctrl-C, SIGTERM and SIGHUP at once, after a SIGKILL when the next lab starts.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self, TextIO

from mininet import node
from mininet.net import Mininet

from mininet_topos import ending
from mininet_topos.fabric_topo import FabricTopo, ShellThatEnds
from mininet_topos.lab.record import (
    BRIDGE_MARK,
    LabError,
    LabRecord,
    claim,
    in_one_process,
    interface_exists,
    release,
    run,
    wait_for,
)
from offline.scenarios.topologies import Cable, Host, Switch

Datapath = Literal["kernel", "userspace"]

_TARGET = r"(tcp|ssl|unix):\S+"
"""Pattern of a controller's address (ovs-vsctl(8), "Controller Commands"). A switch reports no error for other texts.

The lab therefore checks the address."""


class _Bridge(ShellThatEnds, node.Switch):  # type: ignore[misc]
    """Stand-in for a switch in Mininet; the lab makes the bridge."""

    shaped_later = True
    """True: the lab shapes the ports later, because adding a port to a bridge clears the port's queueing discipline."""

    def start(self, controllers: object) -> None:
        """Do nothing: the lab makes all bridges in one transaction."""


def available_datapath() -> Datapath:
    """Return ``kernel`` if Open vSwitch's module is loaded or can be loaded, otherwise ``userspace``."""
    if Path("/sys/module/openvswitch").exists():
        return "kernel"
    try:
        run("modprobe", "openvswitch")
    except LabError:
        return "userspace"
    return "kernel"


class Lab:
    """Running fabric. Switches and hosts are named without prefix (``leaf1``, ``h1_2``).

    ``controller``: an address in Open vSwitch's syntax (``tcp:127.0.0.1:6653``), None for no controller. Raises
    ``LabError`` for a wrong address. On entry it also raises ``LabError`` without root, when Open vSwitch does not
    answer, or when names are taken."""

    def __init__(self, topo: FabricTopo, controller: str | None = "tcp:127.0.0.1:6653") -> None:
        if controller and not re.fullmatch(_TARGET, controller):
            raise LabError(f"'{controller}' is not the address of a controller; write tcp:ADDRESS:PORT")
        self.topo = topo
        self.controller = controller
        self.switches = topo.fabric.switches
        self.hosts = topo.fabric.hosts
        self.links = (*(host.cable for host in self.hosts), *topo.fabric.cables)
        self.datapath: Datapath = "userspace"
        self._cut: set[Cable] = set()
        self._stopped: set[str] = set()
        self._programs: list[subprocess.Popen[Any]] = []
        self._net: Mininet | None = None
        self._record = LabRecord(
            prefix=topo.prefix,
            owner=os.getpid(),
            bridges=tuple(self.bridge(switch.name) for switch in self.switches),
            namespaces=tuple(map(self.namespace, self.hosts)),
            interfaces=tuple(name for switch in self.switches for _, name, _ in self._ports(switch.name)),
        )

    def __enter__(self) -> Self:
        if os.geteuid():
            raise LabError("a lab needs root, to make network namespaces and bridges")
        with ExitStack() as undo:
            undo.enter_context(ending.unwinding())
            with ending.held():
                claimed = claim(self._record)
                undo.callback(self._take_down, claimed)
            self._bring_up()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _take_down(self, claimed: TextIO) -> None:
        with ending.held():
            for program in self._programs:  # a program that was just started may not be in its host's namespace yet
                program.kill()
            release(self._record, claimed)
            for program in self._programs:
                program.wait()
            for node in [*self._net.hosts, *self._net.switches] if self._net else []:
                node.terminate()

    def bridge(self, switch: str) -> str:
        """Return the name of a switch's bridge in Open vSwitch."""
        return self.topo.node(switch)

    def namespace(self, host: Host) -> str:
        """Return the name of a host's network namespace."""
        return f"signalbox-{self.topo.node(host.name)}"

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program in a host; the end of the lab kills it.

        The returned process is the program itself, so signals to this process reach the program. It has its own session
        unless ``options`` say otherwise, so Ctrl-C does not reach it."""
        pid = self._node(host).pid
        program = subprocess.Popen(["mnexec", "-a", str(pid), *argv], **{"start_new_session": True, **options})
        self._programs = [*(other for other in self._programs if other.poll() is None), program]
        return program

    def cut(self, a: str, b: str, cable: int = 1) -> None:
        """Cut a cable between two switches, or a host and its leaf: both ends lose the carrier."""
        cut = self._cable(a, b, cable)
        self._cut.add(cut)
        self._set_ends([(cut.b, cut)])

    def plug(self, a: str, b: str, cable: int = 1) -> None:
        restored = self._cable(a, b, cable)
        self._cut.discard(restored)
        self._set_ends([(restored.b, restored)])

    def stop_switch(self, name: str) -> None:
        """Remove a switch: its rules are lost, and its neighbours lose the carrier."""
        self._switch(name)
        self._stopped.add(name)
        self._set_ends((name, cable) for _, _, cable in self._ports(name))
        run("ovs-vsctl", "--if-exists", "del-br", self.bridge(name))

    def start_switch(self, name: str) -> None:
        """Make a stopped switch again: no rules, the same dpid and ports."""
        self._start_bridges([self._switch(name)])
        self._stopped.discard(name)
        self._set_ends((name, cable) for _, _, cable in self._ports(name))

    def wait_connected(self, deadline_s: float = 30.0) -> None:
        """Return once every running switch is connected to the controller. Raises ``LabError`` after ``deadline_s``."""
        running = {self.bridge(switch.name) for switch in self.switches if switch.name not in self._stopped}

        def connected() -> bool:
            states = run("ovs-vsctl", *_each(["get", "Controller", bridge, "is_connected"] for bridge in running))
            return "false" not in states

        wait_for(connected, f"{self.controller} to accept the switches", deadline_s)
        self.reconnect_soon()

    def reconnect_soon(self) -> None:
        """Make connected switches retry every second when they lose the controller, not up to 8 seconds later.

        Open vSwitch 3.1 ignores this setting while a switch is not connected."""
        running = [self.bridge(switch.name) for switch in self.switches if switch.name not in self._stopped]
        listed = run("ovs-vsctl", *_each(["get", "Bridge", bridge, "controller"] for bridge in running))
        controllers = re.findall(r"[0-9a-f-]{36}", listed)
        run("ovs-vsctl", *_each(["set", "Controller", id_, "max_backoff=1000"] for id_ in controllers))

    def _bring_up(self) -> None:
        self.datapath = available_datapath()
        self._net = Mininet(self.topo, switch=_Bridge, controller=None, build=False)
        self._net.build()
        pids = {host: self._node(host.name).pid for host in self.hosts}
        in_one_process("ip", (f"netns attach {self.namespace(host)} {pid}" for host, pid in pids.items()))
        missing = [name for name in self._record.interfaces if not interface_exists(name)]
        if missing:
            raise LabError(f"Mininet did not make {', '.join(missing)}")
        self._start_bridges(self.switches)

    def _start_bridges(self, switches: Sequence[Switch]) -> None:
        run("ovs-vsctl", *_each(step for switch in switches for step in self._bridge_steps(switch)))
        ports = [(switch.name, port, name) for switch in switches for port, name, _ in self._ports(switch.name)]
        taken = run("ovs-vsctl", *_each(["get", "Interface", name, "ofport"] for _, _, name in ports)).split()
        for (switch_name, port, name), number in zip(ports, taken, strict=True):
            if number != str(port):
                raise LabError(f"Open vSwitch did not take {name} as port {port} of {self.bridge(switch_name)}")
        in_one_process("tc", (self._node(switch_name).intf(name).discipline for switch_name, _, name in ports))

    def _bridge_steps(self, switch: Switch) -> Iterator[list[str]]:
        bridge = self.bridge(switch.name)
        yield ["add-br", bridge]
        yield ["set", "Bridge", bridge, f"datapath_type={'system' if self.datapath == 'kernel' else 'netdev'}"]
        yield ["set", "Bridge", bridge, f"other_config:datapath-id={switch.dpid:016x}", "protocols=OpenFlow13"]
        yield ["set", "Bridge", bridge, "fail_mode=secure", "other_config:disable-in-band=true"]
        yield ["set", "Bridge", bridge, f"external_ids:{BRIDGE_MARK}={self._record.mark}"]
        for port, name, _ in self._ports(switch.name):
            yield ["add-port", bridge, name, "--", "set", "Interface", name, f"ofport_request={port}"]
        if self.controller:
            yield ["set-controller", bridge, self.controller]

    def _ports(self, switch: str) -> Iterator[tuple[int, str, Cable]]:
        for cable in self.links:
            for end, port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
                if end == switch:
                    yield port, self.topo.interface(switch, port), cable

    def _set_ends(self, ends: Iterable[tuple[str, Cable]]) -> None:
        """Set cable ends at switches up or down. When one end of a veth pair is down, both ends have no carrier.

        A cut sets the end at ``b`` down, never a host's own end, which would lose its route."""
        steps = []
        for switch, cable in ends:
            port = cable.b_port if cable.b == switch else cable.a_port
            down = switch in self._stopped or (cable in self._cut and cable.b == switch)
            steps.append(f"link set {self.topo.interface(switch, port)} {'down' if down else 'up'}")
        in_one_process("ip", steps)  # so that all ports change at once

    def _node(self, name: str) -> Any:
        if self._net is None:
            raise LabError("the lab is not running")
        try:
            return self._net[self.topo.node(name)]
        except KeyError:
            raise LabError(f"there is no {name} in this lab") from None

    def _switch(self, name: str) -> Switch:
        for switch in self.switches:
            if switch.name == name:
                return switch
        raise LabError(f"there is no switch {name} in this lab")

    def _cable(self, a: str, b: str, number: int) -> Cable:
        for cable in self.links:
            if {cable.a, cable.b} == {a, b} and cable.number == number:
                return cable
        raise LabError(f"there is no cable {number} between {a} and {b}")


def _each(steps: Iterable[list[str]]) -> list[str]:
    """Return the arguments of ovs-vsctl that carry out all steps in one transaction."""
    return [word for step in steps for word in ("--", *step)]
