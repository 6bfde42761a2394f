"""The first answer to lost links removes the next hops that lead nowhere, and no others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.messages import PortChanged
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo
from controller.fabric.topology_state import hosts_by_leaf
from controller.planning.messages import SolvePlan
from controller.tables.messages import InstallStage
from controller.tables.pipeline import Pipeline, PipelineSettings, narrowed
from controller.tables.rules import GroupRule, Output, RuleSet, ecmp_group_id
from offline.scenarios.fabrics import fat_tree, leaf_spine, without
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, register

SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)


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
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1)
    fabric.run(5)
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
