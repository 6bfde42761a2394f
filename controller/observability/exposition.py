"""Writer of metrics in Prometheus' text format, version 0.0.4.

In: the ``StatusBoard``. Out: the text of all ``FAMILIES``
(https://prometheus.io/docs/instrumenting/exposition_formats/).

This writer formats and escapes labels once, and reuses them at later scrapes. With tens of thousands of series, the
client library of Prometheus takes seven times the CPU time (``python -m benchmarks scrapes``).
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from controller.fabric.parts import End, Part, PartKey, PartKind
from controller.fabric.topology import Fabric, LinkId
from controller.observability.families import FAMILIES
from controller.observability.shapes import Family, LinkLabels, Snapshot
from controller.shared_map import Memo
from controller.status import StatusBoard

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SPARE = 1000
"""Number of formatted labels that may be kept in addition to twice the number of present series.

If there are more, all labels are dropped, and formatted again when they are needed."""

Labels = tuple[str, ...]


class Exposition:
    """Text of all metrics, for one thread at a time. ``clock``: monotonic seconds."""

    def __init__(
        self,
        board: StatusBoard,
        clock: Callable[[], float] = time.monotonic,
        families: Sequence[Family] = FAMILIES,
    ) -> None:
        self._board = board
        self._clock = clock
        self._families = families
        self._fabric = Memo(_with_unique_names)
        self._links = Memo(_links)
        self._names_of_down = Memo(_names_of_down)
        self._known: defaultdict[Labels, dict[Labels, str]] = defaultdict(dict)

    def text(self) -> str:
        """Return the text for the newest status."""
        status = self._board.status
        fabric = self._fabric(status.fabric)
        down = self._names_of_down(fabric, status.down_parts)
        snapshot = Snapshot(replace(status, fabric=fabric), self._clock(), self._links(fabric), self._board, down)
        most: Counter[Labels] = Counter()
        lines: list[str] = []
        for family in self._families:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.kind}\n")
            before = len(lines)
            lines += self._histograms(family, snapshot) if family.histograms else self._samples(family, snapshot)
            most[family.labels] = max(most[family.labels], len(lines) - before)
        for names, known in self._known.items():
            if len(known) > 2 * most[names] + SPARE:
                known.clear()
        return "".join(lines)

    def _samples(self, family: Family, snapshot: Snapshot) -> list[str]:
        name, names, known = family.name, family.labels, self._known[family.labels]
        lines = []
        for labels, value in family.samples(snapshot):
            of = known.get(labels)
            if of is None:
                of = known[labels] = _braced(_pairs(names, labels))
            lines.append(f"{name}{of} {_number(value)}\n")
        return lines

    def _histograms(self, family: Family, snapshot: Snapshot) -> Iterator[str]:
        assert family.histograms
        for labels, histogram in family.histograms(snapshot):
            pairs, count = _pairs(family.labels, labels), 0
            for bound, count in histogram.buckets:
                yield f"{family.name}_bucket{_braced([*pairs, *_pairs(('le',), (bound,))])} {count}\n"
            yield f"{family.name}_sum{_braced(pairs)} {_number(histogram.total)}\n"
            yield f"{family.name}_count{_braced(pairs)} {count}\n"


def _pairs(names: Labels, labels: Iterable[str]) -> list[str]:
    return [
        f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in zip(names, labels, strict=True)
    ]


def _braced(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    """Return a number as text: an integer exactly, any other number in the shortest form with the same value."""
    if isinstance(value, int):
        return str(int(value))  # also for a bool
    value = float(value)
    return repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")


def _with_unique_names(fabric: Fabric) -> Fabric:
    """Return the fabric with unique switch names; without them, series would have the same labels.

    Switches that share a name get their dpid as a suffix."""
    count = Counter(switch.name for switch in fabric.switches.values())
    if max(count.values(), default=0) <= 1:
        return fabric
    switches = {
        dpid: replace(switch, name=f"{switch.name}({dpid:#x})") if count[switch.name] > 1 else switch
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def _names_of_down(fabric: Fabric, down: Mapping[PartKey, Part]) -> dict[PartKey, Labels]:
    """Return the switch names of each part that is down.

    The name of a connected switch is that in ``fabric``. Any other name that is not unique gets the dpid as a
    suffix."""
    count = Counter(switch.name for switch in fabric.switches.values())
    count.update(part.name for part in down.values() if part.kind is PartKind.SWITCH)

    def name(end: End) -> str:
        if end.at.dpid in fabric.switches:
            return fabric.name(end.at.dpid)
        return f"{end.switch}({end.at.dpid:#x})" if count[end.switch] > 1 else end.switch

    return {key: tuple(map(name, part.ends)) for key, part in down.items()}


def _links(fabric: Fabric) -> dict[LinkId, tuple[LinkLabels, float]]:
    """Return labels and capacity of all links, with the names of ``Fabric.link_name``.

    Several addresses behind one port share the link of the first address."""
    links: dict[LinkId, tuple[LinkLabels, float]] = {}
    for link_id, link in fabric.links.items():
        labels = LinkLabels(fabric.link_name(link_id), fabric.name(link.src.dpid), fabric.name(link.dst.dpid), "fabric")
        links[link_id] = labels, link.capacity_bps
    for host in fabric.hosts.values():
        switch = fabric.name(host.at.dpid)
        port = f"{switch}:{host.at.port}"
        links.setdefault(host.uplink, (LinkLabels(f"{host.ip}>{port}", host.ip, switch, "edge"), host.nic_bps))
        links.setdefault(host.downlink, (LinkLabels(f"{port}>{host.ip}", switch, host.ip, "edge"), host.nic_bps))
    return links
