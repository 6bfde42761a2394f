"""Log entries about the life of a controller."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from controller.config import Config
from controller.events import EventHistory
from controller.fabric.messages import ArpSeen, ConnectionRefused, DrainParts, PortChanged, UndrainParts
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.serving.event_log import OF_ALARMS, at_start, events, not_over
from controller.status import DrainStatus, Repair, Status
from signalbox.jobs.spec import JobId
from signalbox.live.rows import sentence
from signalbox.words import AlarmKind, EventKind, Mode
from tests.support import optical_fabric
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG, register, started


def told(before: Status, after: Status) -> list[str]:
    return [what for what, _ in details(before, after)]


def details(before: Status, after: Status) -> list[tuple[str, dict[str, object]]]:
    found = [(what, of_it) for _, what, of_it in events(before, after)]
    for what, of_it in found:
        said = sentence(what, {name: str(value) for name, value in of_it.items()})
        assert said, f"no sentence of {what} in signalbox.live.rows"
        assert "=" not in said
    return found


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0)


def test_a_life_in_lines() -> None:
    fabric = started(FakeFabric())
    before = fabric.status
    assert told(Status(adopting=True), before) == ["link found", "switch found", "rules adopted"]
    register(fabric, 0)
    fabric.run(3)
    planned = fabric.status
    lines = told(before, planned)
    assert lines.count("host found") == 4
    assert "job registered" in lines
    assert any(line.startswith("plan adopted") for line in lines)
    assert told(planned, planned) == []
    (plan,) = (details for _, what, details in events(before, planned) if what.startswith("plan adopted"))
    assert (plan["worst_slowdown"], plan["bound"]) == (1.0, 1.0)
    taken = {"level", "logger", "event", "timestamp"}
    assert not any(taken & details.keys() for _, _, details in events(before, planned))
    fabric.send(DrainParts(("spine4",)))
    fabric.run(1)
    assert told(planned, drained := fabric.status)[:1] == ["drained"]
    for _ in range(2):
        fabric.run(1)
        fabric.count({}, {})
    assert "safe to pull" in told(drained, safe := fabric.status)
    fabric.send(UndrainParts(("spine4",)))
    assert told(safe, fabric.status) == ["undrained"]
    assert told(planned, safe)[:2] == ["drained", "safe to pull"], "as of a part that is down already"
    fabric.cut(Dpid(1), PortNo(1))
    fabric.run(0.1)
    cut = fabric.status
    assert ("link down", {"count": 1, "names": "leaf1:1>spine1"}) in details(planned, cut)
    fabric.run(100)
    assert "job ended" in told(cut, fabric.status)


def test_rarer_events_have_sentences_too(fabric: FakeFabric) -> None:
    now = fabric.status
    dpid, switch = next(iter(now.switches.items()))
    drained = replace(now, drains={"spine1": DrainStatus("spine1", 0.0, "moving", 6, 4)})
    for after in (
        replace(now, mode=Mode.ECMP),
        replace(now, repair=Repair(3, 1.0), repair_s=0.1, repairs_total=1),
        replace(now, switches={**now.switches, dpid: replace(switch, healed_rules=switch.healed_rules + 1)}),
    ):
        assert len(told(now, after)) == 1
    carries = replace(drained, drains={"spine1": DrainStatus("spine1", 0.0, "carrying", 0, 4)})
    assert told(drained, carries) == ["drained, but carries packets"]
    started = "controller 1.0 started"
    assert sentence("controller started", {"version": "1.0"}) == started
    assert sentence("controller started", {"version": "1.0", "member": "a"}) == f"{started} as the leader, member a"
    assert now.plan
    at_2, at_1_02 = (replace(now, plan=replace(now.plan, job_slowdown={JobId("job0"): at})) for at in (2.0, 1.02))
    assert [found["worst_slowdown"] for _, found in details(now, at_2)] == [2.0], "a plan that is kept"
    assert told(now, at_1_02) == []


def test_what_goes_and_comes_back_has_a_line_with_its_name_and_no_other(fabric: FakeFabric) -> None:
    before = fabric.status
    fabric.lose(Dpid(258))
    fabric.run(0.5)
    lost = fabric.status
    assert [line for line in details(before, lost) if line[0] in ("link down", "switch down", "links lost")] == [
        ("link down", {"count": 4, "names": "leaf1:2>spine2, leaf2:2>spine2, leaf3:2>spine2, leaf4:2>spine2"}),
        ("switch down", {"count": 1, "names": "spine2"}),
    ]
    assert told(lost, lost) == []
    fabric.connect(Dpid(258))
    fabric.run(10)
    back = told(lost, fabric.status)
    assert (back.count("link up again"), back.count("switch up again")) == (1, 1)
    assert not {"link found", "switch found"} & set(back)


def test_a_drain_says_how_many_flows_it_moves(fabric: FakeFabric) -> None:
    ways = [fabric.trace(*flow.pair) or [] for flow in fabric.status.jobs[JobId("job0")].routes]
    name = next(name for name in ("spine1", "spine2", "spine3", "spine4") if any(name in way for way in ways))
    on_it = sum(name in way for way in ways)
    before = fabric.status
    fabric.send(DrainParts((name,)))
    fabric.run(1)
    plans = [what for what in told(before, fabric.status) if what.startswith("plan ")]
    flows = f"{on_it} flow{'s' * (on_it > 1)}"
    assert plans == [f"plan adopted: pins {flows}: {on_it} on drained links; no other flows moved"]


def test_a_host_whose_cable_dies_has_a_line_also_if_no_job_names_it(fabric: FakeFabric) -> None:
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(1)
    before, at = fabric.status, fabric.hosts["10.0.1.1"]
    port = before.fabric.switches[at.dpid].ports[at.port]
    fabric.send(PortChanged(at.dpid, replace(port, up=False)))
    fabric.run(0.2)
    down = fabric.status
    assert details(before, down) == [("host down", {"count": 1, "names": "10.0.1.1", "at": "leaf1"})]
    fabric.send(PortChanged(at.dpid, port))
    fabric.run(0.2)
    assert told(down, fabric.status) == ["host up again"]


class Logged(FakeFabric):
    """Fabric that keeps the controller's event history over restarts of the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.history = EventHistory()

    def start(self, config: Config | None = None, late: Iterable[Dpid] = ()) -> None:
        self.alarms_before = not_over(self.history.after(0, 10_000))
        super().start(config, late=self.switches)
        self.told = at_start(self.status, self.alarms_before)
        self.tell()
        self.connect(*(dpid for dpid in self.switches if dpid not in set(late)))
        self.tell()

    def tell(self) -> None:
        before, self.told = self.told, self.status
        details(before, self.told)
        for kind, what, of_it in events(before, self.told):
            self.history.add(kind, what, of_it, self.now)

    def run(self, seconds: float, step: float = 0.1) -> None:
        super().run(seconds, step)
        self.tell()

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Entries about alarms, except those for missing counters: these switches send none."""
        of_alarms = (e for e in self.history.after(0, 10_000) if e.kind in OF_ALARMS)
        return [(e.what, e.details["kind"]) for e in of_alarms if e.details["kind"] != AlarmKind.COUNTERS_STALE]

    def since(self, kind: AlarmKind) -> float:
        (since,) = (alarm.since for alarm in self.status.alarms.values() if alarm.kind is kind)
        return since


@pytest.fixture
def logged() -> Logged:
    fabric = started(Logged(), 0)
    assert not fabric.lines
    return fabric


def test_an_alarm_that_goes_on_over_a_restart_began_once(logged: Logged) -> None:
    waits = ring_job("waits", ["10.0.1.2", "10.9.9.9"], lease_s=600)
    logged.send(RegisterJob(waits))
    logged.lose(Dpid(258))
    logged.run(1)
    began = [("alarm", "hosts_missing"), ("alarm", "switch_down")]
    assert sorted(logged.lines) == began
    times = [logged.since(kind) for kind in (AlarmKind.HOSTS_MISSING, AlarmKind.SWITCH_DOWN)]
    for _ in range(2):
        logged.now += 5
        logged.start(CONFIG, late=[Dpid(258)])
        logged.run(17, step=0.5)
        assert [logged.since(kind) for kind in (AlarmKind.HOSTS_MISSING, AlarmKind.SWITCH_DOWN)] == times
        assert sorted(logged.lines) == began
    logged.connect(Dpid(258))
    logged.run(60, step=0.5)
    assert [*sorted(logged.lines[:2]), *logged.lines[2:]] == [*began, ("alarm over", "switch_down")]
    logged.lose(Dpid(258))
    logged.run(1)
    assert logged.lines[-1] == ("alarm", "switch_down")
    assert logged.since(AlarmKind.SWITCH_DOWN) > logged.now - 2
    logged.run(2)
    logged.history = EventHistory()
    logged.start(CONFIG, late=logged.switches)
    found = [(event.what, event.details.get("subject")) for event in logged.history.after(0, 100)]
    assert found == [("alarm", "spine2")], "alarms of the first status have begun, and what was saved is no news"


def test_an_alarm_that_is_over_after_a_restart_ends_when_it_is_not_raised_again(logged: Logged) -> None:
    logged.send(ConnectionRefused("10.0.0.9:1", None, "silent"))
    logged.run(1)
    logged.start(CONFIG)
    logged.run(20, step=0.5)
    assert logged.lines == [("alarm", "connections_refused")]
    logged.run(60, step=0.5)
    assert logged.lines == [("alarm", "connections_refused"), ("alarm over", "connections_refused")]
    logged.start(CONFIG)
    logged.run(80, step=0.5)
    assert len(logged.lines) == 2


def test_an_alarm_that_waits_for_switches_that_come_one_by_one_goes_on(logged: Logged) -> None:
    logged.send(RegisterJob(ring_job("waits", ["10.0.1.2", "10.9.9.9"], lease_s=600)))
    logged.run(1)
    began, late = logged.since(AlarmKind.HOSTS_MISSING), list(logged.switches)
    logged.start(CONFIG, late=late)
    for dpid in late:
        logged.run(CONFIG.discovery.adoption_patience_s - 1, step=0.5)
        assert not logged.status.alarms.keys() & {(AlarmKind.HOSTS_MISSING, "waits")}
        logged.connect(dpid)
    logged.run(20, step=0.5)
    assert logged.since(AlarmKind.HOSTS_MISSING) == began
    assert logged.lines == [("alarm", "hosts_missing")]


def test_lines_of_another_version_about_alarms_are_left_out() -> None:
    history = EventHistory()
    history.add(EventKind.ALARM, "alarm", {"kind": "no_such_kind", "subject": "x"}, 1.0)
    history.add(EventKind.ALARM, "alarm", {}, 2.0)
    history.add(EventKind.ALARM, "alarm", {"kind": "foreign_rules", "subject": "leaf1"}, 3.0)
    assert not_over(history.after(0, 10)) == {(AlarmKind.FOREIGN_RULES, "leaf1"): 3.0}


def test_a_restart_loses_no_pins_of_a_job_and_hosts_found_together_are_one_line(logged: Logged) -> None:
    number = logged.history.last
    logged.start(CONFIG, late=logged.switches)
    for dpid in logged.switches:
        logged.run(0.1)
        logged.connect(dpid)
    logged.run(3)
    states = [e.details["state"] for e in logged.history.after(number, 1000) if e.kind is EventKind.JOB]
    assert states == ["pinned"]
    found = [e for e in logged.history.after(number, 1000) if e.what.endswith("found")]
    assert [(e.what, e.details["ip"]) for e in found] == [("host found", f"10.0.{n}.1") for n in range(1, 5)]
    for host in (2, 3):
        for leaf in range(1, 5):
            ip = f"10.0.{leaf}.{host}"
            logged.send(ArpSeen(logged.hosts[ip], "reply", ip, logged.mac(ip), "0.0.0.0"))
    logged.tell()
    last = logged.history.after(number, 1000)[-1]
    names = "10.0.1.2, 10.0.1.3, 10.0.2.2, 10.0.2.3"
    assert (last.what, last.details) == ("hosts found", {"count": "8", "names": names})


def test_lines_about_a_job_of_a_tenant_name_the_tenant(fabric: FakeFabric) -> None:
    before = fabric.status
    fabric.send(RegisterJob(ring_job("hers", ["10.0.1.2", "10.9.9.9"]), tenant="red"))
    fabric.run(1)
    waiting = fabric.status
    fabric.send(DeregisterJob(JobId("hers"), force=True))
    fabric.run(1)
    lines = [*details(before, waiting), *details(waiting, fabric.status)]
    of_tenant = [what for what, of_it in lines if of_it.get("tenant") == "red"]
    assert of_tenant == ["job registered", "alarm", "job ended", "alarm over"]


def test_circuits_and_jobs_that_get_them_or_wait_are_told() -> None:
    fabric = optical_fabric.started(5, 2)
    before = fabric.status
    fabric.register("one", [1, 2, 3, 4])
    assert {"circuits changed", "job wired"} <= {*told(before, wired := fabric.status)}
    fabric.register("two", [4, 5])
    assert ("job has no circuits", {"job": "two", "why": "waits for servers that other jobs use: one"}) in details(
        wired, fabric.status
    )
