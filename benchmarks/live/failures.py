"""Benchmark ``failures``: for how long traffic stops when cables, switches, the controller or etcd fail.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks failures [--times N] [--out DIR]

Three jobs train on the demo's fabric of Open vSwitch bridges. With ``--members``, several controllers divide the
switches. Before each failure the benchmark selects two pinned pairs that use the element which will fail, and probes
these pairs every millisecond. It probes all other pinned pairs every 10 ms, and also pairs of idle hosts, whose flows
are hashed. The result is a table, and ``failures.json`` with every single event. The exit status is 1 when a job had to
restart.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.live.failures_report import Event, Role, build_report
from benchmarks.measures import chosen, report
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.demo.parts import RouteWatch, Training
from mininet_topos.demo.phases import ELEMENTS, HOSTS_PER_LEAF, JOBS, LEAVES, RATE_BPS, SPINES, ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run, wait_for
from mininet_topos.lab.running_fabric import masters, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.probing import Pair, Probing
from mininet_topos.probe.queues import PROBE_TOS, all_drops, drops_since, large_socket_buffers, prioritise_probes
from mininet_topos.trainer.log import read_rank_logs
from signalbox.client import Client
from signalbox.mapping import word_in
from tests.support.wire.etcd import EtcdProcess, running_etcd


@contextmanager
def demo_fabric(prefix: str, out: Path) -> Iterator[tuple[LeafSpine, Path]]:
    """Yield the demo's topology and a temporary folder. Afterwards, copy the controllers' logs to ``out``.

    ``prefix``: beginning of the names of interfaces and namespaces, so that labs can run side by side."""
    out.mkdir(parents=True, exist_ok=True)
    mbps = RATE_BPS / 1e6
    with large_socket_buffers(), tempfile.TemporaryDirectory(prefix=f"signalbox-{prefix}-") as name:
        try:
            yield LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps, prefix=prefix), Path(name)
        finally:
            for log in Path(name).glob("**/controller.log"):
                own = log.parent.name if log.parent != Path(name) else "controller"
                shutil.copy(log, out / f"{own}.log")


CLOSE_S, WIDE_S = 0.001, 0.010
"""Seconds between two probes of a selected pair, and of any other pair."""
QUIET_S = 3.0
"""Seconds of measurement after the network is in order again; by then a new plan has moved flows back."""
POLL_S = 0.05
SETTLE_TIMEOUT_S = 60.0
RAW = "raw"
ONE_CONTROLLER = ("controller", "cable without controller")
"""Kinds of failure that need a single controller, because the controller ends."""
KINDS = ("cable", "spine", "leaf", *ONE_CONTROLLER)
WITHOUT_ETCD, WITHOUT_LEADER = "cable without etcd", "cable without etcd and leader"
"""Kinds of failure that need the state in etcd; the second also needs several members."""

ALL_KINDS = (*KINDS, WITHOUT_ETCD, WITHOUT_LEADER)


@dataclass
class Scene:
    """Fabric with jobs and probes, and what has happened so far.

    ``etcd``: store of the controller's state; None if the state is in SQLite. ``away_s``: seconds that pass between
    the end of etcd and the cut of a cable."""

    lab: Lab
    controller: ControllerProcess
    client: Client
    training: Training
    probing: Probing
    watch: RouteWatch
    close_s: float = CLOSE_S
    quiet_s: float = QUIET_S
    etcd: EtcdProcess | None = None
    away_s: float = 0.0
    members: Sequence[ControllerProcess] = ()
    """Controllers that divide the switches, including ``controller``; empty with a single one."""
    events: list[Event] = field(default_factory=list)

    @property
    def wide_s(self) -> float:
        """Seconds between probes of a pair that is not probed closely."""
        return max(WIDE_S, self.close_s)

    @property
    def links(self) -> int:
        return 2 * sum(cable.b.startswith("spine") for cable in self.lab.links)

    def routes(self) -> dict[Pair, tuple[str, ...]]:
        prefix = self.lab.topo.prefix
        return {
            pair: tuple(switch.removeprefix(prefix) for switch in path)
            for change in self.watch.in_force().values()
            for pair, path in change.paths.items()
        }

    def holders(self) -> dict[str, str]:
        """Return the name of the member that is the master of each switch; empty with a single controller."""
        names = {member.target: member.folder.name for member in self.members}
        return {switch: names[target] for switch, target in masters(self.lab).items() if target in names}

    def is_divided(self) -> bool:
        """Return whether every switch has a master, and every member is the master of a switch."""
        holders = self.holders()
        return len(holders) == len(self.lab.switches) and len(set(holders.values())) == len(self.members)

    def announced(self) -> set[Pair]:
        return {
            (a.ip, b.ip)
            for job in self.training.jobs
            for a, b in zip(job.hosts, (*job.hosts[1:], job.hosts[0]), strict=True)
        }

    def hashed(self) -> set[Pair]:
        """Return the pairs of idle hosts that are probed: each idle host and the next one, in a ring."""
        busy = {host.ip for job in self.training.jobs for host in job.hosts}
        idle = [host.ip for host in self.lab.hosts if host.ip not in busy]
        return set(zip(idle, (*idle[1:], *idle[:1]), strict=True)) if len(idle) > 1 else set()

    def all_pinned(self) -> bool:
        return {pair for pair, path in self.routes().items() if path} >= self.announced()

    def in_order(self, links: int) -> bool:
        return settled(self.client, links) and self.all_pinned()

    @contextmanager
    def closely(self, pairs: Sequence[Pair]) -> Iterator[None]:
        for pair in pairs:
            self.probing.send(pair, self.close_s)
        time.sleep(0.2)
        yield
        for pair in pairs:
            self.probing.send(pair, self.wide_s)

    def phase(
        self, what: str, element: str, roles: Mapping[Pair, Role], act: Callable[[], object], until: Callable[[], bool]
    ) -> None:
        """Call ``act``, wait until ``until`` returns True, measure for another ``quiet_s``, and record the event."""
        drops = all_drops(self.lab)
        start = time.monotonic()
        act()
        done = time.monotonic()
        wait_for(until, what, SETTLE_TIMEOUT_S, POLL_S)
        dealt_with = time.monotonic()
        time.sleep(self.quiet_s)
        self.training.read_new_lines()
        end = time.monotonic()
        dropped = drops_since(drops, all_drops(self.lab))
        self.events.append(Event(what, element, start, done, dealt_with, end, roles, dropped))


def run_kind(scene: Scene, kind: str, turn: int) -> None:
    {
        "cable": _cable,
        "spine": _spine,
        "leaf": _leaf,
        "controller": _controller,
        "cable without controller": _cable_without_controller,
        WITHOUT_ETCD: _cable_without_etcd,
        WITHOUT_LEADER: _cable_without_leader,
    }[kind](scene, turn)


def _cable(scene: Scene, turn: int) -> None:
    (leaf, spine), up, down, roles = _pick_cable(scene, turn)
    name, left = f"{leaf}-{spine}", scene.links - 2
    with scene.closely((up, down)):
        scene.phase("cable cut", name, roles, lambda: scene.lab.cut(leaf, spine), lambda: scene.in_order(left))
        scene.phase(
            "cable replugged", name, roles, lambda: scene.lab.plug(leaf, spine), lambda: scene.in_order(scene.links)
        )


def _spine(scene: Scene, turn: int) -> None:
    spine, up, down, roles = pick_spine(scene, turn)
    left = scene.links - 2 * sum(cable.b == spine for cable in scene.lab.links)
    with scene.closely((up, down)):
        scene.phase("spine killed", spine, roles, lambda: scene.lab.stop_switch(spine), lambda: scene.in_order(left))
        scene.phase("spine returned", spine, roles, lambda: start(scene, spine), lambda: scene.in_order(scene.links))


def _leaf(scene: Scene, turn: int) -> None:
    """Delete a leaf, and create it again. Its hosts are cut off, so their flows cannot be pinned meanwhile."""
    leaves = sorted({cable.a for cable in scene.lab.links if cable.b.startswith("spine")})
    leaf = leaves[turn % len(leaves)]
    routes = scene.routes()
    out = next(pair for pair, path in sorted(routes.items()) if path[0] == leaf)
    into = next(pair for pair, path in sorted(routes.items()) if path[-1] == leaf)
    at_leaf = {host.ip for host in scene.lab.hosts if host.leaf == leaf}
    roles = _roles(scene, lambda path: leaf in path, {out: "close 1", into: "close 2"})
    roles |= {pair: "uses it" for pair in scene.hashed() if at_leaf & set(pair)}
    left = scene.links - 2 * sum(cable.a == leaf and cable.b.startswith("spine") for cable in scene.lab.links)
    with scene.closely((out, into)):
        scene.phase(
            "leaf deleted", leaf, roles, lambda: scene.lab.stop_switch(leaf), lambda: settled(scene.client, left)
        )
        scene.phase("leaf re-created", leaf, roles, lambda: start(scene, leaf), lambda: scene.in_order(scene.links))


def _controller(scene: Scene, turn: int) -> None:
    scene.lab.reconnect_soon()  # also switches that were re-created
    _, up, down, _ = _pick_cable(scene, turn)
    roles = _roles(scene, lambda _: False, {up: "close 1", down: "close 2"})
    with scene.closely((up, down)):
        scene.phase("controller killed", "controller", roles, scene.controller.kill, lambda: True)
        scene.phase(
            "controller restarted", "controller", roles, scene.controller.start, lambda: scene.in_order(scene.links)
        )


def _cable_without_controller(scene: Scene, turn: int) -> None:
    """Cut a cable while no controller runs, so that only the switches themselves can react.

    The leaf at the cable moves its packets to other spines. Other leaves do not learn of the cut, and continue to
    send down through the cable."""
    scene.lab.reconnect_soon()  # also switches that were re-created
    (leaf, spine), up, down, roles = _pick_cable(scene, turn)
    name, left = f"{leaf}-{spine}", scene.links - 2
    with scene.closely((up, down)):
        scene.controller.kill()
        scene.phase("cable cut, no controller", name, roles, lambda: scene.lab.cut(leaf, spine), lambda: True)
        scene.phase("controller back", name, roles, scene.controller.start, lambda: scene.in_order(left))
        scene.phase(
            "cable replugged", name, roles, lambda: scene.lab.plug(leaf, spine), lambda: scene.in_order(scene.links)
        )


def _cable_without_etcd(scene: Scene, turn: int) -> None:
    """Cut a cable while etcd is stopped: the controller cannot save anything, and has lost its claim of the state.

    If several members divide the switches, the ends of the cable belong to two different members."""
    assert scene.etcd
    holders = scene.holders()

    def is_between(leaf: str, spine: str) -> bool:
        return not holders or holders[leaf] != holders[spine]

    (leaf, spine), up, down, roles = _pick_cable(scene, turn, is_between)
    name, left = f"{leaf}-{spine}", scene.links - 2

    def cannot_save() -> bool:
        return any("cannot be saved" in alarm.text for alarm in scene.client.get_status().alarms)

    with scene.closely((up, down)):
        scene.phase("etcd killed", "etcd", roles, scene.etcd.kill, cannot_save)
        time.sleep(scene.away_s)
        scene.phase("cable cut, no etcd", name, roles, lambda: scene.lab.cut(leaf, spine), lambda: scene.in_order(left))
        scene.phase(
            "cable replugged", name, roles, lambda: scene.lab.plug(leaf, spine), lambda: scene.in_order(scene.links)
        )
        scene.phase(
            "etcd back", "etcd", roles, scene.etcd.start, lambda: not cannot_save() and scene.in_order(scene.links)
        )


def _cable_without_leader(scene: Scene, turn: int) -> None:
    """Cut a cable while etcd is stopped and the leader is dead.

    A living member controls the leaf from which the second pair sends. Leaves of the dead leader continue to send to
    the spine."""
    assert scene.etcd
    holders = scene.holders()
    found = next(member for member in scene.client.list_members() if word_in(member, "role") == "leader")
    leader = next(member for member in scene.members if member.folder.name == found.name)

    def lives(leaf: str) -> bool:
        return holders[leaf] != found.name

    (leaf, spine), up, down, roles = _pick_cable(scene, turn, begins_at=lives)
    name, at_dead, kill = f"{leaf}-{spine}", {host.ip for host in scene.lab.hosts if not lives(host.leaf)}, leader.kill
    roles |= {pair: "elsewhere" for pair, role in roles.items() if role == "uses it" and pair[0] in at_dead}

    def both_start() -> None:
        assert scene.etcd
        scene.etcd.start()
        leader.start("--standby")

    def in_order() -> bool:
        return scene.in_order(scene.links) and scene.is_divided()

    with scene.closely((up, down)):
        scene.etcd.kill()
        scene.phase("leader killed, no etcd", found.name, roles, kill, lambda: True)
        scene.phase("cable cut, no leader", name, roles, lambda: scene.lab.cut(leaf, spine), lambda: True)
        scene.phase("cable replugged, no leader", name, roles, lambda: scene.lab.plug(leaf, spine), lambda: True)
        scene.phase("both back", found.name, roles, both_start, in_order)


def start(scene: Scene, switch: str) -> None:
    scene.lab.start_switch(switch)
    prioritise_probes(scene.lab)  # the new queues of the switch's links have no priorities yet


def pick_spine(scene: Scene, turn: int) -> tuple[str, Pair, Pair, dict[Pair, Role]]:
    """Return a spine that pinned flows use, two pairs that send up and down one of its cables, and all roles."""
    (_, spine), up, down, _ = _pick_cable(scene, turn)
    return spine, up, down, _roles(scene, lambda path: spine in path, {up: "close 1", down: "close 2"})


def _pick_cable(
    scene: Scene,
    turn: int,
    fits: Callable[[str, str], bool] = lambda _leaf, _spine: True,
    begins_at: Callable[[str], bool] = lambda _leaf: True,
) -> tuple[tuple[str, str], Pair, Pair, dict[Pair, Role]]:
    """Return a (leaf, spine), two pinned pairs that send up and down the cable between them, and all roles.

    The first pair sends up through the cable, so its leaf notices a cut. The second pair sends down through it, so the
    leaf that it sends from notices nothing. ``fits``: whether a cable may be selected. ``begins_at``: whether the
    second pair may send from a leaf."""
    ups: dict[tuple[str, str], Pair] = {}
    downs: dict[tuple[str, str], Pair] = {}
    for pair, path in sorted(scene.routes().items()):
        if len(path) == 3:
            ups[path[0], path[1]] = pair
            if begins_at(path[0]):
                downs[path[2], path[1]] = pair
    both = sorted(cable for cable in ups.keys() & downs.keys() if fits(*cable))
    leaf, spine = both[turn % len(both)]
    up, down = ups[leaf, spine], downs[leaf, spine]

    def uses(path: tuple[str, ...]) -> bool:
        return spine in path and leaf in path

    return (leaf, spine), up, down, _roles(scene, uses, {up: "close 1", down: "close 2"})


def _roles(scene: Scene, uses: Callable[[tuple[str, ...]], bool], close: Mapping[Pair, Role]) -> dict[Pair, Role]:
    roles: dict[Pair, Role] = dict.fromkeys(scene.hashed(), "hashed")
    for pair, path in scene.routes().items():
        roles[pair] = "uses it" if uses(path) else "elsewhere"
    return roles | dict(close)


@contextmanager
def scene_of(
    topo: LeafSpine,
    folder: Path,
    elements: int,
    jobs: int,
    close_s: float = CLOSE_S,
    quiet_s: float = QUIET_S,
    in_etcd: bool = False,
    members: int = 1,
) -> Iterator[Scene]:
    """Run jobs that train on their pins, and probes, on the fabric ``topo``.

    ``in_etcd``: whether the state is in an etcd instead of SQLite. ``members``: number of controllers; more than one
    need the state in etcd."""
    raw = folder / RAW
    raw.mkdir()
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder)) if in_etcd else None
        store = f"etcd://{etcd.endpoint}" if etcd else "sqlite"
        own = {"members": {"name": folder.name, "api": f"unix:{folder / 'members.sock'}"}} if members > 1 else None
        fabric = running_fabric(topo, folder, topo.fabric.hosts[0].bps / 1e6, own, store=store)
        lab, controller, client = stack.enter_context(fabric)
        all_members = [controller]
        for number in range(2, members + 1):
            assert etcd
            member = ControllerProcess.member(folder / f"member{number}", etcd.endpoint, controller.settings)
            all_members.append(member)
            stack.callback(member.kill)
            member.start("--standby")
        prioritise_probes(lab)
        rings = ring_jobs(lab)[:jobs]
        training = Training(lab, rings, elements, controller.address, folder / "ports", raw)
        training.start()
        watch = stack.enter_context(RouteWatch(controller.address, [ring.job_id for ring in rings]))
        probing = stack.enter_context(Probing(lab, lab.hosts, raw, PROBE_TOS))
        scene = Scene(lab, controller, client, training, probing, watch, close_s, quiet_s, etcd)
        if members > 1:
            scene.members = all_members
            _divide(scene)
        wait_for(scene.all_pinned, "every job's pins", SETTLE_TIMEOUT_S, POLL_S)
        for pair in sorted(scene.announced() | scene.hashed()):
            probing.send(pair, scene.wide_s)
        time.sleep(quiet_s)
        yield scene


def _divide(scene: Scene) -> None:
    for switch in scene.lab.switches:
        targets = (member.target for member in scene.members)
        run("ovs-vsctl", "set-controller", scene.lab.bridge(switch.name), *targets)
    wait_for(scene.is_divided, "switches at all members", SETTLE_TIMEOUT_S, POLL_S)
    scene.lab.reconnect_soon()
    wait_for(lambda: settled(scene.client, scene.links), "all links", SETTLE_TIMEOUT_S, POLL_S)


def finish(scene: Scene) -> dict[str, Any]:
    """End probes and training, and return the report. Raises ``DemoError`` when a rank did not end properly."""
    streams, overflows = scene.probing.finish()
    scene.training.stop()
    return build_report(scene.events, streams, overflows, read_rank_logs(scene.controller.folder / RAW))


def main(
    times: Annotated[int, typer.Option(min=1, help="Number of failures of each kind.")] = 5,
    only: Annotated[
        str,
        typer.Option(help=f"Kinds of failure, from {', '.join(ALL_KINDS)}; default: those without etcd."),
    ] = ",".join(KINDS),
    members: Annotated[
        int, typer.Option(min=1, max=8, help="Number of controllers; each controls a part of the switches.")
    ] = 1,
    away_s: Annotated[float, typer.Option(help="Seconds without etcd before a cable is cut.")] = 0.0,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/failures"),
) -> None:
    """Cause failures under load and measure for how long traffic stops."""
    kinds = chosen("--only", only, ALL_KINDS)
    if WITHOUT_LEADER in kinds and members == 1:
        raise typer.BadParameter(f"{WITHOUT_LEADER} needs --members 2 or more")
    if members > 1 and (alone := [kind for kind in kinds if kind in ONE_CONTROLLER]):
        raise typer.BadParameter(f"not with --members: {', '.join(alone)}; name other kinds with --only")
    in_etcd = members > 1 or WITHOUT_ETCD in kinds
    with (
        demo_fabric("fl", out) as (topo, folder),
        scene_of(topo, folder, ELEMENTS, JOBS, in_etcd=in_etcd, members=members) as scene,
    ):
        scene.away_s = away_s
        for kind in kinds:
            for turn in range(times):
                run_kind(scene, kind, turn)
        found = finish(scene)
    report(found, out / "failures.json", {"Events": found["summary"], "Jobs": [found["jobs"]]})
    if found["jobs"]["restarts"]:
        raise typer.Exit(1)
