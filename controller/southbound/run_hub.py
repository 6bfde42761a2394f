"""Main loop of the southbound: the framework's hub in the main thread, with the app and the listener.

In: the configuration, commands through the ``Outbox``. Out: messages for the control loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import structlog

from controller.config import Config
from controller.fabric.topology import Dpid
from controller.southbound.framework import AppManager, cfg, ofp_handler, wait_readable
from controller.southbound.limits import Put
from controller.southbound.listener import Listener, listen
from controller.southbound.outbox import Outbox, stop_signals
from controller.tls import TlsContext
from signalbox.addresses import is_loopback

log = structlog.get_logger(__name__)

APP_MODULE = "controller.southbound.app"
SWITCH_INTERVAL_S = 0.001
"""Seconds that one thread may keep the interpreter while another thread waits for it.

The hub and the API's thread release the interpreter at every system call. While one thread computes, a median echo
takes 5.3 ms with Python's default of 5 ms, and 0.7 ms with 0.5 ms. Below 1 ms, busy threads switch so often that each
needs more time for the same work: a fifth more at 0.1 ms."""


def run_hub(
    config: Config,
    put: Put,
    outbox: Outbox,
    tls: TlsContext,
    epoch: int,
    may_claim: Callable[[], bool],
    on_ready: Callable[[], None] = lambda: None,
    known: Collection[Dpid] = (),
    silent: Callable[[float], None] = lambda _: None,
) -> None:
    """Run OpenFlow until ``outbox.stop()``, SIGTERM or SIGINT; to be called once, in the main thread.

    ``put`` is called in the hub with every message for the control loop and must not block. ``on_ready`` is called
    once, when switches can connect. ``tls``: context of new connections. ``epoch``: generation id of all claims of the
    master role. ``may_claim``: whether no other controller can have the state now (both: ``admission``). ``known``:
    switches of the fabric. ``silent`` is called again and again with the seconds since the last message of any switch.
    Raises ``ListenError``, or the exception of a handler."""
    listener = Listener(listen(config.openflow), config.openflow, tls, put, outbox, known)
    if tls.current is None and not is_loopback(config.openflow.host):
        log.warning("OpenFlow is open to the network without TLS: any machine that reaches it can pose as a switch")
    cfg.CONF(args=[], project="signalbox", default_config_files=[], default_config_dirs=[])
    # The framework's own server is not used: it shares its port, fails at the second TLS connection, and ends at errors
    # of peers.
    ofp_handler.OpenFlowController = _NoServer
    # ``stop`` must not log: the signal may have interrupted the logger.
    with stop_signals(outbox.stop), _short_turns():
        apps = AppManager()
        apps.load_apps([APP_MODULE])
        apps.instantiate_apps(
            config=config,
            put=put,
            outbox=outbox,
            epoch=epoch,
            may_claim=may_claim,
            silent=silent,
            known=frozenset(known),
        )
        app = next(app for app in apps.applications.values() if type(app).__module__ == APP_MODULE)
        try:
            listener.start()
            on_ready()
            for command in outbox.receive(wait_readable):
                app.carry_out(command)
            log.info("stopping")
        finally:
            listener.close()
            app.disconnect()
            apps.close()
            outbox.close()


class _NoServer:
    """Server that the framework starts instead of its own; it does nothing, since ``Listener`` accepts the switches."""

    def __call__(self) -> None: ...


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
