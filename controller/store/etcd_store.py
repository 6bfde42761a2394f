"""``Store`` in etcd, for controllers on several machines: one of them is active, the others stand by.

``etcd_claim`` decides who is active, ``etcd_contents`` describes the keys, and ``etcd_commits`` writes the records.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from controller.jobs.messages import SavedState
from controller.store.commit_queue import CommitQueue
from controller.store.etcd_claim import EtcdClaim
from controller.store.etcd_client import EtcdAccess, EtcdError
from controller.store.etcd_commits import EtcdCommits
from controller.store.etcd_contents import Contents, Malformed, number, records
from controller.store.etcd_operations import put, was_created
from controller.store.lease_secret import SECRET_BYTES
from controller.store.records import FORMAT, ChangedRecords, decode, encode
from controller.store.store import Done, epoch_at, refuse_above
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)


class EtcdStore(EtcdClaim):
    """Store below ``prefix``. Methods are documented at ``Store``."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int) -> None:
        super().__init__(access, prefix, lease_s)
        self._records = EtcdCommits(self._etcd, self._root, self._fence(), self._refuse_lost)
        self._commits: CommitQueue | None = None
        self._has_loaded = False

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()
            self._commits = None
        self.release()
        self._etcd.close()

    def load(self) -> SavedState:
        if not self.claim():
            who = f"another controller uses {self._where} ({self.owner()})"
            raise InvalidInput.of("store", f"{who}; stop it, or start with --standby to take over when it ends")
        try:
            found = self._records.read()
            saved = self._state(found)
            self._records.adopt(found)
        except EtcdError as error:
            raise self._cannot(error) from None
        except Malformed as error:
            raise self._malformed(error) from None
        self._has_loaded = True
        log.info("state read", revision=saved.revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        try:
            return self._state(self._records.read())
        except EtcdError as error:
            raise self._cannot(error) from None
        except Malformed as error:
            raise self._malformed(error) from None

    def _state(self, found: Contents) -> SavedState:
        """Return the state in the records. Raises ``InvalidInput``."""
        try:
            return replace(decode(records(self._root, found.texts)), revision=found.revision)
        except (ValueError, zlib.error) as error:
            raise InvalidInput.of("store", f"the state in {self._where} cannot be read: {error}") from None

    def _malformed(self, error: Malformed) -> InvalidInput:
        return InvalidInput.of("store", f"{error} ({self._where})")

    def secret(self, in_use: bool) -> bytes:
        """Return the secret of lease tokens, which is made when there is none and none is ``in_use``."""
        name = self._key("lease-secret")
        try:
            if not (found := self._etcd.get(name)):
                if in_use:
                    why = "is missing, and jobs are registered whose owners could not renew them without it"
                    raise InvalidInput.of("store", f"the secret of lease tokens {why} ({self._where})")
                made = secrets.token_bytes(SECRET_BYTES)
                self._etcd.transaction([self._fence(), was_created(name, 0)], [put(name, made)])
                found = self._etcd.get(name)
        except EtcdError as error:
            raise self._cannot(error) from None
        if not found:
            raise self._ended()
        if len(found.value) != SECRET_BYTES:
            raise InvalidInput.of("store", f"the secret of lease tokens is damaged ({self._where})")
        return found.value

    def raise_epoch(self, above: int) -> None:
        refuse_above(above)
        self.load()
        self._put_numbers(epoch=max(above + 1, self._base_of_epochs()))

    def begin(self, lost: Callable[[], None] = lambda: None) -> int:
        assert self._has_loaded, "load() comes first"
        self._lost = lost
        if self._has_ended:
            raise self._ended()
        first = self._base_of_epochs()
        self._put_numbers(format=FORMAT, epoch=first)
        self._commits = CommitQueue(self._write)
        return first + self._created

    def _base_of_epochs(self) -> int:
        """Return the number below all epochs. Raises ``InvalidInput``."""
        try:
            return number("epoch", self._etcd.get(self._key("epoch")), epoch_at(time.time()))
        except EtcdError as error:
            raise self._cannot(error) from None
        except Malformed as error:
            raise self._malformed(error) from None

    def _put_numbers(self, **numbers: int) -> None:
        """Write numbers to the keys of these names. Raises ``InvalidInput``."""
        puts = [put(self._key(name), str(value).encode()) for name, value in numbers.items()]
        try:
            written = self._etcd.transaction([self._fence()], puts)
        except EtcdError as error:
            raise self._cannot(error) from None
        if not written.succeeded:
            raise self._ended()

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        assert self._commits, "begin() comes first"
        self._commits.put(changes, done)

    def _write(self, commits: Sequence[ChangedRecords]) -> int | OSError:
        if not self.is_claimed:
            return OSError("etcd does not answer, so that this controller may have lost its claim of the state")
        together = {key: value for changed in commits for key, value in changed.items()}
        texts = {key: None if value is None else encode(key, value) for key, value in together.items()}
        try:
            return self._records.write(texts)
        except (EtcdError, Malformed) as error:
            return OSError(str(error))
