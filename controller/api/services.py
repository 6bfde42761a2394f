"""Handlers of the two services of the API. They decide nothing about jobs or the network.

In: requests, which are converted and put into the control loop's inbox with a future; and the published ``Status`` for
every read. Out: converted answers, or errors, which ``guard`` turns into a status.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any, TypeVar

from google.protobuf.message import Message

from controller.api import audit, convert, convert_explain, convert_fabric, convert_plan, convert_rules
from controller.api.access import CALLER, may_see, only_tenant, own_alarms, own_ends
from controller.api.errors import Stopping
from controller.api.events import EventWatches
from controller.api.explain_sharing import sharing_sentences
from controller.api.fabric_work import FabricWork
from controller.api.gate import COST
from controller.api.guard import Context, not_counted
from controller.api.identities import Role
from controller.api.leading import by_leader
from controller.api.lease_tokens import LeaseTokens
from controller.api.long_work import BYTES_OF_PART, LongWork, parts_of
from controller.api.pages import page
from controller.api.rule_purposes import ordered
from controller.api.waking import Bursts
from controller.api.watches import ROUTES_SPACING_S, Publications, Watches
from controller.fabric.topology import Dpid
from controller.jobs import messages
from controller.jobs.messages import EndReason, not_found
from controller.planning.analysis.messages import Explain, GetPlanProof, JobAnalysis, PlanProof, Question
from controller.planning.messages import (
    ModeSet,
    Replan,
    ReplanOutcome,
    Request,
    SetMode,
)
from controller.shared_map import Memo
from controller.status import JobStatus, Status, StatusBoard
from controller.store.members import NO_MEMBERS, Membership
from signalbox import mapping
from signalbox.errors import (
    Conflict,
    Gone,
    InvalidInput,
    NotFound,
    NotKnownYet,
    WrongLeaseToken,
    cut,
    in_entry,
)
from signalbox.jobs.collectives import VirtualLinks, link_count, virtual_links
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.mapping import duration, signed_duration
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import MAY_BE_REPLACED

VERSION = version("signalbox-controller")

LINKS_OF_CALL, CONNECTIONS_OF_CALL = 64, 8
"""Number of virtual links, and number of reported connections, that count as one call.

The control loop takes as long for 64 virtual links, or for 8 connections, as for one call."""

MAX_JOB_IDS = 10_000
"""Largest number of jobs that one request for routes may name. A request without job ids lists the routes of all
jobs."""

Found = TypeVar("Found")


UNKNOWN_S = 2.0
"""Seconds for which a call waits until an unknown registration appears in the published status.

The registration may just have begun or ended."""


class Services(FabricWork, pb_grpc.JobServiceServicer):
    """Handlers of both services.

    ``put``: queues a message for the control loop; any thread may call it, and it never blocks. ``tokens``: lease
    tokens of registrations."""

    def __init__(self, board: StatusBoard, put: Callable[[Request], None], tokens: LeaseTokens) -> None:
        self._board = board
        self._put = put
        self._tokens = tokens
        self._replies = Bursts()
        self._waiting: set[asyncio.Event] = set()
        self._stopping = False
        self._long_work = LongWork()
        self._watches = Watches(board, self._uid_of, self._ended, self._long_work)
        self._publications = Publications(board, ROUTES_SPACING_S)
        self._events = EventWatches(board)
        self._plan = Memo(convert_plan.get_plan_bytes)
        self._fabric = Memo(_fabric)
        self._ordered = Memo(ordered)

    def close(self) -> None:
        """Stop the worker thread. Call this after the last call has ended."""
        self._long_work.close()

    def stop_waiting(self) -> None:
        """End all waiting calls with ``Stopping``. Must be called in the server's own loop."""
        self._stopping = True
        for event in self._waiting:
            event.set()

    async def _wait(self, event: asyncio.Event) -> None:
        """Wait for the event. Raises ``Stopping`` when the server stops first."""
        self._waiting.add(event)
        try:
            if not self._stopping:
                await event.wait()
        finally:
            self._waiting.discard(event)
        if self._stopping:
            raise Stopping("the controller is stopping")

    @property
    def _status(self) -> Status:
        return self._board.status

    def _job(self, job_id: str, uid: str | None = None) -> JobStatus:
        """Return the job. ``uid``: uid of the registration; None for the present registration.

        Raises ``NotFound`` for a registration that has ended, with the reason of its end, and for a job of another
        tenant."""
        status, caller = self._status, CALLER.get()
        job = status.jobs.get(JobId(job_id))
        seen = job is not None and may_see(caller, job.registration.tenant)
        if job is None or uid not in (None, job.uid) or not seen:
            raise not_found(own_ends(caller, status.job_ends), JobId(job_id), uid, id_in_use=seen)
        return job

    def _ended(self, job_id: str, uid: str | None = None) -> NotFound | None:
        """Return the error that says how the registration ended; None while its end is not certain.

        ``uid``: None for the latest registration of the job."""
        status = self._status
        ends = own_ends(CALLER.get(), status.job_ends)
        error = not_found(ends, JobId(job_id), uid, id_in_use=JobId(job_id) in status.jobs)
        return None if error.reason is Gone.NO_SUCH_JOB else error

    def _owner(self, job_id: str, lease_token: str) -> str | None:
        """Return the uid that the token belongs to; None without a token.

        For an invalid token, raises ``WrongLeaseToken`` if the job exists, and ``NotFound`` if not. For a job of
        another tenant, raises ``NotFound`` with any token."""
        uid = self._tokens.uid(lease_token)
        job = self._status.jobs.get(JobId(job_id))
        if job and not may_see(CALLER.get(), job.registration.tenant):
            self._job(job_id, uid)
        if lease_token and uid is None:
            self._job(job_id)
            raise WrongLeaseToken(f"the lease token is not that of job '{job_id}'", {"jobId": job_id})
        return uid

    def _note_uid_of_end(self, job_id: str, reason: EndReason, ended_at: float) -> None:
        """Add the uid of the ended registration to the audit line of the current call.

        The registration is the one that ended for this reason at this time; nothing is added if the status has none."""
        meant = (job_id, reason, ended_at)
        found = (end for end in reversed(self._status.job_ends) if (end.job_id, end.reason, end.ended_at) == meant)
        if end := next(found, None):
            audit.note(uid_ended=end.uid)

    async def _wait_until_certain(self, job_id: str, uid: str) -> None:
        """Wait until the status contains this registration or its end.

        While a second registration takes the job over and is being written to disk, the status contains neither the
        first registration nor its end: the take-over is reverted if the write fails."""

        def found() -> bool:
            job = self._status.jobs.get(JobId(job_id))
            return bool((job and job.uid == uid) or self._ended(job_id, uid))

        if not found():
            with self._publications.heard(found) as published:
                while not found():
                    await self._wait(published)
                    published.clear()

    async def _uid_of(self, job_id: str, uid: str) -> str:
        """Return the uid of an existing registration.

        ``uid``: as the caller gave it; empty for the present registration. Raises ``NotFound`` for a registration that
        has ended, with the reason of its end, and for a registration that is still unknown after ``UNKNOWN_S``."""
        if uid:
            with suppress(TimeoutError):
                async with asyncio.timeout(UNKNOWN_S):
                    await self._wait_until_certain(job_id, uid)
        return self._job(job_id, uid or None).uid

    async def _known_uid(self, job_id: str, uid: str) -> str | None:
        """Return ``uid``, which must be of a present or former registration of the job; None when it is empty.

        Raises ``NotFound``."""
        if not uid or self._ended(job_id, uid):
            return uid or None
        return await self._uid_of(job_id, uid)

    async def _message(self, job_id: str, uid: str | None = None, with_pairs: bool = False) -> pb.Job:
        status, job = self._status, self._job(job_id, uid)
        demand, timing = status.demands.get(JobId(job_id)), status.extension.timings.get(JobId(job_id))
        work = functools.partial(convert.job_message, job, time.monotonic(), demand, timing, with_pairs)
        return await self._long_work.run_if_long(parts_of(job), work)

    async def _read(self, request: Message, convert: Callable[[], Found]) -> Found:
        """Return the converted request.

        A large request is converted in the worker thread, so that other calls can proceed."""
        with not_counted():
            return await self._long_work.run_if_long(request.ByteSize() // BYTES_OF_PART, convert)

    async def _links(self, specs: Sequence[JobSpec]) -> list[VirtualLinks]:
        """Return the virtual links of each spec, which are computed here to relieve the control loop.

        A job with many links counts as several calls of the client, because the control loop must process each link."""
        count = sum(map(link_count, specs))
        COST.get()(count / LINKS_OF_CALL)
        with not_counted():
            made = lambda: [virtual_links(spec).worked_out() for spec in specs]  # noqa: E731
            return await self._long_work.run_if_long(count, made)

    async def _ask(self, message: Request) -> Any:
        """Put the message into the control loop's inbox, and wait for its reply.

        If the caller disconnects or the time limit ends, a question or a ``Replan`` is cancelled. Any other message
        in the inbox is still carried out."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        message.reply.add_done_callback(lambda _: self._replies.set(loop, answered))
        self._put(message)
        try:
            await self._wait(answered)
        finally:
            if isinstance(message, Question | Replan):
                message.reply.cancel()  # has no effect on a reply that has arrived
        return message.reply.result()

    # ---- jobs

    @by_leader
    async def RegisterJob(self, request: pb.RegisterJobRequest, _: Context) -> pb.RegisterJobResponse:  # noqa: N802
        caller, request_id = CALLER.get(), convert.request_id(request)
        if not request.HasField("spec"):
            raise InvalidInput.of("spec", "is missing")
        with in_entry("", "spec"):
            spec = await self._read(request, lambda: mapping.job_spec(request.spec))
            (links,) = await self._links([spec])
        registration = messages.RegisterJob(
            spec,
            owner=self._tokens.uid(request.lease_token),
            take_over=request.take_over,
            tenant=caller.tenant,
            quota=caller.quota,
            request_id=request_id,
            links=links,
        )
        uid: str = await self._ask(registration)
        if uid == registration.uid:
            if registration.take_over:
                self._note_uid_of_end(registration.spec.job_id, EndReason.TAKEN_OVER, registration.registered_at)
            audit.note(uid_begun=uid)
        await self._wait_until_certain(request.spec.job_id, uid)
        job = await self._message(request.spec.job_id, uid)
        return pb.RegisterJobResponse(job=job, lease_token=self._tokens.token(uid))

    @by_leader
    async def GetJob(self, request: pb.GetJobRequest, _: Context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=await self._message(request.job_id, with_pairs=True))

    @by_leader
    async def ListJobs(self, request: pb.ListJobsRequest, _: Context) -> bytes:  # noqa: N802
        size, after = page(request)
        status, caller = self._status, CALLER.get()
        ids = sorted(
            key for key, job in status.jobs.items() if key > after and may_see(caller, job.registration.tenant)
        )
        jobs = ((status.jobs[one], status.demands.get(one), status.extension.timings.get(one)) for one in ids)
        return await self._long_work.run(lambda: convert.jobs_bytes(jobs, time.monotonic(), size))

    async def ListRoutes(self, request: pb.ListRoutesRequest, _: Context) -> bytes:  # noqa: N802
        size, after = page(request)
        status, caller = self._status, CALLER.get()
        if len(request.job_ids) > MAX_JOB_IDS:
            raise InvalidInput.of("job_ids", f"at most {MAX_JOB_IDS} are allowed (given: {len(request.job_ids)})")
        named = [self._job(one) for one in dict.fromkeys(request.job_ids)]
        jobs = named or [job for job in status.jobs.values() if may_see(caller, job.registration.tenant)]
        only = request.planned_otherwise
        return await self._long_work.run(lambda: convert_plan.listed_routes_bytes(jobs, status, after, size, only))

    @by_leader
    async def UpdateJob(self, request: pb.UpdateJobRequest, _: Context) -> pb.UpdateJobResponse:  # noqa: N802
        (job,) = await self._updated(request, [("", request)])
        return pb.UpdateJobResponse(job=job)

    @by_leader
    async def UpdateJobs(self, request: pb.UpdateJobsRequest, _: Context) -> pb.UpdateJobsResponse:  # noqa: N802
        COST.get()(len(request.jobs) - 1)
        entries = [(f"jobs[{number}]", one) for number, one in enumerate(request.jobs)]
        return pb.UpdateJobsResponse(jobs=await self._updated(request, entries))

    async def _updated(self, request: Message, entries: Sequence[convert.Entry]) -> list[pb.Job]:
        """Change the jobs of all entries, or none if an entry is invalid, and return the changed jobs."""
        owners, current = [], []
        for entry, one in entries:
            with in_entry(entry):
                owners.append(self._owner(one.spec.job_id, one.lease_token))
                current.append(self._job(one.spec.job_id).registration)
        specs = await self._read(request, lambda: convert.updated_specs(entries, [job.spec for job in current]))
        links = await self._links(specs)
        updates = tuple(
            messages.UpdateJob(spec, convert.required_revisions(one, registration.revision), owner, of_spec, entry)
            for spec, registration, owner, of_spec, (entry, one) in zip(
                specs, current, owners, links, entries, strict=True
            )
        )
        uids: tuple[str, ...] = await self._ask(messages.UpdateJobs(updates, CALLER.get().quota))
        jobs = []
        for update, uid in zip(updates, uids, strict=True):
            await self._wait_until_certain(update.job_id, uid)
            jobs.append(await self._message(update.job_id, uid))
        return jobs

    @by_leader
    async def DeregisterJob(self, request: pb.DeregisterJobRequest, _: Context) -> pb.DeregisterJobResponse:  # noqa: N802
        job_id, force = request.job_id, request.force
        if request.uid and not force:
            raise InvalidInput.of(
                "uid", "is allowed only together with force; without force, lease_token says which registration ends"
            )
        owner = await self._known_uid(job_id, request.uid) if force else self._owner(job_id, request.lease_token)
        deregister = messages.DeregisterJob(JobId(job_id), owner, force and owner is None, CALLER.get().tenant)
        await self._ask(deregister)
        self._note_uid_of_end(request.job_id, EndReason.DEREGISTERED, deregister.ended_at)
        return pb.DeregisterJobResponse()

    async def RenewLease(self, request: pb.RenewLeaseRequest, context: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        if not self.knows_state():  # the lease is renewed here, but the client should ask other controllers too
            context.set_trailing_metadata(((MAY_BE_REPLACED, "1"),))
        owner = self._owner(request.job_id, request.lease_token)
        left_s: float = await self._ask(messages.RenewLease(JobId(request.job_id), owner))
        return pb.RenewLeaseResponse(lease_left=duration(left_s))

    async def ReportIterations(  # noqa: N802
        self, request: pb.ReportIterationsRequest, _: Context
    ) -> pb.ReportIterationsResponse:
        owner = self._owner(request.job_id, request.lease_token)
        now = time.monotonic()
        times = await self._read(request, lambda: convert.iterations(request, now))
        accepted, wait_s = await self._ask(messages.ReportIterations(JobId(request.job_id), times, owner))
        return pb.ReportIterationsResponse(accepted=accepted, wait=signed_duration(wait_s))

    async def ReportConnections(  # noqa: N802
        self, request: pb.ReportConnectionsRequest, _: Context
    ) -> pb.ReportConnectionsResponse:
        owner = self._owner(request.job_id, request.lease_token)
        COST.get()(len(request.connections) / CONNECTIONS_OF_CALL)
        places = await self._read(request, lambda: convert.connections(request))
        job_id, quota = JobId(request.job_id), CALLER.get().quota
        await self._ask(messages.ReportConnections(job_id, request.address, frozenset(places), owner, quota, places))
        return pb.ReportConnectionsResponse()

    async def WatchRoutes(self, request: pb.WatchRoutesRequest, context: Context) -> None:  # noqa: N802
        routes, token = self._watches.routes, request.resume_token
        await routes.watch(request.job_id, request.uid, token, context.write, self._wait)

    async def WatchJobs(self, request: pb.WatchJobsRequest, context: Context) -> None:  # noqa: N802
        await self._watches.jobs.watch(request.resume_token, only_tenant(CALLER.get()), context.write, self._wait)

    # ---- fabric, plan, status

    async def GetFabric(self, _request: pb.GetFabricRequest, _: Context) -> bytes:  # noqa: N802
        status = self._status
        late = status.late_ports(time.monotonic())
        held = self._board.holders and frozenset((dpid, one.name) for dpid, one in self._board.holders().items())
        return await self._long_work.run(lambda: self._fabric(status, late, held))

    async def GetPlan(self, _request: pb.GetPlanRequest, _: Context) -> bytes:  # noqa: N802
        return await self._long_work.run(lambda: self._plan(*convert_plan.OF_STATUS(self._status)))

    async def GetStatus(self, _request: pb.GetStatusRequest, _: Context) -> pb.GetStatusResponse:  # noqa: N802
        caller = CALLER.get()
        status = replace(self._status, alarms=own_alarms(caller, self._status))
        if caller.role is Role.TENANT:
            return convert.status_message(replace(status, drains={}), time.monotonic(), time.time(), VERSION)
        return convert.status_message(status, time.monotonic(), time.time(), VERSION, self._leader())

    async def Replan(self, _request: pb.ReplanRequest, _: Context) -> bytes:  # noqa: N802
        outcome: ReplanOutcome = await self._ask(Replan())
        return await self._long_work.run(lambda: convert_plan.replan_bytes(outcome, self._status))

    @by_leader
    async def SetMode(self, request: pb.SetModeRequest, _: Context) -> pb.SetModeResponse:  # noqa: N802
        done: ModeSet = await self._ask(SetMode(convert.mode(request.mode)))
        return convert.mode_message(done)

    async def Explain(self, request: pb.ExplainRequest, _: Context) -> pb.ExplainResponse:  # noqa: N802
        job = self._status.jobs.get(JobId(request.job_id))
        if job and job.waiting:
            text = f"job '{request.job_id}' has no circuits: {job.waiting}"
            raise NotKnownYet(text, {"jobId": request.job_id})
        try:
            found: JobAnalysis = await self._ask(Explain(JobId(request.job_id)))
        except NotFound as error:
            raise self._ended(request.job_id) or error from None
        further = sharing_sentences(found, self._status.extension, self._status.fabric)
        return convert_explain.explain_message(found, further)

    async def ListRules(self, request: pb.ListRulesRequest, _: Context) -> bytes:  # noqa: N802
        size, after = page(request)
        status, dpid = self._status, Dpid(request.dpid)
        rules = status.rules.get(dpid)
        if dpid in status.extension.switches:
            text = f"{dpid:#x} is an optical switch, whose only rules are its circuits; GetFabric returns the circuits"
            raise InvalidInput.of("dpid", text)
        if rules is None:
            raise NotKnownYet(
                f"switch {dpid:#x} is not connected, or the controller has not read its rules yet; try again later"
            )
        return await self._long_work.run(
            lambda: convert_rules.rules_bytes(dpid, self._ordered(rules), status, after, size)
        )

    async def ListMembers(self, _request: pb.ListMembersRequest, _: Context) -> pb.ListMembersResponse:  # noqa: N802
        return pb.ListMembersResponse(members=self._members())

    @by_leader
    async def DrainMember(self, request: pb.DrainMemberRequest, _: Context) -> pb.DrainMemberResponse:  # noqa: N802
        await self._drain_member(request.name, drains=True)
        return pb.DrainMemberResponse(members=self._members())

    @by_leader
    async def UndrainMember(  # noqa: N802
        self, request: pb.UndrainMemberRequest, _: Context
    ) -> pb.UndrainMemberResponse:
        await self._drain_member(request.name, drains=False)
        return pb.UndrainMemberResponse(members=self._members())

    @by_leader
    async def ForgetMember(self, request: pb.ForgetMemberRequest, _: Context) -> pb.ForgetMemberResponse:  # noqa: N802
        audit.note_parts((cut(request.name),))
        await asyncio.to_thread(self._membership().forget, request.name)
        return pb.ForgetMemberResponse(members=self._members())

    async def _drain_member(self, name: str, drains: bool) -> None:
        """Save in etcd whether a member is draining. The call to etcd runs in a thread of its own."""
        membership = self._membership()
        if self._board.holders is None:
            raise Conflict(
                "the leader holds all switches: set members.api at every controller to divide them among members"
            )
        audit.note_parts((cut(name),))
        await asyncio.to_thread(membership.drain, name, drains)

    def _membership(self) -> Membership:
        if (membership := self._board.membership) is None:
            raise InvalidInput.of("name", "this controller has no members, because its state is not in etcd (store)")
        return membership

    def _leader(self) -> str:
        """Return the leader's name; empty if there are no other members."""
        members = self._board.membership.newest if self._board.membership else NO_MEMBERS
        return members.leader.name if members.leader and len(members.all) + len(members.absent) > 1 else ""

    def _members(self) -> list[pb.Member]:
        membership = self._board.membership
        members = membership.newest if membership else NO_MEMBERS
        return convert.member_messages(members, self._board.switches_of_members(), time.monotonic(), time.time())

    async def GetPlanProof(self, _request: pb.GetPlanProofRequest, _: Context) -> pb.GetPlanProofResponse:  # noqa: N802
        found: PlanProof = await self._ask(GetPlanProof())
        return pb.GetPlanProofResponse(document=found.document, generation=found.generation)


def _fabric(status: Status, late: frozenset[Dpid], held: frozenset[tuple[Dpid, str]] | None) -> bytes:
    """Return the answer of ``GetFabric``.

    ``late``: see ``convert_fabric.rates``. ``held``: pairs (switch, name of the member that is its master); None if
    members do not divide the switches."""
    holders = None if held is None else dict(held)
    encoded: bytes = convert_fabric.fabric_message(status, late, holders).SerializeToString()
    return encoded
