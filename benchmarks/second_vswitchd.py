"""Additional spine in a second Open vSwitch, which can be frozen while the switches of the lab continue.

The second Open vSwitch runs in namespaces of its own. The spine has cables to some of the lab's leaves.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from benchmarks.interrupts import SCRIPT, Place, place
from benchmarks.live.relay import relay
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run
from signalbox.errors import SignalboxError

DPID = 0x1F0
FIRST_PORT = 90
"""Number above the port numbers of the lab. On a leaf, the cables to the second spine have the numbers after it."""
DAEMON = "ovs-vswitchd"


class SecondSpine:
    """Spine in the second Open vSwitch. ``name``: name of its bridge. ``leaves``: leaves to which it has cables."""

    def __init__(self, lab: Lab, inside: Place, leaves: Sequence[str]) -> None:
        self.name = f"{lab.topo.prefix}second"
        self.leaves = leaves
        self._inside = inside
        self._lab = lab

    @property
    def socket(self) -> str:
        """Unix socket for the connection to the controller, relative to the parent of Open vSwitch's run directory."""
        return f"openvswitch/{self.name}.controller"

    def build(self) -> None:
        made = ["add-br", self.name, "--", "set", "bridge", self.name, "datapath_type=netdev", "protocols=OpenFlow13"]
        made += [f"other_config:datapath-id={DPID:016x}", "fail_mode=secure", "other_config:disable-in-band=true"]
        for number, leaf in enumerate(self.leaves, 1):
            outer, inner = f"{self._lab.bridge(leaf)}-x{number}", f"{self.name}-eth{number}"
            with suppress(LabError):  # left by a killed run
                run("ip", "link", "delete", outer)
            words = ["link", "add", outer, "type", "veth", "peer", "name", inner]
            run("ip", *words, "netns", str(self._inside.holder))
            run("ip", "link", "set", outer, "up")
            self._run("ip", "link", "set", inner, "up")
            port = ["add-port", self._lab.bridge(leaf), outer, "--", "set", "interface", outer]
            run("ovs-vsctl", *port, f"ofport_request={FIRST_PORT + number}")
            made += ["--", "add-port", self.name, inner, "--", "set", "interface", inner, f"ofport_request={number}"]
        self._run("ovs-vsctl", *made, "--", "set-controller", self.name, f"unix:/var/run/{self.socket}")

    def _run(self, *argv: str) -> None:
        words = self._inside.enter(*argv)
        done = subprocess.run(words, env=self._inside.environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SignalboxError(f"{' '.join(argv)}: {done.stderr.strip()}")

    def start(self) -> None:
        self._run(SCRIPT, "start")

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to ovs-vswitchd and to the process that monitors it."""
        for pid, words in self._inside.processes().items():
            if DAEMON in words:
                os.kill(pid, number)


@contextmanager
def second_spine(lab: Lab, controller_port: int, leaves: Sequence[str]) -> Iterator[SecondSpine]:
    """Run the second spine while the block runs.

    Its cables end with its namespaces. Their ports stay on the bridges of the lab."""
    with place() as inside:
        made = SecondSpine(lab, inside, leaves)
        made.start()
        with relay(f"/proc/{inside.holder}/root/run/{made.socket}", str(controller_port)):
            made.build()
            yield made
