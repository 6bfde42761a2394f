"""``signalbox get``: list all things of one kind, or the named ones, with one line each.

``get topology`` prints the cabling in the form of Slurm's plugin topology/tree. This form has only trees, so switches
with the same connections are merged. All spines of a leaf-spine fabric become one switch, and the upper switches of
each pod of a fat-tree become one switch. A fabric of circuits is refused.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Group, RenderableType
from typer.core import TyperGroup

from signalbox.commands import optical, printing, printing_jobs
from signalbox.commands.connecting import (
    ALARM,
    HOST,
    JOB,
    LINK,
    SWITCH,
    AskingCommand,
    Kind,
    alarm_names,
    all_switch_names,
    completed,
    connect,
    host_names,
    job_names,
    link_names,
    named,
    tell_missing,
)
from signalbox.commands.output import (
    Column,
    Fitted,
    document,
    escape,
    fields,
    file_to_read,
    for_programs,
    printable,
    show,
)
from signalbox.commands.printing import job_counts, not_known, with_use
from signalbox.errors import SignalboxError
from signalbox.host_addresses import Nics, address_map
from signalbox.live.jobs import hashed, jobs_in_words, subflows_by_link
from signalbox.live.picture import distances
from signalbox.live.rows import link_cells
from signalbox.live.shown import natural
from signalbox.live.state import load
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

_SINGULAR = {"job": "jobs", "link": "links", "switch": "switches", "host": "hosts", "alarm": "alarms"}


class _Kinds(TyperGroup):
    """Command group that also accepts the singular of its commands' names: ``get job ring``."""

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

    'planned for' names the source of the bytes that the planner uses; 'unconfirmed' means that no counter has confirmed
    the announcement yet. A state of 'no path' means that hosts are not connected, 'silent' that the job sends nothing,
    'slower' that its iterations take longer.

    '?' marks a measured efficiency if no counter has confirmed its bytes yet. '!' marks a measured efficiency above
    105 %: the job announced too much, or reports its iterations as too short."""
    with connect() as client:
        found = client.list_jobs()
    _show(JOB, "jobs", found, names, printing_jobs.jobs)


@commands.command(cls=AskingCommand)
def links(
    names: Links = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the N fullest links, with the number of flows of each job."),
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
    """List switches with their rules and whether they are in sync, and optical switches with their circuits.

    holder: the member that the switch has confirmed as its OpenFlow master, where members divide the switches."""
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
    """Print all alarms, or the alarms of the named kinds and subjects."""
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
    """Print a table of the things with the given names, or of all things; print data instead for programs.

    - ``table``: function that makes the table
    - ``down``: parts of the fabric that are down. If no names are given, the parts of this ``kind`` that are down are
      listed below the table.
    - ``as_data``: function that returns one thing as data for programs"""
    found, missing = named(kind, things, names or (), down)
    show({key: [*map(as_data, found)]}, lambda: Group(table(found), *_gone(kind, names, down)))
    tell_missing(kind, missing, down)


def _gone(kind: Kind, names: Sequence[str] | None, down: Sequence[pb.DownPart]) -> list[str]:
    gone = [part.name for part in down if word_in(part, "kind") == kind.name and not names]
    return [f"Down: {escape(', '.join(gone))}; signalbox fabric lists since when."] if gone else []


class NoTree(SignalboxError):
    """Error: the fabric cannot be described as a tree."""


def refuse_circuits(circuits: Sequence[str]) -> None:
    """Raise ``NoTree`` when the fabric has circuits. ``circuits``: names of the circuits, which are the one-way links.

    Circuits are connected anew for each job, so the distances between nodes change."""
    if circuits:
        raise NoTree(
            f"the fabric has {len(circuits)} circuits of optical switches (such as {circuits[0]}): it is not a tree, "
            "and it changes with its jobs. Let Slurm choose nodes without a topology.conf"
        )


class TreeSwitch(NamedTuple):
    """Switch of Slurm's tree. A leaf has ``nodes``; other switches have ``switches``, the names of their children."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


def tree(cables: Iterable[tuple[str, str]], nodes: Mapping[str, Sequence[str]]) -> list[TreeSwitch]:
    """Return the switches of Slurm's tree for a fabric.

    - ``cables``: pairs of switch names
    - ``nodes``: names of the nodes at each switch that has some; such a switch is a leaf

    A switch is in tier k when its nearest leaf is k cables away. For each k, leaves that are connected through switches
    of tiers up to k form a set. The tree has one switch above each set."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in cables:
        neighbours[one].add(other)
        neighbours[other].add(one)
    leaves = sorted((leaf for leaf in nodes if nodes[leaf]), key=natural)
    found = [TreeSwitch(leaf, tuple(sorted(nodes[leaf], key=natural)), ()) for leaf in leaves]
    tops = {leaf: leaf for leaf in leaves}  # topmost switch above each leaf so far
    tier_of = distances(neighbours, leaves)
    for tier in range(max(tier_of.values(), default=0) + 1):
        number = 0
        for part in _connected_sets(neighbours, leaves, {switch for switch, its in tier_of.items() if its <= tier}):
            below = list(dict.fromkeys(tops[leaf] for leaf in part))
            if len(below) > 1:
                number += 1
                name = f"tier{tier}-{number}"
                while name in neighbours:
                    name += "-"
                found.append(TreeSwitch(name, (), tuple(below)))
                tops |= dict.fromkeys(part, name)
    return found


def _connected_sets(neighbours: Mapping[str, set[str]], leaves: Iterable[str], among: set[str]) -> Iterator[list[str]]:
    left = dict.fromkeys(leaves)
    while left:
        reached = {next(iter(left))}
        last = list(reached)
        while last:
            last = list({n for switch in last for n in neighbours.get(switch, ()) if n in among} - reached)
            reached |= set(last)
        part = [leaf for leaf in left if leaf in reached]
        yield part
        for leaf in part:
            del left[leaf]


def topology_conf(switches: Iterable[TreeSwitch]) -> str:
    """Return the text of Slurm's file topology.conf(5) for this tree.

    Characters that Slurm refuses in a name become underscores. Different names stay different."""
    switches = [*switches]
    called: dict[str, str] = {}
    for switch in switches:
        name = re.sub(r"[^\w.-]", "_", switch.name)
        while name in called.values():
            name += "-"
        called[switch.name] = name
    below = [
        f"Nodes={','.join(switch.nodes)}"
        if switch.nodes
        else f"Switches={','.join(called[name] for name in switch.switches)}"
        for switch in switches
    ]
    return "".join(f"SwitchName={called[switch.name]} {its}\n" for switch, its in zip(switches, below, strict=True))


@commands.command(cls=AskingCommand)
def topology(
    addresses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with names and addresses of nodes, as for signalbox jobs keep; other hosts are left out.",
            parser=file_to_read,
        ),
    ] = None,
) -> None:
    """Print the cabling as Slurm's topology.conf: leaves with their nodes, above them one switch per connected part.

    With --json: the switches as a list."""
    names = address_map(addresses) if addresses else None
    with connect() as client:
        fabric = client.get_fabric()
    refuse_circuits([link.name for link in fabric.links if link.one_way])
    called = _unique_names(fabric)
    nodes = {dpid: of for dpid, of in _nodes(fabric, names).items() if dpid in called}
    cables = [(link.src.dpid, link.dst.dpid) for link in fabric.links]
    between = [(called[src], called[dst]) for src, dst in cables if {src, dst} <= called.keys()]
    found = tree(between, {called[dpid]: of for dpid, of in nodes.items()})
    if for_programs():
        typer.echo(document({"switches": [switch._asdict() for switch in found]}, indent=2))
    else:
        typer.echo(printable(topology_conf(found)), nl=False)
    _warn_of_missing(fabric, names, {node for of in nodes.values() for node in of})


def _unique_names(fabric: pb.GetFabricResponse) -> dict[int, str]:
    """Return the name of each switch, by dpid; a name that several switches share is followed by the dpid."""
    bearers = Counter(switch.name for switch in fabric.switches)
    return {
        switch.dpid: switch.name if bearers[switch.name] == 1 else f"{switch.name}-{switch.dpid}"
        for switch in fabric.switches
    }


def _nodes(fabric: pb.GetFabricResponse, names: Mapping[str, Nics] | None) -> dict[int, list[str]]:
    """Return the names of the nodes at each switch, by dpid; a node is at the switch of its first known address.

    ``names``: addresses of each node by its name; None if the nodes are named by their addresses."""
    at = {host.ip: host.at.dpid for host in fabric.hosts}
    known = {ip: (ip,) for ip in at} if names is None else names
    nodes: defaultdict[int, list[str]] = defaultdict(list)
    for name, nics in known.items():
        if place := next((at[ip] for ip in nics if ip in at), None):
            nodes[place].append(name)
    return nodes


def _warn_of_missing(fabric: pb.GetFabricResponse, names: Mapping[str, Nics] | None, found: set[str]) -> None:
    """Print on stderr which parts and nodes the output lacks; Slurm starts no jobs on nodes that the file lacks."""
    down = [part.name for part in fabric.parts_down]
    if down:
        typer.echo(f"left out, because they are down: {printable(', '.join(down))}", err=True)
    if names is not None:
        unnamed = {host.ip for host in fabric.hosts} - {ip for nics in names.values() for ip in nics}
        for what, which in (("have no name", unnamed), ("are not found", names.keys() - found)):
            if which:
                typer.echo(f"left out, because they {what}: {', '.join(sorted(which))}", err=True)
