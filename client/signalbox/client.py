"""The Python client of the API: synchronous, typed, our own errors.

Owns one channel. In: our frozen types. Out: the API's messages, or an error of ``signalbox.errors`` where the status
maps to one, ``Unreachable`` where the controller does not answer, and a plain ``SignalboxError`` otherwise.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

from google.protobuf.field_mask_pb2 import FieldMask

from signalbox.addresses import DEFAULT_ADDRESS as DEFAULT_ADDRESS
from signalbox.client_connection import ClientConnection
from signalbox.errors import ConcurrentUpdate, NotFound, SignalboxError, Unavailable
from signalbox.errors import Unreachable as Unreachable
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.mapping import checked, duration, number_of, path_in_proto, seconds, timestamp
from signalbox.spec_messages import job_spec, spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind, Strategy

LONG_CALL_S = 150.0
"""For calls that wait for the solver and the switches, when that is more than the client's time-out."""

RETRY_S = 0.2
MAX_RETRY_S = 5.0
"""Before a watch is opened again: after the first failure, and at most."""

NEWER_PLANS = 3
"""How often routes are asked for that are to be of the plan that was asked for before."""

UPDATE_TRIES = 12
"""Number of attempts at an update that others overtake. In each round one of the clients succeeds, so that as many as
this may update a job at the same moment."""

UPDATE_PAUSE_S = 0.02
"""Mean pause before the first repetition, in seconds; it grows by as much with each further one."""


@dataclass(frozen=True, slots=True)
class Registered:
    """``lease_token``: whoever has it can renew, change and end the job."""

    job: pb.Job
    lease_token: str = field(repr=False)


Watched = TypeVar("Watched", bound=Any)
Answer = TypeVar("Answer")


def resuming(
    watch: Callable[[str], Generator[Watched, None, None]],
    lost: Callable[[SignalboxError], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
) -> Generator[Watched, None, None]:
    """The messages of a watch, opened again whenever the controller could not be reached: where it was, or with a
    snapshot. ``watch``: opens it with a resume token, such as ``client.watch_jobs``. ``lost``: is called when it breaks
    off. ``pause``: waits for so many seconds. Raises ``Unreachable`` and ``Unavailable`` only before the first
    message, and every other error."""
    token, failures = "", -1
    while True:
        stream = watch(token)
        try:
            for message in stream:
                token, failures = message.resume_token or token, 0
                yield message
            return
        except (Unreachable, Unavailable) as error:
            if failures < 0:
                raise
            if failures == 0:
                lost(error)
            pause(min(RETRY_S * 2**failures, MAX_RETRY_S))
            failures += 1
        finally:
            stream.close()


class Client(ClientConnection):
    """``address``: ``HOST:PORT`` or ``unix:PATH``. ``timeout_s``: for one call with its retries; streams have none.
    ``credentials``: who this client is, and whom it trusts. ``max_answer_bytes``: -1 for any number. Raises
    ``InvalidInput`` when they cannot be used.

    It remembers the lease tokens of the jobs that it has registered, and uses them where a call is given none."""

    # ---- jobs

    def register_job(
        self, spec: JobSpec, *, lease_token: str | None = None, request_id: str = "", take_over: bool = False
    ) -> Registered:
        """Announce a job; the same spec again, with its lease token or the same ``request_id``, renews its lease.
        A ``request_id`` names one registration for good: give another one to register again. Without one the client
        makes one, and repeats it until a call for the job is answered. Raises ``AlreadyExists`` when the job's id
        belongs to another registration, which ``take_over`` ends; ``NotFound`` with how it ended when the registration
        that the request made is over; and ``Conflict``."""
        request_id = request_id or self._request_ids.setdefault(spec.job_id, str(uuid4()))
        token = self._token(spec.job_id, lease_token)
        request = pb.RegisterJobRequest(
            spec=spec_message(spec), lease_token=token, request_id=request_id, take_over=take_over
        )
        try:
            response: pb.RegisterJobResponse = self._call(self._jobs.RegisterJob, request)
        except NotFound:
            self._request_ids.pop(spec.job_id, None)
            raise
        self._request_ids.pop(spec.job_id, None)
        self._tokens[spec.job_id] = response.lease_token
        return Registered(response.job, response.lease_token)

    def update_job(
        self, spec: JobSpec, fields: Iterable[str] = (), lease_token: str | None = None, revision: int = 0
    ) -> pb.Job:
        """Change the spec of a registered job. ``fields``: of ``spec``, which to change; all when empty. ``revision``:
        change the job only if it still has this one; 0: whichever it has. An update of some fields without a revision
        is repeated when another update comes first. Raises ``NotFound``, ``WrongLeaseToken``, ``Conflict`` and
        ``HostNotAllowed`` as ``register_job``, and ``ConcurrentUpdate`` when the job has another revision, or other
        updates came first ``UPDATE_TRIES`` times."""
        request = self._update(spec, tuple(fields), lease_token, revision)
        return self._updated(self._jobs.UpdateJob, request, [request]).job

    def update_jobs(
        self,
        specs: Iterable[JobSpec],
        fields: Iterable[str] = (),
        lease_tokens: Mapping[str, str] = MappingProxyType({}),
        revisions: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[pb.Job, ...]:
        """Change the specs of several registered jobs at once, all or none; jobs may exchange hosts. ``fields``: of
        each spec, which to change; all when empty. ``lease_tokens``, ``revisions``: by job id. Returns the jobs in the
        order of ``specs``. Repeats and raises as ``update_job``; the error names the job at fault by its place:
        ``jobs[1]``."""
        names = tuple(fields)
        jobs = [
            self._update(spec, names, lease_tokens.get(spec.job_id), revisions.get(spec.job_id, 0)) for spec in specs
        ]
        return tuple(self._updated(self._jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=jobs), jobs).jobs)

    def change_job(self, job_id: str, change: Callable[[JobSpec], JobSpec], lease_token: str | None = None) -> pb.Job:
        """Read a job, and announce what ``change`` makes of its spec, unless the job was updated meanwhile: then read
        and change it again. So what other clients change at the same time is kept. ``change`` may be called
        ``UPDATE_TRIES`` times. Raises as ``update_job``."""

        def attempt() -> pb.Job:
            job = self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job
            return self.update_job(change(job_spec(job.spec)), (), lease_token, job.revision)

        return _repeated(attempt)

    def _updated(self, method: Callable[..., Any], request: Any, entries: Iterable[pb.UpdateJobRequest]) -> Any:
        """Repeat the call when others come first, unless that cannot help: a revision that is stale stays so."""
        if any(entry.revision for entry in entries):
            return self._call(method, request)
        return _repeated(lambda: self._call(method, request))

    def _update(
        self, spec: JobSpec, fields: Iterable[str], lease_token: str | None, revision: int
    ) -> pb.UpdateJobRequest:
        mask = FieldMask(paths=[path_in_proto(pb.JobSpec, name)[0] for name in fields])
        token = self._token(spec.job_id, lease_token)
        return pb.UpdateJobRequest(spec=spec_message(spec), update_mask=mask, lease_token=token, revision=revision)

    def get_job(self, job_id: str) -> pb.Job:
        return self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job

    def list_jobs(self, page_size: int = 0) -> tuple[pb.Job, ...]:
        """All of them, ordered by id. ``page_size``: asked for at one time, the controller's choice when 0."""
        pages = self._pages(self._jobs.ListJobs, pb.ListJobsRequest(page_size=page_size))
        return tuple(chain.from_iterable(page.jobs for page in pages))

    def list_routes(self, job_ids: Iterable[str] = (), planned_otherwise: bool = False) -> tuple[pb.ListedRoute, ...]:
        """Of these jobs, of all when empty, ordered by job, source and destination. ``planned_otherwise``: only those
        that the newest plan has otherwise. Raises ``NotFound`` when there is no such job."""
        request = pb.ListRoutesRequest(job_ids=job_ids, planned_otherwise=planned_otherwise)
        return tuple(chain.from_iterable(page.routes for page in self._pages(self._jobs.ListRoutes, request)))

    def plan_changes(self) -> tuple[pb.Plan, tuple[pb.ListedRoute, ...]] | None:
        """The newest plan, and the routes that it has otherwise than the switches; None before the first plan. Raises
        ``Unavailable`` when another plan comes each time."""
        for _ in range(NEWER_PLANS):
            plan = self.get_plan()
            if plan is None:
                return None
            pages = [*self._pages(self._jobs.ListRoutes, pb.ListRoutesRequest(planned_otherwise=True))]
            if all(page.plan_generation == plan.generation for page in pages):
                return plan, tuple(chain.from_iterable(page.routes for page in pages))
        raise Unavailable("new plans come faster than they can be compared; try again", 1.0)

    def deregister_job(self, job_id: str, lease_token: str | None = None, force: bool = False, uid: str = "") -> None:
        """End a job; again with the same token, or ``uid``, is no error. ``force``: without the token, then ``uid``
        names the registration, empty for whichever has the id. Raises ``NotFound`` and ``WrongLeaseToken``."""
        token = self._token(job_id, lease_token)
        request = pb.DeregisterJobRequest(job_id=job_id, lease_token=token, force=force, uid=uid)
        self._call(self._jobs.DeregisterJob, request)

    def renew_lease(self, job_id: str, lease_token: str | None = None) -> float:
        """Returns the seconds left. Raises ``NotFound`` when the job has ended; the error's ``reason`` says how; and
        ``WrongLeaseToken``."""
        request = pb.RenewLeaseRequest(job_id=job_id, lease_token=self._token(job_id, lease_token))
        return seconds(self._call(self._jobs.RenewLease, request).lease_left)

    def report_iterations(
        self, job_id: str, iterations: Iterable[IterationTime], lease_token: str | None = None
    ) -> int:
        """Returns how many of them are new: above all indices that were reported before. Raises ``InvalidInput``."""
        now = time.monotonic()
        messages = [
            checked(
                pb.Iteration,
                f"iterations[{number}]",
                index=iteration.index,
                duration=duration(iteration.duration_s),
                communication=duration(iteration.communication_s),
                age=None if iteration.ended_at is None else duration(now - iteration.ended_at),
            )
            for number, iteration in enumerate(iterations)
        ]
        token = self._token(job_id, lease_token)
        request = pb.ReportIterationsRequest(job_id=job_id, iterations=messages, lease_token=token)
        return self._call(self._jobs.ReportIterations, request).accepted

    def report_connections(
        self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str | None = None
    ) -> None:
        """All connections that ``address`` has for the job; they replace those reported before."""
        messages = [
            checked(
                pb.Connection,
                f"connections[{number}]",
                src=c.src_ip,
                src_port=c.src_port,
                dst=c.dst_ip,
                dst_port=c.dst_port,
            )
            for number, c in enumerate(connections)
        ]
        token = self._token(job_id, lease_token)
        request = pb.ReportConnectionsRequest(job_id=job_id, address=address, connections=messages, lease_token=token)
        self._call(self._jobs.ReportConnections, request)

    # Watches go on until they are closed; ``resuming`` opens them again after the controller could not be reached.

    def watch_routes(
        self, job_id: JobId | str, resume_token: str = "", uid: str = ""
    ) -> Generator[pb.WatchRoutesResponse, None, None]:
        """The job's routes now and whenever they change. ``uid``: of the registration, empty for that of the token, or
        the one that has the id. Raises ``NotFound`` with how it ended when the registration is over."""
        request = pb.WatchRoutesRequest(job_id=job_id, resume_token=resume_token, uid=uid)
        return self._watch(self._jobs.WatchRoutes, request)

    def watch_jobs(self, resume_token: str = "") -> Generator[pb.WatchJobsResponse, None, None]:
        """All jobs, then those that change or end."""
        return self._watch(self._jobs.WatchJobs, pb.WatchJobsRequest(resume_token=resume_token))

    # ---- fabric, plan, status

    def get_fabric(self) -> pb.GetFabricResponse:
        return self._call(self._controller.GetFabric, pb.GetFabricRequest())

    def get_plan(self) -> pb.Plan | None:
        """None before the first plan."""
        response: pb.GetPlanResponse = self._call(self._controller.GetPlan, pb.GetPlanRequest())
        return response.plan if response.HasField("plan") else None

    def get_status(self) -> pb.GetStatusResponse:
        return self._call(self._controller.GetStatus, pb.GetStatusRequest())

    def list_rules(self, dpid: int) -> tuple[pb.SwitchRule, ...]:
        """That a switch holds. Raises ``NotKnownYet`` while it is not connected, or not read yet."""
        pages = self._pages(self._controller.ListRules, pb.ListRulesRequest(dpid=dpid))
        return tuple(chain.from_iterable(page.rules for page in pages))

    def watch_fabric(self, resume_token: str = "") -> Generator[pb.WatchFabricResponse, None, None]:
        """All switches, links and hosts, then those that change or go."""
        return self._watch(self._controller.WatchFabric, pb.WatchFabricRequest(resume_token=resume_token))

    def watch_plan(self, resume_token: str = "") -> Generator[pb.WatchPlanResponse, None, None]:
        """The newest plan, and each that follows."""
        return self._watch(self._controller.WatchPlan, pb.WatchPlanRequest(resume_token=resume_token))

    def watch_alarms(self, resume_token: str = "") -> Generator[pb.WatchAlarmsResponse, None, None]:
        """All alarms, then those that are raised or end."""
        return self._watch(self._controller.WatchAlarms, pb.WatchAlarmsRequest(resume_token=resume_token))

    def replan(self) -> pb.ReplanResponse:
        """Plan now; returns when the plan was adopted or rejected."""
        return self._call(self._controller.Replan, pb.ReplanRequest(), LONG_CALL_S)

    def set_strategy(self, strategy: Strategy) -> pb.SetStrategyResponse:
        """Returns when the switches confirmed the rules of the strategy."""
        request = pb.SetStrategyRequest(strategy=number_of(pb.Strategy.DESCRIPTOR, strategy))
        return self._call(self._controller.SetStrategy, request, LONG_CALL_S)

    def explain(self, job_id: str) -> pb.ExplainResponse:
        """Whether the network is what slows the job. Raises ``NotFound`` and ``Conflict`` (hosts are not found yet)."""
        request = pb.ExplainRequest(job_id=job_id)
        return self._call(self._controller.Explain, request, LONG_CALL_S)

    def what_if(
        self,
        kinds: Iterable[FailureKind] = (),
        top: int = 0,
        within_s: float = 0.0,
        names: Iterable[str] = (),
        wait_s: float | None = None,
    ) -> pb.WhatIfResponse:
        """What each single failure would do. ``kinds``: all when empty. ``top``: outcomes wanted, all when 0.
        ``within_s``: seconds for all of it, the controller's choice when 0. ``names``: instead of ``kinds`` parts that
        fail all at once, as ``drain`` takes them. ``wait_s``: seconds for the answer, as long as it may take when None.
        Raises ``InvalidInput`` for names of nothing, and ``Unreachable`` without an answer."""
        request = pb.WhatIfRequest(
            kinds=[number_of(pb.FailureKind.DESCRIPTOR, kind) for kind in kinds],
            top=top,
            within=duration(within_s) if within_s else None,
            names=names,
        )
        return self._call(self._controller.WhatIf, request, LONG_CALL_S, wait_s)

    def get_plan_proof(self) -> pb.GetPlanProofResponse:
        """The routes in force, with why none are better. Raises ``Conflict`` while some flows have none."""
        request = pb.GetPlanProofRequest()
        return self._call(self._controller.GetPlanProof, request, LONG_CALL_S)

    # ---- events, alarms, work on the fabric

    def list_events(self, after_s: float | None = None, kinds: Iterable[str] = ()) -> Iterator[pb.Event]:
        """Oldest first. ``after_s``: seconds since 1970; all that are kept when None. ``kinds``: words of the API's
        ``EventKind``; all when empty. Raises ``KeyError`` for other words."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        request = pb.ListEventsRequest(kinds=numbers, after=None if after_s is None else timestamp(after_s))
        for page in self._pages(self._controller.ListEvents, request):
            yield from page.events

    def watch_events(
        self, resume_token: str = "", after_s: float | None = None, kinds: Iterable[str] = ()
    ) -> Generator[pb.WatchEventsResponse, None, None]:
        """Yield events as they happen. With ``after_s`` (seconds since 1970) and no token the kept events from then on
        come first."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        after = None if after_s is None else timestamp(after_s)
        request = pb.WatchEventsRequest(resume_token=resume_token, after=after, kinds=numbers)
        return self._watch(self._controller.WatchEvents, request)

    def silence_alarms(self, kind: str, subject: str = "", for_s: float | None = None, comment: str = "") -> None:
        """Note that operators know of an alarm, or of all of a kind. ``for_s``: seconds; until it is over when None.
        Raises ``KeyError`` for a word that is no ``AlarmKind``."""
        request = pb.SilenceAlarmsRequest(
            kind=number_of(pb.AlarmKind.DESCRIPTOR, kind),
            subject=subject,
            duration=None if for_s is None else duration(for_s),
            comment=comment,
        )
        self._call(self._controller.SilenceAlarms, request)

    def end_silence(self, kind: str, subject: str = "") -> None:
        """Raises ``InvalidInput`` when there is none."""
        request = pb.EndSilenceRequest(kind=number_of(pb.AlarmKind.DESCRIPTOR, kind), subject=subject)
        self._call(self._controller.EndSilence, request)

    def drain(self, names: Iterable[str]) -> pb.DrainResponse:
        """Take switches and cables out of use; returns when that is saved. Raises ``InvalidInput``, and ``Conflict``
        when hosts would be cut off."""
        return self._call(self._controller.Drain, pb.DrainRequest(names=names))

    def undrain(self, names: Iterable[str]) -> pb.UndrainResponse:
        """Use them again; returns when that is saved."""
        return self._call(self._controller.Undrain, pb.UndrainRequest(names=names))

    def forget_parts(self, names: Iterable[str]) -> tuple[pb.DownPart, ...]:
        """Parts of the fabric that are down are not expected any more. Returns all that were forgotten. Raises
        ``InvalidInput`` for names of none, and ``Conflict`` for those that are there or declared."""
        request = pb.ForgetPartsRequest(names=names)
        return tuple(self._call(self._controller.ForgetParts, request).parts)


def _repeated(attempt: Callable[[], Answer]) -> Answer:
    """Return what the first attempt returns that no other update came before. Raises ``ConcurrentUpdate`` of the last
    one."""
    for number in range(1, UPDATE_TRIES):
        try:
            return attempt()
        except ConcurrentUpdate:
            time.sleep(random.uniform(0.0, 2 * UPDATE_PAUSE_S * number))
    return attempt()
