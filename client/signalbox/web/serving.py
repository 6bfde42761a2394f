"""Server of the page: one process with one client of the API, whose credentials stay in this process."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

import typer
from nicegui import app, run, ui
from nicegui.server import Server
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from signalbox.addresses import host_and_port
from signalbox.client import Client
from signalbox.errors import InvalidInput, SignalboxError, escaped
from signalbox.live.following import TAKE_S, Following
from signalbox.live.shown import short
from signalbox.web import log_lines
from signalbox.web.board import Board
from signalbox.web.guard import Guard
from signalbox.web.page import Page

CONNECT_S = 30.0
"""Seconds for a browser to connect after loading the page."""
AWAY_S = 30.0
"""Seconds that a disconnected browser, which may be busy or on a bad network, keeps its choices."""
TAB_S = 60.0
"""Seconds that NiceGUI keeps a tab's storage, instead of 30 days. An empty storage takes 0.7 kB per page."""
STOP_S = 2
"""Seconds for connections to end before they are cut."""
MOST_ASKING = 64
"""Largest number of questions of all viewers to the controller at a time; each has a thread that mostly waits."""
MOST_WARNING_CHARS = 500
TERMINAL_S = 2.0
"""Smallest number of seconds between two lines on the terminal about a controller that comes and goes."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Host and port of the page."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Return the address in ``HOST:PORT``. Raises ``InvalidInput``."""
        with suppress(ValueError):
            host, port = host_and_port(text)
            if port:
                return cls(host, port)
        raise InvalidInput.of("--listen", f"must be HOST:PORT, such as 127.0.0.1:8080 (given: {text})")

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def check(self) -> None:
        """Raise ``SignalboxError`` when this address cannot be listened on."""
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
    """Serve the page until SIGTERM or SIGINT. ``names``: host names that requests may have, besides addresses."""
    listen.check()
    with open_client() as client, Following(open_client) as following:
        _add_pages(board := Board(following), client, operate)
        terminal = Terminal(listen.url)

        def take() -> None:
            """Apply changes, and inform the terminal even while there is no viewer."""
            board.take()
            terminal.tell(Server.instance.started, board.state.lost)

        run.thread_pool = ThreadPoolExecutor(MOST_ASKING)
        app.timer(TAKE_S, take)
        app.storage.max_tab_storage_age = TAB_S
        app.add_middleware(Guard, names=[*names, listen.host])
        # The server raises the signal again after it has stopped; this handler then does nothing more.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        log_lines.configure()
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
            log_config=None,  # set by ``log_lines``
        )


def _end(_number: int, _frame: FrameType | None) -> None:
    """End the server; also works before it has begun."""
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
        """Report that this process answers; the page reports whether the controller does."""
        return PlainTextResponse("ok\n")


class Terminal:
    """Lines on the terminal: address of the page when it is served, and whether the controller answers."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._told_at = -TERMINAL_S
        self._listens = False
        self._lost = ""

    def tell(self, listens: bool, lost: str | None) -> None:
        """Print the changes since the last call.

        ``listens``: whether browsers can connect. ``lost``: as in ``State``."""
        if listens and not self._listens:
            self._listens = True
            typer.echo(f"The page is at {self._url} until Ctrl-C.", err=True)
        if lost is not None and bool(lost) != bool(self._lost) and self._clock() >= self._told_at + TERMINAL_S:
            self._told_at = self._clock()
            why = escaped(short(lost, MOST_WARNING_CHARS))
            typer.echo(f"warning: {why}" if lost else "The controller answers again.", err=True)
            self._lost = lost
