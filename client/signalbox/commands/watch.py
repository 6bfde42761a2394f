"""``signalbox watch``: jobs, fabric, alarms and plans of a running controller, as they change.

The commands print one line per change, or with ``--json`` one object per message. A watch waits while the controller
does not answer, and then continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import typer
from google.protobuf.message import Message

from signalbox.client import resuming
from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.output import document, for_programs, printable
from signalbox.commands.printing import drained
from signalbox.errors import SignalboxError
from signalbox.live.jobs import job_slowdown, job_state, planned
from signalbox.live.shown import alarm_line, rate, slowdown, when, word
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

commands = typer.Typer(
    help="Print changes until Ctrl-C; while the controller is away, wait for it.", no_args_is_help=True
)

Lines = Callable[[Any], Iterator[str]]


def watched(watch: Callable[[str], Generator[Any, None, None]]) -> Iterator[Any]:
    """Yield the messages of a watch until Ctrl-C. Print on stderr when the controller becomes unreachable."""
    with suppress(KeyboardInterrupt):
        yield from resuming(watch, tell_lost)


def tell_lost(error: SignalboxError) -> None:
    """Print on stderr that the controller is unreachable and the watch is tried again."""
    typer.echo(f"{error}; trying again", err=True)


def _print(watch: Callable[[str], Generator[Message, None, None]], lines: Lines) -> None:
    for message in watched(watch):
        if for_programs():
            typer.echo(document(message))
            continue
        now = time.strftime("%H:%M:%S")
        for line in lines(message):
            typer.echo(f"{now}  {printable(line)}")


# ---- lines for people


class JobLines:
    """Lines for a watch of jobs. A line is printed only when it differs from the job's previous line."""

    def __init__(self) -> None:
        self._printed: dict[str, str] = {}

    def __call__(self, found: pb.WatchJobsResponse) -> Iterator[str]:
        """Yield a line per ended job, then a line per changed job: an ended job may have been registered again."""
        if found.snapshot:
            self._printed.clear()
            yield "all jobs now:" if found.jobs else "no jobs now"
        for end in found.ended:
            self._printed.pop(end.job_id, None)
            yield f"job {end.job_id}: {word(word_in(end, 'reason') or 'ended')}"
        for job in found.jobs:
            job_id, line = job.spec.job_id, _job_line(job)
            if self._printed.get(job_id) != line:
                self._printed[job_id] = line
                yield f"job {job_id}: {line}"


def _job_line(job: pb.Job) -> str:
    return (
        f"{job_state(job)}, {job.pinned} of {job.virtual_links} flows pinned, planned for {planned(job)}, "
        f"slowdown {job_slowdown(job)}, {job.iterations} iterations"
    )


class FabricLines:
    """Lines for a watch of the fabric. The object stores names, because messages identify removed parts by numbers."""

    def __init__(self) -> None:
        self._switches: dict[int, str] = {}
        self._links: dict[tuple[int, int], str] = {}

    def __call__(self, found: pb.WatchFabricResponse) -> Iterator[str]:
        if found.snapshot:
            self._links.clear()
            yield "the whole fabric now:"
        yield from self._gone(found)
        for switch in found.switches:
            self._switches[switch.dpid] = switch.name
            synced = "in sync" if switch.in_sync else "not in sync"
            foreign = f", {switch.foreign_rules} foreign rules" if switch.foreign_rules else ""
            yield f"switch {switch.name}: {synced}, {switch.rules} rules{foreign}"
        for link in found.links:
            at = link.src.dpid, link.src.port
            line = f"{'circuit' if link.one_way else 'link'} {link.name}: {rate(link.capacity_bps)}"
            if self._links.get(at) != line:
                self._links[at] = line
                yield line
        for part in found.drains:
            yield f"drained: {drained(part)}"
        for host in found.hosts:
            yield f"host {host.ip}: at {host.switch_name}, port {host.at.port}"
        for down in found.parts_down:
            yield f"{word_in(down, 'kind')} {down.name}: down since {when(down.down_time)}"

    def _gone(self, found: pb.WatchFabricResponse) -> Iterator[str]:
        for part in found.parts_back:
            yield f"{word_in(part, 'kind')} {part.name}: no longer down"
        for dpid in found.switches_gone:
            yield f"switch {self._switches.get(dpid, dpid)}: gone"
        for at in found.links_gone:
            line = self._links.pop((at.dpid, at.port), f"link at {at.dpid}, port {at.port}: ")
            yield f"{line.rpartition(': ')[0]}: gone"
        for ip in found.hosts_gone:
            yield f"host {ip}: gone"
        for name in found.drains_gone:
            yield f"undrained: {name}"


def alarm_lines(found: pb.WatchAlarmsResponse) -> Iterator[str]:
    """Yield a line for each alarm that has ended, then for each alarm that is raised."""
    if found.snapshot:
        yield "all alarms now:" if found.raised else "no alarms now"
    for alarm in found.ended:
        yield f"over: {alarm.text}"
    yield from map(alarm_line, found.raised)


def plan_lines(found: pb.WatchPlanResponse) -> Iterator[str]:
    """Yield one line about the plan."""
    plan = found.plan
    if not found.HasField("plan"):
        yield "no plan yet"
        return
    certificate = word(word_in(plan, "certificate"))
    yield (
        f"plan {plan.generation}: worst slowdown {slowdown(plan.max_slowdown)}, bound {slowdown(plan.bound)} "
        f"({certificate}), {len(plan.routes)} flows routed, {len(plan.unrouted)} without a path, "
        f"{'installed' if plan.installed else 'not installed'}"
    )


# ---- commands


def _command(what: str, lines: Callable[[], Lines], text: str) -> None:
    """Add the command ``watch WHAT``, with the help ``text``.

    ``lines``: makes the function that yields a message's lines."""

    def command() -> None:
        with connect() as client:
            _print(getattr(client, f"watch_{what}"), lines())

    commands.command(what, cls=AskingCommand, help=text)(command)


_command("jobs", JobLines, "Print all jobs, then those that change or end.")
_command(
    "fabric", FabricLines, "Print switches, links, hosts and what is down, then each change; rates only with --json."
)
_command(
    "alarms",
    lambda: alarm_lines,
    "Print all alarms, then those that are raised or end.",
)
_command(
    "plan", lambda: plan_lines, "Print the newest plan in a line, then each that follows; routes only with --json."
)
