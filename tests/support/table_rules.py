"""Short rules of a leaf and a spine, for tests of the changes between rules."""

from controller.fabric.topology import Dpid, PortNo
from controller.tables.rules import Bucket, FlowKey, FlowRule, GroupRule, Match, Output, Table, ToGroup, cookie

LEAF, SPINE = Dpid(1), Dpid(2)


def flow(port: int, in_port: int = 1, distance: int = 0) -> FlowRule:
    key = FlowKey(Table.DEFAULT, 10, Match(in_port=PortNo(in_port)))
    return FlowRule(key, cookie(Table.DEFAULT), (Output(PortNo(port)),), distance=distance)


def group(*ports: int, distance: int = 0) -> GroupRule:
    buckets = tuple(Bucket(Output(PortNo(p)), watch_port=PortNo(p)) for p in ports)
    return GroupRule(7, "select", buckets, distance)


def to_group(distance: int = 0) -> FlowRule:
    key = FlowKey(Table.DEFAULT, 10, Match(in_port=PortNo(9)))
    return FlowRule(key, cookie(Table.DEFAULT), (ToGroup(7),), distance=distance)
