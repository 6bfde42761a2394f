"""Benchmark ``outages``: jobs train on while the controller is away.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks outages [--only KIND,...] [--out DIR]

Three jobs train on the demo's fabric, and join with ``signalbox.join``. The controller is killed, paused, upgraded, or
cut off from clients or switches, which reach it through relays. Before, between and after the outages the training is
undisturbed for a while.

The result is a table, and ``outages.json``. The exit status is 1 in these cases:

- Around an outage, five consecutive iterations took more than 1.05 times as long as five usually take.
- After an outage a job was registered again, a route moved, a rule changed, or an alarm stayed.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.live.failures import demo_fabric
from benchmarks.live.outages_report import Outage, build, changed
from benchmarks.live.relay import relay, stopped
from benchmarks.measures import chosen, report
from mininet_topos.controller_process import ControllerProcess, reserve_port
from mininet_topos.demo.parts import RouteWatch, Training, TrainingJob
from mininet_topos.demo.phases import ELEMENTS, ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.lab.running_fabric import explained, fabric_links, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_logs
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.subflows import Pair

AWAY_S = 30.0
UNDISTURBED_S = 25.0
QUIET_S = 10.0
"""Seconds of measurement after the controller has all jobs again, enough for some iterations."""
BACK_S = 90.0
LEASE_S = 60.0
"""Lease of the jobs in seconds: the default of ``signalbox.join``."""


@dataclass
class Site:
    """Jobs that train on a fabric, and the controller behind relays.

    ``clients``, ``switches``: process ids of the relays for clients and for switches."""

    lab: Lab
    controller: ControllerProcess
    client: Client
    clients: int
    switches: int
    training: Training
    watch: RouteWatch

    def paths(self) -> dict[Pair, Sequence[str]]:
        return {pair: path for change in self.watch.in_force().values() for pair, path in change.paths.items()}

    def pinned(self) -> bool:
        announced = sum(len(job.hosts) for job in self.training.jobs)
        return sum(map(bool, self.paths().values())) == announced

    def rules(self) -> set[tuple[str, str]]:
        found = set()
        for bridge in map(self.lab.bridge, (switch.name for switch in self.lab.switches)):
            for what in (("dump-flows", "--no-stats"), ("dump-groups",)):
                lines = run("ovs-ofctl", "-O", "OpenFlow13", *what, bridge).splitlines()
                found |= {(bridge, line.strip()) for line in lines if "OFPST" not in line}
        return found

    def plans(self) -> tuple[int, int]:
        """Return the process id of the controller, and how often its planner has run."""
        plan = self.client.get_plan()
        assert self.controller.process
        return self.controller.process.pid, plan.generation if plan else 0

    def done(self) -> dict[str, int]:
        self.training.read_new_lines()
        return {job: count for job, (count, _) in self.training.latest().items()}

    def in_touch(self, done: Mapping[str, int]) -> bool:
        """Return whether all links and pins are there, and the controller knows each job's ``done`` iterations."""
        with suppress(SignalboxError):
            told = {job.spec.job_id: job.last_iteration_index for job in self.client.list_jobs()}
            known = all(told.get(job, 0) >= count for job, count in done.items())
            return known and self.pinned() and settled(self.client, fabric_links(self.lab))
        return False


# ---- outages


def kill(site: Site, away_s: float) -> None:
    site.controller.kill()
    time.sleep(away_s)
    site.controller.start()


def pause(site: Site, away_s: float) -> None:
    assert site.controller.process
    with stopped(os.killpg, site.controller.process.pid):
        time.sleep(away_s)


def cut_clients(site: Site, away_s: float) -> None:
    with stopped(os.kill, site.clients):
        time.sleep(away_s)


def cut_switches(site: Site, away_s: float) -> None:
    with stopped(os.kill, site.switches):
        time.sleep(away_s)


def upgrade(site: Site, _away_s: float) -> None:
    """Stop and start the controller, as a service manager does."""
    site.controller.stop()
    site.controller.start()


Outages = Sequence[tuple[str, Callable[[Site, float], None]]]
KINDS: Mapping[str, Outages] = {
    "kill": [("killed", kill)],
    "pause": [("paused", pause)],
    "partition": [("cut off from clients", cut_clients), ("cut off from switches", cut_switches)],
    "upgrade": [("upgraded", upgrade)],
}


def measured(site: Site, outages: Outages, away_s: float, undisturbed_s: float, quiet_s: float) -> list[Outage]:
    """Return what each outage did, with undisturbed training before and after it."""

    def undisturbed() -> tuple[float, float]:
        began = time.monotonic()
        time.sleep(undisturbed_s)
        return began, time.monotonic()

    found: list[Outage] = []
    time.sleep(quiet_s)
    before = undisturbed()
    for what, act in outages:
        paths, rules, changes, plans = site.paths(), site.rules(), len(site.watch.changes), site.plans()
        wall, began = time.time(), time.monotonic()
        act(site, away_s)
        over = time.monotonic()
        done, back_s = site.done(), None
        with suppress(LabError):
            wait_for(lambda: site.in_touch(done), "the controller to have all jobs again", BACK_S, 0.1)  # noqa: B023
            back_s = time.monotonic() - over
        time.sleep(quiet_s)
        window = began, time.monotonic()
        moved, unpinned = changed(paths, [change.paths for change in site.watch.changes[changes:]])
        did = {"moved": moved, "unpinned": unpinned, "rules": len(rules ^ site.rules())}
        events = list(site.client.list_events(after_s=wall))
        did |= {name: sum(event.what == f"job {name}" for event in events) for name in ("registered", "ended")}
        (process, ran), (same, at_first) = site.plans(), plans
        did["plans"] = ran - at_first * (process == same)
        named = (detail for event in events if event.what == "alarm" for detail in event.details)
        alarms = dict(Counter(detail.value for detail in named if detail.name == "kind"))
        left = [alarm.text for alarm in site.client.get_status().alarms]
        after = undisturbed()
        found.append(Outage(what, over - began, back_s, before, window, after, did, alarms, left))
        before = after
    return found


# ---- setting


@contextmanager
def site_of(
    topo: LeafSpine, folder: Path, elements: int, jobs: Callable[[Lab], Sequence[TrainingJob]], lease_s: float
) -> Iterator[Site]:
    """Run jobs that train on their pins while the block runs. Raises ``DemoError`` when a rank did not end properly."""
    raw = folder / "raw"
    raw.mkdir()
    with ExitStack() as stack:
        mbps = topo.fabric.hosts[0].bps / 1e6
        lab, controller, client = stack.enter_context(running_fabric(topo, folder, mbps))
        api, openflow = folder / "relay.sock", reserve_port()
        clients = stack.enter_context(relay(str(api), controller.address.removeprefix("unix:")))
        switches = stack.enter_context(relay(str(openflow), str(controller.openflow_port)))
        for switch in lab.switches:
            run("ovs-vsctl", "set-controller", lab.bridge(switch.name), f"tcp:127.0.0.1:{openflow}")
        lab.wait_connected()
        training = Training(lab, jobs(lab), elements, f"unix:{api}", folder / "ports", raw, lease_s=lease_s)
        training.start()
        watch = stack.enter_context(RouteWatch(controller.address, [job.job_id for job in training.jobs]))
        site = Site(lab, controller, client, clients, switches, training, watch)
        done = site.done()
        with explained(controller, client):
            wait_for(lambda: site.in_touch(done), "every job's pins", BACK_S, 0.1)
        yield site
        training.stop()


def main(
    only: Annotated[str, typer.Option(help=f"Kinds of outage, from {', '.join(KINDS)}.")] = ",".join(KINDS),
    away_s: Annotated[float, typer.Option(min=1, help="Seconds that an outage lasts.")] = AWAY_S,
    times: Annotated[int, typer.Option(min=1, help="Number of outages of each kind.")] = 1,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/outages"),
) -> None:
    """Make the controller unreachable while jobs train."""
    kinds = chosen("--only", only, KINDS)
    outages = [one for kind in KINDS if kind in kinds for one in KINDS[kind]] * times
    with demo_fabric("ou", out) as (topo, folder):
        with site_of(topo, folder, ELEMENTS, ring_jobs, LEASE_S) as site:
            found = measured(site, outages, away_s, UNDISTURBED_S, QUIET_S)
        logs = read_rank_logs(folder / "raw")
    result = build(found, logs)
    shown = [{name: row[name] for name in row if name != "took_s"} for row in result["outages"]]
    missed = (f"MISSED {text}" for text in result["missed"])
    report(result, out / "outages.json", {"Outages": shown}, *missed)
    if result["missed"]:
        raise typer.Exit(1)
