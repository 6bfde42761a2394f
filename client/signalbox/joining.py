"""``signalbox.join`` announces a training job from the training program.

    with signalbox.join("job", endpoints=["10.0.1.1", "10.0.2.1"]) as job:
        for batch in batches:
            with job.step():
                train(batch)

Threads decide which calls to make (``membership``, ``route_following``); a separate process makes them
(``remote_client``). The training continues after any failure of a thread, of that process or of a call: the logger
``signalbox`` gets each kind of error once.
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
from signalbox.addresses import DEFAULT_ADDRESS, api_addresses, host_and_port
from signalbox.credentials import Credentials
from signalbox.errors import Gone, InvalidInput, SignalboxError
from signalbox.ip_addresses import is_address
from signalbox.job_ids import HOW_TO_NAME_THE_JOB, job_id_of_environment, rank_of, takes_over
from signalbox.jobs.reports import REPORT_S, Connected, IterationTime, Step
from signalbox.jobs.spec import JobSpec
from signalbox.jobs.subflows import Pair
from signalbox.membership import ENDS, Ended, Membership
from signalbox.remote_client import RemoteClient, end_process
from signalbox.rounds import LEAVE_S, Rounds
from signalbox.route_following import Route, RouteFollower, Shares, shares_of
from signalbox.slots import Slot, Waits
from signalbox.socket_bytes import Exchanged, OwnSockets

CALL_S = 5.0
"""Time-out of one call in seconds. A call that took longer is repeated; the repetition has no second effect."""
STRICT_S = 30.0
"""Seconds that ``join`` waits for the controller's answer if ``strict`` is set."""
MAX_ITERATION_S = 7 * 86_400.0
"""Longest iteration in seconds that the API accepts."""
AT_ONCE_S = 0.1
"""Smallest number of seconds between two reports of a job with a slot."""
AT_ONCE = 8
"""Number of first iterations reported as soon as they end, because the controller checks the announcement with them."""

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
    """Announce this program as a training job; return at once, and raise nothing unless ``strict``.

    Rank 0 announces the job, renews its lease until the program ends, and reports iterations and connections. Other
    ranks need not join. They may join to follow the routes, and to read how many bytes their own sockets have carried.

    - ``job``: the job's id; the other fields of a job spec (``endpoints``, ``collectives``, ``lease_s`` …,
      docs/reference/job-spec.md) are keyword arguments. A ``JobSpec`` or a mapping with these fields also works. Ranks
      other than 0 need only the id. Default: SIGNALBOX_JOB, else ``slurm-`` and Slurm's job number, else torchrun's run
      id.
    - ``rank``: rank of this process. Default: the rank from mpirun, torchrun or srun, else 0.
    - ``address``: the controller, HOST:PORT or unix:PATH; several controllers are HOST:PORT,HOST:PORT. Default:
      SIGNALBOX_ADDRESS, else 127.0.0.1:50051.
    - ``credentials``: default: the files named in SIGNALBOX_TLS_CA, SIGNALBOX_TLS_CERTIFICATE, SIGNALBOX_TLS_KEY and
      SIGNALBOX_TOKEN_FILE.
    - ``on_routes``: called in another thread with the job's routes, whenever they change.
    - ``connections``: function that returns the connections of all ranks, or None while they are unknown. It is called
      every two seconds if the job announces ``reports_connections``. Default: the connections of this process.
    - ``take_over``: whether to end another registration that has the job's id, such as that of an earlier run that was
      killed. If false, the job is registered when that registration's lease has run out. Default: whether
      SIGNALBOX_TAKE_OVER is 1, as ``signalbox run`` sets it.
    - ``strict``: whether to wait up to 30 s for the controller's answer, and to raise errors of the announcement. The
      errors are ``InvalidInput`` with the wrong fields, ``AlreadyExists``, ``Conflict``, ``Unreachable``, and the other
      errors of ``Client.register_job``."""
    if job is None:
        job = job_id_of_environment(os.environ)
    joined = Job(str(job.get("job_id") if isinstance(job, Mapping) else getattr(job, "job_id", job or "")))
    joined._join(job, rank, address, credentials, on_routes, connections, take_over, strict, fields)
    return joined


def _spec(job: str | JobSpec | Mapping[str, Any], fields: Mapping[str, Any]) -> JobSpec:
    match job:
        case JobSpec():
            return job if not fields else JobSpec.parse({**job.model_dump(exclude_unset=True), **fields})
        case Mapping():
            return JobSpec.parse({**job, **fields})
    return JobSpec.parse({"job_id": job, **fields})


def connecting(
    kind: Callable[[str, float, Credentials], Made], address: str | None, credentials: Credentials | None
) -> tuple[Callable[[], Made], tuple[str, ...]]:
    """Return a function that makes a client with ``kind``, and the addresses of the controllers.

    Raises ``InvalidInput`` when an address is wrong."""
    where = address or os.environ.get("SIGNALBOX_ADDRESS") or DEFAULT_ADDRESS
    try:
        addresses = api_addresses(where)
    except PydanticCustomError as error:
        raise InvalidInput.of("address", f"{error.message()} (given: {where!r})") from None
    return partial(kind, where, CALL_S, (credentials or Credentials.of_environment()).absolute()), addresses


class Job:
    """A joined job, as ``join`` returns it.

    The methods may be called from any thread. They raise nothing and return at once, except that ``leave`` takes at
    most a second. Reports are discarded once the program has left the job, or ``ended`` is set."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self._ended: Ended | None = None
        self._indices = itertools.count()
        self._waits = Waits()
        self._answered = threading.Event()
        """Event that is set when an answer says how long to wait."""
        self._waited_s = 0.0
        self._waits_late = False
        """Whether the program measures its communication, so that it can wait just before it."""
        self._hurried_at = 0.0
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
        """True while the registration by this process is in force, as far as this process knows."""
        return self._ended is None and self._membership is not None and self._membership.registered

    @property
    def ended(self) -> Ended | None:
        """Reason why this process no longer registers or follows the job; None while it does."""
        return self._ended

    def update(self, **fields: Any) -> None:
        """Announce new values of these fields of the job spec, such as ``collectives``.

        Reported connections stay valid. Iteration times measured so far are discarded, because they belong to the
        earlier traffic. When a value is wrong, the error is logged and the announcement stays unchanged."""
        if self._ended or self._spec is None or self._membership is None or self._rounds is None:
            return  # a forked child must not wait for the lock
        with self._lock:
            try:
                wanted = JobSpec.parse({**self._spec.model_dump(), **fields, "job_id": self.id})
            except InvalidInput as error:
                log.warning(
                    "the announcement of job '%s' cannot be changed (the training continues): %s", self.id, error
                )
                return
            if wanted != self._spec:
                self._spec = wanted
                self._membership.update(wanted)
                self._rounds.hurry()

    # ---- iterations

    def iteration(
        self, duration_s: float, communication_s: float | None = None, until_communication_s: float | None = None
    ) -> None:
        """Report an iteration that has just ended: its wall time and its communication time, both in seconds.

        Without ``communication_s`` all of ``duration_s`` counts as communication. ``until_communication_s``: seconds
        from the beginning of the iteration to its communication. Impossible times are logged, and not reported. A
        program that calls this method does not wait for slots (``keeps_slots``); one that uses ``step`` does."""
        if self._spec and self._spec.keeps_slots:
            self.update(keeps_slots=False)
        self._record(duration_s, communication_s, until_communication_s)

    def _record(
        self, duration_s: float, communication_s: float | None = None, until_communication_s: float | None = None
    ) -> None:
        if self._membership is None or self._ended:
            return
        try:
            took_s = float(duration_s)
            communicated_s = took_s if communication_s is None else min(float(communication_s), took_s)
            until_s = None if until_communication_s is None else min(max(0.0, float(until_communication_s)), took_s)
            if not (math.isfinite(took_s) and 0 < communicated_s <= took_s <= MAX_ITERATION_S):
                raise ValueError(f"duration {took_s} s, communication {communicated_s} s")
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor without a number raises RuntimeError
            self._log_once("left out an iteration, because its times must be above 0 s and at most a week", error)
            return
        self._waits_late = until_s is not None
        index, now, waited_s = next(self._indices), time.monotonic(), self._waited_s
        self._membership.report(IterationTime(index, took_s, communicated_s, now, until_s, waited_s))
        self._waits.ended(index, now)
        self._waited_s = 0.0
        at_once = self._waits.has_slot and now - self._hurried_at >= AT_ONCE_S
        if (at_once or index < AT_ONCE or took_s >= REPORT_S) and self._rounds and self._membership.in_touch:
            self._hurried_at = now
            self._rounds.hurry()

    def step(self) -> Step:
        """Return a context for one iteration.

        The iteration is reported at the end of the context, unless an error ends it. If the job has a slot, rank 0
        waits for it at the first ``communication()``. A program that does not use it waits at the beginning of the
        context (docs/how-to/join-from-python.md#slots)."""
        return Step(self._record, self._wait, self._waits_late)

    def _wait(self) -> None:
        """Wait for the slot of the job; return at once without a slot."""
        if not self._waits.has_slot:
            return
        began = time.monotonic()
        self._waits.arrive(began)
        self._answered.clear()
        while (left_s := self._waits.left_s(time.monotonic())) > 0:
            if self._answered.wait(left_s):  # the answer to the latest report corrects the wait
                self._answered.clear()
        self._waited_s = time.monotonic() - began
        self._waits.began(self._waited_s)

    def _grant(self, index: int, wait_s: float) -> None:
        self._waits.grant(index, wait_s)
        self._answered.set()
        self._follow()  # the stream of routes has the slot

    # ---- routes

    @property
    def routes(self) -> tuple[Route, ...]:
        """Routes of the job's flows, as installed on the switches.

        The first access opens the stream of routes, and the tuple is empty until the controller has answered. While the
        controller does not answer, the tuple has the last known routes."""
        self._follow()
        return self._routes

    @property
    def shares(self) -> Shares:
        """Division of each split flow's bytes among its connections, by (source, destination).

        Each ``Share`` has the fraction for the connections from some source ports. The mapping is derived from
        ``routes``, so it is empty until the controller has answered."""
        return shares_of(self.routes)

    # ---- sockets

    def connections(self) -> frozenset[Connected]:
        """Return the open TCP connections from this process to other addresses of the job.

        A rank that does not know the job's ``endpoints`` returns all its connections."""
        return self._read(lambda sockets: sockets.connections) or frozenset()

    def exchanged(self) -> dict[Pair, Exchanged]:
        """Return the bytes that this process's connections have carried for the job, by own and peer address.

        The kernel forgets the bytes of a connection that is closed. For a closed connection, the result has the bytes
        at the last call of this method before the end of the connection. A call takes about 4 µs per TCP socket of the
        machine."""
        return self._read(lambda sockets: sockets.exchanged) or {}

    # ---- the end

    def leave(self) -> None:
        """Deregister the job within a second.

        If the controller does not answer, the job ends when its lease runs out."""
        self.begin_leaving()
        self.end_leaving(LEAVE_S)

    def begin_leaving(self) -> None:
        """Begin to deregister the job; return at once."""
        if self._ended is Ended.FORKED:
            return
        self._end(Ended.LEFT)
        if self._follower:
            self._follower.leave()
        if self._rounds:
            self._rounds.leave()

    def end_leaving(self, timeout_s: float) -> None:
        """Wait until the job is deregistered, at most ``timeout_s`` seconds."""
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
        """Stop using the job in a forked child: it belongs to the parent process."""
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
        try:
            if job is None:
                raise InvalidInput.of("job", f"the id of the job is missing: {HOW_TO_NAME_THE_JOB}")
            rank = rank_of(os.environ) or 0 if rank is None else int(rank)
            announces = rank == 0
            if not announces:
                log.info("job '%s' is announced by rank 0, not by this rank, %d", self.id, rank)
            spec = _spec(job, fields) if announces or fields or not isinstance(job, str) else None
            self._connect, where = connecting(RemoteClient, address, credentials)
            if spec:
                self._counts = _between(spec.addresses, where)
            if spec and announces:
                own = OwnSockets(self._counts)  # used only by the thread that polls it
                asked = partial(self._connections, connections or partial(_polled, own))
                takes = takes_over(os.environ) if take_over is None else take_over
                if "keeps_slots" not in spec.model_fields_set:
                    spec = spec.model_copy(update={"keeps_slots": True})
                self._spec = spec
                self._membership = Membership(
                    self._connect, spec, self._end, asked, takes, self._on_contact, on_wait=self._grant
                )
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
            log.warning("job '%s' is not announced (the training continues): %s", self.id, error)
        if strict:
            self._raise_first_error()

    def _round(self) -> float | None:
        assert self._membership
        return self._membership.round(time.monotonic())

    def _on_contact(self) -> None:
        """Reopen the stream of routes when the controller answers again; close it when the controller stops answering.

        An open stream uses resources of the controller, and may not notice that the controller is unreachable."""
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
            self._log_once("cannot read the job's connections", error)
            return None

    def _follow(self) -> None:
        if self._follower or self._ended or not self._connect:
            return
        with self._lock:
            if self._follower is None and not self._ended:
                follower = RouteFollower(self._stream, self.id, self._take, self._handle_end, on_slot=self._take_slot)
                try:
                    self._follower = follower.__enter__()
                except RuntimeError as error:
                    self._log_once("cannot follow the job's routes", error)

    def _take(self, routes: tuple[Route, ...]) -> None:
        self._routes = routes
        self._on_routes(routes)

    def _take_slot(self, slot: Slot | None) -> None:
        if not self._ended:
            self._waits.take_slot(slot)

    def _handle_end(self, reason: Gone) -> bool:
        """Handle the end of the registration whose routes are followed; return whether to stop following routes.

        If this process announces the job, it renews the lease now: the answer says why the registration has ended."""
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
                self._log_once("the kernel does not report the bytes of sockets", error)
            return what(self._sockets)

    def _end(self, why: Ended) -> None:
        self._ended = self._ended or why
        self._waits.end()
        self._answered.set()

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
            log.warning("job '%s': %s (the training continues): %s", self.id, what, error)


def _polled(sockets: OwnSockets) -> frozenset[Connected]:
    sockets.poll()
    return sockets.connections


def _between(addresses: frozenset[str], controllers: tuple[str, ...]) -> Callable[[Connected], bool]:
    """Return a predicate for connections between two of the addresses that do not lead to a controller.

    A controller may run at one of the addresses. If the host of a controller is given by name, each connection to the
    controller's port counts as a connection to the controller."""
    places = {host_and_port(each) for each in controllers if not each.startswith("unix:")}
    named = {port for host, port in places if not is_address(host)}

    def counts(connected: Connected) -> bool:
        own, _, peer, peer_port = connected
        to_controller = (peer, peer_port) in places or peer_port in named
        return own != peer and own in addresses and peer in addresses and not to_controller

    return counts
