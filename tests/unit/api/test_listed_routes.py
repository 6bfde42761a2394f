"""Lists of routes link by link: their pages, and the filter for routes that differ in the newest plan."""

from dataclasses import replace

import pytest

from controller.api import convert_plan, pages
from controller.fabric.topology import LinkId, PortNo
from controller.planning.problem import FlowId, Routes, whole
from controller.status import Status
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.status_example import SPINE, UP1, fabric, job, plan, status

FLOW, BACK = FlowId("10.0.1.1", "10.0.2.1"), FlowId("10.0.2.1", "10.0.1.1")
HELD = (UP1, LinkId(SPINE, PortNo(2)))


def listed(of: Status, after: str = "", size: int = 9, only_other: bool = False) -> pb.ListRoutesResponse:
    found = convert_plan.listed_routes_bytes(of.jobs.values(), of, after, size, only_other)
    return pb.ListRoutesResponse.FromString(found)


def planned(routes: Routes) -> Status:
    return replace(status(), plan=replace(plan(), routes=routes))


def test_a_route_has_its_links_and_a_hashed_flow_none() -> None:
    found = listed(planned({FLOW: whole(HELD)}))
    assert [(one.job_id, one.src, one.dst, len(one.held), len(one.planned)) for one in found.routes] == [
        ("llama", *FLOW.pair, 1, 0),
        ("llama", *BACK.pair, 0, 0),
    ]
    (path,) = found.routes[0].held
    assert (path.share, [*path.switches]) == (1.0, ["leaf1", "spine1", "leaf2"])
    assert [(link.dpid, link.port) for link in path.links] == [(1, 2), (101, 2)]
    assert (found.plan_generation, found.next_page_token) == (7, "")


def test_only_what_the_plan_has_otherwise_is_listed_when_asked() -> None:
    """A path over another cable between the same switches is another path; a flow inside one switch has no pin."""
    other = (LinkId(UP1.dpid, PortNo(9)), HELD[1])
    (moved,) = listed(planned({FLOW: whole(other), BACK: whole(())}), only_other=True).routes
    assert (moved.src, [link.port for link in moved.planned[0].links]) == ("10.0.1.1", [9, 2])
    (pinned,) = listed(planned({FLOW: whole(HELD), BACK: whole(HELD)}), only_other=True).routes
    assert (pinned.src, len(pinned.held), len(pinned.planned)) == ("10.0.2.1", 0, 1)
    assert not listed(planned({FLOW: whole(HELD)}), only_other=True).routes
    assert listed(replace(status(), plan=None), only_other=True) == pb.ListRoutesResponse()


def test_a_flow_inside_a_switch_is_not_hashed() -> None:
    here = fabric()
    moved = replace(here.hosts[FLOW.dst_ip], at=here.hosts[FLOW.src_ip].at)
    of = replace(status(replace(here, hosts={**here.hosts, FLOW.dst_ip: moved})), plan=None)
    hashed = {JobId("llama"): replace(job("llama", pinned=True), routes={FLOW: None})}
    (found,) = listed(replace(of, jobs=hashed)).routes
    assert [([*path.switches], len(path.links)) for path in found.held] == [(["leaf1"], 0)]


def test_pages_follow_each_other_without_gaps() -> None:
    jobs = {JobId(name): job(name, pinned=True) for name in ("b", "a")}
    of, found, token = replace(status(), jobs=jobs), [], ""
    for _ in range(4):
        size, after = pages.page(pb.ListRoutesRequest(page_size=1, page_token=token))
        answer = listed(of, after, size)
        found += [(one.job_id, one.src) for one in answer.routes]
        token = answer.next_page_token
    assert found == [("a", "10.0.1.1"), ("a", "10.0.2.1"), ("b", "10.0.1.1"), ("b", "10.0.2.1")]
    assert token == ""


def test_a_token_that_the_call_has_not_made_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInput, match="is not a token that ListRoutes returned"):
        pages.page(pb.ListRoutesRequest(page_token="x"))
