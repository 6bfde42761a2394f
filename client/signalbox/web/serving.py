"""Server of the page: one process with one client of the API, whose credentials stay in this process.

``Guard`` answers requests of browsers that opened the page, and refuses requests that pages of other sites make. An
attacker can give this address a name of another site (DNS rebinding), so a request must have a known host name, or an
address. Pages of other sites can also connect here, or show this page in a frame to capture clicks. So the origin of a
request must be known too, and answers forbid frames.

Data from browsers reaches NiceGUI and its server unfiltered: a wrong event raises an error in one of their tasks, and a
browser can cause log messages. So the log has only the kind and the place of an error, in one line without control
characters, and a limited number of lines.
"""

from __future__ import annotations

import logging
import re
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

import typer
from nicegui import app, run, ui
from nicegui.server import Server
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signalbox.addresses import host_and_port
from signalbox.client import Client
from signalbox.errors import InvalidInput, SignalboxError, cut, escaped, legible
from signalbox.ip_addresses import is_address
from signalbox.live.following import TAKE_S, Following
from signalbox.live.shown import short
from signalbox.web.board import Board
from signalbox.web.page import Page

CONNECT_S = 30.0
"""Seconds within which a browser must connect after it has loaded the page."""
AWAY_S = 30.0
"""Seconds for which the choices of a disconnected browser are stored. The browser may be busy, or on a bad network."""
TAB_S = 60.0
"""Seconds for which NiceGUI stores data of a tab; its default is 30 days. An empty storage takes 0.7 kB per page."""
STOP_S = 2
"""Seconds that open connections have to end before they are cut."""
MOST_ASKING = 64
"""Largest number of calls to the controller at a time, for all viewers. Each call has a thread, which mostly waits."""
MOST_WARNING_CHARS = 500
TERMINAL_S = 2.0
"""Shortest time in seconds between two lines on the terminal about whether the controller answers."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Address at which the page is served."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Return the host and port in ``HOST:PORT``. Raises ``InvalidInput``."""
        with suppress(ValueError):
            host, port = host_and_port(text)
            if port:
                return cls(host, port)
        raise InvalidInput.of("--listen", f"must be HOST:PORT, such as 127.0.0.1:8080 (given: {text})")

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def check(self) -> None:
        """Raise ``SignalboxError`` when it is impossible to listen at this address."""
        try:
            for kind, of, protocol, _, address in socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                with socket.socket(kind, of, protocol) as tried:
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    tried.bind(address)
        except OSError as error:
            why = error.strerror or str(error)
            raise SignalboxError(f"cannot listen on {self.host}:{self.port}: {why}; --listen chooses another") from None


def serve(open_client: Callable[[], Client], listen: Listen, names: Sequence[str], operate: bool) -> None:
    """Serve the page until SIGTERM or SIGINT. ``names``: host names that requests may use, besides addresses."""
    listen.check()
    with open_client() as client, Following(open_client) as following:
        _add_pages(board := Board(following), client, operate)
        terminal = Terminal(listen.url)

        def take() -> None:
            """Apply changes, and print news on the terminal, even while there is no viewer."""
            board.take()
            terminal.tell(Server.instance.started, board.state.lost)

        run.thread_pool = ThreadPoolExecutor(MOST_ASKING)
        app.timer(TAKE_S, take)
        app.storage.max_tab_storage_age = TAB_S
        app.add_middleware(Guard, names=[*names, listen.host])
        # The server raises the signal again after it has stopped; this handler then does nothing more.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        _log_few_lines()
        ui.run(
            host=listen.host,
            port=listen.port,
            title="Signalbox",
            dark=None,
            reload=False,
            show=False,
            show_welcome_message=False,
            tailwind=True,
            reconnect_timeout=AWAY_S,
            message_history_length=0,  # a browser that was away loads the page again
            timeout_graceful_shutdown=STOP_S,
            log_config=None,  # set by ``_log_few_lines``
        )


def _end(_number: int, _frame: FrameType | None) -> None:
    if hasattr(Server, "instance"):
        Server.instance.should_exit = True
    else:
        raise SystemExit(0)


def _add_pages(board: Board, client: Client, operate: bool) -> None:
    @ui.page("/")
    async def page() -> None:
        shown = Page(board, client, operate)
        viewer = ui.context.client
        board.tell(viewer.id, shown.show)
        viewer.on_delete(lambda: board.forget(viewer.id))
        await viewer.connected(CONNECT_S)
        await shown.begin()

    @app.get("/healthz")
    def health(_: Request) -> PlainTextResponse:
        """Answer that this process works. Whether the controller answers is shown on the page."""
        return PlainTextResponse("ok\n")


class Terminal:
    """Lines on the terminal: address of the page, and whether the controller answers."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._told_at = -TERMINAL_S
        self._listens = False
        self._lost = ""

    def tell(self, listens: bool, lost: str | None) -> None:
        """Print what has changed since the last call.

        ``listens``: whether browsers can connect. ``lost``: why the controller does not answer, as in ``State``."""
        if listens and not self._listens:
            self._listens = True
            typer.echo(f"The page is at {self._url} until Ctrl-C.", err=True)
        if lost is not None and bool(lost) != bool(self._lost) and self._clock() >= self._told_at + TERMINAL_S:
            self._told_at = self._clock()
            why = escaped(short(lost, MOST_WARNING_CHARS))
            typer.echo(f"warning: {why}" if lost else "The controller answers again.", err=True)
            self._lost = lost


HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Guard:
    """Filter of requests. ``names``: host names that requests may use, besides addresses and ``localhost``."""

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
        """Return why a request is refused; empty if it is allowed."""
        given = headers.get("host", "")
        asked = _parsed(_HOST, given)
        if asked is None:
            return f"the header Host must be a name or an address, with or without a port (given: '{cut(given)}')"
        if not _local_or_address(asked.host) and asked.host not in self._names:
            return f"{asked.host} is not a known name of this page; allow it with signalbox web --name NAME"
        if "origin" in headers:
            origin = _parsed(_ORIGIN, headers["origin"])
            if origin is None or (origin != asked.over(origin.scheme) and origin.host not in self._names):
                return "a page of another site sent the request, which this page does not allow"
        return ""


def _local_or_address(host: str) -> bool:
    return host == "localhost" or is_address(host)


_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(rf"(?P<scheme>https?)://{_HOST.pattern}")
_PORTS = {"http": 80, "https": 443}


class _Site(NamedTuple):
    """Host and port of a site, such as the origin of a request.

    ``port`` is None for the default port of the scheme. ``scheme`` is empty when it is unknown."""

    scheme: str
    host: str
    port: int | None

    def over(self, scheme: str) -> _Site:
        return _Site(scheme, self.host, None if self.port == _PORTS[scheme] else self.port)


def _parsed(form: re.Pattern[str], text: str) -> _Site | None:
    """Return the site that a header of a request names, in lower case; None if the header has another form."""
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


MOST_LINES = 10
"""Largest number of lines that are logged in each period of ``PERIOD_S`` seconds."""
PERIOD_S = 10.0
MAX_CHARS = 500


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            said = str(record.msg)
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            place = traceback.extract_tb(error.__traceback__)[-1:]
            at = "".join(f", {frame.filename}:{frame.lineno}" for frame in place)
            said = f"{said.splitlines()[0] if said else 'failed'} ({type(error).__name__}: {cut(str(error))}{at})"
        if len(said) > MAX_CHARS:
            said = f"{said[: MAX_CHARS - 3]}..."
        return f"{record.levelname.lower()}: {record.name}: {legible(said)}"


class _Few(logging.Filter):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._since, self._written, self._left_out = clock(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if self._clock() > self._since + PERIOD_S:
            left_out, self._since, self._written, self._left_out = self._left_out, self._clock(), 0, 0
            if left_out:
                record.msg, record.args = f"({left_out} lines were left out) {record.msg}", record.args
        self._written += 1
        self._left_out += self._written > MOST_LINES
        return self._written <= MOST_LINES


def _log_few_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    handler.addFilter(_Few())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for logger in [*root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
