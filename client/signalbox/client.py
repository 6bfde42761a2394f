"""Synchronous Python client of the API, with typed arguments and errors.

A client owns one gRPC channel. Its methods take frozen types of this package and return messages of the API. A failed
call raises the error of ``signalbox.errors`` that corresponds to its gRPC status, ``Unreachable`` when the controller
does not answer, or a plain ``SignalboxError``.
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
from signalbox.jobs.reports import Accepted, Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.mapping import (
    checked,
    duration,
    job_spec,
    number_of,
    optional_duration,
    path_in_proto,
    seconds,
    seconds_or_none,
    spec_message,
    timestamp,
)
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind, Mode

LONG_CALL_S = 150.0
"""Smallest time-out, in seconds, of calls that wait for the solver or for switches."""

RETRY_S = 0.2
"""Pause in seconds before the first attempt to reopen a broken watch; each failed attempt doubles the pause."""
MAX_RETRY_S = 5.0
"""Longest pause in seconds between two attempts to reopen a broken watch."""

NEWER_PLANS = 3
"""Number of attempts to read a plan together with its changes.

An attempt fails when a newer plan replaces the plan while the changes are read."""

UPDATE_TRIES = 12
"""Number of attempts at an update while it conflicts with updates of other clients.

Among clients whose updates conflict, one succeeds at each attempt. So ``UPDATE_TRIES`` clients can update a job at the
same moment."""

UPDATE_PAUSE_S = 0.02
"""Mean pause in seconds before the first repetition of an update; the n-th pause has n times this mean."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered job and its lease token. A client needs the token to renew, change and end the job."""

    job: pb.Job
    lease_token: str = field(repr=False)


Watched = TypeVar("Watched", bound=Any)
Answer = TypeVar("Answer")


def resuming(
    watch: Callable[[str], Generator[Watched, None, None]],
    lost: Callable[[SignalboxError], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
) -> Generator[Watched, None, None]:
    """Yield the messages of a watch, and reopen the watch whenever the connection to the controller is lost.

    A reopened watch continues after the last resume token, or begins again with all objects.

    - ``watch``: function that opens the watch with a resume token, such as ``client.watch_jobs``
    - ``lost``: called with the error, once each time the connection is lost
    - ``pause``: function that waits for a number of seconds

    Raises ``Unreachable`` and ``Unavailable`` only before the first message. Other errors are raised at any time."""
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
    """Client of one controller, or of several of which one is active.

    - ``address``: ``HOST:PORT``, ``unix:PATH``, or ``HOST:PORT,HOST:PORT`` with the address of each controller
    - ``timeout_s``: time-out in seconds of one call with its repetitions, and of the search for the active controller;
      watches have no time-out
    - ``credentials``: files with the client's identity and the authorities that it trusts
    - ``max_answer_bytes``: largest accepted message, and largest sum of all pages of a list; -1 for no limit

    Raises ``InvalidInput`` when the address or the credentials cannot be used.

    The client remembers the lease tokens of the jobs that it has registered. Calls without ``lease_token`` use the
    remembered token."""

    # ---- jobs

    def register_job(
        self, spec: JobSpec, *, lease_token: str | None = None, request_id: str = "", take_over: bool = False
    ) -> Registered:
        """Announce a job. The same spec with its lease token, or with the same ``request_id``, renews the lease.

        - ``request_id``: identifies one registration for ever; to register the job again later, pass another id. If it
          is empty, the client generates an id, and uses it for all calls for this job until one is answered.
        - ``take_over``: whether to end another registration that has the job's id

        Raises ``AlreadyExists`` when another registration has the job's id and ``take_over`` is false. Raises
        ``NotFound`` with a ``reason`` when the registration that was made with this ``request_id`` has ended. Raises
        ``Conflict`` when the job contradicts registered jobs."""
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
        """Change the spec of a registered job.

        - ``fields``: names of the fields of ``spec`` to change; empty for all
        - ``revision``: change the job only if it still has this revision; 0 for any

        Without ``revision``, the call is repeated when it conflicts with another client's update.

        Raises ``NotFound``, ``WrongLeaseToken``, ``Conflict`` and ``HostNotAllowed``. Raises ``ConcurrentUpdate`` when
        the job has another revision, or after ``UPDATE_TRIES`` attempts that conflict with other updates."""
        request = self._update(spec, tuple(fields), lease_token, revision)
        return self._make_update(self._jobs.UpdateJob, request, [request]).job

    def update_jobs(
        self,
        specs: Iterable[JobSpec],
        fields: Iterable[str] = (),
        lease_tokens: Mapping[str, str] = MappingProxyType({}),
        revisions: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[pb.Job, ...]:
        """Change the specs of several registered jobs: all of them or none. Jobs may exchange hosts.

        - ``fields``: names of the fields to change in each spec; empty for all
        - ``lease_tokens`` and ``revisions``: token and revision of each job, by job id

        Returns the jobs in the order of ``specs``. Repeats the call and raises errors as ``update_job`` does. An error
        names the job that caused it by its position in ``specs``: ``jobs[1]``."""
        names = tuple(fields)
        jobs = [
            self._update(spec, names, lease_tokens.get(spec.job_id), revisions.get(spec.job_id, 0)) for spec in specs
        ]
        return tuple(self._make_update(self._jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=jobs), jobs).jobs)

    def change_job(self, job_id: str, change: Callable[[JobSpec], JobSpec], lease_token: str | None = None) -> pb.Job:
        """Read a job, pass its spec to ``change``, and announce the spec that ``change`` returns.

        When another client updates the job meanwhile, all three steps are repeated, so that no update is lost.
        ``change`` may be called ``UPDATE_TRIES`` times. Raises the errors of ``update_job``."""

        def attempt() -> pb.Job:
            job = self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job
            return self.update_job(change(job_spec(job.spec)), (), lease_token, job.revision)

        return _until_no_conflict(attempt)

    def _make_update(self, method: Callable[..., Any], request: Any, entries: Iterable[pb.UpdateJobRequest]) -> Any:
        """Make the call, and repeat it after a conflict with another update.

        If an entry names a revision, the call is not repeated. After a conflict the job has another revision, so the
        call would conflict again."""
        if any(entry.revision for entry in entries):
            return self._call(method, request)
        return _until_no_conflict(lambda: self._call(method, request))

    def _update(
        self, spec: JobSpec, fields: Iterable[str], lease_token: str | None, revision: int
    ) -> pb.UpdateJobRequest:
        mask = FieldMask(paths=[path_in_proto(pb.JobSpec, name)[0] for name in fields])
        token = self._token(spec.job_id, lease_token)
        return pb.UpdateJobRequest(spec=spec_message(spec), update_mask=mask, lease_token=token, revision=revision)

    def get_job(self, job_id: str) -> pb.Job:
        return self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job

    def list_jobs(self, page_size: int = 0) -> tuple[pb.Job, ...]:
        """Return all jobs, ordered by id. ``page_size``: jobs per request; with 0 the controller chooses."""
        pages = self._pages(self._jobs.ListJobs, pb.ListJobsRequest(page_size=page_size))
        return tuple(chain.from_iterable(page.jobs for page in pages))

    def list_routes(self, job_ids: Iterable[str] = (), planned_otherwise: bool = False) -> tuple[pb.ListedRoute, ...]:
        """Return the routes of these jobs, or of all jobs, ordered by job, source and destination.

        ``planned_otherwise``: whether to return only routes that the newest plan would change. Raises ``NotFound`` when
        a job does not exist."""
        request = pb.ListRoutesRequest(job_ids=job_ids, planned_otherwise=planned_otherwise)
        return tuple(chain.from_iterable(page.routes for page in self._pages(self._jobs.ListRoutes, request)))

    def plan_changes(self) -> tuple[pb.Plan, tuple[pb.ListedRoute, ...]] | None:
        """Return the newest plan and the routes that it would change; None before the first plan.

        Raises ``Unavailable`` when a newer plan replaces the plan during each of ``NEWER_PLANS`` attempts."""
        for _ in range(NEWER_PLANS):
            plan = self.get_plan()
            if plan is None:
                return None
            pages = [*self._pages(self._jobs.ListRoutes, pb.ListRoutesRequest(planned_otherwise=True))]
            if all(page.plan_generation == plan.generation for page in pages):
                return plan, tuple(chain.from_iterable(page.routes for page in pages))
        raise Unavailable("the controller replaced the plan while its routes were read; try again", 1.0)

    def deregister_job(self, job_id: str, lease_token: str | None = None, force: bool = False, uid: str = "") -> None:
        """End a job. Repeating the call with the same token or ``uid`` is no error.

        - ``force``: whether to end the job without a lease token
        - ``uid``: id of the registration to end, used with ``force``; empty for the present registration of the job id

        Raises ``NotFound`` and ``WrongLeaseToken``."""
        token = self._token(job_id, lease_token)
        request = pb.DeregisterJobRequest(job_id=job_id, lease_token=token, force=force, uid=uid)
        self._call(self._jobs.DeregisterJob, request)

    def renew_lease(self, job_id: str, lease_token: str | None = None) -> float:
        """Renew the lease and return the seconds until it runs out.

        Raises ``NotFound`` when the job has ended; the error's ``reason`` says how. Raises ``WrongLeaseToken``."""
        request = pb.RenewLeaseRequest(job_id=job_id, lease_token=self._token(job_id, lease_token))
        return seconds(self._call(self._jobs.RenewLease, request).lease_left)

    def report_iterations(
        self, job_id: str, iterations: Iterable[IterationTime], lease_token: str | None = None
    ) -> Accepted:
        """Report iterations, and return how many of them are new to the controller, and how long the job should wait.

        An iteration is new when its index is larger than all indices reported earlier. Raises ``InvalidInput``."""
        now = time.monotonic()
        messages = [
            checked(
                pb.Iteration,
                f"iterations[{number}]",
                index=iteration.index,
                duration=duration(iteration.duration_s),
                communication=duration(iteration.communication_s),
                age=None if iteration.ended_at is None else duration(now - iteration.ended_at),
                until_communication=optional_duration(iteration.until_communication_s),
                waited=optional_duration(iteration.waited_s or None),
            )
            for number, iteration in enumerate(iterations)
        ]
        token = self._token(job_id, lease_token)
        request = pb.ReportIterationsRequest(job_id=job_id, iterations=messages, lease_token=token)
        answer = self._call(self._jobs.ReportIterations, request)
        return Accepted(answer.accepted, seconds_or_none(answer, "wait"))

    def report_connections(
        self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str | None = None
    ) -> None:
        """Report all open connections of the job from ``address``; replaces earlier reports for this address."""
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

    # A watch continues until it is closed. ``resuming`` reopens a watch when the connection to the controller is lost.

    def watch_routes(
        self, job_id: JobId | str, resume_token: str = "", uid: str = ""
    ) -> Generator[pb.WatchRoutesResponse, None, None]:
        """Yield the job's routes now and whenever they change.

        ``uid`` identifies the registration to follow. If it is empty, ``resume_token`` identifies the registration.
        Without either, the present registration of the job id is followed. Raises ``NotFound`` with a ``reason`` when
        the registration has ended."""
        request = pb.WatchRoutesRequest(job_id=job_id, resume_token=resume_token, uid=uid)
        return self._watch(self._jobs.WatchRoutes, request)

    def watch_jobs(self, resume_token: str = "") -> Generator[pb.WatchJobsResponse, None, None]:
        """Yield all jobs, then each job that changes or ends."""
        return self._watch(self._jobs.WatchJobs, pb.WatchJobsRequest(resume_token=resume_token))

    # ---- fabric, plan, status

    def get_fabric(self) -> pb.GetFabricResponse:
        return self._call(self._controller.GetFabric, pb.GetFabricRequest())

    def get_plan(self) -> pb.Plan | None:
        """Return the newest plan, or None before the first plan."""
        response: pb.GetPlanResponse = self._call(self._controller.GetPlan, pb.GetPlanRequest())
        return response.plan if response.HasField("plan") else None

    def get_status(self) -> pb.GetStatusResponse:
        return self._call(self._controller.GetStatus, pb.GetStatusRequest())

    def list_rules(self, dpid: int) -> tuple[pb.SwitchRule, ...]:
        """Return the rules on a switch.

        Raises ``NotKnownYet`` while the switch is not connected, or its rules have not been read."""
        pages = self._pages(self._controller.ListRules, pb.ListRulesRequest(dpid=dpid))
        return tuple(chain.from_iterable(page.rules for page in pages))

    def watch_fabric(self, resume_token: str = "") -> Generator[pb.WatchFabricResponse, None, None]:
        """Yield all switches, links and hosts, then each switch, link or host that changes or is removed."""
        return self._watch(self._controller.WatchFabric, pb.WatchFabricRequest(resume_token=resume_token))

    def watch_plan(self, resume_token: str = "") -> Generator[pb.WatchPlanResponse, None, None]:
        """Yield the newest plan, then each later plan."""
        return self._watch(self._controller.WatchPlan, pb.WatchPlanRequest(resume_token=resume_token))

    def watch_alarms(self, resume_token: str = "") -> Generator[pb.WatchAlarmsResponse, None, None]:
        """Yield all alarms, then each alarm that is raised or ends."""
        return self._watch(self._controller.WatchAlarms, pb.WatchAlarmsRequest(resume_token=resume_token))

    def replan(self) -> pb.ReplanResponse:
        """Plan now. Return when the new plan has been adopted or rejected."""
        return self._call(self._controller.Replan, pb.ReplanRequest(), LONG_CALL_S)

    def set_mode(self, mode: Mode) -> pb.SetModeResponse:
        """Set the controller's mode. Return when the switches have confirmed the rules of the mode."""
        request = pb.SetModeRequest(mode=number_of(pb.Mode.DESCRIPTOR, mode))
        return self._call(self._controller.SetMode, request, LONG_CALL_S)

    def explain(self, job_id: str) -> pb.ExplainResponse:
        """Explain whether the network slows the job.

        Raises ``NotFound`` for an unknown job, and ``Conflict`` while the job waits for hosts."""
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
        """Predict the effect of each single failure on the jobs.

        - ``kinds``: kinds of failures; empty for all
        - ``top``: largest number of failures in the answer; 0 for all
        - ``within_s``: seconds that the controller may compute; with 0 the controller chooses
        - ``names``: names of parts, as for ``drain``. With names, the call predicts the effect if all these parts fail
          together.
        - ``wait_s``: time-out of the call in seconds; None for the client's time-out, but at least ``LONG_CALL_S``

        Raises ``InvalidInput`` for a name that no part has, and ``Unreachable`` when the controller does not answer."""
        request = pb.WhatIfRequest(
            kinds=[number_of(pb.FailureKind.DESCRIPTOR, kind) for kind in kinds],
            top=top,
            within=duration(within_s) if within_s else None,
            names=names,
        )
        return self._call(self._controller.WhatIf, request, LONG_CALL_S, wait_s)

    def get_plan_proof(self) -> pb.GetPlanProofResponse:
        """Return the routes in force with their proof. Raises ``Conflict`` while some flows have no route."""
        request = pb.GetPlanProofRequest()
        return self._call(self._controller.GetPlanProof, request, LONG_CALL_S)

    # ---- events, alarms, work on the fabric

    def list_events(self, after_s: float | None = None, kinds: Iterable[str] = ()) -> Iterator[pb.Event]:
        """Yield the events that the controller has stored, oldest first.

        - ``after_s``: return only events after this time in seconds since 1970; None for all
        - ``kinds``: return only these kinds, words of the API's ``EventKind``; empty for all

        Raises ``KeyError`` for a word that is not an ``EventKind``."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        request = pb.ListEventsRequest(kinds=numbers, after=None if after_s is None else timestamp(after_s))
        for page in self._pages(self._controller.ListEvents, request):
            yield from page.events

    def watch_events(
        self, resume_token: str = "", after_s: float | None = None, kinds: Iterable[str] = ()
    ) -> Generator[pb.WatchEventsResponse, None, None]:
        """Yield events as they happen.

        With ``after_s`` (seconds since 1970) and no resume token, the stored events after that time are yielded
        first."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        after = None if after_s is None else timestamp(after_s)
        request = pb.WatchEventsRequest(resume_token=resume_token, after=after, kinds=numbers)
        return self._watch(self._controller.WatchEvents, request)

    def silence_alarms(self, kind: str, subject: str = "", for_s: float | None = None, comment: str = "") -> None:
        """Mark an alarm as known to operators, or all alarms of a kind if ``subject`` is empty.

        ``for_s``: duration of the silence in seconds; None for as long as the alarm lasts. Raises ``KeyError`` for a
        word that is not an ``AlarmKind``."""
        request = pb.SilenceAlarmsRequest(
            kind=number_of(pb.AlarmKind.DESCRIPTOR, kind),
            subject=subject,
            duration=None if for_s is None else duration(for_s),
            comment=comment,
        )
        self._call(self._controller.SilenceAlarms, request)

    def end_silence(self, kind: str, subject: str = "") -> None:
        """End a silence. Raises ``InvalidInput`` when no such silence exists."""
        request = pb.EndSilenceRequest(kind=number_of(pb.AlarmKind.DESCRIPTOR, kind), subject=subject)
        self._call(self._controller.EndSilence, request)

    def drain(self, names: Iterable[str]) -> pb.DrainResponse:
        """Take switches and cables out of use; return when the drain is saved.

        Raises ``InvalidInput`` for a name that no part has, and ``Conflict`` when the drain would cut off hosts."""
        return self._call(self._controller.Drain, pb.DrainRequest(names=names))

    def undrain(self, names: Iterable[str]) -> pb.UndrainResponse:
        """Use drained switches and cables again; return when the end of the drain is saved."""
        return self._call(self._controller.Undrain, pb.UndrainRequest(names=names))

    def list_members(self) -> tuple[pb.Member, ...]:
        """Return all members: the controllers that share one state in etcd. Empty when the state is not in etcd."""
        return tuple(self._call(self._controller.ListMembers, pb.ListMembersRequest()).members)

    def drain_member(self, name: str) -> tuple[pb.Member, ...]:
        """Move all switches of a member to the other members. Return all members."""
        return tuple(self._call(self._controller.DrainMember, pb.DrainMemberRequest(name=name)).members)

    def undrain_member(self, name: str) -> tuple[pb.Member, ...]:
        """Let a drained member control switches again. Return all members."""
        return tuple(self._call(self._controller.UndrainMember, pb.UndrainMemberRequest(name=name)).members)

    def forget_member(self, name: str) -> tuple[pb.Member, ...]:
        """Remove an absent member from the list of members. Return all members."""
        return tuple(self._call(self._controller.ForgetMember, pb.ForgetMemberRequest(name=name)).members)

    def forget_parts(self, names: Iterable[str]) -> tuple[pb.DownPart, ...]:
        """Stop expecting parts of the fabric that are down.

        A switch is forgotten together with its cables and hosts. Returns all forgotten parts, including these cables
        and hosts. Raises ``InvalidInput`` for a name that no part has. Raises ``Conflict`` for a part that is up, or
        that the controller's inventory file declares."""
        request = pb.ForgetPartsRequest(names=names)
        return tuple(self._call(self._controller.ForgetParts, request).parts)


def _until_no_conflict(attempt: Callable[[], Answer]) -> Answer:
    """Call ``attempt`` until it does not conflict with other updates, and return its result.

    Raises ``ConcurrentUpdate`` when ``UPDATE_TRIES`` attempts have conflicted."""
    for number in range(1, UPDATE_TRIES):
        try:
            return attempt()
        except ConcurrentUpdate:
            time.sleep(random.uniform(0.0, 2 * UPDATE_PAUSE_S * number))
    return attempt()
