"""The three tables of every switch, computed from the fabric and the pins.

In: a snapshot of the fabric, the pins, and the installed rules. Out: the rules that each switch should have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.fabric.topology import (
    Dpid,
    Fabric,
    Host,
    PortNo,
    PortRef,
    ShortestPaths,
    Switch,
    Towards,
    moved_hosts,
    ports_by_switch,
)
from controller.fabric.topology_state import hosts_by_leaf
from controller.shared_map import Memo, MemoPerKey, differing, updated
from controller.tables import control_table, default_table
from controller.tables.default_table import Gateway, GatewayPorts
from controller.tables.pinned_table import Pin
from controller.tables.rules import GroupRule, Prefix, RuleSet, Table
from controller.tables.switch_rules import NO_PINS, DefaultPart, PinsOf, SwitchRules, Ways, ecmp_group_id

NO_RULES = RuleSet()


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings of the tables."""

    punt_rate_pps: int
    """Packets per second that a port may send to the controller."""
    leaf_prefix_length: int
    """Length of the prefixes that leaves own, in bits."""
    gateways: tuple[Gateway, ...] = ()
    one_way: Mapping[Dpid, frozenset[PortNo]] = field(default_factory=dict)
    """Ports whose links lead one way, by switch."""


class Pipeline:
    """Derivation of the rules that every connected switch should hold.

    Each table is derived from its own inputs, so that a new job changes pinned tables only. A switch without changes
    gets the same ``RuleSet`` object again."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._paths = ShortestPaths()
        self._hosts: Mapping[str, Host] = {}
        self._leaves: Mapping[Dpid, list[Host]] = {}
        self._prefixes: Mapping[Prefix, Dpid] = {}
        self._gateways: GatewayPorts = ()
        self._towards = Memo(self._paths.towards)
        self._ways = MemoPerKey[Dpid, Dpid, Mapping[Dpid, Towards], Mapping[int, GroupRule], frozenset[PortNo], Ways](
            _ways
        )
        self._fabric_ports = Memo(ports_by_switch)
        self._control = MemoPerKey[Dpid, Switch, frozenset[PortNo], tuple[Host, ...], int, bool, RuleSet](
            control_table.control_rules
        )
        self._default = MemoPerKey[Dpid, tuple[Host, ...], Mapping[Prefix, Dpid], GatewayPorts, Ways, DefaultPart](
            _default_part
        )
        self._at = _PinsAt()
        self._rules = defaultdict[Dpid, SwitchRules](SwitchRules)

    def desired(
        self,
        fabric: Fabric,
        pins: Iterable[Pin],
        installed: Mapping[Dpid, RuleSet],
        carrying: Fabric | None = None,
        closed: Iterable[PortRef] = (),
    ) -> Mapping[Dpid, RuleSet]:
        """Return the rules of every switch.

        ``carrying``: the fabric with only the links that forward, if some links do not. A switch without a next hop to
        a destination keeps its installed group to the destination: the controller's view may be wrong, and an empty
        group certainly loses packets. A group with ``closed`` ports is not kept, because these ports may lead anywhere,
        even to a switch that sends packets back."""
        self._place(fabric, installed)
        towards = self._towards(carrying or fabric, self._leaves)
        pins_at, ports = self._at.follow(fabric.hosts, pins), self._fabric_ports(fabric.links)
        # Installed rules matter only if some switch cannot reach some leaf.
        held = installed if any(len(to.distance) < len(fabric.switches) for to in towards.values()) else {}
        none, shut = frozenset[PortNo](), ports_by_switch(closed)
        ways = self._ways(
            {dpid: (dpid, towards, held.get(dpid, NO_RULES).groups, shut.get(dpid, none)) for dpid in fabric.switches}
        )
        hosts = {dpid: tuple(self._leaves.get(dpid, ())) for dpid in fabric.switches}
        rate_pps, one_way = self._settings.punt_rate_pps, self._settings.one_way
        control = self._control(
            {
                dpid: (
                    switch,
                    ports.get(dpid, none) | one_way[dpid] if dpid in one_way else ports.get(dpid, none),
                    hosts[dpid],
                    rate_pps,
                    dpid in one_way,
                )
                for dpid, switch in fabric.switches.items()
            }
        )
        default = self._default(
            {dpid: (hosts[dpid], self._prefixes, self._gateways, ways[dpid]) for dpid in fabric.switches}
        )
        base = {dpid: (control[dpid], default[dpid], ways[dpid]) for dpid in fabric.switches}
        for dpid in self._rules.keys() - base.keys():
            del self._rules[dpid]
        return {
            dpid: self._rules[dpid].of(*of_it, fabric.hosts, pins_at.get(dpid, NO_PINS)) for dpid, of_it in base.items()
        }

    def _place(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> None:
        """Assign prefixes and gateways to switches, when hosts have changed."""
        if fabric.hosts is self._hosts:
            return
        self._hosts, self._leaves = fabric.hosts, hosts_by_leaf(fabric)
        found = ((gateway.mac, fabric.hosts.get(gateway.ip)) for gateway in self._settings.gateways)
        self._gateways = tuple((mac, host.at) for mac, host in found if host)
        present = _present_owners(installed, self._leaves)
        self._prefixes = default_table.destination_prefixes(fabric, self._settings.leaf_prefix_length, present)


def _ways(
    dpid: Dpid, towards: Mapping[Dpid, Towards], installed: Mapping[int, GroupRule], closed: frozenset[PortNo]
) -> Ways:
    leaves = tuple(leaf for leaf in towards if leaf != dpid)
    hops = tuple(towards[leaf].hops.get(dpid, ()) for leaf in leaves)
    distance = tuple(towards[leaf].distance.get(dpid, 1) for leaf in leaves)
    lost = (ecmp_group_id(leaf) for leaf, out in zip(leaves, hops, strict=True) if not out)
    groups = (installed[group_id] for group_id in lost if group_id in installed)
    kept = tuple(group for group in groups if closed.isdisjoint(bucket.watch_port for bucket in group.buckets))
    return Ways(dpid, leaves, hops, distance, kept)


def _present_owners(installed: Mapping[Dpid, RuleSet], leaves: Iterable[Dpid]) -> dict[Prefix, Dpid]:
    """Return the switch to which the installed rules send each prefix."""
    leaf_of = {ecmp_group_id(leaf): leaf for leaf in leaves}
    owners: dict[Prefix, Dpid] = {}
    for rules in installed.values():
        for key, rule in rules.flows.items():
            prefix = key.match.ip_dst
            if key.table == Table.DEFAULT and prefix is not None and rule.group_id in leaf_of:
                owners[prefix] = leaf_of[rule.group_id]
    return owners


class _PinsAt:
    """Pins that begin at or lead over each switch, by owner.

    Only owners with changed pins, or with pins of moved hosts, are examined. When hosts move, even an equal tuple
    becomes another object, so that ``SwitchRules`` derives the rules of its pins again."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._of: Mapping[str, tuple[Pin, ...]] = {}
        self._switches: dict[str, tuple[Dpid, ...]] = {}
        self._at: dict[Dpid, PinsOf] = {}

    def follow(self, hosts: Mapping[str, Host], pins: Iterable[Pin]) -> Mapping[Dpid, PinsOf]:
        now: PinsOf = getattr(pins, "of", None) or {"": tuple(pins)}
        moved = self._moved(hosts, now)
        before, self._of = self._of, now
        changes: defaultdict[Dpid, dict[str, tuple[Pin, ...] | None]] = defaultdict(dict)
        other = {name: of_name for name, _, of_name in differing(before, now)}
        for name, of_name in {**other, **moved}.items():
            found = _by_switch(hosts, of_name or ())
            for dpid in self._switches.pop(name, ()):
                if dpid not in found:
                    changes[dpid][name] = None
            if found:
                self._switches[name] = tuple(found)
            for dpid, here in found.items():
                pins_here = tuple(here)
                if name in moved or self._at.get(dpid, NO_PINS).get(name) != pins_here:
                    changes[dpid][name] = pins_here
        for dpid, changed in changes.items():
            self._at[dpid] = updated(self._at.get(dpid, NO_PINS), changed)
        return self._at

    def _moved(self, hosts: Mapping[str, Host], pins: PinsOf) -> PinsOf:
        """Return all pins of owners that have a pin whose hosts appeared, vanished or changed switches, by owner."""
        before, self._hosts = self._hosts, hosts
        ips = moved_hosts(before, hosts)
        looked_at = pins.items() if ips else ()
        return {name: found for name, found in looked_at if any(not ips.isdisjoint(pin.flow.pair) for pin in found)}


def _by_switch(hosts: Mapping[str, Host], pins: Iterable[Pin]) -> dict[Dpid, list[Pin]]:
    at: dict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = hosts[pin.flow.src_ip].at.dpid
        for dpid in dict.fromkeys((source, *(hop.dpid for hop in pin.path or ()))):
            at[dpid].append(pin)
    return at


def _default_part(
    hosts: tuple[Host, ...], prefixes: Mapping[Prefix, Dpid], gateways: GatewayPorts, ways: Ways
) -> DefaultPart:
    """Return the default table of one switch and its ECMP groups."""
    groups = {group.group_id: group for group in ways.kept}
    for leaf, hops, distance in zip(ways.leaves, ways.hops, ways.distance, strict=True):
        if hops:
            group_id = ecmp_group_id(leaf)
            groups[group_id] = default_table.ecmp_group(group_id, hops, distance)
    group_of = {leaf: ecmp_group_id(leaf) for leaf in ways.leaves if ecmp_group_id(leaf) in groups}
    routed = default_table.routed_rules(ways.dpid, prefixes, group_of, ways.distances)
    onward = default_table.gateway_rules(ways.dpid, gateways, group_of, ways.distances)
    return DefaultPart((*default_table.host_rules(hosts), *routed, *onward, *default_table.DROP_RULES), groups)
