"""A real controller process on real switches, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controller.api.client import Client, Unreachable
from mininet_topos.demo.parts import free_port
from mininet_topos.fabric_topo import FabricTopo
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for

LINK_MBPS = 5.0

CONFIG = """
state_dir = {state}
[openflow]
port = {openflow}
{more_openflow}
[api]
listen = [{api}]
[metrics]
port = 0
[discovery]
edge_after_s = 1.0
[fabric]
link_bps = {bps}
host_link_bps = {bps}
"""


@dataclass
class ControllerProcess:
    """``signalbox serve`` with its files in ``folder``; started, killed and started again at will. ``more_openflow``:
    lines for that section of the configuration."""

    folder: Path
    openflow_port: int
    link_mbps: float = LINK_MBPS
    process: subprocess.Popen[bytes] | None = field(default=None)
    more_openflow: str = ""

    @property
    def address(self) -> str:
        return f"unix:{self.folder / 'api.sock'}"

    def start(self, *options: str) -> None:
        config = self.folder / "signalbox.toml"
        config.write_text(
            CONFIG.format(
                state=json.dumps(str(self.folder / "state")),
                openflow=self.openflow_port,
                more_openflow=self.more_openflow,
                api=json.dumps(self.address),
                bps=self.link_mbps * 1e6,
            )
        )
        with (self.folder / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controller", "serve", "--config", str(config), *options], stderr=log
            )

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process
        os.kill(self.process.pid, number)
        return self.process.wait(timeout=20)


@contextmanager
def running_fabric(
    topo: FabricTopo, folder: Path, link_mbps: float = LINK_MBPS, more_openflow: str = ""
) -> Iterator[tuple[Lab, ControllerProcess, Client]]:
    """A lab under a controller that has found every link; all links have one rate."""
    controller = ControllerProcess(folder, free_port(), link_mbps, more_openflow=more_openflow)
    controller.start()
    with ExitStack() as stack:
        stack.callback(lambda: controller.process and controller.process.poll() is None and controller.kill())
        lab = stack.enter_context(Lab(topo, controller=f"tcp:127.0.0.1:{controller.openflow_port}"))
        client = stack.enter_context(Client(controller.address))
        links = fabric_links(lab)
        wait_for(lambda: settled(client, links), "every link found", 60)
        yield lab, controller, client


def fabric_links(lab: Lab) -> int:
    """Directed links between switches."""
    switches = {switch.name for switch in lab.switches}
    return 2 * sum(cable.a in switches for cable in lab.links)


def settled(client: Client, links: int) -> bool:
    """Every link is found, every switch in sync, nothing is being adopted."""
    try:
        status = client.get_status()
    except Unreachable:
        return False
    return status.links == links and status.switches_in_sync == status.switches > 0 and not status.adopting


class Snoop:
    """Counts the changes that the switches themselves see coming from controllers."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._files = {lab.bridge(switch.name): folder / f"{lab.bridge(switch.name)}.snoop" for switch in lab.switches}
        self._stack = ExitStack()

    def __enter__(self) -> Snoop:
        for bridge, path in self._files.items():
            file = self._stack.enter_context(path.open("w"))
            argv = ["ovs-ofctl", "-O", "OpenFlow13", "snoop", bridge]
            process = self._stack.enter_context(subprocess.Popen(argv, stdout=file, stderr=file))
            self._stack.callback(process.terminate)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count(self, kind: str) -> int:
        return sum(len(re.findall(rf"^{kind}", path.read_text(), re.MULTILINE)) for path in self._files.values())
