"""Multipart requests to switches, and their replies (OpenFlow 1.3.5 section 7.3.5). Sans-IO.

In: requests, parts of replies as they arrive, errors. Out: the requests through ``send``, and the decoded parts. Each
part is decoded when it arrives, so that a long reply does not block other work.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controller.fabric.topology import Dpid
from controller.southbound import openflow_decode as decode
from controller.southbound.framework import ofp
from controller.southbound.openflow_encode import Send
from controller.southbound.openflow_framing import Malformed

MAX_BYTES = 1 << 24
"""Largest number of bytes in all parts of a reply together: more than a hundred thousand flow entries."""

PART_BYTES = 256
"""Smallest number of bytes that a part of a reply counts as, even if the part is smaller.

Without this minimum, a reply in many small parts would seem short. Honest switches fill the parts of long replies."""

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

Takes = Callable[[int, int], bool]

_HEADER = struct.Struct("!BBHIHH4x")


class Reply(NamedTuple):
    """Part of a multipart reply. ``kind``: OFPMP_*. ``more``: whether another part follows."""

    xid: int
    kind: int
    more: bool
    body: bytes


def multipart_reply(message: bytes) -> Reply:
    """Return the part of a reply that a message contains; the message begins with its header. Raises ``Malformed``."""
    if len(message) < _HEADER.size:
        raise Malformed(f"a multipart reply has {len(message)} bytes, fewer than {_HEADER.size}")
    _, _, _, xid, kind, flags = _HEADER.unpack_from(message)
    return Reply(xid, kind, bool(flags & ofp.OFPMPF_REPLY_MORE), message[_HEADER.size :])


class Gathered:
    """Replies to requests of different kinds (OFPMP_*) that were sent to a switch together.

    ``kinds``: kind of each request, by transaction id. ``at``: time of the last complete reply; before the first, the
    time of the requests. ``until``: time at which the requests are abandoned. Both times are in monotonic seconds.
    ``readers``: decoder of each kind. ``takes``: function that returns whether to decode a part, given the kind, and
    the bytes of this kind so far, including this part."""

    def __init__(
        self,
        kinds: Mapping[int, int],
        at: float,
        until: float,
        readers: Mapping[int, Callable[[bytes], Any]],
        takes: Takes,
    ) -> None:
        self.at, self.until = at, until
        self._readers = readers
        self._takes = takes
        self._bytes_of: Counter[int] = Counter()
        self.skipped: set[int] = set()
        """Kinds of replies of which parts were skipped."""
        self._waiting = dict(kinds)
        self._answers: dict[int, list[Any]] = {kind: [] for kind in kinds.values()}
        self._bytes = 0

    def part(self, reply: Reply, now: float) -> bool:
        """Decode one part. Return False if it belongs to no open request. Raises ``Malformed``."""
        kind = self._waiting.get(reply.xid)
        if kind is None:
            return False
        if kind != reply.kind:
            raise Malformed(f"a multipart reply has kind {reply.kind}, but its request has kind {kind}")
        self._bytes += max(PART_BYTES, len(reply.body))
        if self._bytes > MAX_BYTES:
            raise Malformed(f"a multipart reply does not end within {MAX_BYTES} bytes")
        self._bytes_of[kind] += len(reply.body)
        if self._takes(kind, self._bytes_of[kind]):
            self._answers[kind].append(self._readers[kind](reply.body))
        else:
            self.skipped.add(kind)
        if not reply.more:
            del self._waiting[reply.xid]
            self.at = now
        return True

    def refused(self, xid: int) -> int | None:
        """Record that the switch has answered a request with an error in place of a reply.

        Returns the kind of the request; None if no request with this transaction id is open."""
        kind = self._waiting.pop(xid, None)
        if kind is not None:
            del self._answers[kind]
        return kind

    @property
    def complete(self) -> bool:
        return not self._waiting

    def answered(self, kind: int) -> bool:
        """Return whether the reply to the request of this kind is complete and not an error."""
        return kind in self._answers and kind not in self._waiting.values()

    def of(self, kind: int) -> list[Any]:
        """Return the decoded content of each part of the reply of this kind.

        The list is empty while parts are missing, and when the request was refused or not sent."""
        return self._answers[kind] if self.answered(kind) else []


class Requests(ABC):
    """Open requests by switch. Subclasses decide when to send requests, and report the replies.

    ``now`` is in monotonic seconds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._asked: dict[Dpid, Gathered] = {}

    def ask(
        self,
        dpid: Dpid,
        requests: Mapping[int, bytes],
        now: float,
        until: float,
        takes: Takes = lambda _kind, _size: True,
        readers: Mapping[int, Callable[[bytes], Any]] = READERS,
    ) -> None:
        """Send requests to a switch, and abandon its open requests.

        ``requests``: message of each kind. ``until``, ``takes`` and ``readers``: as in ``Gathered``."""
        kinds = dict(zip(self._send(dpid, *requests.values()), requests, strict=True))
        self._asked[dpid] = Gathered(kinds, now, until, readers, takes)

    def part(self, dpid: Dpid, reply: Reply, now: float) -> bool:
        """Decode one part of a reply. Return False if it belongs to no open request. Raises ``Malformed``."""
        asked = self._asked.get(dpid)
        if asked is None or not asked.part(reply, now):
            return False
        if asked.complete:
            self._finish(dpid, asked)
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """Record that the switch has refused a request. Return False if the request is not open."""
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

    def _refused(self, dpid: Dpid, kind: int) -> None:  # noqa: B027
        """Record that the switch refuses requests of this kind; subclasses may override this method."""

    @abstractmethod
    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        """Report the replies once every request is answered or refused.

        Subclasses must close the requests."""
