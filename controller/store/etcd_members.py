"""Membership in etcd: writes the key of this member, and reads the keys of all members.

docs/explanation/several-controllers.md#assignment lists the keys. The key of a member has a lease of its own, so it
disappears after its process has ended. A thread renews the lease and reads all keys several times per lease, and
whenever the claim or the key of a member changes. A member that sees the process of another member end
(``sign_of_life``) also ends the lease and the claim of that member.

Which member is the leader, and at which address, is not in these keys but in the claim (``etcd_claim``). So a user of
etcd who can write only these keys cannot redirect calls.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field

from controller.log_limit import LimitedLog
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_operations import Operations, delete, key, put, was_changed
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.members import NO_MEMBERS, Member, Members
from controller.store.sign_of_life import SignOfLife, Watch
from signalbox.errors import NO_SUCH_NAME, Conflict, InvalidInput, Unavailable, cut

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=60)

READINGS = 3
"""Number of readings of all keys within the duration of a lease."""
LEAST_CALL_S = 0.3
"""Smallest time limit in seconds of a call at one endpoint."""
PAUSE_S = 0.5
"""Seconds between two attempts while etcd does not answer."""
LEAST_PAUSE_S = 0.05
"""Seconds between two readings, however often the keys change."""
MOST_MEMBERS = 100
"""Largest number of keys of members that are read, in the order of their names."""
MOST_BYTES = 1 << 20
"""Largest total size in bytes of the members' keys. If they are larger, reading them fails."""
KNOWN_S = 60.0
"""Seconds after which a member writes its keys again, to renew the time in its key below ``known/``."""


class EtcdMembership:
    """``Membership`` in the keys below ``prefix`` of etcd, kept up to date by a thread while the context lasts.

    ``lease_s``: whole seconds after which a member that does not renew its lease is removed. ``fence``: comparison in
    etcd that is true while this process has the claim of the state."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int, own: Member, fence: pb.Compare) -> None:
        self._etcd = Etcd(access, MOST_BYTES)
        self._root = prefix.encode()
        self._lease_s = lease_s
        self._within_s = max(LEAST_CALL_S, lease_s / 6)
        self._own = own
        self._fence = fence
        self._valid_until = 0.0
        """Monotonic time until which this member's lease is certainly valid."""
        self._key = self._root + f"members/{own.name}/{own.id}".encode()
        self._lease = 0
        self._written: Member | None = None
        self._known_until = 0.0
        """Monotonic time at which this member next writes its keys."""
        self._seen: dict[str, float] = {}
        """Time at which a member last had a lease, in seconds since 1970, by name."""
        self._newest = NO_MEMBERS
        self._reading = threading.Lock()
        self._changing = threading.Lock()
        self._sign: SignOfLife | None = None
        self._watches: dict[str, Watch] = {}
        """Watches of other members' signs of life, by the id of the member."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self.changed: Callable[[], None] = lambda: None
        """Function that a thread calls after each reading."""

    def __enter__(self) -> Self:
        self._thread.start()
        # In a thread of its own, because resolving the name of an endpoint may take longer than the lease lasts.
        threading.Thread(target=self._start_sign_of_life, name="sign-of-life", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._lease:
            with suppress(EtcdError):
                self._etcd.revoke(self._lease, self._within_s)
        self._etcd.close()  # ends the thread's call
        self._thread.join()
        for watch in self._watches.values():
            watch.close()
        if self._sign:
            self._sign.close()

    def use(self, access: EtcdAccess) -> None:
        """Make all later calls with this access."""
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
        """Return whether members other than the leader were present at the last reading."""
        members = self._newest
        leader = members.leader.id if members.leader else ""
        return any(member.id != leader for member in members.all)

    def is_live(self) -> bool:
        """Return whether all members see this member now, because its lease is valid."""
        return time.monotonic() < self._valid_until

    def drain(self, name: str, drains: bool) -> None:
        members = self._newest
        names = {member.name for member in members.all}
        self._refuse_unknown(name)
        if drains and not names - members.draining - {name}:
            raise Conflict(f"'{name}' is the last member that is not drained, so no other could hold its switches")
        of_name = key(self._root, "draining", name)
        self._change([put(of_name, str(time.time()).encode()) if drains else delete(of_name)])
        draining = members.draining | {name} if drains else members.draining - {name}
        self._newest = replace(self._newest, draining=draining)

    def forget(self, name: str) -> None:
        self._refuse_unknown(name)
        if any(member.name == name for member in self._newest.all):
            raise Conflict(f"member '{name}' is running; stop it first, and wait until it is absent")
        self._change([delete(key(self._root, kind, name)) for kind in ("known", "draining")])
        with self._reading:
            self._seen.pop(name, None)
            newest = self._newest
            absent = {one: at for one, at in newest.absent.items() if one != name}
            self._newest = replace(newest, draining=newest.draining - {name}, absent=absent)

    def _refuse_unknown(self, name: str) -> None:
        """Raise ``InvalidInput`` for a name that neither a present nor an absent member has."""
        members = self._newest
        names = {*(member.name for member in members.all), *members.absent}
        if name not in names | members.draining:
            what = f"there is no member '{cut(name)}'; members are {', '.join(sorted(names))}"
            raise InvalidInput.of("name", what, NO_SUCH_NAME)

    def _change(self, operations: Operations) -> None:
        """Carry out the operations. Raises ``Unavailable``.

        A slow endpoint of etcd may carry out a request once more at any later time. Each change therefore also writes
        the key ``change``, and requires that no other change has written this key since this process read it."""
        name, value = key(self._root, "change"), secrets.token_bytes(8)
        try:
            with self._changing:
                last = self._etcd.get(name)
                compare = [self._fence, was_changed(name, last.mod_revision if last else 0)]
                is_made = self._etcd.transaction(compare, [*operations, put(name, value)]).succeeded
                if not is_made and (found := self._etcd.get(name)):
                    is_made = found.value == value  # by an endpoint that answered too late
        except EtcdError as error:
            effect = "may not be" if error.is_late else "is not"
            what = f"the change cannot be saved ({error}), so it {effect} in effect; try again later"
            raise Unavailable(what, self._lease_s) from None
        if not is_made:
            raise Unavailable("another controller has claimed the state", 0.0)

    def _run(self) -> None:
        pause = self._lease_s / READINGS
        while not self._stopping.is_set():
            try:
                revision = self._read()
                self.changed()
                watched = [self._root + b"claim", self._root + b"members/"]
                if not self._stopping.wait(LEAST_PAUSE_S):
                    self._etcd.wait_for_change(watched, revision, pause)
            except Exception as error:  # the channels may be closed at any time
                if not self._stopping.wait(PAUSE_S):
                    limited_log.warning("the members cannot be read from etcd", why=str(error) or repr(error))

    def _read(self) -> int:
        """Renew this member's lease, read all members, and return etcd's revision. Raises ``EtcdError``."""
        with self._reading:
            # Read first, since a member that receives no answers must not extend its lease by requests that etcd
            # receives. The time counts from before the read, as for the claim (``etcd_claim``).
            began = time.monotonic()
            (own, claims), revision = self._etcd.read([self._key, self._root + b"claim"], 1, self._within_s)
            if not own:
                self._lease, self._valid_until = 0, 0.0  # the key was deleted: write it again
            leader = _leader(claims[0]) if claims else None
            # also if the lists below cannot be read
            self._newest = replace(self._newest, leader=leader, began=began)
            self._renew(began)
            prefixes = [key(self._root, kind, "") for kind in ("draining", "known", "members")]
            (draining, known, present), _ = self._etcd.read(prefixes, MOST_MEMBERS, self._within_s)
            found = (member for each in present if (member := _member(each)))
            everyone = tuple(sorted(found, key=lambda one: (one.name, one.since)))
            absent = self._absent(everyone, {_name(each): _time(each.value) for each in known})
            self._newest = Members(everyone, leader, began, frozenset(map(_name, draining)), absent)
            self._watch_others()
        return revision

    def _renew(self, began: float) -> None:
        """Renew this member's lease, and write its keys if they have changed or are old.

        ``began``: monotonic time before etcd was last read. Raises ``EtcdError``."""
        if not self._lease or not self._etcd.renew(self._lease, self._within_s):
            self._lease, self._written = self._etcd.grant(self._lease_s, self._within_s), None
        if (own := self._own) is not self._written or began >= self._known_until:
            value = {name: value for name, value in asdict(own).items() if name != "id"}
            of_own = key(self._root, "known", own.name)
            # in one transaction, so that no member is ever seen that is not known after its end
            present = put(self._key, json.dumps(value).encode(), self._lease)
            known = put(of_own, f"{time.time():.0f}".encode())
            self._etcd.transaction([], [present, known], self._within_s)
            self._written, self._known_until = own, began + KNOWN_S
        self._valid_until = began + self._lease_s

    def _absent(self, everyone: Collection[Member], known: Mapping[str, float]) -> dict[str, float]:
        """Return the time at which each known member without a lease was last present, by name."""
        self._seen |= dict.fromkeys((member.name for member in everyone), time.time())
        names = known.keys() - {member.name for member in everyone}
        return {name: self._seen.get(name, known[name]) for name in sorted(names)}

    # ---- signs of life

    def _start_sign_of_life(self) -> None:
        self._sign = SignOfLife(self._etcd.access.endpoints[0])
        if self._stopping.is_set():
            self._sign.close()
        self._own = replace(self._own, alive=self._sign.address)
        with suppress(Exception):  # the next reading writes the address
            self._read()

    def _watch_others(self) -> None:
        watched = {one.id: one for one in self._newest.all if one.alive and one.id != self._own.id}
        for gone in self._watches.keys() - watched.keys():
            self._watches.pop(gone).close()
        for member in watched.values():
            self._watches.setdefault(member.id, Watch()).follow(member.alive, partial(self._end_member, member))

    def _end_member(self, member: Member) -> None:
        log.info("a member has ended; ending its lease", member=member.name)
        try:
            if own := self._etcd.get(key(self._root, "members", member.name, member.id), self._within_s):
                self._etcd.revoke(own.lease, self._within_s)
            claim = self._etcd.get(self._root + b"claim", self._within_s)
            if claim and claim.lease and (leader := _leader(claim)) and leader.id == member.id:
                self._etcd.revoke(claim.lease, self._within_s)
            self._read()
            self.changed()
        except Exception as error:  # the channels may be closed at any time
            limited_log.warning("the lease of a member cannot be ended in etcd", why=str(error) or repr(error))


_Text = Annotated[str, Field(max_length=300)]
_Number = Annotated[int, Field(ge=0, le=1 << 30)]


class _Value(BaseModel):
    """Value of a key. Fields that only newer versions know are ignored."""

    model_config = ConfigDict(strict=True)


class _Member(_Value):
    name: _Text
    api: _Text
    version: _Text
    since: float = Field(ge=0, le=1e11)
    format: _Number = 0
    link: tuple[_Number, _Number] = (1, 1)
    alive: _Text = ""


class _Claim(_Value):
    id: _Text
    name: _Text = ""
    api: _Text = ""


def _member(found: pb.KeyValue) -> Member | None:
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
            value.alive,
        )
    except ValueError:
        return None


def _name(found: pb.KeyValue) -> str:
    return found.key.rpartition(b"/")[2].decode(errors="replace")


def _time(value: bytes) -> float:
    """Return the time in a value, in seconds since 1970; 0 if the value is malformed."""
    return float(value) if value.replace(b".", b"", 1).isdigit() else 0.0


def _leader(claim: pb.KeyValue) -> Member | None:
    try:
        value = _Claim.model_validate_json(claim.value)
    except ValueError:
        return None
    return Member(value.id, value.name, value.api, version="", since=0.0)
