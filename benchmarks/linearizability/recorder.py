"""Recorder of histories: three members with faults, clients that call all of them, and the history of the calls.

No call is repeated, neither by a client nor by gRPC. A call without an answer, or with an answer that leaves open what
happened, is recorded as a call that may have happened later or never. Clients call only members that accept
connections.
"""

import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from benchmarks.linearizability.checker import JobAnswer, JobCall, JobOperation, Kind, Operation
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from mininet_topos.trainer.training import announcement
from signalbox.bounded_channel import BoundedChannel
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import Algorithm
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.wire.etcd import EtcdProcess

WEIGHTS: dict[Kind, float] = {"read": 0.4, "update": 0.25, "register": 0.2, "end": 0.1, "force": 0.05}
CALL_S = 1.0
"""Seconds that a call may take. Calls to a paused member are never answered."""
ELSEWHERE = 0.3
"""Share of the calls that go to a random member, instead of the one that answered last."""
NOBODY_S = 60.0
"""Seconds without any member that accepts connections, after which a history fails."""
PAUSE_S = 0.01
"""Longest pause of a client between two calls, in seconds."""
RETRY_S = 0.5
"""Pause of a client after a call without an answer, in seconds. Many such calls would make the check slow."""
LEASE_S = 3600.0

_ANSWERS = {
    grpc.StatusCode.OK: "done",
    grpc.StatusCode.NOT_FOUND: "missing",
    grpc.StatusCode.PERMISSION_DENIED: "missing",
    grpc.StatusCode.ALREADY_EXISTS: "exists",
}
"""Result of a call by status. PERMISSION_DENIED means that the lease token is of another registration."""

_NOTHING_DONE = (grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""Statuses of calls that have certainly done nothing. They tell nothing about the job."""

_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
]


@dataclass(frozen=True, slots=True)
class _Registered:
    number: int
    lease_token: str


class Shared:
    """State that the clients of a history share: the next call, known registrations, and the history so far.

    ``addresses``: sockets of the members. ``allowed``: number of calls that the clients may make so far, all
    together."""

    def __init__(self, addresses: Sequence[str], jobs: int, seed: int) -> None:
        self.addresses = addresses
        self.history: list[JobOperation] = []
        self.allowed = 0
        self.begun = 0
        self.answering = 0
        """Number of the member that answered last."""
        self.failure: BaseException | None = None
        self._jobs = jobs
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = False
        self._number = 0
        self._known: dict[int, _Registered] = {}
        self._by_uid: dict[str, int] = {}
        self._open: dict[int, JobCall] = {}
        """Registration of each job until it is acknowledged; it is repeated with the same request id."""

    def allow(self, allowed: int) -> None:
        """Let the clients go on until they have made ``allowed`` calls together."""
        with self._changed:
            self.allowed = allowed
            self._changed.notify_all()

    def wait_until_begun(self, count: int) -> None:
        """Wait until the clients have begun ``count`` calls together. Raises the error of a client that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.begun >= count or self.failure)
        if self.failure:
            raise self.failure

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def next_call(self) -> tuple[JobCall, str] | None:
        """Wait until a call is allowed; return it with its lease token, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.begun < self.allowed or self._ended)
            if self.begun >= self.allowed:
                return None
            self.begun += 1
            self._changed.notify_all()
            return self._chosen()

    def _chosen(self) -> tuple[JobCall, str]:
        job = self._random.randrange(self._jobs)
        (kind,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        known = self._known.get(job)
        if kind == "register":
            if job not in self._open:
                self._number += 2
                self._open[job] = JobCall("register", job, self._number, self._number)
            return self._open[job], ""
        if kind in ("update", "end"):
            if known is None:
                return JobCall("read", job), ""
            self._number += 2
            value = self._number if kind == "update" else 0
            return JobCall(kind, job, known.number, value), known.lease_token
        return JobCall(kind, job), ""

    def record(self, client: int, call: JobCall, began: float, reply: Any, code: grpc.StatusCode) -> None:
        ended = time.monotonic()
        with self._lock:
            answer = self._answer(call, reply, code)
            if answer is None and code in _NOTHING_DONE:
                return
            if answer is None or (answer.result == "missing" and call.kind in ("register", "update")):
                # A job may have ended after the change and before the answer, which then says that it has ended.
                self.history.append(Operation(client, call, began))
            if answer:
                self.history.append(Operation(client, call, began, ended, answer))
            if call.kind == "register" and answer and self._open.get(call.job) == call:
                del self._open[call.job]

    def _answer(self, call: JobCall, reply: Any, code: grpc.StatusCode) -> JobAnswer | None:
        result: Any = _ANSWERS.get(code)
        if result != "done":
            return JobAnswer(result) if result else None
        if call.kind == "register":
            self._known[call.job] = _Registered(call.registration, reply.lease_token)
            self._by_uid[reply.job.uid] = call.registration
        if call.kind == "read":
            job = reply.job
            value = job.spec.collectives[0].bytes_per_iteration
            return JobAnswer("done", self._by_uid.get(job.uid, 0), value, job.revision)
        return JobAnswer("done")

    def elsewhere(self) -> int | None:
        """Return a random member for a share ``ELSEWHERE`` of the calls, and None for the other calls."""
        with self._lock:
            return self._random.randrange(len(self.addresses)) if self._random.random() < ELSEWHERE else None

    def pause_s(self) -> float:
        with self._lock:
            return self._random.uniform(0, PAUSE_S)


class ClientThread(threading.Thread):
    """Client of a history. It has a connection of its own to each member."""

    def __init__(self, number: int, shared: Shared) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._number = number
        self._shared = shared
        self._channels: dict[int, BoundedChannel] = {}

    def run(self) -> None:
        try:
            while planned := self._shared.next_call():
                self.make(*planned)
                time.sleep(self._shared.pause_s())
        except BaseException as error:
            self._shared.failure = error
            self._shared.end()
            raise
        finally:
            for channel in self._channels.values():
                channel.close()

    def make(self, call: JobCall, lease_token: str) -> None:
        """Make a call to a member that accepts connections, and record it."""
        shared = self._shared
        member = shared.elsewhere()
        if member is None or not _accepts(shared.addresses[member]):
            member = shared.answering
            ends = time.monotonic() + NOBODY_S
            while not _accepts(shared.addresses[member]):
                if time.monotonic() > ends:
                    raise SignalboxError(f"no member has accepted a connection for {NOBODY_S:g} s")
                member = (member + 1) % len(shared.addresses)
                time.sleep(PAUSE_S)
        began = time.monotonic()
        try:
            reply = self._send(member, call, lease_token)
        except grpc.RpcError as error:
            code = error.code()
            shared.record(self._number, call, began, None, code)
            if code not in _ANSWERS and code not in _NOTHING_DONE:
                self._channels.pop(member).close()
                if member == shared.answering:
                    shared.answering = (member + 1) % len(shared.addresses)
                time.sleep(RETRY_S)
        else:
            shared.record(self._number, call, began, reply, grpc.StatusCode.OK)
            shared.answering = member

    def _send(self, member: int, call: JobCall, lease_token: str) -> Any:
        if member not in self._channels:
            address = f"unix:{self._shared.addresses[member]}"
            self._channels[member] = BoundedChannel(address, grpc.insecure_channel(address, options=_OPTIONS))
        stub: Any = pb_grpc.JobServiceStub(self._channels[member])  # type: ignore[no-untyped-call]
        job_id = _job_id(call.job)
        request: Any
        method: Callable[..., Any]
        match call.kind:
            case "register":
                request_id = f"registration-{call.registration}"
                method, request = stub.RegisterJob, pb.RegisterJobRequest(spec=_spec(call), request_id=request_id)
            case "update":
                method, request = stub.UpdateJob, pb.UpdateJobRequest(spec=_spec(call), lease_token=lease_token)
            case "end":
                method, request = stub.DeregisterJob, pb.DeregisterJobRequest(job_id=job_id, lease_token=lease_token)
            case "force":
                method, request = stub.DeregisterJob, pb.DeregisterJobRequest(job_id=job_id, force=True)
            case "read":
                method, request = stub.GetJob, pb.GetJobRequest(job_id=job_id)
        return method(request, timeout=CALL_S)


def _job_id(job: int) -> str:
    return f"job{job}"


def _spec(call: JobCall) -> pb.JobSpec:
    hosts = [f"10.{call.job}.0.{number}" for number in (1, 2)]
    return spec_message(announcement(_job_id(call.job), hosts, Algorithm.RING_ALL_REDUCE, call.value, LEASE_S))


def _accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.settimeout(CALL_S)
        probe.connect(path)
        return True
    return False


MEMBER_LEASE_S = 2
MEMBERS = 3
WITHIN_S = 60.0
ANSWER_S = 0.5
STANDING_BY, READY = b'"event": "standing by"', b'"event": "ready"'

Middle = Callable[[], None]
"""Function that waits until the clients have made half of the calls that are allowed during a fault."""


class Members:
    """Members of a controller, on one etcd. Their folders are in ``folder``; ``heal`` starts them."""

    def __init__(self, folder: Path, etcd: EtcdProcess) -> None:
        self._etcd = etcd
        self._all = []
        for number in range(MEMBERS):
            settings: Settings = {
                "etcd": {"prefix": f"/{folder.name}/", "lease_s": MEMBER_LEASE_S},
                "log": {"json_lines": True},
            }
            self._all.append(ControllerProcess.member(folder / str(number), etcd.endpoint, settings))
        self._log_begins = [0] * MEMBERS
        """Size of each log at the last start of its member."""

    @property
    def sockets(self) -> list[str]:
        return [str(each.folder / "api.sock") for each in self._all]

    def heal(self) -> int:
        """Start the members that do not run, wait until one is active and all others stand by, and return its number.

        Raises ``SignalboxError`` when this takes too long."""
        wait_for(self._is_healed, "one leader, while the others stand by", WITHIN_S)
        return self._numbers_with(READY)[0]

    def _is_healed(self) -> bool:
        for number, each in enumerate(self._all):
            if each.process is None or each.process.poll() is not None:
                self._log_begins[number] = each.log.stat().st_size if each.log.exists() else 0
                each.start("--standby")
        active = self._numbers_with(READY)
        standing = [number for number in self._numbers_with(STANDING_BY) if number not in active]
        return len(active) == 1 and len(standing) == MEMBERS - 1 and _answers(self._all[active[0]])

    def _numbers_with(self, event: bytes) -> list[int]:
        """Return the numbers of the members that have logged the event since their last start."""
        begins = zip(self._all, self._log_begins, strict=True)
        return [number for number, (each, begin) in enumerate(begins) if event in each.log.read_bytes()[begin:]]

    def stop(self) -> None:
        for each in self._all:
            each.kill()

    # ---- faults, each on the active member or on etcd

    def kill(self, active: int, _: random.Random, middle: Middle) -> None:
        self._all[active].kill()
        middle()

    def pause(self, active: int, _: random.Random, middle: Middle) -> None:
        """Pause the active member for half of the fault's calls; meanwhile another member becomes active."""
        self._signal(active, signal.SIGSTOP)
        middle()
        self._signal(active, signal.SIGCONT)

    def pause_shortly(self, active: int, dice: random.Random, _: Middle) -> None:
        """Pause the active member for at most 1.2 times its lease."""
        self._signal(active, signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 1.2 * MEMBER_LEASE_S))
        self._signal(active, signal.SIGCONT)

    def pause_etcd(self, _active: int, dice: random.Random, _: Middle) -> None:
        self._etcd.signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 2 * MEMBER_LEASE_S))
        self._etcd.signal(signal.SIGCONT)

    def kill_during_pause_of_etcd(self, active: int, dice: random.Random, _: Middle) -> None:
        """Kill the active member while etcd is paused; etcd may carry out requests of the killed member afterwards."""
        self._etcd.signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, MEMBER_LEASE_S))
        self._all[active].kill()
        self._etcd.signal(signal.SIGCONT)

    def _signal(self, number: int, what: signal.Signals) -> None:
        process = self._all[number].process
        assert process
        process.send_signal(what)


Fault = Callable[[Members, int, random.Random, Middle], None]

FAULTS: Mapping[str, Fault] = {
    "kill": Members.kill,
    "pause": Members.pause,
    "short pause": Members.pause_shortly,
    "pause of etcd": Members.pause_etcd,
    "kill while etcd pauses": Members.kill_during_pause_of_etcd,
}


def _answers(member: ControllerProcess) -> bool:
    try:
        with Client(member.address, timeout_s=ANSWER_S) as client:
            client.get_status()
    except SignalboxError:
        return False
    return True


@contextmanager
def running(folder: Path, etcd: EtcdProcess) -> Iterator[Members]:
    members = Members(folder, etcd)
    try:
        members.heal()
        yield members
    finally:
        members.stop()
