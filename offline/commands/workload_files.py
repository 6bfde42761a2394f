"""Commands without controller, network or root rights: ``plan-file``, ``simulate`` and ``generate-workload``.

The commands read workload files or job specs, and a description of a fabric. They print tables for people, and JSON and
CSV for programs (docs/reference/json-output.md). Exit status 3: only a part of the flows has a path.

Importing the solver takes half a second, so modules that load it are imported where they are needed.
"""

from __future__ import annotations

import csv
import gc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from math import inf
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from offline.commands.scenario import FabricCommand, scheme_named
from offline.scenarios.fabric_options import LARGEST_SEED, FabricOptions, Placement, failure_option
from offline.simulator.options import Options, Replan, Sharing
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import escape, show, waiting
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import Striping
from signalbox.live.shown import proven_over

if TYPE_CHECKING:
    from controller.public.plans import Plan
    from controller.public.problems import FlowId, Problem
    from offline.scenarios.scenario import Names, Scenario

MAX_UNROUTED_SHOWN = 10
MOST_STRETCH = 4
SLOWDOWN_DIGITS = 12
"""Significant digits of slowdowns in reports."""
MAX_MOVES = 256
"""Default of ``planning.max_moves`` in the controller's configuration."""
CSV_HEADER = ("flow_id", "job", "src_host", "dst_host", "subflow", "share", "path")

commands = typer.Typer()


class Shared(StrEnum):
    """Goal of slots and classes: a small ``WORST`` slowdown of an iteration, or few ``GPU_SECONDS`` lost by sharing."""

    WORST = "worst"
    GPU_SECONDS = "gpu-seconds"


_DEFAULTS = Options()

SchemeName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Routing scheme: planned, or a published one: ecmp, greedy, edge-coloring, first-fit, annealing, ilp.",
    ),
]

PathStretch = Annotated[
    int,
    typer.Option(min=0, max=MOST_STRETCH, metavar="N", help="Links that a path may have beyond the shortest."),
]

TimeLimit = Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")]


@commands.command("plan-file", cls=FabricCommand)
def plan_file(
    ctx: typer.Context,
    scheme: SchemeName = "planned",
    path_stretch: PathStretch = 0,
    time_limit: TimeLimit = 2.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", metavar="", help="Give the same plan for the same input on any machine.")
    ] = False,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every route as CSV.")] = None,
    proof: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the plan with its proofs, for signalbox verify; about doubles the time."
        ),
    ] = None,
) -> None:
    """Plan the routes of jobs without a controller, and rate them. Exit status 3: some flows have no path."""
    from controller.public.plans import answered
    from controller.public.problems import PlanLimits
    from offline.scenarios.scenario import scenario

    options: FabricOptions = ctx.obj
    if proof and path_stretch:
        raise typer.BadParameter("proofs are over shortest paths: leave out --path-stretch", param_hint="--proof")
    planner = scheme_named(scheme)
    with waiting("planning"):
        known = scenario(options)
        problem = known.problem(path_stretch=path_stretch)
        limits = PlanLimits(time_limit_s=time_limit, seed=options.seed, deterministic=deterministic)
        # The garbage collector's first full run would scan all objects made so far: 40 to 60 ms in the middle of
        # planning.
        gc.freeze()
        plan = answered(planner(problem, limits))
    if export:
        _write_csv(export, known, problem, plan)
    if proof:
        with waiting("looking for proofs"):
            plan = _write_proof(proof, known.names, problem, plan)
    found = _plan_report(scheme, known, problem, plan)
    show(found, lambda: _summary(found, export))
    if found["unrouted"]:
        raise typer.Exit(ExitStatus.PARTLY)


@commands.command("simulate", cls=FabricCommand)
def simulate_command(
    ctx: typer.Context,
    scheme: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,…", help="Routing schemes to compare. May be repeated.", show_default="planned"),
    ] = None,
    iterations: Annotated[
        int, typer.Option(min=1, help="Number of iterations of every job, after which the job ends.")
    ] = _DEFAULTS.iterations,
    replan: Annotated[
        Replan,
        typer.Option(
            help="When to plan. published: at each start and end of an all-reduce; hysteresis: as the controller does; "
            "never: only at the start."
        ),
    ] = _DEFAULTS.replan,
    sharing: Annotated[
        Sharing,
        typer.Option(
            help="How connections share a full link. equal: equally; weighted: by their demand; mltcp: by bytes sent."
        ),
    ] = _DEFAULTS.sharing,
    lose_sent: Annotated[
        bool,
        typer.Option(
            "--lose-sent",
            metavar="",
            help="Let a rerouted flow send again what it sent since the latest event, as in the published simulator.",
        ),
    ] = _DEFAULTS.lose_sent,
    path_stretch: PathStretch = 0,
    max_moves: Annotated[
        int,
        typer.Option(
            min=0, help="With --replan hysteresis: largest number of pinned flows that one planning cycle moves."
        ),
    ] = MAX_MOVES,
    fail_at: Annotated[float, failure_option(min=0, metavar="S", help="Time of the failures, in s.")] = 0.0,
    repair_at: Annotated[
        float | None, failure_option(min=0, metavar="S", help="Time when the failures end, in s; default: never.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that one plan may take.")] = 2.0,
    shared: Annotated[
        Shared | None,
        typer.Option(
            help="Compare iterations of jobs that share links: ours, with slots and classes for this goal, and others."
        ),
    ] = None,
    jitter: Annotated[
        float, typer.Option(min=0, max=1, help="With --shared: standard deviation of compute times, as a fraction.")
    ] = 0.0,
) -> None:
    """Simulate training: all-reduce times and slowdowns of every job. Exit status 3: a job had no path."""
    options: FabricOptions = ctx.obj
    if shared:
        if scheme or fail_at or repair_at is not None:
            raise typer.BadParameter("leave out --scheme, --fail-at and --repair-at", param_hint="--shared")
        compared = _shared_report(options, shared, jitter, iterations, time_limit)
        show(compared, lambda: _shared_plans(compared))
        return
    how = Options(
        iterations=iterations,
        replan=replan,
        sharing=sharing,
        lose_sent=lose_sent,
        max_moves=max_moves if replan is Replan.HYSTERESIS else None,
        seed=options.seed,
    )
    if repair_at is not None and repair_at <= fail_at:
        raise typer.BadParameter(f"must be after --fail-at ({fail_at:g})", param_hint="--repair-at")
    found = _simulation_report(options, scheme or ["planned"], how, time_limit, (fail_at, repair_at), path_stretch)
    show(found, lambda: _slowdowns(found))
    if any(job["cut_off"] for scheme in found["schemes"] for job in scheme["jobs"]):
        raise typer.Exit(ExitStatus.PARTLY)


def _simulation_report(
    options: FabricOptions,
    names: list[str],
    how: Options,
    time_limit_s: float,
    failed_s: tuple[float, float | None],
    path_stretch: int,
) -> dict[str, Any]:
    """Simulate the training under each scheme, and return the report.

    ``failed_s``: times in seconds at which the failures begin and end; the end is None if the failures are never
    repaired."""
    from controller.public.plans import slowdown_bounds
    from controller.public.problems import PlanLimits
    from offline.scenarios.scenario import problem_of, scenario
    from offline.simulator.report import report
    from offline.simulator.training import Outcome, Stage, simulate

    names = [name.strip() for text in names for name in text.split(",")]
    schemes = {name: scheme_named(name) for name in names}
    known = scenario(options)
    failed = known.problem(path_stretch=path_stretch)
    intact = problem_of(known.intact, known.jobs, path_stretch=path_stretch, objective=known.objective)
    fail_s, repair_s = failed_s
    stages = [Stage(0.0, intact), Stage(fail_s, failed)] if fail_s else [Stage(0.0, failed)]
    if repair_s is not None:
        stages.append(Stage(repair_s, intact))
    limits = PlanLimits(time_limit_s=time_limit_s, ecmp_draws=0, seed=options.seed)

    live = None if how.max_moves is None else replace(limits, max_moves=how.max_moves)

    def outcome_of(name: str) -> Outcome:
        with waiting(f"training under {name}"):
            own = live if name == "planned" else None
            return simulate(stages, known.jobs, lambda problem: schemes[name](problem, limits), how, own)

    bound = slowdown_bounds(failed).fluid
    return report(how, known.striping, bound, [(name, outcome_of(name)) for name in schemes])


def _shared_report(
    options: FabricOptions, shared: Shared, jitter: float, iterations: int, time_limit_s: float
) -> dict[str, Any]:
    """Compare plans for jobs that share links, and return the report."""
    from controller.public.contention import Objective
    from controller.public.plans import answered
    from controller.public.problems import PlanLimits
    from offline.scenarios.scenario import scenario
    from offline.simulator.shared import all_plans, compared, report, shared_case, timed

    with waiting("comparing plans"):
        known = scenario(options)
        problem = known.problem()
        limits = PlanLimits(time_limit_s=time_limit_s, ecmp_draws=0, seed=options.seed)
        jobs = [timed(job, {ip: host.nic_bps for ip, host in known.fabric.hosts.items()}) for job in known.jobs]
        routings = [answered(scheme_named(name)(problem, limits)).routes for name in ("planned", "ecmp", "greedy")]
        if len(routings[0]) < len(problem.flows):
            raise SignalboxError("some flows have no path; only jobs with paths for all flows can be compared")
        case = shared_case(problem, jobs, routings)
        plans = all_plans(case, {"ours": Objective(shared)})
        return report(case, plans, compared(case, plans, iterations, jitter, [options.seed]), shared, jitter)


@commands.command("generate-workload")
def generate_workload(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory for the files, created if missing; it may not hold files of other jobs."
        ),
    ],
    leaves: Annotated[int, typer.Option(min=1, help="Number of leaves of the fabric.")],
    spines: Annotated[
        int, typer.Option(min=1, help="Number of spines of the fabric; their numbers precede those of hosts.")
    ],
    hosts_per_leaf: Annotated[int, typer.Option(min=1, help="Number of hosts on every leaf.")],
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs; each trains one of three published models.")] = 3,
    ring_size: Annotated[int, typer.Option(min=2, help="Number of hosts per ring; fewer if the job does not fit.")] = 4,
    placement: Annotated[Placement, typer.Option(help="How jobs are placed on hosts.")] = Placement.WHOLE_LEAF,
    max_rings: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of rings per job, for small fabrics.", show_default="as in its model"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of the workload.")] = 1,
) -> None:
    """Write a workload like the published ones for a leaf-spine fabric; the same options give the same files."""
    from offline.scenarios.fabrics import leaf_spine
    from offline.scenarios.generator import generate
    from offline.scenarios.workloads import write_workload

    fabric = leaf_spine(leaves, spines, hosts_per_leaf, link_bps=1.0, uplink_bps=1.0)
    workload = generate(fabric, jobs, ring_size, placement, seed, max_rings)
    write_workload(folder, workload)
    flows = {name: len(lines) for name, lines in workload.items()}
    typer.echo(f"{folder}: " + ", ".join(f"{name} ({count} flows)" for name, count in flows.items()))


# ---- reports for programs (docs/reference/json-output.md)


def _plan_report(scheme: str, known: Scenario, problem: Problem, plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data.

    ``ecmp_slowdown`` is None when the plan has no slowdowns under ECMP."""
    slowdowns = {job: _rounded(slowdown) for job, slowdown in plan.job_slowdown.items()}
    unrouted = set(plan.unrouted)
    stopped = [flow for flow in problem.flows if flow.id in unrouted and not flow.id.subflow]
    subflows: Counter[FlowId] = Counter()
    for flow, route in plan.routes.items():
        subflows[flow.joined] += len(route)
    by_share = {job.id for job in known.jobs if job.striping is Striping.BY_SHARE}
    ecmp = plan.ecmp
    return {
        "scheme": scheme,
        "striping": known.striping,
        "flows": len({flow.id.joined for flow in problem.flows}),
        "subflows": plan.subflows,
        "max_subflows_of_a_flow": max(subflows.values(), default=0),
        "if_paced": any(of.job_id in by_share and len(plan.routes.get(of.id, ())) > 1 for of in problem.flows),
        "max_slowdown": _rounded(plan.max_slowdown),
        "bound": _rounded(plan.bound),
        "fluid_bound": _rounded(plan.fluid_bound),
        "integer_bound": _rounded(plan.integer_bound),
        "gap": round(plan.gap, SLOWDOWN_DIGITS),
        "slowdowns_proven": plan.slowdowns_proven,
        "slowdowns_proven_listed": plan.slowdowns_proven_listed,
        "candidates_listed": plan.candidates_listed,
        "path_stretch": problem.paths.stretch,
        "certificate": plan.certificate,
        "cut_short": plan.cut_short,
        "plan_ms": {
            "build": plan.times.build_ms,
            "solve": plan.times.solve_ms,
            "check": plan.times.check_ms,
            "total": plan.times.total_ms,
        },
        "job_slowdown": slowdowns,
        "objective": known.objective,
        "own_slowdown": {job: _rounded(slowdown) for job, slowdown in plan.own_slowdown.items()},
        "sorted_slowdowns": [*map(_rounded, plan.sorted_slowdowns)],
        "mean_job_slowdown": _rounded(fmean(slowdowns.values())) if slowdowns else 1.0,
        "max_job_slowdown": _rounded(plan.max_slowdown),
        "ecmp_slowdown": {"mean": _rounded(ecmp.mean), "p95": _rounded(ecmp.p95)} if ecmp else None,
        "unrouted": [known.names.flow(flow) for flow in stopped],
        "job_unrouted": Counter(flow.job_id for flow in stopped),
    }


def _write_csv(file: Path, known: Scenario, problem: Problem, plan: Plan) -> None:
    """Write every route as CSV, with enough digits to read ``share`` back exactly. Raises ``OSError``."""
    from controller.public.problems import route_of

    names, dividing = known.names, {job.id: job.dividing for job in known.jobs}
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(CSV_HEADER)
        for number, flow in enumerate(flow for flow in problem.flows if not flow.id.subflow):
            ends = (names.host(flow.id.src_ip), names.host(flow.id.dst_ip))
            route = route_of(dividing[flow.job_id], flow.id.pair, plan.routes)
            for subflow, (path, share) in enumerate(route or ()):
                rows.writerow((number, flow.job_id, *ends, subflow, share, names.path(flow.src_leaf, path)))


def _write_proof(file: Path, names: Names, problem: Problem, plan: Plan) -> Plan:
    """Write the plan with its proofs, and return it with the bound that the proofs show.

    Raises ``OSError``, and ``SignalboxError`` for a plan that cannot be written with its proofs."""
    from controller.public.plans import certificate, document, with_own_bound

    try:
        form = certificate(problem, plan, names)
    except ValueError as error:
        raise SignalboxError(f"cannot write {file}: {error}") from None
    file.write_text(document(form), encoding="utf-8")
    return with_own_bound(plan, form)


def _rounded(slowdown: float) -> float:
    return float(f"{slowdown:.{SLOWDOWN_DIGITS}g}")


# ---- tables


def _summary(found: Mapping[str, Any], export: Path | None) -> RenderableType:
    proven, jobs, ecmp = found["slowdowns_proven"], found["job_slowdown"], found["ecmp_slowdown"]
    equal = found["max_subflows_of_a_flow"] > 1 and found["striping"] in (Striping.EVEN, Striping.COMMON_QUEUE)
    whole = "in equal subflows" if equal else "without splitting"
    facts = {
        "scheme": found["scheme"],
        "flows": f"{found['flows']:,} in {found['subflows']:,} subflows, "
        f"at most {found['max_subflows_of_a_flow']} each",
        "worst slowdown": f"{found['max_slowdown']:.4g}, {found['gap']:.2%} above the lower bound "
        f"{found['bound']:.4g}; "
        f"lower bound {whole} {found['integer_bound']:.4g}, with any splitting {found['fluid_bound']:.4g}"
        + ("; senders that do not pace their subflows are slower" if found["if_paced"] else "")
        + ("; flows without a path are left out" if found["unrouted"] else ""),
        "certificate": f"{found['certificate']}, {proven} of {len(jobs)} slowdowns proven "
        + proven_over(found["slowdowns_proven_listed"], found["candidates_listed"], found["path_stretch"])
        + (", cut short by the time limit" if found["cut_short"] else ""),
        "ECMP": f"{ecmp['mean']:.3g} on average, 95th percentile {ecmp['p95']:.3g}" if ecmp else "not drawn",
        "planned in": ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in found["plan_ms"].items()),
    }
    if export:
        facts["routes"] = f"written to {export}"
    if found["unrouted"]:
        facts["without a path"] = _some(found["unrouted"])
    grid = Table.grid(padding=(0, 2))
    for name, value in filter(itemgetter(1), facts.items()):
        grid.add_row(name, escape(value))
    return Group(grid, _job_slowdowns(jobs, found["job_unrouted"], found["if_paced"]))


def _job_slowdowns(slowdown: Mapping[str, float], without_path: Mapping[str, int], if_paced: bool) -> RenderableType:
    """Return the table of jobs.

    - ``slowdown``: slowdown by job; a job without a path has none.
    - ``without_path``: number of flows without a path, by job.
    - ``if_paced``: True if the slowdowns hold only for senders that pace their subflows. In this case the table has no
      efficiency, because that of other senders is unknown."""
    columns: dict[str, Callable[[str], str]] = {
        "slowdown": lambda job: f"{slowdown[job]:.4g}" if job in slowdown else "–"
    }
    if not if_paced:
        columns["efficiency"] = lambda job: "0.0%" if job in without_path else f"{1 / slowdown[job]:.1%}"
    if without_path:
        columns["without a path"] = lambda job: str(without_path.get(job, ""))
    table = Table("job", title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    for job in sorted({**slowdown, **without_path}, key=lambda job: -slowdown.get(job, inf)):
        table.add_row(escape(job), *(cell(job) for cell in columns.values()))
    return table


def _some(names: list[str]) -> str:
    rest = len(names) - MAX_UNROUTED_SHOWN
    return "\n".join([*names[:MAX_UNROUTED_SHOWN], *([f"and {rest} more"] if rest > 0 else [])])


def _slowdowns(found: Mapping[str, Any]) -> RenderableType:
    table = Table("scheme", "job")
    for column in ("iterations", "ideal s", "mean s", "slowdown", "best", "worst", "plans", "moves"):
        table.add_column(column, justify="right")
    for scheme in found["schemes"]:
        for job in scheme["jobs"]:
            table.add_row(escape(scheme["scheme"]), escape(job["job"]), *_times(job))
        counts = map(str, (scheme["plans"], scheme["moves"]))
        table.add_row("", "mean of jobs", "", "", "", _number(scheme["mean_slowdown"]), "", "", *counts)
        table.add_section()
    bound = f"With failures and all jobs at once, the worst slowdown is at least {found['bound']:.4g} for any routing."
    return Group(table, bound)


def _shared_plans(found: Mapping[str, Any]) -> RenderableType:
    table = Table("plan")
    for column in ("worst job", "mean of jobs", "99th percentile", "GPU-seconds", "waited"):
        table.add_column(column, justify="right")
    for plan in found["plans"]:
        slowdowns = (_number(plan[name]) for name in ("worst", "mean", "tail"))
        table.add_row(plan["plan"], *slowdowns, f"{plan['gpu_seconds']:.1%}", f"{plan['waited']:.1%}")
    return Group(table, "Iterations / iterations without other jobs; GPU-seconds and waits as parts of all.")


def _times(job: Mapping[str, Any]) -> list[str]:
    times = [iteration["all_reduce_s"] for iteration in job["iterations"]]
    count = f"{len(times)}, cut off" if job["cut_off"] else str(len(times))
    if not times:
        return [count, _seconds(job["ideal_s"])]
    slow = [iteration["slowdown"] for iteration in job["iterations"]]
    mean_s = sum(times) / len(times)
    numbers = (job["mean_slowdown"], min(slow), max(slow))
    return [count, _seconds(job["ideal_s"]), _seconds(mean_s), *map(_number, numbers)]


def _seconds(time_s: float) -> str:
    return f"{time_s:.3f}" if time_s >= 1 else f"{time_s:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
