"""What Prometheus reads, over HTTP: the metrics of ``families``, computed from the published ``Status`` at scrape time.

In: the ``StatusBoard``. Out: ``/metrics``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.config import MetricsConfig
from controller.errors import InvalidInput
from controller.fabric.topology import Fabric, LinkId
from controller.observability.families import FAMILIES, LinkLabels, Snapshot
from controller.status import StatusBoard


class StatusCollector(Collector):
    """Renders ``FAMILIES`` from the newest status, in the thread of the scrape. ``clock``: monotonic seconds."""

    def __init__(self, board: StatusBoard, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        status = self._board.status
        status = replace(status, fabric=_with_unique_names(status.fabric))
        snapshot = Snapshot(status, self._clock(), _links(status.fabric), self._board.api_refused)
        for family in FAMILIES:
            kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for labels, value in family.samples(snapshot):
                metric.add_metric(labels, value)
            yield metric


def _with_unique_names(fabric: Fabric) -> Fabric:
    """Two switches of one name would make two series one: theirs get the dpid behind."""
    count = Counter(switch.name for switch in fabric.switches.values())
    if max(count.values(), default=0) <= 1:
        return fabric
    switches = {
        dpid: replace(switch, name=f"{switch.name}({dpid:#x})") if count[switch.name] > 1 else switch
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def _links(fabric: Fabric) -> dict[LinkId, tuple[LinkLabels, float]]:
    """Named like ``Fabric.link_name``, in one pass. Several addresses behind one port share the first one's link."""
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


class MetricsServer:
    """Serves ``/metrics`` in separate threads, with the process's memory and CPU time."""

    def __init__(self, config: MetricsConfig, board: StatusBoard) -> None:
        self._config = config
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(StatusCollector(board))
        self._running: tuple[WSGIServer, Thread] | None = None

    def start(self) -> int:
        """Returns the port that is listened on. Raises ``InvalidInput`` when the address cannot be had."""
        host, port = self._config.host, self._config.port
        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise InvalidInput.of("metrics", message) from None
        self._running = server, thread
        return server.server_port

    def stop(self) -> None:
        """Returns when the port is free again; does nothing when not started."""
        if self._running:
            server, thread = self._running
            self._running = None
            server.shutdown()
            server.server_close()
            thread.join()
