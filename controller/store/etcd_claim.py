"""Claim of the state in etcd by one controller at a time.

The claim is a key with a lease, which ends when its controller does not renew it. Every write requires that the key
still has this process's value. Before a controller renews the lease, it computes until when the claim will certainly be
valid. After this time the controller makes no change, even if it cannot reach etcd.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from typing import TypeGuard

import structlog

from controller.log_limit import LimitedLog
from controller.store.etcd_client import START_S, Etcd, EtcdAccess, EtcdError
from controller.store.etcd_operations import has_value, key, put, was_created
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.store import StateAway
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=60)

RENEWALS = 3
"""Number of renewals within the duration of a lease."""

LEAST_QUICK_S = 0.3
"""Lower bound of ``EtcdClaim._quick_s`` in seconds."""


class EtcdClaim:
    """Base class of a ``Store`` in etcd, with the methods that claim the keys below ``prefix``; see ``Store``.

    ``lease_s``: whole seconds after which a controller that does not renew its claim loses it. ``name``: name of this
    member. ``api``: address at which this member, as the leader, accepts calls that other members forward. The claim in
    etcd contains the name and the address (``etcd_members``)."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int, name: str = "", api: str = "") -> None:
        self.where = f"etcd at {', '.join(access.endpoints)}, below {prefix}"
        self._etcd = Etcd(access)
        self._lease_s = lease_s
        self._root = prefix.encode()
        self._holder = f"{name or socket.gethostname()}, process {os.getpid()}"
        self._id = secrets.token_hex(16).encode()
        self._claim = json.dumps({"holder": self._holder, "id": self.id, "name": name, "api": api}).encode()
        """Value of the key ``claim`` while this process has the claim."""
        self._quick_s = max(LEAST_QUICK_S, lease_s / 6)
        """Time limit in seconds of most calls at one endpoint. The limit is short, so that the lease outlasts a silent
        endpoint."""
        self._lease = 0
        self._created = 0
        """Revision of etcd at which the claim was made; 0 without a claim. The epoch is computed from this revision."""
        self._valid_until = 0.0
        """Time, on the clock of ``_now``, until which the claim certainly exists."""
        self._has_ended = False
        self._has_answered = False
        self._trouble = "etcd does not answer"
        self._stopping = threading.Event()
        self._check = threading.Event()
        """Event that ends the pause before the next renewal."""
        self._renewing: threading.Thread | None = None
        self._lost: Callable[[], None] = lambda: None

    @property
    def id(self) -> str:
        """Random text that identifies this process in its claim."""
        return self._id.decode()

    @property
    def is_claimed(self) -> bool:
        return _now() < self._valid_until

    def claim(self, wait: bool = False) -> bool:
        if self._renewing is not None:
            if not self.is_claimed:
                raise self._ended() if self._has_ended else self._cannot(EtcdError(self._unclaimed, None))
            return True
        gives_up = _now() + START_S
        while not self.is_claimed:
            try:
                if why := self._why_never():
                    if not wait:
                        raise InvalidInput.of("store", f"{why} ({self.where})")
                    limited_log.error("this controller cannot take over", why=why)
                    time.sleep(self._lease_s / RENEWALS)
                    continue
                is_made, revision = self._claim_once()
                if not is_made:
                    self._refuse_endless()
            except EtcdError as error:
                is_kept = self._has_answered or error.no_answer if wait else error.is_late and _now() < gives_up
                if not is_kept:
                    raise self._cannot(error) from None
                limited_log.warning("the state cannot be claimed yet", why=str(error))
                time.sleep(self._lease_s / RENEWALS)
                continue
            self._has_answered = True
            if is_made:
                continue
            if not wait:
                return False
            self._etcd.wait_for_change([self._key("claim")], revision, self._lease_s)
        self._renewing = threading.Thread(target=self._renew, name="state-claim", daemon=True)
        self._renewing.start()
        return True

    def release(self) -> None:
        """Stop renewing the claim, and end it."""
        self._stopping.set()
        self._check.set()
        if self._renewing is not None:
            self._renewing.join()
        self._valid_until = 0.0
        lease, self._lease = self._lease, 0
        if lease and not self._has_ended:
            with suppress(EtcdError):
                self._etcd.revoke(lease, self._quick_s)

    def owner(self) -> str:
        try:
            found = self._etcd.get(self._key("claim"))
        except EtcdError:
            return "unknown"
        try:
            return str(json.loads(found.value)["holder"]) if found else "unknown"
        except (ValueError, TypeError, KeyError):
            return "unknown"

    def standing_by(self) -> AbstractContextManager[None]:
        return nullcontext()  # the key of a member shows that it waits

    def has_standby(self) -> bool:
        """Return False. With etcd, standbys are members, and ``etcd_members`` knows them."""
        return False

    def prepare(self, access: EtcdAccess) -> Callable[[], None]:
        """Try this access to etcd, and return a function that makes all later calls use it.

        Raises ``InvalidInput`` if etcd refuses the access or does not answer."""
        if access == self._etcd.access:
            return lambda: None
        with closing(Etcd(access)) as other:
            try:
                other.get(self._key("claim"))
            except EtcdError as error:
                raise self._cannot(error) from None
        return partial(self._use, access)

    def _use(self, access: EtcdAccess) -> None:
        self._etcd.use(access)
        self._check.set()

    # ---- for the writes

    def fence(self) -> pb.Compare:
        """Return the comparison in etcd that is true while this process has the claim."""
        return has_value(self._key("claim"), self._claim)

    @property
    def _unclaimed(self) -> str:
        """Reason why this process has lost its claim."""
        if self._has_ended:
            return "another controller has claimed the state"
        return f"this controller may have lost its claim of the state, which it cannot renew: {self._trouble}"

    def _refuse_lost(self) -> None:
        """Raise ``EtcdError`` if the claim has ended, and make the thread check at once whether it can be renewed."""
        if not self._is_own(self._etcd.get(self._key("claim"))):
            self._valid_until = 0.0  # until the next renewal
            self._check.set()
            raise EtcdError("the claim of the state has ended", None)

    def _key(self, *names: str) -> bytes:
        return key(self._root, *names)

    def _ended(self) -> InvalidInput:
        return InvalidInput.of("store", f"another controller has claimed {self.where} meanwhile")

    def _cannot(self, error: EtcdError) -> InvalidInput:
        return (StateAway if error.is_away else InvalidInput).of("store", f"{self.where}: {error}")

    # ---- the lease

    def _claim_once(self, after_own: bool = False) -> tuple[bool, int]:
        """Try to claim the state; return whether this process has the claim, and etcd's revision. Raises ``EtcdError``.

        ``after_own``: claim the state only if no other process has claimed it since this process last did."""
        within_s = max(self._quick_s, self._lease_s / 2)
        began = _now()
        lease = self._etcd.grant(self._lease_s, within_s)
        free = [was_created(self._key("claim"), 0)]
        if after_own:
            free.append(has_value(self._key("claimed"), self._id))
        reply = self._etcd.transaction(
            free,
            [put(self._key("claim"), self._claim, lease), put(self._key("claimed"), self._id)],
            within_s=within_s,
        )
        if reply.succeeded:
            self._lease, self._created, self._valid_until = lease, reply.header.revision, began + self._lease_s
            return True, reply.header.revision
        began = _now()
        found = self._etcd.get(self._key("claim"), within_s)
        if self._is_own(found):
            self._adopt(found, began)
            return True, reply.header.revision
        with suppress(EtcdError):
            self._etcd.revoke(lease)
        return False, reply.header.revision

    def _why_never(self) -> str:
        """Return why this process must not claim the state; empty if it may. Raises ``EtcdError``."""
        return ""

    def _refuse_endless(self) -> None:
        """Raise ``InvalidInput`` if the claim in etcd has no lease, because such a claim never ends.

        Every controller claims with a lease. A key without one was therefore written by hand or by another program."""
        found = self._etcd.get(self._key("claim"), self._quick_s)
        if found and not found.lease:
            what = f"the key {self._key('claim').decode()} has the value {found.value[:40]!r} and no lease"
            raise InvalidInput.of("store", f"{what}, so this claim never ends; delete the key ({self.where})")

    def _is_own(self, claim: pb.KeyValue | None) -> TypeGuard[pb.KeyValue]:
        return claim is not None and claim.value == self._claim

    def _adopt(self, claim: pb.KeyValue, began: float) -> None:
        """Use the lease of the claim that this process already has in etcd.

        A request whose answer was lost may have made the claim. ``began``: time, on the clock of ``_now``, before the
        claim was read. Raises ``EtcdError``."""
        self._lease, self._created = claim.lease, claim.create_revision
        if self._etcd.renew(self._lease, self._quick_s):
            self._valid_until = began + self._lease_s

    def _renew(self) -> None:
        """Renew the lease until ``release``.

        If the claim has ended, claim again, unless another process has done so."""
        pause, last_why = self._lease_s / RENEWALS, ""
        while True:
            self._check.wait(pause)
            self._check.clear()
            if self._stopping.is_set():
                return
            pause, why = self._lease_s / RENEWALS, ""
            try:
                if not self._renew_once():
                    break
            except EtcdError as error:
                pause, why = self._quick_s, str(error)
                self._trouble = why
                if why != last_why:
                    limited_log.warning("the claim of the state cannot be renewed", why=why)
            except Exception:
                limited_log.exception("the claim of the state cannot be renewed because of an unexpected error")
            last_why = why
        self._has_ended, self._valid_until = True, 0.0
        self._lost()
        with suppress(EtcdError):
            self._etcd.revoke(self._lease)

    def _renew_once(self) -> bool:
        """Renew the lease, or claim again; return False if another process has the claim. Raises ``EtcdError``."""
        # Read first, since a controller that receives no answers must not extend its lease by requests that etcd
        # receives. The time counts from before the read, because a replaced leader of etcd may still answer renewals,
        # but no reads.
        began = _now()
        found = self._etcd.get(self._key("claim"), self._quick_s)
        if self._is_own(found):
            if found.lease != self._lease:
                self._adopt(found, began)
            elif self._etcd.renew(self._lease, self._quick_s):
                self._valid_until = began + self._lease_s
            return True
        if found or not self._claim_once(after_own=True)[0]:
            return False
        log.warning("the claim of the state had ended, and the state is claimed again")
        return True


def _now() -> float:
    """Return the seconds of a clock that, unlike the monotonic clock, also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
