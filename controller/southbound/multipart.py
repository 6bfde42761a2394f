"""Gathers the replies to multipart requests that belong together (OpenFlow 1.3.5 section 7.3.5).

Sans-IO. In: the transaction ids and kinds of the requests, parts of replies as they arrive. Out: the content of the
parts. Each part is read when it arrives, so that a long reply is not read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controller.southbound import openflow_decode as decode
from controller.southbound.framework import ofp
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
    """Replies to requests of different kinds (OFPMP_*): ``kinds`` by transaction id. ``readers``: the function that
    reads a part of each kind. ``takes``: whether to read a part of flow entries; is called
    with the bytes of all these until its end."""

    def __init__(
        self,
        kinds: Mapping[int, int],
        readers: Mapping[int, Callable[[bytes], Any]] = READERS,
        takes: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._readers = readers
        self._takes = takes
        self._flow_bytes = 0
        self._waiting = dict(kinds)
        self._answers: dict[int, list[Any]] = {kind: [] for kind in kinds.values()}
        self._bytes = 0

    def part(self, reply: Reply) -> bool:
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
