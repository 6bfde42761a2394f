"""Converter for the rules of a switch, one page at a time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from controller.api.pages import filled
from controller.api.rule_purposes import Ordered, Purposes, Use, actions_text, match_text
from controller.fabric.topology import Dpid, Fabric
from controller.status import Status
from controller.tables.rules import FlowRule, GroupRule, Rule
from signalbox.mapping import number_of
from signalbox.v1 import signalbox_pb2 as pb


def rules_bytes(dpid: Dpid, rules: Ordered, status: Status, after: str, size: int) -> bytes:
    """Return a serialized ``ListRulesResponse`` with as many rules as fit into a page of ``size``.

    The page begins after the key ``after``."""
    purposes = Purposes(dpid, status.fabric, status.jobs)

    def serialized() -> Iterator[tuple[str, bytes]]:
        for at in range(bisect_right(rules.keys, after), len(rules.keys)):
            rule = rules.rules[at]
            message = rule_message(rule, purposes.of(rule, rules.owners), status.fabric)
            yield rules.keys[at], pb.ListRulesResponse(rules=[message]).SerializeToString()

    parts, token = filled(serialized(), size)
    return b"".join((*parts, pb.ListRulesResponse(next_page_token=token).SerializeToString()))


def rule_message(rule: Rule, use: Use, fabric: Fabric) -> pb.SwitchRule:
    message = pb.SwitchRule(
        actions=actions_text(rule),
        purpose=number_of(pb.RulePurpose.DESCRIPTOR, use.purpose),
        job_ids=use.jobs,
        src=use.flow.src_ip if use.flow else "",
        dst=use.flow.dst_ip if use.flow else "",
        acknowledgements=use.answers,
        towards="" if use.towards is None else fabric.name(use.towards),
    )
    if isinstance(rule, FlowRule):
        message.kind, message.table, message.priority = pb.RULE_KIND_FLOW, int(rule.key.table), rule.key.priority
        message.cookie, message.match = rule.cookie, match_text(rule.key.match)
    elif isinstance(rule, GroupRule):
        message.kind, message.id = pb.RULE_KIND_GROUP, rule.group_id
    else:
        message.kind, message.id = pb.RULE_KIND_METER, rule.meter_id
    return message
