"""Check whether the expressions of dashboards, recording rules and alerts had data; ``EMPTY`` has the exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.monitoring import Prometheus, filled_in, panels, rules

STEP = "1s"
NO_FAULT = "no such fault was made"
NO_TLS = "no listener has TLS here"
NO_ETCD = "the state is not in etcd here"
EMPTY: Mapping[str, str] = {
    "panel controller: Certificates, A": NO_TLS,
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
"""Expressions that may be without data, and why."""


def asked(job: str) -> Iterator[tuple[str, str]]:
    """Yield the name and expression of each query. ``job``: job that is selected in the dashboards."""
    for dashboard, panel in panels():
        for target in panel["targets"]:
            yield f"panel {dashboard}: {panel['title']}, {target['refId']}", filled_in(target["expr"], job)
    for rule in rules("rules.yml"):
        yield f"record {rule['record']}", rule["expr"]
    for rule in rules("alerts.yml"):
        yield f"alert {rule['alert']}", rule["expr"]


def had_data(prometheus: Prometheus, seconds: float, job: str) -> dict[str, bool]:
    """Return by name whether each expression had data within the last ``seconds``."""
    return {
        name: bool(prometheus.query(f"last_over_time(({expression})[{round(seconds)}s:{STEP}])"))
        for name, expression in asked(job)
    }
