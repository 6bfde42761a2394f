"""Calls are counted in the bytes of a connection, however they are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.api_abuse import http2
from controller.api.relay.passing import CallCounter

CALLS = 5
STREAM = http2.hello() + b"".join(
    http2.headers(1 + 2 * n, "/a/B") + http2.request(1 + 2 * n, b"x" * 300 * n) for n in range(CALLS)
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_calls_are_counted_however_the_bytes_are_cut(cuts: list[int]) -> None:
    counter, places = CallCounter(), [0, *sorted(cuts), len(STREAM)]
    assert sum(counter.begun(STREAM[a:b]) for a, b in pairwise(places)) == CALLS


def test_the_rest_of_a_frame_is_known() -> None:
    counter = CallCounter()
    data = http2.hello() + http2.frame(http2.Kind.DATA, stream=1, payload=b"x" * 5000)
    counter.begun(data[:-3000])
    assert counter.left == 3000
