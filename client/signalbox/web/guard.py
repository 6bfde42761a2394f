"""Answer requests of browsers that opened the page, and refuse requests that pages of other sites make.

A site can point a name of its own at this address (DNS rebinding), so names must be known; addresses need not be. Pages
of such a site can connect here, or show this page in a frame to capture clicks. So the origin of a request must be
known too, and answers forbid frames."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signalbox.errors import cut

HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Guard:
    """Filter of requests. ``names``: host names that requests may have, besides addresses and ``localhost``."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names if not _local_or_address(name)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif problem := self._problem(Headers(scope=scope)):
            await PlainTextResponse(f"{problem}\n", status_code=400)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send))

    def _problem(self, headers: Headers) -> str:
        """Return why a request is refused; empty for a request that is answered."""
        given = headers.get("host", "")
        asked = _parsed(_HOST, given)
        if asked is None:
            return f"Host must be a name or an address, with or without a port (given: '{cut(given)}')"
        if not _local_or_address(asked.host) and asked.host not in self._names:
            return f"{asked.host} is not a known name of this page; add it with signalbox web --name NAME"
        if "origin" in headers:
            origin = _parsed(_ORIGIN, headers["origin"])
            if origin is None or (origin != asked.over(origin.scheme) and origin.host not in self._names):
                return "the request comes from another site's page"
        return ""


def _local_or_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(rf"(?P<scheme>https?)://{_HOST.pattern}")
_PORTS = {"http": 80, "https": 443}


class _Site(NamedTuple):
    """Host and port of a site.

    ``port`` is None for the scheme's default port; ``scheme`` is empty when it is unknown."""

    scheme: str
    host: str
    port: int | None

    def over(self, scheme: str) -> _Site:
        return _Site(scheme, self.host, None if self.port == _PORTS[scheme] else self.port)


def _parsed(form: re.Pattern[str], text: str) -> _Site | None:
    """Return the site that a header names, in lower case; None when the header has another form."""
    if not (found := form.fullmatch(text.lower())):
        return None
    parts = found.groupdict()
    scheme, port = parts.get("scheme", ""), int(parts["port"]) if parts["port"] else None
    site = _Site(scheme, parts["host"].strip("[]"), port)
    return site.over(scheme) if scheme else site


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending
