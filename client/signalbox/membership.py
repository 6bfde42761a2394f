"""Registration of one job: its lease, its changes and its reports. Module ``rounds`` provides the thread.

Each round makes calls to the controller, and returns how many seconds later the next round is due. Errors of the
controller are handled here, and not raised. Failed calls are repeated after growing pauses, and the latest iterations
are stored until they are reported. When its lease has run out, the job is registered again, unless another registration
has taken it over.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from signalbox.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    Gone,
    HostNotAllowed,
    InvalidInput,
    NotAllowed,
    NotFound,
    SignalboxError,
    TooSlow,
    Unreachable,
    WrongLeaseToken,
)
from signalbox.jobs.reports import REPORT_S, Accepted, Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.rounds import FIRST_PAUSE_S, pause_after

MIN_PAUSE_S = 0.1
RENEWALS_PER_LEASE = 4
LEAST_LEFT = 0.1
"""Lower limit for the remaining time that a renewal reports, as a fraction of the lease duration."""
MAX_PAUSE_S = 30.0
"""Longest pause between rounds in seconds.

A call to a controller that accepts connections but does not answer takes 27 ms of processor time. One such call per 20
s takes 0.1 % of a processor."""
TRIES_PER_LEASE = 6
"""Number of attempts per lease duration while calls fail.

If there is no answer for a whole lease duration, later pauses may be as long as ``MAX_PAUSE_S``."""
UP_TO_OTHERS = (AlreadyExists, Conflict, Exhausted, HostNotAllowed, NotFound)
"""Errors after which the same request may succeed later: other jobs may end, or an operator may allow hosts.

The next request may also differ from the refused one."""
ID_TAKEN = (
    "the id belongs to another registration; the job is announced when that registration ends, or now with take_over "
    "(signalbox run --take-over)"
)
KEPT_ITERATIONS = 1000

log = logging.getLogger("signalbox")


class Ended(StrEnum):
    """Reason why a job is no longer kept registered.

    - ``left``: this program has deregistered it
    - ``taken_over``: another registration has the job's id
    - ``deregistered``: an operator has ended it
    - ``refused``: the announcement is wrong
    - ``forked``: this process is a forked child; the job belongs to its parent"""

    LEFT = "left"
    TAKEN_OVER = "taken_over"
    DEREGISTERED = "deregistered"
    REFUSED = "refused"
    FORKED = "forked"


ENDS = {Gone.JOB_TAKEN_OVER: Ended.TAKEN_OVER, Gone.JOB_DEREGISTERED: Ended.DEREGISTERED}
"""Reasons why a job does not exist (``Gone``) that end the membership, each with the reason for the program.

After any other reason the job is registered again."""


class Controller(Protocol):
    """The calls of ``signalbox.client.Client`` that a membership makes."""

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, take_over: bool) -> Any: ...
    def update_job(self, spec: JobSpec, *, lease_token: str) -> object: ...
    def renew_lease(self, job_id: str, lease_token: str) -> float: ...
    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> Accepted: ...
    def report_connections(
        self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str
    ) -> object: ...
    def deregister_job(self, job_id: str, lease_token: str) -> object: ...
    def close(self) -> None: ...


class Change(NamedTuple):
    """New spec that the controller has not accepted yet, and the lease token of the job's registration."""

    spec: JobSpec
    lease_token: str


class Membership:
    """Registration of one job, and its renewal.

    - ``connect``: function that makes a client; it is called again after every failure
    - ``connections``: function that returns the job's connections, or None while they are unknown; called only if the
      job reports them
    - ``take_over``: whether the first registration ends another one that has the job's id
    - ``on_end``: called once with the reason when the membership ends
    - ``on_contact``: called when ``in_touch`` changes
    - ``hands_over``: whether the job's program may take over this registration with a better announcement. If so, a
      takeover is expected, and logged without a warning.
    - ``token``: lease token of a registration that an earlier process has made
    - ``on_token``: called with the lease token of each registration made here
    - ``report_s``: longest pause in seconds between two rounds of calls, for a job that reports
    - ``on_wait``: called with the index of the latest reported iteration, and the wait in the answer, if there is one

    Any thread may use ``report``, ``update``, ``change``, ``try_again``, ``release`` and ``cancel``. All other methods
    must be called by one thread at a time."""

    def __init__(
        self,
        connect: Callable[[], Controller],
        spec: JobSpec,
        on_end: Callable[[Ended], None],
        connections: Callable[[], frozenset[Connected] | None] = lambda: None,
        take_over: bool = False,
        on_contact: Callable[[], None] = lambda: None,
        hands_over: bool = False,
        token: str = "",
        on_token: Callable[[str], None] = lambda _: None,
        report_s: float = REPORT_S,
        on_wait: Callable[[int, float], None] = lambda *_: None,
    ) -> None:
        self._spec, self._job_id = spec, spec.job_id
        self._announced: JobSpec | None = None  # the spec that the controller has
        self._not_taken: JobSpec | None = None  # a change that the controller has refused
        self._final = False  # whether the refused change would be refused again, whatever other jobs do
        self._try_again = False
        self.registered = False
        self.in_touch = False
        """True if the controller answered the latest calls."""
        self.first_error: Exception | None = None
        self.tried = threading.Event()
        """Event that is set after the first round, unless the round failed because an answer came too late.

        If the first round did not register the job, ``first_error`` is the reason."""
        self._connect = connect
        self._connections = connections
        self._take_over = take_over
        self._on_end = on_end
        self._on_contact = on_contact
        self._hands_over = hands_over
        self._controller: Controller | None = None
        self._name_registration()
        self._token = token  # empty before the first registration
        self._on_token = on_token
        self._report_s = report_s
        self._on_wait = on_wait
        self._releasing = False
        self._renew_at = 0.0
        self._reported: deque[IterationTime] = deque(maxlen=KEPT_ITERATIONS)
        self._unsent: list[IterationTime] = []
        self._reported_connections: frozenset[Connected] | None = None
        self._heard = 0.0  # time of the controller's last answer; at first, of the first call
        self._failures = 0
        self._logged: set[type[Exception]] = set()  # kinds of errors logged in this outage
        self._refused: set[str] = set()
        self._cancelled = False

    def report(self, iteration: IterationTime) -> None:
        """Store an iteration, to be reported in the next round; return at once, from any thread.

        Indices must ascend, except between threads that report at the same time."""
        self._reported.append(iteration)

    def update(self, spec: JobSpec) -> None:
        """Announce this spec from the next round on, and no longer try to release the job.

        Returns at once; may be called from any thread."""
        self._spec, self._releasing = spec, False

    @property
    def change(self) -> Change | None:
        """Change of the spec that the controller has not accepted yet or has refused.

        None when there is no such change. Any thread may read it."""
        spec, waits = self._spec, self.registered and not self._releasing
        return Change(spec, self._token) if waits and spec is not self._announced else None

    def try_again(self) -> None:
        """Announce the spec again in the next round, even if the controller refused it because of other jobs.

        Returns at once; may be called from any thread."""
        self._try_again = True

    def release(self) -> None:
        """Deregister the job. Attempts are repeated in further rounds until one succeeds or the lease has run out.

        Returns at once; may be called from any thread."""
        self._releasing = True

    def renew_now(self) -> None:
        """Renew the lease in the next round, even if the renewal is not due yet."""
        self._renew_at = 0.0

    def round(self, now: float) -> float | None:
        """Make one round of calls. Return the seconds until the next round, or None if this was the last one.

        ``now``: monotonic time in seconds."""
        self._heard = self._heard or now
        if self._releasing:
            return self._try_to_deregister(now)
        try:
            self._calls(now)
        except Exception as error:
            self.first_error = self.first_error if self.tried.is_set() else error
            if not isinstance(error, TooSlow):
                self.tried.set()
            return self._pause_after(error, now)
        self.tried.set()
        self._heard, self._failures = now, 0
        self._touch(True)
        return max(MIN_PAUSE_S, min(self._report_s, self._renew_at - now))

    def _touch(self, now: bool) -> None:
        if now is not self.in_touch:
            self.in_touch = now
            self._on_contact()
            if now:
                self._logged.clear()

    def leave(self) -> None:
        """Report the remaining iterations and deregister the job.

        If the controller does not answer, the lease runs out."""
        with suppress(Exception):
            if self.registered:
                controller = self._controller = self._controller or self._connect()
                with suppress(SignalboxError):
                    self._send_iterations(controller)
                controller.deregister_job(self._job_id, self._token)
        self.registered = False
        self._hang_up()

    def cancel(self) -> None:
        """Abort the calls that are under way, and prevent further calls. May be called from any thread."""
        self._cancelled = True
        self._hang_up()

    def _hang_up(self) -> None:
        if controller := self._controller:
            self._controller = None
            controller.close()

    def _calls(self, now: float) -> None:
        controller = self._controller = self._controller or self._connect()
        spec = self._wanted()
        if not self.registered:
            self._register(controller)
            self._renew_at = now + spec.lease_s / RENEWALS_PER_LEASE
        elif now >= self._renew_at:
            left_s = controller.renew_lease(self._job_id, self._token)
            # An impossible answer, such as NaN, must neither delay nor hasten the next renewal.
            left_s = max(left_s if left_s < spec.lease_s else spec.lease_s, spec.lease_s * LEAST_LEFT)
            self._renew_at = now + left_s / RENEWALS_PER_LEASE
            spec = spec if self._final else self._spec
        again = self._try_again
        if again:
            self._try_again = False  # another thread may set it again from here on; then the next round tries too
            spec = spec if self._final else self._spec
        if again or spec is not self._announced:
            self._update(controller, spec)
        self._send_iterations(controller)
        if spec.reports_connections:
            self._send_connections(controller)

    def _name_registration(self) -> None:
        """Choose the request id and the spec of the next registration.

        If an answer is lost, the call is repeated with both unchanged."""
        self._request_id, self._begins_as = str(uuid4()), self._wanted()

    def _wanted(self) -> JobSpec:
        """Return the spec to announce: the newest one, or the one in force if the controller has refused the newest."""
        return self._announced if self._announced and self._spec is self._not_taken else self._spec

    def _register(self, controller: Controller) -> None:
        spec = self._begins_as
        try:
            registered = controller.register_job(
                spec,
                lease_token=self._token,
                request_id=self._request_id,
                take_over=self._take_over and not self._token,
            )
        except AlreadyExists as error:
            if not (self._token and error.about.get("heldBy") == "caller"):
                raise
            # An earlier process has announced another spec with this token.
        else:
            self._token, self._announced = registered.lease_token, spec
            self._name_registration()
            log.info("job '%s' is announced", self._job_id)
            self._on_token(self._token)
        self.registered, self._reported_connections = True, None

    def _update(self, controller: Controller, spec: JobSpec) -> None:
        try:
            controller.update_job(spec, lease_token=self._token)
        except (InvalidInput, Conflict, Exhausted, NotAllowed) as error:
            if spec is not self._not_taken:
                log.warning(
                    "the announcement of job '%s' cannot be changed (the training continues): %s", self._job_id, error
                )
            self._not_taken = spec
            self._final = isinstance(error, InvalidInput)
        else:
            self._announced = spec

    def _try_to_deregister(self, now: float) -> float | None:
        """Try to deregister the job.

        Return the pause in seconds until the next attempt, or None when there is none."""
        self.registered = False
        if not self._token:
            return None
        try:
            controller = self._controller = self._controller or self._connect()
            with suppress(NotFound, WrongLeaseToken):
                controller.deregister_job(self._job_id, self._token)
        except Exception as error:
            self._log_once(error)
            self._hang_up()
            self._failures += 1
            left_s = self._heard + self._spec.lease_s - now
            return pause_after(self._failures, MAX_PAUSE_S) if left_s > 0 else None
        return None

    def _send_iterations(self, controller: Controller) -> None:
        while self._reported:
            self._unsent.append(self._reported.popleft())
        self._unsent = sorted(self._unsent, key=lambda iteration: iteration.index)[-KEPT_ITERATIONS:]
        if self._unsent:
            with self._skipping_invalid("iterations"):
                answer = controller.report_iterations(self._job_id, self._unsent, self._token)
                if answer.wait_s is not None:
                    self._on_wait(self._unsent[-1].index, answer.wait_s)
            self._unsent = []

    def _send_connections(self, controller: Controller) -> None:
        found = self._connections()
        if found is None or found == self._reported_connections:
            return
        for address in sorted(
            {connection.src_ip for connection in found | (self._reported_connections or frozenset())}
        ):
            of_address = [connection for connection in found if connection.src_ip == address]
            with self._skipping_invalid("connections"):
                controller.report_connections(self._job_id, address, of_address, self._token)
        self._reported_connections = found

    @contextmanager
    def _skipping_invalid(self, what: str) -> Iterator[None]:
        """Skip a report that the controller refuses as invalid, because it would refuse the report again."""
        try:
            yield
        except InvalidInput as error:
            if what not in self._refused:
                log.warning("job '%s': %s are not reported (the training continues): %s", self._job_id, what, error)
            self._refused.add(what)

    def _pause_after(self, error: Exception, now: float) -> float | None:
        """Handle the error of a round.

        Returns the pause in seconds until the next round, or None when the membership is over."""
        if self._cancelled:
            return None
        if why := self._end_by(error):
            self.registered = False
            self._hang_up()
            level = logging.INFO if self._hands_over and why is Ended.TAKEN_OVER else logging.WARNING
            log.log(
                level, "job '%s' is not announced any more (%s; the training continues): %s", self._job_id, why, error
            )
            self._on_end(why)
            return None
        if isinstance(error, NotFound):
            self.registered = False
            self._name_registration()
        else:
            self._log_once(error)
        if isinstance(error, UP_TO_OTHERS):
            self._heard = now
        else:
            self._hang_up()
        self._touch(False)
        self._failures += 1
        self._renew_at = 0.0
        lease_s = self._spec.lease_s
        most_s = max(FIRST_PAUSE_S, lease_s / TRIES_PER_LEASE) if now - self._heard < lease_s else MAX_PAUSE_S
        return pause_after(self._failures, min(MAX_PAUSE_S, most_s))

    def _end_by(self, error: Exception) -> Ended | None:
        if isinstance(error, NotFound):
            return ENDS.get(error.reason)
        if isinstance(error, AlreadyExists | WrongLeaseToken) and self._token:
            return Ended.TAKEN_OVER
        # Before there is a client, the error is about the credential files, which may be corrected.
        refused = isinstance(error, InvalidInput) and self._controller and not self.registered
        return Ended.REFUSED if refused else None

    def _log_once(self, error: Exception) -> None:
        """Log an error, unless an error of its kind has been logged since the controller last answered."""
        kind = Unreachable if isinstance(error, Unreachable) else type(error)
        if kind not in self._logged:
            answered = isinstance(error, UP_TO_OTHERS) and not self.registered
            what = "not announced yet" if answered else "no contact with the controller"
            why = ID_TAKEN if isinstance(error, AlreadyExists) and error.about.get("heldBy") == "other" else error
            log.warning("job '%s': %s (the training continues): %s", self._job_id, what, why)
        self._logged.add(kind)
