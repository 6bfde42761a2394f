"""Shares of file descriptors for connections of switches, API clients and scrapers, so that enough remain for the rest.

In: the configuration, and the process's limit of descriptors. Out: a configuration whose connection limits fit into
that limit. The share of the API is enforced only behind HAProxy: gRPC has no suitable limit.
"""

from __future__ import annotations

import resource

import structlog

from controller.config import Config
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

OWN = 128
"""Number of descriptors for the controller itself: state, logs, analyses, pipes, queues, and files of gRPC and the
hub."""
LEAST = 256


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def within(config: Config, limit: int) -> Config:
    """Return the configuration with as many switch connections as ``limit`` descriptors allow.

    Switches and the API share the descriptors that remain for connections. API connections get at most half of these
    descriptors. Raises ``InvalidInput`` if ``limit`` is below ``LEAST``, and, behind HAProxy, if
    ``api.max_connections`` is more than this half."""
    if limit < LEAST:
        raise InvalidInput.of("", f"the process may open {limit} files; at least {LEAST} are needed (ulimit -n)")
    shared = limit - OWN - config.metrics.max_connections
    if config.api.proxy_socket and config.api.max_connections > shared // 2:
        why = f"is the number of connections that HAProxy may open; at most {shared // 2} fit into {limit} open files"
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
