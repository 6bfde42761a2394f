"""Everything about Ryu, os-ken, eventlet and threads; the only file that names these packages.

Owns how code gets into the hub, which runs in the main thread with nothing monkey-patched (docs/architecture.md):
commands from any thread through an ``Outbox``, events through ``on``. Out: the names of Ryu that the rest of the
southbound uses. os-ken, the maintained fork, can stand in for it: ``FRAMEWORK`` says which of them runs.

Every handler, the ticker and the command loop have one guard: what they raise ends ``run_hub``, which raises it.
"""

from __future__ import annotations

import functools
import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import structlog

from controller.errors import FieldProblem, InvalidInput
from controller.southbound.malformed import Malformed
from controller.tables.messages import ToSwitches

CHOICE = "SIGNALBOX_OPENFLOW"


def chosen() -> str:
    """The framework to run on: what the environment variable ``SIGNALBOX_OPENFLOW`` names, ``ryu`` or ``os_ken``, else
    Ryu when it is installed. Raises ``InvalidInput``."""
    wanted = os.environ.get(CHOICE) or ("ryu" if find_spec("ryu") else "os_ken")
    if wanted not in ("ryu", "os_ken"):
        raise InvalidInput((FieldProblem(CHOICE, f"must be ryu or os_ken, not '{wanted}'"),))
    return wanted


with warnings.catch_warnings():
    # Deprecations inside eventlet, Ryu and WebOb are known (docs/architecture.md); no operator can act on them.
    warnings.simplefilter("ignore")
    import eventlet.hubs
    import eventlet.wsgi
    from eventlet.green.socket import socket as green_socket

    FRAMEWORK = chosen()
    if FRAMEWORK == "ryu":
        # Ryu 4.34 imports a name that eventlet dropped in 0.30.3.
        eventlet.wsgi.ALREADY_HANDLED = object()
        from ryu import cfg
        from ryu.base.app_manager import AppManager, RyuApp, lookup_service_brick
        from ryu.controller import ofp_event, ofp_handler
        from ryu.controller.handler import DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
        from ryu.lib import hub
        from ryu.ofproto import ofproto_v1_3 as ofp
        from ryu.ofproto import ofproto_v1_3_parser as ofp_parser
        from ryu.ofproto.ofproto_protocol import ProtocolDesc
    else:
        # Its native hub lets the first exception end an app's event thread, and waits with a time limit for ever.
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

__all__ = [
    "CHOICE",
    "DEAD_DISPATCHER",
    "FRAMEWORK",
    "HANDSHAKE_DISPATCHER",
    "MAIN_DISPATCHER",
    "PROTOCOL",
    "TURN_S",
    "AppManager",
    "EventSource",
    "OfpPort",
    "Outbox",
    "ProtocolDesc",
    "RawMessage",
    "RyuApp",
    "cfg",
    "green_socket",
    "guard",
    "hub",
    "ofp",
    "ofp_event",
    "ofp_handler",
    "ofp_parser",
    "on",
    "parse_message",
    "pause",
    "spawn",
]

log = structlog.get_logger(__name__)

PROTOCOL = ProtocolDesc(ofp.OFP_VERSION)
"""Stands where messages that are built before their connection is known want a datapath."""

TURN_S = 0.003
"""Work in the hub gives way to others after this long."""

Handler = Callable[[Any, Any], None]
OfpPort = ofp_parser.OFPPort


class Outbox:
    """Commands for the hub, from any thread or signal handler: a queue, and a socket that wakes the hub."""

    def __init__(self) -> None:
        self._commands: deque[ToSwitches] = deque()
        self._stopping = False
        self._failure: BaseException | None = None
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def send(self, commands: Iterable[ToSwitches]) -> None:
        """Carry out the commands, in order. Commands that are not the southbound's are a ``TypeError`` in the hub."""
        self._commands.extend(commands)
        self._ring()

    def stop(self) -> None:
        """End ``run_hub``; what is still queued is dropped."""
        self._stopping = True
        self._ring()

    def fail(self, error: BaseException) -> None:
        """End ``run_hub`` with this error."""
        self._failure = self._failure or error
        self.stop()

    def receive(self) -> Iterator[ToSwitches]:
        """In the hub: the commands, until ``stop``. Raises what ``fail`` was given."""
        while True:
            while self._commands and not self._stopping:
                yield self._commands.popleft()
            if self._stopping:
                break
            eventlet.hubs.trampoline(self._woken, read=True)
            with suppress(BlockingIOError):
                self._woken.recv(4096)
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """What is sent from now on is dropped."""
        self._woken.close()
        self._wake.close()

    def _ring(self) -> None:
        # A full socket has enough unread bytes in it to wake the hub; a closed one has no hub to wake.
        with suppress(OSError):
            self._wake.send(b"\0")


@dataclass(frozen=True, slots=True)
class RawMessage:
    """What an event carries for handlers that read bytes themselves. ``buf``: the whole message, with its header; of a
    multipart reply the multipart header is there as well. Nothing else has been checked. ``datapath``: the
    ``Connection``."""

    datapath: Any
    buf: bytes


def parse_message(connection: Any, version: int, kind: int, xid: int, data: bytes) -> Any:
    """The framework's object for a message of OpenFlow 1.3. Check the bytes first: its parsers trust every length."""
    return ofp_parser.msg_parser(connection, version, kind, len(data), xid, data)


class EventSource:
    """Where events of switches go to the app, as if from the framework's own OpenFlow service. Those that carry raw
    bytes, which are most by far, do not wait in the app's queue: their handlers are called at once."""

    def __init__(self) -> None:
        self._service = lookup_service_brick(ofp_event.NAME)
        self._wanted: dict[tuple[Any, str], bool] = {}
        self._handlers: dict[tuple[Any, str], list[Callable[[Any], None]]] = {}

    def wanted(self, event: Any, state: str) -> bool:
        """Whether a handler is subscribed to this class of events."""
        wanted = self._wanted.get((event, state))
        if wanted is None:
            wanted = any(not states or state in states for states in self._service.observers.get(event, {}).values())
            self._wanted[event, state] = wanted
        return wanted

    def raw(self, event: Any) -> bool:
        """Whether its handler reads bytes itself."""
        return event in _RAW_EVENTS

    def send(self, event: Any, state: str) -> None:
        """Waits for room in the app's queue."""
        self._service.send_event_to_observers(event, state)

    def send_raw(self, event: Any, state: str) -> None:
        """Calls the handlers."""
        kind = type(event)
        handlers = self._handlers.get((kind, state))
        if handlers is None:
            apps = map(lookup_service_brick, self._service.observers.get(kind, {}))
            handlers = [handler for app in apps for handler in app.get_handlers(event, state)]
            self._handlers[kind, state] = handlers
        for handler in handlers:
            handler(event)


_RAW_EVENTS: set[Any] = set()


def on(event: Any, dispatcher: str, raw: bool = False) -> Callable[[Handler], Handler]:
    """Subscribes a method of the app; what it raises goes to ``self.outbox`` and ends the process, but ``Malformed``
    only the connection that the message came by. ``event``: a class of events or a tuple of them. ``raw``: the event's
    ``msg`` is a ``RawMessage``."""
    events = event if isinstance(event, tuple) else (event,)

    def decorate(handler: Handler) -> Handler:
        turn = _Turn()

        @functools.wraps(handler)
        def guarded(self: Any, ev: Any) -> None:
            with guard(self.outbox, handler.__name__), turn:
                try:
                    handler(self, ev)
                except Malformed as error:
                    ev.msg.datapath.refuse("malformed", str(error))

        if raw:
            _RAW_EVENTS.update(events)
        subscribed: Handler = set_ev_cls(list(events), dispatcher)(guarded)
        return subscribed

    return decorate


class _Turn:
    """Lets others run once a handler's work has added up: the framework empties the app's queue without a pause."""

    def __init__(self) -> None:
        self._spent = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._spent += time.monotonic() - self._began
        if self._spent > TURN_S:
            self._spent = 0.0
            hub.sleep(0)


def pause(seconds: float = 0.0) -> None:
    """Lets the hub's other work run."""
    hub.sleep(seconds)


def spawn(outbox: Outbox, body: Callable[[], None]) -> None:
    """Runs a body in the hub; what it raises ends the process."""

    def guarded() -> None:
        with guard(outbox, getattr(body, "__name__", "greenlet")):
            body()

    hub.spawn(guarded)


@contextmanager
def guard(outbox: Outbox, where: str) -> Iterator[None]:
    """What the block raises is logged and ends the process."""
    try:
        yield
    except Exception as error:
        log.exception("southbound handler failed; stopping", handler=where)
        outbox.fail(error)
