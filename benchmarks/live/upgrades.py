"""Benchmark ``upgrades``: rolling upgrade of several controllers while jobs train, without loss and without new rules.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks upgrades [--members N] [--out DIR] [--json]

The members divide the switches. One after the other, the leader last, each is drained, stopped, started with the next
version, and undrained. The next version is this one with higher version numbers and new fields
(``tests.support.wire.next_version``). Three jobs train on the demo's fabric. Two pinned pairs are probed every
millisecond, all others every 10 ms. The result is a table and ``upgrades.json``; ``--json`` prints the JSON instead.

The exit status is 1 in these cases:

- A packet was lost that no queue dropped, or an iteration of a job.
- A rule or group was changed.
- A job was lost, or registered again.
- A member does not have the next version in the end, or holds no switch.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.live.failures import (
    CLOSE_S,
    QUIET_S,
    RAW,
    SETTLE_TIMEOUT_S,
    WIDE_S,
    Scene,
    pick_spine,
)
from benchmarks.live.failures_report import Role, build_report
from benchmarks.measures import report
from controller.store.records import FORMAT
from controller.tables.rules import COOKIE_MAGIC
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.demo.parts import RouteWatch, Training
from mininet_topos.demo.phases import ELEMENTS, HOSTS_PER_LEAF, JOBS, LEAVES, RATE_BPS, SPINES, ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.lab.running_fabric import explained, fabric_links, masters, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.probing import Pair, Probing
from mininet_topos.probe.queues import PROBE_TOS, large_socket_buffers, prioritise_probes
from mininet_topos.trainer.log import read_rank_logs
from signalbox.client import Client
from signalbox.commands.output import AsJson
from signalbox.errors import SignalboxError
from tests.support.lab.snoop import Snoop
from tests.support.wire.etcd import running_etcd

NAMES = ("one", "two", "another")
"""Names of the members. By the hashes of these, each member is the first choice for some switch, and gets it back."""
NEXT = ("tests.support.wire.next_version", "serve")
POLL_S = 0.1
MOST_SHOWN = 20
LEASE_S = 60.0
"""Lease of the jobs in seconds. It must last while the member that a job calls is restarted."""
CHANGES = {"flow_mods": f"OFPT_FLOW_MOD(?!.*:0x{COOKIE_MAGIC:x}ff)", "group_mods": "OFPT_GROUP_MOD"}
"""Patterns of the messages that change rules or groups.

Rules that only count unannounced pairs of hosts do not match, because a new control loop deletes these.
"""


@dataclass
class Member:
    """Controller, and the TCP address of its API for this process. Hosts reach only its Unix socket."""

    name: str
    controller: ControllerProcess
    api: str


@dataclass
class Upgrade:
    """Members, the first of which leads, and the jobs and probes on their fabric."""

    members: Sequence[Member]
    scene: Scene
    jobs: dict[str, str]
    """Uid of each job before the upgrade."""
    mods: dict[str, list[str]] = field(default_factory=dict)
    """Messages that changed rules or groups during the upgrade, each with its bridge."""

    def missing(self) -> str:
        """Return what is not in order yet; empty if everything is."""
        scene = self.scene
        try:
            held = {found.name: found.switches for found in scene.client.list_members()}
            if not settled(scene.client, scene.links):
                return f"links and rules of {sum(held.values())} held switches"
            if len(hosts := scene.client.get_fabric().hosts) < len(scene.lab.hosts):
                return f"hosts; only {len(hosts)} are known"
        except SignalboxError as error:
            return str(error)
        if not scene.all_pinned():
            return f"pins; the routes are {scene.routes()}"
        found = masters(scene.lab)
        of_targets = Counter(found.values())
        as_held = {member.name: of_targets[member.controller.target] for member in self.members}
        return "" if as_held == held and len(found) == len(scene.lab.switches) else f"masters {found}; held: {held}"

    def upgrade(self, member: Member, turn: int) -> None:
        """Replace the member by one with the next version."""
        scene, name = self.scene, member.name
        _, up, down, roles = pick_spine(scene, turn)

        def replace() -> None:
            member.controller.stop()
            member.controller.program = NEXT
            member.controller.start("--standby")

        with scene.closely((up, down)):
            self._step("drained", name, roles, lambda: scene.client.drain_member(name), lambda one: not one.switches)
            self._step("replaced", name, roles, replace, lambda one: one.state_format == FORMAT + 1)
            self._step("used again", name, roles, lambda: scene.client.undrain_member(name), lambda one: one.switches)

    def _step(
        self,
        what: str,
        name: str,
        roles: Mapping[Pair, Role],
        act: Callable[[], object],
        wanted: Callable[[Any], object],
    ) -> None:
        """Call ``act``, and wait until ``wanted`` accepts the listed member and everything is in order.

        Raises ``LabError`` when this takes too long."""
        missing = ""

        def is_done() -> bool:
            nonlocal missing
            try:
                one = next((one for one in self.scene.client.list_members() if one.name == name), None)
                missing = self.missing() if one and wanted(one) else f"the member, which is listed as {one}"
            except SignalboxError as error:
                missing = str(error)
            return not missing

        try:
            self.scene.phase(what, name, roles, act, is_done)
        except LabError as error:
            raise LabError(f"{error}; still missing: {missing}") from error

    def registered(self) -> dict[str, str]:
        """Return the uid of each registered job. Raises ``SignalboxError``."""
        return {job.spec.job_id: job.uid for job in self.scene.client.list_jobs()}


def run_upgrade(here: Upgrade, folder: Path) -> None:
    """Upgrade all members, the leader last, and record the messages that change rules."""
    with Snoop(here.scene.lab, folder) as snoop:
        for turn, member in enumerate((*here.members[1:], here.members[0])):
            here.upgrade(member, turn)
        here.mods = {name: snoop.messages(pattern) for name, pattern in CHANGES.items()}


def finish(here: Upgrade, folder: Path) -> dict[str, Any]:
    """End probes and training, and return the content of ``upgrades.json``. Raises ``DemoError`` when a rank failed."""
    registered, listed = here.registered(), here.scene.client.list_members()
    streams, overflows = here.scene.probing.finish()
    here.scene.training.stop()
    found = build_report(here.scene.events, streams, overflows, read_rank_logs(folder / RAW))
    members = {one.name: {"format": one.state_format, "switches": one.switches} for one in listed}
    found |= {"members": members, "mods": {what: len(messages) for what, messages in here.mods.items()}}
    return {**found, "broken": list(_broken(here, found, registered))}


def _broken(here: Upgrade, found: dict[str, Any], registered: dict[str, str]) -> Iterator[str]:
    for event in found["events"]:
        lost, dropped = sum(role["lost"] for role in event["roles"].values()), sum(event["drops"].values())
        if lost > dropped:
            yield f"{event['element']} {event['what']}: {lost} packets lost, of which queues dropped {dropped}"
    for what in ("restarts", "arithmetic_errors", "iterations_lost"):
        if found["jobs"][what]:
            yield f"{what}: {found['jobs'][what]}"
    for what, messages in here.mods.items():
        if messages:
            yield "\n".join((f"{what}: {len(messages)}", *messages[:MOST_SHOWN]))
    for job, uid in here.jobs.items():
        if registered.get(job) != uid:
            yield f"job {job} is {'registered again' if job in registered else 'lost'}"
    for member in here.members:
        one = found["members"].get(member.name)
        if one is None or one["format"] != FORMAT + 1 or not one["switches"]:
            yield f"member {member.name} is listed as {one}"


# ---- setting


@contextmanager
def upgrade_of(
    topo: LeafSpine,
    folder: Path,
    members: int,
    elements: int,
    jobs: int,
    close_s: float = CLOSE_S,
    quiet_s: float = QUIET_S,
) -> Iterator[Upgrade]:
    """Run the members on one etcd, jobs that train on their pins, and probes."""
    raw = folder / RAW
    raw.mkdir()
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder / "etcd"))
        rate_bps = topo.fabric.hosts[0].bps
        found = [_member(folder, name, f"etcd://{etcd.endpoint}", rate_bps) for name in NAMES[:members]]
        for member in found:
            stack.callback(member.controller.kill)
            member.controller.start("--standby")
            own = stack.enter_context(Client(member.api))
            with explained(member.controller, own):
                wait_for(lambda: _is_listed(own, member), f"member {member.name}", SETTLE_TIMEOUT_S, POLL_S)  # noqa: B023
        lab = stack.enter_context(Lab(topo, found[0].controller.target))
        for switch in lab.switches:
            targets = (member.controller.target for member in found)
            run("ovs-vsctl", "set-controller", lab.bridge(switch.name), *targets)
        addresses, links = ",".join(member.api for member in found), fabric_links(lab)
        client = stack.enter_context(Client(addresses))
        with explained(found[0].controller, client):
            wait_for(lambda: settled(client, links), f"{links} directed links", SETTLE_TIMEOUT_S, POLL_S)
        prioritise_probes(lab)
        rings = ring_jobs(lab)[:jobs]
        training = Training(lab, rings, elements, found[0].controller.address, folder / "ports", raw, lease_s=LEASE_S)
        training.start()
        watch = stack.enter_context(RouteWatch(addresses, [ring.job_id for ring in rings]))
        probing = stack.enter_context(Probing(lab, lab.hosts, raw, PROBE_TOS))
        scene = Scene(lab, found[0].controller, client, training, probing, watch, close_s, quiet_s)
        here = Upgrade(found, scene, {})
        for pair in sorted(scene.announced() | scene.hashed()):
            probing.send(pair, WIDE_S)
        with explained(found[0].controller, client):
            wait_for(lambda: not here.missing(), "every host and every job's pins", SETTLE_TIMEOUT_S, POLL_S)
        here.jobs = here.registered()
        yield here


def _member(folder: Path, name: str, store: str, rate_bps: float) -> Member:
    its_folder = folder / name
    its_folder.mkdir()
    api = f"127.0.0.1:{reserve_port()}"
    settings: Settings = {
        "members": {"name": name, "api": f"unix:{its_folder / 'members.sock'}"},
        "api": {"listen": [f"unix:{its_folder / 'api.sock'}", api]},
        "etcd": {"lease_s": 3},
        "discovery": {"edge_after_s": 1.0},
        "fabric": {"link_bps": rate_bps, "host_link_bps": rate_bps},
        "planning": {"max_moves": 0},  # the benchmark counts changed rules, so no plan may move a flow
    }
    return Member(name, ControllerProcess(its_folder, settings=settings, store=store), api)


def _is_listed(client: Client, member: Member) -> bool:
    member.controller.check()
    try:
        return member.name in {found.name for found in client.list_members()}
    except SignalboxError:
        return False


def main(
    members: Annotated[int, typer.Option(min=2, max=len(NAMES), help="Number of members.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/upgrades"),
    as_json: AsJson = False,
) -> None:
    """Replace the members by the next version under load, and count what is lost or written."""
    mbps = RATE_BPS / 1e6
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps, prefix="ug")
    with large_socket_buffers(), tempfile.TemporaryDirectory(prefix="signalbox-ug-") as name:
        folder = Path(name)
        try:
            with upgrade_of(topo, folder, members, ELEMENTS, JOBS) as here:
                run_upgrade(here, folder)
                found = finish(here, folder)
        finally:
            out.mkdir(parents=True, exist_ok=True)
            for log in folder.glob("*/controller.log"):
                shutil.copy(log, out / f"{log.parent.name}.log")
    broken = (f"BROKEN {text}" for text in found["broken"])
    tables = {"Events": found["summary"], "Jobs": [found["jobs"]], "Changed rules": [found["mods"]]}
    report(found, out / "upgrades.json", as_json, tables, *broken)
    if found["broken"]:
        raise typer.Exit(1)
