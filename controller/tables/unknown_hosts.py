"""Installed rules that lead to hosts which are not known yet, as after a restart, stay until the hosts are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from controller.fabric.topology import Dpid, Host
from controller.shared_map import differing
from controller.tables.default_table import Gateway
from controller.tables.rules import FlowKey, FlowRule, GroupRule, Prefix, RuleSet, ToGroup

NO_RULES = RuleSet()


class KeepUnknown:
    """Derives the desired rules with the installed ones that lead to (or pin) hosts which are not known yet, with their
    groups: the switch of these hosts may connect later. Looks only at installed rules that are not as they were."""

    def __init__(self, gateways: Iterable[Gateway] = ()) -> None:
        self._ip_of = {gateway.mac: gateway.ip for gateway in gateways}
        self._hosts: Mapping[str, Host] = {}
        self._installed: dict[Dpid, Mapping[FlowKey, FlowRule]] = {}
        self._unknown: defaultdict[Dpid, dict[FlowKey, FlowRule]] = defaultdict(dict)

    def __call__(
        self, hosts: Mapping[str, Host], desired: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]
    ) -> dict[Dpid, RuleSet]:
        self._follow(hosts)
        for gone in self._installed.keys() - desired.keys():
            del self._installed[gone], self._unknown[gone]
        return {dpid: self._with_unknown(dpid, rules, installed.get(dpid, NO_RULES)) for dpid, rules in desired.items()}

    def _follow(self, hosts: Mapping[str, Host]) -> None:
        """Rules that were unknown may lead to hosts that have come; where hosts have gone, all rules are looked at."""
        before, self._hosts = self._hosts, hosts
        if hosts.keys() == before.keys():
            return
        if before.keys() - hosts.keys():
            self._installed.clear()
            self._unknown.clear()
        for unknown in self._unknown.values():
            for key in [key for key in unknown if not self._is_unknown(key)]:
                del unknown[key]

    def _with_unknown(self, dpid: Dpid, desired: RuleSet, installed: RuleSet) -> RuleSet:
        unknown = self._unknown[dpid]
        for key, _, rule in differing(self._installed.get(dpid, {}), installed.flows):
            unknown.pop(key, None)
            if rule is not None and self._is_unknown(key):
                unknown[key] = rule
        self._installed[dpid] = installed.flows
        return _with(desired, {key: rule for key, rule in unknown.items() if key not in desired.flows}, installed)

    def _is_unknown(self, key: FlowKey) -> bool:
        """Some end of the rule is no known host's address, and no prefix with one in it."""
        gateway = self._ip_of.get(key.match.eth_dst or "")
        if gateway is not None and gateway not in self._hosts:
            return True
        ends = (key.match.ipv4_src, key.match.ipv4_dst, key.match.arp_tpa)
        return any(end is not None and not _holds(self._hosts, end) for end in ends)


def _with(desired: RuleSet, kept: Mapping[FlowKey, FlowRule], installed: RuleSet) -> RuleSet:
    """``kept``: of the installed rules; their groups are kept too."""
    if not kept:
        return desired
    groups: dict[int, GroupRule | None] = {}
    needed = [a.group_id for rule in kept.values() for a in rule.actions if isinstance(a, ToGroup)]
    while needed:
        group = installed.groups.get(needed.pop())
        if group and group.group_id not in desired.groups and group.group_id not in groups:
            groups[group.group_id] = group
            needed += [b.action.group_id for b in group.buckets if isinstance(b.action, ToGroup)]
    return desired.updated(kept, groups)


def _holds(known: Mapping[str, Host], prefix: Prefix) -> bool:
    if prefix.length == 32:
        return prefix.address in known
    network = IPv4Network(prefix)
    return any(address in network for address in _addresses(tuple(known)))


@lru_cache(maxsize=1)
def _addresses(ips: tuple[str, ...]) -> frozenset[IPv4Address]:
    return frozenset(map(IPv4Address, ips))
