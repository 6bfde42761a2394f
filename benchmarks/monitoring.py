"""Prometheus and Alertmanager as they are deployed, for benchmarks and tests that query metrics and wait for alerts.

Both are real programs with the configuration in ``deploy``. They end with the ``with`` block, or with the thread that
started them.
"""

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

from mininet_topos.controller_process import reserve_port
from mininet_topos.lab.record import wait_for
from signalbox.errors import SignalboxError

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DASHBOARDS = DEPLOY / "grafana" / "dashboards"
RANGE = "5m"
"""Time range that is filled in for ``$__range`` in queries of dashboards."""
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
START_S = 60.0
STOP_S = 20.0
WAITS = {"group_wait: 10s": "group_wait: 1s", "group_interval: 1m": "group_interval: 1s"}
"""Waits in the example configuration of Alertmanager, each with the shorter wait that replaces it."""


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@contextmanager
def running(log: Path, *argv: str) -> Iterator[None]:
    """Run a program while the block runs. Raises ``SignalboxError`` when it is not installed."""
    if shutil.which(argv[0]) is None:
        raise SignalboxError(f"{argv[0]} is not installed; run scripts/bootstrap.sh")
    with log.open("wb") as output:
        words = ["setpriv", "--pdeathsig", "KILL", *argv]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=STOP_S)


# ---- Prometheus


@dataclass(frozen=True)
class Prometheus:
    """Client of a running Prometheus. ``address``: address of its API."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now, each with ``metric`` and ``value``. Raises ``OSError``."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def until_it_answers(self, expression: str) -> list[dict[str, Any]]:
        """Return the first series that an expression has. Raises ``LabError`` if it has none within ``START_S``."""
        result: list[dict[str, Any]] = []

        def answers() -> bool:
            try:
                result[:] = self.query(expression)
            except OSError:  # Prometheus is still starting
                return False
            return bool(result)

        wait_for(answers, f"an answer to {expression}", START_S, 0.1)
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """Return the pending and firing alerts, each with ``labels`` and ``state``. Raises ``OSError``."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    def _get(self, what: str, **parameters: str) -> Any:
        return json.loads(get(f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"))["data"]


@contextmanager
def prometheus(folder: Path, target: str, interval: str, alertmanager: str | None = None) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration and the rules of ``deploy`` while the block runs.

    - ``target``: address of the metrics to scrape.
    - ``interval``: time between two scrapes, and between two evaluations of rules.
    - ``alertmanager``: address of an Alertmanager to notify."""
    deployed = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    assert '"127.0.0.1:9464"' in deployed
    config = yaml.safe_load(deployed.replace("127.0.0.1:9464", target).replace("5s", interval))
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    for rules in config["rule_files"]:
        shutil.copy(DEPLOY / "prometheus" / rules, folder)
    address = f"127.0.0.1:{reserve_port()}"
    options = (f"--config.file={file}", f"--web.listen-address={address}")
    with running(folder / "prometheus.log", "prometheus", *options, f"--storage.tsdb.path={folder / 'prometheus'}"):
        yield Prometheus(address)


# ---- Alertmanager


@dataclass(frozen=True, slots=True)
class Notification:
    """Notification about one alert. ``at``: monotonic seconds. ``status``: firing or resolved."""

    at: float
    receiver: str
    labels: Mapping[str, str]
    status: str

    @property
    def alert(self) -> str:
        return self.labels["alertname"]


@contextmanager
def receiver() -> Iterator[tuple[str, Sequence[Notification]]]:
    """Run a receiver of notifications. Yields its address, and the list to which it appends what it receives."""
    seen: list[Notification] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            now = time.monotonic()
            seen.extend(Notification(now, message["receiver"], a["labels"], a["status"]) for a in message["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def alertmanager(folder: Path, receivers: str) -> Iterator[str]:
    """Run an Alertmanager with the example of ``deploy`` and shorter waits, and yield its address.

    ``receivers``: address that it notifies."""
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text().replace("127.0.0.1:9095", receivers)
    for slow, quick in WAITS.items():
        assert slow in text
        text = text.replace(slow, quick)
    config = folder / "alertmanager.yml"
    config.write_text(text)
    address = f"127.0.0.1:{reserve_port()}"
    options = (f"--config.file={config}", f"--web.listen-address={address}", "--cluster.listen-address=")
    storage = f"--storage.path={folder / 'alertmanager'}"
    with running(folder / "alertmanager.log", ALERTMANAGER or "alertmanager", *options, storage):
        yield address


# ---- dashboards and rules


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the generated Grafana dashboards, by file name without suffix."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(DASHBOARDS.glob("*.json"))}


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (dashboard, panel) for each panel that is not a row of panels."""
    for name, dashboard in dashboards().items():
        yield from ((name, panel) for panel in dashboard["panels"] if panel["type"] != "row")


def filled_in(expression: str, job: str) -> str:
    """Return the expression of a dashboard, filled in for one job, all fabrics and all controllers."""
    chosen = {"$fabric": ".*", "$instance": ".*", "$job": job, "$__range": RANGE}
    for variable, value in chosen.items():
        expression = expression.replace(variable, value)
    return expression


def dashboard_expressions(job: str = "job") -> Iterator[str]:
    """Yield the filled-in expressions of all panels; annotations are left out."""
    for _, panel in panels():
        for target in panel["targets"]:
            yield filled_in(target["expr"], job)


def kinds_with_an_alert() -> set[str]:
    """Return the kinds of alarms with an alert of their own: those that the general alerts (``*Alarm``) exclude."""
    of_alarms = (rule["expr"] for rule in rules("alerts.yml") if rule["alert"].endswith("Alarm"))
    return {kind for text in of_alarms for left in re.findall(r'kind!~"([^"]+)"', text) for kind in left.split("|")}


def rules(file: str) -> list[dict[str, Any]]:
    """Return the rules in ``alerts.yml`` or ``rules.yml``."""
    groups = yaml.safe_load((DEPLOY / "prometheus" / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]
