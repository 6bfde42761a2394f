"""``signalbox describe``: everything known about one job, link, switch or host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from signalbox.client import Client
from signalbox.commands import optical, printing, printing_jobs
from signalbox.commands.connecting import (
    HOST,
    LINK,
    SWITCH,
    AskingCommand,
    all_switch_names,
    completed,
    connect,
    host_names,
    job_names,
    link_names,
    the,
)
from signalbox.commands.output import Column, Fitted, facts, show
from signalbox.commands.printing import job_counts, not_known, with_use, yes_or_no
from signalbox.live.jobs import flows_at_switch, hashed, route_cells, subflows_by_link
from signalbox.live.shown import optional, percent, rate, word
from signalbox.live.state import load
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

Found = Mapping[str, Any]
"""Data that a command prints for programs: messages of the API, and values derived from several messages."""

commands = typer.Typer(help="Show everything known about one job, link, switch or host.", no_args_is_help=True)


@commands.command(cls=AskingCommand)
def job(
    name: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=completed(job_names))],
) -> None:
    """Show a job: hosts it waits for, slowdown, traffic, alarms, and the route of every flow."""
    with connect() as client:
        of_job = client.get_job(name)
        routes = client.list_routes([name])
        alarms = _alarms(client, name)
    found = {"job": of_job, "routes": routes, "alarms": alarms}
    show(
        found,
        lambda: Group(printing_jobs.job(of_job), *printing.alarms(alarms), routes_table(routes, of_job)),
    )


@commands.command(cls=AskingCommand)
def link(
    name: Annotated[
        str,
        typer.Argument(
            metavar="LINK",
            help="Link: leaf1:5, or leaf1:spine2 if one cable connects the two.",
            autocompletion=completed(link_names),
        ),
    ],
) -> None:
    """Show a directed link: rate, use of its capacity, background traffic, and the flows and jobs on it."""
    with connect() as client:
        fabric = client.get_fabric()
        of_link: pb.Link = the(LINK, fabric.links, name, fabric.parts_down)
        routes = client.list_routes()
        alarms = _alarms(client, of_link.name, of_link.name.partition(">")[0])
    subflows = subflows_by_link(routes).get((of_link.src.dpid, of_link.src.port), [])
    through = optical.through(of_link, fabric)
    found = {
        "link": with_use(of_link),
        "jobs": job_counts(subflows),
        "flows": [subflow._asdict() for subflow in subflows],
        "flows_hashed": hashed(fabric, routes),
        "alarms": alarms,
        "optical_switch": through.name if through else None,
    }
    show(found, lambda: _link(found, of_link, fabric, through))


@commands.command(cls=AskingCommand)
def switch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SWITCH", help="Name or dpid of the switch.", autocompletion=completed(all_switch_names)
        ),
    ],
) -> None:
    """Show a switch: ports, rules, links with their use, hosts, and the jobs whose flows cross it.

    For an optical switch: what each port is connected to, and the jobs that own its circuits."""
    with connect() as client:
        fabric = client.get_fabric()
        of_switch = the(SWITCH, optical.all_switches(fabric), name, fabric.parts_down)
        if isinstance(of_switch, pb.OpticalSwitch):
            _show_optical(client, of_switch, fabric)
            return
        dpid = of_switch.dpid
        routes = client.list_routes()
        alarms = _alarms(client, of_switch.name, ports=True)
    links = [link for link in fabric.links if dpid in (link.src.dpid, link.dst.dpid)]
    hosts = [host for host in fabric.hosts if host.at.dpid == dpid]
    found = {
        "switch": of_switch,
        "links": [with_use(link) for link in links],
        "hosts": hosts,
        "jobs": job_counts(flows_at_switch(dpid, fabric, routes)),
        "flows_hashed": hashed(fabric, routes),
        "alarms": alarms,
    }
    show(found, lambda: _switch(found, of_switch, links, hosts))


@commands.command(cls=AskingCommand)
def host(
    name: Annotated[
        str, typer.Argument(metavar="HOST", help="Address of the host.", autocompletion=completed(host_names))
    ],
) -> None:
    """Show a host: its switch and port, and the jobs that run on it."""
    with connect() as client:
        fabric = client.get_fabric()
        of_host: pb.Host = the(HOST, fabric.hosts, name, fabric.parts_down)
        jobs = client.list_jobs()
        routes = client.list_routes()
        alarms = _alarms(client, of_host.ip)
    found = {
        "host": of_host,
        "jobs": [_part(job, of_host.ip, routes) for job in jobs if _takes_part(job.spec, of_host.ip)],
        "alarms": alarms,
    }
    show(found, lambda: _host(found, of_host))


def _show_optical(client: Client, switch: pb.OpticalSwitch, fabric: pb.GetFabricResponse) -> None:
    names = optical.Names(fabric)
    found = optical.described(switch, client.list_jobs(), names)
    found["alarms"] = _alarms(client, switch.name, *optical.interfaces(switch, names))
    show(found, lambda: optical.panel(found, names))


def _alarms(client: Client, *subjects: str, ports: bool = False) -> list[pb.Alarm]:
    """Return the alarms about these subjects.

    With ``ports``, the subjects are switches, and alarms about their ports are returned too."""
    begin = tuple(f"{subject}:" for subject in subjects) if ports else ()
    alarms = client.get_status().alarms
    return [alarm for alarm in alarms if alarm.subject in subjects or alarm.subject.startswith(begin)]


def _takes_part(spec: pb.JobSpec, ip: str) -> bool:
    return ip in spec.endpoints or any(ip in rail.endpoints for rail in spec.rails)


def _part(job: pb.Job, ip: str, routes: Sequence[pb.ListedRoute]) -> dict[str, Any]:
    own = [route for route in routes if route.job_id == job.spec.job_id]
    return {
        "job_id": job.spec.job_id,
        "state": word_in(job, "state"),
        "flows_sent": sum(route.src == ip for route in own),
        "flows_received": sum(route.dst == ip for route in own),
    }


# ---- tables


def routes_table(routes: Sequence[pb.ListedRoute], job: pb.Job) -> RenderableType:
    """Return a table of a job's routes.

    A further column has the routes of the newest plan, if it changes some of them."""
    planned = any(route.planned for route in routes)
    columns = (
        *(Column("from"), Column("to"), Column("route", wraps=True)),
        *([Column("in the newest plan", 1, wraps=True)] if planned else ()),
    )
    return Fitted(columns, (route_cells(job, route, planned) for route in routes), title="routes")


def _jobs(found: Found, what: str) -> Iterator[RenderableType]:
    rows = ((one["job_id"], one["flows"]) for one in found["jobs"])
    yield Fitted((Column("job"), Column("flows", number=True)), rows, what)
    yield from not_known(found["flows_hashed"])


def _link(found: Found, link: pb.Link, fabric: pb.GetFabricResponse, through: optical.Through | None) -> RenderableType:
    names = {switch.dpid: switch.name for switch in fabric.switches}
    ends = [f"{names.get(end.dpid, end.dpid)}, port {end.port}" for end in (link.src, link.dst)]
    background = optional(link, "background_bps")
    known = link.HasField("rate_bps")
    announced = max(0.0, link.rate_bps - background) if known and background is not None else None
    about = {
        "link": link.name,
        "from": ends[0],
        "to": ends[1],
        **({"one way": f"yes, it is a circuit of {through or 'an optical switch'}"} if link.one_way else {}),
        "capacity": rate(link.capacity_bps),
        "rate": f"{rate(link.rate_bps)}, {percent(load(link))} of the capacity" if known else printing.RATE_UNKNOWN,
        "announced": rate(announced),
        "background": rate(background),
    }
    flows = Fitted(
        (*map(Column, ("job", "from", "to")), Column("share", number=True)),
        ((flow["job_id"], flow["src"], flow["dst"], f"{flow['share']:.1%}") for flow in found["flows"]),
        title="flows on it",
    )
    return Group(facts(about), *printing.alarms(found["alarms"]), *_jobs(found, "jobs on it"), flows)


def _switch(found: Found, switch: pb.Switch, links: Sequence[pb.Link], hosts: Sequence[pb.Host]) -> RenderableType:
    about = {
        "switch": switch.name,
        "dpid": f"{switch.dpid:#x}",
        "in sync": yes_or_no(switch.in_sync),
        "rules": f"{switch.rules}; signalbox rules {switch.name} lists them",
        "foreign rules": switch.foreign_rules,
        "flow tables": ", ".join(_filled(str(each.table), each) for each in switch.tables) or "not reported",
        "other tables": ", ".join(_filled(word(word_in(each, "table")), each) for each in switch.other_tables)
        or "not reported",
        "ports": f"{len(switch.ports)}, {sum(port.up for port in switch.ports)} up",
        "hosts": len(hosts),
    }
    jobs = _jobs(found, "jobs with flows that begin, end or pass here")
    return Group(facts(about), *printing.alarms(found["alarms"]), ports_table(switch, links, hosts), *jobs)


def _filled(name: str, table: pb.FlowTable | pb.OtherTable) -> str:
    """Return a table's number of entries and its capacity in words, such as ``0 has 12 of 1000``; ``-`` if unknown."""
    entries = table.entries if table.HasField("entries") else "-"
    return f"{name} has {entries}" + (f" of {table.max_entries}" if table.HasField("max_entries") else "")


def ports_table(switch: pb.Switch, links: Sequence[pb.Link], hosts: Sequence[pb.Host]) -> RenderableType:
    """Return a table of the switch's ports. ``links``: links that begin or end at the switch; ``hosts``: its hosts."""
    out = {link.src.port: link for link in links if link.src.dpid == switch.dpid}
    into = {link.dst.port: link for link in links if link.dst.dpid == switch.dpid}
    at = {host.at.port: host.ip for host in hosts}
    circuits = any(link.one_way for link in links)
    columns = (
        Column("port", number=True),
        Column("name", 2),
        Column("up"),
        Column("leads to"),
        *([Column("comes from")] if circuits else ()),
        Column("capacity", 3, number=True),
        *(Column(name, number=True) for name in ("out", "use", "in", "use")),
    )

    def rates(link: pb.Link | None) -> tuple[str, str]:
        return (rate(optional(link, "rate_bps")), percent(load(link))) if link else ("-", "-")

    def row(port: pb.Port) -> Sequence[object]:
        leaving, arriving = out.get(port.number), into.get(port.number)
        host = at.get(port.number, "-")
        to = leaving.name.partition(">")[2] if leaving else host
        back = [arriving.name.partition(">")[0] if arriving else host] if circuits else []
        capacity = rate(leaving.capacity_bps if leaving else None)
        return (port.number, port.name, yes_or_no(port.up), to, *back, capacity, *rates(leaving), *rates(arriving))

    return Group(Fitted(columns, map(row, switch.ports), title="ports"), *printing.unmeasured(links))


def _host(found: Found, host: pb.Host) -> RenderableType:
    about = {
        "host": host.ip,
        "mac": host.mac or "not seen yet",
        "at": f"{host.switch_name}, port {host.at.port}",
    }
    columns = (*map(Column, ("job", "state")), *(Column(f"flows {way}", number=True) for way in ("sent", "received")))
    rows = ((job["job_id"], word(job["state"]), job["flows_sent"], job["flows_received"]) for job in found["jobs"])
    return Group(facts(about), *printing.alarms(found["alarms"]), Fitted(columns, rows, title="jobs"))
