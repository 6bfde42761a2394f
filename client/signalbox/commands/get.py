"""``signalbox get``: things of one kind, one line each; all of them, or those that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from typer.core import TyperGroup

from signalbox.commands import crossing, optical, printing, printing_jobs
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
from signalbox.commands.tables import Column, Fitted

Fields = Mapping[str, Any]

_SINGULAR = {"job": "jobs", "link": "links", "switch": "switches", "host": "hosts", "alarm": "alarms"}


class _Kinds(TyperGroup):
    """One is called as several are: ``get job ring``."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, _SINGULAR.get(cmd_name, cmd_name))


commands = typer.Typer(help="List jobs, links, switches, hosts, plan or alarms.", no_args_is_help=True, cls=_Kinds)


def _names(metavar: str, what: str, ask: Any) -> Any:
    return typer.Argument(metavar=metavar, help=f"{what}; all without any.", autocompletion=completed(ask))


Jobs = Annotated[list[str] | None, _names("JOB", "Ids of jobs", job_names)]
Links = Annotated[
    list[str] | None, _names("LINK", "Links: leaf1:5, or leaf1:spine2 for all cables between the two", link_names)
]


@commands.command(cls=AskingCommand)
def jobs(names: Jobs = None) -> None:
    """List jobs with their state and efficiency."""
    with connect() as client:
        found = [fields(job) for job in client.list_jobs()]
    _show(JOB, "jobs", found, names, printing_jobs.jobs)


@commands.command(cls=AskingCommand)
def links(
    names: Links = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The N busiest, by use of their capacity, and whose flows they carry."),
    ] = None,
) -> None:
    """List directed links with capacity, rate and background."""
    with connect() as client:
        fabric = fields(client.get_fabric())
        found = [{**link, "use": printing.use(link)} for link in fabric["links"]]
        if top is None:
            _show(LINK, "links", found, names, printing.links, fabric["parts_down"])
            return
        routes = [fields(route) for route in client.list_routes()]
    kept = named(LINK, found, names or ())
    busiest = sorted(kept.found, key=lambda link: (-(link["use"] or 0), link["name"]))[:top]
    flows = crossing.flows_by_link(routes)
    of_link = [{**link, "jobs": crossing.jobs_of(flows.get(crossing.at(link["src"]), ()))} for link in busiest]
    data = {"links": of_link, "flows_hashed": crossing.hashed(fabric, routes)}
    show(data, lambda: _busiest(data))
    tell_missing(LINK, kept.missing)


@commands.command(cls=AskingCommand)
def switches(
    names: Annotated[list[str] | None, _names("SWITCH", "Names or dpids of switches", all_switch_names)] = None,
) -> None:
    """List switches with their rules, and whether they are in sync; and optical switches with their circuits."""
    with connect() as client:
        fabric = fields(client.get_fabric())
    down = fabric["parts_down"]
    found, missing = named(SWITCH, optical.all_switches(fabric), names or (), down)
    data = {
        "switches": [switch for switch in found if not optical.is_optical(switch)],
        "optical_switches": [switch for switch in found if optical.is_optical(switch)],
    }
    show(data, lambda: Group(*_switches(**data), *_gone(SWITCH, names, down)))
    tell_missing(SWITCH, missing, down)


@commands.command(cls=AskingCommand)
def hosts(
    names: Annotated[list[str] | None, _names("HOST", "Addresses of hosts", host_names)] = None,
) -> None:
    """List hosts, and where they are."""
    with connect() as client:
        fabric = fields(client.get_fabric())
    _show(HOST, "hosts", fabric["hosts"], names, printing.hosts, fabric["parts_down"])


@commands.command(cls=AskingCommand)
def alarms(
    names: Annotated[list[str] | None, _names("ALARM", "Kinds or subjects of alarms", alarm_names)] = None,
) -> None:
    """List what is wrong now, critical alarms first."""
    with connect() as client:
        found = fields(client.get_status())["alarms"]
    found.sort(key=lambda alarm: alarm["severity"] != printing.CRITICAL)
    _show(ALARM, "alarms", found, names, _alarms)


@commands.command(cls=AskingCommand)
def plan(names: Jobs = None) -> None:
    """Show the current plan with its certificate and routes; with JOB its levels and routes of these jobs only."""
    with connect() as client:
        current = client.get_plan()
    found: Any = None if current is None else fields(current)
    missing: Sequence[str] = ()
    if found and names:
        planned, missing = named(JOB._replace(called=lambda job: (job["job_id"],)), found["jobs"], names)
        routes = [route for route in found["routes"] if route["job_id"] in names]
        found = {**found, "jobs": planned, "routes": routes}
    show(found, lambda: printing.plan(found) if found else "There is no plan yet.")
    tell_missing(JOB, missing)


def _show(
    kind: Kind,
    key: str,
    things: Sequence[Fields],
    names: Sequence[str] | None,
    table: Any,
    down: Sequence[Fields] = (),
) -> None:
    """``down``: parts of the fabric that are not there; those of this kind follow the table of all."""
    found, missing = named(kind, things, names or (), down)
    show({key: found}, lambda: Group(table(found), *_gone(kind, names, down)))
    tell_missing(kind, missing, down)


def _gone(kind: Kind, names: Sequence[str] | None, down: Sequence[Fields]) -> list[str]:
    gone = [part["name"] for part in down if part["kind"] == kind.name and not names]
    return [f"Down: {escape(', '.join(gone))}; signalbox fabric says since when."] if gone else []


def _switches(switches: Sequence[Fields], optical_switches: Sequence[Fields]) -> Iterator[RenderableType]:
    if switches or not optical_switches:
        yield printing.switches(switches)
    yield from optical.tables(optical_switches)


def _busiest(found: Fields) -> RenderableType:
    columns = (
        Column("link"),
        Column("use", number=True),
        Column("rate", 1, number=True),
        Column("capacity", 3, number=True),
        Column("background", 2, number=True),
        Column("flows of each job", wraps=True),
    )
    rows = (
        (
            link["name"],
            printing.known(link["use"], ".0%"),
            printing.known_rate(link["rate_bps"]),
            printing.rate(link["capacity_bps"]),
            printing.known_rate(link["background_bps"]),
            crossing.words(link["jobs"]) or "-",
        )
        for link in found["links"]
    )
    more = *printing.unmeasured(found["links"]), *crossing.not_known(found["flows_hashed"])
    return Group(Fitted(columns, rows), *more)


def _alarms(found: Sequence[Fields]) -> RenderableType:
    if not found:
        return "There are no alarms."
    columns = (Column("severity"), Column("kind"), Column("subject", 1), Column("since", 2), Column("text", wraps=True))
    rows = (
        (alarm["severity"], alarm["kind"], alarm["subject"], printing.when(alarm["raise_time"]), alarm["text"])
        for alarm in found
    )
    return Fitted(columns, rows)
