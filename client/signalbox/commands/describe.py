"""``signalbox describe``: all that is known of one job, link, switch or host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from signalbox.client import Client
from signalbox.commands import crossing, optical, printing, printing_jobs
from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.naming import (
    HOST,
    LINK,
    SWITCH,
    all_switch_names,
    completed,
    host_names,
    job_names,
    link_names,
    the,
)
from signalbox.commands.output import fields, show
from signalbox.commands.tables import Column, Fitted, facts

Fields = Mapping[str, Any]

commands = typer.Typer(help="Show all that is known of one job, link, switch or host.", no_args_is_help=True)


@commands.command(cls=AskingCommand)
def job(
    name: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=completed(job_names))],
) -> None:
    """Show a job: what it waits for, level, traffic, alarms, and the route of every flow."""
    with connect() as client:
        of_job = fields(client.get_job(name))
        routes = [fields(route) for route in client.list_routes([name])]
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
            help="leaf1:5, or leaf1:spine2 where one cable leads there.",
            autocompletion=completed(link_names),
        ),
    ],
) -> None:
    """Show a directed link: rate, use of its capacity, background, and the flows and jobs on it."""
    with connect() as client:
        fabric = fields(client.get_fabric())
        of_link = dict(the(LINK, fabric["links"], name, fabric["parts_down"]))
        of_link["use"] = printing.use(of_link)
        routes = [fields(route) for route in client.list_routes()]
        port = of_link["name"].partition(">")[0]
        alarms = _alarms(client, of_link["name"], port)
    flows = crossing.flows_by_link(routes).get(crossing.at(of_link["src"]), [])
    through = optical.through(of_link, fabric)
    found = {
        "link": of_link,
        "jobs": crossing.jobs_of(flows),
        "flows": flows,
        "flows_hashed": crossing.hashed(fabric, routes),
        "alarms": alarms,
        "optical_switch": through.name if through else None,
    }
    show(found, lambda: _link(found, fabric, through))


@commands.command(cls=AskingCommand)
def switch(
    name: Annotated[
        str, typer.Argument(metavar="SWITCH", help="Its name or dpid.", autocompletion=completed(all_switch_names))
    ],
) -> None:
    """Show a switch: ports, rules, links with their use, hosts, and the jobs whose flows cross it.

    Of an optical switch: what each port is connected to, and the jobs that own its circuits."""
    with connect() as client:
        fabric = fields(client.get_fabric())
        of_switch = the(SWITCH, optical.all_switches(fabric), name, fabric["parts_down"])
        if optical.is_optical(of_switch):
            _show_optical(client, of_switch, fabric)
            return
        dpid = of_switch["dpid"]
        routes = [fields(route) for route in client.list_routes()]
        alarms = _alarms(client, of_switch["name"], ports=True)
    found = {
        "switch": of_switch,
        "links": [
            {**link, "use": printing.use(link)}
            for link in fabric["links"]
            if dpid in (link["src"]["dpid"], link["dst"]["dpid"])
        ],
        "hosts": [host for host in fabric["hosts"] if host["at"]["dpid"] == dpid],
        "jobs": crossing.jobs_of(crossing.flows_at_switch(dpid, fabric, routes)),
        "flows_hashed": crossing.hashed(fabric, routes),
        "alarms": alarms,
    }
    show(found, lambda: _switch(found))


@commands.command(cls=AskingCommand)
def host(
    name: Annotated[str, typer.Argument(metavar="HOST", help="Its address.", autocompletion=completed(host_names))],
) -> None:
    """Show a host: where it is, and the jobs that it takes part in."""
    with connect() as client:
        fabric = fields(client.get_fabric())
        of_host = the(HOST, fabric["hosts"], name, fabric["parts_down"])
        ip = of_host["ip"]
        jobs = [fields(job) for job in client.list_jobs()]
        routes = [fields(route) for route in client.list_routes()]
        alarms = _alarms(client, ip)
    found = {
        "host": of_host,
        "jobs": [_part(job, ip, routes) for job in jobs if _takes_part(job, ip)],
        "alarms": alarms,
    }
    show(found, lambda: _host(found))


def _show_optical(client: Client, switch: Fields, fabric: Fields) -> None:
    names = optical.Names(fabric)
    found = optical.described(switch, [fields(job) for job in client.list_jobs()], names)
    found["alarms"] = _alarms(client, switch["name"], *optical.interfaces(switch, names))
    show(found, lambda: optical.panel(found, names))


def _alarms(client: Client, *subjects: str, ports: bool = False) -> list[Fields]:
    """About these; ``ports``: or about ports of these switches."""
    begin = tuple(f"{subject}:" for subject in subjects) if ports else ()
    alarms: list[Fields] = fields(client.get_status())["alarms"]
    return [alarm for alarm in alarms if alarm["subject"] in subjects or alarm["subject"].startswith(begin)]


def _takes_part(job: Fields, ip: str) -> bool:
    spec = job["spec"]
    return ip in spec["endpoints"] or any(ip in rail["endpoints"] for rail in spec["rails"])


def _part(job: Fields, ip: str, routes: Sequence[Fields]) -> dict[str, Any]:
    own = [route for route in routes if route["job_id"] == job["spec"]["job_id"]]
    return {
        "job_id": job["spec"]["job_id"],
        "state": job["state"],
        "flows_sent": sum(route["src"] == ip for route in own),
        "flows_received": sum(route["dst"] == ip for route in own),
    }


# ---- tables


def routes_table(routes: Sequence[Fields], job: Fields) -> RenderableType:
    """Where the newest plan has another route, that too. ``job``: whose they are."""
    wired = not (job["wiring"] and job["wiring"]["unwired"])

    def held(route: Fields) -> str:
        if not {route["src"], route["dst"]}.isdisjoint(job["missing_hosts"]):
            return paths(route["held"], "host not found")
        return paths(route["held"], "ecmp" if wired else "no circuits")

    planned = any(route["planned"] for route in routes)
    columns = (
        *(Column("from"), Column("to"), Column("route", wraps=True)),
        *([Column("in the newest plan", 1, wraps=True)] if planned else ()),
    )
    rows = (
        (route["src"], route["dst"], held(route), *([paths(route["planned"], "same")] if planned else ()))
        for route in routes
    )
    return Fitted(columns, rows, title="routes")


def paths(of_route: Sequence[Fields], without: str = "ecmp") -> str:
    """Switch by switch; the pieces of one that is split with their shares. ``without``: of what has none."""
    if len(of_route) == 1:
        return " > ".join(of_route[0]["switches"])
    return "; ".join(f"{path['share']:.0%} {' > '.join(path['switches'])}" for path in of_route) or without


def _jobs(jobs: Sequence[Fields], hashed: int, what: str) -> Iterator[RenderableType]:
    yield Fitted((Column("job"), Column("flows", number=True)), ((one["job_id"], one["flows"]) for one in jobs), what)
    yield from crossing.not_known(hashed)


def _link(found: Fields, fabric: Fields, through: optical.Through | None) -> RenderableType:
    link = found["link"]
    names = {switch["dpid"]: switch["name"] for switch in fabric["switches"]}
    ends = [f"{names.get(end['dpid'], end['dpid'])}, port {end['port']}" for end in (link["src"], link["dst"])]
    rate, background = link["rate_bps"], link["background_bps"]
    announced = None if rate is None or background is None else max(0.0, rate - background)
    about = {
        "link": link["name"],
        "from": ends[0],
        "to": ends[1],
        **({"one way": f"yes, it is a circuit of {through or 'an optical switch'}"} if link["one_way"] else {}),
        "capacity": printing.rate(link["capacity_bps"]),
        "rate": f"{printing.rate(rate)}, {link['use']:.0%} of the capacity"
        if rate is not None
        else printing.RATE_UNKNOWN,
        "announced": printing.known_rate(announced),
        "background": printing.known_rate(background),
    }
    flows = Fitted(
        (*map(Column, ("job", "from", "to")), Column("share", number=True)),
        ((flow["job_id"], flow["src"], flow["dst"], f"{flow['share']:.1%}") for flow in found["flows"]),
        title="flows on it",
    )
    jobs = _jobs(found["jobs"], found["flows_hashed"], "jobs on it")
    return Group(facts(about), *printing.alarms(found["alarms"]), *jobs, flows)


def _switch(found: Fields) -> RenderableType:
    switch = found["switch"]
    ports = switch["ports"]
    about = {
        "switch": switch["name"],
        "dpid": f"{int(switch['dpid']):#x}",
        "in sync": "yes" if switch["in_sync"] else "no",
        "rules": f"{switch['rules']}; signalbox rules {switch['name']} lists them",
        "foreign rules": switch["foreign_rules"],
        "flow tables": ", ".join(map(_table, switch["tables"])) or "the switch does not say",
        "other tables": ", ".join(map(_table, switch["other_tables"])) or "the switch does not say",
        "ports": f"{len(ports)}, {sum(port['up'] for port in ports)} up",
        "hosts": len(found["hosts"]),
    }
    jobs = _jobs(found["jobs"], found["flows_hashed"], "jobs with flows that begin, end or pass here")
    return Group(facts(about), *printing.alarms(found["alarms"]), ports_table(found), *jobs)


def _table(table: Fields) -> str:
    """Its number or name, entries, and how many it has room for, where these are known."""
    room = "" if table["max_entries"] is None else f" of {table['max_entries']}"
    return f"{str(table['table']).replace('_', ' ')} has {printing.known(table['entries'], 'd')}{room}"


def ports_table(found: Fields) -> RenderableType:
    dpid = found["switch"]["dpid"]
    out = {link["src"]["port"]: link for link in found["links"] if link["src"]["dpid"] == dpid}
    into = {link["dst"]["port"]: link for link in found["links"] if link["dst"]["dpid"] == dpid}
    hosts = {host["at"]["port"]: host["ip"] for host in found["hosts"]}
    circuits = any(link["one_way"] for link in found["links"])
    columns = (
        Column("port", number=True),
        Column("name", 2),
        Column("up"),
        Column("leads to"),
        *([Column("comes from")] if circuits else ()),
        Column("capacity", 3, number=True),
        *(Column(name, number=True) for name in ("out", "use", "in", "use")),
    )

    def rates(link: Fields | None) -> tuple[str, str]:
        known = link or {"rate_bps": None, "use": None}
        return printing.known_rate(known["rate_bps"]), printing.known(known["use"], ".0%")

    def row(port: Fields) -> Sequence[object]:
        number = port["number"]
        link = out.get(number)
        to = link["name"].partition(">")[2] if link else hosts.get(number, "-")
        capacity = printing.rate(link["capacity_bps"]) if link else "-"
        up = "yes" if port["up"] else "no"
        back = [into[number]["name"].partition(">")[0] if number in into else hosts.get(number, "-")]
        ends = (to, *(back if circuits else ()))
        return (number, port["name"], up, *ends, capacity, *rates(link), *rates(into.get(number)))

    table = Fitted(columns, map(row, found["switch"]["ports"]), title="ports")
    return Group(table, *printing.unmeasured(found["links"]))


def _host(found: Fields) -> RenderableType:
    host = found["host"]
    about = {
        "host": host["ip"],
        "mac": host["mac"] or "not seen yet",
        "at": f"{host['switch_name']}, port {host['at']['port']}",
    }
    jobs = Fitted(
        (*map(Column, ("job", "state")), *(Column(name, number=True) for name in ("flows sent", "flows received"))),
        (
            (job["job_id"], printing.word(job["state"]), job["flows_sent"], job["flows_received"])
            for job in found["jobs"]
        ),
        title="jobs",
    )
    return Group(facts(about), *printing.alarms(found["alarms"]), jobs)
