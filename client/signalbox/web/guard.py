"""Which requests the page answers: those of browsers that have opened it, not those of other sites' pages.

A site can lead a name of its own to this address (DNS rebinding): so names must be known, which addresses need not be.
Its pages can connect here, or show this page within theirs for clicks that are not meant for it: so the origin of a
request must be known too, and answers forbid frames.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Guard:
    """``names``: that requests may have as their host besides addresses and ``localhost``."""

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
        """Why it is not answered; empty mostly."""
        asked = headers.get("host", "").lower()
        host = _host(f"//{asked}")
        if not _local_or_address(host) and host not in self._names:
            return f"{host or 'nothing'} is not known as a name of this page: signalbox web --name NAME makes it known"
        origin = headers.get("origin", f"//{asked}").lower()
        if origin.rpartition("//")[2] != asked and _host(origin) not in self._names:
            return "another site's page has asked"
        return ""


def _local_or_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _host(url: str) -> str:
    """In small letters; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending
