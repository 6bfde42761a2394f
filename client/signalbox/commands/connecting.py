"""Options that several commands share, and names by which users refer to jobs and parts of the fabric.

A ``PrintingCommand`` adds ``--json`` and ``-o`` after its own options. A ``ControllerCommand`` adds address and
credentials, which ``connect`` uses. An ``AskingCommand`` adds the options of both. docs/reference/command-line.md#names
describes the names. ``SWITCH:PORT`` and ``SWITCH:SWITCH`` avoid the ``>`` of a link's own name, which a shell
interprets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperOption

from signalbox.client import DEFAULT_ADDRESS, Client, resuming
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import FORM, Form
from signalbox.credentials import NO_CREDENTIALS, Credentials
from signalbox.errors import FieldProblem, InvalidInput, NotFound, SignalboxError, cut
from signalbox.live.shown import some, when
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

Connection = tuple[str, Credentials]
"""Address of a controller, and the credentials for it."""

_GIVEN: ContextVar[Connection] = ContextVar("connection", default=(DEFAULT_ADDRESS, NO_CREDENTIALS))


def _connection(
    address: Annotated[
        str,
        typer.Option(
            envvar="SIGNALBOX_ADDRESS",
            metavar="ADDRESS",
            help="Address of the controller's API: HOST:PORT or unix:PATH; several controllers: HOST:PORT,HOST:PORT.",
        ),
    ] = DEFAULT_ADDRESS,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="SIGNALBOX_TLS_CA",
            metavar="FILE",
            help="Use TLS; FILE has certificates of the authorities that sign the controller's certificate (PEM).",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(envvar="SIGNALBOX_TLS_CERTIFICATE", metavar="FILE", help="Client certificate (PEM)."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(envvar="SIGNALBOX_TLS_KEY", metavar="FILE", help="Private key of the client certificate (PEM)."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SIGNALBOX_TOKEN_FILE",
            metavar="FILE",
            help="File with the client's token, which is sent only through TLS, a Unix socket or loopback.",
        ),
    ] = None,
) -> Connection:
    return address, Credentials(tls_ca, tls_certificate, tls_key, token_file)


def _form(
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print JSON for programs instead of a table.")
    ] = False,
    output: Annotated[
        Form,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="Output form: table, wide (all columns, even on a narrow terminal), json or yaml.",
        ),
    ] = Form.TABLE,
) -> Form:
    if as_json and output is not Form.TABLE:
        raise typer.BadParameter("--json means --output json; omit one of them", param_hint="--output")
    return Form.JSON if as_json else output


def _options(of: Callable[..., object]) -> Sequence[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(of)
    command: Any = typer.main.get_command(app)
    return tuple(command.params)


_CONNECTION, _OUTPUT = _options(_connection), _options(_form)


def _taken(options: Sequence[Any], params: dict[str, Any]) -> dict[str, Any]:
    """Remove these options from a command's parameters, and return their values by name."""
    return {option.name: params.pop(option.name) for option in options}


class PrintingCommand(TyperCommand):
    """A command that prints a table, or data for programs."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*params, *_OUTPUT], **more)

    def invoke(self, ctx: Any) -> Any:
        before = FORM.set(_form(**_taken(_OUTPUT, ctx.params)))
        try:
            return super().invoke(ctx)
        finally:
            FORM.reset(before)


class ControllerCommand(TyperCommand):
    """A command that calls a controller."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*params], **more)
        self.params += _CONNECTION

    def invoke(self, ctx: Any) -> Any:
        _GIVEN.set(_connection(**_taken(_CONNECTION, ctx.params)))
        given = {param.name: (param, ctx.params.get(param.name)) for param in self.params}
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise InvalidInput(tuple(_as_given(problem, given) for problem in error.problems)) from None


class AskingCommand(ControllerCommand, PrintingCommand):
    """A command that calls a controller and prints the answer."""


_CALLED_HERE = {"kinds": "fail", "duration": "for_s", "after": "since", "job_ids": "names", "spec": "file"}
"""Names of commands' parameters that differ from the API's name of the same field; keys are the API's names."""


def _as_given(problem: FieldProblem, given: Mapping[str, Any]) -> FieldProblem:
    """Return the problem with the API's field (``names[0]``) replaced by the option or argument that the user typed.

    An option is shown by its name (``--fail``), and an argument by its value. If the message already contains this
    value, the path is empty. A field that is no parameter of the command stays unchanged. ``given``: parameters of the
    command and their values, by name."""
    field = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", problem.path)
    name = "" if not field else field[1] if field[1] in given else _CALLED_HERE.get(field[1], "")
    if not field or name not in given:
        return problem
    param, value = given[name]
    if isinstance(param, TyperOption):
        return replace(problem, path=param.opts[0])
    if field[2] and isinstance(value, list | tuple) and int(field[2]) < len(value):
        value = value[int(field[2])]
    text = cut(str(value)) if isinstance(value, str | Path) and value else param.metavar
    return replace(problem, path="" if f"'{text}'" in problem.message else text)


def connection_in(params: Mapping[str, Any]) -> Connection:
    """Return the connection that these parameters of a command describe. Missing parameters have their defaults."""
    return _connection(**{option.name: params[option.name] for option in _CONNECTION if params.get(option.name)})


def given_connection() -> Connection:
    """Return the connection given to the running command."""
    return _GIVEN.get()


def connect(max_answer_bytes: int = -1) -> Client:
    """Return a client with the address and the credentials given to the running command."""
    address, credentials = _GIVEN.get()
    return Client(address, credentials=credentials, max_answer_bytes=max_answer_bytes)


def watched(watch: Callable[[str], Generator[Any, None, None]]) -> Iterator[Any]:
    """Yield the messages of a watch until Ctrl-C. Wait while the controller is unreachable, and say so on stderr."""
    with suppress(KeyboardInterrupt):
        yield from resuming(watch, lambda error: typer.echo(f"{error}; trying again", err=True))


COMPLETION_S = 0.5
"""Seconds to wait for a controller's answer while a shell completes a word."""


class Kind(NamedTuple):
    """Kind of thing that users can name, such as a link.

    - ``called``: function that returns all names of a thing
    - ``listed_by``: command that lists all things of this kind"""

    name: str
    called: Callable[[Any], Iterable[str]]
    listed_by: str


def _link_names(link: pb.Link | pb.DownPart) -> tuple[str, str, str]:
    port, _, to = link.name.partition(">")
    return link.name, port, f"{port.rpartition(':')[0]}:{to}"


def _names_of_part(part: pb.DownPart) -> tuple[str, ...]:
    """Return the names by which users can refer to a part that is down.

    The API reports a cable that is down by one of its two links. For such a cable, the result has the names of the
    reported link only."""
    return _link_names(part) if part.kind == pb.PART_KIND_LINK else (part.name,)


JOB = Kind("job", lambda job: (job.spec.job_id,), "signalbox get jobs")
SWITCH = Kind("switch", lambda switch: (switch.name, f"{switch.dpid:#x}"), "signalbox get switches")
LINK = Kind("link", _link_names, "signalbox get links")
HOST = Kind("host", lambda host: (host.ip, host.mac), "signalbox get hosts")
ALARM = Kind("alarm", lambda alarm: (word_in(alarm, "kind"), alarm.subject), "signalbox get alarms")


class Named(NamedTuple):
    """Result of a search by name. ``found``: the things with these names. ``missing``: names that no thing has."""

    found: Sequence[Any]
    missing: Sequence[str]


def named(kind: Kind, things: Sequence[Any], names: Sequence[str], down: Sequence[pb.DownPart] = ()) -> Named:
    """Return the things with these names in the order of ``things``, or all things when no name is given.

    ``down``: parts of the fabric that are down now. If a name belongs to a part that is down, the error says so. Raises
    ``NotFound`` when no thing has any of the names."""
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
    """Return the only thing with this name.

    ``down``: parts of the fabric that are down now. If the name belongs to a part that is down, the error says so.
    Raises ``NotFound`` when no thing has the name, and ``BadParameter`` when several things have it."""
    first, *others = named(kind, things, [name], down).found
    if others:
        several = some(cut(next(iter(kind.called(thing)))) for thing in (first, *others))
        raise typer.BadParameter(
            f"'{name}' is the name of more than one {kind.name}; give one of: {several}",
            param_hint=kind.name.upper(),
        )
    return first


def none_such(kind: Kind, name: str, down: Sequence[pb.DownPart] = ()) -> NotFound:
    for part in down:
        if word_in(part, "kind") == kind.name and name in (part.id, *_names_of_part(part)):
            since = f" since {when(part.down_time)}" if part.HasField("down_time") else ""
            return NotFound(f"{kind.name} {part.name} is down{since}; signalbox fabric lists what is down")
    return NotFound(f"there is no {kind.name} '{name}'; {kind.listed_by} lists all")


def tell_missing(kind: Kind, missing: Sequence[str], down: Sequence[pb.DownPart] = ()) -> None:
    """Print an error for each name that no thing has, and end the command with ``PARTLY`` if there is such a name."""
    for name in missing:
        typer.echo(f"error: {none_such(kind, name, down)}", err=True)
    if missing:
        raise typer.Exit(ExitStatus.PARTLY)


# ---- completion

Names = Iterable[str | tuple[str, str]]
"""Names, or pairs of a name and its description. Some shells show the description."""


def completed(ask: Callable[[Client], Names]) -> Callable[[typer.Context, str], list[str | tuple[str, str]]]:
    """Return a function that completes a word for a shell with the names from ``ask``.

    It returns no names when the controller does not answer."""

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
