"""Types of metrics, and constructors for families with one value per item.

In: a ``Snapshot``, which is made for each scrape. Out: ``Family`` objects for the list in ``families``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from controller.demand.job_demand import JobDemand
from controller.fabric.parts import Part, PartKey
from controller.fabric.topology import LinkId, PortRef
from controller.planning.plan import Plan
from controller.shared_map import Histogram
from controller.status import JobStatus, JobTiming, Status, StatusBoard, SwitchStatus


class LinkLabels(NamedTuple):
    """Labels of a link. ``kind``: ``fabric`` between two switches, ``edge`` between a switch and a host."""

    link: str
    src: str
    dst: str
    kind: Literal["fabric", "edge"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Data of one scrape.

    ``links``: labels and capacity (bit/s) of every present link. ``now``: monotonic seconds. ``board``: has the values
    that are not in ``status``. ``down_names``: for each part that is down, the names of its switches."""

    status: Status
    now: float
    links: Mapping[LinkId, tuple[LinkLabels, float]]
    board: StatusBoard
    down_names: Mapping[PartKey, tuple[str, ...]]


Sample = tuple[tuple[str, ...], float]

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: a counter if its name ends in ``_total``, a histogram if it has ``histograms``, otherwise a gauge.

    ``samples`` and ``histograms`` return label values, in the order of ``labels``, and the value. A label must not be
    called ``job``, because Prometheus adds a label of this name to every series."""

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
    """Yield the labels of both links of a cable that is down, which are the same as while the cable is up.

    ``switches``: names of the cable's switches."""
    if not part.seen:
        yield LinkLabels(part.name, switches[0], switches[1], "fabric")
        return
    for (src, dst), end in zip((switches, switches[::-1]), part.ends, strict=True):
        yield LinkLabels(f"{src}:{end.at.port}>{dst}", src, dst, "fabric")


# ---- families of one shape, each from a value


Item = TypeVar("Item")
Shape = Callable[[str, str, Callable[[Item], float | None]], Family]
"""Function that makes a family from its name, its help text, and a function that returns the value of an item. An item
without a value has no series."""


def _shape(labels: tuple[str, ...], items: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], Item]]]) -> Shape[Item]:
    """Return a function that makes families with these labels (see ``Shape``).

    ``items``: yields, for each series, the label values and the item from which the value of the series is computed."""

    def family(name: str, text: str, value: Callable[[Item], float | None]) -> Family:
        def samples(snapshot: Snapshot) -> Iterator[Sample]:
            for of, item in items(snapshot):
                if (known := value(item)) is not None:
                    yield of, known

        return Family(name, text, samples, labels)

    return family


def _plans(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], Plan]]:
    if snapshot.status.plan:
        yield (), snapshot.status.plan


def _jobs(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], JobStatus]]:
    return (((job_id,), job) for job_id, job in snapshot.status.jobs.items())


def demands(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], JobDemand]]:
    known = snapshot.status.demands
    return (((job_id,), known[job_id]) for job_id in snapshot.status.jobs if job_id in known)


def _timings(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], JobTiming]]:
    known = snapshot.status.extension.timings
    return (((job_id,), known[job_id]) for job_id in snapshot.status.jobs if job_id in known)


def _switches(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], SwitchStatus]]:
    status = snapshot.status
    return (((status.fabric.name(dpid),), switch) for dpid, switch in status.switches.items())


one: Shape[Status] = _shape((), lambda snapshot: [((), snapshot.status)])
of_plan = _shape((), _plans)
per_job = _shape(("job_id",), _jobs)
per_demand = _shape(("job_id",), demands)
per_timing = _shape(("job_id",), _timings)
per_switch = _shape(("switch",), _switches)


def histogram(name: str, text: str, value: Callable[[Status], Histogram]) -> Family:
    """Return the family of a histogram, whose series exist from the start."""
    return Family(name, text, histograms=lambda snapshot: [((), value(snapshot.status))])


def per_port(name: str, text: str, counts: Callable[[Status], Mapping[PortRef, int]]) -> Family:
    """Return a family with a value per port of connected switches."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        fabric = snapshot.status.fabric
        for at, count in counts(snapshot.status).items():
            if at.dpid in fabric.switches:
                yield (fabric.name(at.dpid), str(at.port)), count

    return Family(name, text, samples, ("switch", "port"))
