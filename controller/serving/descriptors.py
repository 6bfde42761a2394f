"""Who may use how many file descriptors: switches, API clients and scrapes get shares that leave enough for the rest.

In: the configuration and the limit of the process. Out: a configuration whose limits of connections fit into it. The
share of the API holds only behind HAProxy: gRPC has no limit of connections that could be used.
"""

from __future__ import annotations

import resource

import structlog

from controller.config import Config
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

OWN = 128
"""Files, pipes and queues of the controller itself: state, logs, analyses, gRPC's and the hub's own."""
LEAST = 256


def raise_limit() -> int:
    """The soft limit becomes the hard one; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def within(config: Config, limit: int) -> Config:
    """Return the configuration with as many switches as ``limit`` descriptors are enough for, at most half of which are
    for the API. Raises ``InvalidInput`` for fewer than ``LEAST``, and where half are not enough for what HAProxy may
    hand over: it has its limit from the file."""
    if limit < LEAST:
        raise InvalidInput.of("", f"the process may open {limit} files; at least {LEAST} are needed (ulimit -n)")
    shared = limit - OWN - config.metrics.max_connections
    if config.api.proxy_socket and config.api.max_connections > shared // 2:
        why = (
            f"HAProxy may open as many here, and the process may open {limit} files; at most {shared // 2} are possible"
        )
        raise InvalidInput.of("api.max_connections", f"{why}: lower it, or raise the limit (ulimit -n)")
    clients = min(config.api.max_connections, shared // 2)
    switches = min(config.openflow.max_connections, shared - clients)
    openflow = config.openflow.model_copy(update={"max_connections": switches})
    log.info(
        "file descriptors shared",
        limit=limit,
        switches=switches,
        api_connections=clients,
        metrics=config.metrics.max_connections,
        own=OWN,
    )
    return config.model_copy(update={"openflow": openflow})
