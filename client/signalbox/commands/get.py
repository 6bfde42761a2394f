"""``signalbox get``: list all things of one kind, or the named ones, with one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from typer.core import TyperGroup

from signalbox.commands import optical, printing, printing_jobs
from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.naming import (
    ALARM,
    HOST,
    JOB,
    LINK,
    SWITCH,
    Kind,
    alarm_names,
    all_switch_names,
    completed,
    host_names,
    job_names,
    link_names,
    named,
    tell_missing,
)
from signalbox.commands.output import escape, fields, show
from signalbox.commands.printing import job_counts, not_known, with_use
from signalbox.commands.tables import Column, Fitted
from signalbox.live.crossing import hashed, jobs_in_words, subflows_by_link
from signalbox.live.rows import link_cells
from signalbox.live.state import load
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

_SINGULAR = {"job": "jobs", "link": "links", "switch": "switches", "host": "hosts", "alarm": "alarms"}


class _Kinds(TyperGroup):
    """Group that accepts the singular of a kind too: ``get job ring``."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, _SINGULAR.get(cmd_name, cmd_name))


commands = typer.Typer(
    help="List jobs, links, switches, hosts, plan or alarms: all, or those that are named.",
    no_args_is_help=True,
    cls=_Kinds,
)


def _names(metavar: str, what: str, ask: Any) -> Any:
    return typer.Argument(metavar=metavar, help=f"{what}; default: all.", autocompletion=completed(ask))


Jobs = Annotated[list[str] | None, _names("JOB", "Ids of jobs", job_names)]
Links = Annotated[
    list[str] | None, _names("LINK", "Links: leaf1:5, or leaf1:spine2 for all cables between the two", link_names)
]

Alarms = Annotated[list[str] | None, _names("ALARM", "Kinds or subjects of alarms", alarm_names)]


@commands.command(cls=AskingCommand)
def jobs(names: Jobs = None) -> None:
    """List jobs with their state and efficiency.

    'planned for' names the source of the bytes that the planner uses; unconfirmed: no counter has confirmed the
    announcement yet. A state of 'no path' means that hosts are not connected, 'silent' that the job sends nothing,
    'slower' that its iterations take longer.

    '?' marks a measured efficiency while no counter has confirmed its bytes. '!' marks one above 105 %: the job
    announced too much, or reports its iterations as too short."""
    with connect() as client:
        found = client.list_jobs()
    _show(JOB, "jobs", found, names, printing_jobs.jobs)


@commands.command(cls=AskingCommand)
def links(
    names: Links = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Only the N busiest by use of their capacity, with the flows of each job."
        ),
    ] = None,
) -> None:
    """List directed links with capacity, rate and background traffic."""
    with connect() as client:
        fabric = client.get_fabric()
        if top is None:
            _show(LINK, "links", fabric.links, names, printing.links, fabric.parts_down, with_use)
            return
        routes = client.list_routes()
    kept = named(LINK, fabric.links, names or ())
    busiest = sorted(kept.found, key=lambda link: (-(load(link) or 0), link.name))[:top]
    subflows = subflows_by_link(routes)
    carried = [(link, subflows.get((link.src.dpid, link.src.port), ())) for link in busiest]
    of_links = [{**with_use(link), "jobs": job_counts(on_it)} for link, on_it in carried]
    flows_hashed = hashed(fabric, routes)
    columns = (
        Column("link"),
        Column("use", number=True),
        Column("rate", 1, number=True),
        Column("capacity", 3, number=True),
        Column("background", 2, number=True),
        Column("flows of each job", wraps=True),
    )
    rows = [(*link_cells(link), jobs_in_words(on_it) or "-") for link, on_it in carried]
    more = *printing.unmeasured(busiest), *not_known(flows_hashed)
    show({"links": of_links, "flows_hashed": flows_hashed}, lambda: Group(Fitted(columns, rows), *more))
    tell_missing(LINK, kept.missing)


@commands.command(cls=AskingCommand)
def switches(
    names: Annotated[list[str] | None, _names("SWITCH", "Names or dpids of switches", all_switch_names)] = None,
) -> None:
    """List switches with their rules and whether they are in sync, and optical switches with their circuits."""
    with connect() as client:
        fabric = client.get_fabric()
    down = fabric.parts_down
    found, missing = named(SWITCH, optical.all_switches(fabric), names or (), down)
    switches = [switch for switch in found if isinstance(switch, pb.Switch)]
    optical_switches = [switch for switch in found if isinstance(switch, pb.OpticalSwitch)]
    tables = [printing.switches(switches)] if switches or not optical_switches else []
    tables += [*optical.tables(optical_switches), *_gone(SWITCH, names, down)]
    show({"switches": switches, "optical_switches": optical_switches}, lambda: Group(*tables))
    tell_missing(SWITCH, missing, down)


@commands.command(cls=AskingCommand)
def hosts(names: Annotated[list[str] | None, _names("HOST", "Addresses of hosts", host_names)] = None) -> None:
    """List hosts with their switches and ports."""
    with connect() as client:
        fabric = client.get_fabric()
    _show(HOST, "hosts", fabric.hosts, names, printing.hosts, fabric.parts_down)


@commands.command(cls=AskingCommand)
def alarms(names: Alarms = None) -> None:
    """List active alarms with subject and time: critical ones first, acknowledged and silenced ones last."""
    list_alarms(names, printing.alarm_table)


def list_alarms(names: Sequence[str] | None, table: Callable[[Sequence[pb.Alarm]], RenderableType]) -> None:
    """Print all alarms, or those of the named kinds and subjects."""
    with connect() as client:
        found = sorted(client.get_status().alarms, key=lambda alarm: (alarm.HasField("silence"), -alarm.severity))
    _show(ALARM, "alarms", found, names, table)


@commands.command(cls=AskingCommand)
def plan(names: Jobs = None) -> None:
    """Show the current plan with its certificate and routes; with JOB only slowdowns and routes of these jobs."""
    with connect() as client:
        found = client.get_plan()
    missing: Sequence[str] = ()
    if found and names:
        planned, missing = named(JOB._replace(called=lambda job: (job.job_id,)), found.jobs, names)
        routes = [each for each in found.routes if each.job_id in names]
        for field, kept in (("jobs", planned), ("routes", routes)):
            of_jobs = [*kept]
            found.ClearField(field)
            getattr(found, field).extend(of_jobs)
        found.subflows = sum(len(each.route.subflows) for each in found.routes)
    show(found, lambda: printing.plan(found))
    tell_missing(JOB, missing)


def _show(
    kind: Kind,
    key: str,
    things: Sequence[Any],
    names: Sequence[str] | None,
    table: Any,
    down: Sequence[pb.DownPart] = (),
    as_data: Any = fields,
) -> None:
    """Print a table, or data for programs.

    ``down``: parts of the fabric that are down; without ``names``, the parts of this kind are printed after the table.
    ``as_data``: function that returns the data of one thing for programs."""
    found, missing = named(kind, things, names or (), down)
    show({key: [*map(as_data, found)]}, lambda: Group(table(found), *_gone(kind, names, down)))
    tell_missing(kind, missing, down)


def _gone(kind: Kind, names: Sequence[str] | None, down: Sequence[pb.DownPart]) -> list[str]:
    gone = [part.name for part in down if word_in(part, "kind") == kind.name and not names]
    return [f"Down: {escape(', '.join(gone))}; signalbox fabric lists since when."] if gone else []
