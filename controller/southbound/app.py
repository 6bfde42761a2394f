"""Ryu app: passes switch messages and control-loop commands to the other modules of the southbound.

In: Ryu's events and, through ``carry_out``, the control loop's commands. Out: messages for the loop through ``put``. A
handler translates a message, passes it on and returns without waiting. All code here runs in the hub.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from controller.config import Config
from controller.fabric.messages import (
    ArpSeen,
    ExpectLinks,
    GenerationRaised,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbeAnew,
    ProbePorts,
    ProbesHeard,
    RefusedPacket,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchesInReach,
    SwitchFloods,
    SwitchLeft,
    SwitchMoved,
)
from controller.fabric.topology import Dpid, PortRef, port_refs
from controller.link.messages import Welcome
from controller.southbound import ethernet_frames
from controller.southbound import openflow_decode as decode
from controller.southbound import openflow_encode as encode
from controller.southbound.admission import Admission
from controller.southbound.connection import Connection
from controller.southbound.discovery import Discovery
from controller.southbound.framework import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    RyuApp,
    ofp,
    ofp_event,
    on,
    pause,
    spawn,
)
from controller.southbound.given_rules import GivenRules, RuleReader
from controller.southbound.holding import Holding
from controller.southbound.installer import Installer
from controller.southbound.limits import PortChanges, Put, limited_log
from controller.southbound.local_repair import LocalRepair
from controller.southbound.multipart import multipart_reply
from controller.southbound.openflow_framing import Frame
from controller.southbound.outbox import Outbox
from controller.southbound.pollers import CounterPoller, LearningPoller, TablePoller
from controller.southbound.process_messages import Broken
from controller.southbound.reach import Reach
from controller.store.store import is_ahead
from controller.tables.messages import (
    Counters,
    InstallStage,
    LearningCounters,
    PollHalfway,
    PollLearning,
    ReadRules,
    ToSwitches,
)
from controller.tables.rules import ETH_ARP, ETH_LLDP, Stage
from controller.tables.switch_sync import is_full

TICK_S = 0.1
USUALLY_SILENT = 1.5
"""Longest silence of a reachable switch, as a multiple of the time between polls or between echo requests."""
REPORT_S = 1.0
FLOODING = 0.5
"""Largest fraction of the time for which reading from a switch is paused before the switch counts as flooding."""


@dataclass(frozen=True, slots=True)
class _Switch:
    connection: Connection
    name: str


class Southbound(RyuApp):  # type: ignore[misc]  # Ryu has no types
    OFP_VERSIONS = (ofp.OFP_VERSION,)

    def __init__(
        self,
        config: Config,
        put: Put,
        outbox: Outbox,
        holding: Holding,
        known: frozenset[Dpid],
    ) -> None:
        super().__init__()
        self.outbox = outbox
        self._put = put
        self._switches: dict[Dpid, _Switch] = {}
        probing = config.discovery
        fibres = config.circuits.fibres
        self._optical = frozenset(dpid for dpid, _ in fibres)
        self._discovery = Discovery(
            probing.probe_interval_s,
            probing.link_timeout_s,
            probing.max_probes_per_s,
            one_way=port_refs(fibres.values()),
        )
        self._config = config
        self._given = GivenRules(known, lambda dpid: len(self._switches[dpid].connection.ports))
        self._begin()
        self._port_changes = PortChanges()
        patience_s = config.openflow.echo_interval_s * config.openflow.echo_misses
        callbacks = self._admit, self._not_master, self._pause, self._release, self._raised
        self._admission = Admission(holding, patience_s, *callbacks, _is_ahead)
        self._repair = LocalRepair(self._admission, lambda: self._discovery.links)
        self._taken: dict[Dpid, Connection] = {}
        """Connections whose switch is being claimed anew or has another master, so that they may not be used now."""
        self._reported: dict[Dpid, Connection] = {}
        """Connections of the switches that the control loop regards as connected, even if they may not be used now."""
        self._report_at = 0.0
        self._in_reach: SwitchesInReach | None = None
        """Latest report of the switches in reach; None if the control loop requests no such reports."""
        usual_s = min(config.counters.interval_s, config.openflow.echo_interval_s)
        self._reach = Reach(max(config.etcd.lease_s, USUALLY_SILENT * usual_s))

    def start(self) -> None:
        super().start()
        spawn(self.outbox, self._keep_time)

    def _begin(self, zero: float = 0.0) -> None:
        """Start without open requests and stages.

        ``zero``: monotonic time at which the control loop's clock was 0."""
        given, put, patience_s = self._given, self._put, self._config.openflow.barrier_timeout_s
        interval_s = self._config.counters.interval_s
        self._installer = Installer(patience_s, self._send, put, given)
        self._reader = RuleReader(patience_s, self._send, put, given)
        self._counted: list[Counters | LearningCounters] = []
        self._poller = CounterPoller(interval_s, self._send, self._counted.append, given, zero)
        self._learning = LearningPoller(interval_s, self._send, self._counted.append, given, zero)
        self._tables = TablePoller(interval_s, self._send, put)
        self._requests = (self._reader, self._poller, self._learning, self._tables)

    # ---- commands

    def carry_out(self, command: ToSwitches | Welcome | Broken) -> None:
        if isinstance(command, InstallStage) and command.pause_s:
            spawn(self.outbox, partial(self._connect, command))
        elif isinstance(command, InstallStage):
            for _ in self._installer.install(command, self._switches, time.monotonic()):
                pause()
        elif isinstance(command, ReadRules):
            if command.dpid in self._switches:
                self._reader.read(command.dpid, time.monotonic())
        elif isinstance(command, PollLearning):
            self._learning.poll(command.dpids)
        elif isinstance(command, PollHalfway):
            self._poller.poll_halfway()
        elif isinstance(command, ProbePorts):
            self._discovery.rules_confirmed(command.dpids)
        elif isinstance(command, ProbeAnew):
            self._discovery.connected_anew(command.ports)
        elif isinstance(command, SendArpRequest):
            request = ethernet_frames.arp_probe(command.ip)
            self._send_frames((at, request) for at in command.ports)
        elif isinstance(command, SendArpReply):
            reply = ethernet_frames.arp_reply(command.ip, command.mac, command.asker_ip, command.asker_mac)
            self._send_frames([(command.at, reply)])
        elif isinstance(command, Welcome):
            self._repair.linked()
            self._announce(command)
        elif isinstance(command, Broken):
            self._repair.broken(time.monotonic())
        elif isinstance(command, ExpectLinks):
            self._given.expect(command.known)
            self._discovery.expect(command.links)
        elif isinstance(command, ProbesHeard):
            for change in self._discovery.heard_elsewhere(command):
                self._put(change)
        else:
            raise TypeError(f"{type(command).__name__} is not a command for switches")

    def _announce(self, welcome: Welcome) -> None:
        """Announce all switches to a control loop, and forget the requests of an earlier control loop.

        Connections and roles stay."""
        now = time.monotonic()
        for dpid in self._switches:
            self._given.switch_left(dpid)
        self._given.expect(welcome.known)
        self._begin(now - welcome.now)
        self._discovery.share(welcome.probe_key)
        self._in_reach = self._switches_in_reach()
        self._put(self._in_reach)
        self._reported.clear()
        for switch in self._switches.values():
            self._report_switch(switch)
        for connection in self._taken.values():
            self._put_lost(connection, refused=False)

    def _connect(self, command: InstallStage) -> None:
        """Install a stage on optical switches, with a pause between deletions and additions.

        During the pause, the deleted circuits carry no light. A switch that was announced again during the pause gets
        no additions, since another holder or stage may have changed the switch."""
        installer, before = self._installer, dict(self._switches)
        gone = command.stage.only(lambda _, mod: mod.op == "delete").mods
        for dpid, mods in gone.items():
            if dpid in self._switches:
                self._send(dpid, *map(encode.mod_message, mods))
        pause(command.pause_s)
        if installer is not self._installer:
            return  # another control loop has the link since then, and reads the rules
        added = {dpid: tuple(mod for mod in mods if mod.op != "delete") for dpid, mods in command.stage.mods.items()}
        stage = replace(command, stage=Stage(command.stage.name, added))
        same = {dpid for dpid, switch in self._switches.items() if switch is before.get(dpid)}
        for _ in self._installer.install(stage, same, time.monotonic()):
            pause()

    def disconnect(self) -> None:
        """End every connection without a message to the control loop; the switches keep their rules."""
        for dpid in list(self._switches):
            self._switches.pop(dpid).connection.close()
            self._end_conversations(dpid)
            self._discovery.switch_left(dpid)

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        return self._switches[dpid].connection.send(*messages)

    def _send_frames(self, to_send: Iterable[tuple[PortRef, bytes]]) -> None:
        for dpid, group in groupby(to_send, key=lambda frame: frame[0].dpid):
            if dpid in self._switches:
                packets = encode.packet_outs((at.port, frame) for at, frame in group)
                self._switches[dpid].connection.send_bytes(packets)

    # ---- time

    def _keep_time(self) -> None:
        while True:
            now = time.monotonic()
            self._send_frames(self._discovery.tick(now))
            for link_lost in self._discovery.lost():
                self._put(link_lost)
            self._admission.tick(now)
            self._repair.tick(now)
            self._installer.expire(now)
            self._poller.tick(now)
            self._learning.tick(now)
            self._report_counters()
            self._tables.tick(now)
            for dpid in self._reader.failed(now):
                limited_log.warning("switch does not answer a read of its rules; disconnecting", dpid=f"{dpid:#x}")
                self._switches[dpid].connection.close()
            for change in self._port_changes.tick(now):
                self._port_changed(change)
            if self._in_reach not in (None, reach := self._switches_in_reach()):
                self._in_reach = reach
                self._put(reach)
            if heard := self._discovery.take_elsewhere(with_alive=now >= self._report_at):
                self._put(heard)
            self._report(now)
            limited_log.summarise()
            pause(TICK_S)

    def _switches_in_reach(self) -> SwitchesInReach:
        connected = self._admission.connected
        return self._reach.report(connected, any(map(self._must_answer, connected)), self._discovery.listened)

    def _must_answer(self, dpid: Dpid) -> bool:
        """Return whether the switch is polled, or has a request about roles to answer."""
        return (dpid in self._switches and dpid not in self._optical) or self._admission.asks(dpid)

    def _report_counters(self) -> None:
        """Send the counters of all switches to the control loop together, since each message wakes the loop.

        Counters of a switch wait until its rules have been read."""
        waiting: dict[object, Counters | LearningCounters] = {}
        for counters in self._counted:
            dpid, flows = counters.dpid, counters.flows
            if flows is None:
                self._put(counters)
            elif self._given.is_read(dpid):
                self._put(replace(counters, flows=self._given.of_given(dpid, flows)))
            else:
                waiting.setdefault((type(counters), dpid), counters)
        self._counted[:] = waiting.values()

    def _report(self, now: float) -> None:
        if now < self._report_at:
            return
        self._report_at = now + REPORT_S
        if refused := self._discovery.take_refused():
            self._put(PacketsRefused(refused))
        for dpid, switch in self._switches.items():
            is_held = switch.connection.take_held_s() > FLOODING * REPORT_S
            if is_held | self._given.take_invented(dpid) or self._port_changes.floods(dpid):
                self._put(SwitchFloods(dpid))

    # ---- switches and ports

    @on(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def on_handshake_done(self, connection: Connection) -> None:
        self._reach.answered(Dpid(connection.id))
        self._admission.arrived(connection, time.monotonic())

    def _admit(self, connection: Connection) -> None:
        dpid = Dpid(connection.id)
        self._taken.pop(dpid, None)
        if self._switches.pop(dpid, None):
            self._end_conversations(dpid)
        switch = self._switches[dpid] = _Switch(connection, _name(connection))
        limited_log.info("switch connected", switch=switch.name, dpid=f"{dpid:#x}", ports=len(connection.ports))
        self._report_switch(switch)

    def _report_switch(self, switch: _Switch) -> None:
        connection, dpid = switch.connection, Dpid(switch.connection.id)
        ports = tuple(port for port in connection.ports.values() if port.number <= ofp.OFPP_MAX)
        kind = SwitchMoved if self._reported.get(dpid) is connection else SwitchConnected
        self._reported[dpid] = connection
        self._put(kind(dpid, switch.name, ports, self._admission.generation(dpid)), connection.backlog)
        if dpid in self._optical:  # optical switches send no LLDP, and their counters are not polled
            return
        self._discovery.switch_connected(dpid, ports)
        self._poller.switch_connected(dpid, time.monotonic())
        self._learning.switch_connected(dpid)
        self._tables.switch_connected(dpid, time.monotonic())

    def _not_master(self, connection: Connection, refused: bool) -> None:
        dpid, name = Dpid(connection.id), _name(connection)
        self._pause(connection)
        self._discovery.switch_left(dpid)
        write_line = limited_log.warning if refused else limited_log.info
        write_line("another controller is the master", switch=name, dpid=f"{dpid:#x}")
        self._reported.pop(dpid, None)
        self._put_lost(connection, refused)

    def _put_lost(self, connection: Connection, refused: bool) -> None:
        dpid, admission = Dpid(connection.id), self._admission
        self._put(MastershipLost(dpid, _name(connection), admission.ahead(dpid), refused, admission.newer(dpid)))

    def _raised(self, connection: Connection, generation: int) -> None:
        dpid, name = Dpid(connection.id), _name(connection)
        what = "another controller has changed the switch's generation id"
        limited_log.warning(what, switch=name, dpid=f"{dpid:#x}", generation=generation)
        self._put(GenerationRaised(dpid, name, generation, _is_ahead(generation)))

    def _pause(self, connection: Connection) -> None:
        dpid = Dpid(connection.id)
        if self._switches.pop(dpid, None):
            self._end_conversations(dpid)
        self._taken[dpid] = connection

    def _release(self, connection: Connection) -> None:
        self._pause(connection)
        limited_log.info("switch released", switch=_name(connection), dpid=f"{connection.id:#x}")
        self._left(Dpid(connection.id), released=True)

    @on(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_connection_dead(self, connection: Connection) -> None:
        dpid = Dpid(connection.id)
        if self._admitted(connection) is not None:
            limited_log.warning("switch left", switch=self._switches[dpid].name, dpid=f"{dpid:#x}")
            self._pause(connection)
        if self._taken.get(dpid) is connection:
            self._left(dpid)
        if self._admission.connection(connection.id) is connection:
            self._repair.switch_left(connection.id)
        self._admission.gone(connection, time.monotonic())

    def _left(self, dpid: Dpid, released: bool = False) -> None:
        del self._taken[dpid]
        self._discovery.switch_left(dpid)
        self._reported.pop(dpid, None)
        self._put(SwitchLeft(dpid, released))

    def _end_conversations(self, dpid: Dpid) -> None:
        self._port_changes.switch_left(dpid)
        self._installer.switch_left(dpid)
        self._repair.switch_left(dpid)
        for requests in self._requests:
            requests.switch_left(dpid)
        self._given.switch_left(dpid)
        self._counted[:] = [counters for counters in self._counted if counters.dpid != dpid]

    def _answered(self, connection: Connection) -> Dpid | None:
        """Handle an answer as ``_heard_from`` does. The answer shows that messages arrive in both directions."""
        self._reach.answered(Dpid(connection.id))
        return self._heard_from(connection)

    def _heard_from(self, connection: Connection) -> Dpid | None:
        """Return the dpid of an admitted connection, and mark its switch as alive; None for other connections."""
        if self._must_answer(Dpid(connection.id)):
            self._reach.heard(self._discovery.listened)
        dpid = self._admitted(connection)
        if dpid is not None:
            self._discovery.alive(dpid)
        return dpid

    def _admitted(self, connection: Connection) -> Dpid | None:
        switch = self._switches.get(Dpid(connection.id))
        return Dpid(connection.id) if switch and switch.connection is connection else None

    @on(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, connection: Connection, message: Frame) -> None:
        port, removed = decode.port_status(message.body)
        if not connection.port_changed(port, removed):  # also before the admission, which reports the ports
            connection.ignore("ports beyond a limit")
            return
        if self._admission.connection(connection.id) is connection:
            self._repair.port_changed(connection.id, time.monotonic())
        dpid = self._heard_from(connection)
        if dpid is not None and port.number <= ofp.OFPP_MAX:
            for change in self._port_changes.changed(dpid, port, removed, time.monotonic()):
                self._port_changed(change)

    def _port_changed(self, change: PortChanged) -> None:
        self._put(change, self._switches[change.dpid].connection.backlog)
        if change.dpid not in self._optical:
            self._discovery.port_changed(change.dpid, change.port, change.removed)

    # ---- packets

    @on(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet_in(self, connection: Connection, message: Frame) -> None:
        dpid = self._heard_from(connection)
        if dpid is None:
            return
        port, frame = decode.packet_in(message.data)
        if port is None:
            return
        at = PortRef(dpid, port)
        eth_type = int.from_bytes(frame[12:14], "big")
        if eth_type == ETH_LLDP:
            for change in self._discovery.received(at, frame):
                self._put(change, connection.backlog)
        elif eth_type != ETH_ARP:
            connection.ignore("packets of other protocols")
        elif packet := ethernet_frames.parse_arp(frame):
            seen = ArpSeen(at, packet.op, packet.sender_ip, packet.sender_mac, packet.target_ip)
            self._put(seen, connection.backlog)
        else:
            self._discovery.refuse(RefusedPacket(at, "malformed_arp"))

    # ---- answers

    @on(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def on_error(self, connection: Connection, message: Frame) -> None:
        xid, (code, reason) = message.xid, decode.error(message.body)
        self._answered(connection)
        self._admission.error(connection, xid, code, reason)
        dpid = self._admitted(connection)
        if dpid is None:
            return
        if self._installer.error(dpid, xid, reason):
            if is_full(reason):
                self._tables.table_full(dpid, time.monotonic())
        elif not any(requests.error(dpid, xid) for requests in self._requests):
            connection.ignore(f"errors {reason}")

    @on(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def on_barrier_reply(self, connection: Connection, message: Frame) -> None:
        decode.barrier_reply(message.body)
        dpid = self._answered(connection)
        if dpid is not None:
            self._installer.barrier_reply(dpid, message.xid)

    @on(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def on_echo_reply(self, connection: Connection, message: Frame) -> None:
        self._answered(connection)
        self._admission.echo_reply(connection, message.xid)

    @on(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    def on_role_reply(self, connection: Connection, message: Frame) -> None:
        role, generation = decode.role_reply(message.body)
        self._answered(connection)
        self._admission.role_reply(connection, message.xid, role, generation)

    @on(ofp_event.EventOFPExperimenter, MAIN_DISPATCHER)
    def on_role_status(self, connection: Connection, message: Frame) -> None:
        role = decode.role_status(message.body)
        if role is None:
            connection.ignore("messages of experimenters")
        elif role == ofp.OFPCR_ROLE_SLAVE:
            self._admission.demoted(connection)

    @on(ofp_event.EventOFPMultipartReply, MAIN_DISPATCHER)
    def on_multipart_reply(self, connection: Connection, message: Frame) -> None:
        dpid, reply, now = self._answered(connection), multipart_reply(message.data), time.monotonic()
        if self._admission.connection(connection.id) is connection and self._repair.part(connection.id, reply, now):
            connection.nobody_asked()  # the time counts against the share of the switch, which may not be held
            return
        if dpid is None:
            connection.nobody_asked()
            return
        asked = any(requests.part(dpid, reply, now) for requests in self._requests)
        if self._given.take_slow(dpid) or not asked:
            connection.nobody_asked()


def _is_ahead(generation: int) -> bool:
    return is_ahead(generation, time.time())


def _name(connection: Connection) -> str:
    """Return the name of the switch's local port, which Open vSwitch names like the bridge."""
    local = connection.ports.get(ofp.OFPP_LOCAL)
    return local.name if local else f"{connection.id:016x}"
