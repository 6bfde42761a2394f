"""Labs that are ready for use: with a controller that has found every link, with static rules, or with training jobs.

``running_fabric`` runs a lab and its controller. ``install_static_routes`` and ``install_circuits`` write rules in a
lab without a controller. ``WholeTraining`` runs a process of ``trainer.whole_job`` for each rank of a job's file.
"""

import csv
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from controller.circuits.wiring.circuits import Wiring, hops_between
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.fabric_topo import FabricTopo
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.trainer.log import RankLog, read_rank_log
from mininet_topos.trainer.parts import read_job
from offline.scenarios.topologies import Host
from signalbox.client import Client, Unreachable
from signalbox.errors import SignalboxError

LINK_MBPS = 5.0
FOUND_S = 60.0


@contextmanager
def running_fabric(
    topo: FabricTopo,
    folder: Path,
    link_mbps: float = LINK_MBPS,
    settings: Settings | None = None,
    program: tuple[str, ...] = ("controller", "serve"),
    store: str = "sqlite",
) -> Iterator[tuple[Lab, ControllerProcess, Client]]:
    """Run a lab whose links all have one rate, and a controller with its files in ``folder``.

    ``settings`` override the settings of this function, key by key. ``store``: value of the setting ``store``."""
    rates = {"link_bps": link_mbps * 1e6, "host_link_bps": link_mbps * 1e6}
    mine: Settings = {"discovery": {"edge_after_s": 1.0}, "fabric": rates}
    given = settings or {}
    both = {section: {**mine.get(section, {}), **given.get(section, {})} for section in {**mine, **given}}
    controller = ControllerProcess(folder, settings=both, program=program, store=store)
    with ExitStack() as stack:
        stack.callback(controller.kill)
        controller.start()
        lab = stack.enter_context(Lab(topo, controller.target))
        client = stack.enter_context(Client(controller.address))
        links = fabric_links(lab)
        with explained(controller, client):
            wait_for(lambda: controller.ready(client), "the controller's first answer", FOUND_S)
            wait_for(lambda: settled(client, links), f"{links} directed links", FOUND_S)
        lab.reconnect_soon()
        yield lab, controller, client


@contextmanager
def explained(controller: ControllerProcess, client: Client) -> Iterator[None]:
    """Add the controller's status and the end of its log to a ``LabError`` raised inside."""
    try:
        yield
    except LabError as error:
        try:
            reported = str(client.get_status())
        except SignalboxError as no_answer:
            reported = str(no_answer)
        raise LabError(f"{error}\n{reported}\nThe controller's log ends:\n{controller.last_lines()}") from error


def fabric_links(lab: Lab) -> int:
    """Return the number of directed links between switches."""
    return 2 * len(lab.topo.fabric.cables)


def settled(client: Client, links: int) -> bool:
    """Return whether every link is found, every switch in sync, and the adoption of rules finished."""
    try:
        status = client.get_status()
    except Unreachable:
        return False
    return status.links == links and status.switches_in_sync == status.switches > 0 and not status.adopting


def masters(lab: Lab) -> dict[str, str]:
    """Return the address of the controller that each switch has as its master; a switch without one has no entry."""
    listed = _listed("controller", "_uuid,target,role")
    addresses = {id_: target.strip('"') for id_, target, role in listed if role == "master"}
    controllers = {name: re.findall(r"[0-9a-f-]{36}", ids) for name, ids in _listed("bridge", "name,controller")}
    return {
        switch.name: addresses[id_]
        for switch in lab.switches
        for id_ in controllers.get(lab.bridge(switch.name), ())
        if id_ in addresses
    }


def _listed(table: str, columns: str) -> list[list[str]]:
    """Return the rows of a table of Open vSwitch."""
    found = run("ovs-vsctl", "--format=csv", "--no-headings", f"--columns={columns}", "list", table)
    return list(csv.reader(found.splitlines()))


def install_static_routes(lab: Lab) -> None:
    """Route unicast IP and ARP by destination over spine1.

    Hosts know each other's MAC, so nothing is broadcast."""
    uplinks = {cable.a: cable for cable in lab.links if cable.b == "spine1" and cable.number == 1}
    for switch in lab.switches:
        rules = []
        for host in lab.hosts:
            if switch.name == host.leaf:
                port = host.port
            elif switch.name == "spine1":
                port = uplinks[host.leaf].b_port
            elif switch.name in uplinks:
                port = uplinks[switch.name].a_port
            else:
                continue
            rules += _to(host, f"output:{port}")
        _install(lab, switch.name, rules)
    _introduce(lab)


def install_circuits(lab: Lab, wiring: Wiring) -> None:
    """Install a wiring on a direct-connect fabric: circuits, and shortest paths by destination on the servers.

    Each server uses one of the shortest paths. Existing rules stay."""
    hops = hops_between(wiring)
    servers = range(1, wiring.servers + 1)
    for k, peers in enumerate(wiring.peers, 1):
        circuits = [f"in_port={i},actions=output:{peer + 1}" for i, peer in enumerate(peers, 1) if peer is not None]
        _install(lab, f"optical{k}", circuits)
    for i, host_here in zip(servers, lab.hosts, strict=True):
        rules = _to(host_here, f"output:{host_here.port}")
        for j, host in zip(servers, lab.hosts, strict=True):
            nearer = [
                k
                for k, peers in enumerate(wiring.peers, 1)
                if (peer := peers[i - 1]) is not None and 0 <= hops[peer, j - 1] < hops[i - 1, j - 1]
            ]
            if nearer:
                # An output to the ingress port is dropped unless the port field is cleared first.
                rules += _to(host, f"load:0->NXM_OF_IN_PORT[],output:{1 + nearer[(i + j) % len(nearer)]}")
        _install(lab, f"server{i}", rules)
    _introduce(lab)


def _to(host: Host, actions: str) -> list[str]:
    return [f"ip,nw_dst={host.ip},actions={actions}", f"arp,arp_tpa={host.ip},actions={actions}"]


def _install(lab: Lab, switch: str, rules: Sequence[str]) -> None:
    run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", lab.bridge(switch), "-", feed="\n".join(rules))


def _introduce(lab: Lab) -> None:
    for host in lab.hosts:
        interface = lab.topo.interface(host.name, 0)
        neighbours = [f"neigh replace {o.ip} lladdr {o.mac} dev {interface}" for o in lab.hosts if o is not host]
        program = lab.popen(host.name, ["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
        program.communicate("\n".join(neighbours))
        assert program.returncode == 0


STOP_TIMEOUT_S = 60.0


class WholeTraining:
    """Training of one job.

    ``job``: file whose endpoints are addresses of the lab's hosts. ``folder``: directory of this training alone, for
    the logs and the files that ranks share. ``api``: address of the controller's API, None for none. ``iterations``:
    number after which it ends by itself. Raises ``InvalidInput`` for a wrong job, ``LabError`` for an address that no
    host has."""

    def __init__(
        self, lab: Lab, job: Path, folder: Path, api: str | None = None, iterations: int | None = None
    ) -> None:
        endpoints = read_job(job).spec.endpoints
        names = {host.ip: host.name for host in lab.hosts}
        if strangers := set(endpoints) - names.keys():
            raise LabError(f"no host of this lab has the address {', '.join(sorted(strangers))}")
        folder.mkdir(parents=True, exist_ok=True)
        self._logs = [folder / f"rank{rank}.jsonl" for rank in range(len(endpoints))]
        shared = ["--spec", str(job), "--rendezvous", str(folder / "rendezvous")]
        shared += ["--iterations", str(iterations)] if iterations else []
        self._ranks = [
            self._start(lab, names[ip], rank, [*shared, *(["--api", api] if api and rank == 0 else [])])
            for rank, ip in enumerate(endpoints)
        ]

    def _start(self, lab: Lab, host: str, rank: int, options: list[str]) -> subprocess.Popen[Any]:
        log = self._logs[rank]
        argv = [sys.executable, "-m", "mininet_topos.trainer.whole_job", "--rank", str(rank), "--out", str(log)]
        with log.with_suffix(".log").open("w") as output:
            return lab.popen(host, [*argv, *options], stdout=output, stderr=subprocess.STDOUT)

    def process(self, rank: int) -> subprocess.Popen[Any]:
        return self._ranks[rank]

    @property
    def size(self) -> int:
        return len(self._ranks)

    def stop(self) -> None:
        """Request all ranks to end after an iteration; return at once."""
        self._ranks[0].send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Return when all ranks have ended.

        Raises ``LabError`` with the output of a rank that failed, and for one that did not end."""
        for rank, process in enumerate(self._ranks):
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise LabError(f"rank {rank} did not end within {timeout_s:g} s") from None
            if status:
                said = self._logs[rank].with_suffix(".log").read_text().strip()
                raise LabError(f"rank {rank} ended with status {status}: {said}")

    def kill(self) -> None:
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()

    def logs(self) -> list[RankLog]:
        """Return the logs by rank, as far as they are written; every rank must have begun its log."""
        return [read_rank_log(log) for log in self._logs]
