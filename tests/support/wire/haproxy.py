"""A real HAProxy in front of the API, with the configuration that ``signalbox serve --print-haproxy`` prints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.config import ApiConfig
from mininet_topos.controller_process import reserve_port
from mininet_topos.haproxy_process import haproxy_before
from tests.support.wire.control_stand_in import Running, running_api


@contextmanager
def proxied_api(directory: Path, *more: str, **config: Any) -> Iterator[Running]:
    """Run the API of ``running_api`` behind HAProxy, whose address is the first one.

    ``directory``: directory of the socket and of the configuration.
    ``more``: further addresses of the API."""
    address = f"127.0.0.1:{reserve_port()}"
    settings: dict[str, Any] = {"proxy_socket": directory / "proxy.sock", **config}
    behind = ApiConfig(listen=(address, *more), **settings)
    with running_api(address, *more, **settings) as api, haproxy_before(directory, behind):
        yield Running((address, *api.addresses), api.control, api.server)
