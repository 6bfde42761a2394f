"""One switch's connection, from accept to end: what Ryu calls a datapath.

In: its bytes, and messages to send. Out: Ryu's events to the app, and through ``refused`` why it was ended, if it
was for what the peer did. Three greenlets: one receives, one sends, one watches the time. Nothing that a peer sends,
or does not read, holds up others: receiving gives way every few milliseconds, sending never blocks the caller, and
what is queued has a limit.
"""

from __future__ import annotations

import random
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

from controller.config import OpenFlowConfig
from controller.fabric.messages import RefusalReason
from controller.southbound import message_guard
from controller.southbound.framework import (
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    TURN_S,
    EventSource,
    OfpPort,
    ProtocolDesc,
    RawMessage,
    hub,
    ofp,
    ofp_event,
    parse_message,
)
from controller.southbound.framing import HEADER, Frame, Splitter
from controller.southbound.handshake import VERSION, Handshake, NoCommonVersion, message
from controller.southbound.malformed import Malformed
from controller.southbound.wire import CHUNK, PlainWire, TlsWire

log = structlog.get_logger(__name__)

MAX_QUEUED = 8 * 1024 * 1024
"""Bytes that wait for one switch to read them: some 80,000 rules."""
LINGER_S = 1.0
"""How long a refused peer may take to read why."""

_MULTIPART = struct.Struct("!HH4x")


class Connection(ProtocolDesc):  # type: ignore[misc]  # Ryu has no types
    """``id`` and ``ports`` (descriptions by number) are known when the app hears of it. ``refused`` is called with the
    connection, the reason and how it showed, before the connection ends."""

    def __init__(
        self,
        sock: Any,
        peer: str,
        config: OpenFlowConfig,
        tls: ssl.SSLContext | None,
        refused: Callable[[Connection, RefusalReason, str], None],
        dropped: Counter[str],
    ) -> None:
        super().__init__(ofp.OFP_VERSION)
        self.peer = peer
        self.id: Any = None
        self.ports: dict[int, Any] = {}
        self.state = HANDSHAKE_DISPATCHER
        self._config = config
        self._refused = refused
        self._dropped = dropped
        self._events = EventSource()
        self._handshake = Handshake()
        self._xid = random.getrandbits(31)
        self._outgoing: Any = hub.Queue()
        self._queued = 0
        self._unanswered = 0
        self._ended = False
        self._threads: list[Any] = []
        self._wire = TlsWire(sock, tls, lambda: self.send_bytes(b"")) if tls else PlainWire(sock)

    # ---- for everybody

    def send(self, message: Any) -> int:
        """Queues a message and returns its transaction id; never blocks. A message to a connection that has ended is
        dropped."""
        self._xid = (self._xid + 1) & 0xFFFFFFFF
        message.set_xid(self._xid)
        message.serialize()
        self.send_bytes(bytes(message.buf))
        return self._xid

    def send_bytes(self, data: bytes) -> None:
        """Queues messages as they are."""
        if self._ended:
            return
        self._queued += len(data)
        self._outgoing.put(data)
        if self._queued > MAX_QUEUED:
            self.refuse("not_reading", f"{self._queued} bytes wait to be read")

    def refuse(self, reason: RefusalReason, why: str) -> None:
        """Ends the connection for what the peer did; counted and logged once."""
        if not self._ended:
            self._refused(self, reason, why)
            self.close()

    def close(self) -> None:
        """Ends the connection; the app hears of it when what was received before has been handled."""
        self._ended = True
        self._wire.shut_down()

    # ---- its life

    def serve(self) -> None:
        """Returns when the connection has ended. Raises only what is a bug."""
        self._threads.append(hub.spawn(self._end_if_silent))
        try:
            self._wire.open()
            self._threads.append(hub.spawn(self._send_loop))
            self.send_bytes(self._handshake.begin())
            self._receive()
        except Malformed as error:
            self.refuse("malformed", str(error))
        except NoCommonVersion as error:
            self._say_last(error.answer)
            self.refuse("version", str(error))
        except ssl.SSLError as error:
            self.refuse("tls", getattr(error, "verify_message", None) or error.reason or str(error))
        except OSError as error:
            log.debug("connection lost", peer=self.peer, why=str(error))
        finally:
            self._ended = True
            for thread in self._threads:
                hub.kill(thread)
            self._wire.close()
            self._set_state(DEAD_DISPATCHER)

    def _set_state(self, state: str) -> None:
        """Tells the app; of a connection that never became a switch it hears nothing."""
        if self.id is not None:
            self.state = state
            self._events.send(ofp_event.EventOFPStateChange(self), state)

    def _end_if_silent(self) -> None:
        """Who connects has as long to become a switch as a switch may be silent."""
        patience_s = self._config.echo_interval_s * self._config.echo_misses
        hub.sleep(patience_s)
        if self.id is None:
            self.refuse("silent", f"no OpenFlow handshake within {patience_s:g} s")

    def _keep_asking(self) -> None:
        """Echo requests; a switch that leaves too many in a row unanswered is gone."""
        while self._unanswered < self._config.echo_misses:
            self._unanswered += 1
            self.send_bytes(message(ofp.OFPT_ECHO_REQUEST, 0))
            hub.sleep(self._config.echo_interval_s)
        log.warning("switch does not answer; disconnecting", dpid=f"{self.id:#x}", peer=self.peer)
        self.close()

    # ---- sending

    def _send_loop(self) -> None:
        try:
            while True:
                chunks = [self._outgoing.get()]
                size = len(chunks[0])
                while size < CHUNK and not self._outgoing.empty():
                    chunks.append(self._outgoing.get())
                    size += len(chunks[-1])
                self._wire.send(b"".join(chunks))
                self._queued -= size
                hub.sleep(0)
        except OSError:
            self.close()

    def _say_last(self, data: bytes) -> None:
        """Sends, and waits a moment for it to go out."""
        self.send_bytes(data)
        deadline = time.monotonic() + LINGER_S
        while self._queued and not self._ended and time.monotonic() < deadline:
            hub.sleep(0.01)

    # ---- receiving

    def _receive(self) -> None:
        splitter = Splitter()
        spent = 0.0
        while data := self._wire.receive():
            began = time.monotonic()
            for frame in splitter.feed(data):
                self._take(frame)
                if self._ended:
                    return
                now = time.monotonic()
                spent, began = spent + now - began, now
                if spent > TURN_S:
                    hub.sleep(0)
                    spent, began = 0.0, time.monotonic()

    def _take(self, frame: Frame) -> None:
        if frame.kind == ofp.OFPT_ECHO_REQUEST:
            self.send_bytes(message(ofp.OFPT_ECHO_REPLY, frame.xid, frame.body))
        elif self.id is not None:
            self._hand_on(frame)
        elif answer := self._handshake.take(frame):
            self.send_bytes(answer)
        elif self._handshake.done:
            descs = self._handshake.ports
            ports = (OfpPort.parser(descs, at) for at in range(0, len(descs), message_guard.PORT_SIZE))
            self.ports = {port.port_no: port for port in ports}
            self.id = self._handshake.dpid
            self._threads.append(hub.spawn(self._keep_asking))
            self._set_state(MAIN_DISPATCHER)

    def _hand_on(self, frame: Frame) -> None:
        """To the app, if it wants messages of this kind."""
        if frame.version != VERSION:
            raise Malformed(f"version {frame.version} after {VERSION} was agreed on")
        if frame.kind == ofp.OFPT_ECHO_REPLY:
            self._unanswered = 0
        event = self._multipart_event(frame) if frame.kind == ofp.OFPT_MULTIPART_REPLY else self._event(frame)
        if event is None:
            self._dropped[f"type {frame.kind}"] += 1
        elif isinstance(event.msg, RawMessage):
            self._events.send_raw(event, self.state)
        else:
            self._events.send(event, self.state)

    def _event(self, frame: Frame) -> Any | None:
        kind = EVENTS.get(frame.kind)
        if kind is None or not self._events.wanted(kind, self.state):
            return None
        if self._events.raw(kind):
            return kind(RawMessage(self, frame.data))
        message_guard.check(frame.kind, frame.body)
        return kind(self._parsed(frame))

    def _multipart_event(self, frame: Frame) -> Any | None:
        """Always raw: their structures are what a library's parsers loop in."""
        if len(frame.data) < HEADER.size + _MULTIPART.size:
            raise Malformed(f"multipart reply of {len(frame.data)} bytes")
        number, _ = _MULTIPART.unpack_from(frame.data, HEADER.size)
        kind = MULTIPART_EVENTS.get(number)
        if kind is None or not self._events.wanted(kind, self.state):
            return None
        return kind(RawMessage(self, frame.data))

    def _parsed(self, frame: Frame) -> Any:
        try:
            return parse_message(self, *frame)
        except Exception as error:
            # The library's parser has no errors of its own; whatever it raises, these bytes are the cause.
            raise Malformed(f"a message of type {frame.kind} that cannot be parsed: {error!r}") from None


EVENTS = {
    ofp.OFPT_ERROR: ofp_event.EventOFPErrorMsg,
    ofp.OFPT_ECHO_REPLY: ofp_event.EventOFPEchoReply,
    ofp.OFPT_PACKET_IN: ofp_event.EventOFPPacketIn,
    ofp.OFPT_PORT_STATUS: ofp_event.EventOFPPortStatus,
    ofp.OFPT_BARRIER_REPLY: ofp_event.EventOFPBarrierReply,
    ofp.OFPT_ROLE_REPLY: ofp_event.EventOFPRoleReply,
}
MULTIPART_EVENTS = {
    ofp.OFPMP_FLOW: ofp_event.EventOFPFlowStatsReply,
    ofp.OFPMP_AGGREGATE: ofp_event.EventOFPAggregateStatsReply,
    ofp.OFPMP_PORT_STATS: ofp_event.EventOFPPortStatsReply,
    ofp.OFPMP_GROUP_DESC: ofp_event.EventOFPGroupDescStatsReply,
    ofp.OFPMP_METER: ofp_event.EventOFPMeterStatsReply,
    ofp.OFPMP_METER_CONFIG: ofp_event.EventOFPMeterConfigStatsReply,
}
