"""Connection of one switch, from its acceptance to its end. Ryu calls it a datapath.

In: received bytes, and messages to send. Out: events for the app's handlers, and a call of ``refused`` with the reason
if the peer caused the end of the connection.

One greenlet receives, and one watches the time. A peer that floods or does not read delays no other peer. Sending never
waits: bytes that the socket does not accept are kept, up to a limit, and sent by ``drain``. Reading pauses when
unsolicited messages of the peer have used its share of the hub's time. Reading also pauses when too many messages of
the peer wait for the control loop.

A *transport* is the byte stream of the connection, plain or with TLS. TLS works on buffers in memory, so that it needs
no socket of its own. Errors of the peer are ``OSError`` (``ssl.SSLError`` is a subclass).
"""

from __future__ import annotations

import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from controller.config import OpenFlowConfig
from controller.fabric.messages import RefusalReason
from controller.fabric.topology import Dpid, Port, PortNo
from controller.southbound.framework import (
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    Events,
    HubSocket,
    kill,
    ofp,
    ofp_event,
    pause,
    spawn,
)
from controller.southbound.handshake import PORT_SIZE, Handshake, NoCommonVersion, TooManyPorts
from controller.southbound.limits import Backlog, Limits, limited_log
from controller.southbound.multipart import PART_BYTES
from controller.southbound.openflow_decode import port_desc
from controller.southbound.openflow_framing import VERSION, Frame, Malformed, Splitter, message
from controller.southbound.outbox import Outbox

log = structlog.get_logger(__name__)

MAX_UNSENT = 8 * 1024 * 1024
"""Largest number of unsent bytes for a switch that does not read: about 80,000 rules."""
TURN_S = 0.003
"""Seconds of processing for one connection after which other greenlets may run."""
SHARE = 0.25
"""Largest share of the hub's time that the messages of one peer may use if the controller did not request them.

When a peer uses more, reading from it pauses for a while. Small parts of replies count too, because a reply in many
small parts may never end."""
LOOK_AGAIN_S = 0.02
MAX_KINDS = 20
"""Largest number of kinds of ignored messages in a log line, because a switch can send any number of kinds."""


class Connection:
    """Connection of one switch.

    ``address``, and ``peer`` with the port, name the remote end. ``id`` (the dpid) and ``ports`` are set before the app
    is notified of the connection. ``backlog`` counts the messages that the control loop has not processed. ``refused``
    is called with a reason and details before the connection ends because of its peer."""

    def __init__(
        self,
        sock: HubSocket,
        address: str,
        port: int,
        config: OpenFlowConfig,
        tls: ssl.SSLContext | None,
        events: Events,
        refused: Callable[[Connection, RefusalReason, str], None],
        ignored: Counter[str],
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        self.address = address
        self.peer = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.id: Any = None
        self.ports: dict[PortNo, Port] = {}
        self.state = HANDSHAKE_DISPATCHER
        self.backlog = Backlog(limits.backlog)
        self._held_s = 0.0
        self._limits = limits
        self._outbox = outbox
        self._is_charged = True
        self._charged_s = self._charged_at = 0.0
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
        """Send messages with new transaction ids, without waiting, and return the ids.

        Messages to a connection that has ended are dropped."""
        first = self._xid + 1
        self._xid += len(messages)
        xids = [xid & 0xFFFFFFFF for xid in range(first, first + len(messages))]
        self.send_bytes(
            b"".join([m[:4] + xid.to_bytes(4, "big") + m[8:] for m, xid in zip(messages, xids, strict=True)])
        )
        return xids

    def send_bytes(self, data: bytes) -> None:
        """Send messages that already have their transaction ids."""
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
            self.refuse("not_reading", f"the switch has left {unsent} bytes unread")
        elif unsent and self._draining is None:
            self._draining = spawn(self._outbox, self._drain)

    def refuse(self, reason: RefusalReason, why: str) -> None:
        """End the connection because of its peer. A connection is counted and logged as refused at most once."""
        if not self._ended:
            self._refused(self, reason, why)
            self.close()

    def close(self) -> None:
        """End the connection; the app is notified later, from the hub."""
        self._ended = True
        self._socket.shut_down()

    # ---- lifetime

    def serve(self) -> None:
        """Serve the connection, and return when it has ended. Any exception is a fault of the controller."""
        self._greenlets.append(spawn(self._outbox, self._end_if_silent))
        try:
            self._transport.open()
            self.send_bytes(self._handshake.begin())
            self._receive()
        except Malformed as error:
            self.refuse("malformed", str(error))
        except NoCommonVersion as error:
            self.send_bytes(error.answer)
            self.refuse("version", str(error))
        except TooManyPorts as error:
            self.refuse("too_many_ports", str(error))
        except ssl.SSLError as error:
            self.refuse("tls", getattr(error, "verify_message", None) or error.reason or str(error))
        except OSError as error:
            log.debug("connection lost", peer=self.peer, why=str(error))
        finally:
            self._ended = True
            for greenlet in (*self._greenlets, self._draining):
                if greenlet is not None:
                    kill(greenlet)
            self._socket.close()
            self._set_state(DEAD_DISPATCHER)

    def _set_state(self, state: str) -> None:
        """Notify the app of the new state, unless the handshake was never completed."""
        if self.id is not None:
            self.state = state
            self._events.send(ofp_event.EventOFPStateChange, state, self)

    def _end_if_silent(self) -> None:
        patience_s = self._config.echo_interval_s * self._config.echo_misses
        pause(patience_s)
        if self.id is None:
            self.refuse("silent", f"no OpenFlow handshake within {patience_s:g} s")

    def _send_echo_requests(self) -> None:
        while self._unanswered < self._config.echo_misses:
            self._unanswered += 1
            self.send_bytes(message(ofp.OFPT_ECHO_REQUEST))
            pause(self._config.echo_interval_s)
        limited_log.warning("switch does not answer; disconnecting", dpid=f"{self.id:#x}", peer=self.peer)
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
            began = time.thread_time()  # CPU time of this thread only: other threads' work is not the peer's fault
            for frame in splitter.feed(data):
                if self._ended:
                    return
                self._is_charged = frame.kind != ofp.OFPT_MULTIPART_REPLY or len(frame.data) < PART_BYTES
                self._take(frame)
                now = time.thread_time()
                spent_s += now - began
                self._charged_s += now - began if self._is_charged else 0.0
                began = now
                if self.backlog.exceeds() or (self._charged_s > TURN_S and self._exceeds_share()):
                    self._pause_reading()
                elif spent_s > TURN_S:
                    pause()
                else:
                    continue
                spent_s, began = 0.0, time.thread_time()

    def nobody_asked(self) -> None:
        """Count the processing of the current reply against the peer's share, because the reply was not requested."""
        self._is_charged = True

    def _exceeds_share(self) -> bool:
        now = time.monotonic()
        self._charged_s = max(0.0, self._charged_s - SHARE * (now - self._charged_at))
        self._charged_at = now
        return self._charged_s > TURN_S

    def _pause_reading(self) -> None:
        """Pause reading until the peer is within ``SHARE`` again and the backlog is at most half of its limit."""
        began = time.monotonic()
        pause(self._charged_s / SHARE)
        while self.backlog.exceeds(0.5) and not self._ended:
            pause(LOOK_AGAIN_S)
        self._held_s += time.monotonic() - began

    def take_held_s(self) -> float:
        """Return for how many seconds reading was paused since the last call.

        Reading pauses when the peer has sent too much."""
        held_s, self._held_s = self._held_s, 0.0
        return held_s

    def _take(self, frame: Frame) -> None:
        if frame.kind == ofp.OFPT_ECHO_REQUEST:
            self.send_bytes(message(ofp.OFPT_ECHO_REPLY, frame.body, frame.xid))
        elif self.id is not None:
            self._call_handlers(frame)
        elif answer := self._handshake.take(frame):
            self.send_bytes(answer)
        elif self._handshake.done:
            self._begin_use(bytes(self._handshake.ports))

    def _begin_use(self, descs: bytes) -> None:
        dpid = self._handshake.dpid
        if self._config.dpid_in_certificate and f"{dpid:#x}" not in self._transport.names():
            self.refuse("other_certificate", f"its certificate does not name its dpid, {dpid:#x}")
            return
        found = (port_desc(descs[at : at + PORT_SIZE]) for at in range(0, len(descs), PORT_SIZE))
        ports = {port.number: port for port in found}
        if why := self._limits.take_ports(0, len(ports)):
            self.refuse("too_many_ports", why)
            return
        self.ports = ports
        if why := self._limits.identify(Dpid(dpid)):
            self.refuse("too_many", why)
            return
        self.id = dpid
        self._greenlets.append(spawn(self._outbox, self._send_echo_requests))
        self._set_state(MAIN_DISPATCHER)

    def port_changed(self, port: Port, removed: bool) -> bool:
        """Update the known ports. Return False if a new port exceeds a limit on ports."""
        if removed:
            if self.ports.pop(port.number, None):
                self._limits.port_removed()
        elif port.number in self.ports or not self._limits.take_ports(len(self.ports), 1):
            self.ports[port.number] = port
        else:
            return False
        return True

    def _call_handlers(self, frame: Frame) -> None:
        if frame.version != VERSION:
            raise Malformed(f"a message has version {frame.version}, but {VERSION} was agreed on")
        kind = EVENTS.get(frame.kind)
        if frame.kind == ofp.OFPT_ECHO_REPLY:
            self._unanswered = 0
        if kind is None or not self._events.send(kind, self.state, self, frame):
            self.ignore(f"messages of type {frame.kind}")

    def ignore(self, kind: str) -> None:
        """Count an ignored message. A log line reports the counts of all connections together."""
        self._ignored[kind if kind in self._ignored or len(self._ignored) < MAX_KINDS else "others"] += 1


EVENTS: Mapping[int, Any] = {
    ofp.OFPT_ERROR: ofp_event.EventOFPErrorMsg,
    ofp.OFPT_ECHO_REPLY: ofp_event.EventOFPEchoReply,
    ofp.OFPT_EXPERIMENTER: ofp_event.EventOFPExperimenter,
    ofp.OFPT_PACKET_IN: ofp_event.EventOFPPacketIn,
    ofp.OFPT_PORT_STATUS: ofp_event.EventOFPPortStatus,
    ofp.OFPT_BARRIER_REPLY: ofp_event.EventOFPBarrierReply,
    ofp.OFPT_ROLE_REPLY: ofp_event.EventOFPRoleReply,
    ofp.OFPT_MULTIPART_REPLY: ofp_event.EventOFPMultipartReply,
}


CHUNK = 65536


class PlainTransport:
    """Transport without TLS. ``unsent``: bytes that the socket has not accepted yet."""

    def __init__(self, sock: HubSocket) -> None:
        self._socket = sock
        self.unsent = bytearray()

    def open(self) -> None:
        """Prepare the connection, before anything is sent or received."""

    def names(self) -> frozenset[str]:
        """Return the common names and DNS names in the peer's certificate, split at spaces; empty without one."""
        return frozenset()

    def receive(self) -> bytes:
        """Return received bytes; empty if the peer has ended the connection."""
        return self._socket.receive(CHUNK)

    def send(self, data: bytes) -> None:
        if not self.unsent:
            sent = self._socket.send_now(data)
            if sent == len(data):
                return
            data = data[sent:]
        self.unsent += data

    def drain(self) -> None:
        """Send the kept bytes, and wait in the hub until all are sent."""
        while self.unsent:
            self._socket.wait_writable()
            with memoryview(self.unsent) as unsent:
                sent = self._socket.send_now(unsent[:CHUNK])
            del self.unsent[:sent]


class TlsTransport(PlainTransport):
    def __init__(self, sock: HubSocket, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)

    def open(self) -> None:
        """Perform the TLS handshake.

        If the peer's certificate is missing or wrong, sends an alert and raises ``ssl.SSLError``."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    self._send_tls()
                    self._receive_tls()
        finally:
            with suppress(OSError):
                self._send_tls()

    def names(self) -> frozenset[str]:
        certificate = self._tls.getpeercert() or {}
        subject: Any = certificate.get("subject", ())
        others: Any = certificate.get("subjectAltName", ())
        common = (value for part in subject for kind, value in part if kind == "commonName")
        dns = (value for kind, value in others if kind == "DNS")
        return frozenset(word for name in (*common, *dns) for word in name.split())

    def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                self._send_tls()
                self._receive_tls()
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self._send_tls()

    def _send_tls(self) -> None:
        if self._to_send.pending:
            super().send(self._to_send.read())

    def _receive_tls(self) -> None:
        """Receive TLS records.

        Raises ``ConnectionResetError`` when the peer ended the connection without a TLS alert."""
        data = super().receive()
        if not data:
            raise ConnectionResetError("the connection ended")
        self._received.write(data)
