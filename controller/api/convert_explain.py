"""Converter for ``Explain``: the result of ``planning.analysis`` for one job, with an answer in sentences.

Slowdowns in the sentences have two decimals. ``message_of`` copies fields, as in ``convert_analysis``.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.alarms import difference_text
from controller.api.convert import demand_message
from controller.demand.job_demand import DemandSource, Finding
from controller.planning.analysis.messages import LEAST_BACKGROUND, NOTICEABLE, JobAnalysis, LeafCut, Verdict
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from signalbox.jobs.reports import MOST_EFFICIENT
from signalbox.mapping import message_of
from signalbox.v1 import signalbox_pb2 as pb

MEASURED_TOLERANCE = 0.1
"""Relative difference below which a measured efficiency counts as equal to the predicted one."""


def explain_message(found: JobAnalysis, further: Sequence[str] = ()) -> pb.ExplainResponse:
    """Return the answer. ``further``: sentences that follow all others."""
    sentences = (
        _confirmed(found),
        _pace(found),
        _whether(found),
        _where(found),
        _collision(found),
        _gain(found),
        _pinning(found),
        _splitting(found),
        _measured(found),
    )
    answer = filter(None, (*sentences, *(found.arranged.sentences if found.arranged else ()), *further))
    demand = demand_message(found.demand) if found.demand else None
    return message_of(pb.ExplainResponse, found, answer=answer, demand=demand)


# ---- demand behind the answer


def _confirmed(found: JobAnalysis) -> str:
    """Return a warning if the answer is based on bytes that counters have not confirmed; else an empty text."""
    job, demand = f"job '{found.job_id}'", found.demand
    if demand is None:
        return ""
    source, announced = demand.source, demand.declared.keys()
    if demand.difference and demand.contradicted:
        wrong = difference_text(demand.difference)
        return f"The announcement of {job} is wrong: {wrong}. What follows rests on {_RESTS_ON[source]}."
    if demand.patterns > 1:
        now = f"pattern {demand.pattern}" if demand.pattern else "another pattern"
        rests_on = "this pattern" if demand.idle_phases else "all of these patterns"
        return (
            f"According to the counters of switches, job '{found.job_id}' changes between {demand.patterns} traffic "
            f"patterns, and sends {now} now. What follows rests on {rests_on}."
        )
    if source is DemandSource.MEASURED and announced:
        return (
            f"The routes of {job} are planned for the bytes that switches count, not for those that it announced. What "
            "follows rests on the counted bytes."
        )
    if source is DemandSource.DECLARED:
        return f"Counters have not yet confirmed the announcement of {job}. What follows rests on the announcement."
    if source is DemandSource.PROVISIONAL and demand.pairs <= announced:
        return (
            f"Job '{found.job_id}' announced its traffic as provisional, and counters have not yet confirmed it. "
            "What follows rests on the announcement."
        )
    if source is DemandSource.PROVISIONAL and announced:
        return (
            f"Job '{found.job_id}' sends on pairs of hosts that it did not announce; counters have not yet confirmed "
            "how much. What follows assumes that these pairs send equal bytes."
        )
    if source is DemandSource.PROVISIONAL:
        return (
            f"Counters show which hosts of {job} send to each other, but have not yet confirmed how much. What follows "
            "assumes that all these pairs of hosts send equal bytes."
        )
    return ""


_RESTS_ON = {
    DemandSource.DECLARED: "the announcement",
    DemandSource.CONFIRMED: "the announcement",
    DemandSource.MEASURED: "the bytes that switches count",
    DemandSource.PROVISIONAL: "the pairs of hosts that were seen to send",
    DemandSource.LEARNING: "no bytes, because too few are counted",
}


def _pace(found: JobAnalysis) -> str:
    findings = found.demand.difference.findings if found.demand and found.demand.difference else ()
    if Finding.SILENT in findings:
        return f"Job '{found.job_id}' has stopped sending."
    if Finding.SLOWER in findings:
        return f"The current iteration of job '{found.job_id}' takes longer than the iterations before it."
    return ""


# ---- causes of the slowdown


def _whether(found: JobAnalysis) -> str:
    job, slowdown = f"job '{found.job_id}'", found.slowdown
    if found.verdict is Verdict.CUT_OFF:
        lost = count(found.flows_without_a_path, "flow has", "flows have")
        others = found.flows - found.flows_without_a_path
        rest = f" The slowdown of the other {count(others, 'flow', 'flows')} is {slowdown:.2f}." if others else ""
        return f"The network stops {job}: {lost} no path.{rest}"
    if found.verdict is Verdict.NOTHING and slowdown > 1 + SLOWDOWN_TOLERANCE:
        return (
            f"The network does not slow {job} noticeably: its communication takes up to {slowdown:.2f} times as long "
            f"as on an idle fabric, and an increase of less than {NOTICEABLE:.0%} is not noticeable."
        )
    if found.verdict is Verdict.NOTHING:
        inside = " All flows of the job stay inside a leaf." if found.flows_inside_a_leaf == found.flows else ""
        return (
            f"The network does not slow {job}: no link that the job uses is loaded above its capacity, so the job "
            f"communicates as fast as its NICs allow (slowdown {slowdown:.2f}).{inside}"
        )
    if found.arranged and found.arranged.limits:
        return found.arranged.limits
    what = _nic_cause(found) if found.verdict is Verdict.NIC else f"The network slows {job}"
    mean = ", on average over hash draws" if found.flows_hashed else ""
    efficiency = "" if found.efficiency_predicted is None else f" (efficiency {found.efficiency_predicted:.1%})"
    longer = f"its communication takes up to {slowdown:.2f} times as long as on an idle fabric{mean}{efficiency}"
    return f"{what}: {longer}."


def _nic_cause(found: JobAnalysis) -> str:
    nic = found.fullest_nic
    if others := _other_jobs_at_nic(found):
        return f"Job '{found.job_id}' is slowed by a NIC that it shares with {listed(others)}, not by the fabric"
    if nic and nic.background >= LEAST_BACKGROUND:
        return f"Job '{found.job_id}' is slowed by unannounced traffic at one of its NICs, not by the fabric"
    at = nic.link if nic else "of a host"
    return f"Job '{found.job_id}' is slowed at the NIC {at} by its own flows, which alone use this NIC"


def _other_jobs_at_nic(found: JobAnalysis) -> list[str]:
    on_nic = found.fullest_nic.jobs if found.fullest_nic else ()
    return [f"job '{share.job_id}'" for share in on_nic if share.job_id != found.job_id]


def _where(found: JobAnalysis) -> str:
    if found.slowdown <= 1 + NOTICEABLE or not found.fullest_links:
        return ""
    worst = found.fullest_links[0]
    what = found.arranged.link if found.arranged else "link"
    if worst.load < found.slowdown * (1 - SLOWDOWN_TOLERANCE):
        hashed = count(found.flows_hashed, "flow of the job is hashed", "flows of the job are hashed")
        return f"{hashed}: switches choose the links of hashed flows."
    own = sum(share.flows for share in worst.jobs if share.job_id == found.job_id)
    others = [f"{share.flows} of job '{share.job_id}'" for share in worst.jobs if share.job_id != found.job_id]
    own_flows = count(own, "flow", "flows")
    flows = listed([f"{own_flows} of the job{' alone' if own > 1 and not others else ''}", *others])
    many = f" (one of {found.equally_full_links:,} equally full)" if found.equally_full_links > 1 else ""
    taken = f"; unannounced traffic takes {worst.background:.0%} of the capacity"
    return (
        f"The fullest {what} of the job is {worst.link}{many}. It is loaded to {worst.load:.2f} times its capacity by "
        f"{flows}{taken if worst.background >= LEAST_BACKGROUND else ''}."
    )


def _collision(found: JobAnalysis) -> str:
    """Return the link on which the job's own flows collide, when they slow it noticeably."""
    own = found.own_link
    flows = sum(share.flows for share in own.jobs if share.job_id == found.job_id) if own else 0
    if own is None or flows < 2 or (alone := own.load_of(found.job_id)) <= 1 + NOTICEABLE:
        return ""
    every = " No routes avoid this." if alone <= found.least_slowdown * (1 + SLOWDOWN_TOLERANCE) else ""
    return (
        f"Job '{found.job_id}' collides with itself on {own.link}: the {flows:,} flows of the job there load it to "
        f"{alone:.2f} times its capacity even while no other job sends.{every}"
    )


def _gain(found: JobAnalysis) -> str:
    best = found.best
    if found.verdict is Verdict.CUT_OFF:
        return "Routing can gain nothing until cables or switches are repaired."
    if found.verdict is Verdict.NOTHING and found.slowdown > 1 + SLOWDOWN_TOLERANCE:
        return f"Routing can gain {1 - 1 / found.slowdown:.1%} at most."
    if found.verdict is Verdict.NOTHING or best is None:
        return "Routing can gain nothing."
    if found.verdict is Verdict.NIC:
        return "Routing can gain nothing: the load of a NIC does not depend on routes."
    if found.arranged and found.arranged.gain and found.verdict in (Verdict.FABRIC, Verdict.UNPROVEN):
        return found.arranged.gain
    if found.verdict is Verdict.FABRIC:
        return f"Routing can gain nothing. {_limit(found, found.slowdown)}"
    if found.verdict is Verdict.ROUTING:
        moved = f", with {count(best.moves, 'flow', 'flows')} moved" if best.moves else ""
        return (
            f"Routing can gain {1 - best.slowdown / found.slowdown:.0%}: the planner's routes reduce the job's "
            f"slowdown to {best.slowdown:.2f}{moved}{in_cycles(best.cycles, best.first_slowdown)}. "
            f"{_limit(found, best.slowdown)}"
        )
    return (
        "Whether routing can gain anything is open: the planner found nothing better within its time limit, and only "
        f"slowdowns below {found.least_slowdown:.2f} are proven impossible."
    )


def in_cycles(cycles: int | None, first_slowdown: float) -> str:
    if cycles is None:
        return ", which planning.max_moves does not allow"
    return f" in at most {cycles} planning cycles ({first_slowdown:.2f} after the first)" if cycles > 1 else ""


def _limit(found: JobAnalysis, slowdown: float) -> str:
    reached = slowdown * (1 - SLOWDOWN_TOLERANCE)
    if slowdown <= 1 + SLOWDOWN_TOLERANCE:
        return "The job's NICs allow no smaller slowdown."
    if found.nic_slowdown >= reached:
        nic = "a NIC that the job shares with others" if _other_jobs_at_nic(found) else "one of the job's NICs"
        return f"The remaining slowdown comes from {nic}, whose load does not depend on routes."
    why = _cut_reason(found, found.cut, reached) if found.cut and found.cut.slowdown >= reached else ""
    if found.least_slowdown >= reached:
        return why or "No routes give the job a smaller slowdown, even if no other job sent anything."
    if found.best and found.best.best_for_all:
        return f"{why} Any routes that are better for this job than the planner's are worse for another job.".lstrip()
    return f"{why} Only slowdowns below {found.least_slowdown:.2f} are proven impossible.".lstrip()


def _cut_reason(found: JobAnalysis, cut: LeafCut, reached: float) -> str:
    spread = cut.fluid_slowdown >= reached
    flows = sum(job.flows for job in cut.jobs)
    others = [f"job '{job.job_id}'" for job in cut.jobs if job.job_id != found.job_id]
    mixed = f" (including those of {listed(others)})" if others else ""
    verb, whole = "sends" if cut.direction == "out" else "receives", "" if spread or cut.max_subflows > 1 else "whole "
    sent = count(flows, f"{whole}flow", f"{whole}flows")
    if not spread and cut.subflows > flows:
        sent = f"{count(flows, 'flow', 'flows')} in {cut.subflows:,} subflows"
    if not spread and cut.max_subflows > 1:
        sent += f" of at most {cut.max_subflows} subflows"
    what = f"{cut.leaf} {verb} {sent}{mixed}"
    links = count(cut.links, "link", "links")
    if cut.other_leaf is None:
        gone = [count(cut.failed, "more has failed", "more have failed")] if cut.failed else []
        gone += [count(cut.drained, "more is drained", "more are drained")] if cut.drained else []
        over = f"over {links}" + (f" ({', '.join(gone)})" if gone else "")
    else:
        to, there = ("to", "there") if cut.direction == "out" else ("from", "here")
        over = f"{to} {cut.other_leaf} over the {links} that still {'leads' if cut.links == 1 else 'lead'} {there}"
    if spread:
        return f"{what} {over}: {cut.fluid_slowdown:.2f} times their capacity."
    load = f"{cut.whole_slowdown:.2f} times its capacity"
    return f"{what} {over}: whatever the routes, one of these links is loaded to {load}."


def _pinning(found: JobAnalysis) -> str:
    if not found.pinning_gains_nothing or found.hashed_slowdown is None or found.verdict is Verdict.CUT_OFF:
        return ""
    best = min(found.slowdown, found.best.slowdown) if found.best else found.slowdown
    return (
        f"Pinning gains nothing for job '{found.job_id}' now: its slowdown is {found.hashed_slowdown:.2f} on average "
        f"if the switches hash its flows, and {best:.2f} with the best routes that are known."
    )


def _splitting(found: JobAnalysis) -> str:
    split, best = found.split, found.best
    if split is None or best is None or found.verdict in (Verdict.NIC, Verdict.CUT_OFF):
        return ""
    unsplit = min(found.slowdown, best.slowdown)
    if split.slowdown < unsplit * (1 - SLOWDOWN_TOLERANCE):
        proven = ", which is proven best for all jobs together over shortest paths" if split.best_for_all else ""
        return (
            f"Splitting flows would gain {1 - split.slowdown / unsplit:.0%}: slowdown {split.slowdown:.2f} if all jobs "
            f"send their flows in paced subflows, at most {split.most_subflows} per flow{proven}."
        )
    if split.best_for_all:
        return "Splitting flows would gain nothing either."
    return (
        f"The planner gained nothing by splitting flows; only slowdowns below {split.worst_bound:.2f} are impossible."
    )


def _measured(found: JobAnalysis) -> str:
    measured, predicted = found.efficiency_measured, found.efficiency_predicted
    if found.verdict is Verdict.CUT_OFF:
        return ""
    said = [] if predicted is not None else [f"No efficiency is predicted: {found.withheld}."]
    if measured is None and found.awaits_iterations:
        said.append(
            "No efficiency is measured yet: the job has reported no iteration that began after the last change of its "
            "routes or planned bytes."
        )
    elif measured is not None:
        said.append(_compared(found, measured, predicted))
    return " ".join(said)


def _compared(found: JobAnalysis, measured: float, predicted: float | None) -> str:
    demand = found.demand
    of = " (for the bytes that switches count)" if demand and demand.source is DemandSource.MEASURED else ""
    text = f"The measured efficiency{of} is {measured:.1%}"
    if measured > MOST_EFFICIENT:
        why = _too_many_bytes(found, measured)
        return f"{text}, which is not possible: {why}, or the job reports its iterations as too short."
    if predicted is None:
        return f"{text}."
    least = predicted * (1 - MEASURED_TOLERANCE)
    expected = f"the predicted efficiency {predicted:.1%}"
    if measured < least:
        usual = found.efficiency_usual
        if usual is None:
            return f"{text}, {expected}. First iterations are often slow: ask again in a while."
        if usual >= least:
            return (
                f"{text}, {expected}: some slow iterations, such as the first, reduce the mean. The efficiency of most "
                f"iterations is {usual:.1%}."
            )
        if demand and not demand.source.counted:
            return (
                f"{text}, {expected}. The job may send more than it announced: counters will show whether it does. "
                "Otherwise look for slow ranks, lost packets, or unannounced traffic."
            )
        return (
            f"{text}, {expected}: the routes do not explain this. Look for slow ranks, lost packets, or unannounced "
            "traffic."
        )
    if measured > predicted * (1 + MEASURED_TOLERANCE):
        return (
            f"{text}, better than the predicted {predicted:.1%}: the jobs on the same links do not always send at the "
            "same time."
        )
    return f"{text}, about as predicted."


def _too_many_bytes(found: JobAnalysis, measured: float) -> str:
    if found.demand and found.demand.source is DemandSource.MEASURED:
        return "switches count bytes of other programs between the job's hosts"
    return f"the job announced too much, about {measured:.2g} times what it sends"


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def listed(items: Sequence[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
