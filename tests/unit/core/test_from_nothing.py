"""After any event, the desired, confirmed, counted and installed state equals the state computed from scratch.

Links fail and return, and hosts move. Jobs are added, change and are removed. Switches disconnect, answer late and lose
rules. Parts are drained, and the controller restarts. The pins of a job are updated in several turns."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from controller.config import Config
from controller.fabric.messages import ArpSeen, DrainParts, LinkSeen, UndrainParts
from controller.fabric.topology import Dpid, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, UpdateJob
from controller.planning.messages import SetMode
from controller.planning.plan import Planned
from controller.tables import pins
from controller.tables.messages import StageDone, SwitchRules
from controller.tables.pins import FlowsByLink, Pins
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import mods_between
from controller.tables.running_routes import ConfirmedRoutes, CountedLinks
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.late_answers import LateAnswers
from tests.support.long_cases import with_long

CONFIG = Config.model_validate(
    {
        "fabric": {"link_bps": FABRIC_BPS, "host_link_bps": FABRIC_BPS},
        "discovery": {"edge_after_s": 0.5, "hold_down_s": 0.3, "max_hold_down_s": 0.5, "adoption_patience_s": 2.0},
        "planning": {"debounce_s": 0.2, "interval_s": 5.0, "max_moves": 3},
        "openflow": {"audit_interval_s": 5.0},
        "jobs": {"orphan_lease_s": 6.0},
    }
)
STEPS = 40
JOBS = 4


class Scene(LateAnswers):
    """Fabric in which random events happen.

    ``spare``: host ports without a host."""

    def __init__(self, seed: int) -> None:
        super().__init__(4, 3, 3)
        self.draw = random.Random(seed)
        self.spare = [self.hosts.pop(ip) for ip in list(self.hosts) if ip.endswith(".3")]
        ends = (PortRef(dpid, port) for dpid, switch in self.switches.items() for port in switch.peers)
        self.cables = [end for end in ends if (peer := self.switches[end.dpid].peers[end.port]) and end < peer]
        self.dead: list[PortRef] = []
        self.away: list[Dpid] = []
        self.start(CONFIG)
        self.run(3)
        self.all_speak()
        self.is_late = lambda answer: isinstance(answer, StageDone | SwitchRules | Planned) and self.draw.random() < 0.3

    def all_speak(self) -> None:
        for ip, at in self.hosts.items():
            self.send(ArpSeen(at, "reply", ip, self.mac(ip), "0.0.0.0"))

    def step(self) -> None:
        happens = [*[self.change_job] * 3, self.cable, self.cable, self.switch, self.host, self.rule, self.drain]
        self.draw.choice([*happens, self.mode])()
        if self.draw.random() < 0.05:
            self.late.clear()
            self.start(CONFIG, late=self.away)
        for _ in range(self.draw.choice([0, 1, 3, 6])):
            self.run(0.1)
            if self.draw.random() < 0.5:
                self.deliver()

    def change_job(self) -> None:
        name = f"job{self.draw.randrange(JOBS)}"
        spec = ring_job(name, self.draw.sample(sorted(self.hosts), self.draw.randint(2, 6)), lease_s=3600.0)
        if JobId(name) not in self.loop.state.jobs.jobs:
            self.send(RegisterJob(spec))
        else:
            self.send(UpdateJob(spec) if self.draw.random() < 0.7 else DeregisterJob(JobId(name)))

    def cable(self) -> None:
        if self.dead and self.draw.random() < 0.6:
            self.repair(self.dead.pop(self.draw.randrange(len(self.dead))))
        else:
            end = self.draw.choice([one for one in self.cables if one not in self.dead])
            self.dead.append(end)
            self.cut(*end)

    def repair(self, end: PortRef) -> None:
        self._set_carrier(*end, up=True)
        peer = self.switches[end.dpid].peers[end.port]
        if peer and not {end.dpid, peer.dpid} & set(self.away):
            self.send(LinkSeen(end, peer))
            self.send(LinkSeen(peer, end))

    def switch(self) -> None:
        if self.away:
            self.connect(self.away.pop())
        else:
            self.away.append(self.draw.choice(sorted(self.switches)))
            self._connected -= {self.away[0]}
            self.lose(self.away[0])
            if self.draw.random() < 0.3:
                self.switches[self.away[0]].forget_rules()

    def host(self) -> None:
        """Move a host to another port."""
        ip, there = self.draw.choice(sorted(self.hosts)), self.draw.randrange(len(self.spare))
        before, after = self.hosts[ip], self.spare[there]
        if {before.dpid, after.dpid}.isdisjoint(self.away):
            self.hosts[ip], self.spare[there] = after, before
            for up in (False, True):
                self._set_carrier(*before, up)
                self.send(ArpSeen(after, "reply", ip, self.mac(ip), "0.0.0.0"))

    def rule(self) -> None:
        """Change a rule as another program would."""
        switch = self.switches[self.draw.choice(sorted(self.switches))]
        if switch.flows:
            key = self.draw.choice(sorted(switch.flows, key=repr))
            switch.flows[key] = replace(switch.flows[key], actions=(), goto=None)

    def drain(self) -> None:
        drained = list(self.loop.state.drains.parts)
        if drained and self.draw.random() < 0.6:
            self.send(UndrainParts((self.draw.choice(drained),)))
        else:
            cable = self.draw.choice(self.cables)
            name = self.switches[cable.dpid].name
            self.send(DrainParts((self.draw.choice([f"spine{self.draw.randint(1, 3)}", f"{name}:{cable.port}"]),)))

    def mode(self) -> None:
        self.send(SetMode(self.draw.choice([Mode.PLANNED, Mode.ECMP])))

    def settle(self) -> None:
        """Repair everything, and wait until nothing changes any more."""
        self.is_late = lambda _: False
        self.deliver()
        self.connect(*self.away)
        for end in self.dead:
            self.repair(end)
        if drained := tuple(self.loop.state.drains.parts):  # with cables that are held down, a drain may cut hosts off
            self.send(UndrainParts(drained))
        self.send(SetMode(Mode.PLANNED))
        for _ in range(2):
            self.all_speak()
            self.run(45, step=0.5)
        self.dead, self.away = [], []


def assert_follows(fabric: Scene) -> None:
    """Assert that the state equals the state from scratch, unless routes and their pins are between two turns."""
    s, d = fabric.loop.state, fabric.loop.derived
    assert dict(d.flows_by_link()) == dict(FlowsByLink()(s.routes.routes))
    if s.phases.adopting or d.pins_due() or s.wanted.pins is not d.pins():
        return
    anew = ConfirmedRoutes()(s.fabric.hosts, s.routes.routes, s.wanted.pins, s.wanted.rules, s.sync.installed)
    assert (d.confirmed().pins, dict(d.confirmed().routes)) == (anew.pins, dict(anew.routes))
    uses = CountedLinks()(s.fabric.hosts, s.fabric.links, d.pins(), d.paths())
    assert dict(d.counted_links()) == dict(uses)


def assert_settled(fabric: Scene) -> None:
    s, d = fabric.loop.state, fabric.loop.derived
    assert not any((s.phases.adopting, d.pins_due(), s.sync.busy, s.sync.refused, s.sync.unsettled))
    anew = Pins()
    found = anew(d.forwarding(), d.with_rules(), s.routes.routes, s.routes.orphans)
    while anew.due:
        anew.turn += 1
        found = anew(d.forwarding(), d.with_rules(), s.routes.routes, s.routes.orphans, anew.turn)
    settings = PipelineSettings(CONFIG.discovery.punt_rate_pps, CONFIG.fabric.leaf_prefix_length)
    rules = Pipeline(settings).desired(s.fabric, found, s.sync.installed, d.forwarding())
    for dpid, switch in fabric.switches.items():
        assert not [*mods_between(rules[dpid], s.wanted.rules[dpid])]
        assert not [*mods_between(rules[dpid], switch.rules())]
    assert {job.state for job in fabric.status.jobs.values()} <= {"pinned", "ecmp"}


@pytest.mark.parametrize("seed", with_long([16, 18, 21], range(16, 22)))
def test_whatever_happens_what_is_there_follows_from_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "AT_ONCE", 1)
    fabric = Scene(seed)
    for _ in range(STEPS):
        fabric.step()
        assert_follows(fabric)
    fabric.settle()
    assert_follows(fabric)
    assert_settled(fabric)
