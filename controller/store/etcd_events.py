"""Lines of the latest events in etcd, for a controller on another machine that takes over.

Each write adds a key below ``event/``. When there are ``MOST_KEYS`` keys, or ``MOST_BYTES`` in their values, the next
write replaces all keys by one. If etcd carries out such a write once more later, the write deletes no later key. Writes
require the claim. Writes do not change the key ``commit``, so no commit waits or fails because of them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence

from controller.store.etcd_client import Etcd, EtcdError
from controller.store.etcd_contents import compressed, expanded
from controller.store.etcd_operations import delete_range, key, put
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.store import NewestLines

MOST_KEYS = 100
MOST_BYTES = 1 << 20
"""Size of the values of all keys, in bytes, from which on the next write replaces all keys by one.

The next write also replaces all keys when there are ``MOST_KEYS`` keys."""
MOST_TOGETHER = 1 << 19
"""Largest total size in bytes of the lines in one write."""


class EtcdEvents:
    """Lines below ``root``. Methods are documented at ``EventLines``.

    ``fence``: comparison in etcd that is true while this process has the claim."""

    pause_s = 1.0

    def __init__(self, etcd: Etcd, root: bytes, where: str, fence: pb.Compare) -> None:
        self.where = where
        self._etcd = etcd
        self._fence = fence
        self._first = key(root, "event/")
        self._root = root
        self._count = 0
        """Number of keys; ``MOST_KEYS`` after a failed write, so that the next write replaces all keys."""
        self._bytes = 0
        self._number = 0

    def read(self) -> list[bytes]:
        try:
            found, _ = self._etcd.keys(self._first)
            texts = [expanded(each.value) for each in found]
        except (EtcdError, zlib.error) as error:
            raise OSError(str(error)) from None
        self._count, self._bytes = len(found), sum(len(each.value) for each in found)
        numbers = [each.key.removeprefix(self._first) for each in found]
        self._number = max((int(number) for number in numbers if number.isdigit()), default=0)
        return b"".join(texts).split(b"\n")

    @property
    def is_full(self) -> bool:
        return self._count >= MOST_KEYS or self._bytes >= MOST_BYTES

    def write(self, lines: Sequence[bytes], newest: NewestLines) -> None:
        replaces = self.is_full or sum(map(len, lines)) > MOST_TOGETHER
        lines = newest(MOST_TOGETHER) if replaces else lines
        self._number = max(self._number + 1, int(time.time() * 1e6))
        name = key(self._root, "event", f"{self._number:020}")
        value = compressed(b"".join(lines))
        operations = [put(name, value)]
        count, size = self._count, self._bytes
        if replaces:
            operations.append(delete_range(self._first, name))
            count, size = 0, 0
        self._count = MOST_KEYS
        try:
            reply = self._etcd.transaction([self._fence], operations)
        except EtcdError as error:
            raise OSError(str(error)) from None
        if not reply.succeeded:
            raise OSError("the claim of the state has ended")
        self._count, self._bytes = count + 1, size + len(value)
