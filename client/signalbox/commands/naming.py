"""Names that commands accept for jobs, switches, links and hosts, and how a shell completes them.

A switch is named by its name or dpid (``0x1``), a host by its address. A link is named by its name, by ``SWITCH:PORT``,
or by ``SWITCH:SWITCH`` (all cables between the two, in that direction); the last two avoid ``>``, which a shell
interprets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import typer

from signalbox.client import Client
from signalbox.commands.connecting import connection_in
from signalbox.commands.exit_status import ExitStatus
from signalbox.errors import NotFound, SignalboxError, cut
from signalbox.live.shown import some, when
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

COMPLETION_S = 0.5
"""Seconds to wait for a controller's answer while a shell completes a word."""


class Kind(NamedTuple):
    """Kind of thing. ``called`` returns the names of one thing; ``listed_by`` is the command that lists all of them."""

    name: str
    called: Callable[[Any], Iterable[str]]
    listed_by: str


def _link_names(link: pb.Link | pb.DownPart) -> tuple[str, str, str]:
    port, _, to = link.name.partition(">")
    return link.name, port, f"{port.rpartition(':')[0]}:{to}"


def _names_of_part(part: pb.DownPart) -> tuple[str, ...]:
    """Return the names of a part that is down; a cable has the name of one of its links."""
    return _link_names(part) if part.kind == pb.PART_KIND_LINK else (part.name,)


JOB = Kind("job", lambda job: (job.spec.job_id,), "signalbox get jobs")
SWITCH = Kind("switch", lambda switch: (switch.name, f"{switch.dpid:#x}"), "signalbox get switches")
LINK = Kind("link", _link_names, "signalbox get links")
HOST = Kind("host", lambda host: (host.ip, host.mac), "signalbox get hosts")
ALARM = Kind("alarm", lambda alarm: (word_in(alarm, "kind"), alarm.subject), "signalbox get alarms")


class Named(NamedTuple):
    """Things found by name; ``missing``: names that no thing has."""

    found: Sequence[Any]
    missing: Sequence[str]


def named(kind: Kind, things: Sequence[Any], names: Sequence[str], down: Sequence[pb.DownPart] = ()) -> Named:
    """Return the named things in the order of ``things``, or all when no name is given.

    ``down``: parts of the fabric that are down now. Raises ``NotFound`` when no thing has one of the names."""
    if not names:
        return Named(things, ())
    called = [(thing, {*kind.called(thing)}) for thing in things]
    wanted = {*names}
    found = [thing for thing, its in called if its & wanted]
    known = set[str]().union(*(its for _, its in called))
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if not found:
        raise none_such(kind, missing[0], down)
    return Named(found, missing)


def the(kind: Kind, things: Sequence[Any], name: str, down: Sequence[pb.DownPart] = ()) -> Any:
    """Return the only thing with this name; ``down`` as for ``named``.

    Raises ``NotFound`` when no thing has the name, and ``BadParameter`` when several have it."""
    first, *others = named(kind, things, [name], down).found
    if others:
        several = some(cut(next(iter(kind.called(thing)))) for thing in (first, *others))
        raise typer.BadParameter(
            f"'{name}' is the name of more than one {kind.name}: {several}; give one of these",
            param_hint=kind.name.upper(),
        )
    return first


def none_such(kind: Kind, name: str, down: Sequence[pb.DownPart] = ()) -> NotFound:
    for part in down:
        if word_in(part, "kind") == kind.name and name in (part.id, *_names_of_part(part)):
            since = f" since {when(part.down_time)}" if part.HasField("down_time") else ""
            return NotFound(f"{kind.name} {part.name} is down{since}; signalbox fabric lists what is down")
    return NotFound(f"there is no {kind.name} '{name}'; {kind.listed_by} lists what there is")


def tell_missing(kind: Kind, missing: Sequence[str], down: Sequence[pb.DownPart] = ()) -> None:
    """Print an error for each missing name; end the command with ``PARTLY`` if there are any."""
    for name in missing:
        typer.echo(f"error: {none_such(kind, name, down)}", err=True)
    if missing:
        raise typer.Exit(ExitStatus.PARTLY)


# ---- completion

Names = Iterable[str | tuple[str, str]]
"""Names, or pairs of a name and its description, which some shells show."""


def completed(ask: Callable[[Client], Names]) -> Callable[[typer.Context, str], list[str | tuple[str, str]]]:
    """Return a completion function for a shell. It returns no names when the controller does not answer."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str | tuple[str, str]]:
        address, credentials = connection_in(ctx.params)
        try:
            with Client(address, COMPLETION_S, credentials) as client:
                names = list(ask(client))
        except SignalboxError:
            return []
        return [name for name in names if (name if isinstance(name, str) else name[0]).startswith(incomplete)]

    return complete


def job_names(client: Client) -> Names:
    return [job.spec.job_id for job in client.list_jobs()]


def switch_names(client: Client) -> Names:
    return [switch.name for switch in client.get_fabric().switches]


def all_switch_names(client: Client) -> Names:
    """Return the names of switches and optical switches."""
    fabric = client.get_fabric()
    return [*(switch.name for switch in fabric.switches), *(switch.name for switch in fabric.optical_switches)]


def link_names(client: Client) -> Names:
    """Return the names of links without ``>``: ``SWITCH:PORT`` and ``SWITCH:SWITCH``, each with a description."""
    return _completed_links(link.name for link in client.get_fabric().links)


def _completed_links(links: Iterable[str]) -> list[tuple[str, str]]:
    parts = [link.partition(">") for link in links]
    between = dict.fromkeys(f"{port.rpartition(':')[0]}:{to}" for port, _, to in parts)
    return [*((port, f"to {to}") for port, _, to in parts), *((name, "all cables") for name in between)]


def part_names(client: Client) -> Names:
    """Return the names of parts that can be drained: switches and cables, but no circuits."""
    fabric = client.get_fabric()
    cables = _completed_links(link.name for link in fabric.links if not link.one_way)
    return [*(switch.name for switch in fabric.switches), *cables]


def drained_names(client: Client) -> Names:
    return [part.name.partition(">")[0] for part in client.get_status().drains]


def down_names(client: Client) -> Names:
    return [part.name.partition(">")[0] for part in client.get_fabric().parts_down]


def host_names(client: Client) -> Names:
    return [(host.ip, f"at {host.switch_name}") for host in client.get_fabric().hosts]


def alarm_names(client: Client) -> Names:
    return [alarm.subject for alarm in client.get_status().alarms]
