"""Background (traffic of no job) beside jobs that send in bursts, with late counters and elephants (large flows).

Three leaves send over one uplink and one downlink. Leaves read the bytes of flows from their datapath twice a second.
Packets wait in queues, and switches are not polled at exactly the same time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from controller.fabric.counter_samples import Counted
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import Dpid, LinkId, PortNo
from tests.support.link_figures import background_of
from tests.support.long_cases import with_long

RATE = 1e6
STEP_S = 0.02
POLL_S = 2.0
UP, DOWN = LinkId(Dpid(1), PortNo(1)), LinkId(Dpid(9), PortNo(1))
CAPACITY = {UP: RATE, DOWN: RATE}
QUEUED_S = {UP: 0.04, DOWN: 0.08}
FLOWS = {
    Counted("10.0.1.1", "10.0.2.1"): (Dpid(1), (UP, DOWN)),
    Counted("10.0.1.2", "10.0.2.2"): (Dpid(1), (UP,)),
    Counted("10.0.3.1", "10.0.2.3"): (Dpid(3), (DOWN,)),
}
READ_WITHIN_S = 0.03
"""Seconds within which all switches are polled."""


@dataclass
class Bursts:
    """Flows that send in each iteration for a part of the time, at the rate that their links leave them.

    ``elephants``: begin, end and links of each large flow, whose bytes no rule counts.
    ``missed``: share of polls that fail."""

    seed: int
    elephants: list[tuple[float, float, tuple[LinkId, ...]]] = field(default_factory=list)
    mice: bool = False
    missed: float = 0.0
    now: float = 0.0

    def __post_init__(self) -> None:
        draw = self.draw = random.Random(self.seed)
        self.load = LinkLoad(6, 0.1)
        self.load.routes_changed(0, lambda: {"job": {flow: (frozenset(links),) for flow, (_, links) in FLOWS.items()}})
        iteration_s = draw.choice([0.1, 0.3, 0.7, 1.0, 1.3, 2.0, 2.7, 4.0, 5.0])
        same = draw.random() < 0.5
        self.pattern = {
            flow: (
                iteration_s if same else draw.choice([0.5, 1.9, 3.0]),
                draw.choice([0.2, 0.5, 0.8, 1.0]),
                draw.random(),
            )
            for flow in FLOWS
        }
        self.dumped_at = {Dpid(1): draw.random() / 2, Dpid(3): draw.random() / 2}
        self.sent: dict[Counted, list[float]] = {flow: [0.0] for flow in FLOWS}
        self.strays: dict[LinkId, list[float]] = {link: [0.0] for link in CAPACITY}

    def is_on(self, flow: Counted) -> bool:
        iteration_s, duty, offset = self.pattern[flow]
        return (self.now / iteration_s + offset) % 1 < duty

    def step(self) -> None:
        on = [flow for flow in FLOWS if self.is_on(flow)]
        large = [links for begin, end, links in self.elephants if begin <= self.now < end]
        users = {
            link: sum(link in FLOWS[flow][1] for flow in on) + sum(link in links for links in large)
            for link in CAPACITY
        }
        for flow in FLOWS:
            rate = min(RATE / users[link] for link in FLOWS[flow][1]) if flow in on else 0.0
            self.sent[flow].append(self.sent[flow][-1] + rate / 8 * STEP_S)
        for link in CAPACITY:
            rate = sum(RATE / max(users[at] for at in links) for links in large if link in links)
            rate += self.draw.choice([0.25, *[0] * 9]) * RATE if self.mice else 0.0
            self.strays[link].append(self.strays[link][-1] + rate / 8 * STEP_S)
        self.now += STEP_S

    def carried(self, link: LinkId, at: float) -> int:
        place = max(0, round((at - QUEUED_S[link]) / STEP_S))
        flows = sum(self.sent[flow][place] for flow, (_, links) in FLOWS.items() if link in links)
        return int(flows + self.strays[link][place])

    def counted(self, flow: Counted, at: float) -> int:
        """Return the flow's bytes when the leaf last read them from its datapath before ``at``."""
        since = (at - self.dumped_at[FLOWS[flow][0]]) % 0.5
        return int(self.sent[flow][max(0, round((at - since) / STEP_S))])

    def strayed_bps(self, link: LinkId, at: float) -> float:
        """Return the link's rate of bytes that no rule counts, over the two polling intervals before ``at``."""
        begin, end = round((at - 2 * POLL_S) / STEP_S), round(at / STEP_S)
        return 8 * (self.strays[link][end] - self.strays[link][begin]) / (2 * POLL_S)

    def poll(self) -> dict[LinkId, float]:
        """Advance to the next poll, and return the background that it shows."""
        while self.now % POLL_S > STEP_S / 2 or not self.now:
            self.step()
            self.now = round(self.now, 6)
        at = {dpid: self.now - self.draw.random() * READ_WITHIN_S for dpid in (Dpid(1), Dpid(3), Dpid(9))}
        at = {dpid: moment for dpid, moment in at.items() if self.draw.random() >= self.missed}
        for link in (link for link in CAPACITY if link.dpid in at):
            self.load.count_links(at[link.dpid], {link: self.carried(link, at[link.dpid])})
        for dpid in at.keys() - {Dpid(9)}:
            totals = {flow: self.counted(flow, at[dpid]) for flow, (of, _) in FLOWS.items() if of == dpid}
            self.load.count_flows(at[dpid], totals)
        self.load.update(self.now, CAPACITY)
        self.step()
        self.now = round(self.now, 6)
        is_counted = self.load.measured.counted == {flow[:2] for flow in FLOWS}
        return dict(background_of(self.load)) if is_counted else {}  # ``test_background`` tests earlier polls


@pytest.mark.parametrize("missed", [0.0, 0.2])
@pytest.mark.parametrize("seed", with_long(range(5), range(24)))
def test_bursts_of_jobs_are_no_background_though_their_counters_lag_and_readings_fail(seed: int, missed: float) -> None:
    bursts = Bursts(seed, missed=missed)
    assert [bursts.poll() for _ in range(40)] == [{}] * 40
    assert missed or len(bursts.load.measured.counted) == len(FLOWS)


@pytest.mark.parametrize("seed", with_long(range(4), range(10)))
def test_an_elephant_is_known_with_the_second_reading_and_gone_with_the_second(seed: int) -> None:
    """The elephant begins at any time between two polls, whatever the job does meanwhile."""
    begin = 20 + random.Random(seed).random() * POLL_S
    end = begin + 20
    bursts = Bursts(seed, elephants=[(begin, end, (UP, DOWN))])
    polls = [(bursts.poll(), bursts.now) for _ in range(30)]

    def between(first: float, last: float) -> list[tuple[dict[LinkId, float], float]]:
        found = [(background, at) for background, at in polls if first <= at < last]
        assert found
        return found

    for background, _ in between(0, begin) + between(end + 4 * POLL_S, bursts.now + POLL_S):
        assert background == {}
    for background, at in between(begin + 2 * POLL_S, end):
        assert background == {link: pytest.approx(bursts.strayed_bps(link, at), abs=0.1 * RATE) for link in CAPACITY}
    for background, _ in between(end + 2 * POLL_S, end + 4 * POLL_S):
        assert max(background.values(), default=0.0) < 0.2 * RATE, "some readings of before still prove a little"


@pytest.mark.parametrize("seed", with_long(range(2), range(4)))
def test_mice_that_come_and_go_are_noise(seed: int) -> None:
    bursts = Bursts(seed, mice=True)
    assert [bursts.poll() for _ in range(40)] == [{}] * 40
