"""Channel that sends calls to the active one of several controllers.

``ActiveChannel`` probes the health service of all controllers at the same time, and uses the first controller that
answers. A standby does not answer: it listens on no port, or HAProxy refuses the probe. When the controller in use
stops answering, unanswered calls are repeated at the next one that answers. Streams end with an error, and the users of
the streams reopen them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import grpc

from signalbox.bounded_channel import MARGIN_S, BoundedChannel, Overdue
from signalbox.client_errors import is_away, is_unsaved, why_away
from signalbox.errors import Unreachable
from signalbox.words import MAY_BE_REPLACED

HEALTH = "/grpc.health.v1.Health/Check"
"""gRPC's method for health checks. Request and answer of the method are sent as bytes."""
SERVING = b"\x08\x01"
"""Answer of a controller that accepts calls: a serialized ``HealthCheckResponse`` with the status SERVING."""

PROBE_S = 2.0
"""Time-out of a probe in seconds."""
SILENT_S = 1.0
"""Seconds that a call waits for its answer before the controller is probed; each further wait is twice as long."""
STREAM_PROBE_S = 30.0
"""Seconds between probes of a controller that sends a stream.

The probes are needed because a stream does not end by itself when the controller's machine fails."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 0.5
"""First and longest pause, in seconds, between two probes of an address where no controller answers."""

OPTIONS: list[tuple[str, object]] = [
    ("grpc.initial_reconnect_backoff_ms", round(1000 * FIRST_PAUSE_S)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * MAX_PAUSE_S)),
]
"""gRPC's options of each channel: the first and the longest pause between two attempts to connect.

The values are the same as for the pauses between two probes."""


class ActiveChannel:
    """Replacement for a gRPC channel, with the methods that clients of the API use. Any number of threads may use it.

    - ``addresses``: ``HOST:PORT`` of each controller
    - ``open_channel``: function that opens a gRPC channel to an address
    - ``find_s``: time in seconds, from the start of a call or stream, for finding an active controller. A call that
      fails because its controller is no longer active is begun again only within this time. The time-out of the call
      limits this time too."""

    def __init__(self, addresses: Sequence[str], open_channel: Callable[[str], Any], find_s: float) -> None:
        self._addresses = addresses
        self._open = open_channel
        self._find_s = find_s
        self._used: BoundedChannel | None = None
        self._left = ""  # address of the controller that was used before
        self._why = dict.fromkeys(addresses, "there is no answer")
        self._finding = Lock()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if used := self._used:
            used.close()

    def unary_unary(self, *method: Any, **more: Any) -> Callable[..., Any]:
        """Return a function that makes a call, and begins it again when its controller is no longer active.

        The function begins the call again for at most ``find_s`` seconds. In two more cases, the function looks for
        another active controller, and makes the call there:

        - The controller could not save the change.
        - The answer is marked ``MAY_BE_REPLACED``: another controller may have become the active one.

        In these two cases, the function makes the call at each controller only once. If no other controller is active,
        the function returns the answer that it has, or raises the error.

        The function raises ``Unreachable`` when no controller answers in time, and ``RpcError`` as gRPC does."""

        def call(request: Any, timeout: float, metadata: Any = None) -> Any:
            now, unsure = time.monotonic(), set[str]()
            until, find_until = now + timeout, now + min(timeout, self._find_s)
            while True:
                used, answer = self._begin(
                    lambda channel: channel.unary_unary(*method, **more).future(
                        request, timeout=until - time.monotonic(), metadata=metadata
                    ),
                    find_until,
                )
                try:
                    found = self._await_answer(used, answer, until)
                    if all(key != MAY_BE_REPLACED for key, _ in answer.trailing_metadata() or ()):
                        return found
                    unsure.add(used.address)
                    if not self._use_another(used, unsure):
                        return found
                except grpc.RpcError as error:
                    if is_unsaved(error):
                        unsure.add(used.address)
                        if not self._use_another(used, unsure):
                            raise
                    elif not self._stop_using_if_inactive(used, error) or time.monotonic() >= find_until:
                        raise

        return call

    def unary_stream(self, *method: Any, **more: Any) -> Callable[..., _Stream]:
        """Return a function that opens a stream. The function raises ``Unreachable`` when no controller answers."""

        def call(request: Any, metadata: Any = None) -> _Stream:
            until = time.monotonic() + self._find_s
            used, stream = self._begin(
                lambda channel: channel.unary_stream(*method, **more)(request, metadata=metadata), until
            )
            return _Stream(
                stream, partial(self._keep_probing, used), partial(self._stop_using_if_inactive, used), used.address
            )

        return call

    # ---- the controller in use

    def _begin(self, call: Callable[[Any], Any], until: float) -> tuple[BoundedChannel, Any]:
        while True:
            used = self._active(until)
            try:
                return used, call(used)
            except ValueError:  # another thread has closed the channel
                if self._closed or used is self._used:
                    raise

    def _await_answer(self, used: BoundedChannel, answer: Any, until: float) -> Any:
        """Return the answer of a call, and probe the controller while there is no answer.

        If the controller does not answer a probe either, its channel is closed, and so the call fails."""
        wait_s = SILENT_S
        try:
            while True:
                left_s = until - time.monotonic()
                try:
                    return answer.result(timeout=max(0.0, min(wait_s, left_s + MARGIN_S)))
                except grpc.FutureTimeoutError:
                    if wait_s > left_s:
                        raise Overdue from None
                    self._probe(used, min(PROBE_S, left_s - wait_s))
                    wait_s *= 2
        finally:
            answer.cancel()

    def _keep_probing(self, used: BoundedChannel, over: Event) -> None:
        while not over.wait(STREAM_PROBE_S):
            self._probe(used, PROBE_S)

    def _probe(self, used: BoundedChannel, within_s: float) -> None:
        """Probe the controller, and stop using it if it does not answer within ``within_s`` seconds."""
        try:
            used.unary_unary(HEALTH)(b"", timeout=within_s)
        except grpc.RpcError as error:
            if is_away(error) or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._leave(used)
        except ValueError:
            pass  # another thread has stopped using it

    def _stop_using_if_inactive(self, used: BoundedChannel, error: Any) -> bool:
        """Return whether a call or stream failed because its controller is no longer active; if so, stop using it.

        ``error``: the error of the call or stream. The result is also True for a cancelled call: a stopping controller
        cancels its calls, and so does a thread that closes the channel."""
        if self._closed or not (is_away(error) or error.code() is grpc.StatusCode.CANCELLED):
            return False
        if is_away(error):
            self._why[used.address] = why_away(error, used.address)
        self._leave(used)
        return True

    def _use_another(self, used: BoundedChannel, but: set[str]) -> bool:
        """Look for another active controller, and use it if one answers; return whether ``used`` is no longer in use.

        ``but``: addresses that are not probed. The search is needed when ``used`` could not save a change, perhaps
        because ``used`` is cut off from etcd, and when ``used`` has answered that another controller may be the active
        one."""
        others = [address for address in self._addresses if address not in but]
        with self._finding:
            if others and self._used is used:
                with suppress(Unreachable):
                    found = self._find(others, time.monotonic() + PROBE_S, once=True)
                    self._leave(used)
                    self._use(found)
            return self._used is not used

    def _leave(self, used: BoundedChannel) -> None:
        if self._used is used:
            self._used, self._left = None, used.address
        used.close()

    # ---- finding the active controller

    def _active(self, until: float) -> BoundedChannel:
        """Return the controller in use; if there is none, find one.

        Raises ``Unreachable`` when no controller has answered by ``until``, a monotonic time in seconds."""
        if used := self._used:
            return used
        if not self._finding.acquire(timeout=max(0.0, until - time.monotonic())):
            raise self._unreachable()
        try:
            return self._used or self._use(self._find(self._addresses, until))
        finally:
            self._finding.release()

    def _use(self, found: BoundedChannel) -> BoundedChannel:
        self._used = found
        if self._closed:
            found.close()
        return found

    def _find(self, addresses: Sequence[str], until: float, once: bool = False) -> BoundedChannel:
        """Probe the addresses until a controller answers, and return this controller.

        With ``once`` each address is probed only once. The address that was used last is probed after the other
        addresses: HAProxy may still answer there for a controller that has failed. Raises ``Unreachable`` when no
        controller has answered by ``until``, a monotonic time in seconds."""
        channels = {address: BoundedChannel(address, self._open(address)) for address in addresses}
        due = dict.fromkeys(addresses, time.monotonic())
        pauses = dict.fromkeys(addresses, FIRST_PAUSE_S)
        if self._left in due:
            due[self._left] += MAX_PAUSE_S
        left = len(due) if once else math.inf
        answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        found = ""
        try:
            while not found:
                now = time.monotonic()
                if now >= until or self._closed or not left:
                    raise self._unreachable()
                for address in [address for address, at in due.items() if at <= now]:
                    del due[address]
                    probe = channels[address].unary_unary(HEALTH).future(b"", timeout=min(PROBE_S, until - now))
                    probe.add_done_callback(lambda probe, address=address: answers.put((address, probe)))
                try:
                    address, probe = answers.get(timeout=min([until, *due.values()]) - now)
                except Empty:
                    continue
                if why := _why_not(probe, address):
                    self._why[address] = why
                    left -= 1
                    if not once:
                        due[address] = time.monotonic() + pauses[address]
                        pauses[address] = min(2 * pauses[address], MAX_PAUSE_S)
                else:
                    found = address
        finally:
            for address, channel in channels.items():
                if address != found:
                    channel.close()
        return channels[found]

    def _unreachable(self) -> Unreachable:
        found = "; ".join(f"{address}: {why}" for address, why in self._why.items())
        return Unreachable(f"no active controller at any of the {len(self._why)} addresses: {found}")


class _Stream:
    """Messages of one stream.

    - ``keep_probing``: function that probes the controller until the given event is set; runs in a thread beside the
      stream
    - ``is_left``: function that returns whether the stream ended with this error because its controller is no longer
      active"""

    def __init__(
        self, messages: Any, keep_probing: Callable[[Event], None], is_left: Callable[[Any], bool], address: str
    ) -> None:
        self._messages = messages
        self._keep_probing = keep_probing
        self._stop_using_if_inactive = is_left
        self._address = address

    def __iter__(self) -> Iterator[Any]:
        over = Event()
        Thread(target=self._keep_probing, args=(over,), name="signalbox-probes", daemon=True).start()
        try:
            yield from self._messages
        except grpc.RpcError as error:
            if not self._stop_using_if_inactive(error):
                raise
            raise Unreachable(f"the controller at {self._address} no longer answers") from None
        finally:
            over.set()

    def cancel(self) -> None:
        self._messages.cancel()


def _why_not(probe: Any, address: str) -> str:
    """Return why a probe found no active controller at the address; empty if it found one."""
    try:
        return "" if probe.result() == SERVING else "the controller there is not ready for calls"
    except grpc.RpcError as error:
        return why_away(error, address)
