"""Metrics of a status, and which connection the metrics server closes when it has its largest number of them."""

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from controller.config import Config
from controller.demand.job_demand import Difference, Finding
from controller.fabric.messages import DrainParts
from controller.fabric.parts import UNKNOWN_DPID, End, Part, PartKey, PartKind, host_key, switch_key
from controller.fabric.topology import Dpid, Fabric, PortNo, PortRef
from controller.observability.exposition import Exposition
from controller.observability.families import FAMILIES
from controller.observability.metrics import _Client, displaced
from controller.status import ExtensionStatus, LinkStatus, Status, StatusBoard, SwitchStatus
from controller.tables.flow_tables import Dropped
from controller.tables.rules import OtherTable, Table
from controller.tables.switch_sync import TableUse
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support import status_example as example
from tests.support.fake_fabric import FakeFabric
from tests.support.optical_fabric import OpticalFabric, with_job
from tests.support.scrape import Scrape, exposition


@pytest.fixture(scope="module")
def scrape() -> Scrape:
    return Scrape(exposition(example.status()))


def test_every_metric_has_a_sample_in_the_example(scrape: Scrape) -> None:
    parts = {"histogram": ("_bucket", "_count", "_sum")}
    assert scrape.names == {family.name + part for family in FAMILIES for part in parts.get(family.kind, ("",))}


@pytest.mark.parametrize("status", [example.status(), Status()], ids=["running", "just started"])
def test_promtool_finds_no_fault_with_names_units_and_help(status: Status) -> None:
    check = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition(status), capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_alarms_are_counted_by_kind_and_severity(scrape: Scrape) -> None:
    kinds = {labels["kind"]: labels["severity"] for labels in scrape.series("signalbox_alarms")}
    assert kinds.keys() == set(AlarmKind), "also those without an alarm"
    assert kinds["state_not_saved"] == "critical"
    assert kinds["foreign_rules"] == "warning"
    active = Counter(alarm.kind for alarm in example.status().alarms.values() if not alarm.silence)
    assert active
    assert scrape.value("signalbox_silenced_alarms", kind="foreign_rules", severity="warning") == 1
    for kind in AlarmKind:
        assert scrape.value("signalbox_alarms", kind=kind) == active[kind]


@pytest.mark.parametrize(("name", "labels", "value"), [
    ("drained", {"part": "spine2", "state": "safe"}, 1),
    ("job_efficiency_predicted_ratio", {"job_id": "llama"}, 0.8),
    ("job_efficiency_measured_ratio", {"job_id": "llama"}, 0.8),
    ("job_pinned_flows", {"job_id": "llama"}, 1),
    ("job_flows", {"job_id": "llama"}, 2),
    ("plan_slowdown", {}, 1.25),
    ("plan_bound", {}, 1.0),
    ("plan_gap_ratio", {}, 0.25),
    ("ecmp_slowdown_mean", {}, 2.1),
    ("plan_duration_seconds", {"stage": "solve"}, 0.2),
    ("plan_info", {"solver": "cp-sat", "certificate": "gap"}, 1),
    ("switch_counters_age_seconds", {"switch": "leaf1", "kind": "ports"}, 1.0),
    ("switch_counters_age_seconds", {"switch": "leaf2", "kind": "ports"}, 4.0),
    ("switch_counters_age_seconds", {"switch": "leaf2", "kind": "flows"}, 1.0),
    ("refused_connections_total", {"reason": "malformed"}, 3),
    ("refused_connections_total", {"reason": "duplicate_dpid"}, 0),
    ("punt_drops_total", {"switch": "leaf1", "port": "3"}, 77),
    ("jobs_ended_total", {"reason": "taken_over"}, 1),
    ("jobs_ended_total", {"reason": "lease_ran_out"}, 0),
    ("jobs", {"state": "pending"}, 1),
    ("jobs", {"state": "ecmp"}, 0),
    ("job_efficiency_predicted_ratio", {"job_id": "bert"}, 0),
    ("network_efficiency_ratio", {}, 0),
    ("jobs_unserved", {"reason": "hosts_missing"}, 1),
    ("jobs_unserved", {"reason": "no_path"}, 0),
    ("job_missing_hosts", {"job_id": "bert"}, 1),
    ("plan_seconds_count", {}, 2),
    ("plan_age_seconds", {}, 14.0),
    ("switch_up", {"switch": "spine2"}, 0),
    ("switch_up", {"switch": "spine1"}, 1),
])  # fmt: skip
def test_the_example_has_these_values(scrape: Scrape, name: str, labels: dict[str, str], value: float) -> None:
    assert scrape.value(f"signalbox_{name}", **labels) == pytest.approx(value)


@pytest.mark.parametrize("name", ["leaf1:2", "spine2"])
def test_every_link_of_a_drained_part_is_told_as_drained_whether_it_is_there_or_not(name: str) -> None:
    """Alerts join the series of drained parts with the series of parts that are up or down."""
    fabric = FakeFabric()
    fabric.start(Config())
    fabric.run(3)
    fabric.send(DrainParts((name,), at=1e9))
    before = Scrape(exposition(fabric.status, fabric.now)).series("signalbox_link_drained")
    assert len(before) == (2 if name == "leaf1:2" else 8)
    fabric.cut(Dpid(1), PortNo(2))
    fabric.run(3)
    scrape = Scrape(exposition(fabric.status, fabric.now))
    down = [labels for labels in scrape.series("signalbox_link_up") if not scrape.value("signalbox_link_up", **labels)]
    assert len(down) == 2
    drained = scrape.series("signalbox_link_drained")
    assert sorted(map(str, drained)) == sorted(map(str, before))
    assert all(labels in drained for labels in down)
    assert len(scrape.series("signalbox_switch_drained")) == (name == "spine2")


def test_links_are_named_like_the_fabric_names_them_and_measured_in_bytes(scrape: Scrape) -> None:
    uplink = {"link": "leaf1:2>spine1", "src": "leaf1", "dst": "spine1", "kind": "fabric"}
    assert scrape.value("signalbox_link_capacity_bytes_per_second", **uplink) == 625_000
    assert scrape.value("signalbox_link_bytes_total", **uplink) == 1_000_000
    assert scrape.value("signalbox_link_background_bytes_per_second", **uplink) == 100_000
    host_link = {"link": "10.0.1.1>leaf1:1", "src": "10.0.1.1", "dst": "leaf1", "kind": "edge"}
    assert scrape.value("signalbox_link_bytes_total", **host_link) == 2_000_000
    fabric = example.fabric()
    names = {series["link"] for series in scrape.series("signalbox_link_capacity_bytes_per_second")}
    of_hosts = {link for host in fabric.hosts.values() for link in (host.uplink, host.downlink)}
    assert names == {*map(fabric.link_name, {*fabric.links, *of_hosts})}


def test_a_wrong_announcement_has_its_factor_and_an_old_measurement_no_series() -> None:
    status = example.status()
    difference = Difference((Finding.OTHER_AMOUNTS,), factor=0.5)
    demands = {JobId("llama"): replace(example.demand(), difference=difference)}
    other = replace(status.jobs[JobId("llama")], planned=VirtualLinks())
    scrape = Scrape(exposition(replace(status, demands=demands, jobs={JobId("llama"): other})))
    assert scrape.value("signalbox_job_demand_factor", job_id="llama") == 0.5
    assert scrape.value("signalbox_job_demand_source", job_id="llama", source="measured") == 1
    assert not scrape.series("signalbox_job_efficiency_measured_ratio"), "its iterations were of other bytes"
    demands = {JobId("llama"): replace(example.demand(), difference=difference._replace(factor=None))}
    assert not Scrape(exposition(replace(status, demands=demands))).series("signalbox_job_demand_factor")


def test_the_slot_of_a_job_has_its_drift_waits_and_class(scrape: Scrape) -> None:
    names = ("slot_waits_seconds_total", "slot_drift_seconds", "slot_realignments_total", "job_class")
    assert [scrape.value(f"signalbox_{name}", job_id="llama") for name in names] == [1.5, 0.03, 3, 2]
    free = replace(example.timing(), drift_s=None)
    without = replace(example.status(), extension=ExtensionStatus(timings={JobId("llama"): free}))
    assert not Scrape(exposition(without)).series("signalbox_slot_drift_seconds")


def test_jobs_that_are_not_served_count_0_and_are_counted_by_why(scrape: Scrape) -> None:
    assert scrape.series("signalbox_job_flows_without_path") == [{"job_id": "bert"}]
    of_llama = {JobId("llama"): example.job("llama", pinned=True)}
    served = Scrape(exposition(replace(example.status(), jobs=of_llama)))
    assert served.value("signalbox_network_efficiency_ratio") == pytest.approx(0.8)


def test_an_unknown_value_has_no_series(scrape: Scrape) -> None:
    assert scrape.series("signalbox_job_slowdown") == [{"job_id": "llama"}]
    fresh = Scrape(exposition(Status()))
    assert not {name for name in fresh.names if name.startswith(("signalbox_plan_slowdown", "signalbox_counters_age"))}
    assert "signalbox_network_efficiency_ratio" not in fresh.names


def test_what_was_not_read_or_counted_yet_has_no_series() -> None:
    unread = replace(
        example.status(),
        switches={example.LEAF1: SwitchStatus(in_sync=False, rules=0, foreign_rules=0, is_read=False)},
        links={example.UP1: LinkStatus(5, None, None)},
    )
    scrape = Scrape(exposition(unread))
    assert scrape.value("signalbox_switch_in_sync", switch="leaf1") == 0
    assert not scrape.series("signalbox_switch_rules")
    assert not scrape.series("signalbox_switch_foreign_rules")
    assert [series["link"] for series in scrape.series("signalbox_link_bytes_total")] == ["leaf1:2>spine1"]
    assert not scrape.series("signalbox_link_background_bytes_per_second")


def test_of_tables_only_what_switches_say_has_series() -> None:
    flows = TableUse(Table.CONTROL, 7, None), TableUse(Table.PINNED, 190, 200), TableUse(Table.DEFAULT, None, 50)
    tables = *flows, TableUse(OtherTable.METERS, 4, 64)
    switches = {example.LEAF1: SwitchStatus(True, 7, 0, tables=tables), example.LEAF2: SwitchStatus(True, 7, 0)}
    scrape = Scrape(exposition(replace(example.status(), switches=switches)))
    entries = scrape.series("signalbox_switch_table_entries")
    assert entries == [{"switch": "leaf1", "table": table} for table in ("0", "1", "meters")]
    assert scrape.value("signalbox_switch_table_entries", switch="leaf1", table="1") == 190
    assert scrape.value("signalbox_switch_table_max_entries", switch="leaf1", table="1") == 200
    assert [series["table"] for series in scrape.series("signalbox_switch_table_max_entries")] == ["1", "2", "meters"]


def test_every_job_state_and_mode_has_a_series_also_when_empty(scrape: Scrape) -> None:
    states = {series["state"] for series in scrape.series("signalbox_jobs")}
    assert states == {"pending", "ecmp", "partly_pinned", "pinned"}
    found = {s.value: scrape.value("signalbox_mode", mode=s) for s in Mode}
    assert found == {"ecmp": 0, "planned": 1, "shadow": 0}


def test_counter_age_grows_with_the_clock_between_polls(scrape: Scrape) -> None:
    assert scrape.value("signalbox_counters_age_seconds") == 4.0
    assert Scrape(exposition(example.status(), now=130.0)).value("signalbox_counters_age_seconds") == 30.0


def test_histograms_have_the_counts_up_to_each_bound_and_are_there_from_the_start(scrape: Scrape) -> None:
    of_call = {"method": "RegisterJob", "code": "OK"}
    bounds = {"0.001": 0, "0.005": 1, "10.0": 2, "+Inf": 3}
    assert {le: scrape.value("signalbox_rpc_seconds_bucket", le=le, **of_call) for le in bounds} == bounds
    assert scrape.value("signalbox_rpc_seconds_count", **of_call) == 3
    assert scrape.value("signalbox_rpc_seconds_sum", **of_call) == pytest.approx(30.204)
    assert Scrape(exposition(Status())).value("signalbox_repair_seconds_bucket", le="+Inf") == 0


def test_what_is_not_carried_is_counted_by_kind_from_the_first_reading_on(scrape: Scrape) -> None:
    counted = {kind: scrape.value("signalbox_dropped_packets_total", switch="leaf1", kind=kind) for kind in Dropped}
    assert counted == {kind: {"ipv6": 12, "dhcp": 3}.get(kind, 0) for kind in Dropped}
    assert len(scrape.series("signalbox_dropped_packets_total")) == len(Dropped), "of no other switch"


def test_series_end_with_the_job_switch_or_link() -> None:
    board = StatusBoard()
    shown = Exposition(board)
    board.publish(example.status())
    assert "leaf1:2>spine1" in shown.text()
    gone = replace(example.status(), jobs={}, links={}, switches={}, fabric=Fabric(), down_parts={})
    board.publish(gone)
    scrape = Scrape(shown.text())
    assert not [each for each in scrape.samples if each.labels.keys() & {"job_id", "switch", "link"}]
    fabric = example.fabric()
    without = replace(fabric, links={k: v for k, v in fabric.links.items() if k != example.UP1})
    scrape = Scrape(exposition(replace(example.status(), fabric=without)))
    assert [series["link"] for series in scrape.series("signalbox_link_bytes_total")] == ["10.0.1.1>leaf1:1"]


def test_what_is_down_keeps_a_series_with_0(scrape: Scrape) -> None:
    found = {labels["switch"] for labels in scrape.series("signalbox_switch_up")}
    assert found == {"leaf1", "leaf2", "spine1", "spine2"}
    there = {"link": "leaf1:2>spine1", "src": "leaf1", "dst": "spine1", "kind": "fabric"}
    assert scrape.value("signalbox_link_up", **there) == 1
    for link, src, dst in (("leaf1:3>spine2", "leaf1", "spine2"), ("spine2:1>leaf1", "spine2", "leaf1")):
        assert scrape.value("signalbox_link_up", link=link, src=src, dst=dst, kind="fabric") == 0
    assert len(scrape.series("signalbox_link_up")) == 6
    series = scrape.series("signalbox_host_up")
    hosts = {labels["host"]: scrape.value("signalbox_host_up", **labels) for labels in series}
    assert hosts == {"10.0.1.1": 1, "10.0.1.3": 0}, "only those that are named and were seen"
    assert {labels["switch"] for labels in series} == {"leaf1"}


def test_a_declared_cable_that_was_never_seen_has_one_series() -> None:
    nowhere = PortRef(UNKNOWN_DPID, PortNo(0))
    part = Part(PartKey(PartKind.LINK, "declared a>b (cable 2)"), (End(nowhere, "a"), End(nowhere, "b")), 1e9)
    scrape = Scrape(exposition(replace(example.status(), down_parts={part.key: part})))
    assert scrape.value("signalbox_link_up", link="a>b (cable 2)", src="a", dst="b", kind="fabric") == 0


def test_switches_of_one_name_have_series_each_whether_they_are_there_or_not() -> None:
    """Bridges on many machines have the same name."""
    fabric = example.fabric(second_leaf_name="leaf1")
    lost = [Part(switch_key(Dpid(n)), (End(PortRef(Dpid(n), PortNo(0)), "spine1"),), 1e9) for n in (7, 8)]
    host = Part(host_key("10.0.2.1"), (End(PortRef(Dpid(2), PortNo(1)), "leaf1"),), 1e9)
    status = replace(example.status(fabric), named_hosts={host.key: True})
    scrape = Scrape(exposition(replace(status, down_parts={part.key: part for part in (*lost, host)})))
    assert scrape.value("signalbox_host_up", host="10.0.2.1", switch="leaf1(0x2)") == 0, "as signalbox_switch_up has it"
    switches = scrape.series("signalbox_switch_up")
    up = {labels["switch"]: scrape.value("signalbox_switch_up", **labels) for labels in switches}
    assert up == {"leaf1(0x1)": 1, "leaf1(0x2)": 1, "spine1": 1, "spine1(0x7)": 0, "spine1(0x8)": 0}
    assert scrape.value("signalbox_switch_in_sync", switch="leaf1(0x2)") == 0
    assert scrape.value("signalbox_link_bytes_total", link="leaf1(0x1):2>spine1") == 1_000_000


def test_a_name_with_quotes_and_newlines_cannot_break_the_format() -> None:
    fabric = example.fabric(second_leaf_name='a"b\\c\nd')
    scrape = Scrape(exposition(example.status(fabric)))
    assert scrape.value("signalbox_switch_in_sync", switch='a"b\\c\nd') == 0


def test_a_circuit_has_one_series_which_ends_with_it() -> None:
    fabric = with_job(6, 2)
    fabric.wirings_wait = True
    found = Scrape(exposition(fabric.status))
    links = {labels["link"] for labels in found.series("signalbox_link_up")}
    assert {name.partition(">")[0] for name in links} == {f"server{n}:{port}" for n in range(1, 7) for port in (2, 3)}
    fabric.set_carrier(2, 3, up=False)
    fabric.run(3)
    left = Scrape(exposition(fabric.status))
    gone = links - {labels["link"] for labels in left.series("signalbox_link_up")}
    assert len(gone) == 2
    assert any(name.startswith("server2:3>") for name in gone)
    assert any(name.endswith(":3>server2") for name in gone)
    assert left.value("signalbox_circuits") == 10


def test_an_optical_switch_is_up_or_down_like_any_other() -> None:
    fabric = OpticalFabric(2, 2)
    fabric.switches[Dpid(0x102)].name = "server1"
    fabric.start()
    fabric.run(3)
    fabric.lose(Dpid(0x102))
    found = Scrape(exposition(fabric.status))
    up = {each["switch"]: found.value("signalbox_switch_up", **each) for each in found.series("signalbox_switch_up")}
    assert up == {"server1": 1, "server2": 1, "optical1": 1, "server1(0x102)": 0}


class Clients:
    """Connections of clients by address, in the order in which they began.

    A name in capitals stands for a client that has sent a request."""

    def __init__(self, sockets: ExitStack) -> None:
        self._sockets = sockets
        self._made = 0

    def __call__(self, *names: str) -> list[_Client]:
        return [self.one(name) for name in names]

    def one(self, name: str) -> _Client:
        self._made += 1
        sock = self._sockets.enter_context(socket.socket())
        return _Client(sock, (name.lower(), 1), float(self._made), has_requested=name.isupper())


@pytest.fixture
def clients() -> Iterator[Clients]:
    with ExitStack() as sockets:
        yield Clients(sockets)


@pytest.mark.parametrize(("places", "newcomer", "goes"), [
    ("AAAA", "b", 0), ("AAAa", "b", 3), ("BAAA", "b", 1), ("BBAA", "b", None), ("BbAA", "b", 1), ("ABCD", "e", None),
    ("abcd", "e", 0), ("abcd", "d", 3), ("bAAA", "a", None), ("baAA", "a", 1),
])  # fmt: skip
def test_a_newcomer_takes_a_place_of_who_has_most(
    clients: Clients, places: str, newcomer: str, goes: int | None
) -> None:
    held = clients(*places)
    assert displaced(held, clients.one(newcomer)) is (None if goes is None else held[goes])
