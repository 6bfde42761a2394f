"""Steps of a run, in the order of ``STEPS``.

Each step sets fields of the run's ``figures``. It raises ``StepFailed`` when a condition does not hold in time.
"""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from benchmarks.fabric import figures
from benchmarks.fabric.blueprint import Cable, Cut, lost_hops
from benchmarks.fabric.figures import REPAIRS, Dead, Repair
from benchmarks.fabric.openvswitch import Rules
from benchmarks.fabric.run import Run, StepFailed
from benchmarks.measures import Spread, usage
from benchmarks.openflow_bytes import GroupChange
from controller.fabric.topology import Dpid
from mininet_topos.controller_process import STOP_S, start
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.mapping import word_in

QUIET_S = 1.0
"""Seconds without any change of rules after which a step is complete."""
ECHO_INTERVAL_S = 0.01
ECHO_SETTLED_S = 1.0
"""Seconds after the spare switch connects, from which on echoes are timed: by then it has its rules."""
STATUS_S = 0.2
SILENT_LINKS = 3
REPAIR_S = 30.0
ROUTES_S = 3.0
CUT_EVERY_S = 1.0
MILLI = 1e3
MEGA = 1e6


def measure(run: Run) -> None:
    """Run all steps in order, and record the steps that failed."""
    for name, step in STEPS.items():
        run.tell(name)
        try:
            step(run)
        except SignalboxError as error:
            run.figures.problems.append(f"{name}: {error}")
    run.figures.errors = len(run.observed.errors)
    run.figures.packets_lost = run.packets_lost
    if run.packets_lost:
        run.figures.problems.append(f"the capture lost {run.packets_lost} packets: figures may be wrong")


def discovery(run: Run) -> None:
    """Measure the time from bare switches until their groups use every link."""
    run.controller.start()
    with run.client() as client:
        run.wait_settled(client, "all links")
        try:
            run.wait_complete("rules that use all links")
        finally:
            run.figures.links_found = figures.links_in_use(run.observed, run.blueprint.ends)
        connected = run.observed.last_connected()  # read last, because the capture may be a moment late
        if connected is None:
            raise StepFailed("the capture did not see all switches connect")
        done = max(
            change.confirmed
            for change in run.observed.changes
            if isinstance(change.what, GroupChange) and change.confirmed is not None
        )
        run.figures.discovery_s = done - connected
        run.wait_quiet(QUIET_S, "the first rules to be confirmed")


def install(run: Run) -> None:
    """Measure the time from registering all jobs at once until the last pin is confirmed."""
    run.read()
    known = len(run.observed.changes)
    with run.client() as client, ThreadPoolExecutor(len(run.jobs)) as pool:
        for job in pool.map(lambda spec: client.register_job(spec).job, run.jobs):
            if job.missing_hosts:
                raise StepFailed(
                    f"job '{job.spec.job_id}' waits for {len(job.missing_hosts)} hosts that were not found"
                )

        time.sleep(QUIET_S)  # leaves the cores to the controller
        _wait_pinned(run)
        run.figures.flows = sum(job.virtual_links for job in client.list_jobs())
    run.figures.install_s = figures.install_s(run.observed.changes[known:])
    if run.figures.install_s is None:
        raise StepFailed("the capture saw no pins confirmed")
    run.figures.pins = run.observed.pins()


def idle(run: Run) -> None:
    """Measure CPU time and memory while only counters and probes are exchanged."""
    before, since = usage(run.controller.process), time.monotonic()
    time.sleep(run.settings.idle_s)
    after, passed_s = usage(run.controller.process), time.monotonic() - since
    run.figures.idle_cpu_percent = 100 * (after.cpu_s - before.cpu_s) / passed_s
    _memory(run)


def planning(run: Run) -> None:
    """Request plans again and again; meanwhile count links reported down, and time the answers to echo requests."""
    run.read()
    known = len(run.observed.changes)
    plans: list[float] = []
    since = time.monotonic()
    until = since + run.settings.quiet_s
    planner = threading.Thread(target=_plan_until, args=(run, until, plans))
    with _echoes(run) as answers, run.client() as client:
        planner.start()
        try:
            drops = _dropped_links(run, client, until)
        finally:
            planner.join()
    run.read()
    run.figures.false_link_downs = max(drops, figures.shrunk(run.observed.changes[known:]))
    run.figures.quiet_s = time.monotonic() - since
    run.figures.plans = len(plans)
    run.figures.echo_ms = Spread.of([MILLI * took for at, took in answers if at >= since + ECHO_SETTLED_S])
    with run.client() as client:
        run.wait(lambda: client.get_status().switches == run.figures.switches, "the echo switch to disconnect")
    _memory(run)


@contextmanager
def _echoes(run: Run) -> Iterator[list[tuple[float, float]]]:
    """Run a spare switch that sends echo requests. Yields a list that is filled after the block.

    An entry is (monotonic seconds of a request, seconds until its answer). Raises ``StepFailed`` if the controller
    ended the connection."""
    spare_dpid = max(run.blueprint.dpids) + 1
    words = (str(run.controller.openflow_port), str(spare_dpid), str(ECHO_INTERVAL_S))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    answers: list[tuple[float, float]] = []
    with start("benchmarks.openflow_bytes", *words, **pipes) as process:
        try:
            yield answers
            out, said = process.communicate(timeout=STOP_S)
        finally:
            process.kill()
    if process.returncode:
        raise StepFailed(f"the echo switch ended: {said.decode(errors='replace').strip().splitlines()[-1:]}")
    answers += map(tuple, json.loads(out))


def _dropped_links(run: Run, client: Client, until: float) -> int:
    """Return the sum of all decreases of the API's number of links until the time ``until``."""
    drops, links = 0, run.figures.links_expected
    while time.monotonic() < until:
        now = client.get_status().links
        drops += max(0, links - now)
        links = now
        time.sleep(STATUS_S)
    return drops


def _plan_until(run: Run, until: float, plans: list[float]) -> None:
    with run.client() as client:
        while time.monotonic() < until:
            with suppress(SignalboxError):  # the status loop fails when the controller has ended
                client.replan()
                plans.append(time.monotonic())


def silent_loss(run: Run) -> None:
    """Drop the probes of a few links in one direction, and measure how soon rules leave these links."""
    cuts = list(islice(run.blueprint.draw_cuts(run.settings.seed + 1), SILENT_LINKS))
    if not cuts:
        raise StepFailed("there is no cable to cut: the loss of any cable lengthens a path")
    ends = [cut.cable.b for cut in cuts]
    run.read()
    lost = lost_hops(run.hops, cuts[-1].after)
    dead = Dead.of(run.observed, lost, run.blueprint.switch_of_address)
    known = len(run.observed.changes)
    since = time.monotonic()
    found: list[float] = []

    def noticed() -> bool:
        left = figures.hops_removed(dead, run.observed.changes[known:])
        found[:] = [left.confirmed] if left is not None else []
        return bool(found)

    try:
        run.switches.drop_lldp(ends)
        run.wait(noticed, "flows to leave the silent links", poll_s=STATUS_S)
        run.figures.silent_loss_detect_s = found[0] - since
    finally:
        run.switches.pass_lldp(ends)
    with run.client() as client:
        run.wait_settled(client, "silent links to come back")
    run.wait_complete("rules that use the links that came back")
    _wait_pinned(run)


def reconnect(run: Run) -> None:
    """Make all switches reconnect at once, and measure how soon they are in sync."""
    run.read()
    known = len(run.observed.changes)
    since = time.monotonic()
    run.switches.reconnect()
    run.figures.reconnect_resync_s = _resynced(run, since) - since
    _wait_pinned(run)
    _read_doubtful(run)
    run.figures.reconnect_rules_rewritten = len(run.observed.changes) - known


def restart(run: Run) -> None:
    """Kill the controller and start it again; measure how soon all is in sync, and which rules were changed."""
    before = _rules(run)
    wrong = [run.blueprint.bridge(dpid) for dpid, (_, groups) in before.items() if not _agrees(run, dpid, groups)]
    if wrong:
        run.figures.problems.append(f"the capture has not seen all groups of {', '.join(wrong)}")
    known = len(run.observed.changes)
    run.controller.kill()
    started = run.controller.start()
    run.figures.restart_s = _resynced(run, started) - started
    with run.client() as client:
        run.wait(lambda: not client.get_status().adopting, "the controller to have adopted all rules", poll_s=STATUS_S)
    time.sleep(run.settings.settled_s)
    run.read()
    run.figures.rules_rewritten_on_restart = len(run.observed.changes) - known
    after = _rules(run)
    run.figures.switches_changed_on_restart = sum(before[dpid] != after[dpid] for dpid in before)


def _rules(run: Run) -> dict[Dpid, Rules]:
    """Return the rules of all switches as they are at one moment. Reading is repeated while rules change."""
    found: dict[Dpid, Rules] = {}

    def asked() -> bool:
        known = len(run.observed.changes)
        found.update((dpid, run.switches.rules(dpid)) for dpid in run.blueprint.dpids)
        run.read()
        return len(run.observed.changes) == known

    run.wait(asked, "rules to stop changing", poll_s=QUIET_S)
    return found


def repairs(run: Run) -> None:
    """Cut cables one after the other, timing each repair, and plug all in again at the end."""
    cut: list[Cable] = []
    repairs = run.figures.repairs
    try:
        for drawn in islice(run.blueprint.draw_cuts(run.settings.seed), run.settings.cuts):
            run.tell(f"repairs: cut {len(cut) + 1} of {run.settings.cuts}")
            due = time.monotonic() + CUT_EVERY_S
            cut.append(drawn.cable)
            repairs.append(_repair(run, drawn))
            time.sleep(max(0.0, due - time.monotonic()))
        if not cut:
            raise StepFailed("there is no cable to cut: the loss of any cable lengthens a path")
    finally:
        run.figures.cuts = len(repairs)
        for name in REPAIRS:
            measured = [ms for repair in repairs if (ms := repair[name]) is not None]
            setattr(run.figures, name, Spread.of(measured))
        run.switches.plug(cut)
    with run.client() as client:
        run.wait_settled(client, "all links back")
    run.wait_complete("rules that use the links that came back")
    _memory(run)


def _repair(run: Run, cut: Cut) -> dict[str, float | None]:
    """Cut a cable, and return each figure of ``REPAIRS`` in milliseconds."""
    run.read()
    dead = Dead.of(run.observed, lost_hops(cut.before, cut.after), run.blueprint.switch_of_address)
    ports, changes = len(run.observed.ports), len(run.observed.changes)
    found: list[Repair] = []

    def repaired() -> bool:
        repair = figures.repair(dead, [cut.cable], run.observed, ports, changes)
        found[:] = [repair] if repair is not None else []
        return bool(found)

    run.switches.cut([cut.cable])
    run.wait(repaired, f"{run.blueprint.interface(cut.cable.a)} to be repaired", REPAIR_S)
    if dead.pins:
        with suppress(StepFailed):  # this cut has no such time
            run.wait(lambda: repaired() and found[0].routes_s is not None, "new routes", ROUTES_S)
    (repair,) = found
    seconds = {
        "repair_ms": repair.groups_s,
        "controller_repair_ms": repair.sent_s,
        "repair_routes_ms": repair.routes_s,
    }
    return {name: None if of is None else MILLI * of for name, of in seconds.items()}


# ---- shared by several steps


def _resynced(run: Run, since: float) -> float:
    """Return the time at which all switches were in sync after ``since``.

    By then the controller has read the rules of every switch on a new connection, and reports all switches in sync."""
    with run.client() as client:
        run.wait(lambda: run.observed.read_back(since) is not None, "all switches to be read back")
        run.wait_settled(client, "all switches in sync")
    said = time.monotonic()
    return max(said, run.observed.read_back(since) or said)


def _wait_pinned(run: Run) -> None:
    """Wait until every job is pinned and rules have settled.

    Raises ``StepFailed``, naming the jobs that are not pinned."""
    waiting: list[str] = []
    with run.client() as client:

        def pinned() -> bool:
            waiting[:] = unpinned(client.list_jobs())
            return not waiting

        try:
            run.wait(pinned, "all jobs to be pinned", poll_s=QUIET_S)
        except StepFailed as error:
            raise StepFailed(f"{error}: {', '.join(waiting)}") from None
    run.wait_quiet(QUIET_S, "rules to settle")


def unpinned(jobs: Iterable[Any]) -> list[str]:
    return [
        f"{job.spec.job_id} is {word_in(job, 'state')}, {job.pinned} of {job.virtual_links} flows pinned"
        for job in jobs
        if word_in(job, "state") != "pinned"
    ]


def _memory(run: Run) -> None:
    run.figures.rss_mb = max(run.figures.rss_mb or 0.0, usage(run.controller.process).rss_bytes / MEGA)


def _read_doubtful(run: Run) -> None:
    """Replace the observed groups ``in_doubt`` by those that the switches have."""
    for dpid, switch in run.observed.switches.items():
        held = _groups(run.switches.rules(dpid).groups) if switch.in_doubt else {}
        for group_id in switch.in_doubt:
            switch.groups.pop(group_id, None)
        switch.groups |= {group_id: held[group_id] for group_id in switch.in_doubt & held.keys()}
        switch.in_doubt.clear()


def _groups(lines: Iterable[str]) -> dict[int, GroupChange]:
    found = {}
    for line in lines:
        if number := re.search(r"group_id=(\d+)", line):
            ports, groups = (tuple(map(int, re.findall(rf"\b{kind}:(\d+)", line))) for kind in ("output", "group"))
            found[int(number[1])] = GroupChange(int(number[1]), False, ports, groups)
    return found


def _agrees(run: Run, dpid: Dpid, groups: frozenset[str]) -> bool:
    """Return whether the capture has seen all groups of the switch as they are, apart from those ``in_doubt``."""
    held = {group_id: group.ports for group_id, group in _groups(groups).items()}
    switch = run.observed.switches[dpid]
    seen = {group_id: group.ports for group_id, group in switch.groups.items()}
    return all(held.get(number) == seen.get(number) for number in (held.keys() | seen.keys()) - switch.in_doubt)


STEPS: dict[str, Callable[[Run], None]] = {
    "discovery": discovery,
    "install": install,
    "idle": idle,
    "planning": planning,
    "silent loss": silent_loss,
    "reconnect": reconnect,
    "restart": restart,
    "repairs": repairs,
}
