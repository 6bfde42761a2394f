"""Multipart requests that belong together: gathers the parts of their replies (OpenFlow 1.3.5 section 7.3.5).

Sans-IO. In: the numbers and kinds of the requests that were sent, parts as they arrive. Out: what the parts say, read
as each comes in, so that no reply is ever read all at once. Parts that nobody waits for are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.southbound import openflow_decode as decode
from controller.southbound.framework import ofp
from controller.southbound.malformed import Malformed

MAX_BYTES = 1 << 24
"""Of all parts of one reply: more than a hundred thousand flow entries."""

READERS: Mapping[int, Callable[[bytes], Any]] = {
    ofp.OFPMP_FLOW: decode.flow_stats,
    ofp.OFPMP_AGGREGATE: decode.flow_count,
    ofp.OFPMP_GROUP_DESC: decode.group_descs,
    ofp.OFPMP_METER_CONFIG: decode.meter_configs,
    ofp.OFPMP_METER: decode.meter_stats,
    ofp.OFPMP_PORT_STATS: decode.port_stats,
}


class Gathered:
    """Replies to the requests of one batch, by their kind (OFPMP_*), which no two of a batch share. ``readers``: what
    makes sense of a part of each kind."""

    def __init__(self, kinds: Mapping[int, int], readers: Mapping[int, Callable[[bytes], Any]] = READERS) -> None:
        self._readers = readers
        self._waiting = dict(kinds)
        self._answers: dict[int, list[Any]] = {kind: [] for kind in kinds.values()}
        self._bytes = 0

    def part(self, reply: decode.Reply) -> bool:
        """Reads one part; False when the batch has no such request open. Raises ``Malformed``."""
        kind = self._waiting.get(reply.xid)
        if kind is None:
            return False
        if kind != reply.kind:
            raise Malformed(f"a multipart reply of kind {reply.kind} to a request of kind {kind}")
        self._bytes += len(reply.body)
        if self._bytes > MAX_BYTES:
            raise Malformed("a multipart reply that does not end")
        self._answers[kind].append(self._readers[kind](reply.body))
        if not reply.more:
            del self._waiting[reply.xid]
        return True

    def refused(self, xid: int) -> int | None:
        """The switch answered with an error: that reply stays empty. The kind of the request; None when the batch has
        no such request open."""
        kind = self._waiting.pop(xid, None)
        if kind is not None:
            self._answers[kind].clear()
        return kind

    @property
    def complete(self) -> bool:
        return not self._waiting

    def of(self, kind: int) -> list[Any]:
        """What each part of a whole reply says; empty while something is missing, or when it was refused or never
        asked for."""
        return [] if kind in self._waiting.values() else self._answers.get(kind, [])
