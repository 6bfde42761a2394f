"""A fake fabric whose hosts send: rings of jobs, announced or not, and traffic that no job announces.

Bytes take the paths that packets take, and the ports and the installed rules count them. All switches are polled at the
same moment, as by the real poller."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from controller.config import CountersConfig
from controller.core.messages import Command, Message
from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, LinkId, PortRef
from controller.planning.problem import FlowId
from controller.southbound.pollers import TIMES
from controller.tables.flow_tables import LEARNING_PRIORITY, pin_key
from controller.tables.messages import LearningCounters, PollHalfway, PollLearning
from controller.tables.rules import FlowKey
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, packets_of
from tests.support.fake_switch import Packet

STEP_S = 0.25
COUNTERS = CountersConfig()


def always(_now: float) -> float:
    return 1.0


@dataclass
class Ring:
    """A training job whose flows all send at one rate.

    The rate is a flow's share of the capacity that is left on the fullest link, and at most ``most_bps``. ``duty``:
    function that returns the share of the rate that the job sends at a given time."""

    ips: Sequence[str]
    most_bps: float = FABRIC_BPS
    duty: Callable[[float], float] = always

    @property
    def flows(self) -> list[FlowId]:
        return [FlowId(ip, self.ips[(rank + 1) % len(self.ips)]) for rank, ip in enumerate(self.ips)]


class BusyFabric(FakeFabric):
    """A fake fabric whose hosts send.

    ``rings``: jobs that train.
    ``stray_bps``: rates of unannounced flows, which yield to no other flow.
    ``seed``: seed of the ECMP hash.
    ``lag_s``: seconds between updates of the rule counters in the switches.
    ``soon``: switches whose learning rules are polled more often."""

    def __init__(self, *args: Any, seed: int = 0, **more: Any) -> None:
        super().__init__(*args, **more)
        self.rings: list[Ring] = []
        self.stray_bps: dict[FlowId, float] = {}
        self.seed = seed
        self.lag_s = 0.0
        self._ports: dict[FlowId, list[PortRef]] = {}
        self._ports_of: object = None
        self.soon: frozenset[Dpid] = frozenset()
        self._told: defaultdict[Dpid, Counter[FlowKey]] = defaultdict(Counter)
        self._told_at = self._soon_at = self.now
        self._sent: Counter[PortRef] = Counter()
        self._received: Counter[PortRef] = Counter()
        self._rules: defaultdict[Dpid, Counter[FlowKey]] = defaultdict(Counter)
        self._polled: dict[Dpid, float] = {}
        self._halfway: dict[Dpid, float] = {}

    def all_speak(self) -> None:
        for ip, at in self.hosts.items():
            self.send(ArpSeen(at, "reply", ip, self.mac(ip), "0.0.0.0"))
        self.run(1)

    def carry(self, seconds: float) -> None:
        """Advance the clock while all flows send."""
        for _ in range(round(seconds / STEP_S)):
            self.run(STEP_S, step=STEP_S)
            for flow, bps in self.rates_bps().items():
                self._count(flow, int(bps * STEP_S / 8))
            if self.now >= self._told_at + self.lag_s:
                self._told_at = self.now
                self._told = defaultdict(Counter, {dpid: Counter(rules) for dpid, rules in self._rules.items()})
            self._poll(COUNTERS.interval_s)
            if self.now >= self._soon_at + COUNTERS.interval_s / TIMES:
                self._soon_at = self.now
                self._poll_soon()

    def rates_bps(self) -> Mapping[FlowId, float]:
        flows = [*self.stray_bps, *(flow for ring in self.rings for flow in ring.flows)]
        ports = self._ports_on(flows)
        taken: Counter[PortRef] = Counter()
        for flow, bps in self.stray_bps.items():
            taken.update(dict.fromkeys(ports[flow], int(bps)))
        sharing = Counter(port for ring in self.rings for flow in ring.flows for port in ports[flow])
        rates = dict(self.stray_bps)
        for ring in self.rings:
            used = {port for flow in ring.flows for port in ports[flow]}
            left = min(max(0.05 * FABRIC_BPS, FABRIC_BPS - taken[port]) / sharing[port] for port in used)
            rates |= dict.fromkeys(ring.flows, min(ring.most_bps, left) * ring.duty(self.now))
        return rates

    def _ports_on(self, flows: Sequence[FlowId]) -> dict[FlowId, list[PortRef]]:
        switches = self.switches.values()
        now = flows, [(*of.flows.values(), *of.groups.values(), *of.up.values()) for of in switches], dict(self.hosts)
        if now != self._ports_of:
            self._ports_of, self._ports = now, {flow: self.ports_on(flow) for flow in flows}
        return self._ports

    def ports_on(self, flow: FlowId) -> list[PortRef]:
        """Return the ports through which a flow leaves each switch, in order."""
        packet = Packet(*flow.pair, entropy=_drawn(self.seed, flow))
        at = self.hosts[flow.src_ip]
        ports: list[PortRef] = []
        while not ports or ports[-1] != self.hosts[flow.dst_ip]:
            out = self.switches[at.dpid].forward(at.port, packet)
            assert out is not None, f"{flow} is lost"
            ports.append(PortRef(at.dpid, out))
            at = self.switches[at.dpid].peers[out] or at
        return ports

    def _count(self, flow: FlowId, total: int) -> None:
        src = self.hosts[flow.src_ip]
        self._received[src] += total
        self._sent.update(dict.fromkeys(self._ports[flow], total))
        for key in (pin_key(flow), pin_key(flow)._replace(priority=LEARNING_PRIORITY)):
            if key in self.switches[src.dpid].flows:
                self._rules[src.dpid][key] += total
                break

    def _poll_soon(self) -> None:
        for dpid in sorted(self.soon):
            learning = [key for key in self.switches[dpid].flows if key.priority == LEARNING_PRIORITY]
            counts = {key: packets_of(self._told[dpid][key]) for key in learning}
            self.send(LearningCounters(dpid, self.now, counts))

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, PollLearning):
            self.soon = command.dpids
        elif isinstance(command, PollHalfway):
            self._halfway = {dpid: at - COUNTERS.interval_s / 2 for dpid, at in self._polled.items()}
        return super()._carry_out(command)

    def _poll(self, interval_s: float) -> None:
        for dpid, switch in self.switches.items():
            for key in self._rules[dpid].keys() - switch.flows.keys():
                del self._rules[dpid][key]
            halfway = self.now >= self._halfway.get(dpid, self.now + 1)
            if halfway:
                del self._halfway[dpid]
            regular = self.now >= self._polled.setdefault(dpid, self.now + interval_s)
            if regular:
                self._polled[dpid] += interval_s
            if regular or halfway:
                self.count_rules(self._sent, self._told[dpid], self._received, [dpid])

    def background_bps(self) -> dict[LinkId, float]:
        return {link: found.background_bps for link, found in self.status.links.items() if found.background_bps}


@cache
def _drawn(seed: int, flow: FlowId) -> int:
    return Random(f"{seed} {flow}").getrandbits(16)
