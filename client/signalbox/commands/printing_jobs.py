"""Tables of jobs and their routes, made from messages of the API or from job specs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from signalbox.commands.output import Column, Fitted, escape, facts
from signalbox.commands.printing import ENDS, route_columns, route_rows
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.live.jobs import (
    IMPOSSIBLE,
    announced,
    busiest_pairs,
    efficiency_mark,
    findings,
    hosts_not_found,
    job_cells,
    job_facts,
    of_which_parallelization,
)
from signalbox.live.shown import counted, rate, some, word
from signalbox.mapping import seconds, word_in
from signalbox.v1 import signalbox_pb2 as pb

MOST_PAIRS = 20
"""Largest number of address pairs in a job's table of traffic."""
MOST_LINES = 8
"""Largest number of jobs without circuits for which the reason is printed, in a line each."""

_JOB_COLUMNS = (
    Column("job"),
    Column("state"),
    Column("ranks", 5, number=True),
    Column("flows", 3, number=True),
    Column("pinned", 2, number=True),
    Column("planned for", 4),
    Column("slowdown", 1, number=True),
    Column("predicted", 6, number=True),
    Column("measured", 2, number=True),
    Column("iterations", 7, number=True),
    Column("lease left", 5, number=True),
)


def jobs(found: Sequence[pb.Job]) -> RenderableType:
    if not found:
        return "No jobs are registered."
    rows = ((*job_cells(job, _state(job)), f"{seconds(job.lease_left):.0f} s") for job in found)
    marks = {efficiency_mark(job).strip() for job in found}
    meanings = [f"{mark}: {meaning}." for mark, meaning in _MARKS.items() if mark in marks]
    return Group(Fitted(_JOB_COLUMNS, rows), *meanings, *_without_circuits(found))


_MARKS = {"?": "counters have not yet confirmed the bytes", "!": IMPOSSIBLE}


def _state(job: pb.Job) -> str:
    lost = ["no path"] if job.flows_without_path else []
    return ", ".join([word(word_in(job, "state")), *lost, *findings(job)])


def _without_circuits(found: Sequence[pb.Job]) -> list[str]:
    """Return a line per job that has no circuits, with the reason, which is too long for the table."""
    unwired = [job for job in found if job.wiring.unwired]
    lines = [f"{job.spec.job_id} has no circuits: {job.wiring.unwired}" for job in unwired[:MOST_LINES]]
    left = len(unwired) - len(lines)
    return [*map(escape, lines), *([f"{left} more (--json prints all)"] if left else [])]


def job(found: pb.Job) -> RenderableType:
    spec = found.spec
    shown: list[RenderableType] = [facts(job_facts(found))]
    if found.demand.pairs:
        shown.append(_busiest_pairs_table(found))
    ways = [(way.name, way.collectives) for way in spec.parallelizations] or [("", spec.collectives)]
    rows = [
        (name, c.phase, word(word_in(c, "algorithm")), f"{c.bytes_per_iteration:,}", some(c.groups))
        for name, collectives in ways
        for c in collectives
    ]
    columns = (
        *_PARALLELIZATION,
        Column("phase"),
        Column("collective"),
        Column("bytes per iteration", number=True),
        Column("groups", wraps=True),
    )
    return Group(*shown, *([_of_parallelizations(columns, rows, bool(spec.parallelizations))] if rows else []))


_PARALLELIZATION = (Column("parallelization"),)
"""First column of a job's tables of traffic; it is shown only if the job has several parallelizations."""


def _of_parallelizations(columns: Sequence[Column], rows: Sequence[Sequence[object]], several: bool) -> Fitted:
    """Return a table with these columns and rows.

    ``several``: whether the job has several parallelizations. If not, the first column, which names the
    parallelization, is left out."""
    return Fitted(columns, rows) if several else Fitted(columns[1:], [row[1:] for row in rows])


def _busiest_pairs_table(found: pb.Job) -> RenderableType:
    busiest = busiest_pairs(found, MOST_PAIRS)
    rows = (
        (
            pair.src,
            pair.dst,
            f"{pair.declared_bytes:,}",
            f"{pair.measured_bytes:,.0f}" if pair.HasField("measured_bytes") else "-",
            rate(pair.measured_bps),
        )
        for pair in busiest
    )
    left = len(found.demand.pairs) - len(busiest)
    columns = (*ENDS, *(Column(name, number=True) for name in ("announced", "counted", "rate")))
    return Fitted(columns, rows, title=f"bytes per iteration{f'; {left} more with --json' if left else ''}")


def registered(found: pb.Job) -> RenderableType:
    """Return the tables of a job that was just registered or updated, and a sentence on what happens next."""
    if found.wiring.unwired:
        comes = f"It has no circuits yet: {found.wiring.unwired}."
    elif found.state == pb.JOB_STATE_PENDING:
        hosts = hosts_not_found(found)
        comes = f"Waiting for {hosts}: the controller looks for them, and plans the job when all are found."
    else:
        comes = f"All its hosts are known. Its routes: signalbox jobs watch {found.spec.job_id}"
    lines = [escape(comes)]
    if len(found.spec.parallelizations) > 1 and not found.wiring.circuits:
        chooses = (
            "Where optical switches connect its servers, the controller chooses parallelization and circuits together."
        )
        lines.append(f"Flows are {escape(of_which_parallelization(found))}. {chooses}")
    return Group(job(found), *lines)


def checked(spec: JobSpec) -> RenderableType:
    """Return tables of the traffic that a job spec announces."""
    about = {
        "job": spec.job_id,
        "ranks": f"{len(spec.endpoints)} on {counted(len(set(spec.endpoints)), 'host')}",
        "announced": announced(spec, spec.library),
    }
    if spec.observed:
        return facts({**about, "traffic": "learnt from what switches count"})
    if not spec.parallelizations:
        return Group(facts(about | _total_traffic(spec)), _collectives_table([("", spec)], several=False))
    ways = [(way, spec.of_parallelization(way.name)) for way in spec.parallelizations]
    rows = [
        (
            way.name,
            *_total_traffic(plain).values(),
            f"{sum(each.seconds for each in way.compute):g}" if way.compute else "-",
        )
        for way, plain in ways
    ]
    columns = (
        *_PARALLELIZATION,
        Column("groups", 1, number=True),
        Column("virtual links", wraps=True),
        Column("bytes per iteration", number=True),
        Column("largest sender", 2, wraps=True),
        Column("computing (s)", number=True),
    )
    return Group(
        facts(about),
        Fitted(columns, rows),
        _collectives_table([(way.name, plain) for way, plain in ways], several=True),
    )


def _total_traffic(spec: JobSpec) -> dict[str, str]:
    links = virtual_links(spec)
    sent = Counter[str]()
    for link in links:
        sent[link.src_ip] += link.bytes
    in_phases = len({link.phase for link in links})
    return {
        "groups": str(len(spec.groups)),
        "virtual links": f"{len(links)}, between {counted(len(links.pairs), 'pair')} of addresses, "
        f"in {counted(in_phases, 'phase')}",
        "bytes per iteration": f"{sent.total():,}",
        "largest sender": "none" if not sent else "{}, {:,} bytes per iteration".format(*sent.most_common(1)[0]),
    }


def _collectives_table(named: Sequence[tuple[str, JobSpec]], several: bool) -> Fitted:
    """Return a table of the transfers and collectives.

    ``several``: whether they belong to several parallelizations."""
    rows: list[Sequence[object]] = []
    for name, spec in named:
        if of := spec.transfers:
            each = _range([transfer.bytes_per_iteration for transfer in of])
            rows.append((name, _range([transfer.phase for transfer in of]), "transfer", each, len(of), 2))
        sizes = {group.name: len(group.ranks) for group in spec.groups}
        for c in spec.collectives:
            ranks = _range([sizes[group] for group in c.groups])
            rows.append((name, c.phase, word(c.algorithm), f"{c.bytes_per_iteration:,}", len(c.groups), ranks))
    columns = (
        *_PARALLELIZATION,
        Column("phase"),
        Column("what"),
        *(Column(name, number=True) for name in ("bytes per iteration", "number", "ranks in each")),
    )
    return _of_parallelizations(columns, rows, several)


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def routes(found: pb.WatchRoutesResponse) -> RenderableType:
    split = any(len(each.subflows) > 1 for each in found.routes)
    rows = (row for each in found.routes for row in route_rows(each, split))
    return Fitted(route_columns(split), rows, title=f"routes, change {found.generation}")
