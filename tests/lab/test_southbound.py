"""The southbound against real Open vSwitch: two bridges with a patch cable between them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from controller.config import Config
from controller.fabric.messages import LinkSeen, SwitchConnected
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.planning.problem import FlowId
from controller.tables.flow_tables import FlowPart, pin_key
from controller.tables.messages import (
    Counters,
    InstallStage,
    ReadRules,
    RuleCount,
    StageDone,
    SwitchResult,
    SwitchRules,
)
from controller.tables.rules import (
    BROADCAST_MAC,
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    Rule,
    RuleMod,
    RuleSet,
    SetDscp,
    Stage,
    Table,
    ToController,
    ToGroup,
    cookie,
    host_prefix,
)
from mininet_topos.controller_process import reserve_port
from mininet_topos.lab.record import run
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import port_classes
from tests.support.wire.openflow_controller import Southbound, southbound

PATCH, PLAIN = PortNo(1), PortNo(2)


def vsctl(*arguments: str) -> None:
    run("ovs-vsctl", "--timeout=20", *arguments)


def ofctl(command: str, bridge: str, *arguments: str) -> str:
    return run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *arguments)


@dataclass(frozen=True)
class Lab:
    controller: Southbound
    names: tuple[str, str]
    dpids: tuple[Dpid, Dpid]
    target: str


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    tag = uuid4().hex[:6]
    names = (f"sb{tag}a", f"sb{tag}b")
    dpids = tuple(Dpid(int(f"5b{tag}{n}", 16)) for n in (1, 2))
    port = reserve_port()
    config = Config.model_validate(
        {
            "openflow": {"port": port},
            "discovery": {"probe_interval_s": 0.3, "link_timeout_s": 1.5},
            "counters": {"interval_s": 0.5},
        }
    )
    target = f"tcp:127.0.0.1:{port}"
    try:
        for number, name in enumerate(names):
            add_bridge(name, dpids[number], f"{tag}p{number}", f"{tag}p{1 - number}", f"{tag}d{number}")
        with southbound(config) as controller:
            for name in names:
                vsctl("set-controller", name, target)
            yield Lab(controller, names, (dpids[0], dpids[1]), target)
    finally:
        for name in names:
            vsctl("--if-exists", "del-br", name)


def add_bridge(name: str, dpid: Dpid, patch: str, peer: str, plain: str) -> None:
    vsctl(
        *("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=secure"),
        *("protocols=OpenFlow13", f"other_config:datapath-id={dpid:016x}"),
        *("--", "add-port", name, patch, "--", "set", "interface", patch),
        *("type=patch", f"options:peer={peer}", f"ofport_request={PATCH}"),
        *("--", "add-port", name, plain, "--", "set", "interface", plain, "type=internal", f"ofport_request={PLAIN}"),
    )


def punt_lldp(dpid: Dpid) -> InstallStage:
    key = FlowKey(Table.CONTROL, 100, Match(eth_type=ETH_LLDP))
    return one_stage(dpid, RuleMod("add", FlowRule(key, cookie(Table.CONTROL), (ToController(),))))


def one_stage(dpid: Dpid, *mods: RuleMod, change_id: int = 1) -> InstallStage:
    return InstallStage(change_id, Stage("test", {dpid: mods}))


def install(lab: Lab, dpid: Dpid, *mods: RuleMod) -> SwitchResult:
    since = len(lab.controller.received)
    lab.controller.send(one_stage(dpid, *mods, change_id=since))
    return lab.controller.first(StageDone, since, change_id=since).results[dpid]


def read(lab: Lab, dpid: Dpid) -> SwitchRules:
    since = len(lab.controller.received)
    lab.controller.send(ReadRules(dpid))
    return lab.controller.first(SwitchRules, since, dpid=dpid)


def every_kind() -> RuleSet:
    host, leaf = host_prefix("10.0.1.2"), Prefix("10.0.2.0", 24)
    pinned, default = cookie(Table.PINNED, 0x12_3456_789A), cookie(Table.DEFAULT)
    ecmp, path = 0x1234, 0x7FFF_FFFE
    groups = (
        GroupRule(ecmp, "select", tuple(Bucket(Output(PATCH), watch_port=PATCH) for _ in range(3))),
        GroupRule(
            path, "fast_failover", (Bucket(Output(PLAIN), watch_port=PLAIN), Bucket(ToGroup(ecmp), watch_group=ecmp))
        ),
    )
    meters = (MeterRule(7, 50, 50), MeterRule(8, 1, 5))
    both = (FlowId("10.0.1.2", "10.0.2.9"), FlowId("10.0.2.9", "10.0.1.2"))
    parts = [
        FlowPart(transport, ports, answers)
        for ports in (*port_classes(2), *port_classes(16))
        for transport, answers in ((Transport.TCP, False), (Transport.TCP, True), (Transport.ROCE_V2, False))
    ]
    arp = Match(in_port=PLAIN, eth_type=ETH_ARP, eth_dst=BROADCAST_MAC)
    flows = (
        FlowRule(FlowKey(Table.CONTROL, 0, Match()), cookie(Table.CONTROL), goto=Table.PINNED),
        FlowRule(FlowKey(Table.CONTROL, 90, arp), cookie(Table.CONTROL), (ToController(),), meter=7),
        FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT),
        FlowRule(
            FlowKey(Table.PINNED, 100, Match(eth_type=ETH_IPV4, ip_src=host, ip_dst=host_prefix("10.0.2.9"))),
            pinned,
            (ToGroup(path),),
        ),
        *(FlowRule(pin_key(flow, part), pinned, (ToGroup(path),)) for flow in both for part in parts),
        FlowRule(pin_key(FlowId("10.0.1.2", "10.0.3.1")), pinned, (SetDscp(26), ToGroup(path))),
        FlowRule(pin_key(FlowId("10.0.1.2", "10.0.3.2")), pinned, (SetDscp(63),), Table.DEFAULT),
        FlowRule(FlowKey(Table.DEFAULT, 124, Match(eth_type=ETH_IPV4, ip_dst=leaf)), default, (ToGroup(ecmp),)),
        FlowRule(FlowKey(Table.DEFAULT, 124, Match(eth_type=ETH_ARP, arp_tpa=leaf)), default, (ToGroup(ecmp),)),
        FlowRule(
            FlowKey(Table.CONTROL, 91, Match(in_port=PLAIN, eth_type=ETH_ARP, arp_spa=host_prefix("0.0.0.0"))),
            cookie(Table.CONTROL),
            goto=Table.PINNED,
        ),
        FlowRule(FlowKey(Table.DEFAULT, 132, Match(eth_type=ETH_IPV4, ip_dst=host)), default, (Output(PLAIN),)),
        FlowRule(FlowKey(Table.DEFAULT, 1, Match(eth_type=ETH_IPV4)), default),
        FlowRule(FlowKey(Table.DEFAULT, 2, Match(eth_type=ETH_IPV4)), default, (Output(PATCH), Output(PLAIN))),
    )
    return RuleSet.of(flows, groups, meters)


def all_rules(rules: RuleSet) -> list[Rule]:
    return [*rules.meters.values(), *rules.groups.values(), *rules.flows.values()]


def test_switches_are_named_after_their_bridges_and_describe_their_ports(lab: Lab) -> None:
    for name, dpid in zip(lab.names, lab.dpids, strict=True):
        connected = lab.controller.first(SwitchConnected, dpid=dpid)
        assert connected.name == name
        assert {port.number: port.up for port in connected.ports} == {PATCH: True, PLAIN: False}


def test_a_cable_is_seen_once_in_each_direction(lab: Lab) -> None:
    a, b = (PortRef(dpid, PATCH) for dpid in lab.dpids)
    for dpid in lab.dpids:
        lab.controller.first(SwitchConnected, dpid=dpid)
        read(lab, dpid)  # counters are accepted once the rules of the switch are known
        lab.controller.send(punt_lldp(dpid))
    lab.controller.first(LinkSeen, src=a, dst=b)
    lab.controller.first(LinkSeen, src=b, dst=a)
    for _ in range(3):
        lab.controller.first(Counters, since=len(lab.controller.received))
    assert sum(isinstance(message, LinkSeen) for message in lab.controller.received) == 2


def test_every_kind_of_rule_reads_back_as_it_was_sent(lab: Lab) -> None:
    dpid = lab.dpids[0]
    before = read(lab, dpid).rules
    ofctl("add-flow", lab.names[0], "table=5,cookie=0x77,priority=9,actions=drop")
    wanted = every_kind()
    assert install(lab, dpid, *(RuleMod("add", rule) for rule in all_rules(wanted))) == SwitchResult()
    held = read(lab, dpid)
    assert held.foreign == 1
    assert held.rules == RuleSet({**before.flows, **wanted.flows}, wanted.groups, wanted.meters)

    assert install(lab, dpid, *(RuleMod("modify", rule) for rule in all_rules(wanted))) == SwitchResult()
    assert read(lab, dpid).rules == held.rules

    gone = [RuleMod("delete", rule) for rule in reversed(all_rules(wanted))]
    assert install(lab, dpid, *gone) == SwitchResult()
    assert read(lab, dpid).rules == before
    assert "cookie=0x77" in ofctl("dump-flows", lab.names[0])


def test_a_rejected_rule_comes_back_with_the_switchs_reason_and_the_others_stand(lab: Lab) -> None:
    dpid = lab.dpids[0]
    good = FlowRule(FlowKey(Table.DEFAULT, 5, Match(eth_type=ETH_IPV4)), cookie(Table.DEFAULT), (Output(PATCH),))
    bad = FlowRule(FlowKey(Table.DEFAULT, 6, Match(eth_type=ETH_IPV4)), cookie(Table.DEFAULT), (ToGroup(404),))
    result = install(lab, dpid, RuleMod("add", bad), RuleMod("add", good))
    assert [mod for mod, _ in result.rejected] == [RuleMod("add", bad)]
    assert "OFPBAC_BAD_OUT_GROUP" in result.rejected[0][1]
    assert not result.timed_out
    assert good.key in read(lab, dpid).rules.flows
    install(lab, dpid, RuleMod("delete", good))


def test_a_modify_keeps_the_entry_and_only_an_add_changes_its_owner(lab: Lab) -> None:
    dpid, name = lab.dpids[0], lab.names[0]
    key = FlowKey(Table.PINNED, 100, Match(eth_type=ETH_IPV4, ip_dst=host_prefix("10.3.0.1")))
    first, second = cookie(Table.PINNED, 1), cookie(Table.PINNED, 2)
    install(lab, dpid, RuleMod("add", FlowRule(key, first, (Output(PATCH),))))

    install(lab, dpid, RuleMod("modify", FlowRule(key, second, (Output(PLAIN),))))
    assert read(lab, dpid).rules.flows[key] == FlowRule(key, first, (Output(PLAIN),))

    wanted = FlowRule(key, second, (Output(PLAIN),))
    install(lab, dpid, RuleMod("add", wanted))
    assert read(lab, dpid).rules.flows[key] == wanted
    install(lab, dpid, RuleMod("delete", wanted))

    foreign = "table=1,cookie=0x77,priority=100,ip,nw_dst=10.3.0.1"
    ofctl("add-flow", name, f"{foreign},actions=drop")
    install(lab, dpid, RuleMod("modify", wanted), RuleMod("delete", wanted))
    assert "nw_dst=10.3.0.1 actions=drop" in ofctl("dump-flows", name, "table=1,cookie=0x77/-1")
    ofctl("del-flows", name, "table=1,cookie=0x77/-1")


def next_counters(lab: Lab, wanted: Callable[[Counters], bool]) -> Counters:
    return lab.controller.wait_for(
        lambda messages: next((m for m in messages if isinstance(m, Counters) and wanted(m)), None),
        len(lab.controller.received),
    )


def test_counters_of_ports_and_of_pinned_rules_come_together(lab: Lab) -> None:
    dpid = lab.dpids[0]
    match = Match(eth_type=ETH_IPV4, ip_src=host_prefix("10.9.0.1"), ip_dst=host_prefix("10.9.0.2"))
    pin = FlowRule(FlowKey(Table.PINNED, 100, match), cookie(Table.PINNED, 9), (Output(PATCH),))
    install(lab, dpid, RuleMod("add", pin))
    counters = next_counters(lab, lambda counters: pin.key in (counters.flows or {}))
    assert counters.flows == {pin.key: RuleCount(0, 0)}
    assert counters.ports is not None
    assert set(counters.ports) == {PATCH, PLAIN}
    assert (counters.ports[PATCH].tx_bytes or 0) > 0
    install(lab, dpid, RuleMod("delete", pin))


def test_packets_over_a_meters_limit_are_told_with_the_counters(lab: Lab) -> None:
    dpid, name = lab.dpids[0], lab.names[0]
    limit = MeterRule(PLAIN, 1, 1)
    key = FlowKey(Table.CONTROL, 95, Match(in_port=PLAIN, eth_type=ETH_ARP))
    punt = FlowRule(key, cookie(Table.CONTROL), (ToController(),), meter=PLAIN)
    assert install(lab, dpid, RuleMod("add", limit), RuleMod("add", punt)) == SwitchResult()
    frame = BROADCAST_MAC.replace(":", "") + "020000000009" + "0806" + "00" * 46
    for _ in range(20):
        ofctl("packet-out", name, f"in_port={PLAIN},packet={frame},actions=table")
    told = next_counters(lab, lambda counters: counters.punt_drops.get(PLAIN, 0) >= 10)
    assert told.dpid == dpid
    assert told.punt_drops[PLAIN] <= 19
    install(lab, dpid, RuleMod("delete", punt), RuleMod("delete", limit))


def test_a_switch_writes_the_dscp_of_a_pin_and_keeps_the_ecn_bits(lab: Lab) -> None:
    name, dpid = lab.names[0], lab.dpids[0]
    group = GroupRule(0x9001, "fast_failover", (Bucket(Output(PATCH), watch_port=PATCH),))
    onward = FlowRule(FlowKey(Table.CONTROL, 0, Match()), cookie(Table.CONTROL), goto=Table.PINNED)
    pin = FlowRule(pin_key(FlowId("10.9.1.1", "10.9.2.1")), cookie(Table.PINNED, 9), (ToGroup(0x9001),))
    unmarked: tuple[RuleMod, ...] = tuple(RuleMod("add", rule) for rule in (onward, group, pin))
    for mods, tos in (unmarked, 8), (modified(pin, 26), 26 << 2), (modified(pin, 10), 10 << 2):
        assert install(lab, dpid, *mods) == SwitchResult()
        assert mods[-1].rule in read(lab, dpid).rules.flows.values()
        packet = f"in_port={PLAIN},tcp,nw_src=10.9.1.1,nw_dst=10.9.2.1,nw_tos=8,nw_ecn=2"
        final = next(line for line in run("ovs-appctl", "ofproto/trace", name, packet).splitlines() if "Final" in line)
        assert f"nw_tos={tos},nw_ecn=2" in final or (final == "Final flow: unchanged" and tos == 8)
    install(lab, dpid, *(RuleMod("delete", rule) for rule in (pin, group, onward)))


def modified(pin: FlowRule, dscp: int) -> tuple[RuleMod, ...]:
    return (RuleMod("modify", FlowRule(pin.key, pin.cookie, (SetDscp(dscp), *pin.actions))),)
