"""Ownership of real switches: changed by hand, or full."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from tests.support.job_specs import job_spec, sends
from tests.support.lab.counters import ofctl
from tests.support.lab.fabric import LEASE_S, Fabric, pinned, ring
from tests.support.lab.pings import address, assert_pings
from tests.support.lab.waits import wait_for

LEAVES, SPINES, HOSTS = 2, 2, 3
LINKS = 2 * LEAVES * SPINES
AUDIT_S = 1.0
Rules = dict[str, tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Run 2 leaves x 2 spines x 3 hosts, with all hosts known, and no job."""
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    folder = tmp_path_factory.mktemp("ownership")
    settings = {"openflow": {"audit_interval_s": AUDIT_S}}
    with running_fabric(size, folder, settings=settings) as (lab, controller, client):
        for number in range(1, HOSTS + 1):
            assert_pings(lab, f"h1_{number}", f"h2_{number}")
        wait_for(lambda: len(client.get_fabric().hosts) == LEAVES * HOSTS, "all hosts")
        yield lab, controller, client


def all_hosts(lab: Lab, job_id: str) -> JobSpec:
    """Return an all-to-all over every host: 18 virtual links between the leaves."""
    return job_spec(job_id, [host.ip for host in lab.hosts], sends("all_to_all", 10**6), lease_s=LEASE_S)


def pair(lab: Lab, job_id: str, number: int) -> JobSpec:
    return ring(lab, job_id, [f"h1_{number}", f"h2_{number}"])


def rules(lab: Lab) -> Rules:
    """Return the flows and groups of every switch, without counters."""
    return {
        switch.name: (
            sorted(ofctl(lab, switch.name, "dump-flows", "--no-stats").splitlines()),
            sorted(ofctl(lab, switch.name, "dump-groups").splitlines()[1:]),
        )
        for switch in lab.switches
    }


def all_pinned(client: Client) -> bool:
    return settled(client, LINKS) and pinned(client, "all") == 2 * HOSTS**2


def alarms(client: Client) -> str:
    return "\n".join(alarm.text for alarm in client.get_status().alarms)


def all_in_sync(client: Client) -> Callable[[], bool]:
    return lambda: settled(client, LINKS)


def roles(target: str) -> set[str]:
    """Return the controller's roles at its switches, which Open vSwitch updates every few seconds."""
    rows = run("ovs-vsctl", "--columns=role", "--bare", "find", "controller", f'target="{target}"')
    return set(rows.split())


@contextmanager
def registered(client: Client, spec: JobSpec) -> Iterator[None]:
    client.register_job(spec)
    try:
        yield
    finally:
        client.deregister_job(spec.job_id)


def test_what_somebody_changes_by_hand_is_put_right_and_what_is_theirs_stays(fabric: Fabric) -> None:
    lab, _, client = fabric
    with registered(client, all_hosts(lab, "all")):
        wait_for(lambda: pinned(client, "all") == 2 * HOSTS**2, "all pins")
        wait_for(all_in_sync(client), "quiet")
        before = rules(lab)
        groups = [line.split(",")[0].strip() for line in before["leaf1"][1]]
        theirs = "table=2,cookie=0x77,priority=7,ip,nw_dst=192.0.2.7,actions=group:99"
        ofctl(lab, "leaf1", "add-group", "group_id=99,type=select,bucket=output:1")
        ofctl(lab, "leaf1", "add-flow", theirs)
        ours = "cookie=0x5b17020000000000"
        ofctl(lab, "leaf1", "del-flows", f"table=1,ip,nw_src={address(lab, 'h1_1')}")
        ofctl(lab, "leaf1", "mod-flows", f"table=1,ip,nw_src={address(lab, 'h1_2')},actions=drop")
        ofctl(lab, "leaf1", "add-flow", f"table=2,{ours},priority=9,ip,nw_dst={address(lab, 'h2_1')},actions=drop")
        ofctl(lab, "spine1", "del-groups", "")
        ofctl(lab, "leaf2", "del-groups", groups[0] if "group_id" in groups[0] else "")
        wait_for(lambda: "foreign rules" in alarms(client), "their rules raise an alarm", 8 * AUDIT_S)

        def healed() -> bool:
            now = rules(lab)
            now["leaf1"] = (
                [line for line in now["leaf1"][0] if "cookie=0x77" not in line],
                [line for line in now["leaf1"][1] if "group_id=99," not in line],
            )
            return now == before

        wait_for(healed, "every rule as it was", 8 * AUDIT_S, 0.2)
        assert "cookie=0x77" in ofctl(lab, "leaf1", "dump-flows")
        assert "group_id=99," in ofctl(lab, "leaf1", "dump-groups")
        assert_pings(lab, "h1_1", "h2_2")
        ofctl(lab, "leaf1", "del-groups", "group_id=99")
        wait_for(lambda: "foreign rule" not in alarms(client), "the foreign rules are gone", 8 * AUDIT_S)


def test_an_entry_of_somebody_else_where_a_pin_should_be_is_not_overwritten(fabric: Fabric) -> None:
    lab, _, client = fabric
    a, b = address(lab, "h1_1"), address(lab, "h2_1")
    theirs = f"table=1,priority=100,ip,nw_src={a},nw_dst={b}"
    ofctl(lab, "leaf1", "add-flow", f"{theirs},cookie=0x77,actions=goto_table:2")
    wait_for(lambda: "foreign rules" in alarms(client), "it raises an alarm", 8 * AUDIT_S)
    with registered(client, pair(lab, "pair", 1)):
        wait_for(lambda: "a foreign rule with the same match or id exists" in alarms(client), "the pin is refused")
        wait_for(lambda: pinned(client, "pair") == 1, "the other direction is pinned")
        assert "cookie=0x77" in ofctl(lab, "leaf1", "dump-flows")
        ofctl(lab, "leaf1", "del-flows", "--strict", theirs)
        wait_for(lambda: pinned(client, "pair") == 2, "the pin, when they are gone", 10 * AUDIT_S)


def test_a_full_table_costs_pins_and_no_packet_until_there_is_room(fabric: Fabric) -> None:
    lab, _, client = fabric
    leaf = lab.bridge("leaf1")
    with registered(client, pair(lab, "second", 2)):
        with registered(client, pair(lab, "first", 1)):
            wait_for(lambda: pinned(client, "first") == pinned(client, "second") == 2, "two jobs")
            wait_for(all_in_sync(client), "quiet")
            used = len(ofctl(lab, "leaf1", "dump-flows", "--no-stats", "table=1").splitlines())
            full = ("--id=@t", "create", "Flow_Table", f"flow_limit={used}", "overflow_policy=refuse")
            run("ovs-vsctl", "--", *full, "--", "set", "bridge", leaf, "flow_tables:1=@t")
            client.register_job(pair(lab, "third", 3))
            wait_for(lambda: "OFPFMFC_TABLE_FULL" in alarms(client), "the alarm about the full table")
            assert f"table 1 of {leaf} is full" in alarms(client)
            assert pinned(client, "third") < 2
            assert pinned(client, "first") == pinned(client, "second") == 2
            assert_pings(lab, "h1_3", "h2_3")
        wait_for(lambda: pinned(client, "third") == 2, "room for the third, when the first has gone")
        wait_for(lambda: "OFPFMFC" not in alarms(client), "the alarm is over")
        client.register_job(pair(lab, "first", 1))
        wait_for(lambda: "OFPFMFC_TABLE_FULL" in alarms(client), "full again")
        run("ovs-vsctl", "clear", "bridge", leaf, "flow_tables")
        wait_for(lambda: pinned(client, "first") == 2, "tried again without a deletion")
        client.deregister_job("third")
        client.deregister_job("first")


def test_a_table_with_little_room_is_named_before_it_is_full(fabric: Fabric) -> None:
    lab, _, client = fabric
    leaf = lab.bridge("leaf1")
    with registered(client, all_hosts(lab, "all")):
        wait_for(lambda: all_pinned(client), "all pins")
        used = len(ofctl(lab, "leaf1", "dump-flows", "--no-stats", "table=1").splitlines())
        limit = int(used / 0.9)
        assert used < limit
        nearly = ("--id=@t", "create", "Flow_Table", f"flow_limit={limit}", "overflow_policy=refuse")
        run("ovs-vsctl", "--", *nearly, "--", "set", "bridge", leaf, "flow_tables:1=@t")
        run("ovs-appctl", "bridge/reconnect", leaf)  # limits are read at once then, otherwise once a minute
        named = f"table 1 of {leaf} is nearly full: {used} of {limit} entries"
        wait_for(lambda: named in alarms(client), "the limit is read", 70)
        run("ovs-vsctl", "clear", "bridge", leaf, "flow_tables")
        run("ovs-appctl", "bridge/reconnect", leaf)
        wait_for(lambda: f"table 1 of {leaf}" not in alarms(client), "it has room")
        wait_for(lambda: all_pinned(client), "the pins again")
