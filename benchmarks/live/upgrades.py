"""Benchmark ``upgrades``: rolling upgrade of several controllers while jobs train, without loss and without new rules.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks upgrades [--members N] [--out DIR]

The members divide the switches. One after the other, the leader last, each is drained, stopped, started with the next
version, and undrained. The next version is this one with higher version numbers and new fields
(``tests.support.wire.next_version``). Three jobs train on the demo's fabric. Two pinned pairs are probed every
millisecond, all others every 10 ms. The result is a table and ``upgrades.json``.

The exit status is 1 in these cases:

- A packet that no queue dropped, or an iteration of a job, was lost.
- A rule or group was changed.
- A job was lost, or registered again.
- A member does not have the next version in the end, or holds no switch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.live import failures
from benchmarks.live.failures import CLOSE_S, QUIET_S, RAW, SETTLE_TIMEOUT_S, Scene, pick_spine
from benchmarks.live.failures_report import Role
from benchmarks.measures import report
from controller.store.records import FORMAT
from controller.tables.rules import COOKIE_MAGIC
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.demo.parts import RouteWatch, Training
from mininet_topos.demo.phases import ELEMENTS, JOBS, ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.lab.running_fabric import explained, fabric_links, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.probing import Pair, Probing
from mininet_topos.probe.queues import PROBE_TOS, prioritise_probes
from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.support.lab.snoop import Snoop
from tests.support.wire.etcd import running_etcd

NAMES = ("one", "two", "another")
"""Names of the members; by their hashes, each member is the first choice for some switch, and gets it back."""
NEXT = ("tests.support.wire.next_version", "serve")
POLL_S = 0.1
MOST_SHOWN = 20
LEASE_S = 60.0
"""Lease of the jobs in seconds. It must last while the member that a job calls is restarted."""
MEMBER_LEASE_S = 3
"""Lease of a member in seconds. A member that etcd or the machine delays for longer loses its switches."""
CHANGES = {"flow_mods": f"OFPT_FLOW_MOD(?!.*:0x{COOKIE_MAGIC:x}ff)", "group_mods": "OFPT_GROUP_MOD"}
"""Patterns of the messages that change rules or groups.

Rules that only count unannounced pairs of hosts do not match, because a new control loop deletes such rules.
"""


@dataclass
class Upgrade:
    """Members, the first of which leads, and the jobs and probes on their fabric. A member has its folder's name."""

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
        holders = scene.holders()
        as_held = Counter(holders.values()) == Counter(held) and len(holders) == len(scene.lab.switches)
        return "" if as_held else f"holders of switches: {holders}; held: {held}"

    def upgrade(self, member: ControllerProcess, turn: int) -> None:
        """Replace the member by one with the next version."""
        scene, name = self.scene, member.folder.name
        _, up, down, roles = pick_spine(scene, turn)

        def replace() -> None:
            member.stop()
            member.program = NEXT
            member.start("--standby")

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
        leader, *others = here.scene.members
        for turn, member in enumerate((*others, leader)):
            here.upgrade(member, turn)
        here.mods = {name: snoop.messages(pattern) for name, pattern in CHANGES.items()}


def finish(here: Upgrade) -> dict[str, Any]:
    """End probes and training, and return the content of ``upgrades.json``. Raises ``DemoError`` when a rank failed."""
    registered, listed = here.registered(), here.scene.client.list_members()
    found = failures.finish(here.scene)
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
    for name in (member.folder.name for member in here.scene.members):
        one = found["members"].get(name)
        if one is None or one["format"] != FORMAT + 1 or not one["switches"]:
            yield f"member {name} is listed as {one}"


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
    member_lease_s: int = MEMBER_LEASE_S,
) -> Iterator[Upgrade]:
    """Run the members on one etcd, jobs that train on their pins, and probes."""
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder / "etcd"))
        apis = [f"127.0.0.1:{reserve_port()}" for _ in range(members)]
        found = [
            _member(folder / name, etcd.endpoint, api, topo.fabric.hosts[0].bps, member_lease_s)
            for name, api in zip(NAMES, apis, strict=False)
        ]
        for member, api in zip(found, apis, strict=True):
            stack.callback(member.kill)
            member.start("--standby")
            own = stack.enter_context(Client(api))
            with explained(member, own):
                wait_for(lambda: _is_listed(own, member), member.folder.name, SETTLE_TIMEOUT_S, POLL_S)  # noqa: B023
        leader, addresses = found[0], ",".join(apis)
        (raw := leader.folder / RAW).mkdir()
        lab = stack.enter_context(Lab(topo, leader.target))
        for switch in lab.switches:
            run("ovs-vsctl", "set-controller", lab.bridge(switch.name), *(member.target for member in found))
        links, client = fabric_links(lab), stack.enter_context(Client(addresses))
        with explained(leader, client):
            wait_for(lambda: settled(client, links), f"{links} directed links", SETTLE_TIMEOUT_S, POLL_S)
        prioritise_probes(lab)
        rings = ring_jobs(lab)[:jobs]
        training = Training(lab, rings, elements, leader.address, folder / "ports", raw, lease_s=LEASE_S)
        training.start()
        watch = stack.enter_context(RouteWatch(addresses, [ring.job_id for ring in rings]))
        probing = stack.enter_context(Probing(lab, lab.hosts, raw, PROBE_TOS))
        scene = Scene(lab, leader, client, training, probing, watch, close_s, quiet_s, members=found)
        here = Upgrade(scene, {})
        for pair in sorted(scene.announced() | scene.hashed()):
            probing.send(pair, scene.wide_s)
        with explained(leader, client):
            wait_for(lambda: not here.missing(), "every host and every job's pins", SETTLE_TIMEOUT_S, POLL_S)
        here.jobs = here.registered()
        yield here


def _member(folder: Path, endpoint: str, api: str, rate_bps: float, lease_s: int) -> ControllerProcess:
    """Return a member. This process calls it at the TCP address ``api``; hosts reach only its Unix socket."""
    settings: Settings = {
        "api": {"listen": [f"unix:{folder / 'api.sock'}", api]},
        "etcd": {"lease_s": lease_s},
        "discovery": {"edge_after_s": 1.0},
        "fabric": {"link_bps": rate_bps, "host_link_bps": rate_bps},
        "planning": {"max_moves": 0},  # the benchmark counts changed rules, so no plan may move a flow
    }
    return ControllerProcess.member(folder, endpoint, settings)


def _is_listed(client: Client, member: ControllerProcess) -> bool:
    member.check()
    try:
        return member.folder.name in {found.name for found in client.list_members()}
    except SignalboxError:
        return False


def main(
    members: Annotated[int, typer.Option(min=2, max=len(NAMES), help="Number of members.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/upgrades"),
) -> None:
    """Replace the members by the next version under load, and count what is lost or written."""
    with (
        failures.demo_fabric("ug", out) as (topo, folder),
        upgrade_of(topo, folder, members, ELEMENTS, JOBS) as here,
    ):
        run_upgrade(here, folder)
        found = finish(here)
    broken = (f"BROKEN {text}" for text in found["broken"])
    tables = {"Events": found["summary"], "Jobs": [found["jobs"]], "Changed rules": [found["mods"]]}
    report(found, out / "upgrades.json", tables, *broken)
    if found["broken"]:
        raise typer.Exit(1)
