"""One switch's connection, from accept to end; Ryu calls it a datapath.

In: its bytes, and messages to send. Out: events for the app's handlers, and through ``refused`` why the connection was
ended, if the peer caused it. One greenlet receives and one watches the time. A peer that floods or does not read delays
no other: receiving yields every few milliseconds, sending never waits, and the bytes kept for a peer have a limit.
"""

from __future__ import annotations

import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from controller.config import OpenFlowConfig
from controller.fabric.messages import RefusalReason
from controller.fabric.topology import Port
from controller.southbound.framework import (
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    Events,
    HubSocket,
    hub,
    ofp,
    ofp_event,
    pause,
)
from controller.southbound.handshake import PORT_SIZE, Handshake, NoCommonVersion
from controller.southbound.openflow_decode import port_desc
from controller.southbound.openflow_framing import VERSION, Frame, Malformed, Splitter, message
from controller.southbound.transport import PlainTransport, TlsTransport

log = structlog.get_logger(__name__)

MAX_UNSENT = 8 * 1024 * 1024
"""Bytes kept for one switch that does not read: some 80,000 rules."""
TURN_S = 0.003
"""After so much work for one connection the others have their turn."""


class Connection:
    """``id``, the dpid, and ``ports`` are known when the app hears of it. ``refused`` is called with the reason and
    details before a connection ends because of its peer."""

    def __init__(
        self,
        sock: HubSocket,
        peer: str,
        config: OpenFlowConfig,
        tls: ssl.SSLContext | None,
        events: Events,
        refused: Callable[[Connection, RefusalReason, str], None],
        ignored: Counter[str],
    ) -> None:
        self.peer = peer
        self.id: Any = None
        self.ports: dict[int, Port] = {}
        self.state = HANDSHAKE_DISPATCHER
        self._config = config
        self._events = events
        self._refused = refused
        self._ignored = ignored
        self._handshake = Handshake()
        self._xid = random.getrandbits(31)
        self._unanswered = 0
        self._ended = False
        self._greenlets: list[Any] = []
        self._draining: Any = None
        self._socket = sock
        self._transport = TlsTransport(sock, tls) if tls else PlainTransport(sock)

    def send(self, *messages: bytes) -> list[int]:
        """Sends messages and returns their transaction ids, which it sets; never waits. Messages to a connection that
        has ended are dropped."""
        first = self._xid + 1
        self._xid += len(messages)
        xids = [xid & 0xFFFFFFFF for xid in range(first, first + len(messages))]
        self.send_bytes(
            b"".join([m[:4] + xid.to_bytes(4, "big") + m[8:] for m, xid in zip(messages, xids, strict=True)])
        )
        return xids

    def send_bytes(self, data: bytes) -> None:
        """Sends messages that have their transaction ids."""
        if self._ended:
            return
        try:
            self._transport.send(data)
        except OSError as error:
            log.debug("connection lost", peer=self.peer, why=str(error))
            self.close()
            return
        unsent = len(self._transport.unsent)
        if unsent > MAX_UNSENT:
            self.refuse("not_reading", f"{unsent} bytes wait to be read")
        elif unsent and not self._draining:
            self._draining = hub.spawn(self._drain)

    def refuse(self, reason: RefusalReason, why: str) -> None:
        """Ends the connection because of the peer; counted and logged once."""
        if not self._ended:
            self._refused(self, reason, why)
            self.close()

    def close(self) -> None:
        """Ends the connection; the app hears of it when the hub gets to it."""
        self._ended = True
        self._socket.shut_down()

    # ---- its life

    def serve(self) -> None:
        """Returns when the connection has ended. Any exception is a fault of the controller."""
        self._greenlets.append(hub.spawn(self._end_if_silent))
        try:
            self._transport.open()
            self.send_bytes(self._handshake.begin())
            self._receive()
        except Malformed as error:
            self.refuse("malformed", str(error))
        except NoCommonVersion as error:
            self.send_bytes(error.answer)
            self.refuse("version", str(error))
        except ssl.SSLError as error:
            self.refuse("tls", getattr(error, "verify_message", None) or error.reason or str(error))
        except OSError as error:
            log.debug("connection lost", peer=self.peer, why=str(error))
        finally:
            self._ended = True
            for greenlet in filter(None, (*self._greenlets, self._draining)):
                hub.kill(greenlet)
            self._socket.close()
            self._set_state(DEAD_DISPATCHER)

    def _set_state(self, state: str) -> None:
        """Tells the app, but nothing of a connection whose handshake was not completed."""
        if self.id is not None:
            self.state = state
            self._events.send(ofp_event.EventOFPStateChange, state, self)

    def _end_if_silent(self) -> None:
        """The handshake may take as long as a switch may be silent later."""
        patience_s = self._config.echo_interval_s * self._config.echo_misses
        pause(patience_s)
        if self.id is None:
            self.refuse("silent", f"no OpenFlow handshake within {patience_s:g} s")

    def _send_echo_requests(self) -> None:
        """Ends the connection when too many in a row are not answered."""
        while self._unanswered < self._config.echo_misses:
            self._unanswered += 1
            self.send_bytes(message(ofp.OFPT_ECHO_REQUEST))
            pause(self._config.echo_interval_s)
        log.warning("switch does not answer; disconnecting", dpid=f"{self.id:#x}", peer=self.peer)
        self.close()

    def _drain(self) -> None:
        try:
            self._transport.drain()
        except OSError:
            self.close()
        self._draining = None

    # ---- receiving

    def _receive(self) -> None:
        splitter = Splitter()
        spent_s = 0.0
        while data := self._transport.receive():
            began = time.monotonic()
            for frame in splitter.feed(data):
                self._take(frame)
                if self._ended:
                    return
                now = time.monotonic()
                spent_s, began = spent_s + now - began, now
                if spent_s > TURN_S:
                    pause()
                    spent_s, began = 0.0, time.monotonic()

    def _take(self, frame: Frame) -> None:
        if frame.kind == ofp.OFPT_ECHO_REQUEST:
            self.send_bytes(message(ofp.OFPT_ECHO_REPLY, frame.body, frame.xid))
        elif self.id is not None:
            self._hand_on(frame)
        elif answer := self._handshake.take(frame):
            self.send_bytes(answer)
        elif self._handshake.done:
            descs = bytes(self._handshake.ports)
            ports = (port_desc(descs[at : at + PORT_SIZE]) for at in range(0, len(descs), PORT_SIZE))
            self.ports = {port.number: port for port in ports}
            self.id = self._handshake.dpid
            self._greenlets.append(hub.spawn(self._send_echo_requests))
            self._set_state(MAIN_DISPATCHER)

    def _hand_on(self, frame: Frame) -> None:
        """To the handlers of the app that are subscribed to messages of this kind."""
        if frame.version != VERSION:
            raise Malformed(f"version {frame.version} after {VERSION} was agreed on")
        kind = EVENTS.get(frame.kind)
        if frame.kind == ofp.OFPT_ECHO_REPLY:
            self._unanswered = 0
        if kind is None or not self._events.send(kind, self.state, self, frame):
            self._ignored[f"type {frame.kind}"] += 1


EVENTS: Mapping[int, Any] = {
    ofp.OFPT_ERROR: ofp_event.EventOFPErrorMsg,
    ofp.OFPT_ECHO_REPLY: ofp_event.EventOFPEchoReply,
    ofp.OFPT_PACKET_IN: ofp_event.EventOFPPacketIn,
    ofp.OFPT_PORT_STATUS: ofp_event.EventOFPPortStatus,
    ofp.OFPT_BARRIER_REPLY: ofp_event.EventOFPBarrierReply,
    ofp.OFPT_ROLE_REPLY: ofp_event.EventOFPRoleReply,
    ofp.OFPT_MULTIPART_REPLY: ofp_event.EventOFPMultipartReply,
}
