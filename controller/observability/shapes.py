"""The shapes that metrics have: what one is made of, and families that follow from a value.

In: a ``Snapshot``, which is made for each scrape. Out: ``Family``, of which ``families`` makes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from controller.fabric.parts import Part, PartKey
from controller.fabric.topology import LinkId, PortRef
from controller.histogram import Histogram
from controller.jobs.demand import JobDemand
from controller.planning.plan import Plan
from controller.status import JobStatus, Status, StatusBoard, SwitchStatus


class LinkLabels(NamedTuple):
    """``kind``: ``fabric`` between two switches, ``edge`` between a switch and a host."""

    link: str
    src: str
    dst: str
    kind: Literal["fabric", "edge"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One scrape: the status, the monotonic time, and the labels and capacity (bit/s) of every link that exists.
    ``board``: what is known beside the status. ``down_names``: of the switches of parts that are down."""

    status: Status
    now: float
    links: Mapping[LinkId, tuple[LinkLabels, float]]
    board: StatusBoard
    down_names: Mapping[PartKey, tuple[str, ...]]


Sample = tuple[tuple[str, ...], float]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a counter if its name ends in ``_total``, a histogram if it has ``histograms``, else a gauge.
    ``samples`` and ``histograms`` give label values, in the order of ``labels``, and the value. A label must not be
    called ``job``: Prometheus puts its own on every series."""

    name: str
    help: str
    samples: Callable[[Snapshot], Iterable[Sample]] = lambda _: ()
    labels: tuple[str, ...] = ()
    histograms: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], Histogram]]] | None = None

    @property
    def kind(self) -> Kind:
        if self.histograms:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def down_links(part: Part, switches: tuple[str, ...]) -> Iterator[LinkLabels]:
    """Both links of a cable that is down, named as while they were there. ``switches``: the names of theirs."""
    if not part.seen:
        yield LinkLabels(part.name, switches[0], switches[1], "fabric")
        return
    for (src, dst), end in zip((switches, switches[::-1]), part.ends, strict=True):
        yield LinkLabels(f"{src}:{end.at.port}>{dst}", src, dst, "fabric")


# ---- families of one shape, each from a value


def one(name: str, text: str, value: Callable[[Status], float | None]) -> Family:
    """No series where the value is not known."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        if (known := value(snapshot.status)) is not None:
            yield (), known

    return Family(name, text, samples)


def histogram(name: str, text: str, value: Callable[[Status], Histogram]) -> Family:
    """There from the start, with nothing counted."""
    return Family(name, text, histograms=lambda snapshot: [((), value(snapshot.status))])


def of_plan(name: str, text: str, value: Callable[[Plan], float | None]) -> Family:
    """No series before the first plan, or where it has no such value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        plan = snapshot.status.plan
        if plan and (known := value(plan)) is not None:
            yield (), known

    return Family(name, text, samples)


def per_job(name: str, text: str, value: Callable[[JobStatus], float | None]) -> Family:
    """No series for jobs without a value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        for job_id, job in snapshot.status.jobs.items():
            if (known := value(job)) is not None:
                yield (job_id,), known

    return Family(name, text, samples, ("job_id",))


def demands(snapshot: Snapshot) -> Iterator[tuple[str, JobDemand]]:
    for job_id in snapshot.status.jobs:
        if job_id in snapshot.status.demands:
            yield job_id, snapshot.status.demands[job_id]


def per_demand(name: str, text: str, value: Callable[[JobDemand], float | None]) -> Family:
    """No series for jobs without a value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        for job_id, demand in demands(snapshot):
            if (known := value(demand)) is not None:
                yield (job_id,), known

    return Family(name, text, samples, ("job_id",))


def per_switch(name: str, text: str, value: Callable[[SwitchStatus], float | None]) -> Family:
    """No series for switches without a value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        for dpid, switch in snapshot.status.switches.items():
            if (known := value(switch)) is not None:
                yield (snapshot.status.fabric.name(dpid),), known

    return Family(name, text, samples, ("switch",))


def per_port(name: str, text: str, counts: Callable[[Status], Mapping[PortRef, int]]) -> Family:
    """Of switches that are connected."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        fabric = snapshot.status.fabric
        for at, count in counts(snapshot.status).items():
            if at.dpid in fabric.switches:
                yield (fabric.name(at.dpid), str(at.port)), count

    return Family(name, text, samples, ("switch", "port"))
