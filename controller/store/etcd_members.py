"""Membership in etcd: a key with a lease for this controller, and the keys of all others.

In etcd, below ``members/`` of the prefix, each member has the key ``NAME/ID``. The key has a lease of its own, so it
disappears with its process. It does not say who the leader is, nor where the leader takes calls: the claim says both
(``etcd_claim``). So a user of etcd who can write only these keys cannot redirect calls. A thread renews the lease and
reads all keys several times per lease, and when the claim changes.

Each member that should hold no switch has a key below ``draining/`` with its name, which only the leader writes. The
key outlasts the member's process, so that a member can be drained, stopped and started again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field

from controller.log_limit import LimitedLog
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_operations import delete, key, put
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.members import NO_MEMBERS, Member, Members
from signalbox.errors import Conflict, InvalidInput, Unavailable, cut

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)

READINGS = 3
"""Number of readings within the duration of a lease."""
LEAST_CALL_S = 0.3
"""Shortest time in seconds that a call may take at one endpoint."""
MOST_MEMBERS = 100
"""Largest number of keys of members that are read, by order of their names."""
MOST_BYTES = 1 << 20
"""Largest total size of these keys; if they are larger, they are not read."""


class EtcdMembership:
    """``Membership`` below ``prefix``, while the context lasts.

    ``lease_s``: whole seconds after which a member that does not answer is removed. ``fence``: comparison that holds
    while this process has the claim of the state."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int, own: Member, fence: pb.Compare) -> None:
        self._etcd = Etcd(access, MOST_BYTES)
        self._root = prefix.encode()
        self._lease_s = lease_s
        self._within_s = max(LEAST_CALL_S, lease_s / 6)
        self._own = own
        self._fence = fence
        self._valid_until = 0.0
        """Monotonic time until which the own lease is valid for certain."""
        self._key = self._root + f"members/{own.name}/{own.id}".encode()
        self._lease = 0
        self._newest = NO_MEMBERS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self.changed: Callable[[], None] = lambda: None
        """Function that a thread calls after each reading."""

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
        return None if time.monotonic() > members.began + self._lease_s else members.leader

    def has_standby(self) -> bool:
        """Return whether other members than the leader were there at the last reading."""
        members = self._newest
        leader = members.leader.id if members.leader else ""
        return any(member.id != leader for member in members.all)

    def is_live(self) -> bool:
        """Return whether all members see this one now, because its lease is valid."""
        return time.monotonic() < self._valid_until

    def drain(self, name: str, drains: bool) -> None:
        members = self._newest
        names = {member.name for member in members.all}
        if name not in names | members.draining:
            raise InvalidInput.of("name", f"'{cut(name)}' is no member; members are {', '.join(sorted(names))}")
        if drains and not names - members.draining - {name}:
            raise Conflict(f"'{name}' is the last member that is not drained, so no other could hold its switches")
        of_name = key(self._root, "draining", name)
        operation = put(of_name, str(time.time()).encode()) if drains else delete(of_name)
        try:
            reply = self._etcd.transaction([self._fence], [operation])
        except EtcdError as error:
            raise Unavailable(str(error), self._lease_s) from None
        if not reply.succeeded:
            raise Unavailable("another controller has claimed the state", 0.0)
        draining = members.draining | {name} if drains else members.draining - {name}
        self._newest = replace(self._newest, draining=draining)

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
        # Read first: a member that hears nothing from etcd must not extend its lease by requests that arrive there.
        if self._etcd.get(self._key, self._within_s) is None:
            self._lease, self._valid_until = 0, 0.0  # the key was deleted: write it again
        began = time.monotonic()
        if not self._lease or not self._etcd.renew(self._lease, self._within_s):
            self._lease = self._etcd.grant(self._lease_s, self._within_s)
            own = {name: value for name, value in asdict(self._own).items() if name != "id"}
            self._etcd.transaction([], [put(self._key, json.dumps(own).encode(), self._lease)], self._within_s)
        self._valid_until = began + self._lease_s
        began = time.monotonic()
        claims, revision = self._etcd.keys(self._root + b"claim", self._within_s)
        leader = next((_leader(each) for each in claims if each.key == self._root + b"claim"), None)
        # also if the lists below cannot be read
        self._newest = Members(self._newest.all, leader, began, self._newest.draining)
        of_draining = key(self._root, "draining", "")
        drained, _ = self._etcd.keys(of_draining, self._within_s, MOST_MEMBERS)
        draining = frozenset(each.key.removeprefix(of_draining).decode(errors="replace") for each in drained)
        keys, _ = self._etcd.keys(self._root + b"members/", self._within_s, MOST_MEMBERS)
        found = (member for each in keys if (member := _member(each)))
        self._newest = Members(tuple(sorted(found, key=lambda one: (one.name, one.since))), leader, began, draining)
        return revision


_Text = Annotated[str, Field(max_length=300)]
_Number = Annotated[int, Field(ge=0, le=1 << 30)]


class _Value(BaseModel):
    """Value of a key. Fields that a newer version has added are left out."""

    model_config = ConfigDict(strict=True)


class _Member(_Value):
    name: _Text
    api: _Text
    version: _Text
    since: float = Field(ge=0, le=1e11)
    format: _Number = 0
    link: tuple[_Number, _Number] = (1, 1)


class _Claim(_Value):
    id: _Text
    name: _Text = ""
    api: _Text = ""


def _member(found: pb.KeyValue) -> Member | None:
    """Return the member in a key, or None if the key is malformed."""
    try:
        value = _Member.model_validate_json(found.value)
        return Member(
            found.key.decode().rpartition("/")[2],
            value.name,
            value.api,
            value.version,
            value.since,
            value.format,
            value.link,
        )
    except ValueError:
        return None


def _leader(claim: pb.KeyValue) -> Member | None:
    """Return the member that the claim describes, or None if the claim is malformed."""
    try:
        value = _Claim.model_validate_json(claim.value)
    except ValueError:
        return None
    return Member(value.id, value.name, value.api, version="", since=0.0)
