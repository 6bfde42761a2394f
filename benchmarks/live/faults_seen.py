"""Operator's view of a fault: seconds until API, command line, metrics and alerts show it, and until it is gone.

``Operator`` makes a fault, watches a running controller, Prometheus and the receiver of an Alertmanager, repairs the
fault, and watches again.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.live.faults_made import Alert, Fault, Series, Site
from benchmarks.monitoring import Notification, Prometheus, get, rules
from signalbox.mapping import word_in
from signalbox.words import AlarmKind

NAMED_S = 5.0
"""Seconds after the controller's alarm by which API, command line and metrics must show the fault."""
GONE_S = 15.0
"""Seconds after the repair by which a fault must be gone: cables are held down, and hosts must be found again."""
ALERT_SLACK_S = 12.0
"""Seconds that an alert may take for two scrapes, two evaluations and Alertmanager's waits, on a busy machine."""
PATIENCE_S = 30.0
"""Seconds after a limit for which the benchmark still waits, to report how late an event is."""
POLL_S = 0.1


@dataclass
class Seen:
    """Seconds until a fault was shown, and until it was gone; None for an event that did not happen in time."""

    fault: str
    named: list[str]
    detected: float | None = None
    """Seconds from the fault until the controller raised its alarm."""
    api: float | None = None
    """Seconds from the controller's alarm until the API showed the fault; ``cli`` and ``metrics`` likewise."""
    cli: float | None = None
    metrics: float | None = None
    gone_api: float | None = None
    """Seconds from the repair until the API stopped showing the fault; ``gone_cli`` and ``gone_metrics`` likewise."""
    gone_cli: float | None = None
    gone_metrics: float | None = None
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """Alerts of the fault, with labels and times."""
    findings: list[str] = field(default_factory=list)
    """Sentences about reports of the fault that were missing, late or unexpected."""


@dataclass
class Episode:
    """Occurrence of an alert. Times are monotonic seconds."""

    labels: Mapping[str, str]
    pending: float
    firing: float | None = None
    gone: float | None = None


class AlertLog:
    """Record of all alerts in Prometheus, which ``follow`` keeps up to date."""

    def __init__(self, prometheus: Prometheus) -> None:
        self.episodes: list[Episode] = []
        self.prometheus = prometheus
        self._open: dict[tuple[tuple[str, str], ...], Episode] = {}

    def follow(self, ends: threading.Event) -> None:
        while not ends.wait(2 * POLL_S):
            with suppress(OSError):
                self.take(self.prometheus.alerts(), time.monotonic())

    def take(self, alerts: Sequence[Mapping[str, Any]], now: float) -> None:
        """Record ``alerts``, pending or firing at the time ``now``. All earlier alerts not among them have ended."""
        there = {tuple(sorted(alert["labels"].items())): alert["state"] for alert in alerts}
        for key, state in there.items():
            if key not in self._open:
                self._open[key] = Episode(dict(key), now)
                self.episodes.append(self._open[key])
            if state == "firing" and self._open[key].firing is None:
                self._open[key].firing = now
        for key in self._open.keys() - there.keys():
            self._open.pop(key).gone = now


class Operator:
    """Operator who makes and repairs faults, and watches where they are shown."""

    def __init__(self, site: Site, metrics: str, alerts: AlertLog, notifications: Sequence[Notification]) -> None:
        self.site = site
        self.alerts = alerts
        self.notifications = notifications
        self._metrics = metrics
        self._for_s = {rule["alert"]: _seconds(rule.get("for", "0s")) for rule in rules("alerts.yml")}
        self._keep_s = {rule["alert"]: _seconds(rule.get("keep_firing_for", "0s")) for rule in rules("alerts.yml")}

    # ---- the three surfaces

    def alarms(self) -> list[Any]:
        return list(self.site.client.get_status().alarms)

    def in_api(self, fault: Fault) -> bool:
        found = {(word_in(alarm, "kind"), alarm.subject): alarm.text for alarm in self.alarms()}
        return all(named.says in found.get((named.kind, named.subject), "") for named in fault.alarms)

    def not_in_api(self, fault: Fault) -> bool:
        found = {(word_in(alarm, "kind"), alarm.subject) for alarm in self.alarms()}
        return all((named.kind, named.subject) not in found for named in fault.alarms)

    def status(self) -> list[str]:
        words = [sys.executable, "-m", "controller", "status", "--address", self.site.controller.address]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()

    def in_cli(self, fault: Fault) -> bool:
        """Return whether the command line shows the fault.

        The command takes a second of CPU time, so it is run only when the API shows the fault already."""
        lines = self.status() if self.in_api(fault) else []
        return all(any(f" {named.kind}" in line and named.says in line for line in lines) for named in fault.alarms)

    def not_in_cli(self, fault: Fault) -> bool:
        lines = self.status() if self.not_in_api(fault) else [""]
        return any(lines) and not any(
            f" {named.kind}" in line and named.says in line for named in fault.alarms for line in lines
        )

    def scrape(self) -> str:
        return get(f"http://{self._metrics}/metrics")

    def in_metrics(self, fault: Fault) -> bool:
        text = self.scrape()
        return all(_alarms(text, named.kind) for named in fault.alarms) and all(holds(text, s) for s in fault.series)

    def not_in_metrics(self, fault: Fault) -> bool:
        """Return whether the fault's alarms and series are gone. Totals are ignored, because they never decrease."""
        text = self.scrape()
        lasting = [series for series in fault.series if "_total" not in series.begin]
        return not any(_alarms(text, n.kind) for n in fault.alarms) and not any(holds(text, s) for s in lasting)

    # ---- making and repairing a fault

    def make(self, fault: Fault) -> Seen:
        seen = Seen(fault.name, [f"{named.kind} {named.subject}" for named in fault.alarms])
        wall, began = time.time(), time.monotonic()
        fault.make()
        limit = began + fault.within_s + NAMED_S + PATIENCE_S
        api, cli, metrics = first_times(
            limit, lambda: self.in_api(fault), lambda: self.in_cli(fault), lambda: self.in_metrics(fault)
        )
        wanted = {(named.kind, named.subject) for named in fault.alarms}
        raised = [
            alarm.raise_time.seconds + alarm.raise_time.nanos / 1e9
            for alarm in self.alarms()
            if (word_in(alarm, "kind"), alarm.subject) in wanted
        ]
        if len(raised) < len(wanted):
            seen.findings.append(
                f"no alarm names the fault; raised: {[(word_in(a, 'kind'), a.subject, a.text) for a in self.alarms()]}"
            )
        if not raised:
            return seen
        seen.detected = max(raised) - wall
        known = began + seen.detected
        if seen.detected > fault.within_s:
            seen.findings.append(f"detected after {seen.detected:.1f} s, later than {fault.within_s:g} s")
        for where, at in (("api", api), ("cli", cli), ("metrics", metrics)):
            if at is not None:
                setattr(seen, where, max(0.0, at - known))
            if at is None or at - known > NAMED_S:
                seen.findings.append(f"{where}: {'never' if at is None else f'{at - known:.1f} s'}")
        return seen

    def repair(self, fault: Fault, seen: Seen) -> float:
        """Repair a fault, and return the monotonic time at which the API had stopped showing it."""
        fault.repair()
        began = time.monotonic()
        gone = first_times(
            began + fault.lasts_s + GONE_S + PATIENCE_S,
            lambda: self.not_in_api(fault),
            lambda: self.not_in_cli(fault),
            lambda: self.not_in_metrics(fault),
        )
        for where, at in zip(("gone_api", "gone_cli", "gone_metrics"), gone, strict=True):
            setattr(seen, where, None if at is None else at - began)
            if at is None or at - began > fault.lasts_s + GONE_S:
                seen.findings.append(f"{where}: {'never' if at is None else f'{at - began:.1f} s'}")
        fault.tidy()
        return gone[0] or time.monotonic()

    def unexpected(self, faults: Sequence[Fault]) -> list[str]:
        expected = {(named.kind, named.subject) for fault in faults for named in fault.alarms}
        kinds = frozenset[AlarmKind]().union(*(fault.also for fault in faults))
        return [
            f"also {word_in(alarm, 'kind')}: {alarm.text}"
            for alarm in self.alarms()
            if (word_in(alarm, "kind"), alarm.subject) not in expected
            and AlarmKind(word_in(alarm, "kind")) not in kinds
        ]

    # ---- alerts

    def await_firing(self, fault: Fault, seen: Seen, since: float, named_at: float) -> None:
        """Wait until the fault's alerts fire, and record their times.

        The fault was made at the monotonic time ``since``, and the controller raised its alarm at ``named_at``."""
        for alert in fault.alerts:
            for_s = self._for_s[alert.name]
            limit_s = for_s + alert.after_s + ALERT_SLACK_S
            first_times(named_at + limit_s + PATIENCE_S, lambda: self._fired(alert, since))  # noqa: B023
            row: dict[str, Any] = {"alert": alert.name, "labels": dict(alert.labels), "for": for_s}
            seen.alerts.append(row)
            episode, notified_at = self._episode(alert, since), self._notified_at(alert, "firing", since)
            if episode is None or episode.firing is None or notified_at is None:
                what = (
                    "never pending" if episode is None else "never fired" if episode.firing is None else "not notified"
                )
                seen.findings.append(f"{alert.name} {dict(alert.labels)}: {what}")
                continue
            row["pending"] = episode.pending - named_at
            row["fired"] = episode.firing - named_at
            row["told"] = notified_at - named_at
            if notified_at - named_at > limit_s:
                seen.findings.append(
                    f"{alert.name}: notified after {notified_at - named_at:.1f} s, later than {limit_s:g} s"
                )
            if episode.firing - episode.pending < for_s - 1:
                seen.findings.append(f"{alert.name}: fired before its 'for' had passed")

    def await_resolved(self, fault: Fault, seen: Seen, since: float, gone_at: float, lasting: bool) -> None:
        """Wait until the fault's alerts are resolved, and record their times.

        ``lasting``: wait only for the alerts that look back for minutes (``holds_s``), not for all other alerts."""
        for alert, row in zip(fault.alerts, seen.alerts, strict=True):
            if "told" not in row or bool(alert.holds_s) is not lasting:
                continue
            limit_s = alert.holds_s + self._keep_s[alert.name] + ALERT_SLACK_S
            first_times(gone_at + limit_s + PATIENCE_S, lambda: self._notified_at(alert, "resolved", since) is not None)  # noqa: B023
            resolved = self._notified_at(alert, "resolved", since)
            row["resolved"] = None if resolved is None else resolved - gone_at
            if resolved is None or resolved - gone_at > limit_s:
                how = "never" if resolved is None else f"after {resolved - gone_at:.1f} s, later than {limit_s:g} s"
                seen.findings.append(f"{alert.name}: resolved {how}")

    def _fired(self, alert: Alert, since: float) -> bool:
        """Return whether the alert has fired in Prometheus, and the receiver was notified, in either order."""
        episode = self._episode(alert, since)
        return bool(episode and episode.firing) and self._notified_at(alert, "firing", since) is not None

    def _episode(self, alert: Alert, since: float) -> Episode | None:
        found = (e for e in self.alerts.episodes if e.pending >= since and _is(alert, e.labels))
        return next(found, None)

    def _notified_at(self, alert: Alert, status: str, since: float) -> float | None:
        found = (one for one in tuple(self.notifications) if one.at >= since and one.status == status)
        return next((one.at for one in found if _is(alert, one.labels)), None)


def _is(alert: Alert, labels: Mapping[str, str]) -> bool:
    return {"alertname": alert.name, **alert.labels}.items() <= labels.items()


def first_times(limit: float, *conditions: Callable[[], bool]) -> list[float | None]:
    """Check all conditions at once, and return when each first held; None for one that did not before ``limit``."""
    interrupted = threading.Event()

    def until(condition: Callable[[], bool]) -> float | None:
        while time.monotonic() < limit and not interrupted.wait(POLL_S):
            if condition():
                return time.monotonic()
        return None

    with ThreadPoolExecutor(len(conditions)) as pool:
        try:
            return list(pool.map(until, conditions))
        finally:
            interrupted.set()


def _alarms(exposition: str, kind: AlarmKind) -> bool:
    return holds(exposition, Series(f'signalbox_alarms{{kind="{kind}"', 1, 1e6))


def holds(exposition: str, series: Series) -> bool:
    """Return whether the metrics contain the series with a value in its range."""
    found = re.findall(rf"^{re.escape(series.begin)}[^ ]* (\S+)$", exposition, re.MULTILINE)
    return any(series.low <= float(value) <= series.high for value in found)


def _seconds(duration: str) -> float:
    """Return the seconds in a duration of Prometheus, such as ``1m30s``."""
    units = {"s": 1, "m": 60, "h": 3600}
    return float(sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([smh])", duration)))
