"""What a ``Survey`` says, in sentences for people and in fields for programs.

In: the facts. Out: text and plain data; the fields are an interface (docs/reference/json-output.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.plan import EcmpLevel
from controller.planning.problem import Flow
from controller.planning.questions.single_failures import Case, Kind
from controller.planning.questions.what_if import Outcome, Survey

_CALLED = {
    Kind.SPINE: ("switch without hosts", "switches without hosts"),
    Kind.CABLE: ("cable", "cables"),
    Kind.BUNDLE: ("bundle of cables", "bundles of cables"),
}

FlowName = Callable[[Flow], str]


def sentences(found: Survey) -> tuple[str, ...]:
    """How the network is, what can fail, what the worst is, whether anything is cut off."""
    said = (_present(found), _computed(found), _worst(found), _lost(found))
    return tuple(sentence for sentence in said if sentence)


def fields(found: Survey, flow_name: FlowName) -> dict[str, Any]:
    """``bound``: no routing has a smaller worst level however it splits flows; ``integer_bound``: none of whole flows
    has. ``level``, ``repaired_level`` and ``ecmp_level`` are left out where only the bounds are known."""
    present = found.present
    return {
        "answer": list(sentences(found)),
        "now": {
            "level": present.level,
            "bound": present.fluid_bound,
            "integer_bound": present.integer_bound,
            "ecmp_level": _ecmp_fields(present.ecmp),
            "unrouted": list(map(flow_name, present.unrouted)),
        },
        "outcomes": [_outcome_fields(outcome, flow_name) for outcome in found.outcomes],
        "failures": sum(len(case.failures) for case in found.cases),
        "cases": len(found.felt),
        "unfelt": [{"kind": case.kind.value, "failures": _names(case)} for case in found.unfelt],
    }


def _outcome_fields(outcome: Outcome, flow_name: FlowName) -> dict[str, Any]:
    given = {
        "kind": outcome.case.kind.value,
        "example": outcome.example.name,
        "failures": _names(outcome.case),
        "computed": outcome.computed,
        "level": outcome.level,
        "repaired_level": outcome.repaired_level,
        "bound": outcome.fluid_bound,
        "integer_bound": outcome.integer_bound,
        "proven": outcome.proven,
        "ecmp_level": _ecmp_fields(outcome.ecmp) if outcome.ecmp else None,
        "lost": list(map(flow_name, outcome.lost)),
        "rerouted_fewest": outcome.rerouted[0],
        "rerouted_most": outcome.rerouted[1],
        "moved": outcome.moved,
    }
    return {name: value for name, value in given.items() if value is not None}


def _ecmp_fields(ecmp: EcmpLevel) -> dict[str, float]:
    return {"mean": ecmp.mean, "p95": ecmp.p95}


def _names(case: Case) -> list[str]:
    return [failure.name for failure in case.failures]


# ---- sentences


def _present(found: Survey) -> str:
    now = found.present
    lost = f" {len(now.unrouted):,} flows have no path already." if now.unrouted else ""
    gap = f"at most {now.level / now.bound - 1:.1%} above the best"
    proven = "no routing is better" if now.level <= now.bound * (1 + LEVEL_TOLERANCE) else gap
    return f"Now the worst job's level is {now.level:.2f} ({proven}); under ECMP {now.ecmp.mean:.2f} on average.{lost}"


def _computed(found: Survey) -> str:
    unfelt = sum(len(case.failures) for case in found.unfelt)
    if not found.felt:
        return (
            f"{_kinds(found.unfelt)} can fail, and no flow uses any." if unfelt else "There is nothing that can fail."
        )
    spared = f"; {unfelt:,} more that no flow uses change nothing" if unfelt else ""
    bounded = sum(outcome.computed == "bound" for outcome in found.outcomes)
    late = f" The time was over before {bounded:,} cases were computed: of them only the bound is known." * (
        bounded > 0
    )
    return (
        f"{_kinds(found.felt)} can fail, in {_count(len(found.felt), 'case', 'cases')} that differ in more than the "
        f"names of interchangeable switches{spared}.{late}"
    )


def _worst(found: Survey) -> str:
    if not found.outcomes:
        return ""
    worst = found.outcomes[0]
    alike = len(worst.case.failures) - 1
    which = f"{worst.example.name}, or any of {alike:,} like it," if alike else worst.example.name
    if worst.level is None or worst.ecmp is None:
        return f"The worst is {which} with a level of at least {worst.bound:.2f}."
    gap = f"at most {worst.level / worst.bound - 1:.1%} above the best"
    proven = "no routing is better" if worst.proven else gap
    return (
        f"The worst is {which} with a level of {worst.level:.2f} when all is planned again ({proven}); under ECMP "
        f"{worst.ecmp.mean:.2f} on average."
    )


def _lost(found: Survey) -> str:
    cut = [outcome for outcome in found.outcomes if outcome.lost]
    if not cut:
        return "No failure leaves a flow without a path."
    failures = sum(len(outcome.case.failures) for outcome in cut)
    most = max(len(outcome.lost) for outcome in cut)
    return f"{_count(failures, 'failure leaves', 'failures leave')} flows without a path, up to {most:,}."


def _kinds(cases: Iterable[Case]) -> str:
    number: Counter[Kind] = Counter()
    for case in cases:
        number[case.kind] += len(case.failures)
    return " and ".join(_count(count, *_CALLED[kind]) for kind, count in number.items())


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
