"""Benchmark ``controllers``: random faults of controllers and etcd, while packets are sent and jobs change.

    sudo scripts/lab_python.sh -m benchmarks controllers [--faults N] [--seed S] [--switches N] [--members N]
        [--only FAULT]

The site has three etcd members, and members of a controller that divide Open vSwitch bridges among themselves
(``site``). A case is one fault, or two that overlap (``judge.Fault``). Before each case the benchmark registers a job.
During the case it changes one job through each member, ten times a second. After the case it waits until all components
run, all switches are in sync and all jobs are planned again.

``judge`` reads the captured messages of the switches, and decides for each write whether its sender was the master.
``trace`` replays all messages at the end, and reports each step that the model of assignments forbids.

The result is a table, and ``controllers.json``. The exit status is 1 when ``judge.broken`` finds a violation: an
accepted write of a deposed member, a lost job, change or packet, a rewritten rule, or a takeover that took too long.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeVar

import typer

from benchmarks.controllers.judge import (
    Case,
    Outcome,
    Verdict,
    Write,
    broken,
    draw,
    is_restored,
    limits,
    loses_openflow,
    rewrites,
    single,
)
from benchmarks.controllers.site import Member, Site, check, send_packets, site
from benchmarks.controllers.trace import Late, Step, steps_not_in_model
from benchmarks.measures import report
from controller.config import EtcdConfig
from mininet_topos.probe.probing import Pair, Stream
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.errors import NotFound, SignalboxError
from signalbox.jobs.spec import MAX_LEASE_S, Algorithm, JobSpec

Result = TypeVar("Result")

LEASE_S = 10_000.0
"""Lease in seconds of a job that is changed, before its first change."""
CALL_S = 0.5
"""Seconds after which a change without an answer counts as failed, and the next change is sent."""
EVERY_S = 0.1
ANSWER_WAIT_S = 20.0
"""Seconds to wait for an answered change when everything else is in order again."""
QUIET_S = 1.0
"""Seconds without faults before and after each case."""
LATE_S = 8.0
"""Seconds for which TCP may still deliver messages of a partition after its end."""
KEPT = 5
"""Number of jobs from earlier cases that stay registered; older ones are deregistered."""
POLL_S = 0.02
OPEN_VSWITCH_LOGS = Path("/var/log/openvswitch")


@dataclass
class Changes:
    """Changes of one job through one member; change number n sets the job's lease to ``LEASE_S`` + n seconds."""

    member: Member
    spec: JobSpec
    token: str
    number: int = 0
    acknowledged: int = 0
    unknown: set[int] = field(default_factory=set)
    """Numbers of the changes without an answer; each may have been applied, or may still be."""
    answers: list[tuple[float, float]] = field(default_factory=list)
    """Times at which each acknowledged change was requested, and was answered."""

    def run(self, stopping: threading.Event) -> None:
        """Change the job until ``stopping`` is set; connect again after each failed attempt."""
        while not stopping.is_set():
            with suppress(SignalboxError), Client(self.member.api, timeout_s=CALL_S) as client:
                while not stopping.wait(EVERY_S):
                    self._change(client)

    def _change(self, client: Client) -> None:
        self.number += 1
        asked = time.monotonic()
        try:
            spec = self.spec.model_copy(update={"lease_s": LEASE_S + self.number})
            client.update_job(spec, ["lease_s"], self.token)
        except SignalboxError:
            self.unknown.add(self.number)
            raise
        self.acknowledged = self.number
        self.answers.append((asked, time.monotonic()))

    def is_kept(self, lease_s: float) -> bool:
        """Return whether the job's lease is one that it may have, and take it as the last acknowledged one.

        The lease may be that of the last acknowledged change, or of any later change without an answer."""
        number = round(lease_s - LEASE_S)
        kept = number == self.acknowledged or number in self.unknown
        self.acknowledged = number
        self.unknown.clear()
        return kept


class Run:
    """Cases, one after the other on the same site."""

    def __init__(self, here: Site, lease_s: float) -> None:
        self._site = here
        self._lease_s = lease_s
        self._kept: list[str] = []
        """Ids of the jobs that must exist, oldest first."""
        self._ended: list[str] = []
        self._changes: list[Changes] = []
        self._count = 0
        self.windows: list[tuple[float, float]] = []
        """Start and end of each case in monotonic seconds."""
        self.late: list[Late] = []
        """Members that were cut off from their switches, each with the start and end of the case."""

    def begin(self) -> None:
        """Register the jobs that stay for the whole run, and start the packets.

        Raises ``SignalboxError`` when the site does not settle in time."""
        self._settle()
        for number, ring in enumerate(self._site.rings):
            self._registered(_spec(f"ring{number}", [host.ip for host in ring], MAX_LEASE_S))
        for number, member in enumerate(self._site.members):
            spec = _spec(f"changed{number}", self._site.pairs[number], LEASE_S)
            self._changes.append(Changes(member, spec, self._registered(spec)))
        send_packets(self._site)
        self._settle()

    def case(self, case: Case) -> Outcome:
        here = self._site
        self._register()
        leader = here.leader()
        assert leader is not None
        standby = next(member for member in here.members if member is not leader)
        before = here.rules()
        acknowledged = [changes.acknowledged for changes in self._changes]
        due = sorted((fault.starts_s, number) for number, fault in enumerate(case))
        mends: list[tuple[float, Any]] = []
        stopping = threading.Event()
        threads = [threading.Thread(target=changes.run, args=(stopping,), daemon=True) for changes in self._changes]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        while due or mends:
            now = time.monotonic() - start
            if due and due[0][0] <= now:
                fault = case[due.pop(0)[1]]
                mends.append((now + fault.lasts_s, here.make(fault, leader, standby)))
            for item in [item for item in mends if item[0] <= now]:
                mends.remove(item)
                item[1]()
            here.tend()
            time.sleep(POLL_S)
        mended = time.monotonic()
        why = here.wait_settled()
        settled = time.monotonic()
        since = start + limits(case, self._lease_s).since_s
        while self._answered(since) is None and time.monotonic() < settled + ANSWER_WAIT_S:
            here.tend()
            time.sleep(POLL_S)
        stopping.set()
        for thread in threads:
            thread.join(ANSWER_WAIT_S)
        hung = sum(thread.is_alive() for thread in threads)
        if is_restored(case):
            for changes, first in zip(self._changes, acknowledged, strict=True):
                changes.unknown.update(range(first, changes.number))
        time.sleep(LATE_S if any(map(loses_openflow, case)) else QUIET_S)
        why = why or here.wait_settled()
        if why:
            _tell(f"not in order: {why}")
        end = time.monotonic()
        self.windows.append((start, end))
        here.read()
        after = here.rules()
        changed = [f"- {rule}" for rule in sorted(before - after)] + [f"+ {rule}" for rule in sorted(after - before)]
        whose = {"leader": leader.name, "standby": standby.name}
        self.late += [Late(whose[fault.who], start, end) for fault in case if loses_openflow(fault)]
        victims = {whose[fault.who] for fault in case if fault.replaces}
        outcome = self._outcome(case, victims, start, end, None if why else settled - mended, changed)
        return replace(outcome, jobs=[*outcome.jobs, *["a call that changes a job has not ended"] * hung])

    def _outcome(
        self,
        case: Case,
        victims: Collection[str],
        start: float,
        end: float,
        settled_s: float | None,
        changed: Sequence[str],
    ) -> Outcome:
        within, judge = limits(case, self._lease_s), self._site.judge
        since, replaced = start + within.since_s, start + within.replaced_s
        first = self._answered(since)
        held_s = judge.held_s(replaced, victims)
        writes = judge.writes_in(start, end)
        for changes in self._changes:
            changes.answers.clear()
        return Outcome(
            case,
            None if first is None else first - since,
            None if held_s is None else max(0.0, held_s - within.since_s + within.replaced_s),
            settled_s,
            _count(writes, Verdict.DEPOSED),
            _count(writes, Verdict.REFUSED),
            _count(writes, Verdict.UNANSWERED),
            _count(writes, Verdict.WRITTEN),
            changed,
            self._lost_jobs(),
            sum(start <= claim.at < end for claim in judge.claims),
        )

    def _answered(self, since: float) -> float | None:
        """Return the earliest answer to any change that was requested at ``since`` or later; None if there is none."""
        answers = (answer for each in self._changes for asked, answer in tuple(each.answers) if asked >= since)
        return min(answers, default=None)

    def _lost_jobs(self) -> list[str]:
        """Return a sentence for each acknowledged registration, deregistration or change that was lost."""
        try:
            with self._client() as client:
                jobs = {job.spec.job_id: job for job in client.list_jobs()}
        except SignalboxError as error:
            return [f"jobs cannot be read: {error}"]
        found = [f"job {name} lost" for name in self._kept if name not in jobs]
        found += [f"job {name} exists again" for name in self._ended if name in jobs]
        for each in self._changes:
            job = jobs.get(each.spec.job_id)
            if job is None or not each.is_kept(job.spec.lease.ToSeconds()):
                found.append(f"change {each.acknowledged} of job {each.spec.job_id} lost")
        return found

    def _register(self) -> None:
        """Register a job, deregister the oldest one, and wait until the switches have the rules of the remaining jobs.

        Raises ``SignalboxError`` when the site does not settle in time."""
        self._count += 1
        name = f"case{self._count}"
        members = len(self._changes)
        leaf = members + self._count % (len(self._site.pairs) - members)
        self._registered(_spec(name, self._site.pairs[leaf], MAX_LEASE_S))
        self._kept.append(name)
        if len(self._kept) > KEPT:
            oldest = self._kept.pop(0)
            with suppress(NotFound):  # an earlier attempt may have had no answer
                self._insist(lambda client: client.deregister_job(oldest, force=True))
            self._ended.append(oldest)
        time.sleep(QUIET_S)
        self._settle()

    def _registered(self, spec: JobSpec) -> str:
        return self._insist(lambda client: client.register_job(spec, request_id=spec.job_id).lease_token)

    def _insist(self, change: Callable[[Client], Result]) -> Result:
        """Return the result of ``change``, repeated until a controller accepts it.

        On a busy machine etcd may be late. Raises the last ``SignalboxError`` after ``ANSWER_WAIT_S``."""
        ends = time.monotonic() + ANSWER_WAIT_S
        while True:
            try:
                with self._client() as client:
                    return change(client)
            except SignalboxError as error:
                if isinstance(error, NotFound) or time.monotonic() > ends:
                    raise
                time.sleep(EVERY_S)

    def _client(self) -> Client:
        leader = self._site.leader()
        return Client((leader or self._site.members[0]).api)

    def _settle(self) -> None:
        if why := self._site.wait_settled():
            raise SignalboxError(f"the site does not settle: {why}")


def _count(writes: Sequence[Write], verdict: Verdict) -> int:
    return sum(write.verdict is verdict for write in writes)


def _spec(job_id: str, addresses: Sequence[str], lease_s: float) -> JobSpec:
    return announcement(job_id, addresses, Algorithm.RING_ALL_REDUCE, 10**6, lease_s)


def main(
    count: Annotated[int, typer.Option("--faults", min=1, help="Number of cases, of one or two faults each.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the cases.")] = 1,
    only: Annotated[str, typer.Option(help="Fault of every case, such as 'leader paused'; default: random.")] = "",
    switches: Annotated[int, typer.Option(min=6, max=250, help="Number of bridges.")] = 24,
    members: Annotated[int, typer.Option(min=2, max=9, help="Number of controllers.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory for the results and logs.")] = Path("out/bench/controllers"),
) -> None:
    """Let controllers, etcd and Open vSwitch fail at random, and look for lost jobs, packets and second writers."""
    check()
    lease_s = EtcdConfig().lease_s
    cases = [single(only, lease_s)] * count if only else draw(seed, count, lease_s)
    spines = max(2, switches // 6)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="signalbox-controllers-") as name, ExitStack() as stack:
        stack.callback(_keep_logs, Path(name), out)
        here = stack.enter_context(site(Path(name), switches - spines, spines, members, _tell))
        run = Run(here, lease_s)
        run.begin()
        for number, case in enumerate(cases, 1):
            outcomes.append(run.case(case))
            _tell(f"{number}: {_text(case)}: {'; '.join(broken(outcomes[-1], lease_s)) or 'right'}")
            if outcomes[-1].settled_s is None:
                break  # later cases would only show the same
        streams, _ = here.probing.finish()
        steps = steps_not_in_model(here.judge.seen, here.restarts, here.assigned, run.late)
        unseen = sum(member.recorder.lost for member in here.members if member.recorder)
    found = [_complete(*each, streams, steps) for each in zip(outcomes, run.windows, strict=True)]
    lines = sum(len(broken(each, lease_s)) for each in found)
    for step in steps:
        _tell(f"not in the model, at {step.at:.3f} s: {step.what}")
    if unseen:
        _tell(f"{unseen} packets could not be captured, so verdicts may be wrong")
    data = [_row(each, lease_s) for each in found]
    report(
        {"seed": seed, "cases": data},
        out / "controllers.json",
        {"Controllers": [{name: _short(value) for name, value in row.items()} for row in data]},
        _summary(found, cases, lines, len(here.judge.seen), len(steps)),
    )
    if lines or steps or unseen or len(found) < len(cases):
        raise typer.Exit(1)


def _row(outcome: Outcome, lease_s: float) -> dict[str, Any]:
    """Return the row of a case. The changed rules are left out if switches restarted, because all rules change then."""
    changed = [] if rewrites(outcome.case) else outcome.changed
    return {
        **asdict(replace(outcome, changed=changed)),
        "case": _text(outcome.case),
        "broken": broken(outcome, lease_s),
    }


def _short(value: Any) -> Any:
    """Return what a cell of the table shows: the length of a list, or the value itself."""
    return len(value) if isinstance(value, list | tuple) else value


def _complete(
    outcome: Outcome, window: tuple[float, float], streams: Mapping[Pair, Stream], steps: Sequence[Step]
) -> Outcome:
    start, end = window
    sent = [stream.outcome(start, end) for stream in streams.values()]
    return replace(
        outcome,
        sent=sum(each.sent for each in sent),
        lost=sum(each.lost for each in sent),
        not_in_model=[step.what for step in steps if start <= step.at < end],
    )


def _keep_logs(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("member*/controller.log"):
        shutil.copy(log, out / f"{log.parent.name}.log")
    for log in (*folder.glob("etcd*.log"), *OPEN_VSWITCH_LOGS.glob("*.log")):
        shutil.copy(log, out)


def _tell(what: str) -> None:
    typer.echo(what, err=True)


def _text(case: Case) -> str:
    return ", ".join(f"{fault} at {fault.starts_s:g} s for {fault.lasts_s:g} s" for fault in case)


def _summary(found: Sequence[Outcome], cases: Sequence[Case], lines: int, seen: int, steps: int) -> str:
    """Return a line of the counts that must be 0, and of the times in the cases in which members took over switches.

    ``seen``: number of messages replayed against the model. ``steps``: how many the model forbids."""
    taken = [each for each in found if any(fault.replaces for fault in each.case)]
    kept = [each for each in found if not rewrites(each.case)]
    answered = sorted(each.answered_s for each in taken if each.answered_s is not None)
    held = sorted(each.held_s for each in taken if each.held_s is not None)
    times = (f"{median(each):.1f} (longest {each[-1]:.1f}) s" if each else "–" for each in (answered, held))
    return (
        f"{len(found)} of {len(cases)} cases, {sum(len(each.case) for each in found)} faults, "
        f"{sum(each.handovers for each in found)} claims: "
        f"{sum(each.deposed for each in found)} writes of deposed members accepted, "
        f"{sum(len(each.jobs) for each in found)} acknowledged changes lost, "
        f"{sum(each.written for each in kept)} rules written and {sum(each.lost for each in kept)} of "
        f"{sum(each.sent for each in kept)} packets lost where switches kept their rules, "
        f"{steps} of {seen} messages not in the model; "
        "a change was answered after {}, all switches had a new master after {}; ".format(*times)
        + f"{lines} requirements violated"
    )
