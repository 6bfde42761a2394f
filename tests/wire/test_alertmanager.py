"""A real Alertmanager with the example configuration: alerts reach their receivers, and so do their ends."""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.monitoring import alertmanager, receiver
from mininet_topos.lab.record import wait_for


def post(address: str, name: str, severity: str, ends_at: datetime) -> bool:
    alert = {"labels": {"alertname": name, "severity": severity}, "endsAt": ends_at.isoformat()}
    request = urllib.request.Request(
        f"http://{address}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:  # still starting
        return False


def test_critical_alerts_go_to_who_is_on_call_others_to_operators_and_their_end_too(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    alerts = {"SignalboxJobsNotServed": ("critical", "on-call"), "SignalboxPlanOld": ("warning", "operators")}
    with receiver() as (receivers, told), alertmanager(tmp_path, receivers) as address:
        for status, ends_at in (("firing", now + timedelta(minutes=5)), ("resolved", now)):
            for name, (severity, to) in alerts.items():
                wait_for(lambda: post(address, name, severity, ends_at), "Alertmanager", 60, 0.1)  # noqa: B023
                wanted = (to, name, status)
                wait_for(lambda: wanted in {(t.receiver, t.alert, t.status) for t in told}, str(wanted), 60, 0.1)  # noqa: B023
        assert {(t.receiver, t.alert) for t in told} == {(to, name) for name, (_, to) in alerts.items()}
