"""Membership in etcd: a key with a lease for this controller, and the keys of all others.

In etcd, below ``members/`` of the prefix, each member has the key ``NAME/ID``. The key has a lease of its own, so it
disappears with its process. It does not say who the leader is: that is the member whose id the claim contains
(``etcd_store``). A thread renews the lease and reads all keys several times per lease, and when the claim changes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Self

import structlog

from controller.log_limit import LimitedLog
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.members import NO_MEMBERS, Member, Members

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)

READINGS = 3
"""Number of readings within the duration of a lease."""
LEAST_CALL_S = 0.3
"""Shortest time in seconds that a call may take at one endpoint."""


class EtcdMembership:
    """``Membership`` below ``prefix``, while the context lasts.

    ``lease_s``: whole seconds after which a member that does not answer is removed."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int, own: Member) -> None:
        self._etcd = Etcd(access)
        self._root = prefix.encode()
        self._lease_s = lease_s
        self._within_s = max(LEAST_CALL_S, lease_s / 6)
        self._own = own
        self._key = self._root + f"members/{own.name}/{own.id}".encode()
        self._lease = 0
        self._newest = NO_MEMBERS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self.changed: Callable[[], None] = lambda: None
        """Called by a thread after each reading."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._lease:
            with suppress(EtcdError):
                self._etcd.revoke(self._lease, self._within_s)
        self._etcd.close()  # ends the thread's call
        self._thread.join()

    def use(self, access: EtcdAccess) -> None:
        """Make all later calls with this access."""
        if access != self._etcd.access:
            self._etcd.use(access)

    @property
    def own(self) -> Member:
        return self._own

    @property
    def newest(self) -> Members:
        return self._newest

    def leader(self) -> Member | None:
        members = self._newest
        if time.monotonic() > members.began + self._lease_s:
            return None
        return next((member for member in members.all if member.id == members.leader), None)

    def has_standby(self) -> bool:
        """Return whether other members than the leader were there at the last reading."""
        members = self._newest
        return any(member.id != members.leader for member in members.all)

    def _run(self) -> None:
        pause = self._lease_s / READINGS
        while not self._stopping.is_set():
            try:
                revision = self._read()
                self.changed()
                self._etcd.wait_for_change(self._root + b"claim", revision, pause)
            except Exception as error:  # the channels may be closed at any time
                if not self._stopping.wait(pause):
                    limited_log.warning("the members cannot be read from etcd", why=str(error) or repr(error))

    def _read(self) -> int:
        """Renew the own lease, read all members, and return etcd's revision. Raises ``EtcdError``."""
        if not self._lease or not self._etcd.renew(self._lease, self._within_s):
            self._lease = self._etcd.grant(self._lease_s, self._within_s)
            own = {name: value for name, value in asdict(self._own).items() if name != "id"}
            put = pb.PutRequest(key=self._key, value=json.dumps(own).encode(), lease=self._lease)
            self._etcd.transaction([], [pb.RequestOp(request_put=put)], self._within_s)
        began = time.monotonic()
        keys, revision = self._etcd.keys(self._root + b"members/", self._within_s)
        claim = self._etcd.get(self._root + b"claim", self._within_s)
        if all(each.key != self._key for each in keys):
            self._lease = 0  # somebody has deleted the key: write it again
        found = (member for each in keys if (member := _member(each)))
        self._newest = Members(tuple(sorted(found, key=lambda one: (one.name, one.since))), _id_in(claim), began)
        return revision


def _member(key: pb.KeyValue) -> Member | None:
    """Return the member in a key, or None if the key is malformed."""
    try:
        return Member(id=key.key.decode().rpartition("/")[2], **json.loads(key.value))
    except (ValueError, TypeError):
        return None


def _id_in(claim: pb.KeyValue | None) -> str:
    try:
        return str(json.loads(claim.value)["id"]) if claim else ""
    except (ValueError, TypeError, KeyError):
        return ""
