"""Reads the running routes back out of the rules that switches hold, for a controller that has just started.

A pin in table 1 points at a path group, whose first bucket is the planned next hop; following them from the source's
switch gives the path. Hosts come back from the /32 rules of their own switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.fabric.shortest_paths import Hops, next_hops
from controller.fabric.topology import Dpid, Fabric, LinkId, Path, PortNo, PortRef
from controller.planning.problem import FlowId
from controller.tables.pinned_table import Pin, read_pin_key
from controller.tables.rules import FlowRule, Output, RuleSet, Table, ToGroup, cookie_owner


def installed_hosts(installed: Mapping[Dpid, RuleSet]) -> Iterator[tuple[str, PortRef]]:
    """(address, port) of every host that a switch delivers to directly."""
    for dpid, rules in installed.items():
        for key, rule in rules.flows.items():
            dst = key.match.ipv4_dst
            if key.table == Table.DEFAULT and dst and dst.length == 32 and len(rule.actions) == 1:
                (action,) = rule.actions
                if isinstance(action, Output):
                    yield dst.address, PortRef(dpid, action.port)


def installed_fabric_ports(rules: RuleSet) -> set[PortNo]:
    """Ports that groups send to: each is one end of a cable between switches."""
    return {
        bucket.action.port
        for group in rules.groups.values()
        for bucket in group.buckets
        if isinstance(bucket.action, Output)
    }


def installed_pins(fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> Iterator[Pin]:
    """Every pin and counting rule at the switch of its source, with the path it stands for (None: none, or one whose
    links are not there)."""
    towards = next_hops(fabric, {host.at.dpid for host in fabric.hosts.values()})
    for dpid, rules in installed.items():
        for key, rule in rules.flows.items():
            read = read_pin_key(key)
            if read is None:
                continue
            flow, part = read
            source = fabric.hosts.get(flow.src_ip)
            if source and source.at.dpid == dpid and flow.dst_ip in fabric.hosts:
                path = _follow(fabric, installed, flow, rule, towards)
                yield Pin(flow, cookie_owner(rule.cookie), path, part)


def _follow(
    fabric: Fabric, installed: Mapping[Dpid, RuleSet], flow: FlowId, rule: FlowRule, towards: Mapping[Dpid, Hops]
) -> Path | None:
    if rule.goto is not None:
        return None
    here, leaf = fabric.hosts[flow.src_ip].at.dpid, fabric.hosts[flow.dst_ip].at.dpid
    path: list[LinkId] = []
    while here != leaf and len(path) <= len(fabric.switches):
        rules = installed.get(here, RuleSet())
        port = _planned_port(rules, rules.flows.get(rule.key))
        default = towards[leaf].get(here, ())
        hop = LinkId(here, port) if port is not None else default[0] if len(default) == 1 else None
        if hop is None or hop not in fabric.links:
            return None
        path.append(hop)
        here = fabric.links[hop].dst.dpid
    return tuple(path) if here == leaf else None


def _planned_port(rules: RuleSet, rule: FlowRule | None) -> PortNo | None:
    """The first bucket's port of the path group that a pin points at."""
    if rule is None or len(rule.actions) != 1 or not isinstance(rule.actions[0], ToGroup):
        return None
    group = rules.groups.get(rule.actions[0].group_id)
    first = group.buckets[0].action if group and group.buckets else None
    return first.port if isinstance(first, Output) else None
