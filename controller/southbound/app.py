"""The Ryu app: shims between OpenFlow events and the sans-IO parts of the southbound.

In: Ryu's events and, through ``carry_out``, the control loop's commands. Out: messages for the loop through ``put``. A
handler translates, hands on and returns; it never waits. Everything here runs in the hub.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import structlog

from controller.config import Config
from controller.fabric.messages import (
    ArpSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbePorts,
    RefusedPacket,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchLeft,
)
from controller.fabric.topology import Dpid, Port, PortRef
from controller.southbound import arp
from controller.southbound import openflow_decode as decode
from controller.southbound import openflow_objects as objects
from controller.southbound.arrivals import Arrivals
from controller.southbound.connection import Connection
from controller.southbound.counter_poller import CounterPoller
from controller.southbound.discovery import Discovery
from controller.southbound.framework import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    Outbox,
    RyuApp,
    ofp,
    ofp_event,
    on,
    pause,
    spawn,
)
from controller.southbound.handshake import MAX_PORTS
from controller.southbound.installer import Installer
from controller.southbound.mastership import MASTERSHIP_LOST
from controller.southbound.packet_outs import PacketOuts
from controller.southbound.rule_reader import RuleReader
from controller.tables.messages import FromSwitches, InstallStage, ReadRules, ToSwitches
from controller.tables.rules import ETH_ARP, ETH_LLDP

log = structlog.get_logger(__name__)

TICK_S = 0.1
REPORT_REFUSED_S = 1.0
LOG_EVERY_S = 10.0
MAX_KINDS = 20
"""Kinds of ignored messages that a line names: a switch can make up errors without end."""

MULTIPART_REPLIES = (
    ofp_event.EventOFPFlowStatsReply,
    ofp_event.EventOFPAggregateStatsReply,
    ofp_event.EventOFPGroupDescStatsReply,
    ofp_event.EventOFPMeterConfigStatsReply,
    ofp_event.EventOFPMeterStatsReply,
    ofp_event.EventOFPPortStatsReply,
)


@dataclass(frozen=True, slots=True)
class _Switch:
    connection: Connection
    name: str


class Southbound(RyuApp):  # type: ignore[misc]  # Ryu has no types
    OFP_VERSIONS = (ofp.OFP_VERSION,)

    def __init__(self, config: Config, put: Callable[[FromSwitches], None], outbox: Outbox) -> None:
        super().__init__()
        self.outbox = outbox
        self._put = put
        self._switches: dict[Dpid, _Switch] = {}
        probing = config.discovery
        self._discovery = Discovery(probing.probe_interval_s, probing.link_timeout_s, probing.max_probes_per_s)
        self._installer = Installer(config.openflow.barrier_timeout_s, self._send, put)
        self._reader = RuleReader(config.openflow.barrier_timeout_s, self._send, put)
        self._poller = CounterPoller(config.counters.interval_s, self._send, put)
        self._arrivals = Arrivals(self._admit)
        self._taken: dict[Dpid, Connection] = {}
        self._ignored: Counter[str] = Counter()
        self._refusals_at = 0.0
        self._log_at = 0.0

    def start(self) -> None:
        super().start()
        spawn(self.outbox, self._keep_time)

    # ---- commands

    def carry_out(self, command: ToSwitches) -> None:
        """Raises ``TypeError`` for a command that is not the southbound's."""
        if isinstance(command, InstallStage):
            for _ in self._installer.install(command, self._switches, time.monotonic()):
                pause()
        elif isinstance(command, ReadRules):
            if command.dpid in self._switches:
                self._reader.read(command.dpid, time.monotonic())
        elif isinstance(command, ProbePorts):
            self._discovery.rules_confirmed(command.dpids)
        elif isinstance(command, SendArpRequest):
            question = arp.probe(command.ip)
            self._send_frames((at, question) for at in command.ports)
        elif isinstance(command, SendArpReply):
            answer = arp.reply(command.ip, command.mac, command.asker_ip, command.asker_mac)
            self._send_frames([(command.at, answer)])
        else:
            raise TypeError(f"{type(command).__name__} is no command for the southbound")

    def disconnect(self) -> None:
        """Ends every connection without telling the loop; the switches keep their rules."""
        for dpid in list(self._switches):
            self._switches.pop(dpid).connection.close()
            self._end_conversations(dpid)
            self._discovery.switch_left(dpid)

    def _send(self, dpid: Dpid, message: Any) -> int:
        return self._switches[dpid].connection.send(message)

    def _send_frames(self, frames: Iterable[tuple[PortRef, bytes]]) -> None:
        """One write for those that leave one switch after the other."""
        for dpid, group in groupby(frames, key=lambda frame: frame[0].dpid):
            if dpid in self._switches:
                self._send(dpid, PacketOuts((at.port, frame) for at, frame in group))

    # ---- time

    def _keep_time(self) -> None:
        while True:
            now = time.monotonic()
            self._send_frames(self._discovery.tick(now))
            for link_lost in self._discovery.lost():
                self._put(link_lost)
            self._arrivals.tick(now)
            self._installer.expire(now)
            self._poller.tick(now)
            for dpid in self._reader.failed(now):
                log.warning("switch does not tell its rules; disconnecting", dpid=f"{dpid:#x}")
                self._switches[dpid].connection.close()
            self._report_refused(now)
            self._log_ignored(now)
            pause(TICK_S)

    def _report_refused(self, now: float) -> None:
        if now >= self._refusals_at and (refused := self._discovery.take_refused()):
            self._refusals_at = now + REPORT_REFUSED_S
            self._put(PacketsRefused(refused))

    def _log_ignored(self, now: float) -> None:
        if now < self._log_at:
            return
        self._log_at = now + LOG_EVERY_S
        if self._ignored:
            kinds = ", ".join(f"{kind}: {count}" for kind, count in self._ignored.items())
            log.warning("messages ignored", kinds=kinds)
            self._ignored.clear()

    # ---- switches and ports

    @on(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def on_handshake_done(self, ev: Any) -> None:
        self._arrivals.arrived(ev.datapath, time.monotonic())

    def _admit(self, connection: Connection) -> None:
        """The connection is the only one of its switch, and may write to it."""
        dpid = Dpid(connection.id)
        descs = list(connection.ports.values())
        self._taken.pop(dpid, None)
        if self._switches.pop(dpid, None):
            self._end_conversations(dpid)
        switch = self._switches[dpid] = _Switch(connection, objects.switch_name(dpid, descs))
        ports = tuple(port for port in map(objects.port, descs) if port)
        log.info("switch connected", switch=switch.name, dpid=f"{dpid:#x}", ports=len(ports))
        self._put(SwitchConnected(dpid, switch.name, ports))
        self._discovery.switch_connected(dpid, ports)
        self._poller.switch_connected(dpid, time.monotonic())

    @on(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_connection_dead(self, ev: Any) -> None:
        dpid = self._heard_from(ev.datapath)
        if dpid is not None:
            switch = self._leave(dpid)
            log.warning("switch left", switch=switch.name, dpid=f"{dpid:#x}")
            self._put(SwitchLeft(dpid))
        elif (taken := Dpid(ev.datapath.id)) in self._taken and self._taken[taken] is ev.datapath:
            del self._taken[taken]
            self._put(SwitchLeft(taken))
        self._arrivals.gone(ev.datapath, time.monotonic())

    def _leave(self, dpid: Dpid) -> _Switch:
        self._end_conversations(dpid)
        self._discovery.switch_left(dpid)
        return self._switches.pop(dpid)

    def _end_conversations(self, dpid: Dpid) -> None:
        self._installer.switch_left(dpid)
        self._reader.switch_left(dpid)
        self._poller.switch_left(dpid)

    def _heard_from(self, datapath: Any) -> Dpid | None:
        """The switch that a connection speaks for; None when the connection was replaced by another."""
        switch = self._switches.get(datapath.id)
        if switch is None or switch.connection is not datapath:
            return None
        dpid = Dpid(datapath.id)
        self._discovery.alive(dpid)
        return dpid

    @on(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        connection, desc = ev.msg.datapath, ev.msg.desc
        removed = ev.msg.reason == ofp.OFPPR_DELETE
        if removed:
            connection.ports.pop(desc.port_no, None)
        elif desc.port_no in connection.ports or len(connection.ports) < MAX_PORTS:
            connection.ports[desc.port_no] = desc  # it may not be admitted yet, and is then with these ports
        dpid = self._heard_from(connection)
        port: Port | None = objects.port(desc)
        if dpid is None or port is None:
            return
        self._put(PortChanged(dpid, port, removed))
        self._discovery.port_changed(dpid, port, removed)

    # ---- packets

    @on(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER, raw=True)
    def on_packet_in(self, ev: Any) -> None:
        dpid = self._heard_from(ev.msg.datapath)
        if dpid is None:
            return
        port, frame = decode.packet_in(ev.msg.buf)
        if port is None:
            return
        at = PortRef(dpid, port)
        eth_type = int.from_bytes(frame[12:14], "big")
        if eth_type == ETH_LLDP:
            for news in self._discovery.received(at, frame):
                self._put(news)
        elif eth_type != ETH_ARP:
            self._ignored["other_packets"] += 1
        elif packet := arp.parse(frame):
            self._put(ArpSeen(at, packet.op, packet.sender_ip, packet.sender_mac, packet.target_ip))
        else:
            self._discovery.refuse(RefusedPacket(at, "malformed_arp"))

    # ---- answers

    @on(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def on_error(self, ev: Any) -> None:
        message, reason, xid = ev.msg, objects.error_reason(ev.msg), ev.msg.xid
        code = objects.error_code(message)
        self._arrivals.error(message.datapath, xid, code, reason, time.monotonic())
        dpid = self._heard_from(message.datapath)
        if dpid is None:
            return
        if code == MASTERSHIP_LOST:
            switch = self._leave(dpid)
            self._taken[dpid] = switch.connection
            log.warning("another controller is the master now; left alone", switch=switch.name, dpid=f"{dpid:#x}")
            self._put(MastershipLost(dpid, switch.name))
        elif not (
            self._installer.error(dpid, xid, reason) or self._reader.error(dpid, xid) or self._poller.error(dpid, xid)
        ):
            kind = f"errors {reason}"
            self._ignored[kind if kind in self._ignored or len(self._ignored) < MAX_KINDS else "other errors"] += 1

    @on(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def on_barrier_reply(self, ev: Any) -> None:
        dpid = self._heard_from(ev.msg.datapath)
        if dpid is not None:
            self._installer.barrier_reply(dpid, ev.msg.xid)

    @on(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def on_echo_reply(self, ev: Any) -> None:
        self._heard_from(ev.msg.datapath)
        self._arrivals.echo_reply(ev.msg.datapath, ev.msg.xid)

    @on(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    def on_role_reply(self, ev: Any) -> None:
        message = ev.msg
        self._arrivals.role_reply(message.datapath, message.xid, message.role, message.generation_id, time.monotonic())

    @on(MULTIPART_REPLIES, MAIN_DISPATCHER, raw=True)
    def on_part(self, ev: Any) -> None:
        dpid = self._heard_from(ev.msg.datapath)
        if dpid is None:
            return
        reply = decode.multipart_reply(ev.msg.buf)
        if not self._reader.part(dpid, reply):
            self._poller.part(dpid, reply, time.monotonic())
