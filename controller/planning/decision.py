"""Whether a plan is worth its moves: it then replaces the running routes.

In: the problem, with the running routes, and its plan. Out: a ``Decision`` and its reason in words.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.planning.efficiency import first_difference, job_levels
from controller.planning.plan import Plan
from controller.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Decision:
    adopt: bool
    reason: str


def decide(problem: Problem, plan: Plan, min_gain: float) -> Decision:
    """A plan is adopted when it repairs something, or gains enough to be worth its moves (hysteresis).

    ``min_gain``: relative, at the first entry of the sorted levels that differs from the running routes' (0.02 is
    2 %)."""
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    never = sum(flow.current is None and flow.src_leaf != flow.dst_leaf for flow in routed)
    gone = sum(flow.current is not None and not problem.stands(flow) for flow in routed)
    if never or gone:
        what = [f"{never} not pinned yet"] * bool(never) + [f"{gone} whose path has gone"] * bool(gone)
        return Decision(True, f"pins {_flows(never + gone)}: {' and '.join(what)}; {_flows(plan.moves)} moved besides")
    running = job_levels(
        problem, {flow.id: plan.routes[flow.id] if flow.current is None else flow.current for flow in routed}
    )
    levels = tuple(sorted(running.values(), reverse=True))
    index = first_difference(levels, plan.sorted_levels)
    if index is None:
        return Decision(False, "the running routes are as good")
    before, after = levels[index], plan.sorted_levels[index]
    gain = 1 - after / before
    which = "worst level" if index == 0 else f"level number {index + 1} from the worst"
    if gain < 0:
        return Decision(False, f"the running routes are better: {which} {before:.2f} instead of {after:.2f}")
    change = f"{which} falls from {before:.2f} to {after:.2f} ({gain:.1%}) with {_flows(plan.moves)} moved"
    if gain < min_gain:
        return Decision(False, f"not worth it: {change}; at least {min_gain:.1%} is asked for")
    return Decision(True, change)


def _flows(count: int) -> str:
    return f"{count} flow" if count == 1 else f"{count} flows"
