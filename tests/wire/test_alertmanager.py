"""The example of an Alertmanager, run: alerts reach their receivers, and so does their end."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mininet_topos.controller_process import free_port
from mininet_topos.lab.record import wait_for

EXAMPLE = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yml"
PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Alertmanager is not installed")

Told = list[tuple[str, str, str]]
"""Receiver, alert, and whether it is firing or resolved."""


@pytest.fixture
def told() -> Iterator[tuple[str, Told]]:
    """Where receivers are, and what they were told."""
    seen: Told = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.extend((message["receiver"], a["labels"]["alertname"], a["status"]) for a in message["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def alertmanager(told: tuple[str, Told], tmp_path: Path) -> Iterator[str]:
    config = tmp_path / "alertmanager.yml"
    waits = {"group_wait: 10s": "group_wait: 1s", "group_interval: 1m": "group_interval: 1s"}
    text = EXAMPLE.read_text().replace("127.0.0.1:9095", told[0])
    for slow, quick in waits.items():
        assert slow in text
        text = text.replace(slow, quick)
    config.write_text(text)
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROGRAM), f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
             f"--web.listen-address={address}", "--cluster.listen-address="],
            stdout=log, stderr=log,
        )  # fmt: skip
    yield address
    process.terminate()
    process.wait(timeout=20)


def post(address: str, name: str, severity: str, ends_at: datetime) -> bool:
    alert = {"labels": {"alertname": name, "severity": severity}, "endsAt": ends_at.isoformat()}
    request = urllib.request.Request(
        f"http://{address}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:  # still starting
        return False


def test_critical_alerts_go_to_who_is_on_call_others_to_operators_and_their_end_too(
    alertmanager: str, told: tuple[str, Told]
) -> None:
    now, seen = datetime.now(UTC), told[1]
    alerts = {"SignalboxJobsNotServed": ("critical", "on-call"), "SignalboxPlanOld": ("warning", "operators")}
    for status, ends_at in (("firing", now + timedelta(minutes=5)), ("resolved", now)):
        for name, (severity, receiver) in alerts.items():
            wait_for(lambda: post(alertmanager, name, severity, ends_at), "Alertmanager", 30, 0.1)  # noqa: B023
            wanted = (receiver, name, status)
            wait_for(lambda: wanted in seen, str(wanted), 30, 0.1)  # noqa: B023
    assert {(receiver, name) for receiver, name, _ in seen} == {(to, name) for name, (_, to) in alerts.items()}
