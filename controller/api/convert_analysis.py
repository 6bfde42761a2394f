"""The converter for ``Explain`` and ``WhatIf``, beside ``convert``.

In from the wire: requests, checked. Out to the wire: results of ``planning.analysis``, with their answers in sentences;
levels in them have two decimals. Parts of results have the fields of their messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.fabric.drains import MAX_NAMES
from controller.fabric.topology import Fabric
from controller.planning.analysis.circuits import circuits_named
from controller.planning.analysis.requests import WhatIf
from controller.planning.analysis.results import (
    LEAST_BACKGROUND,
    Case,
    FailureAnalysis,
    JobAnalysis,
    LeafCut,
    Outcome,
    Verdict,
    Wired,
)
from controller.planning.efficiency import LEVEL_TOLERANCE
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.mapping import message_of, names, number_of, seconds, word_of
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind

WITHIN_S = 60.0
MOST_S = 120.0
"""Less than clients wait."""
MAX_KINDS = 16
"""In one request; a kind that is named twice counts once."""
REPLACED = "This is until the controller has made other circuits in place of those that are lost."
MEASURED_TOLERANCE = 0.1
"""A measured efficiency that differs by less (relative) counts as predicted."""
_KINDS = {
    FailureKind.SPINE: ("switch without hosts", "switches without hosts"),
    FailureKind.CABLE: ("cable", "cables"),
    FailureKind.BUNDLE: ("bundle of cables", "bundles of cables"),
    FailureKind.PARTS: ("group of parts", "groups of parts"),
}


def what_if_request(request: pb.WhatIfRequest, fabric: Fabric) -> WhatIf:
    """``fabric``: whose circuits may be named. Raises ``InvalidInput``."""
    enum = pb.FailureKind.DESCRIPTOR
    if len(request.kinds) > MAX_KINDS:
        raise InvalidInput.of("kinds", f"at most {MAX_KINDS} are allowed (given: {len(request.kinds)})")
    words = [word_of(enum, kind) for kind in request.kinds]
    problems = [
        FieldProblem(f"kinds[{n}]", f"choose one of {', '.join(names(enum))} (given: {request.kinds[n]})")
        for n, word in enumerate(words)
        if word is None
    ]
    if words and request.names:
        problems.append(FieldProblem("names", "are instead of kinds: give one of them"))
    elif pb.FAILURE_KIND_PARTS in request.kinds:
        problems.append(FieldProblem("kinds", "FAILURE_KIND_PARTS needs names, and no kinds"))
    within_s = seconds(request.within) if request.HasField("within") else WITHIN_S
    if not 0 < within_s <= MOST_S:
        problems.append(FieldProblem("within", f"must be more than 0 and at most {MOST_S:g} s (given: {within_s:g} s)"))
    InvalidInput.refuse(problems)
    kinds = frozenset(map(FailureKind, filter(None, words))) or frozenset(FailureKind)
    given = dict.fromkeys(request.names)
    circuits = circuits_named(given.keys(), fabric) if len(given) <= MAX_NAMES else ()
    mean_circuits = {each.name for each in circuits}
    others = tuple(name for name in given if name not in mean_circuits)
    return WhatIf(kinds, request.top or None, within_s, others, circuits)


def explain_message(found: JobAnalysis) -> pb.ExplainResponse:
    sentences = (_whether(found), _where(found), _gain(found), _splitting(found), _measured(found))
    answer = filter(None, (*sentences, *_wired(found)))
    return message_of(pb.ExplainResponse, found, answer=answer)


def what_if_message(found: FailureAnalysis, circuits: bool = False) -> pb.WhatIfResponse:
    """``circuits``: some of what fails are such."""
    present = found.present
    planned = "" if found.pinned else "No flow is pinned now: these results are for the routes that would be planned."
    return pb.WhatIfResponse(
        answer=filter(
            None, (planned, _present(found), *_what_follows(found), REPLACED if circuits and found.felt else "")
        ),
        now=message_of(
            pb.NetworkLevels, present, bound=present.fluid_bound, ecmp_level=message_of(pb.EcmpLevels, present.ecmp)
        ),
        outcomes=map(_outcome, found.outcomes),
        failures=sum(len(case.failures) for case in (*found.felt, *found.unfelt)),
        cases=len(found.felt),
        unfelt=[message_of(pb.UnfeltFailures, case, failures=_names(case)) for case in found.unfelt],
    )


def _outcome(outcome: Outcome) -> pb.FailureOutcome:
    return message_of(
        pb.FailureOutcome,
        outcome,
        kind=number_of(pb.FailureKind.DESCRIPTOR, outcome.case.kind),
        example=outcome.example.name,
        failures=_names(outcome.case),
        bound=outcome.fluid_bound,
        ecmp_level=message_of(pb.EcmpLevels, outcome.ecmp) if outcome.ecmp else None,
        rerouted_fewest=outcome.rerouted[0],
        rerouted_most=outcome.rerouted[1],
    )


def _names(case: Case) -> list[str]:
    return [failure.name for failure in case.failures]


# ---- sentences about one job


def _whether(found: JobAnalysis) -> str:
    job, level = found.job_id, found.level
    if found.verdict is Verdict.CUT_OFF:
        lost = _count(found.flows_without_a_path, "flow has", "flows have")
        others = found.flows - found.flows_without_a_path
        rest = f" The level of the other {others:,} is {level:.2f}." if others else ""
        return f"The network stops {job}: {lost} no path.{rest}"
    if found.verdict is Verdict.NOTHING:
        inside = " All of its flows stay inside a leaf." if found.flows_inside_a_leaf == found.flows else ""
        return (
            f"The network does not slow {job}: none of its links is loaded above its capacity, so it communicates as "
            f"fast as its own NICs allow (level {level:.2f}).{inside}"
        )
    if found.wired and found.limited_by_circuits:
        forwarded = ", and servers forward for each other" if found.wired.flows_forwarded else ""
        return (
            f"{job} is limited by its {_count(found.wired.circuits, 'circuit', 'circuits')}; all of them work, and "
            f"nothing else is on the fullest. Its communication takes up to {level:.2f} times as long as its hosts' "
            f"ports alone would need, because a circuit leads to one server only{forwarded}."
        )
    nic = found.verdict is Verdict.NIC
    what = f"A NIC that it shares slows {job}, not the fabric" if nic else f"The network slows {job}"
    mean = ", on average over hash draws" if found.flows_hashed else ""
    efficiency = "" if found.efficiency_predicted is None else f" (efficiency {found.efficiency_predicted:.1%})"
    return f"{what}: its communication takes up to {level:.2f} times as long as on an idle fabric{mean}{efficiency}."


def _where(found: JobAnalysis) -> str:
    if found.level <= 1 + LEVEL_TOLERANCE or not found.fullest_links:
        return ""
    worst = found.fullest_links[0]
    what = "circuit" if found.limited_by_circuits else "link"
    if worst.load < found.level * (1 - LEVEL_TOLERANCE):
        hashed = _count(found.flows_hashed, "of its flows is hashed", "of its flows are hashed")
        return f"{hashed}: the switches choose the links."
    own = sum(share.flows for share in worst.jobs if share.job_id == found.job_id)
    others = [f"{share.flows} of {share.job_id}" for share in worst.jobs if share.job_id != found.job_id]
    flows = _listed([f"{own} of its own flows{' alone' if own > 1 and not others else ''}", *others])
    many = f" (one of {found.equally_full_links:,})" if found.equally_full_links > 1 else ""
    taken = f"; unannounced traffic takes {worst.background:.0%} of it" if worst.background >= LEAST_BACKGROUND else ""
    return f"Its fullest {what} is {worst.link}{many}, loaded to {worst.load:.2f} times its capacity by {flows}{taken}."


def _gain(found: JobAnalysis) -> str:
    best = found.best
    if found.verdict is Verdict.CUT_OFF:
        return "Routing can gain nothing before cables or switches are repaired."
    if found.verdict is Verdict.NOTHING or best is None:
        return "Routing can gain nothing."
    if found.verdict is Verdict.NIC:
        return "Routing can gain nothing: the load of a NIC does not depend on routes."
    if found.wired and found.limited_by_circuits and found.verdict in (Verdict.FABRIC, Verdict.UNPROVEN):
        return _gain_on_circuits(found.wired)
    if found.verdict is Verdict.FABRIC:
        return f"Routing can gain nothing. {_limit(found, found.level)}"
    if found.verdict is Verdict.ROUTING:
        moved = f", with {_count(best.moves, 'flow', 'flows')} moved" if best.moves else ""
        return (
            f"Routing can gain {1 - best.level / found.level:.0%}: the planner's routes reduce its level to "
            f"{best.level:.2f}{moved}{_way(best.cycles, best.first_level)}. {_limit(found, best.level)}"
        )
    return (
        "Whether routing can gain anything is open: the planner found nothing better within its time limit, and only "
        f"levels below {found.least_level:.2f} are ruled out."
    )


def _gain_on_circuits(wired: Wired) -> str:
    if wired.at_bound:
        return "Routing can gain nothing: by the model no routes on these circuits make an iteration shorter."
    return (
        "The planner found no better routes on these circuits. By the model no routes on them make an iteration more "
        f"than {1 - wired.bound_s / wired.iteration_s:.1%} shorter."
    )


def _way(cycles: int | None, first_level: float) -> str:
    if cycles is None:
        return ", which planning.max_moves does not allow"
    return f" in at most {cycles} planning cycles ({first_level:.2f} after the first)" if cycles > 1 else ""


def _limit(found: JobAnalysis, level: float) -> str:
    """Why the job's level is not smaller."""
    reached = level * (1 - LEVEL_TOLERANCE)
    if level <= 1 + LEVEL_TOLERANCE:
        return "That is what its own NICs allow."
    if found.nic_level >= reached:
        return "The rest is a NIC that it shares, whose load does not depend on routes."
    why = _cut_reason(found, found.cut, reached) if found.cut and found.cut.level >= reached else ""
    if found.least_level >= reached:
        return why or "No routes give it a smaller level, even if it were alone."
    if found.best and found.best.best_for_all:
        return f"{why} Any routes that are better for it are worse for another job than the planner's.".lstrip()
    return f"{why} Only levels below {found.least_level:.2f} are ruled out.".lstrip()


def _cut_reason(found: JobAnalysis, cut: LeafCut, reached: float) -> str:
    spread = cut.fluid_level >= reached
    flows = sum(job.flows for job in cut.jobs)
    others = [job.job_id for job in cut.jobs if job.job_id != found.job_id]
    mixed = f" (those of {_listed(others)} among them)" if others else ""
    verb, whole = "sends" if cut.direction == "out" else "receives", "" if spread else "whole "
    what = f"{cut.leaf} {verb} {_count(flows, f'{whole}flow', f'{whole}flows')}{mixed}"
    links = _count(cut.links, "link", "links")
    if cut.other_leaf is None:
        gone = [_count(cut.failed, "more has failed", "more have failed")] if cut.failed else []
        gone += [_count(cut.drained, "more is drained", "more are drained")] if cut.drained else []
        over = f"over {links}" + (f" ({', '.join(gone)})" if gone else "")
    else:
        to, there = ("to", "there") if cut.direction == "out" else ("from", "here")
        over = f"{to} {cut.other_leaf} over the {links} that still {'leads' if cut.links == 1 else 'lead'} {there}"
    if spread:
        return f"{what} {over}: {cut.fluid_level:.2f} times their capacity."
    return f"{what} {over}: with any routes one of these is loaded to {cut.whole_level:.2f} times its capacity."


def _splitting(found: JobAnalysis) -> str:
    split, best = found.split, found.best
    if split is None or best is None or found.verdict in (Verdict.NIC, Verdict.CUT_OFF):
        return ""
    unsplit = min(found.level, best.level)
    if split.level < unsplit * (1 - LEVEL_TOLERANCE):
        proven = ", which is proven best for all jobs together over shortest paths" if split.best_for_all else ""
        return (
            f"Splitting flows would gain {1 - split.level / unsplit:.0%}: level {split.level:.2f} if all jobs send "
            f"their flows in paced pieces, at most {split.most_pieces} of each{proven}."
        )
    if split.best_for_all:
        return "Splitting flows would gain nothing either."
    return f"The planner gained nothing by splitting flows; only levels below {split.worst_bound:.2f} are ruled out."


def _measured(found: JobAnalysis) -> str:
    measured, predicted = found.efficiency_measured, found.efficiency_predicted
    if found.verdict is Verdict.CUT_OFF:
        return ""
    if predicted is None:
        is_measured = "" if measured is None else f" The measured one is {measured:.1%}."
        return f"No efficiency is predicted: {found.withheld}.{is_measured}"
    if measured is None:
        return ""
    text = f"The measured efficiency is {measured:.1%}"
    if measured < predicted * (1 - MEASURED_TOLERANCE):
        return (
            f"{text}, the predicted one {predicted:.1%}: the difference is not the routing. Look for slow ranks, lost "
            "packets, or unannounced traffic."
        )
    if measured > predicted * (1 + MEASURED_TOLERANCE):
        return (
            f"{text}, better than the predicted {predicted:.1%}: the jobs that it shares links with do not always send "
            "when it does."
        )
    return f"{text}, about as predicted."


def _wired(found: JobAnalysis) -> tuple[str, ...]:
    """On which circuits, and whether it should be elsewhere."""
    wired = found.wired
    if wired is None:
        return ()
    circuits = _count(wired.circuits, "circuit", "circuits")
    if wired.unusable:
        circuits += f", of which {wired.unusable:,} cannot be used now"
    strategy = f"strategy {wired.strategy} on {circuits}" if wired.strategy else f"on {circuits}"
    forwarded = (
        f"other servers forward {wired.flows_forwarded:,} of its {_count(wired.flows, 'pinned flow', 'pinned flows')}, "
        f"over at most {wired.most_hops} circuits"
        if wired.flows_forwarded
        else "no server forwards any of its pinned flows"
    )
    return (
        f"It runs {strategy}: {forwarded}.",
        f"By the model an iteration takes {wired.iteration_s:.4g} s, no less than "
        f"{wired.bound_s:.4g} s with any routes on these circuits, and {wired.alternative_s:.4g} s on one switch of "
        "the same cost.",
    )


# ---- sentences about single failures


def _present(found: FailureAnalysis) -> str:
    now = found.present
    lost = f" {len(now.unrouted):,} flows have no path already." if now.unrouted else ""
    proven = _proven(now.level, now.bound)
    return f"Now the worst job's level is {now.level:.2f} ({proven}); under ECMP {now.ecmp.mean:.2f} on average.{lost}"


def _what_follows(found: FailureAnalysis) -> tuple[str, ...]:
    """From the failures; ``found`` is of all single ones, or of one of several parts."""
    if any(case.kind is FailureKind.PARTS for case in found.unfelt):
        return ("No flow uses what is named: without it nothing changes.",)
    if any(case.kind is FailureKind.PARTS for case in found.felt):
        return _worst(found), _lost(found)
    return _computed(found), _worst(found), _lost(found)


def _computed(found: FailureAnalysis) -> str:
    unfelt = sum(len(case.failures) for case in found.unfelt)
    if not found.felt:
        none = "There is nothing that can fail."
        return f"{_kinds(found.unfelt)} can fail, and no flow uses any." if unfelt else none
    spared = f"; {unfelt:,} more that no flow uses change nothing" if unfelt else ""
    bounded = sum(outcome.basis == "bound" for outcome in found.outcomes)
    late = f" The time was over before {_count(bounded, 'case was', 'cases were')} computed; only bounds are known."
    repaired = sum(outcome.repaired_only for outcome in found.outcomes)
    unplanned = (
        f" The time was over before {_count(repaired, 'case was', 'cases were')} planned: the level is that of the "
        "repair, and may be smaller when the part is named alone, or with more time (--within)."
    )
    return (
        f"{_kinds(found.felt)} can fail, in {_count(len(found.felt), 'case', 'cases')} (failures of interchangeable "
        f"switches are one case){spared}.{late if bounded else ''}{unplanned if repaired else ''}"
    )


def _worst(found: FailureAnalysis) -> str:
    if not found.outcomes:
        return ""
    worst = found.outcomes[0]
    alike = len(worst.case.failures) - 1
    which = f"{worst.example.name} (or {alike:,} like it)" if alike else worst.example.name
    named = worst.case.kind is FailureKind.PARTS
    begin = f"Without {which} the worst job has" if named else f"The worst is {which} with"
    if worst.level is None or worst.ecmp is None:
        return f"{begin} a level of at least {worst.bound:.2f}."
    way = _way(worst.cycles, worst.first_level or worst.level)
    planned = "after the repair" if worst.repaired_only else f"after planning{way}"
    return (
        f"{begin} a level of {worst.level:.2f} {planned} "
        f"({_proven(worst.level, worst.bound)}); under ECMP {worst.ecmp.mean:.2f} on average."
    )


def _lost(found: FailureAnalysis) -> str:
    cut = [outcome for outcome in found.outcomes if outcome.lost]
    if not cut:
        named = any(case.kind is FailureKind.PARTS for case in found.felt)
        return "All flows keep a path." if named else "No failure leaves a flow without a path."
    failures = sum(len(outcome.case.failures) for outcome in cut)
    most = max(len(outcome.lost) for outcome in cut)
    return f"{_count(failures, 'failure leaves', 'failures leave')} flows without a path, up to {most:,}."


def _proven(level: float, bound: float) -> str:
    if level <= bound * (1 + LEVEL_TOLERANCE):
        return "no routing is better"
    return f"at most {level / bound - 1:.1%} above the best"


def _kinds(cases: Sequence[Case]) -> str:
    number: Counter[FailureKind] = Counter()
    for case in cases:
        number[case.kind] += len(case.failures)
    return " and ".join(_count(count, *_KINDS[kind]) for kind, count in number.items())


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _listed(items: Sequence[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
