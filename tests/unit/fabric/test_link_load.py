"""Rates of links, and their background: the traffic beyond counted flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.counter_samples import Counted, LinkStatus, Uses
from controller.fabric.link_load import LinkLoad, background
from controller.fabric.topology import Dpid, Host, LinkId, PortNo, PortRef
from offline.scenarios.fabrics import leaf_spine
from tests.support.link_figures import background_of, bytes_total, rate_bps

LINK, OTHER = LinkId(Dpid(1), PortNo(1)), LinkId(Dpid(1), PortNo(2))
FLOW = Counted("10.0.0.1", "10.0.0.2")
CAPACITY = {LINK: 1e6, OTHER: 1e6}
HOSTS = {
    ip: Host(ip, None, PortRef(Dpid(1), PortNo(8)), 1e6) for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
}
"""Hosts whose traffic is not counted."""
ON_LINK: dict[Counted, tuple[frozenset[LinkId], ...]] = {FLOW: (frozenset([LINK]),)}


def updated(
    load: LinkLoad, now: float, announced: Uses = ON_LINK, capacity: Mapping[LinkId, float] = CAPACITY
) -> dict[LinkId, float]:
    def uncounted() -> Uses:
        return {what: links for what, links in announced.items() if what[:2] not in load.measured.counted}

    load.update(now, capacity)
    return dict(background(load.measured, uncounted(), HOSTS))


def read(
    load: LinkLoad,
    now: float,
    links: Mapping[LinkId, float],
    flows: Mapping[Counted, float] = MappingProxyType({}),
    announced: Uses = ON_LINK,
) -> dict[LinkId, float]:
    load.count_links(now, {link: int(bits / 8) for link, bits in links.items()})
    load.count_flows(now, {flow: int(bits / 8) for flow, bits in flows.items()})
    return updated(load, now, announced)


def run(
    load: LinkLoad, seconds: range, link_bps: float, flow_bps: float, announced: Uses = ON_LINK
) -> dict[LinkId, float]:
    """Count every two seconds at constant rates, and return the last background."""
    found: dict[LinkId, float] = {}
    for now in seconds:
        if now % 2 == 0:
            found = read(load, now, {LINK: link_bps * now}, {FLOW: flow_bps * now}, announced)
    return found


@pytest.fixture
def load() -> LinkLoad:
    load = LinkLoad(window_s=6, noise_fraction=0.1)
    load.routes_changed(0, lambda: {"job": ON_LINK})
    return load


def test_a_flow_counts_on_every_link_it_may_have_used_in_the_window(load: LinkLoad) -> None:
    run(load, range(20), 8e5, 8e5)
    load.routes_changed(20, lambda: {"job": {FLOW: (frozenset([OTHER]),)}})
    assert [run(load, range(now, now + 1), 8e5, 8e5) for now in (20, 22)] == [{}] * 2, "rules need time to change"
    for now in range(24, 50, 2):
        assert run(load, range(now, now + 1), 8e5, 8e5) == {LINK: pytest.approx(8e5, rel=0.1)}, "it is background"


def test_background_is_found_where_flows_are_read_before_links(load: LinkLoad) -> None:
    """Traffic of a link after the last poll of its flows is not evaluated yet."""
    for now in range(0, 40, 2):
        load.count_flows(now, {FLOW: int(4e5 / 8 * now)})
        load.count_links(now + 1, {LINK: int(9e5 / 8 * (now + 1))})
        load.update(now + 1, CAPACITY)
    assert background_of(load)[LINK] == pytest.approx(5e5, rel=0.02)


def test_what_a_flow_used_counts_for_two_windows_however_often_routes_change_meanwhile(load: LinkLoad) -> None:
    """The routes change twice within one window. The path in force between both changes still counts as used."""
    run(load, range(20), 0, 0)
    load.routes_changed(20, lambda: {"job": {FLOW: (frozenset([OTHER]),)}})
    for now in range(20, 38, 2):
        if now == 34:
            load.routes_changed(34, lambda: {"job": ON_LINK})
        sent = 8e5 * (now - 20)
        assert read(load, now, {LINK: 0, OTHER: sent}, {FLOW: sent}) == {}


def test_a_flow_that_speeds_up_is_not_background_though_switches_are_read_at_different_times(load: LinkLoad) -> None:
    def sent(now: float) -> int:
        return int(1e5 / 8 * min(now, 21) + 9e5 / 8 * max(0.0, now - 21))

    for now in range(0, 60, 2):
        load.count_links(now, {LINK: sent(now)})
        load.count_flows(now + 1.9, {FLOW: sent(now + 1.9 - 0.5)})  # read late, and half a second old
        assert updated(load, now + 1.9) == {}


def test_background_has_ended_with_the_first_reading_without_it(load: LinkLoad) -> None:
    """Background that only earlier polls of the window prove is not reported any more."""
    assert run(load, range(20), 9e5, 0)[LINK] == pytest.approx(9e5, rel=0.02)
    assert read(load, 20, {LINK: 9e5 * 18}, {FLOW: 0}) == {}


def test_links_that_are_gone_are_forgotten(load: LinkLoad) -> None:
    run(load, range(20), 9e5, 4e5)
    load.forget({PortRef(Dpid(1), PortNo(2))})
    assert bytes_total(load, LINK) is None
    assert background_of(load).get(LINK, 0) == 0


SUBFLOWS = Counted(FLOW.src_ip, FLOW.dst_ip, "first class"), Counted(FLOW.src_ip, FLOW.dst_ip, "second class")


def test_each_subflow_of_a_flow_counts_on_its_own_path() -> None:
    load = LinkLoad(window_s=6, noise_fraction=0.1)
    both = frozenset([LINK, OTHER])
    load.routes_changed(
        0, lambda: {"job": {FLOW: (both,), SUBFLOWS[0]: (frozenset([LINK]),), SUBFLOWS[1]: (frozenset([OTHER]),)}}
    )
    for now in range(0, 40, 2):
        flows = {SUBFLOWS[0]: 4e5 * now, SUBFLOWS[1]: 2e5 * now, FLOW: 0.0}
        found = read(load, now, {LINK: 7e5 * now, OTHER: 2e5 * now}, flows)
    assert found == {LINK: pytest.approx(3e5, rel=0.02)}


def test_background_is_still_known_when_a_flow_is_split(load: LinkLoad) -> None:
    found = {}
    for now in range(0, 40, 2):
        found = read(load, now, {LINK: 9e5 * now, OTHER: 0}, {FLOW: 6e5 * now})
    assert found[LINK] == pytest.approx(3e5, rel=0.02)
    on_its_own = {SUBFLOWS[0]: (frozenset([LINK]),), SUBFLOWS[1]: (frozenset([OTHER]),)}
    load.routes_changed(38, lambda: {"job": {FLOW: (frozenset([LINK]),), **on_its_own}})
    for now in range(40, 80, 2):
        since = now - 38
        links = {LINK: 9e5 * 38 + 7e5 * since, OTHER: 2e5 * since}
        flows = {FLOW: 6e5 * 38, SUBFLOWS[0]: 4e5 * since, SUBFLOWS[1]: 2e5 * since}
        assert read(load, now, links, flows) == {LINK: pytest.approx(3e5, rel=0.15)}, f"at {now}"


def test_a_pin_knows_no_more_of_a_flow_than_the_new_rule_that_it_replaces(load: LinkLoad) -> None:
    """The flow has sent for long; its bytes from before the first read of its rule are on the link, and not counted."""
    pin, learning = Counted("10.0.0.3", "10.0.0.4"), Counted("10.0.0.3", "10.0.0.4", "learning")
    since = {learning: 18.5, pin: 20.2}
    run(load, range(20), 7e5, 4e5)
    counted = {}
    for now in range(20, 34, 2):
        what = learning if now == 20 else pin
        load.routes_changed(since[what], lambda: {"job": {**ON_LINK, what: (frozenset([LINK]),)}})  # noqa: B023
        read(load, now, {LINK: 7e5 * now}, {FLOW: 4e5 * now, what: 3e5 * (now - since[what])})
        counted[now] = pin[:2] in load.measured.counted
    assert counted == {20: False, 22: False, 24: False, 26: True, 28: True, 30: True, 32: True}


def test_rules_that_are_gone_count_until_switches_have_removed_them(load: LinkLoad) -> None:
    run(load, range(20), 8e5, 8e5)
    load.routes_changed(20, dict)
    assert [run(load, range(now, now + 1), 8e5, 8e5, announced={}) for now in (20, 22)] == [{}] * 2
    assert run(load, range(24, 25), 8e5, 8e5, announced={}) == {LINK: pytest.approx(8e5, rel=0.1)}
    assert run(load, range(26, 50), 8e5, 0, announced={}) == {LINK: pytest.approx(8e5, rel=0.1)}


def test_links_of_a_rule_that_has_gone_are_measured_with_the_next_counters(load: LinkLoad) -> None:
    """The rule counted nothing, like a learning rule below a pin."""
    other = Counted("10.0.0.3", "10.0.0.4")
    load.routes_changed(0, lambda: {"job": {FLOW: (frozenset([LINK]),), other: (frozenset([LINK]),)}})
    found = {}
    for now in range(0, 30, 2):
        if now == 18:
            load.routes_changed(17, lambda: {"job": ON_LINK})
        flows = {FLOW: 4e5 * now} | ({other: 0.0} if now < 18 else {})
        found[now] = read(load, now, {LINK: 4e5 * now + 5e5 * min(now, 20)}, flows)
    assert [found[now] for now in range(10, 22, 2)] == [{LINK: pytest.approx(5e5, rel=0.02)}] * 6
    assert [found[now] for now in range(22, 30, 2)] == [{}] * 4


@pytest.mark.parametrize("seconds", [3, 5, 7, 9])
def test_the_bytes_of_a_job_that_leaves_soon_after_it_came_are_no_background(load: LinkLoad, seconds: int) -> None:
    other = Counted("10.0.0.3", "10.0.0.4")
    run(load, range(20), 0, 0)
    found = []
    for now in range(20, 40):
        sent = 8e5 * min(now - 20, seconds)
        if now == 20:
            load.routes_changed(
                now, lambda: {"job": {FLOW: (frozenset([LINK]),)}, "other": {other: (frozenset([LINK]),)}}
            )
        if now == 20 + seconds:
            load.routes_changed(now, lambda: {"job": ON_LINK})
        if now % 2 == 0:
            also = {other} if now < 20 + seconds else set[Counted]()
            flows = {FLOW: 0.0} | dict.fromkeys(also, sent)
            found.append(read(load, now, {LINK: sent}, flows, ON_LINK | dict.fromkeys(also, ON_LINK[FLOW])))
    assert found == [{}] * 10


def test_a_path_that_lasted_for_a_moment_is_no_background(load: LinkLoad) -> None:
    run(load, range(20), 0, 8e5)
    load.routes_changed(20, lambda: {"job": {FLOW: (frozenset([LINK, OTHER]),)}})
    load.routes_changed(20.5, lambda: {"job": ON_LINK})
    for now in range(20, 40, 2):
        assert read(load, now, {OTHER: 8e5 * 0.5 if now > 20 else 0}) == {}


def test_sets_of_links_that_rules_share_and_that_change_in_part_count_a_flow_once() -> None:
    load = LinkLoad(window_s=6, noise_fraction=0.1)
    shared, own = frozenset([LINK]), frozenset([OTHER])
    load.routes_changed(0, lambda: {"job": {FLOW: (shared, own)}})
    found = []
    for now in range(0, 40, 2):
        if now == 20:
            load.routes_changed(now, lambda: {"job": {FLOW: (shared | own,)}})
        found.append(read(load, now, {LINK: 9e5 * now, OTHER: 6e5 * now}, {FLOW: 6e5 * now}))
    assert found[9:] == [{LINK: pytest.approx(3e5, rel=0.02)}] * 11


def test_another_fabric_keeps_the_background_of_its_links(load: LinkLoad) -> None:
    run(load, range(40), 9e5, 4e5)
    read(load, 40, {LINK: 9e5 * 40}, {FLOW: 4e5 * 40})
    assert updated(load, 40, capacity={LINK: 1e6})[LINK] == pytest.approx(5e5, rel=0.02)
    assert updated(load, 40, capacity={OTHER: 1e6}) == {}
    assert updated(load, 40, capacity=dict(CAPACITY))[LINK] == pytest.approx(5e5, rel=0.02), (
        "known at once when it is back"
    )


FABRIC = leaf_spine(2, 2, 2, 1e6, 1e6)


def test_a_background_is_known_when_a_whole_window_was_measured(load: LinkLoad) -> None:
    fabric = replace(FABRIC, links={LINK: FABRIC.links[LINK], OTHER: FABRIC.links[OTHER]}, hosts={})
    known = []
    for now in range(0, 11, 2):
        load.count_links(now, {LINK: 1000 * now})
        updated(load, now)
        figures = load.figures(fabric, background_of(load))
        assert figures.keys() == {LINK}, "nothing is known of the other one"
        known.append((figures[LINK].rate_bps, figures[LINK].background_bps))
    assert known == [(None, None), (8e3, None), (8e3, None), *[(8e3, 0.0)] * 3]


def figures_one_by_one(load: LinkLoad) -> dict[LinkId, LinkStatus]:
    """Return the figures of counted links; a background needs a whole measured window."""
    links = [*FABRIC.links, *(link for host in FABRIC.hosts.values() for link in (host.uplink, host.downlink))]
    measured = dict(zip(load.measured.place, load.measured.reached.tolist(), strict=True))
    return {
        link: LinkStatus(
            total, rate_bps(load, link), background_of(load).get(link, 0.0) if measured.get(link) else None
        )
        for link in links
        if (total := bytes_total(load, link)) is not None
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["count", "count", "update", "forget", "look"]),
            st.sampled_from(sorted(FABRIC.switches)),
            st.integers(0, 10**6),
        ),
        max_size=25,
    )
)
def test_figures_are_those_of_each_link(steps: list[tuple[str, Dpid, int]]) -> None:
    load, capacity = LinkLoad(6, 0.1), dict.fromkeys(FABRIC.links, 1e6)
    for now, (step, dpid, more) in enumerate(steps):
        ports = FABRIC.switches[dpid].ports
        if step == "count":
            load.count_links(now, {LinkId(dpid, port): more * now for port in ports})
        elif step == "update":
            load.update(now, capacity)
        elif step == "forget":
            load.forget(
                {PortRef(d, port) for d, switch in FABRIC.switches.items() for port in switch.ports if d != dpid}
            )
        else:
            assert dict(load.figures(FABRIC, background_of(load))) == figures_one_by_one(load)
    known = background_of(load)
    assert dict(load.figures(FABRIC, known)) == figures_one_by_one(load)
    assert load.figures(FABRIC, known) is load.figures(FABRIC, known)


def test_figures_of_another_fabric_are_of_its_links(load: LinkLoad) -> None:
    run(load, range(20), 9e5, 4e5)
    at_host = next(iter(FABRIC.hosts.values())).uplink
    load.count_links(20, {at_host: 100})
    before = load.figures(FABRIC, background_of(load))
    fewer = replace(FABRIC, hosts={})
    assert load.figures(fewer, background_of(load)).keys() == {LINK}
    assert before.keys() == {LINK, at_host}, "what was published stays as it was"
    assert load.figures(fewer, background_of(load))[LINK].bytes_total == int(9e5 / 8 * 18)


def test_only_counters_that_no_rule_is_wanted_for_are_forgotten_when_they_are_not_read_any_more(load: LinkLoad) -> None:
    others = {Counted("10.0.0.3", f"10.0.1.{number}"): 1 for number in range(5)}
    load.count_flows(0, others)
    run(load, range(6), 8e5, 8e5)
    assert load._flows.row_of.keys() == {FLOW, *others}
    for now in range(6, 60, 2):
        updated(load, now)
    assert load._flows.row_of.keys() == {FLOW}, "its rule is wanted, so its counters are kept though they are not read"
