"""Installed rules to hosts that are not known yet, as after a restart; they are kept until the hosts are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controller.fabric.topology import Dpid, Host, PortNo, PortRef, ports_by_switch
from controller.shared_map import differing
from controller.tables.default_table import Gateway
from controller.tables.rules import FlowKey, FlowRule, Prefix, RuleSet, prefix_of

NO_RULES = RuleSet()
NO_PORTS = frozenset[PortNo]()


class KeepUnknown:
    """Addition to the desired rules: installed rules whose hosts are not known yet, with the groups of these rules.

    The switch of an unknown host may connect later. A rule to a ``closed`` port is not kept, because the port may soon
    lead anywhere. Only installed rules that have changed are examined."""

    def __init__(self, gateways: Iterable[Gateway] = ()) -> None:
        self._ip_of = {gateway.mac: gateway.ip for gateway in gateways}
        self._hosts: Mapping[str, Host] = {}
        self._prefixes: dict[int, frozenset[Prefix]] = {}
        self._installed: dict[Dpid, Mapping[FlowKey, FlowRule]] = {}
        self._unknown: defaultdict[Dpid, dict[FlowKey, FlowRule]] = defaultdict(dict)

    def __call__(
        self,
        hosts: Mapping[str, Host],
        desired: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
        closed: Iterable[PortRef] = (),
    ) -> dict[Dpid, RuleSet]:
        self._follow(hosts)
        for gone in self._installed.keys() - desired.keys():
            del self._installed[gone], self._unknown[gone]
        closed_ports = ports_by_switch(closed)
        return {
            dpid: self._with_unknown(dpid, rules, installed.get(dpid, NO_RULES), closed_ports.get(dpid, NO_PORTS))
            for dpid, rules in desired.items()
        }

    def _follow(self, hosts: Mapping[str, Host]) -> None:
        """Update the unknown rules after hosts appeared; when hosts vanished, examine all rules again."""
        before, self._hosts = self._hosts, hosts
        if hosts.keys() == before.keys():
            return
        self._prefixes.clear()
        if before.keys() - hosts.keys():
            self._installed.clear()
            self._unknown.clear()
        for unknown in self._unknown.values():
            for key in [key for key in unknown if not self._is_unknown(key)]:
                del unknown[key]

    def _with_unknown(self, dpid: Dpid, desired: RuleSet, installed: RuleSet, closed: frozenset[PortNo]) -> RuleSet:
        unknown = self._unknown[dpid]
        for key, _, rule in differing(self._installed.get(dpid, {}), installed.flows):
            unknown.pop(key, None)
            if rule is not None and self._is_unknown(key):
                unknown[key] = rule
        self._installed[dpid] = installed.flows
        kept = {key: rule for key, rule in unknown.items() if key not in desired.flows}
        if closed:
            kept = {key: rule for key, rule in kept.items() if closed.isdisjoint(_ports(rule, installed))}
        return _with(desired, kept, installed) if kept else desired

    def _is_unknown(self, key: FlowKey) -> bool:
        """Return whether some address or prefix of the rule contains no known host."""
        gateway = self._ip_of.get(key.match.eth_dst or "")
        if gateway is not None and gateway not in self._hosts:
            return True
        return not all(map(self._is_known, key.match.ends))

    def _is_known(self, prefix: Prefix) -> bool:
        """Return whether some known host has an address in the prefix."""
        length = prefix.length
        if prefix.is_host:
            return prefix.address in self._hosts
        if length not in self._prefixes:
            self._prefixes[length] = frozenset(prefix_of(ip, length) for ip in self._hosts)
        return prefix in self._prefixes[length]


def _with(desired: RuleSet, kept: Mapping[FlowKey, FlowRule], installed: RuleSet) -> RuleSet:
    """Return the desired rules plus the installed rules ``kept`` and their groups."""
    groups = installed.groups_of(kept.values())
    return desired.updated(kept, {number: group for number, group in groups.items() if number not in desired.groups})


def _ports(rule: FlowRule, installed: RuleSet) -> set[PortNo]:
    """Return the ports to which groups send packets of the rule."""
    return RuleSet(groups=installed.groups_of([rule])).group_ports
