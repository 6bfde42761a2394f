"""The rules of all switches together, and the first answer to lost links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.messages import ArpSeen, PortChanged
from controller.fabric.topology import CandidatePaths, Dpid, Fabric, LinkId, PortNo, PortRef
from controller.fabric.topology_state import hosts_by_leaf
from controller.planning.messages import SolvePlan
from controller.planning.problem import FlowId
from controller.tables.flow_tables import Gateway, Pin, pin_key
from controller.tables.messages import InstallStage
from controller.tables.pins import PinSet
from controller.tables.pipeline import KeepUnknown, Pipeline, PipelineSettings, narrowed
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    Prefix,
    RuleSet,
    Table,
    ToGroup,
    ecmp_group_id,
)
from offline.scenarios.fabrics import fabric_of, fat_tree, leaf_spine, without
from offline.scenarios.topologies import OFFLINE, direct_connect
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, started

SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)
FABRIC = leaf_spine(3, 2, 2, 1e9, 1e9)
LEAF, FAR_LEAF = Dpid(1), Dpid(2)
FLOW, OTHER_FLOW = FlowId("10.0.0.1", "10.0.1.1"), FlowId("10.0.0.2", "10.0.1.2")
OWNER = 7


OVER_FIRST, OVER_SECOND = CandidatePaths(FABRIC, 64).between(LEAF, FAR_LEAF)
"""Paths from the first leaf to the second over the first leaf's uplinks 1 and 2."""


def desired(fabric: Fabric, *pins: Pin) -> dict[Dpid, RuleSet]:
    return dict(Pipeline(SETTINGS).desired(fabric, pins, {}))


def path_group(rules: RuleSet, flow: FlowId) -> GroupRule:
    (action,) = rules.flows[pin_key(flow)].actions
    assert isinstance(action, ToGroup)
    return rules.groups[action.group_id]


def test_a_path_group_has_the_planned_next_hop_only_while_it_leads_to_the_destination() -> None:
    pin = Pin(FLOW, OWNER, OVER_SECOND)
    planned, fallback = path_group(desired(FABRIC, pin)[LEAF], FLOW).buckets
    assert planned == Bucket(Output(PortNo(2)), watch_port=PortNo(2))
    assert path_group(desired(without(FABRIC, OVER_SECOND[1:]), pin)[LEAF], FLOW).buckets == (fallback,)


def test_a_flow_to_a_leaf_that_is_out_of_reach_is_still_counted() -> None:
    cut = [link.id for link in FABRIC.links.values() if FAR_LEAF in (link.src.dpid, link.dst.dpid)]
    rule = desired(without(FABRIC, cut), Pin(FLOW, OWNER, OVER_FIRST))[LEAF].flows[pin_key(FLOW)]
    assert (rule.actions, rule.goto) == ((), Table.DEFAULT)


def test_a_pin_whose_group_id_is_taken_by_another_group_counts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.tables.pipeline.path_group_id", lambda _leaf, _port: 99)
    pins = Pin(FLOW, OWNER, OVER_FIRST), Pin(OTHER_FLOW, OWNER, OVER_SECOND)
    for of_owners in ({"": pins}, {"one": pins[:1], "other": pins[1:]}):
        rules = Pipeline(SETTINGS).desired(FABRIC, PinSet(of_owners), {})[LEAF]
        assert path_group(rules, FLOW).buckets[0].watch_port == 1
        assert rules.flows[pin_key(OTHER_FLOW)].goto == Table.DEFAULT


@pytest.mark.parametrize("ip", [FLOW.src_ip, FLOW.dst_ip])
def test_rules_of_a_pin_follow_the_one_of_its_hosts_that_moves_alone(ip: str) -> None:
    at_third = replace(FABRIC.hosts[ip], at=PortRef(Dpid(3), PortNo(9)))
    moved = replace(FABRIC, hosts={**FABRIC.hosts, ip: at_third})
    whole, pin = Pipeline(SETTINGS), Pin(FLOW, OWNER, OVER_FIRST)
    before = whole.desired(FABRIC, [pin], {})
    after = whole.desired(moved, [pin], {})
    assert after == desired(moved, pin)
    assert after[LEAF] != before[LEAF]


WHOLE = [
    FABRIC,
    leaf_spine(2, 1, 2, 1e9, 1e9, cables=2),
    fabric_of(direct_connect(((1, 2, 3, 0), (3, 0, 1, 2)), 1e9, OFFLINE)),
]


def exact(rules: Mapping[Dpid, RuleSet]) -> object:
    """Return the rules with their distances, which order the stages and which comparisons ignore."""
    groups = {dpid: {key: group.distance for key, group in of.groups.items()} for dpid, of in rules.items()}
    return dict(rules), groups, {d: {key: rule.distance for key, rule in of.flows.items()} for d, of in rules.items()}


@given(st.data())
@settings(max_examples=80)
def test_rules_follow_links_ports_and_pins_as_if_they_were_derived_anew(data: st.DataObject) -> None:
    fabric = data.draw(st.sampled_from(WHOLE))
    paths, ips, kept = CandidatePaths(fabric, 4), sorted(fabric.hosts), Pipeline(SETTINGS)
    pins: dict[str, tuple[Pin, ...]] = {}
    for _ in range(data.draw(st.integers(2, 5))):
        shown = without(fabric, data.draw(st.sets(st.sampled_from(sorted(fabric.links)), max_size=4)))
        dpid = data.draw(st.sampled_from(sorted(fabric.switches)))
        fewer = dict(list(fabric.switches[dpid].ports.items())[data.draw(st.integers(0, 1)) :])
        shown = replace(shown, switches={**shown.switches, dpid: replace(fabric.switches[dpid], ports=fewer)})
        for owner, name in enumerate("ab" if data.draw(st.booleans()) else ""):
            src, dst = (fabric.hosts[ip] for ip in (ips[owner], ips[-1 - owner]))
            path = data.draw(st.sampled_from(paths.between(src.at.dpid, dst.at.dpid)))
            pins = {**pins, name: (Pin(FlowId(src.ip, dst.ip), owner, path),)}
        found, anew = (one.desired(shown, PinSet(pins), {}) for one in (kept, Pipeline(SETTINGS)))
        assert exact(found) == exact(anew)


def test_a_path_group_follows_a_circuit_that_leads_elsewhere_although_its_pin_is_the_one_before() -> None:
    """Pins are updated in turns, so the circuit of an old pin may already lead to another server.

    A second circuit continues from that server, and its rules have to be installed before the pin."""
    direct, around = (fabric_of(direct_connect((peers,), 1e9, OFFLINE)) for peers in ((2, 0, 1), (1, 2, 0)))
    first, *_, last = direct.hosts
    at = direct.hosts[first].at.dpid
    pin = Pin(FlowId(first, last), OWNER, (next(link for link in direct.links if link.dpid == at),))
    pipeline = Pipeline(SETTINGS)
    assert path_group(pipeline.desired(direct, (pin,), {})[at], pin.flow).distance == 1
    assert path_group(pipeline.desired(around, (pin,), {})[at], pin.flow).distance == 2


# ---- unknown hosts


INSTALLED = desired(FABRIC, Pin(FLOW, OWNER, OVER_FIRST))


def fabric_without(*ips: str) -> Fabric:
    return replace(FABRIC, hosts={ip: host for ip, host in FABRIC.hosts.items() if ip not in ips})


def test_rules_to_unknown_hosts_stay_with_the_groups_that_they_use() -> None:
    fabric = fabric_without("10.0.1.1", "10.0.1.2")
    wanted, keep = desired(fabric), KeepUnknown()
    kept = keep(fabric.hosts, wanted, INSTALLED)
    assert kept[LEAF].flows.keys() >= INSTALLED[LEAF].flows.keys() - wanted[LEAF].flows.keys()
    assert kept[LEAF].groups == INSTALLED[LEAF].groups, "the path group, and the ECMP group in it"
    assert keep(fabric.hosts, wanted, wanted)[LEAF] == wanted[LEAF], "they are not installed any more"
    assert keep(fabric.hosts, wanted, INSTALLED) == kept, "and again"
    assert keep(FABRIC.hosts, wanted, INSTALLED)[LEAF] == wanted[LEAF], "all hosts are known: nothing is kept"
    assert LEAF not in keep(fabric.hosts, {FAR_LEAF: wanted[FAR_LEAF]}, INSTALLED), "the switch is gone"
    assert keep(fabric.hosts, wanted, {}) == wanted, "it returns without rules"
    assert keep(fabric.hosts, wanted, INSTALLED) == kept


def test_the_rules_of_a_switch_that_is_gone_are_derived_anew_when_it_returns() -> None:
    pipeline = Pipeline(SETTINGS)
    before = pipeline.desired(FABRIC, (), {})
    alone = replace(FABRIC, switches={LEAF: FABRIC.switches[LEAF]}, links={}, hosts={})
    assert pipeline.desired(alone, (), {}).keys() == pipeline._rules.keys() == {LEAF}
    assert pipeline.desired(FABRIC, (), {}) == before


def test_a_pin_to_an_unknown_host_keeps_the_group_behind_its_own() -> None:
    """No other rule of the switch uses the group behind the pin's own group."""
    installed = INSTALLED[LEAF]
    pin = installed.flows[pin_key(FLOW)]
    fabric = fabric_without("10.0.1.1", "10.0.1.2")
    kept = KeepUnknown()(fabric.hosts, {LEAF: RuleSet()}, {LEAF: replace(installed, flows={pin.key: pin})})[LEAF]
    assert kept.flows == {pin.key: pin}
    assert kept.groups == {
        n: installed.groups[n] for n in (path_group(installed, FLOW).group_id, ecmp_group_id(FAR_LEAF))
    }


def test_pins_from_an_unknown_host_and_its_arp_stay_too() -> None:
    fabric = fabric_without(FLOW.src_ip, OTHER_FLOW.src_ip)
    kept = KeepUnknown()(fabric.hosts, desired(fabric), INSTALLED)
    assert pin_key(FLOW) in kept[LEAF].flows
    assert {key for key in INSTALLED[FAR_LEAF].flows if key.match.arp_tpa} <= kept[FAR_LEAF].flows.keys()


def test_a_rule_to_an_unknown_host_stays_although_its_group_is_not_there() -> None:
    """The previous process was killed between two commands, so the switch has the rule but not its group."""
    fabric = fabric_without(FLOW.dst_ip)
    kept = KeepUnknown()(fabric.hosts, {LEAF: RuleSet()}, {LEAF: replace(INSTALLED[LEAF], groups={})})[LEAF]
    assert pin_key(FLOW) in kept.flows
    assert kept.groups == {}


def test_rules_to_an_unknown_gateway_stay_until_it_is_known() -> None:
    gateway = Gateway(FLOW.dst_ip, "02:00:00:00:00:99")
    onward = FlowRule(FlowKey(Table.DEFAULT, 140, Match(eth_dst=gateway.mac)), 0, (Output(PortNo(1)),))
    keep, installed = KeepUnknown([gateway]), {LEAF: RuleSet.of([onward])}
    assert keep(fabric_without(gateway.ip).hosts, {LEAF: RuleSet()}, installed)[LEAF].flows == {onward.key: onward}
    assert keep(FABRIC.hosts, {LEAF: RuleSet()}, installed)[LEAF].flows == {}


def test_group_ids_are_below_those_that_openflow_reserves() -> None:
    """Section 7.3.4.1 of OpenFlow 1.3.5 defines OFPG_MAX, the largest group id."""
    ids = [ecmp_group_id(Dpid(leaf)) for leaf in range(1, 200)]
    assert max(ids) < 1 << 31 <= 0xFFFFFF00


# ---- prefixes


def claim(fabric: FakeFabric, ip: str, at: PortRef) -> None:
    fabric.hosts[ip] = at
    fabric.send(ArpSeen(at, "request", ip, fabric.mac(ip), "10.0.3.1"))


def changes_of_prefix(fabric: FakeFabric) -> int:
    prefix = Prefix("10.0.1.0", 24)
    return sum(isinstance(mod.rule, FlowRule) and prefix in mod.rule.key.match for mod in fabric.mods)


def test_a_prefix_stays_at_its_leaf_however_many_of_its_addresses_are_claimed_elsewhere() -> None:
    fabric = started(FakeFabric())
    for host in (1, 2, 3):
        claim(fabric, f"10.0.1.{host}", fabric.hosts[f"10.0.1.{host}"])
    fabric.run(1)
    fabric.forget_mods()
    for number in range(200, 204):
        claim(fabric, f"10.0.1.{number}", PortRef(Dpid(2), PortNo(7)))
    fabric.run(1)
    assert fabric.mods, "each has a rule of its own"
    assert changes_of_prefix(fabric) == 0
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(20)
    assert changes_of_prefix(fabric) == 0, "nor does the next controller process move it"


# ---- lost next hops


def wanted(fabric: Fabric, installed: Mapping[Dpid, RuleSet] | None = None) -> Mapping[Dpid, RuleSet]:
    return Pipeline(SETTINGS).desired(fabric, (), installed or {})


def ports(group: GroupRule) -> set[PortNo]:
    return {bucket.action.port for bucket in group.buckets if isinstance(bucket.action, Output)}


@pytest.mark.parametrize("fabric", [leaf_spine(4, 3, 1, 1e9, 1e9), leaf_spine(3, 2, 1, 1e9, 1e9, 2), fat_tree(4, 1, 1)])
@given(data=st.data())
@settings(max_examples=30)
def test_it_takes_nothing_that_the_full_computation_keeps_and_leaves_no_dead_end(
    fabric: Fabric, data: st.DataObject
) -> None:
    cables = sorted(link for link in fabric.links if fabric.links[link].src < fabric.links[link].dst)
    cut = data.draw(st.lists(st.sampled_from(cables), min_size=1, max_size=4, unique=True))
    lost = {link for a in cut for link in (a, LinkId(*fabric.links[a].dst))}
    before = wanted(fabric)
    leaves = list(hosts_by_leaf(fabric))
    after = {**before, **narrowed(before, fabric.links, lost, leaves)}
    full = wanted(without(fabric, lost), before)
    for dpid, rules in before.items():
        assert after[dpid].flows == rules.flows
        for group_id, group in rules.groups.items():
            left, kept, had = (ports(r.groups[group_id]) for r in (after[dpid], full[dpid], RuleSet.of((), [group])))
            assert left <= had
            if len(left) > 1:  # a last next hop stays, whatever the full computation does to the group
                assert kept & had <= left
                assert not {LinkId(dpid, port) for port in left} & lost
                assert left == kept or not kept <= had
    for leaf in leaves:
        for dpid in before:
            follow(after, fabric, lost, dpid, leaf)


def follow(rules: Mapping[Dpid, RuleSet], fabric: Fabric, lost: set[LinkId], dpid: Dpid, leaf: Dpid) -> None:
    """Assert that every choice of a group continues over existing links, where the group still has a choice."""
    group = rules[dpid].groups.get(ecmp_group_id(leaf))
    if dpid == leaf or group is None or len(ports(group)) < 2:
        return
    for port in ports(group):
        link = LinkId(dpid, port)
        assert link not in lost
        follow(rules, fabric, lost, fabric.links[link].dst.dpid, leaf)


def test_it_is_sent_alone_and_before_anything_is_worked_out() -> None:
    fabric = started(FakeFabric(), 0, 1)
    fabric.run(2)
    leaf, uplink = Dpid(1), next(iter(fabric.switches[Dpid(1)].peers))
    peer = fabric.switches[leaf].peers[uplink]
    assert peer
    for end_dpid, end_port in ((leaf, uplink), peer):
        fabric.switches[end_dpid].up[end_port] = False
    down = next(port for port in fabric.switches[leaf].ports() if port.number == uplink)
    (stage,) = fabric.loop.handle([PortChanged(leaf, down)], fabric.now)
    assert isinstance(stage, InstallStage)
    assert {mod.op for mods in stage.stage.mods.values() for mod in mods} == {"modify"}
    assert {type(mod.rule) for mods in stage.stage.mods.values() for mod in mods} == {GroupRule}
    done = fabric._install(stage)
    assert all(
        fabric.trace(src, dst, entropy)
        for src in fabric.loop.fabric.hosts
        for dst in fabric.loop.fabric.hosts
        if src != dst
        for entropy in range(4)
    )
    (asked,) = fabric.loop.handle([done], fabric.now)
    assert isinstance(asked, SolvePlan), "new routes are asked for as soon as that is confirmed"
