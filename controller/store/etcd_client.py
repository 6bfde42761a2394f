"""Client of etcd, version 3, with TLS and a login if configured.

In: requests. Out: etcd's responses, or ``EtcdError``. Calls try one endpoint after the other. Calls skip an endpoint
that knows no leader of etcd, because such an endpoint is cut off from the others. The messages are in
``etcd_v3/etcd.proto``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from controller.store.etcd_v3 import etcd_pb2 as pb
from signalbox.bounded_channel import BoundedChannel

Reply = TypeVar("Reply", bound=Message)

CALL_S = 2.0
"""Default time limit in seconds of a call at one endpoint."""
START_S = 10.0
"""Time limit in seconds of a call while a controller starts. The limit is long, because a busy disk may delay etcd, and
a call that fails at the start ends the controller."""
ELSEWHERE_S = 1.0
"""Time limit in seconds of a call at one endpoint, while the call has not been tried at all other endpoints yet."""
BEAT_S = 0.5
"""Seconds between two progress requests over a watch. etcd answers each at once, which shows that the endpoint
works."""
SILENT_S = 1.5
"""Seconds without an answer after which a watch ends, so that the next watch begins at another endpoint."""
LOGIN_S = 1.0
"""Smallest time limit in seconds of a login, for which etcd computes a slow hash of the password."""
OLD_S = 60.0
"""Seconds after which the connections of a replaced access are closed. No call takes longer."""
MOST_BYTES = (1 << 31) - 1
"""Largest size of an answer in bytes."""
PAGE = 500
"""Largest number of keys in one response."""
KEEPALIVE_S = 10
"""Seconds between pings of an idle connection. etcd ends connections that ping more often than every 5 s."""

_LEADER_NEEDED = ("hasleader", "true")
_OPTIONS = (
    ("grpc.keepalive_time_ms", 1000 * KEEPALIVE_S),
    ("grpc.keepalive_timeout_ms", int(1000 * CALL_S)),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", int(1000 * CALL_S)),  # also the time that a connection may take
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)
_ELSEWHERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Status codes after which the call is tried at another endpoint."""
_WRONG_CERTIFICATES = {
    "CERTIFICATE_VERIFY_FAILED": "etcd's certificate must be signed by etcd.ca_certificates and name this address",
    "TSI_DATA_CORRUPTED": "etcd must accept etcd.certificate",
}
_REMEDIES = {
    "database space exceeded": "compact and defragment it, then end its alarm with etcdctl alarm disarm",
    "authentication failed": "correct etcd.user or etcd.password_file",
    "permission denied": "give the user access to all keys that begin with etcd.prefix, or set etcd.user",
    "user name is empty": "set etcd.user and etcd.password_file",
    **_WRONG_CERTIFICATES,
}
"""Advice about an error, by a part of the error's text."""
_LOGIN_ENDED = ("invalid auth token", "revision of auth store is old")
"""Errors after which the client logs in again. The second one occurs after each change of users or roles."""


_GRPC_PREFIX = re.compile(r"^failed to connect to all addresses; last error: [A-Z]+: \S+: ")
"""Beginning of gRPC's text about a failed connection, which is removed, because ``EtcdError`` names the endpoint."""


class EtcdError(Exception):
    """etcd has refused a call, or no endpoint has answered. ``code``: status code of the last answer, if any.

    If no endpoint has answered, etcd may have made the change nevertheless."""

    def __init__(self, message: str, code: grpc.StatusCode | None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def no_answer(self) -> bool:
        return self.code in _ELSEWHERE

    @property
    def is_away(self) -> bool:
        """Whether etcd does not answer and may do so later, without a change of the configuration."""
        return self.no_answer and not any(part in str(self) for part in _WRONG_CERTIFICATES)

    @property
    def is_late(self) -> bool:
        """Whether an endpoint could be reached, and did not answer in time."""
        return self.code is grpc.StatusCode.DEADLINE_EXCEEDED


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Access to etcd.

    ``endpoints``: addresses as HOST:PORT. The contents of the files for TLS are in PEM format."""

    endpoints: tuple[str, ...]
    ca_certificates: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)


class Etcd:
    """Calls to etcd, for any thread. No connection is made before the first call.

    ``within_s`` of a method: time limit in seconds of the call at each endpoint. ``most_bytes``: largest allowed size
    of an answer."""

    def __init__(self, access: EtcdAccess, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._connections = _Connections(access, most_bytes)
        self._ending: list[threading.Timer] = []
        """Timers that close the connections of earlier accesses."""

    @property
    def access(self) -> EtcdAccess:
        return self._connections.access

    def use(self, access: EtcdAccess) -> None:
        """Use this access for all later calls. Calls under way must end within ``OLD_S``."""
        if access == self.access:
            return
        before, self._connections = self._connections, _Connections(access, self._most_bytes)
        ending = threading.Timer(OLD_S, before.close)
        ending.daemon = True
        ending.start()
        self._ending = [*filter(threading.Thread.is_alive, self._ending), ending]

    def close(self) -> None:
        self._connections.close()
        for ending in self._ending:
            ending.cancel()
            ending.function()

    # ---- keys

    def keys(self, prefix: bytes, within_s: float = CALL_S, without: bytes = b"") -> tuple[list[pb.KeyValue], int]:
        """Return all keys that begin with ``prefix``, as they were at the returned revision. Raises ``EtcdError``.

        ``without``: keys that begin with this longer prefix are not read."""
        found: list[pb.KeyValue] = []
        end, revision = _end_of_prefix(prefix), 0
        for start, stop in [(prefix, without), (_end_of_prefix(without), end)] if without else [(prefix, end)]:
            while True:
                request = pb.RangeRequest(key=start, range_end=stop, limit=PAGE, revision=revision)
                reply = self._call("KV/Range", request, pb.RangeResponse, within_s)
                found += reply.kvs
                revision = revision or reply.header.revision
                if not reply.more:
                    break
                start = reply.kvs[-1].key + b"\0"
        return found, revision

    def read(self, names: Sequence[bytes], most: int, within_s: float) -> tuple[list[Sequence[pb.KeyValue]], int]:
        """Return what etcd has for each of ``names``, and the revision at which it was read. Raises ``EtcdError``.

        A name that ends with a slash stands for the first ``most`` keys that begin with the name. Any other name is a
        single key."""
        ranges = [pb.RangeRequest(key=name, range_end=_range(name), limit=most) for name in names]
        reply = self.transaction([], [pb.RequestOp(request_range=each) for each in ranges], within_s)
        return [each.response_range.kvs for each in reply.responses], reply.header.revision

    def get(self, key: bytes, within_s: float = CALL_S) -> pb.KeyValue | None:
        """Return a key, or None. Raises ``EtcdError``."""
        reply = self._call("KV/Range", pb.RangeRequest(key=key), pb.RangeResponse, within_s)
        return reply.kvs[0] if reply.kvs else None

    def transaction(
        self, compare: Sequence[pb.Compare], operations: Sequence[pb.RequestOp], within_s: float = CALL_S
    ) -> pb.TxnResponse:
        """Carry out the operations if all comparisons are true.

        The field ``succeeded`` of the response says whether all comparisons were true. A slow endpoint may carry out
        the operations once more at any later time, even after another endpoint has answered. Raises ``EtcdError``."""
        return self._call("KV/Txn", pb.TxnRequest(compare=compare, success=operations), pb.TxnResponse, within_s)

    def wait_for_change(self, keys: Sequence[bytes], after: int, seconds: float) -> None:
        """Wait until one of the keys changes after the revision ``after``, until the time is over, or until an error.

        ``keys``: keys, and prefixes of keys that end with a slash."""
        try:
            for reply in self._connections.watch([_watch_of(key, after) for key in keys], seconds):
                if reply.events or reply.canceled:
                    return
        except EtcdError:
            time.sleep(min(seconds, 0.1))

    def changes(self, prefix: bytes, after: int, seconds: float) -> Iterator[tuple[Sequence[pb.Event], int]]:
        """Yield the changes, after the revision ``after``, of keys that begin with ``prefix``.

        An item has events of etcd, and the last revision that these events cover. The generator ends after ``seconds``.
        Raises ``EtcdError``, also when the endpoint is silent or ends the watch."""
        for reply in self._connections.watch([_watch_of(prefix, after)], seconds):
            if reply.canceled:
                raise EtcdError(f"etcd has ended the watch: {reply.cancel_reason}", None)
            if reply.events:
                yield reply.events, reply.header.revision

    # ---- leases

    def grant(self, seconds: int, within_s: float = CALL_S) -> int:
        """Return a new lease, which ends ``seconds`` after its last renewal. Raises ``EtcdError``."""
        return self._call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=seconds), pb.LeaseGrantResponse, within_s).ID

    def renew(self, lease: int, within_s: float = CALL_S) -> bool:
        """Renew a lease, and return False if it has ended. Raises ``EtcdError``."""
        request = pb.LeaseKeepAliveRequest(ID=lease)
        # The method has streams, and a stream of one request and one answer is the same in HTTP/2 as no stream.
        return self._call("Lease/LeaseKeepAlive", request, pb.LeaseKeepAliveResponse, within_s).TTL > 0

    def revoke(self, lease: int, within_s: float = CALL_S) -> None:
        """End a lease, unless it has ended already, and delete its keys. Raises ``EtcdError``."""
        try:
            self._call("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse, within_s)
        except EtcdError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise

    def _call(self, method: str, request: Message, reply: type[Reply], within_s: float) -> Reply:
        return self._connections.call(method, request, reply, within_s)


class _Connections:
    """Connections to all endpoints with one access, and the token of the login."""

    def __init__(self, access: EtcdAccess, most_bytes: int) -> None:
        self.access = access
        self._channels = [_channel(endpoint, access, most_bytes) for endpoint in access.endpoints]
        self._lock = threading.Lock()
        self._first = 0
        """Index of the endpoint at which the next call begins: the endpoint that answered last, or after a failure the
        next one."""
        self._token = ""

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def call(self, method: str, request: Message, reply: type[Reply], within_s: float) -> Reply:
        """Call the endpoints in turn, beginning at ``_first``, and return the answer.

        Raises the ``EtcdError`` of the last endpoint, or of an endpoint that contradicts the configuration."""
        first, last = self._first, len(self._channels) - 1
        errors: list[EtcdError] = []
        for number in range(last + 1):
            place = (first + number) % len(self._channels)
            here_s = within_s if number == last else min(within_s, ELSEWHERE_S)
            try:
                answer = self._call_endpoint(self._channels[place], method, request, reply, here_s)
            except grpc.RpcError as found:
                errors.append(_error(found, self.access.endpoints[place]))
                if not errors[-1].no_answer:
                    raise errors[-1] from None
                self._skip(place)
            except ValueError:
                raise EtcdError("another thread has closed the connections to etcd", None) from None
            else:
                if answer is not None:
                    self._first = place
                    return answer
                what = f"etcd at {self.access.endpoints[place]}: the stream ended without an answer"
                errors.append(EtcdError(what, grpc.StatusCode.UNAVAILABLE))
        raise next((error for error in errors if not error.is_away), errors[-1])

    def _skip(self, place: int) -> None:
        if self._first == place:
            self._first = (place + 1) % len(self._channels)

    def _call_endpoint(
        self, channel: BoundedChannel, method: str, request: Message, reply: type[Reply], within_s: float
    ) -> Reply | None:
        """Call one endpoint; log in again if the login has ended.

        Raises ``grpc.RpcError``. Returns None when a stream ends without an answer."""
        once = channel.unary_unary(f"/etcdserverpb.{method}", type(request).SerializeToString, reply.FromString)
        for logged_in in (False, True):
            metadata = self._metadata(channel, within_s)
            try:
                answer: Reply | None = once(request, timeout=within_s, metadata=metadata)
                return answer
            except grpc.RpcError as error:
                why = str(error.details())
                if logged_in or not self.access.user or not any(text in why for text in _LOGIN_ENDED):
                    raise
                self._token = ""
        raise AssertionError

    def watch(self, created: Sequence[pb.WatchRequest], seconds: float) -> Iterator[pb.WatchResponse]:
        """Yield the responses of the endpoint ``_first``, until the time is over. Raises ``EtcdError``.

        A thread waits for gRPC, which may not end a call in time (``signalbox.bounded_channel``)."""
        place, until = self._first, time.monotonic() + seconds
        channel, endpoint = self._channels[place], self.access.endpoints[place]
        stopped = threading.Event()
        arrived: SimpleQueue[pb.WatchResponse | grpc.RpcError | None] = SimpleQueue()
        replies: Any = None

        def requests() -> Iterator[pb.WatchRequest]:
            yield from created
            while not stopped.wait(BEAT_S):  # the stream ends when its requests end
                yield pb.WatchRequest(progress_request=pb.WatchProgressRequest())

        def read() -> None:
            try:
                for reply in replies:
                    arrived.put(reply)
                arrived.put(None)
            except grpc.RpcError as error:
                arrived.put(error)

        call = channel.stream_stream(
            "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
        )
        try:
            replies = call(requests(), timeout=seconds, metadata=self._metadata(channel, CALL_S))
            threading.Thread(target=read, name="etcd-watch", daemon=True).start()
            while (left_s := until - time.monotonic()) > 0 and (found := arrived.get(timeout=min(SILENT_S, left_s))):
                if isinstance(found, grpc.RpcError):
                    raise found
                yield found
        except Empty:
            if time.monotonic() < until:
                self._skip(place)
                what = f"etcd at {endpoint}: the watch has no answers"
                raise EtcdError(what, grpc.StatusCode.DEADLINE_EXCEEDED) from None
        except grpc.RpcError as found:
            if found.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._skip(place)
                raise _error(found, endpoint) from None
        finally:
            stopped.set()
            if replies:
                replies.cancel()

    def _metadata(self, channel: BoundedChannel, within_s: float) -> tuple[tuple[str, str], ...]:
        if not self.access.user:
            return (_LEADER_NEEDED,)
        with self._lock:
            if not self._token:
                login = channel.unary_unary(
                    "/etcdserverpb.Auth/Authenticate",
                    pb.AuthenticateRequest.SerializeToString,
                    pb.AuthenticateResponse.FromString,
                )
                request = pb.AuthenticateRequest(name=self.access.user, password=self.access.password)
                self._token = login(request, timeout=max(within_s, LOGIN_S)).token
            return (_LEADER_NEEDED, ("token", self._token))


def _channel(endpoint: str, access: EtcdAccess, most_bytes: int) -> BoundedChannel:
    options = (*_OPTIONS, ("grpc.max_receive_message_length", most_bytes))
    if access.ca_certificates is None:
        return BoundedChannel(endpoint, grpc.insecure_channel(endpoint, options=options))
    credentials = grpc.ssl_channel_credentials(access.ca_certificates, access.private_key, access.certificate)
    return BoundedChannel(endpoint, grpc.secure_channel(endpoint, credentials, options=options))


def _error(error: grpc.RpcError, endpoint: str) -> EtcdError:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNKNOWN and "deadline exceeded" in details:
        code = grpc.StatusCode.DEADLINE_EXCEEDED  # of a login, from an endpoint that reaches no majority of etcd
    what = _GRPC_PREFIX.sub("", details).removeprefix("etcdserver: ") or code.name
    remedies = [f"; {remedy}" for part, remedy in _REMEDIES.items() if part in details]
    return EtcdError(f"etcd at {endpoint}: {what}{''.join(remedies)}", code)


def _watch_of(key: bytes, after: int) -> pb.WatchRequest:
    """Return the request that watches a key from the revision after ``after`` on.

    If ``key`` ends with a slash, the request watches all keys that begin with it."""
    create = pb.WatchCreateRequest(key=key, range_end=_range(key), start_revision=after + 1)
    return pb.WatchRequest(create_request=create)


def _range(name: bytes) -> bytes:
    """Return the ``range_end`` of a request for ``name``.

    If ``name`` ends with a slash, the range has all keys that begin with it. For any other ``name`` the result is
    empty, which means this single key."""
    return _end_of_prefix(name) if name.endswith(b"/") else b""


def _end_of_prefix(prefix: bytes) -> bytes:
    """Return the smallest key after all keys that begin with ``prefix``, whose last byte must be less than 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
