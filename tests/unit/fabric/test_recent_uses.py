"""The links that rules may use, kept job by job, equal the links derived from the whole history at once."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import chain

import pytest

from controller.fabric.counter_samples import Counted, RecentUses, Samples, Uses, UsesOf
from controller.fabric.topology import Dpid, LinkId, PortNo
from tests.support.long_cases import with_long

LINKS = [LinkId(Dpid(1), PortNo(n)) for n in range(6)]
RULES = [Counted(src, dst, part) for src in "abc" for dst in "abc" if src != dst for part in (None, 1)]
SPAN_S = 10.0


class Kept:
    """History of all announced uses of links by rules, and counter samples of some rules and links."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.history: list[tuple[float, UsesOf]] = []
        self.uses: dict[str, Uses] = {}
        self.links: Samples[LinkId] = Samples(SPAN_S)
        self.flows: Samples[Counted] = Samples(SPAN_S)
        self.recent = RecentUses(SPAN_S)

    def change(self) -> None:
        """Give a job other rules, perhaps some of another job."""
        draw = self.draw
        name = draw.choice("xyz")
        mine = draw.sample(RULES, draw.randrange(5))
        links = {what: apart(draw) for what in mine}
        others = {
            other: {what: sets for what, sets in of.items() if what not in links} if draw.random() < 0.7 else of
            for other, of in self.uses.items()
            if other != name
        }
        same = {other: of if of != self.uses[other] else self.uses[other] for other, of in others.items()}
        self.uses = {**same, name: links} if draw.random() < 0.8 else same
        before = flat(self.history[-1][1]) if self.history else {}
        earlier = {what for at, uses in self.kept()[:-1] for what in flat(uses)} - before.keys()
        self.history.append((self.now, dict(self.uses)))
        found = self.recent.change(self.now, dict(self.uses))
        pairs = {what[:2] for what in before}
        appeared = flat(self.uses).keys() - before.keys()
        assert {*found.again} == {what for what in appeared & earlier if what[:2] not in pairs}
        assert {*found.anew} == {what for what in appeared if what[:2] in pairs}
        self.flows.begin_anew(found.again)

    def kept(self) -> list[tuple[float, UsesOf]]:
        """Return the uses that have lasted into the window, each with the time at which they began."""
        later = [at for at, _ in self.history[1:]] if self.history else []
        return [
            one for one, ended in zip(self.history, [*later, self.now + 1], strict=False) if ended > self.now - SPAN_S
        ]

    def expected(self) -> Mapping[Counted, Mapping[LinkId, float]]:
        """Return the time until which each rule may have used each link."""
        may: dict[Counted, dict[LinkId, float]] = {}
        kept = self.kept()
        for (_, uses), ended in zip(kept, [*(at for at, _ in kept[1:]), math.inf], strict=False):
            for of in uses.values():
                for what, sets in of.items():
                    may.setdefault(what, {}).update(dict.fromkeys(chain(*sets), ended))
        return may


def apart(draw: random.Random) -> tuple[frozenset[LinkId], ...]:
    """Return one or two sets without a link in common."""
    few = draw.sample(LINKS, 4)
    return tuple(map(frozenset, (few[:2], few[2:])[: draw.choice([1, 2])]))


def flat(uses: UsesOf) -> dict[Counted, object]:
    return {what: sets for of in uses.values() for what, sets in of.items()}


@pytest.mark.parametrize("seed", with_long(range(6), range(20)))
def test_users_are_those_of_all_uses_within_the_time(seed: int) -> None:
    kept = Kept(seed)
    for _ in range(60):
        kept.now += kept.draw.choice([0.0, 1.0, 4.0])
        kept.flows.forget(kept.recent.forget(kept.now))
        if kept.draw.random() < 0.6:
            kept.change()
        if kept.draw.random() < 0.5:
            kept.links.add(kept.now, dict.fromkeys(kept.draw.sample(LINKS, 3), 5))
            known = [what for what in kept.expected() if kept.draw.random() < 0.4]
            kept.flows.add(kept.now, dict.fromkeys(known, 7))
        users = kept.recent.users(kept.links, kept.flows)
        assert kept.recent.users(kept.links, kept.flows) is users
        rule_of = {row: what for what, row in kept.flows.row_of.items()}
        link_of = {row: link for link, row in kept.links.row_of.items()}
        expected, now = kept.expected(), flat(kept.uses)
        found = [(rule_of[f], link_of[n]) for f, n in zip(users.flows.tolist(), users.links.tolist(), strict=True)]
        assert len(found) == len({*found}), "each pair once"
        until = {(what, link): at for what, links in expected.items() for link, at in links.items()}
        assert dict(zip(found, users.until.tolist(), strict=True)) == {pair: until[pair] for pair in found}
        assert {*found} == {
            (what, link)
            for what, links in expected.items()
            for link in links
            if what in kept.flows.row_of and link in kept.links.row_of
        }
        assert {rule_of[row] for row in users.gone.tolist()} == (
            expected.keys() - now.keys()
        ) & kept.flows.row_of.keys()
        rows = {what: kept.flows.row_of.get(what, -1) for what in now}
        listed = sorted(zip(users.pairs, users.rows.tolist(), strict=True))
        assert sorted({*listed}) == sorted({(what[:2], row) for what, row in rows.items()})
        assert kept.recent.counted_pairs == {what[:2] for what in now}
        assert kept.flows.row_of.keys() <= expected.keys(), "what is not looked at any more is forgotten"
