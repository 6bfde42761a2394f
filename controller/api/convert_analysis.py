"""Converter for ``WhatIf``: checked requests, and results of ``planning.analysis`` with an answer in sentences.

Slowdowns in the sentences have two decimals. The classes of results name most of their fields as the messages do, so
that ``message_of`` can copy these fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from controller.api.convert_explain import count, in_cycles
from controller.fabric.parts import MAX_NAMES
from controller.fabric.topology import Fabric
from controller.planning.analysis.messages import (
    Case,
    FailureAnalysis,
    Outcome,
    Parts,
    WhatIf,
)
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.mapping import message_of, names, number_of, seconds, word_of
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind

WITHIN_S = 60.0
"""Default time limit of an analysis in seconds; the request may set another one."""
MOST_S = 120.0
"""Largest time limit in seconds that a request may set. Clients wait longer for the answer."""
MAX_KINDS = 16
"""Largest number of kinds of parts in one request, including repetitions."""
REPLACED = "These results hold until the controller has replaced the lost circuits."
_KINDS = {
    FailureKind.SPINE: ("switch without hosts", "switches without hosts"),
    FailureKind.CABLE: ("cable", "cables"),
    FailureKind.BUNDLE: ("bundle of cables", "bundles of cables"),
    FailureKind.PARTS: ("group of parts", "groups of parts"),
}


def what_if_request(request: pb.WhatIfRequest, fabric: Fabric) -> WhatIf:
    """Return the checked request. ``fabric``: for the circuits that the request names. Raises ``InvalidInput``."""
    enum = pb.FailureKind.DESCRIPTOR
    if len(request.kinds) > MAX_KINDS:
        raise InvalidInput.of("kinds", f"at most {MAX_KINDS} kinds are allowed (given: {len(request.kinds)})")
    words = [word_of(enum, kind) for kind in request.kinds]
    problems = [
        FieldProblem(f"kinds[{n}]", f"choose one of {', '.join(names(enum))} (given: {request.kinds[n]})")
        for n, word in enumerate(words)
        if word is None
    ]
    if words and request.names:
        problems.append(FieldProblem("names", "cannot be combined with kinds; give one of them"))
    elif pb.FAILURE_KIND_PARTS in request.kinds:
        problems.append(FieldProblem("kinds", "must not contain FAILURE_KIND_PARTS; give names instead of kinds"))
    within_s = seconds(request.within) if request.HasField("within") else WITHIN_S
    if not 0 < within_s <= MOST_S:
        problems.append(FieldProblem("within", f"must be more than 0 and at most {MOST_S:g} s (given: {within_s:g} s)"))
    InvalidInput.refuse(problems)
    kinds = frozenset(map(FailureKind, filter(None, words))) or frozenset(FailureKind)
    given = dict.fromkeys(request.names)
    circuits = _circuits_named(given.keys(), fabric) if len(given) <= MAX_NAMES else ()
    mean_circuits = {each.name for each in circuits}
    others = tuple(name for name in given if name not in mean_circuits)
    return WhatIf(kinds, request.top or None, within_s, others, circuits)


def _circuits_named(names: Collection[str], fabric: Fabric) -> tuple[Parts, ...]:
    if not any(link.one_way for link in fabric.links.values()):
        return ()
    from controller.circuits.analysis import circuits_named

    return circuits_named(names, fabric)


def what_if_message(found: FailureAnalysis, circuits: bool = False) -> pb.WhatIfResponse:
    """Return the response. ``circuits``: whether the failing parts include circuits."""
    present = found.present
    planned = "" if found.pinned else "No flow is pinned now: these results are for the routes that would be planned."
    return pb.WhatIfResponse(
        answer=filter(
            None, (planned, _present(found), *_sentences(found), REPLACED if circuits and found.felt else "")
        ),
        now=message_of(
            pb.NetworkSlowdowns,
            present,
            bound=present.fluid_bound,
            ecmp_slowdown=message_of(pb.EcmpSlowdowns, present.ecmp),
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
        ecmp_slowdown=message_of(pb.EcmpSlowdowns, outcome.ecmp) if outcome.ecmp else None,
        rerouted_fewest=outcome.rerouted[0],
        rerouted_most=outcome.rerouted[1],
    )


def _names(case: Case) -> list[str]:
    return [failure.name for failure in case.failures]


# ---- sentences about failures


def _present(found: FailureAnalysis) -> str:
    now = found.present
    lost = (
        f" {count(len(now.unrouted), 'flow has', 'flows have')} no path even without a failure." if now.unrouted else ""
    )
    proven = _proven(now.slowdown, now.bound)
    hashed = f"under ECMP {now.ecmp.mean:.2f} on average"
    return f"Now the worst job's slowdown is {now.slowdown:.2f} ({proven}); {hashed}.{lost}"


def _sentences(found: FailureAnalysis) -> tuple[str, ...]:
    if any(case.kind is FailureKind.PARTS for case in found.unfelt):
        return ("No flow uses the named parts: their failure changes nothing.",)
    if any(case.kind is FailureKind.PARTS for case in found.felt):
        return _worst(found), _lost(found)
    return _computed(found), _worst(found), _lost(found)


def _computed(found: FailureAnalysis) -> str:
    unfelt = sum(len(case.failures) for case in found.unfelt)
    if not found.felt:
        none = "The fabric has no part of the chosen kinds that can fail."
        return (
            f"No flow uses the {_kinds(found.unfelt)} that can fail: no failure changes anything." if unfelt else none
        )
    spared = f" No flow uses the other {_kinds(found.unfelt)}, so their failure changes nothing." if unfelt else ""
    bounded = sum(outcome.basis == "bound" for outcome in found.outcomes)
    late = f" The time limit ended before {count(bounded, 'case was', 'cases were')} computed: only bounds are known."
    repaired = sum(outcome.repaired_only for outcome in found.outcomes)
    unplanned = (
        f" The time limit ended before {count(repaired, 'case was', 'cases were')} planned: only the "
        "slowdown after the repair is known. To see the slowdown after a new plan, name one part, or raise --within."
    )
    return (
        f"{_kinds(found.felt)} can fail. This makes {count(len(found.felt), 'case', 'cases')}, because failures that "
        f"differ only by interchangeable switches count as one.{spared}{late if bounded else ''}"
        f"{unplanned if repaired else ''}"
    )


def _worst(found: FailureAnalysis) -> str:
    if not found.outcomes:
        return ""
    worst = found.outcomes[0]
    alike = len(worst.case.failures) - 1
    which = f"{worst.example.name} (or one of {alike:,} like it)" if alike else worst.example.name
    named = worst.case.kind is FailureKind.PARTS
    begin = f"Without {which} the worst job has" if named else f"The worst failure is that of {which}, with"
    if worst.slowdown is None or worst.ecmp is None:
        return f"{begin} a slowdown of at least {worst.bound:.2f}."
    cycles = in_cycles(worst.cycles, worst.first_slowdown or worst.slowdown)
    planned = "after the repair" if worst.repaired_only else f"after planning{cycles}"
    return (
        f"{begin} a slowdown of {worst.slowdown:.2f} {planned} "
        f"({_proven(worst.slowdown, worst.bound)}); under ECMP {worst.ecmp.mean:.2f} on average."
    )


def _lost(found: FailureAnalysis) -> str:
    cut = [outcome for outcome in found.outcomes if outcome.lost]
    if not cut:
        named = any(case.kind is FailureKind.PARTS for case in found.felt)
        return "All flows keep a path." if named else "No failure leaves a flow without a path."
    failures = sum(len(outcome.case.failures) for outcome in cut)
    most = max(len(outcome.lost) for outcome in cut)
    return f"{count(failures, 'failure leaves', 'failures leave')} up to {count(most, 'flow', 'flows')} without a path."


def _proven(slowdown: float, bound: float) -> str:
    if slowdown <= bound * (1 + SLOWDOWN_TOLERANCE):
        return "no routing is better"
    return f"at most {slowdown / bound - 1:.1%} above the best"


def _kinds(cases: Sequence[Case]) -> str:
    number: Counter[FailureKind] = Counter()
    for case in cases:
        number[case.kind] += len(case.failures)
    return " and ".join(count(failures, *_KINDS[kind]) for kind, failures in number.items())
