"""Converter between protobuf messages and the frozen types of the controller, in both directions. Pure.

Requests become ``JobSpec``, ``IterationTime`` and ``Mode``; an ``InvalidInput`` names fields as the proto file does.
The status and its parts become responses. The time is linear in the size of the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from google.protobuf.duration_pb2 import Duration

from controller.alarms import Alarm, difference_text, text
from controller.api import convert_fabric
from controller.api.pages import filled
from controller.demand.job_demand import JobDemand
from controller.fabric.parts import PartKind
from controller.jobs.requested import MAX_CONNECTIONS
from controller.planning.messages import ModeSet
from controller.silence import Silence, SilenceKey
from controller.status import JobStatus, JobTiming, Status
from controller.store.members import Members
from signalbox.addresses import MAX_PORT
from signalbox.errors import FieldProblem, InvalidInput, cut, in_entry
from signalbox.ip_addresses import ADDRESS_FORM, MAX_ADDRESS_CHARS
from signalbox.jobs.collectives import link_count
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import (
    duration,
    job_spec,
    message_of,
    names,
    number_of,
    seconds,
    seconds_or_none,
    spec_message,
    timestamp,
    word_in,
    word_of,
)
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode

MAX_SILENCE_S = 365 * 86400
MAX_COMMENT = 200
MAX_SUBJECT = 256
MAX_PATHS = 64
"""Largest number of paths in the mask of an update."""

MAX_REPORTED = 10_000
"""Largest number of iterations in one report."""

MAX_INDEX = (1 << 63) - 1
MAX_ITERATION_S = 7 * 86_400.0

CLOCK_ERROR = 1e-6
"""Relative amount by which a communication time may exceed its iteration time, because both are rounded."""

LINKS_OF_CABLE = 2
"""Number of links of an absent cable, one in each direction.

Circuits also are links, but are never reported as absent."""

MAX_LINKS_OF_SET = 8192
"""Largest number of virtual links of all jobs that one request changes together.

The control loop processes all of them before it handles anything else, at 0.1 ms per link."""

MAX_REQUEST_ID_CHARS = 128

# ---- from the wire


def request_id(request: pb.RegisterJobRequest) -> str:
    """Return the request id. Raises ``InvalidInput`` when it is too long."""
    if len(request.request_id) > MAX_REQUEST_ID_CHARS:
        message = f"at most {MAX_REQUEST_ID_CHARS} characters are allowed (given: {len(request.request_id)})"
        raise InvalidInput.of("request_id", message)
    return request.request_id


Entry = tuple[str, pb.UpdateJobRequest]
"""Update of one job, as (name, message).

Errors refer to the update by its name, such as ``jobs[1]``. The name is empty if the request has only this update."""


def updated_specs(entries: Sequence[Entry], current: Sequence[JobSpec]) -> list[JobSpec]:
    """Return the new spec of each job. ``current``: present specs, in the same order.

    Raises ``InvalidInput`` for an invalid spec or mask, and for several jobs with more than ``MAX_LINKS_OF_SET``
    virtual links in total."""
    specs = []
    for (entry, request), spec in zip(entries, current, strict=True):
        with in_entry(entry):
            check_mask(request)
            with in_entry("", "spec"):
                specs.append(updated_spec(request, spec))
    links = sum(map(link_count, specs))
    if len(specs) > 1 and links > MAX_LINKS_OF_SET:
        message = f"the jobs make {links} virtual links; at most {MAX_LINKS_OF_SET} are allowed in one request"
        raise InvalidInput.of("jobs", message)
    return specs


def updated_spec(request: pb.UpdateJobRequest, current: JobSpec) -> JobSpec:
    """Return the job's new spec: the fields in the mask come from the request, all others from ``current``.

    Raises ``InvalidInput`` as ``job_spec`` does."""
    if not _keeps_fields(request):
        return job_spec(request.spec)
    new, merged = pb.JobSpec(), spec_message(current)
    new.CopyFrom(request.spec)
    for name in pb.JobSpec.DESCRIPTOR.fields_by_name:
        (merged if name in request.update_mask.paths else new).ClearField(name)
    merged.MergeFrom(new)
    return job_spec(merged)


def required_revisions(request: pb.UpdateJobRequest, current: int) -> frozenset[int]:
    """Return the revisions that the job's spec must have when the update is applied; empty if any revision will do.

    The result has the revision that the request names, if any. It also has ``current``, the revision of the present
    spec, if the update keeps fields of the present spec. A result with two different revisions makes the update
    fail."""
    named = {request.revision} if request.revision else set()
    return frozenset(named | {current} if _keeps_fields(request) else named)


def _keeps_fields(request: pb.UpdateJobRequest) -> bool:
    return bool(request.update_mask.paths) and "*" not in request.update_mask.paths


def check_mask(request: pb.UpdateJobRequest) -> None:
    """Raise ``InvalidInput`` for a mask with too many paths, with unknown fields of the spec, or with ``job_id``."""
    changeable = [name for name in pb.JobSpec.DESCRIPTOR.fields_by_name if name != "job_id"]
    if len(request.update_mask.paths) > MAX_PATHS:
        message = f"at most {MAX_PATHS} paths are allowed (given: {len(request.update_mask.paths)})"
        raise InvalidInput.of("update_mask.paths", message)
    paths = list(request.update_mask.paths)
    allowed = f"choose '*' for all fields, or some of {', '.join(changeable)}"
    InvalidInput.refuse(
        FieldProblem(
            f"update_mask.paths[{n}]",
            "job_id cannot change" if path == "job_id" else f"JobSpec has no field '{cut(path)}'; {allowed}",
        )
        for n, path in enumerate(paths)
        if path not in (*changeable, "*")
    )


def iterations(request: pb.ReportIterationsRequest, now: float) -> tuple[IterationTime, ...]:
    """Return the iterations of a report that arrives at ``now`` (monotonic seconds).

    Raises ``InvalidInput`` unless times are positive and at most a week, times of parts of an iteration do not exceed
    its duration, and indices ascend."""
    if len(request.iterations) > MAX_REPORTED:
        message = f"{len(request.iterations)} iterations in one report; at most {MAX_REPORTED} are allowed"
        raise InvalidInput.of("iterations", message)
    times = tuple(
        IterationTime(
            i.index,
            seconds(i.duration),
            seconds(i.communication),
            now - seconds(i.age) if i.HasField("age") else None,
            seconds_or_none(i, "until_communication"),
            seconds(i.waited),
        )
        for i in request.iterations
    )
    before = (-1, *(time.index for time in times))
    InvalidInput.refuse(
        FieldProblem(f"iterations[{n}].{name}", problem)
        for n, time in enumerate(times)
        for name, problem in _wrong_time(time, before[n], now)
    )
    return times


def _wrong_time(time: IterationTime, index_before: int, now: float) -> Iterator[tuple[str, str]]:
    if time.index > MAX_INDEX:
        yield "index", f"must be at most {MAX_INDEX} (given: {time.index})"
    elif time.index <= index_before:
        yield "index", f"must be greater than the previous index, {index_before} (given: {time.index})"
    for name, value_s in (("duration", time.duration_s), ("communication", time.communication_s)):
        if not 0 < value_s <= MAX_ITERATION_S:
            yield name, f"must be more than 0 and at most {MAX_ITERATION_S:g} s (given: {value_s:g} s)"
    if time.ended_at is not None and not 0 <= (age_s := now - time.ended_at) <= MAX_ITERATION_S:
        yield "age", f"must be from 0 to {MAX_ITERATION_S:g} s (given: {age_s:g} s)"
    if not 0 <= time.waited_s <= MAX_ITERATION_S:
        yield "waited", f"must be from 0 to {MAX_ITERATION_S:g} s (given: {time.waited_s:g} s)"
    most_s, until_s = time.duration_s * (1 + CLOCK_ERROR), time.until_communication_s
    if time.communication_s > most_s > 0:
        given = f"(given: {time.communication_s:g} s)"
        yield "communication", f"must be at most the duration, {time.duration_s:g} s {given}"
    if until_s is not None and not 0 <= until_s <= most_s:
        yield "until_communication", f"must be from 0 to the duration, {time.duration_s:g} s (given: {until_s:g} s)"


def connections(request: pb.ReportConnectionsRequest) -> dict[Connected, int]:
    """Return the reported connections, each with its index in the request.

    Raises ``InvalidInput`` for invalid ports, for a missing address of the reporting host, and for a connection that
    does not lead from this address to another one."""
    if len(request.connections) > MAX_CONNECTIONS:
        message = f"{len(request.connections)} connections in one report; at most {MAX_CONNECTIONS} are allowed"
        raise InvalidInput.of("connections", message)
    if not request.address:
        raise InvalidInput.of("address", "is missing: the address of the host that reports")
    if len(request.address) > MAX_ADDRESS_CHARS:
        raise InvalidInput.of("address", f"{ADDRESS_FORM} (given: '{cut(request.address)}')")
    InvalidInput.refuse(
        FieldProblem(f"connections[{i}].{name}", problem)
        for i, connection in enumerate(request.connections)
        for name, problem in _wrong_connection(connection, request.address)
    )
    return {Connected(c.src, c.src_port, c.dst, c.dst_port): i for i, c in enumerate(request.connections)}


def _wrong_connection(connection: pb.Connection, address: str) -> Iterator[tuple[str, str]]:
    if connection.src != address:
        turn = (
            "; for a connection that this host accepted, src_port is the port of this host"
            if connection.dst == address
            else ""
        )
        yield "src", f"must be the address of the reporting host, {address}{turn} (given: '{cut(connection.src)}')"
    elif connection.dst == address:
        yield "dst", f"must be another host than src, {address}"
    for name in ("src_port", "dst_port"):
        port = getattr(connection, name)
        if not 0 < port <= MAX_PORT:
            yield name, f"must be a port from 1 to {MAX_PORT} (given: {port})"


def mode(value: pb.Mode) -> Mode:
    """Return the mode. Raises ``InvalidInput`` for an unknown value."""
    enum = pb.Mode.DESCRIPTOR
    word = word_of(enum, value)
    if word is None:
        raise InvalidInput.of("mode", f"choose one of {', '.join(names(enum))} (given: {value})")
    return Mode(word)


# ---- to the wire


def job_message(
    job: JobStatus,
    now: float,
    demand: JobDemand | None = None,
    timing: JobTiming | None = None,
    with_pairs: bool = False,
) -> pb.Job:
    """Return the message of a job.

    ``now``: monotonic seconds, for the remaining time of the lease. ``demand``: measured traffic of the job; None to
    leave it out. ``timing``: None to leave it out. ``with_pairs``: whether to include the traffic of each pair."""
    return message_of(
        pb.Job,
        job,
        uid=job.uid,
        revision=job.registration.revision,
        tenant=job.registration.tenant,
        register_time=timestamp(job.registration.registered_at),
        lease_left=duration(job.lease_ends_at - now),
        virtual_links=len(job.routes),
        slowdown=job.slowdown or None,
        prediction_withheld=_withheld(job),
        efficiency_measured=job.efficiency_measured or None,
        ideal_communication=_known(job.ideal_communication_s),
        last_iteration_index=job.last_index if job.last_index >= 0 else None,
        last_communication=_known(job.last_communication_s),
        demand=demand_message(demand, with_pairs) if demand else None,
        wiring=_wiring(job),
        timing=message_of(pb.Timing, timing) if timing else None,
    )


def slot_message(timing: JobTiming, now: float) -> pb.WatchRoutesResponse:
    """Return the part of a ``WatchRoutesResponse`` about the job's slot. ``now``: monotonic seconds."""
    slot, found = timing.slot, pb.WatchRoutesResponse(dscp=timing.dscp)
    if slot:
        until = duration((slot.begins_at - now) % slot.period_s)
        found.slot.CopyFrom(message_of(pb.Slot, slot, until=until))
    return found


def _withheld(job: JobStatus) -> str:
    if job.is_undiscovered and not job.missing_hosts:
        return "discovery is not complete: switches or cables known before the controller's start are still missing"
    return job.prediction_withheld if job.slowdown and job.efficiency_predicted is None else ""


def _wiring(job: JobStatus) -> pb.Wiring | None:
    if not job.registration.arrangement and not job.waiting:
        return None
    from controller.circuits.published import wiring_message

    return wiring_message(job)


def jobs_bytes(jobs: Iterable[tuple[JobStatus, JobDemand | None, JobTiming | None]], now: float, size: int) -> bytes:
    """Return a serialized ``ListJobsResponse`` with as many of the jobs as fit into a page of ``size``."""
    parts, token = filled(
        (
            (job.spec.job_id, pb.ListJobsResponse(jobs=[job_message(job, now, demand, timing)]).SerializeToString())
            for job, demand, timing in jobs
        ),
        size,
    )
    return b"".join((*parts, pb.ListJobsResponse(next_page_token=token).SerializeToString()))


def _known(value_s: float) -> Duration | None:
    return duration(value_s) if value_s else None


def demand_message(demand: JobDemand, with_pairs: bool = False) -> pb.Demand:
    """Return the message of a job's demand: its source, the measured traffic, and its difference from the announcement.

    ``with_pairs``: include the traffic of each pair."""
    measured, difference = demand.measurement, demand.difference
    return message_of(
        pb.Demand,
        demand,
        difference=difference_text(difference) if difference else "",
        findings=[number_of(pb.DemandFinding.DESCRIPTOR, found) for found in difference.findings] if difference else (),
        factor=difference.factor if difference else None,
        backwards=difference is not None and difference.backwards,
        measured_bps=float(measured.bps.sum()) if measured else 0.0,
        window=duration(measured.window_s) if measured else None,
        undeclared_fraction=measured.undeclared_fraction if measured else 0.0,
        pairs=_pair_demands(demand) if with_pairs else (),
    )


def _pair_demands(demand: JobDemand) -> list[pb.PairDemand]:
    """Return the traffic of all pairs of hosts that the job announced or that carry payload, sorted by address."""
    declared, measured = demand.declared, demand.measurement
    bps = dict(zip(measured.pairs, measured.bps.tolist(), strict=True)) if measured else {}
    iteration_s = measured.iteration_s if measured else None
    return [
        pb.PairDemand(
            src=pair[0],
            dst=pair[1],
            declared_bytes=declared.get(pair, 0),
            measured_bps=bps.get(pair, 0.0),
            measured_bytes=None if iteration_s is None else bps.get(pair, 0.0) * iteration_s / 8,
        )
        for pair in sorted({*declared, *(pair for pair, rate in bps.items() if rate > 0)})
    ]


def member_messages(
    members: Members, switches: tuple[Mapping[str, int], Mapping[str, int]], now: float, unix_now: float
) -> list[pb.Member]:
    """Return the messages of present members, then of absent ones. ``switches``: see ``StatusBoard``.

    ``now`` is in monotonic seconds, ``unix_now`` in seconds since 1970."""
    (held, assigned), age_s = switches, now - members.began
    leader, linkable = members.leader.id if members.leader else "", members.linkable()
    present = [
        pb.Member(
            name=one.name,
            role=pb.MEMBER_ROLE_LEADER if one.id == leader else pb.MEMBER_ROLE_STANDBY,
            address=one.api,
            version=one.version,
            start_time=timestamp(one.since),
            switches=held.get(one.id, 0),
            assigned_switches=assigned.get(one.id, 0),
            draining=one.name in members.draining,
            state_format=one.format,
            cannot_link=one not in linkable,
            last_seen_time=timestamp(unix_now - age_s),
            last_seen_age=duration(age_s),
        )
        for one in members.all
    ]
    absent = [
        pb.Member(
            name=name,
            role=pb.MEMBER_ROLE_ABSENT,
            draining=name in members.draining,
            last_seen_time=timestamp(seen),
            last_seen_age=duration(unix_now - seen),
        )
        for name, seen in members.absent.items()
    ]
    return present + absent


def status_message(status: Status, now: float, unix_now: float, version: str, leader: str = "") -> pb.GetStatusResponse:
    """Return the answer of ``GetStatus``. ``now`` is in monotonic seconds, ``unix_now`` in seconds since 1970."""
    oldest_first = sorted(status.alarms.values(), key=attrgetter("since"))
    unserved = status.unserved
    absent = status.absent_parts
    return message_of(
        pb.GetStatusResponse,
        status,
        version=version,
        leader=leader,
        switches=len(status.fabric.switches),
        switches_in_sync=sum(switch.in_sync for switch in status.switches.values()),
        links=len(status.fabric.links),
        hosts=len(status.fabric.hosts),
        jobs=len(status.jobs),
        jobs_pending=sum(job.state == "pending" for job in status.jobs.values()),
        rules=sum(switch.rules for switch in status.switches.values()),
        counters_age=None if status.counters_at is None else duration(now - status.counters_at),
        alarms=[alarm_message(alarm, unix_now - now) for alarm in oldest_first],
        jobs_differing=sum(demand.contradicted for demand in status.demands.values()),
        jobs_learning=sum(demand.learning for demand in status.demands.values()),
        jobs_unconfirmed=sum(not (each.source.counted or each.contradicted) for each in status.demands.values()),
        drains=convert_fabric.drains(status),
        jobs_without_path=unserved.get("no_path", 0),
        jobs_unplanned=unserved.get("unplanned", 0),
        known_switches=len(status.fabric.switches) + absent.get(PartKind.SWITCH, 0),
        known_links=len(status.fabric.links) + LINKS_OF_CABLE * absent.get(PartKind.LINK, 0),
        hosts_down=sum(key.kind is PartKind.HOST for key in status.down_parts),
        optical_switches=len(status.extension.switches),
        optical_switches_down=sum(not each.connected for each in status.extension.switches.values()),
    )


def alarm_message(alarm: Alarm, unix_offset_s: float) -> pb.Alarm:
    """Return the message of an alarm. ``unix_offset_s`` is added to monotonic seconds to get seconds since 1970."""
    raised, silence = timestamp(alarm.since + unix_offset_s), alarm.silence
    return message_of(
        pb.Alarm, alarm, raise_time=raised, text=text(alarm), silence=_silence_message(silence) if silence else None
    )


def _silence_message(silence: Silence) -> pb.Silence:
    end = None if silence.until is None else timestamp(silence.until)
    return message_of(pb.Silence, silence, silence_time=timestamp(silence.since), end_time=end)


def silence(request: pb.SilenceAlarmsRequest, by: str, now: float) -> Silence:
    """Return the silence in the request. ``now`` is in seconds since 1970. Raises ``InvalidInput``."""
    kind, subject = silence_key(request)
    lasts_s = seconds_or_none(request, "duration")
    if lasts_s is not None and not 0 < lasts_s <= MAX_SILENCE_S:
        raise InvalidInput.of("duration", f"must be more than 0 s and at most {MAX_SILENCE_S} s (given: {lasts_s:g} s)")
    if len(request.comment) > MAX_COMMENT:
        raise InvalidInput.of("comment", f"must have at most {MAX_COMMENT} characters (given: {len(request.comment)})")
    return Silence(kind, subject, now, None if lasts_s is None else now + lasts_s, by, request.comment)


def silence_key(request: pb.SilenceAlarmsRequest | pb.EndSilenceRequest) -> SilenceKey:
    """Return the alarm's kind and subject from the request. Raises ``InvalidInput``."""
    if not (kind := word_in(request, "kind")):
        raise InvalidInput.of(
            "kind", f"must be one of {', '.join(names(pb.AlarmKind.DESCRIPTOR))} (given: {request.kind})"
        )
    if len(request.subject) > MAX_SUBJECT:
        raise InvalidInput.of("subject", f"must have at most {MAX_SUBJECT} characters (given: {len(request.subject)})")
    return kind, request.subject


def mode_message(done: ModeSet) -> pb.SetModeResponse:
    return message_of(pb.SetModeResponse, done, install_time=duration(done.install_s))
