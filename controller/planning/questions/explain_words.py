"""What an ``Explanation`` says, in sentences for people and in fields for programs.

In: the facts, and the names of links and switches. Out: text and plain data; the fields are an interface
(docs/reference/json-output.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from controller.fabric.topology import Dpid, LinkId
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.questions.explain import BusyLink, Explanation, Option, Verdict
from controller.planning.questions.leaf_cuts import LeafCut

MEASURED_TOLERANCE = 0.1
"""By how much (relative) a measured efficiency may miss the predicted one before that is worth a word."""


class Naming(Protocol):
    """What the parts of the fabric are called."""

    def link(self, link_id: LinkId, /) -> str: ...
    def switch(self, dpid: Dpid, /) -> str: ...


def sentences(found: Explanation, names: Naming) -> tuple[str, ...]:
    """Whether it is the network, where and with whom, what routing can gain, what splitting could, what was
    measured."""
    return tuple(
        sentence
        for sentence in (
            _whether(found),
            _where(found, names),
            _gain(found, names),
            _splitting(found),
            _measured(found),
        )
        if sentence
    )


def fields(found: Explanation, names: Naming) -> dict[str, Any]:
    """Levels are factors >= 1, loads and efficiencies shares. ``best``, ``split``, ``cut`` and ``efficiency_measured``
    are left out when there are none."""
    given = {
        "job_id": found.job_id,
        "verdict": found.verdict.value,
        "answer": list(sentences(found, names)),
        "level": found.level,
        "efficiency_predicted": found.predicted,
        "efficiency_measured": found.measured,
        "least_level": found.alone,
        "nic_level": found.nic_level,
        "flows": found.flows,
        "flows_inside_a_leaf": found.inside,
        "flows_hashed": found.hashed,
        "flows_without_a_path": found.lost,
        "equally_full_links": found.equally_full,
        "fullest_links": [_link_fields(link, names) for link in found.links],
        "cut": _cut_fields(found.cut, names) if found.cut else None,
        "best": _option_fields(found.best) if found.best else None,
        "split": _option_fields(found.split) if found.split else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _link_fields(busy: BusyLink, names: Naming) -> dict[str, Any]:
    return {
        "link": names.link(busy.link),
        "nic": busy.nic,
        "load": busy.load,
        "background": busy.background,
        "jobs": [{"job_id": share.job_id, "flows": share.flows, "load": share.load} for share in busy.shares],
    }


def _cut_fields(cut: LeafCut, names: Naming) -> dict[str, Any]:
    other = {} if cut.other is None else {"other_leaf": names.switch(cut.other)}
    return {
        "leaf": names.switch(cut.leaf),
        **other,
        "direction": "out" if cut.outward else "in",
        "links": cut.links,
        "failed": cut.failed,
        "fluid_level": cut.fluid,
        "whole_level": cut.whole,
        "jobs": [{"job_id": job, "flows": flows} for job, flows in cut.flows],
    }


def _option_fields(option: Option) -> dict[str, Any]:
    return {
        "level": option.level,
        "worst_level": option.worst,
        "worst_bound": option.bound,
        "certificate": option.certificate,
        "best_for_all": option.best_for_all,
        "moves": option.moves,
        "most_pieces": option.most_pieces,
    }


# ---- sentences


def _whether(found: Explanation) -> str:
    job, level = found.job_id, found.level
    if found.verdict is Verdict.CUT_OFF:
        lost = _count(found.lost, "flow has", "flows have")
        others = found.flows - found.lost
        rest = f" To the other {others:,} the network gives a level of {level:.2f}." if others else ""
        return f"The network stops {job}: {lost} no path at all.{rest}"
    if found.verdict is Verdict.NOTHING:
        inside = " All of its flows stay inside a leaf." if found.inside == found.flows else ""
        return (
            f"The network is not what slows {job}: none of its links is asked for more than it carries, so it "
            f"communicates as fast as its own NICs allow (level {level:.2f}).{inside}"
        )
    nic = found.verdict is Verdict.NIC
    what = f"A NIC that it shares slows {job}, not the fabric" if nic else f"The network slows {job}"
    mean = ", on average over hash draws" if found.hashed else ""
    return (
        f"{what}: its communication takes up to {level:.2f} times as long as on an idle fabric{mean} "
        f"(efficiency {found.predicted:.1%})."
    )


def _where(found: Explanation, names: Naming) -> str:
    if found.level <= 1 + LEVEL_TOLERANCE or not found.links:
        return ""
    worst = found.links[0]
    if worst.load < found.level * (1 - LEVEL_TOLERANCE):
        hashed = _count(found.hashed, "of its flows is", "of its flows are")
        return f"{hashed} hashed: on which links they meet others is up to the switches."
    own = sum(share.flows for share in worst.shares if share.job_id == found.job_id)
    others = [f"{share.flows} of {share.job_id}" for share in worst.shares if share.job_id != found.job_id]
    who = f"{own} of its own flows{' alone' if own > 1 and not others else ''}"
    taken = f"; traffic that nobody announced takes {worst.background:.0%} of it" if worst.background >= 0.01 else ""
    many = f" (one of {found.equally_full:,})" if found.equally_full > 1 else ""
    return (
        f"Its fullest link is {names.link(worst.link)}{many}, asked for {worst.load:.2f} times what it carries by "
        f"{_listed([who, *others])}{taken}."
    )


def _gain(found: Explanation, names: Naming) -> str:
    best = found.best
    if found.verdict is Verdict.CUT_OFF:
        return "Routing can gain nothing before cables or switches are repaired."
    if found.verdict is Verdict.NOTHING or best is None:
        return "Routing can gain nothing."
    if found.verdict is Verdict.NIC:
        return "Routing can gain nothing: a NIC carries the same whatever the routes."
    if found.verdict is Verdict.FABRIC:
        return f"Routing can gain nothing. {_limit(found, found.level, names)}"
    if found.verdict is Verdict.ROUTING:
        moved = f", with {_count(best.moves, 'flow', 'flows')} moved" if best.moves else ""
        return (
            f"Routing can gain {1 - best.level / found.level:.0%}: the planner's routes take its level to "
            f"{best.level:.2f}{moved}. {_limit(found, best.level, names)}"
        )
    return (
        "Whether routing can gain anything is open: the planner found nothing better in its time, and only levels "
        f"below {found.alone:.2f} are ruled out."
    )


def _limit(found: Explanation, level: float, names: Naming) -> str:
    """Why the job's level is not smaller."""
    reached = level * (1 - LEVEL_TOLERANCE)
    if level <= 1 + LEVEL_TOLERANCE:
        return "That is what its own NICs allow."
    if found.nic_level >= reached:
        return "What is left is a NIC that it shares, which carries the same whatever the routes."
    why = _cut_reason(found, found.cut, reached, names) if found.cut and found.cut.level >= reached else ""
    if found.alone >= reached:
        return why or "No routes take it lower, even if it were alone."
    if found.best and found.best.best_for_all:
        return f"{why} Routes that are better for it are worse for another job than the planner's.".lstrip()
    return f"{why} Only levels below {found.alone:.2f} are ruled out.".lstrip()


def _cut_reason(found: Explanation, cut: LeafCut, reached: float, names: Naming) -> str:
    flows = sum(count for _, count in cut.flows)
    others = [job for job, _ in cut.flows if job != found.job_id]
    mixed = f" (those of {_listed(others)} among them)" if others else ""
    where, verb = names.switch(cut.leaf), "sends" if cut.outward else "receives"
    whole = "" if cut.fluid >= reached else "whole "
    what = f"{where} {verb} {_count(flows, f'{whole}flow', f'{whole}flows')}{mixed}"
    links, leads = _count(cut.links, "link", "links"), "leads" if cut.links == 1 else "lead"
    if cut.other is None:
        failed = f" ({cut.failed} more {_have(cut.failed)} failed)" if cut.failed else ""
        over = f"{what} over {links}{failed}"
    elif cut.outward:
        over = f"{what} to {names.switch(cut.other)} over the {links} that still {leads} there"
    else:
        over = f"{what} from {names.switch(cut.other)} over the {links} that still {leads} here"
    if cut.fluid >= reached:
        return f"{over}: {cut.fluid:.2f} times what all of these carry."
    return f"{over}: one of these is asked for {cut.whole:.2f} times what it carries, whatever the routes."


def _splitting(found: Explanation) -> str:
    split, best = found.split, found.best
    if split is None or best is None or found.verdict in (Verdict.NIC, Verdict.CUT_OFF):
        return ""
    unsplit = min(found.level, best.level)
    if split.level < unsplit * (1 - LEVEL_TOLERANCE):
        proven = ", which is proven best for all jobs together" if split.best_for_all else ""
        return (
            f"Splitting flows would gain {1 - split.level / unsplit:.0%}: level {split.level:.2f} if all jobs' flows "
            f"may be cut, into at most {split.most_pieces} pieces each{proven}."
        )
    if split.best_for_all:
        return "Splitting flows would gain nothing either."
    return f"The planner gained nothing by splitting flows; only levels below {split.bound:.2f} are ruled out."


def _measured(found: Explanation) -> str:
    measured, predicted = found.measured, found.predicted
    if measured is None:
        return ""
    if measured < predicted * (1 - MEASURED_TOLERANCE):
        return (
            f"Measured is an efficiency of {measured:.1%}, predicted are {predicted:.1%}: the difference is not the "
            "routing. Look for slow ranks, lost packets, or traffic that nobody announced."
        )
    if measured > predicted * (1 + MEASURED_TOLERANCE):
        return (
            f"Measured is an efficiency of {measured:.1%}, better than the predicted {predicted:.1%}: the jobs that it "
            "shares links with do not always send when it does."
        )
    return f"Measured is an efficiency of {measured:.1%}, about as predicted."


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _listed(items: Sequence[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
