"""Routes that the controller publishes, even when its stream breaks off or goes silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from signalbox import route_following
from signalbox.errors import Gone, NotFound, SignalboxError
from signalbox.jobs.reports import Connected
from signalbox.jobs.subflows import PortClass
from signalbox.rounds import Rounds
from signalbox.route_following import (
    MAX_REST_S,
    REST_S,
    UNPACKED_AT_ONCE,
    Route,
    RouteFollower,
    packed_routes,
    routes_in,
    shares_of,
)
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import DEADLINE_S, until

SRC, DST = "10.0.1.1", "10.0.2.1"
SPLIT = ((0.5, 0, 2), (0.5, 2, 2))


def message(*parts: tuple[float, int, int], token: str = "") -> pb.WatchRoutesResponse:
    subflows = [
        pb.Subflow(share=share, port_value=value, port_mask=mask, switches=["leaf1", "spine1", "leaf2"])
        for share, value, mask in parts
    ]
    return with_subflows(subflows, token)


def with_subflows(subflows: list[pb.Subflow], token: str = "") -> pb.WatchRoutesResponse:
    whole = subflows[0].switches if len(subflows) == 1 else ()
    route = pb.Route(src=SRC, dst=DST, pinned=bool(subflows), switches=whole, subflows=subflows)
    return pb.WatchRoutesResponse(routes=[route], resume_token=token)


def test_routes_are_what_the_message_says_and_only_split_flows_are_divided() -> None:
    path = ("leaf1", "spine1", "leaf2")
    (whole,) = routes_in(message((1.0, 0, 0)))
    assert (whole.src, whole.dst, whole.pinned, whole.switches) == (SRC, DST, True, path)
    (split,) = routes_in(message(*SPLIT))
    assert (split.switches, [subflow.switches for subflow in split.subflows]) == ((), [path, path])
    assert [subflow.ports for subflow in split.subflows] == [PortClass(0, 2), PortClass(2, 2)]
    (hashed,) = routes_in(message())
    assert not hashed.pinned
    assert shares_of((whole,)) == shares_of((hashed,)) == {}
    assert shares_of((split,)) == {(SRC, DST): SPLIT}


def test_many_routes_come_from_another_process_in_parts_and_too_many_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other thread of the process runs while the client unpacks a part."""
    told = pb.WatchRoutesResponse(routes=[message(*SPLIT).routes[0]] * (2 * UNPACKED_AT_ONCE + 1), resume_token="next")
    packed = packed_routes(told)
    assert (len(packed.packed), packed.resume_token) == (3, "next")
    assert routes_in(packed) == routes_in(told)
    monkeypatch.setattr(route_following, "MAX_PACKED_BYTES", 1000)
    with pytest.raises(SignalboxError, match="the 101 routes from the controller exceed"):
        packed_routes(told)


def test_the_connections_of_a_subflow_have_equal_parts_of_its_share() -> None:
    def connection(port: int) -> pb.Connection:
        return pb.Connection(src=SRC, src_port=port, dst=DST, dst_port=5000)

    subflows = [
        pb.Subflow(share=0.6, connections=[connection(40_001), connection(40_004)]),
        pb.Subflow(share=0.4, connections=[connection(40_002)]),
    ]
    routes = routes_in(with_subflows(subflows))
    assert routes[0].subflows[1].connections == (Connected(SRC, 40_002, DST, 5000),)
    exact = 0xFFFF
    assert shares_of(routes) == {(SRC, DST): ((0.3, 40_001, exact), (0.3, 40_004, exact), (0.4, 40_002, exact))}


class Streams:
    """Controller with route streams.

    ``streams``: the items of each stream: messages, or an error."""

    def __init__(self, *streams: Sequence[pb.WatchRoutesResponse | Exception]) -> None:
        self.streams = list(streams)
        self.tokens: list[str] = []
        self.opened = self.closed = 0

    def connect(self) -> Streams:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def watch_routes(self, job_id: str, resume_token: str) -> Iterator[pb.WatchRoutesResponse]:
        assert job_id == "job"
        self.tokens.append(resume_token)
        for each in self.streams.pop(0) if self.streams else [SignalboxError("away")]:
            if isinstance(each, Exception):
                raise each
            yield each


class PollingStreams(Streams):
    """Streams that use the thread's processor time while they wait for messages, like those of gRPC."""

    def __init__(self, messages: Sequence[pb.WatchRoutesResponse], clock: SimpleNamespace) -> None:
        super().__init__(messages)
        self._clock = clock

    def watch_routes(self, job_id: str, resume_token: str) -> Iterator[pb.WatchRoutesResponse]:
        for each in super().watch_routes(job_id, resume_token):
            self._clock.spent_s += 10.0
            yield each


def followed(streams: Streams, on_gone: Callable[[Gone], bool] = lambda _: False) -> tuple[RouteFollower, list[int]]:
    """Return a follower that has followed all streams, and the number of subflows after each change."""
    told: list[int] = []
    follower = RouteFollower(streams.connect, "job", lambda routes: told.append(len(routes[0].subflows)), on_gone)
    while streams.streams and follower.round() is not None:
        pass
    return follower, told


def test_a_stream_that_broke_off_goes_on_where_it_was_and_the_routes_stay() -> None:
    away = SignalboxError("away")
    streams = Streams([message(*SPLIT, token="a"), message((1.0, 0, 0), token="b"), away], [away], [message(token="c")])
    follower, told = followed(streams)
    assert told == [2, 1, 0]
    assert streams.tokens == ["", "b", "b"]
    assert streams.opened == streams.closed == 3
    assert follower.routes == routes_in(message())


def test_pauses_grow_while_there_is_no_stream_and_begin_anew_after_one() -> None:
    away = SignalboxError("away")
    streams = Streams(*[[away]] * 6, [message(), away])
    follower = RouteFollower(streams.connect, "job", lambda _: None, max_pause_s=4.0)
    pauses = [follower.round() or 0.0 for _ in range(7)]
    assert pauses[0] < pauses[1] < pauses[2] <= 4.0
    assert all(3.0 <= pause <= 4.0 for pause in pauses[2:6])
    assert pauses[6] <= 1.0


def test_a_registration_that_is_over_is_followed_by_the_next_one_unless_that_is_not_wanted() -> None:
    reasons: list[Gone] = []

    def on_gone(reason: Gone) -> bool:
        reasons.append(reason)
        return reason is Gone.JOB_TAKEN_OVER

    ran_out, taken_over = (NotFound("over", reason) for reason in (Gone.LEASE_RAN_OUT, Gone.JOB_TAKEN_OVER))
    streams = Streams([message(token="a"), ran_out], [message(token="b"), taken_over], [message(token="c")])
    _, told = followed(streams, on_gone)
    assert len(told) == 2
    assert reasons == [Gone.LEASE_RAN_OUT, Gone.JOB_TAKEN_OVER]
    assert streams.tokens == ["", ""]


def test_a_callback_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    streams = Streams([message(*SPLIT), message((1.0, 0, 0))])
    told: list[tuple[Route, ...]] = []

    def fail(routes: tuple[Route, ...]) -> None:
        told.append(routes)
        raise ZeroDivisionError("a fault of the training program")

    follower = RouteFollower(streams.connect, "job", fail)
    follower.round()
    assert follower.routes == told[1]
    assert "a fault of the training program" in caplog.text


def test_a_message_that_took_long_is_followed_by_a_hundred_times_as_much_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause depends on the processor time for the message; other work and waits for messages do not count."""
    rests: list[float] = []
    monkeypatch.setattr(Rounds, "wait", lambda _, pause_s: rests.append(pause_s))
    followed(Streams([message()] * 5))
    assert len(rests) == 5, "however many messages there are"
    assert all(REST_S <= pause_s <= MAX_REST_S for pause_s in rests)
    rests.clear()
    clock = SimpleNamespace(spent_s=0.0)
    monkeypatch.setattr(time, "thread_time", lambda: clock.spent_s)

    def handle(routes: tuple[Route, ...]) -> None:
        clock.spent_s += 1.0 if routes[0].subflows else 0.002

    follower = RouteFollower(PollingStreams([message(), message(), message(*SPLIT)], clock).connect, "job", handle)
    follower.round()
    assert rests == pytest.approx([0.2, 0.2, MAX_REST_S])


class SilentStream:
    def __init__(self) -> None:
        self.closed = threading.Event()
        self.opened = 0

    def connect(self) -> SilentStream:
        self.opened += 1
        self.closed.clear()
        return self

    def watch_routes(self, *_: str) -> Iterator[pb.WatchRoutesResponse]:
        yield message()
        assert self.closed.wait(DEADLINE_S)
        raise ValueError("Cannot invoke RPC on closed channel!")

    def close(self) -> None:
        self.closed.set()


def test_a_silent_stream_is_opened_again_when_asked_and_ends_with_the_follower() -> None:
    stream = SilentStream()
    before = threading.active_count()
    with RouteFollower(stream.connect, "job", lambda _: None, max_pause_s=0.01) as follower:
        until(lambda: bool(follower.routes))
        follower.reopen()
        until(lambda: stream.opened == 2)
    until(lambda: threading.active_count() == before)


def test_an_end_just_before_a_round_is_not_missed() -> None:
    """A stop that arrives as a round starts ends the thread after this round, without the usual pause."""
    made: list[str] = []

    def one() -> float:
        made.append("round")
        return DEADLINE_S

    rounds = Rounds("rounds", one, lambda: made.append("last"))

    class Due(threading.Event):
        def clear(self) -> None:
            rounds.leave()
            super().clear()

    rounds._due = Due()
    rounds.start()
    rounds.join(DEADLINE_S / 2)
    assert made == ["round", "last"]
