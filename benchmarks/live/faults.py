"""Benchmark ``faults``: how soon API, command line, metrics and alerts show a fault, and how soon they stop showing it.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks faults [--only FAULT,...] [--out DIR]

Three jobs train on the demo's fabric, which has a fifth spine in a second Open vSwitch (``second_vswitchd``). Each
fault is made and repaired. Meanwhile the benchmark reads the API, ``signalbox status``, the metrics, and the
notifications of a real Alertmanager. Prometheus scrapes and evaluates every two seconds, with the alerts as shipped.
The result is a table, and ``faults.json``.

The exit status is 1 when a fault was not reported by its name, or was reported too late or too long. It is also 1 when
an expression of the dashboards, recording rules or alerts never had data, except those in ``EMPTY``.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.live.faults_made import SECOND_LEAVES, Fault, Site, small_disk
from benchmarks.live.faults_seen import AlertLog, Operator, Seen
from benchmarks.live.relay import openflow_relay
from benchmarks.measures import background, chosen, report
from benchmarks.monitoring import START_S, Prometheus, alertmanager, filled_in, panels, prometheus, receiver, rules
from benchmarks.second_vswitchd import second_spine
from mininet_topos.controller_process import reserve_port
from mininet_topos.demo.parts import Training
from mininet_topos.demo.phases import ELEMENTS, HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES, ring_jobs
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.lab.running_fabric import explained, fabric_links, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine

STEP = "1s"
NO_FAULT = "no such fault was made"
NO_TLS = "no listener has TLS here"
NO_ETCD = "the state is not in etcd here"
EMPTY: Mapping[str, str] = {
    "panel controller: Certificates, A": NO_TLS,
    "panel controller: Members, B": NO_ETCD,
    "panel controller: Members, C": NO_ETCD,
    "panel controller: Switches of members, A": NO_ETCD,
    "panel controller: Switches of members, B": NO_ETCD,
    "panel controller: etcd, A": NO_ETCD,
    "panel controller: etcd, B": NO_ETCD,
    "panel fabric: Unannounced traffic, A": NO_FAULT,
    "panel fabric: Drained, A": "nothing was drained",
    "panel fabric: Refused by ports, A": NO_FAULT,
    "panel fabric: Refused by ports, B": NO_FAULT,
    "panel fabric: Refused by ports, C": NO_FAULT,
    "panel job: What it is planned for, B": "no job announced other amounts than it sends",
    "alert SignalboxAbsent": NO_FAULT,
    "alert SignalboxPlanWorseThanEcmp": NO_FAULT,
    "alert SignalboxProcessEnds": NO_FAULT,
    "alert SignalboxReloadRefused": NO_FAULT,
    "alert SignalboxStandbyGone": "no controller has stood by",
    "alert SignalboxCertificateEnds": NO_TLS,
    "alert SignalboxCertificateEndsSoon": NO_TLS,
    "alert SignalboxEtcdNearlyFull": NO_ETCD,
    "alert SignalboxEtcdWithoutLeader": NO_ETCD,
    "alert SignalboxLeaderChanges": NO_FAULT,
    "alert SignalboxLeaderUnknown": NO_FAULT,
    "alert SignalboxPlanOld": NO_FAULT,
    "alert SignalboxGapGrows": "it compares with a quarter of an hour before",
    "alert SignalboxJobSlow": NO_FAULT,
    "alert SignalboxJobsNotServed": NO_FAULT,
}
"""Expressions that may have no data, and the reason."""


def asked(job: str) -> Iterator[tuple[str, str]]:
    """Yield name and expression of each panel and rule. ``job``: job for which the dashboards are shown."""
    for dashboard, panel in panels():
        for target in panel["targets"]:
            yield f"panel {dashboard}: {panel['title']}, {target['refId']}", filled_in(target["expr"], job)
    for rule in rules("rules.yml"):
        yield f"record {rule['record']}", rule["expr"]
    for rule in rules("alerts.yml"):
        yield f"alert {rule['alert']}", rule["expr"]


def had_data(prometheus: Prometheus, seconds: float, job: str) -> dict[str, bool]:
    """Return, by name, whether each panel and rule had data at any time in the last ``seconds``."""
    return {
        name: bool(prometheus.query(f"last_over_time(({expression})[{round(seconds)}s:{STEP}])"))
        for name, expression in asked(job)
    }


INTERVAL = "2s"
STATE_SIZE = "2m"
ORDER_S = 60.0
STALL_S = 900.0
"""Seconds that a rank waits for data. They cover a fault and TCP's retransmission after it."""
ROUNDS: tuple[tuple[str, ...], ...] = (
    ("disk",),
    ("hostile", "twin", "foreign", "unknown_host", "differs", "full_table"),
    ("spine", "cable", "ports"),
    ("host_cable", "frozen"),
    ("no_path",),
    ("leaf",),
)
"""Rounds of faults. The faults of a round overlap, so no two of them may raise the same alert."""
FAULTS = tuple(name for of_round in ROUNDS for name in of_round)

console = Console(stderr=True)


def say(text: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def scene(folder: Path) -> Iterator[Operator]:
    """Run the fabric, jobs that train, and everything that observes the controller."""
    mbps = RATE_BPS / 1e6
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps, prefix="fa")
    metrics = reserve_port()
    with ExitStack() as stack:
        state = stack.enter_context(small_disk(folder, STATE_SIZE))
        settings = {"metrics": {"port": metrics}}
        lab, controller, client = stack.enter_context(running_fabric(topo, folder, mbps, settings))
        between = stack.enter_context(openflow_relay(controller.openflow_port))
        leaf = lab.bridge("leaf2")
        run("ovs-vsctl", "set-controller", leaf, f"tcp:127.0.0.1:{between.port}")
        second = stack.enter_context(second_spine(lab, controller.openflow_port, SECOND_LEAVES))
        links = fabric_links(lab) + 2 * len(SECOND_LEAVES)
        with explained(controller, client):
            wait_for(lambda: settled(client, links), f"{links} directed links", START_S)
        lab.reconnect_soon()
        (folder / "raw").mkdir()
        training = Training(
            lab, ring_jobs(lab), ELEMENTS, controller.address, folder / "ports", folder / "raw", STALL_S
        )
        receivers, notifications = stack.enter_context(receiver())
        manager = stack.enter_context(alertmanager(folder, receivers))
        target = f"127.0.0.1:{metrics}"
        asked = stack.enter_context(prometheus(folder, target, INTERVAL, manager))
        training.start()
        asked.until_it_answers('up{job="signalbox"} == 1')
        log = AlertLog(asked)
        stack.enter_context(background(log.follow))
        site = Site(lab, controller, client, between, second, state, folder)
        operator = Operator(site, target, log, notifications)
        wait_for(lambda: all_well(operator, links), "a plan, and no alarm", ORDER_S)
        yield operator


def all_well(operator: Operator, links: int) -> bool:
    client = operator.site.client
    return settled(client, links) and client.get_plan() is not None and not operator.alarms()


@dataclass
class Made:
    """Fault that was made. Times are monotonic seconds.

    ``since``: it was made. ``named_at``: the controller raised its alarm. ``gone_at``: the API stopped showing it."""

    fault: Fault
    seen: Seen
    since: float
    named_at: float
    gone_at: float = 0.0


def round_of(operator: Operator, faults: Sequence[Fault]) -> list[Made]:
    """Make all faults of a round, wait for their alerts, repair them, and wait until the alerts are resolved.

    Alerts whose expressions look back for minutes are not waited for."""
    made = []
    for fault in faults:
        say(f"{fault.name}: made")
        since = time.monotonic()
        seen = operator.make(fault)
        where = f"API {_text(seen.api)}, CLI {_text(seen.cli)}, metrics {_text(seen.metrics)}"
        say(f"{fault.name}: detected after {_text(seen.detected)} s; {where}")
        made.append(Made(fault, seen, since, since + (seen.detected or 0)))
    for one in made:
        operator.await_firing(one.fault, one.seen, one.since, one.named_at)
    for text in operator.unexpected(faults):
        made[-1].seen.findings.append(text)
    for one in made:
        one.gone_at = operator.repair(one.fault, one.seen)
        say(f"{one.fault.name}: repaired, gone after {_text(one.seen.gone_api)} s")
    for one in made:
        operator.await_resolved(one.fault, one.seen, one.since, one.gone_at, lasting=False)
    return made


def measured(operator: Operator, names: Sequence[str], links: int) -> Any:
    """Make and repair all faults, and return the content of ``faults.json``."""
    began = time.monotonic()
    made: list[Made] = []
    for of_round in ROUNDS:
        if faults := [getattr(operator.site, name)() for name in of_round if name in names]:
            made += round_of(operator, faults)
            try:
                wait_for(lambda: all_well(operator, links), "everything to be in order", ORDER_S)
            except LabError as error:
                made[-1].seen.findings.append(f"{error}: {[alarm.text for alarm in operator.alarms()]}")
    for one in made:
        operator.await_resolved(one.fault, one.seen, one.since, one.gone_at, lasting=True)
    return {
        "faults": [asdict(one.seen) for one in made],
        "seconds": round(time.monotonic() - began),
        "other_alerts": other_alerts(operator, names),
        "alerts": [asdict(episode) for episode in operator.alerts.episodes],
    }


def other_alerts(operator: Operator, names: Sequence[str]) -> list[str]:
    """Return the names of alerts that fired and belong to none of the faults."""
    expected = {alert.name for name in names for alert in getattr(operator.site, name)().alerts}
    fired = {episode.labels["alertname"] for episode in operator.alerts.episodes if episode.firing}
    return sorted(fired - expected)


def count_failed_scrapes(prometheus: Prometheus, seconds: float) -> int:
    """Return the number of failed scrapes.

    After one, all series are stale, and the ``for:`` of each alert begins again."""
    (total,) = prometheus.query(f'sum_over_time((1 - up{{job="signalbox"}})[{round(seconds)}s:{INTERVAL}])')
    return int(float(total["value"][1]))


def failed(found: Mapping[str, Any]) -> bool:
    return any(row["findings"] for row in found["faults"]) or bool(found["without_data"])


def _text(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def main(
    only: Annotated[str, typer.Option(help=f"Faults to make, from {', '.join(FAULTS)}.")] = ",".join(FAULTS),
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/faults"),
) -> None:
    """Make faults under training, and observe the API, the command line, the metrics and alerts."""
    names = chosen("--only", only, FAULTS)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-faults-")))
        for log in ("controller.log", "prometheus.log", "alertmanager.log"):
            stack.callback(_keep, folder / log, out)
        began = time.monotonic()
        operator = stack.enter_context(scene(folder))
        links = fabric_links(operator.site.lab) + 2 * len(SECOND_LEAVES)
        found = measured(operator, names, links)
        seconds = time.monotonic() - began
        found["failed_scrapes"] = count_failed_scrapes(operator.alerts.prometheus, seconds)
        data = had_data(operator.alerts.prometheus, seconds, "ring1")
        found["empty"] = {name: EMPTY.get(name, "") for name, there in data.items() if not there}
        found["without_data"] = [name for name, why in found["empty"].items() if not why and set(names) == set(FAULTS)]
    alerts = [{"fault": row["fault"], **alert} for row in found["faults"] for alert in row["alerts"]]
    said = [f"no data: {name}{f', as expected: {why}' if why else ''}" for name, why in found["empty"].items()]
    said += [f"{name}: {found[name]}" for name in ("other_alerts", "failed_scrapes", "seconds")]
    report(found, out / "faults.json", {"Faults": found["faults"], "Alerts": alerts}, *said)
    if failed(found):
        raise typer.Exit(1)


def _keep(file: Path, out: Path) -> None:
    if file.exists():
        shutil.copy(file, out)
