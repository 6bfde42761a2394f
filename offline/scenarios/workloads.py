"""Training jobs with whole iterations, and workload files of "Routing for Large ML Models" (arXiv 2503.05324).

Workload files, a generator or a job spec (``announced``, ``job_files``) describe a job. The planner plans the job like
an announced job, and ``simulator`` trains the job: computing as well as communication.

docs/reference/file-formats.md#workload describes the files. A line has the numbers of a ``Line``, one per flow; lines
that start with ``#`` are headers. The n lines with the same ``stage_index`` are one ring, which runs an all-reduce in
2(n-1) steps, so a line sends 2(n-1) * ``flow_size`` bytes per iteration. Jobs are in the order of the files' names,
flows in the order of the lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from controller.public.problems import Fabric, ideal_communication_s
from offline.scenarios.variation import STEADY, Variation
from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.files import read_bytes
from signalbox.jobs.collectives import VirtualLink, virtual_links
from signalbox.jobs.spec import JobId, JobSpec, Striping, Transport
from signalbox.jobs.subflows import Connection, Dividing, Pair


class Slot(NamedTuple):
    """Place of a job's iterations on a circle."""

    circle: Hashable
    """Jobs with equal circles wait for each other."""
    start_s: float
    """Begin of the first communication."""
    period_s: float
    turns: int = 1
    """Number of iterations of the job per period."""


@dataclass(frozen=True)
class WorkloadJob:
    """Training job: an iteration computes for ``compute_s``, then runs its rings.

    Some attributes, such as ``silent``, exist only because the planner reads them from every job."""

    id: JobId
    virtual_links: tuple[VirtualLink, ...]
    """Links of the job with their bytes per iteration; from a workload file, one per line and all in phase 0."""
    rings: tuple[tuple[int, ...], ...]
    """Indices of the links of each ring."""
    start_s: float
    compute_s: float
    ideal_s: float
    """Time in seconds of the all-reduce alone on an idle fabric; the busiest NIC limits it."""
    max_subflows: int = 1
    """Largest number of subflows of a flow."""
    striping: Striping = Striping.BY_SHARE
    """Division of the bytes of a flow over its subflows."""
    transport: Transport = Transport.TCP
    """Transport protocol, by which switches would distinguish the subflows."""
    counted: frozenset[Pair] = frozenset()
    """Pairs whose bytes are counted in order to learn the job's traffic; always empty."""
    silent: bool = False
    """True while the job does not send yet."""
    idle_phases: frozenset[int] = frozenset()
    """Phases that the job does not send now; always empty, since the job has one traffic pattern."""
    registered_at: float = 0.0
    steps: tuple[int, ...] = ()
    """Number of steps of each ring; empty: a ring of n hosts has 2(n - 1) steps."""
    parts: tuple[int, ...] = ()
    """Part of the iteration in which each ring runs, counted from 0 without gaps; empty: all rings run at once.

    Rings of one part run at once, and parts run one after the other. An all-to-all, and any other traffic without
    rings, is modelled as a ring of one step in a part of its own."""
    pauses_s: tuple[float, ...] = ()
    """Computing before each part but the first; empty: a part follows the part before at once."""
    variation: Variation = STEADY
    slot: Slot | None = None
    """Place on a circle, which replaces the start time; None: the job begins its iterations whenever it likes."""
    rank: int = 0
    """Strict priority of the job's connections; 0 goes first."""
    owner: str = ""
    """Id of the job if it reports its connections, else empty.

    A job that reports its connections is treated as having ``max_subflows`` connections on each pair."""

    @cached_property
    def dividing(self) -> Dividing:
        connections = tuple(Connection(port, 0) for port in range(self.max_subflows))
        reported = dict.fromkeys(self.pairs, connections) if self.owner else {}
        return Dividing(self.max_subflows, self.striping, self.owner, reported)

    @cached_property
    def pairs(self) -> frozenset[Pair]:
        return frozenset((link.src_ip, link.dst_ip) for link in self.virtual_links)


def announced(spec: JobSpec, fabric: Fabric, compute_s: float = 0.0) -> WorkloadJob:
    """Return the job of a spec in the form that planner and simulator need. Raises ``InvalidInput``.

    The spec has the addresses of the fabric's hosts. Phases follow each other, and everything that a phase sends begins
    at once. ``compute_s``: seconds of computing before the first phase."""
    links = virtual_links(spec)
    phases = sorted({link.phase for link in links})
    return WorkloadJob(
        id=JobId(spec.job_id),
        virtual_links=links,
        rings=tuple(tuple(n for n, link in enumerate(links) if link.phase == phase) for phase in phases),
        start_s=0.0,
        compute_s=compute_s,
        ideal_s=ideal_communication_s(links, {ip: host.nic_bps for ip, host in fabric.hosts.items()}),
        max_subflows=spec.max_subflows,
        striping=spec.striping,
        transport=spec.transport,
        steps=(1,) * len(phases),
        parts=tuple(range(len(phases))),
        owner=spec.job_id if spec.reports_connections else "",
    )


SUFFIX = ".txt"
_LARGEST = 10**18
"""Largest number of bytes or nanoseconds (30 years) that is accepted."""
_MOST_PROBLEMS = 20
"""Largest number of problems reported at once; a file made for another fabric is wrong in every line."""


class Line(NamedTuple):
    """Line of a workload file. The fields have the names of the file's header. Times are in nanoseconds."""

    src: int
    dst: int
    src_tor: int
    dst_tor: int
    start_time: int
    flow_size: int
    """Bytes that the flow sends in one step of the ring."""
    compute_time: int
    stage_index: int
    """Number of the ring; it is the same in all lines of a ring."""


HEADER = "#" + " ".join(Line._fields)


class Numbering:
    """Numbers of a fabric's nodes in workload files: switches from 0, then hosts (``fabrics``)."""

    def __init__(self, fabric: Fabric) -> None:
        self.first_host = len(fabric.switches)
        self.ips = tuple(fabric.hosts)
        self.switch_of = tuple(host.at.dpid - 1 for host in fabric.hosts.values())
        self.nic_bps = {ip: host.nic_bps for ip, host in fabric.hosts.items()}

    @cached_property
    def host_of(self) -> dict[str, int]:
        """Number of each host, by its address."""
        return {ip: self.first_host + n for n, ip in enumerate(self.ips)}


def read_workload(
    folder: Path, fabric: Fabric, max_subflows: int = 1, striping: Striping = Striping.BY_SHARE
) -> tuple[WorkloadJob, ...]:
    """Return the jobs of a folder. Raises ``InvalidInput`` with every wrong line, or when there is nothing to read."""
    numbering = Numbering(fabric)
    lines = lines_in(folder, numbering)
    return tuple(to_job(name, of_job, numbering, max_subflows, striping) for name, of_job in lines.items())


def lines_in(folder: Path, numbering: Numbering) -> dict[str, list[Line]]:
    """Return the lines of each job as they are in the files. Raises ``InvalidInput`` as ``read_workload``."""
    files = _files(folder)
    problems: list[FieldProblem] = []
    read = {file: _lines(file, numbering, problems) for file in files}
    problems += _repeated(read)
    if problems:
        rest = len(problems) - _MOST_PROBLEMS
        more = (FieldProblem(str(folder), f"{rest} more problems"),) if rest > 0 else ()
        raise InvalidInput((*problems[:_MOST_PROBLEMS], *more))
    return {file.name.removesuffix(SUFFIX): [line for _, line in lines] for file, lines in read.items()}


def workload_folders(folder: Path) -> list[Path]:
    """Return every folder with workload files, ``folder`` itself or below it, sorted."""
    return sorted({file.parent for file in folder.rglob(f"*{SUFFIX}")})


def to_job(
    name: str,
    lines: Sequence[Line],
    numbering: Numbering,
    max_subflows: int = 1,
    striping: Striping = Striping.BY_SHARE,
) -> WorkloadJob:
    """Return the job of these lines, which must be valid for the fabric."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        members[line.stage_index].append(index)
    steps = {ring: 2 * (len(of_ring) - 1) for ring, of_ring in members.items()}
    first = numbering.first_host
    links = tuple(
        VirtualLink(
            numbering.ips[line.src - first],
            numbering.ips[line.dst - first],
            phase=0,
            bytes=steps[line.stage_index] * line.flow_size,
        )
        for line in lines
    )
    return WorkloadJob(
        id=JobId(name),
        virtual_links=links,
        rings=tuple(map(tuple, members.values())),
        start_s=lines[0].start_time / 1e9,
        compute_s=lines[0].compute_time / 1e9,
        ideal_s=ideal_communication_s(links, numbering.nic_bps),
        max_subflows=max_subflows,
        striping=striping,
    )


def write_workload(folder: Path, jobs: Mapping[str, Sequence[Line]]) -> None:
    """Write one file per job in the published format, and create the folder if it is missing.

    Raises ``InvalidInput`` when the folder holds files of other jobs, which would be read as part of this workload."""
    folder.mkdir(parents=True, exist_ok=True)
    if others := sorted({file.name for file in folder.glob(f"*{SUFFIX}")} - {f"{name}{SUFFIX}" for name in jobs}):
        raise InvalidInput.of(str(folder), f"holds files of other jobs: {', '.join(others)}; give another folder")
    for name, lines in jobs.items():
        rows = (" ".join(map(str, line)) for line in lines)
        (folder / f"{name}{SUFFIX}").write_text("\n".join((HEADER, *rows)) + "\n", encoding="ascii")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise InvalidInput.of(str(folder), what)
    files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX and file.is_file())
    if files:
        return files
    below = ", ".join(map(str, workload_folders(folder)))
    why = f"; these folders below it do: {below}" if below else ""
    raise InvalidInput.of(str(folder), f"holds no workload file (*{SUFFIX}){why}")


def _lines(file: Path, numbering: Numbering, problems: list[FieldProblem]) -> list[tuple[int, Line]]:
    """Return the lines of a file with their line numbers, and append all errors to ``problems``."""
    found: list[tuple[int, Line]] = []
    known = len(problems)
    text = read_bytes(file).decode("utf-8", errors="replace")
    for number, row in enumerate(text.splitlines(), start=1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        try:
            line = _parse(row)
        except ValueError as error:
            problems.append(FieldProblem(f"{file}:{number}", str(error)))
            continue
        problems += (FieldProblem(f"{file}:{number}", fault) for fault in _faults(line, numbering))
        found.append((number, line))
    if len(problems) == known:
        problems += _disagreements(file, found)
    return found


def _parse(row: str) -> Line:
    columns, fields = Line._fields, row.split()
    if len(fields) != len(columns):
        raise ValueError(f"has {len(fields)} columns; {len(columns)} are expected: {' '.join(columns)}")
    numbers: list[int] = []
    for column, field in zip(columns, fields, strict=True):
        try:
            numbers.append(int(field))
        except ValueError:
            raise ValueError(f"{column} is '{cut(field)}', which is not a whole number") from None
    return Line(*numbers)


def _faults(line: Line, numbering: Numbering) -> Iterator[str]:
    first, after = numbering.first_host, numbering.first_host + len(numbering.ips)
    for end, host, tor in (("src", line.src, line.src_tor), ("dst", line.dst, line.dst_tor)):
        if not first <= host < after:
            yield f"{end} is {host}, which is no host of the fabric; the hosts are {first} to {after - 1}"
        elif numbering.switch_of[host - first] != tor:
            yield f"{end}_tor is {tor}, but host {host} is on switch {numbering.switch_of[host - first]}"
    if line.src == line.dst:
        yield f"src and dst are both {line.src}; they must differ"
    if line.flow_size <= 0:
        yield f"flow_size is {line.flow_size}; it must be at least 1"
    for column in ("start_time", "flow_size", "compute_time"):
        if getattr(line, column) > _LARGEST:
            yield f"{column} is too large; it must be at most {_LARGEST}"
    for column, time_ns in (("start_time", line.start_time), ("compute_time", line.compute_time)):
        if time_ns < 0:
            yield f"{column} is {time_ns}; it must not be negative"


def _disagreements(file: Path, lines: Sequence[tuple[int, Line]]) -> Iterator[FieldProblem]:
    """Yield the contradictions between lines of a file.

    A job needs a flow, and a ring needs two flows. A job has one start time and one compute time."""
    if not lines:
        yield FieldProblem(str(file), "has no flows: a line per flow is expected")
    sizes = Counter(line.stage_index for _, line in lines)
    for number, line in lines:
        if sizes[line.stage_index] == 1:
            message = f"stage_index {line.stage_index} is on this line only; a ring needs at least two lines"
            yield FieldProblem(f"{file}:{number}", message)
        first_number, first = lines[0]
        for column in ("start_time", "compute_time"):
            here, there = getattr(line, column), getattr(first, column)
            if here != there:
                message = f"{column} is {here}, but {there} on line {first_number}; all lines must agree"
                yield FieldProblem(f"{file}:{number}", message)


def _repeated(read: dict[Path, list[tuple[int, Line]]]) -> Iterator[FieldProblem]:
    """Yield a problem for each pair of hosts on two lines: the network could not distinguish their flows."""
    seen: dict[tuple[int, int], str] = {}
    for file, lines in read.items():
        for number, line in lines:
            here = f"{file}:{number}"
            first = seen.setdefault((line.src, line.dst), here)
            if first != here:
                yield FieldProblem(
                    here, f"{line.src} > {line.dst} is also on {first}; a pair of hosts may have one flow"
                )
