"""Everything about Ryu, eventlet and threads; the only file that names the ryu package.

Owns how the hub runs: in the main thread, nothing monkey-patched, Ryu's ``AppManager`` started from here (DESIGN
section 3). In: commands from any thread through an ``Outbox``. Out: the names of Ryu that the rest of the southbound
uses, so that os-ken can stand in by changing the imports of this file.

Every handler, the ticker and the command loop have one guard: what they raise ends ``run_hub``, which raises it.
"""

from __future__ import annotations

import functools
import signal
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import structlog

with warnings.catch_warnings():
    # Deprecations inside eventlet, Ryu and WebOb are known (DESIGN section 3); no operator can act on them.
    warnings.simplefilter("ignore")
    import eventlet.hubs
    import eventlet.wsgi

    # Ryu 4.34 imports a name that eventlet dropped in 0.30.3.
    eventlet.wsgi.ALREADY_HANDLED = object()
    from ryu import cfg
    from ryu.base.app_manager import AppManager, RyuApp
    from ryu.controller import ofp_event
    from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from ryu.lib import hub
    from ryu.ofproto import ofproto_v1_3 as ofp
    from ryu.ofproto import ofproto_v1_3_parser as ofp_parser
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

from controller.config import Config, OpenFlowConfig
from controller.messages import Command, Message

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "PROTOCOL",
    "Connection",
    "ListenError",
    "Outbox",
    "RyuApp",
    "ofp",
    "ofp_event",
    "ofp_parser",
    "on",
    "pause",
    "run_hub",
    "spawn",
]

log = structlog.get_logger(__name__)

PROTOCOL = ProtocolDesc(ofp.OFP_VERSION)
"""Stands where messages that are built before their connection is known want a datapath."""

APP_MODULE = "controller.southbound.app"


class ListenError(OSError):
    """The OpenFlow address cannot be listened on."""


class Outbox:
    """Commands for the hub, from any thread or signal handler: a queue, and a socket that wakes the hub."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._stopping = False
        self._failure: BaseException | None = None
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def send(self, commands: Iterable[Command]) -> None:
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

    def receive(self) -> Iterator[Command]:
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


class Connection:
    """Sends to one connected switch; never blocks the caller, so that one stuck switch delays nobody else."""

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        self._queue: Any = hub.Queue()
        hub.spawn(self._flush)

    def send(self, message: Any) -> int:
        """Queues a message and returns its transaction id. A message to a connection that has ended is dropped."""
        xid: int = self.datapath.set_xid(message)
        message.serialize()
        self._queue.put(bytes(message.buf))
        return xid

    def close(self) -> None:
        """Ends the connection; Ryu then reports it dead. In a greenlet of its own, because Ryu waits for room in the
        app's event queue, which the caller may be emptying."""
        self._queue.put(None)
        hub.spawn(self.datapath.close)

    def _flush(self) -> None:
        while (chunk := self._queue.get()) is not None:
            chunks = [chunk]
            while not self._queue.empty() and len(chunks) < 256 and (more := self._queue.get()) is not None:
                chunks.append(more)
            if not self.datapath.send(b"".join(chunks)):
                return


def on(event: Any, dispatcher: str) -> Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]]:
    """Subscribes a method of the app; what it raises goes to ``self.outbox`` and ends the process."""

    def decorate(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        @functools.wraps(handler)
        def guarded(self: Any, ev: Any) -> None:
            with _guard(self.outbox, handler.__name__):
                handler(self, ev)

        subscribed: Callable[[Any, Any], None] = set_ev_cls(event, dispatcher)(guarded)
        return subscribed

    return decorate


def pause(seconds: float = 0.0) -> None:
    """Lets the hub's other work run."""
    hub.sleep(seconds)


def spawn(outbox: Outbox, body: Callable[[], None]) -> None:
    """Runs a body in the hub; what it raises ends the process."""

    def guarded() -> None:
        with _guard(outbox, body.__name__):
            body()

    hub.spawn(guarded)


@contextmanager
def _guard(outbox: Outbox, where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log.exception("southbound handler failed; stopping", handler=where)
        outbox.fail(error)


def run_hub(
    config: Config, put: Callable[[Message], None], outbox: Outbox, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Speaks OpenFlow until ``outbox.stop()``, SIGTERM or SIGINT. Call it once, in the main thread.

    ``put`` is called in the hub with every message for the control loop and must not block; ``on_ready`` once, when
    switches can connect. Raises ``ListenError``, or what a handler or command raised.
    """
    _check_address(config.openflow)
    _configure(config.openflow)
    with _stop_signals(outbox):
        apps = AppManager()
        apps.load_apps([APP_MODULE])
        threads = apps.instantiate_apps(config=config, put=put, outbox=outbox)
        for thread in threads:
            thread.link(lambda _: outbox.fail(ListenError("the OpenFlow listener ended")))
        app = next(app for app in apps.applications.values() if type(app).__module__ == APP_MODULE)
        try:
            hub.sleep(0)  # lets the listener start
            on_ready()
            for command in outbox.receive():
                app.carry_out(command)
            log.info("stopping")
        finally:
            app.disconnect()
            apps.close()
            outbox.close()


def _configure(openflow: OpenFlowConfig) -> None:
    conf = cfg.CONF
    conf(args=[], project="signalbox", default_config_files=[], default_config_dirs=[])
    conf.set_override("ofp_listen_host", openflow.host)
    conf.set_override("ofp_tcp_listen_port", openflow.port)
    # Ryu gives up at the first interval's end with more than the maximum unanswered, having sent the first at once,
    # and takes a maximum of 0 for "off": n + 1 intervals of n / (n + 1) make the promised n whole ones.
    misses = openflow.echo_misses
    conf.set_override("maximum_unreplied_echo_requests", misses)
    conf.set_override("echo_request_interval", openflow.echo_interval_s * misses / (misses + 1))


def _check_address(openflow: OpenFlowConfig) -> None:
    """eventlet listens with SO_REUSEPORT: a second controller would silently get every other switch."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(openflow.host, openflow.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(f"cannot listen for OpenFlow on {openflow.host} port {openflow.port}: {reason}") from None


@contextmanager
def _stop_signals(outbox: Outbox) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        # No logging here: the signal may have interrupted the logger.
        outbox.stop()

    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the hub needs the main thread")
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
