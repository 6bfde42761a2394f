"""Imports of Ryu or its maintained fork os-ken, and of eventlet with its hub; no other file imports these packages.

In: messages of switches through ``Events``. Out: calls of the app's handlers. The module also exports the names of the
framework that the rest of the southbound uses; ``FRAMEWORK`` names the framework. An exception in a handler or greenlet
is logged and ends ``run_hub``, which raises it.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import os
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

import structlog

from controller.southbound.openflow_framing import Malformed
from controller.southbound.outbox import Outbox
from signalbox.errors import InvalidInput

CHOICE = "SIGNALBOX_OPENFLOW"


def chosen() -> str:
    """Return the framework to use, ``ryu`` or ``os_ken``, from the environment variable ``SIGNALBOX_OPENFLOW``.

    Without the variable, the framework is Ryu if installed, else os-ken. Raises ``InvalidInput`` for any other
    value."""
    wanted = os.environ.get(CHOICE) or ("ryu" if find_spec("ryu") else "os_ken")
    if wanted not in ("ryu", "os_ken"):
        raise InvalidInput.of(CHOICE, f"must be ryu or os_ken, not '{wanted}'")
    return wanted


_HTTP = {"client": http.client, "server": http.server}

with warnings.catch_warnings():
    # Deprecations inside eventlet, Ryu and WebOb are known; no operator can act on them.
    warnings.simplefilter("ignore")
    # The hub resolves no names; eventlet's own resolver would take 15 MB.
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    import eventlet.hubs
    import eventlet.wsgi
    from eventlet.green.socket import socket as green_socket

    FRAMEWORK = chosen()
    if FRAMEWORK == "ryu":
        # Ryu 4.34 imports a name that eventlet dropped in 0.30.3.
        eventlet.wsgi.ALREADY_HANDLED = object()
        # Ryu would import setuptools, 93 modules and 50 ms, for a protocol that is not used here.
        sys.modules.setdefault("ryu.lib.packet.zebra", ModuleType("zebra"))
        from ryu import cfg
        from ryu.base.app_manager import AppManager, RyuApp, lookup_service_brick
        from ryu.controller import ofp_event, ofp_handler
        from ryu.controller.handler import DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
        from ryu.lib import hub
        from ryu.ofproto import ofproto_v1_3 as ofp
        from ryu.ofproto import ofproto_v1_3_parser as ofp_parser
        from ryu.ofproto.ofproto_protocol import ProtocolDesc
    else:
        # On os-ken's native hub the first exception ends an app's event thread, and a timed wait never returns.
        os.environ["OSKEN_HUB_TYPE"] = "eventlet"
        from os_ken import cfg
        from os_ken.base.app_manager import AppManager, lookup_service_brick
        from os_ken.base.app_manager import OSKenApp as RyuApp
        from os_ken.controller import ofp_event, ofp_handler
        from os_ken.controller.handler import DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
        from os_ken.lib import hub
        from os_ken.ofproto import ofproto_v1_3 as ofp
        from os_ken.ofproto import ofproto_v1_3_parser as ofp_parser
        from os_ken.ofproto.ofproto_protocol import ProtocolDesc

# eventlet replaces these modules by copies with its own sockets and threads.
for _name, _module in _HTTP.items():
    setattr(http, _name, _module)

__all__ = [
    "CHOICE",
    "DEAD_DISPATCHER",
    "FRAMEWORK",
    "HANDSHAKE_DISPATCHER",
    "MAIN_DISPATCHER",
    "PROTOCOL",
    "AppManager",
    "Events",
    "HubSocket",
    "RyuApp",
    "cfg",
    "green_socket",
    "kill",
    "ofp",
    "ofp_event",
    "ofp_handler",
    "ofp_parser",
    "on",
    "pause",
    "spawn",
    "wait_readable",
]

log = structlog.get_logger(__name__)

PROTOCOL = ProtocolDesc(ofp.OFP_VERSION)
"""Object that replaces a datapath where the framework's parser and serialisers expect one."""

Handler = TypeVar("Handler", bound=Callable[..., None])


# ---- messages from switches to the app


class Events:
    """Direct calls of the app's handlers, without the framework's queue.

    Handlers get a connection and a message instead of an object of the framework."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[Any, str], list[Callable[..., None]]] = {}

    def send(self, event: Any, state: str, *arguments: Any) -> bool:
        """Call the handlers of an event. Return False if the event has no handler in this state of the connection.

        Raises ``Malformed`` when a handler does."""
        handlers = self._handlers.get((event, state))
        if handlers is None:
            service = lookup_service_brick(ofp_event.NAME)  # None once the framework has ended
            apps = map(lookup_service_brick, service.observers.get(event, ())) if service else ()
            an_event = event(None)
            handlers = [handler for app in apps for handler in app.get_handlers(an_event, state)]
            self._handlers[event, state] = handlers
        for handler in handlers:
            handler(*arguments)
        return bool(handlers)


def on(event: Any, dispatcher: str) -> Callable[[Handler], Handler]:
    """Return a decorator that subscribes a method of the app to a class of events.

    ``Malformed`` is raised to the connection that sent the message. Any other exception goes to ``self.outbox`` and
    ends the process."""

    def decorate(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def guarded(self: Any, *arguments: Any) -> None:
            try:
                handler(self, *arguments)
            except Malformed:
                raise
            except Exception as error:
                _fail(self.outbox, handler, error)

        return cast(Handler, set_ev_cls(event, dispatcher)(guarded))

    return decorate


# ---- hub


def pause(seconds: float = 0.0) -> None:
    """Let other greenlets of the hub run."""
    hub.sleep(seconds)


def wait_readable(sock: socket.socket) -> None:
    """Let other greenlets of the hub run until the socket is readable."""
    eventlet.hubs.trampoline(sock, read=True)


_NEVER = WeakSet[Any]()
"""Greenlets that were ended before they began."""


def spawn(outbox: Outbox, body: Callable[[], None]) -> Any:
    """Start a greenlet. All greenlets must be started here. An exception in the greenlet ends the process.

    Callers must compare the result with ``is None``, because a greenlet that has not begun or has ended is false."""

    def guarded() -> None:
        if eventlet.getcurrent() in _NEVER:
            return
        try:
            body()
        except Exception as error:
            _fail(outbox, body, error)

    return hub.spawn(guarded)  # noqa: TID251 - here, and nowhere else


def kill(greenlet: Any) -> None:
    """End a greenlet. A greenlet that has not begun returns as soon as it begins.

    Eventlet would raise an exception in a greenlet that has not begun. The exception leaves cycles of references, 8 kB
    for each connection that ends at once, until the hourly garbage collection."""
    if greenlet or greenlet.dead:
        hub.kill(greenlet)
    else:
        _NEVER.add(greenlet)


def _fail(outbox: Outbox, where: Any, error: Exception) -> None:
    log.exception("southbound handler failed; stopping", handler=getattr(where, "__name__", "greenlet"))
    outbox.fail(error)


class HubSocket:
    """Connected socket that waits in the hub.

    The socket is registered for reading once instead of for each wait, which saves two system calls per message."""

    def __init__(self, sock: Any) -> None:
        self._socket = sock
        self._hub = eventlet.hubs.get_hub()
        self._waiting: Any = None
        with suppress(OSError):  # the peer may already be gone
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener: Any = self._hub.add(self._hub.READ, sock.fileno(), self._wake, self._wake, None)

    def receive(self, size: int) -> bytes:
        """Return received bytes, or no bytes once the peer has ended the connection.

        Always yields to the hub, even when data is ready."""
        while True:
            self._waiting = eventlet.getcurrent()
            self._hub.switch()
            with suppress(BlockingIOError):
                return bytes(self._socket.fd.recv(size))

    def _wake(self, _: Any) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting:
            waiting.switch()

    def send_now(self, data: bytes | memoryview) -> int:
        """Send as many bytes as the socket accepts at once, and return their number."""
        try:
            return int(self._socket.fd.send(data))
        except BlockingIOError:
            return 0

    def wait_writable(self) -> None:
        eventlet.hubs.trampoline(self._socket, write=True)

    def shut_down(self) -> None:
        """End the connection; a greenlet that waits for this socket continues."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._listener is not None:
            self._hub.remove(self._listener)
        self._listener = None  # ends a cycle of references: the listener refers to this object
        self._socket.close()
