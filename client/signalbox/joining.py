"""``signalbox.join``: a training program announces its job, in one line.

    with signalbox.join("job", endpoints=["10.0.1.1", "10.0.2.1"]) as job:
        for batch in batches:
            with job.step():
                train(batch)

Owns what users call. In: what the job announces, and what the training reports. Out: routes, shares, bytes per peer.
Threads (``membership``, ``route_following``) decide which calls are made to the controller, another process makes them
(``remote_client``). Whatever it does, the training goes on: the logger ``signalbox`` has each kind of error once.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from pydantic_core import PydanticCustomError

from signalbox import process_exit
from signalbox.addresses import DEFAULT_ADDRESS, host_and_port, listen_address
from signalbox.credentials import Credentials
from signalbox.errors import Gone, InvalidInput, SignalboxError
from signalbox.jobs.reports import REPORT_S, Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.jobs.subflows import Pair
from signalbox.launchers import HOW_TO_NAME_THE_JOB, job_id_of_environment, rank_of, takes_over
from signalbox.membership import ENDS, Ended, Membership
from signalbox.remote_client import RemoteClient, end_process
from signalbox.rounds import LEAVE_S, Rounds
from signalbox.route_following import Route, RouteFollower, Shares, shares_of
from signalbox.socket_bytes import Exchanged, OwnSockets
from signalbox.step import Step

CALL_S = 5.0
"""For one call. Those that were too slow are repeated, and take effect once."""
STRICT_S = 30.0
"""How long ``strict`` waits for the controller's answer."""
MAX_ITERATION_S = 7 * 86_400.0
"""As the API has it."""

log = logging.getLogger("signalbox")

OnRoutes = Callable[[tuple[Route, ...]], object]
Connections = Callable[[], frozenset[Connected] | None]
Read = TypeVar("Read")
Made = TypeVar("Made")


def join(
    job: str | JobSpec | Mapping[str, Any] | None = None,
    *,
    rank: int | None = None,
    address: str | None = None,
    credentials: Credentials | None = None,
    on_routes: OnRoutes | None = None,
    connections: Connections | None = None,
    take_over: bool | None = None,
    strict: bool = False,
    **fields: Any,
) -> Job:
    """Join a job; returns at once, and never raises unless ``strict``. Rank 0 announces the job, keeps it announced
    until the program ends, and reports. Other ranks need not join: they can follow routes, and read what their own
    sockets have carried. ``rank``: None is the one that mpirun, torchrun or srun has given the process, else 0.

    ``job``: its id, with the other fields of a job spec as keyword arguments (``endpoints``, ``collectives``,
    ``lease_s`` …, docs/reference/job-spec.md); or a ``JobSpec``, or a mapping with those fields. Ranks other than 0
    need only the id. Without one it is SIGNALBOX_JOB, else ``slurm-`` and the number of Slurm's job, else the id that
    torchrun was given. ``address``: of the controller, HOST:PORT or unix:PATH; else SIGNALBOX_ADDRESS. ``credentials``:
    else SIGNALBOX_TLS_CA, SIGNALBOX_TLS_CERTIFICATE, SIGNALBOX_TLS_KEY and SIGNALBOX_TOKEN_FILE.

    ``on_routes``: called with the job's routes, in another thread, whenever they change. ``connections``: of all ranks,
    or None while they are not known; asked for every two seconds if the job announces ``reports_connections``. Without
    it those of this process are reported. ``take_over``: end another registration with the job's id, such as one that
    a killed run has left; otherwise this one begins when the lease of the other has run out. None: if
    SIGNALBOX_TAKE_OVER is 1, as ``signalbox run`` sets it, which then leaves the job to the program.

    ``strict``: wait for the controller's answer, up to 30 s, and raise what keeps the job from being announced:
    ``InvalidInput`` with the wrong fields, ``AlreadyExists``, ``Conflict``, ``Unreachable`` and the other errors of
    ``Client.register_job``."""
    if job is None:
        job = job_id_of_environment(os.environ)
    joined = Job(str(job.get("job_id") if isinstance(job, Mapping) else getattr(job, "job_id", job or "")))
    joined._join(job, rank, address, credentials, on_routes, connections, take_over, strict, fields)
    return joined


def _spec(job: str | JobSpec | Mapping[str, Any], fields: Mapping[str, Any]) -> JobSpec:
    match job:
        case JobSpec():
            return job if not fields else JobSpec.parse({**job.model_dump(), **fields})
        case Mapping():
            return JobSpec.parse({**job, **fields})
    return JobSpec.parse({"job_id": job, **fields})


def connecting(
    kind: Callable[[str, float, Credentials], Made], address: str | None, credentials: Credentials | None
) -> tuple[Callable[[], Made], str]:
    """Makes clients of that kind; and the address."""
    where = address or os.environ.get("SIGNALBOX_ADDRESS") or DEFAULT_ADDRESS
    try:
        listen_address(where)
    except PydanticCustomError as error:
        raise InvalidInput.of("address", f"{error.message()} (given: {where!r})") from None
    return partial(kind, where, CALL_S, (credentials or Credentials.of_environment()).absolute()), where


class Job:
    """What ``join`` returns. Its methods may be called from any thread, do not raise, and return at once, ``leave``
    within a second. When the job is left, or has ``ended``, what is reported is not kept."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self._ended: Ended | None = None
        self._indices = itertools.count()
        self._membership: Membership | None = None
        self._spec: JobSpec | None = None
        self._rounds: Rounds | None = None
        self._follower: RouteFollower | None = None
        self._routes: tuple[Route, ...] = ()
        self._on_routes: OnRoutes = lambda _: None
        self._connect: Callable[[], RemoteClient] | None = None
        self._counts: Callable[[Connected], bool] = lambda _: True
        self._sockets: OwnSockets | None = None
        self._lock = threading.Lock()
        self._logged: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def registered(self) -> bool:
        """Whether this process has the job registered, as far as it knows."""
        return self._ended is None and self._membership is not None and self._membership.registered

    @property
    def ended(self) -> Ended | None:
        """Why the job is not kept registered, or not followed, any more; None while it is."""
        return self._ended

    def update(self, **fields: Any) -> None:
        """Announce other values of these fields of the job spec, such as ``collectives``. The connections that it has
        stay; measured times are forgotten, which are of the traffic before. What is wrong is logged, and the
        announcement stays as it was."""
        if self._ended or self._spec is None or self._membership is None or self._rounds is None:
            return  # a forked child does not wait for the lock
        with self._lock:
            try:
                wanted = JobSpec.parse({**self._spec.model_dump(), **fields, "job_id": self.id})
            except InvalidInput as error:
                log.warning("job '%s' stays announced as it was, the training goes on: %s", self.id, error)
                return
            if wanted != self._spec:
                self._spec = wanted
                self._membership.update(wanted)
                self._rounds.hurry()

    # ---- iterations

    def iteration(self, duration_s: float, communication_s: float | None = None) -> None:
        """Report an iteration that has ended just now: its wall time in seconds, and that of its communication, all of
        ``duration_s`` if it is not known. Times that cannot be are left out."""
        if self._membership is None or self._ended:
            return
        try:
            took_s = float(duration_s)
            communicated_s = took_s if communication_s is None else min(float(communication_s), took_s)
            if not (math.isfinite(took_s) and 0 < communicated_s <= took_s <= MAX_ITERATION_S):
                raise ValueError(f"{communicated_s} of {took_s} s")
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor's own errors are the last
            self._log_once("iterations are left out that did not take a time above 0", error)
            return
        self._membership.report(IterationTime(next(self._indices), took_s, communicated_s, time.monotonic()))
        if took_s >= REPORT_S and self._rounds and self._membership.in_touch:
            self._rounds.hurry()

    def step(self) -> Step:
        """A context around an iteration: its end reports the iteration, unless it raises."""
        return Step(self.iteration)

    # ---- routes

    @property
    def routes(self) -> tuple[Route, ...]:
        """Of the job's flows, as the switches hold them. Empty until the controller has told them: it is asked from the
        first look on. They stay as they were while it is away."""
        self._follow()
        return self._routes

    @property
    def shares(self) -> Shares:
        """Per (source, destination) of the flows that are split: how to divide their bytes. See ``routes``."""
        return shares_of(self.routes)

    # ---- what sockets say

    def connections(self) -> frozenset[Connected]:
        """That this process has open to other addresses of the job, IPv4 over TCP. All that it has, of a rank that was
        not told the ``endpoints``."""
        return self._read(lambda sockets: sockets.connections) or frozenset()

    def exchanged(self) -> dict[Pair, Exchanged]:
        """Bytes that these connections have carried since they were opened, per address of this process and of its
        peer. A connection that was closed is in it with what it had carried at the call before. Takes about 4 µs per
        TCP socket of the machine."""
        return self._read(lambda sockets: sockets.exchanged) or {}

    # ---- the end

    def leave(self) -> None:
        """Release the job; takes at most a second. The controller may be away: then its lease runs out."""
        self.begin_leaving()
        self.end_leaving(LEAVE_S)

    def begin_leaving(self) -> None:
        """The first half of ``leave``; returns at once."""
        if self._ended is Ended.FORKED:
            return
        self._end(Ended.LEFT)
        if self._follower:
            self._follower.leave()
        if self._rounds:
            self._rounds.leave()

    def end_leaving(self, timeout_s: float) -> None:
        """The second half of ``leave``."""
        if self._ended is Ended.FORKED:
            return
        if self._rounds:
            self._rounds.join(timeout_s)
        if self._membership:
            self._membership.cancel()
        process_exit.let_go(self)
        if not process_exit.holds_any():
            end_process()

    def forget(self) -> None:
        """In a forked child: the job is its parent's."""
        self._ended = Ended.FORKED

    # ---- inside

    def _join(
        self,
        job: str | JobSpec | Mapping[str, Any] | None,
        rank: int | None,
        address: str | None,
        credentials: Credentials | None,
        on_routes: OnRoutes | None,
        connections: Connections | None,
        take_over: bool | None,
        strict: bool,
        fields: Mapping[str, Any],
    ) -> None:
        """See ``join``."""
        try:
            if job is None:
                raise InvalidInput.of("job", f"its id is missing: {HOW_TO_NAME_THE_JOB}")
            rank = rank_of(os.environ) or 0 if rank is None else int(rank)
            announces = rank == 0
            if not announces:
                log.info("job '%s' is announced by rank 0, not by this one, %d", self.id, rank)
            spec = _spec(job, fields) if announces or fields or not isinstance(job, str) else None
            self._connect, where = connecting(RemoteClient, address, credentials)
            if spec:
                self._counts = _between(spec.addresses, where)
            if spec and announces:
                own = OwnSockets(self._counts)  # of the thread that asks it
                asked = partial(self._connections, connections or partial(_polled, own))
                takes = takes_over(os.environ) if take_over is None else take_over
                self._spec = spec
                self._membership = Membership(self._connect, spec, self._end, asked, takes, self._on_contact)
                self._rounds = Rounds("signalbox-lease", self._round, self._membership.leave)
                self._rounds.start()
            process_exit.hold(self)
            if on_routes:
                self._on_routes = on_routes
                self._follow()
        except Exception as error:
            if strict:
                raise
            self._end(Ended.REFUSED)
            log.warning("job '%s' is not announced, the training goes on: %s", self.id, error)
        if strict:
            self._raise_first_error()

    def _round(self) -> float | None:
        assert self._membership
        return self._membership.round(time.monotonic())

    def _on_contact(self) -> None:
        """Routes are followed while the controller answers: a stream costs something, and may not notice the end."""
        if self._follower:
            self._follower.reopen()

    def _stream(self) -> RemoteClient:
        if self._membership and not self._membership.in_touch:
            raise SignalboxError("the controller does not answer")
        assert self._connect
        return self._connect()

    def _connections(self, asked: Connections) -> frozenset[Connected] | None:
        try:
            return asked()
        except Exception as error:
            self._log_once("its connections are not known", error)
            return None

    def _follow(self) -> None:
        if self._follower or self._ended or not self._connect:
            return
        with self._lock:
            if self._follower is None and not self._ended:
                follower = RouteFollower(self._stream, self.id, self._take, self._gone)
                try:
                    self._follower = follower.__enter__()
                except RuntimeError as error:
                    self._log_once("its routes are not followed", error)

    def _take(self, routes: tuple[Route, ...]) -> None:
        self._routes = routes
        self._on_routes(routes)

    def _gone(self, reason: Gone) -> bool:
        """Whether to follow no longer. Of a job that this process announces its membership finds out why."""
        if self._membership and self._rounds:
            self._membership.renew_now()
            self._rounds.hurry()
        elif reason in ENDS:
            self._end(ENDS[reason])
        return self._ended is not None

    def _read(self, what: Callable[[OwnSockets], Read]) -> Read | None:
        if self._ended is Ended.FORKED:
            return None
        with self._lock:
            self._sockets = self._sockets or OwnSockets(self._counts)
            try:
                self._sockets.poll()
            except OSError as error:
                self._log_once("the kernel does not tell what sockets carry", error)
            return what(self._sockets)

    def _end(self, why: Ended) -> None:
        """The first reason counts."""
        self._ended = self._ended or why

    def _raise_first_error(self) -> None:
        membership = self._membership
        if membership is None:
            return
        membership.tried.wait(STRICT_S)
        if not membership.registered:
            self.leave()
            raise membership.first_error or SignalboxError(f"no answer from the controller within {STRICT_S:g} s")

    def _log_once(self, what: str, error: Exception) -> None:
        if what not in self._logged:
            self._logged.add(what)
            log.warning("job '%s': %s, the training goes on: %s", self.id, what, error)


def _polled(sockets: OwnSockets) -> frozenset[Connected]:
    sockets.poll()
    return sockets.connections


def _between(addresses: frozenset[str], controller: str) -> Callable[[Connected], bool]:
    """Whether a connection is between two of the addresses, and not to the controller, which may run at one of them."""
    host, port = ("", 0) if controller.startswith("unix:") else host_and_port(controller)
    named = not host.replace(".", "").isdigit()

    def counts(connected: Connected) -> bool:
        own, _, peer, peer_port = connected
        to_controller = peer_port == port and (named or peer == host)
        return own != peer and own in addresses and peer in addresses and not to_controller

    return counts
