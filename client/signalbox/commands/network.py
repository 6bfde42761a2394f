"""``signalbox fabric``, ``plan``, ``status``, ``mode``, ``members``, ``drain``, ``undrain`` and ``forget``.

``plan diff`` shows what adopting the newest plan would change. The controller may not have adopted the newest plan,
because its gain did not justify its moves, or because the mode is ``shadow``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from signalbox.client import Client
from signalbox.commands import optical, printing
from signalbox.commands.connecting import AskingCommand, completed, connect, down_names, drained_names, part_names
from signalbox.commands.output import (
    Column,
    Fitted,
    escape,
    facts,
    parser_of,
    show,
    waiting,
)
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.live.shown import goal, optional, route_words, slowdown, when, word
from signalbox.mapping import seconds, word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode

commands = typer.Typer()


@commands.command(cls=AskingCommand)
def fabric() -> None:
    """Show switches, links with capacity, rate and background traffic, hosts, and parts that are down."""
    with connect() as client:
        found = client.get_fabric()
    show(found, lambda: Group(printing.fabric(found), *optical.tables(found.optical_switches)))


class View(StrEnum):
    """Choice of what ``signalbox plan`` shows in place of the plan."""

    DIFF = "diff"


@commands.command(cls=AskingCommand)
def plan(
    view: Annotated[
        View | None,
        typer.Argument(
            metavar="diff", help="Show how the routes of the newest plan differ from those that switches hold."
        ),
    ] = None,
    now: Annotated[bool, typer.Option("--now", metavar="", help="Plan now and wait for the result.")] = False,
    proof: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write with the routes in force and their proofs, for signalbox verify."
        ),
    ] = None,
) -> None:
    """Show the current plan with its certificate and the route of every flow, or with diff what it would change.

    diff compares the newest plan, at most planning.interval_s old, with the routes that switches hold. The plan's moves
    wait if the plan gains less than planning.min_gain, or if the mode is shadow. They also wait if the present cycle
    has made planning.max_moves moves already. --now plans anew, prints the reason, and installs the plan if it gains
    enough. If the moves take several cycles, it prints the slowdowns and the number of moves."""
    if view and (now or proof):
        raise typer.BadParameter("diff cannot be combined with --now or --proof")
    with connect() as client:
        if view is View.DIFF:
            changes = plan_diff(client)
            show(changes, lambda: diff_table(changes) if changes else printing.NO_PLAN)
        elif now:
            with waiting("planning"):
                done = client.replan()
            show(done, lambda: printing.replan(done))
        else:
            found = client.get_plan()
            show(found, lambda: printing.plan(found))
        if proof:
            with waiting("looking for proofs"):
                document = client.get_plan_proof().document
            proof.write_text(document, encoding="utf-8")


@commands.command(cls=AskingCommand)
def status() -> None:
    """Show the state of the controller and its network, with alarms."""
    with connect() as client:
        found = client.get_status()
    show(found, lambda: printing.status(found))


@commands.command(cls=AskingCommand)
def mode(
    name: Annotated[
        Mode | None,
        typer.Argument(
            metavar="ecmp|planned|shadow",
            parser=parser_of(Mode, "mode"),
            help="Mode to set; default: show it.",
        ),
    ] = None,
) -> None:
    """Show the mode, or set it and wait until the switches have confirmed its rules.

    ecmp: hash all flows. planned: pin the planned flows. shadow: plan and report the gain, but install nothing."""
    with connect() as client:
        if name is None:
            set_now = word_in(client.get_status(), "mode")
            show({"mode": set_now}, lambda: word(set_now))
            return
        with waiting("waiting for the switches to confirm"):
            done = client.set_mode(name)
    show(done, lambda: f"{name}, in force after {seconds(done.install_time):.2f} s; {printing.pins(done.pins)}")


@commands.command(cls=AskingCommand)
def forget(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Parts that are down: leaf1, leaf1:3 (the cable at that port), 10.0.1.2.",
            autocompletion=completed(down_names),
        ),
    ],
) -> None:
    """Stop expecting switches, cables and hosts that are down.

    A switch is forgotten together with its cables and hosts. With several names: all or none."""
    with connect() as client:
        gone = client.forget_parts(names)
    show(gone, lambda: escape("forgot " + ", ".join(part.name for part in gone)))


class MemberAction(StrEnum):
    """Action on a member, which is one of the controllers that share a state."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    FORGET = "forget"


@commands.command(cls=AskingCommand)
def members(
    action: Annotated[
        MemberAction | None,
        typer.Argument(
            metavar="[drain|undrain|forget]",
            help="drain: move its switches to other members. undrain: let it hold switches again. "
            "forget: stop expecting an absent member.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Member to drain, undrain or forget.", show_default=False)
    ] = "",
) -> None:
    """List the controllers that share a state in etcd, with their roles and the number of switches that each holds.

    A member holds the switches that have confirmed it as their OpenFlow master; signalbox get switches lists the holder
    of each. 'last seen' says how long ago etcd last showed that the member was running."""
    if bool(action) != bool(name):
        raise typer.BadParameter("name the member as well, as in: signalbox members drain NAME")
    with connect() as client:
        if action is MemberAction.DRAIN:
            found = client.drain_member(name)
        elif action is MemberAction.UNDRAIN:
            found = client.undrain_member(name)
        elif action is MemberAction.FORGET:
            found = client.forget_member(name)
        else:
            found = client.list_members()
    columns = (
        Column("name"), Column("role"), Column("switches", number=True), Column("drain"), Column("version", 3),
        Column("since", 2), Column("last seen", 1), Column("address", 4),
    )  # fmt: skip
    rows = [
        (
            one.name,
            f"{word}, incompatible version" if one.cannot_link else word,
            _switches(one),
            "draining" if one.draining else "-",
            one.version or "-",
            when(one.start_time) if one.HasField("start_time") else "-",
            when(one.last_seen_time) if word == "absent" else _age(one),
            one.address or "-",
        )
        for one in found
        for word in (word_in(one, "role"),)
    ]
    show({"members": found}, lambda: Fitted(columns, rows) if rows else "This controller's state is not in etcd.")


def _switches(one: pb.Member) -> str:
    """Return how many switches a member holds; if it differs, add how many the leader has assigned to it."""
    differ = one.switches != one.assigned_switches and one.HasField("last_seen_age")  # older controllers send neither
    return f"{one.switches} ({one.assigned_switches} assigned)" if differ else str(one.switches)


NOW_S = 5.0
"""Age in seconds below which the column ``last seen`` shows "now" instead of the age.

The age counts from the time when the leader last read in etcd that the member has a lease."""


def _age(one: pb.Member) -> str:
    age_s = seconds(one.last_seen_age)
    return "now" if age_s < NOW_S else f"{age_s:.0f} s ago"


LOOK_AGAIN_S = 0.5

COST_S = 5.0
"""Seconds to wait for the predicted cost of a drain. After this time the drain begins without a prediction."""
PLAN_COST_WITHIN_S = 2.0
"""Longest time in seconds that the controller may plan when it predicts the cost of a drain."""

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Switches (spine2), cables (leaf1:3), or all cables between two switches (leaf1:spine2).",
        show_default=False,
        autocompletion=completed(part_names),
    ),
]


@commands.command(cls=AskingCommand)
def drain(
    names: Names = None,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Wait until the parts can be pulled.")] = False,
    timeout: Annotated[float, typer.Option(min=1, metavar="S", help="Longest wait in seconds.")] = 120.0,
) -> None:
    """Take switches or cables out of use: predict the cost, then let the controller move their flows away.

    Without names: show drained parts, and which of them can be pulled."""
    with connect() as client:
        cost = _cost(client, names) if names else None
        found = [*(client.drain(names) if names else client.get_status()).drains]
        if wait:
            with waiting("waiting until nothing is sent over the parts"):
                found = _wait_until_safe(client, {part.name for part in found}, time.monotonic() + timeout)
    if cost is None:
        show({"drains": found}, lambda: printing.drains(found))
    else:
        show({"drains": found, "cost": cost}, lambda: Group(printing.drains(found), _in_words(cost)))


@commands.command(cls=AskingCommand)
def undrain(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Parts to use again, named as for drain.", autocompletion=completed(drained_names)
        ),
    ],
) -> None:
    """Use drained switches or cables again."""
    with connect() as client:
        found = [*client.undrain(names).drains]
    show({"drains": found}, lambda: printing.drains(found))


def _cost(client: Client, names: Sequence[str]) -> dict[str, Any]:
    """Return the predicted slowdown of the worst job before and after a drain.

    ``slowdown`` is the present slowdown, ``slowdown_drained`` the one after the drain. Under ECMP both slowdowns are
    means over hash draws. Unknown values are None, and ``not_known`` has the reason. Raises ``InvalidInput`` for a name
    that no part has."""
    cost: dict[str, Any] = {"mode": None, "slowdown": None, "slowdown_drained": None, "not_known": ""}
    try:
        cost["mode"] = mode = word_in(client.get_status(), "mode")
        with waiting("computing the cost of the drain"):
            found = client.what_if(within_s=PLAN_COST_WITHIN_S, names=names, wait_s=COST_S)
    except InvalidInput:
        raise
    except SignalboxError as error:  # if the error also forbids the drain, the drain raises it again
        return {**cost, "not_known": str(error)}
    if [word_in(case, "kind") for case in (*found.outcomes, *found.unfelt)] != ["parts"]:
        return {**cost, "not_known": "this version of the controller does not compute costs"}
    now, then = found.now, found.outcomes[0] if found.outcomes else None
    if mode == Mode.PLANNED:
        slowdowns = now.slowdown, optional(then, "slowdown") if then else now.slowdown
    else:
        hashed = (then or now).ecmp_slowdown if (then or now).HasField("ecmp_slowdown") else None
        slowdowns = now.ecmp_slowdown.mean, hashed and hashed.mean
    late = f"the controller did not compute it within {PLAN_COST_WITHIN_S:g} s" if slowdowns[1] is None else ""
    return {**cost, "slowdown": slowdowns[0], "slowdown_drained": slowdowns[1], "not_known": late}


def _in_words(cost: Mapping[str, Any]) -> str:
    if cost["slowdown_drained"] is None:
        return escape(f"The cost is not known: {cost['not_known']}")
    how = "" if cost["mode"] == Mode.PLANNED else " on average under ECMP"
    return f"Worst job: slowdown {cost['slowdown']:.2f} -> {cost['slowdown_drained']:.2f}{how}"


def _wait_until_safe(client: Client, names: set[str], until: float) -> list[pb.DrainedPart]:
    """Wait until all named parts can be pulled, and return them.

    Raises ``SignalboxError`` after the monotonic time ``until``, or when the drain of a part has been ended."""
    while True:
        found = [part for part in client.get_status().drains if part.name in names]
        if again := names - {part.name for part in found}:
            raise SignalboxError(f"not safe to pull, because the drain was ended: {', '.join(sorted(again))}")
        left = [part for part in found if part.state != pb.DRAIN_STATE_SAFE]
        if not left:
            return found
        if time.monotonic() > until:
            raise SignalboxError(f"not safe to pull yet: {', '.join(map(printing.drained, left))}")
        time.sleep(LOOK_AGAIN_S)


Fields = Mapping[str, Any]


def plan_diff(client: Client) -> dict[str, Any] | None:
    """Return the routes and slowdowns that the newest plan would change, for programs; None before the first plan.

    A flow *moves* when the switches have a different route for the flow, and *is pinned* when they have none."""
    found = client.plan_changes()
    if found is None:
        return None
    plan, changes = found
    moved = Counter(route.job_id for route in changes if route.held)
    pinned = Counter(route.job_id for route in changes if not route.held)
    now = {job.spec.job_id: optional(job, "slowdown") for job in client.list_jobs()}
    slowdowns = {job.job_id: job.slowdown for job in plan.goal.jobs}
    jobs = [
        {
            "job_id": job.job_id,
            "slowdown": now.get(job.job_id),
            "slowdown_planned": job.slowdown,
            "slowdown_goal": slowdowns.get(job.job_id),
            "moved": moved[job.job_id],
            "pinned": pinned[job.job_id],
        }
        for job in plan.jobs
    ]
    return {
        "generation": str(plan.generation),
        "installed": plan.installed,
        "max_slowdown": max((known for known in now.values() if known is not None), default=None),
        "max_slowdown_planned": plan.max_slowdown,
        "max_slowdown_goal": plan.goal.max_slowdown if plan.HasField("goal") else None,
        "bound": plan.bound,
        "moved": moved.total(),
        "pinned": pinned.total(),
        "moves_left": plan.moves_left,
        "blocked_flows": plan.blocked_flows,
        "jobs": jobs,
        "routes": changes,
    }


def diff_table(found: Fields) -> RenderableType:
    now, planned, bound = (slowdown(found[name]) for name in ("max_slowdown", "max_slowdown_planned", "bound"))
    about: dict[str, object] = {
        "plan": f"{found['generation']}, {'installed' if found['installed'] else 'not installed'}",
        "worst slowdown": f"{now} now, {planned} with the plan (bound {bound})",
        "goal": goal(found["max_slowdown_goal"], found["moves_left"], found["blocked_flows"]),
        "flows": f"{found['moved']} would move now, {found['pinned']} would be pinned",
    }
    changed = [job for job in found["jobs"] if job["moved"] or job["pinned"] or _changes_later(job)]
    jobs = [_jobs(changed, found["max_slowdown_goal"] is not None)] if changed else []
    if not found["routes"]:
        return Group(facts(about), *jobs, "The switches hold the routes of the plan.")
    return Group(facts(about), *jobs, _routes(found["routes"]))


def _changes_later(job: Fields) -> bool:
    return job["slowdown_goal"] not in (None, job["slowdown_planned"])


def _jobs(jobs: Sequence[Fields], has_goal: bool) -> RenderableType:
    slowdowns = ("slowdown", "planned", *(["goal"] if has_goal else []))
    columns = (Column("job"), *(Column(name, number=True) for name in (*slowdowns, "moved", "pinned")))

    def row(job: Fields) -> Sequence[object]:
        names = ("slowdown", "slowdown_planned", *(["slowdown_goal"] if has_goal else []))
        return (job["job_id"], *(slowdown(job[name]) for name in names), job["moved"], job["pinned"])

    return Fitted(columns, map(row, jobs), title="jobs that change")


def _routes(routes: Sequence[pb.ListedRoute]) -> RenderableType:
    columns = (*map(Column, ("job", "from", "to")), Column("now", wraps=True), Column("planned", wraps=True))
    rows = (
        (route.job_id, route.src, route.dst, route_words(route.held), route_words(route.planned)) for route in routes
    )
    return Fitted(columns, rows, title="routes that change")
