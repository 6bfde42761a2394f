"""Multipart requests to switches, and their replies (OpenFlow 1.3.5 section 7.3.5).

Sans-IO. In: requests, parts of replies as they arrive, errors. Out: the requests through ``send``, and the content of
the parts. Each part is read when it arrives, so that a long reply is not read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controller.fabric.topology import Dpid
from controller.southbound import openflow_decode as decode
from controller.southbound.framework import ofp
from controller.southbound.openflow_encode import Send
from controller.southbound.openflow_framing import Malformed

MAX_BYTES = 1 << 24
"""Of all parts of one reply: more than a hundred thousand flow entries."""

PART_BYTES = 256
"""What a part counts for at least. A switch that has much to say fills its parts."""

READERS: Mapping[int, Callable[[bytes], Any]] = {
    ofp.OFPMP_FLOW: decode.flow_stats,
    ofp.OFPMP_AGGREGATE: decode.flow_count,
    ofp.OFPMP_GROUP_DESC: decode.group_descs,
    ofp.OFPMP_METER_CONFIG: decode.meter_configs,
    ofp.OFPMP_METER: decode.meter_stats,
    ofp.OFPMP_PORT_STATS: decode.port_stats,
    ofp.OFPMP_TABLE: decode.table_stats,
    ofp.OFPMP_TABLE_FEATURES: decode.table_features,
    ofp.OFPMP_GROUP_FEATURES: decode.group_features,
    ofp.OFPMP_METER_FEATURES: decode.meter_features,
}


_HEADER = struct.Struct("!BBHIHH4x")


class Reply(NamedTuple):
    """One part of a multipart reply. ``kind``: OFPMP_*. ``more``: another part follows."""

    xid: int
    kind: int
    more: bool
    body: bytes


def multipart_reply(message: bytes) -> Reply:
    """A whole message, with its header. Raises ``Malformed``."""
    if len(message) < _HEADER.size:
        raise Malformed(f"a multipart reply of {len(message)} bytes")
    _, _, _, xid, kind, flags = _HEADER.unpack_from(message)
    return Reply(xid, kind, bool(flags & ofp.OFPMPF_REPLY_MORE), message[_HEADER.size :])


class Gathered:
    """Replies to requests of different kinds (OFPMP_*) that were sent to a switch together.

    ``kinds``: by transaction id. ``at``: when the last complete reply came in, or when the requests were sent.
    ``until``: when they are given up. Both are monotonic seconds. ``readers``: the function that reads a part of each
    kind. ``takes``: whether to read a part of flow entries; is called with the bytes of all these until its end."""

    def __init__(
        self,
        kinds: Mapping[int, int],
        at: float,
        until: float,
        readers: Mapping[int, Callable[[bytes], Any]],
        takes: Callable[[int], bool],
    ) -> None:
        self.at, self.until = at, until
        self._readers = readers
        self._takes = takes
        self._flow_bytes = 0
        self._waiting = dict(kinds)
        self._answers: dict[int, list[Any]] = {kind: [] for kind in kinds.values()}
        self._bytes = 0

    def part(self, reply: Reply, now: float) -> bool:
        """Reads one part; False when no such request is open. Raises ``Malformed``."""
        kind = self._waiting.get(reply.xid)
        if kind is None:
            return False
        if kind != reply.kind:
            raise Malformed(f"a multipart reply of kind {reply.kind} to a request of kind {kind}")
        self._bytes += max(PART_BYTES, len(reply.body))
        if self._bytes > MAX_BYTES:
            raise Malformed("a multipart reply that does not end")
        if kind == ofp.OFPMP_FLOW:
            self._flow_bytes += len(reply.body)
        if kind != ofp.OFPMP_FLOW or self._takes(self._flow_bytes):
            self._answers[kind].append(self._readers[kind](reply.body))
        if not reply.more:
            del self._waiting[reply.xid]
            self.at = now
        return True

    def refused(self, xid: int) -> int | None:
        """The switch answered with an error: that reply stays empty. Returns the kind of the request, None when no such
        request is open."""
        kind = self._waiting.pop(xid, None)
        if kind is not None:
            del self._answers[kind]
        return kind

    @property
    def complete(self) -> bool:
        return not self._waiting

    def answered(self, kind: int) -> bool:
        """Whether the reply is complete and no refusal; it may be empty."""
        return kind in self._answers and kind not in self._waiting.values()

    def of(self, kind: int) -> list[Any]:
        """The content of each part of a reply; empty while parts are missing, or when it was refused or not asked
        for."""
        return self._answers[kind] if self.answered(kind) else []


class Requests:
    """The requests to each switch that are open. A subclass decides when to ask for what, and reports the replies.
    ``now`` is monotonic seconds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._asked: dict[Dpid, Gathered] = {}

    def ask(
        self,
        dpid: Dpid,
        requests: Mapping[int, bytes],
        now: float,
        until: float,
        takes: Callable[[int], bool] = lambda _: True,
        readers: Mapping[int, Callable[[bytes], Any]] = READERS,
    ) -> None:
        """Send requests, by kind, in place of those that are open. The rest: see ``Gathered``."""
        kinds = dict(zip(self._send(dpid, *requests.values()), requests, strict=True))
        self._asked[dpid] = Gathered(kinds, now, until, readers, takes)

    def part(self, dpid: Dpid, reply: Reply, now: float) -> bool:
        """Take one part of a reply. Return False when it belongs to no open request. Raises ``Malformed``."""
        asked = self._asked.get(dpid)
        if asked is None or not asked.part(reply, now):
            return False
        if asked.complete:
            self._finish(dpid, asked)
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """Note that the switch refuses a request. Return False when it belongs to none that is open."""
        asked = self._asked.get(dpid)
        refused = asked.refused(xid) if asked else None
        if asked is None or refused is None:
            return False
        self._refused(dpid, refused)
        if asked.complete:
            self._finish(dpid, asked)
        return True

    def switch_left(self, dpid: Dpid) -> None:
        self._asked.pop(dpid, None)

    def _refused(self, dpid: Dpid, kind: int) -> None:
        """The switch refuses requests of this kind."""

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        """All requests are answered or refused; they are still open."""
        raise NotImplementedError
