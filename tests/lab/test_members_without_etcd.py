"""Cables are cut while etcd is away: with a leader whose links to other members stay, and without any leader."""

import re
from functools import partial

import pytest

from controller.fabric.topology import Dpid
from controller.tables.rules import ecmp_group_id
from mininet_topos.lab.running_fabric import settled
from signalbox.client import Client
from signalbox.errors import Unavailable
from signalbox.mapping import seconds
from tests.lab.test_members import LEASE_S, LEAVES, SPINES, Pair, pair
from tests.support.lab.fabric import pinned, ring, routes
from tests.support.lab.pings import assert_pings

__all__ = ("pair",)

LEAF_NAMES = [f"leaf{number}" for number in range(1, LEAVES + 1)]
SPINE_NAMES = [f"spine{number}" for number in range(1, SPINES + 1)]
LINKS = 2 * LEAVES * SPINES


def changes_are_refused(client: Client) -> bool:
    return any("cannot be saved" in alarm.text for alarm in client.get_status().alarms)


def all_groups(pair: Pair) -> dict[str, list[str]]:
    return {name: pair.groups(name) for name in (*LEAF_NAMES, *SPINE_NAMES)}


def assert_ring_arrives(pair: Pair, *sources: str) -> None:
    for source in sources:
        number = int(source.removeprefix("leaf"))
        assert_pings(pair.lab, f"h{number}_1", f"h{number % LEAVES + 1}_1", count=2)


def wait_as_before(pair: Pair, groups: dict[str, list[str]]) -> None:
    """Wait until jobs, masters and ``groups`` are as before the failure, and assert that the job is kept."""
    pair.wait(lambda: not changes_are_refused(pair.client), "the end of the alarm")
    pair.wait_pinned()
    pair.wait(pair.is_divided, "masters as assigned")
    pair.wait(lambda: all_groups(pair) == groups, "the groups from before")
    assert [job.spec.job_id for job in pair.client.list_jobs()] == ["ring"]
    assert routes(pair.client, "ring")
    assert_ring_arrives(pair, *LEAF_NAMES)


def test_a_cable_between_switches_of_two_members_is_repaired_without_etcd(pair: Pair) -> None:
    lab, client = pair.lab, pair.client
    held, groups, before = pair.masters(), all_groups(pair), client.get_status()
    leaf, spine = next((a, b) for a in LEAF_NAMES for b in SPINE_NAMES if held[a] != held[b])
    pair.etcd.kill()
    pair.wait(partial(changes_are_refused, client), "an alarm")
    with pytest.raises(Unavailable, match="cannot be saved"):
        client.register_job(ring(lab, "other", ["h1_1", "h3_1"]))
    lab.cut(leaf, spine)
    pair.wait(lambda: settled(client, LINKS - 2), "the loss of the cable")
    pair.wait(lambda: client.get_status().pins == before.pins, "pins over other cables")
    assert_ring_arrives(pair, *LEAF_NAMES)
    lab.plug(leaf, spine)
    pair.wait_settled()
    now = client.get_status()
    assert (now.pins, now.moved_flows_total) == (before.pins, before.moved_flows_total), "nothing is planned anew"
    assert pair.masters() == pair.holders() == held
    assert all(seconds(one.last_seen_age) > LEASE_S for one in client.list_members())
    pair.etcd.start()
    wait_as_before(pair, groups)
    assert pair.masters() == held


def test_leaves_avoid_a_spine_without_the_cable_although_nobody_leads(pair: Pair) -> None:
    """The leader is dead, and its switches have no master. The other member finds the useless next hops by itself."""
    lab = pair.lab
    held, groups = pair.masters(), all_groups(pair)
    own = [name for name in LEAF_NAMES if held[name] == "two"]
    leaf, spine = LEAF_NAMES[0], SPINE_NAMES[0]
    dpid = next(switch.dpid for switch in lab.switches if switch.name == leaf)
    others = [name for name in own if name != leaf]
    assert others
    ports = {cable.a: cable.a_port for cable in lab.links if cable.b == spine}

    def uses(name: str) -> bool:
        """Return whether a leaf sends packets to ``leaf`` over the spine."""
        (group,) = (line for line in pair.groups(name) if f"group_id={ecmp_group_id(Dpid(dpid))}," in line)
        return bool(re.search(rf"watch_port:{ports[name]}\b", group))

    pair.etcd.kill()
    pair.one.kill()
    for _ in range(2):
        assert all(map(uses, others))
        lab.cut(leaf, spine)
        pair.wait(lambda: not any(map(uses, others)), "other next hops")
        assert_ring_arrives(pair, *others)
        lab.plug(leaf, spine)
        pair.wait(lambda: all_groups(pair) == groups, "the groups from before")
    lab.cut(leaf, spine)
    pair.wait(lambda: not any(map(uses, others)), "other next hops")
    pair.etcd.start()
    pair.one.start("--standby")
    with Client(pair.two.address) as client:
        pair.client = client
        pair.wait(lambda: client.get_status().links == LINKS - 2, "the links that are left")
        pair.wait(lambda: pinned(client, "ring") == LEAVES, "pins over other cables")
        assert not any(map(uses, others))
        assert_ring_arrives(pair, *LEAF_NAMES)
        lab.plug(leaf, spine)
        wait_as_before(pair, groups)
