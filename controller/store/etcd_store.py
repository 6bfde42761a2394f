"""``Store`` in etcd, for controllers on several machines, of which one is active and the others stand by.

``etcd_claim`` decides which one is active, ``etcd_contents`` describes the keys, and ``etcd_commits`` writes the
records.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import structlog

from controller.jobs.messages import SavedState
from controller.store.commit_queue import CommitQueue
from controller.store.etcd_claim import EtcdClaim
from controller.store.etcd_client import START_S, EtcdAccess, EtcdError
from controller.store.etcd_commits import EtcdCommits
from controller.store.etcd_contents import Contents, Malformed, records, why_unreadable
from controller.store.etcd_events import EtcdEvents
from controller.store.etcd_operations import delete_range, put, was_created
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.lease_secret import SECRET_BYTES
from controller.store.records import FORMAT, ChangedRecords, Written, changes, decode, encode, forget, without
from controller.store.store import Done, epoch_at, refuse_above
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)


class EtcdStore(EtcdClaim):
    """Store below ``prefix``. Methods are documented at ``Store``.

    With ``api``, the switches are divided among the members, each the holder of some. Without ``api``, the leader
    controls all switches. ``begin`` then deletes all assignments of an earlier leader, so that no other member claims a
    restarted switch."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int, name: str = "", api: str = "") -> None:
        super().__init__(access, prefix, lease_s, name, api)
        self._divides = bool(api)
        self._records = EtcdCommits(self._etcd, self._root, self.fence(), self._refuse_lost)
        self.events = EtcdEvents(self._etcd, self._root, self.where, self.fence())
        self._commits: CommitQueue | None = None
        self._base: int | None = None
        """Number that is smaller than all epochs: an epoch is this number plus a revision of etcd. None before the
        state was read."""

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()
            self._commits = None
            if self.is_claimed:
                with suppress(EtcdError, Malformed):
                    self._records.settle(self._quick_s)
        self.release()
        self._etcd.close()

    @property
    def base(self) -> int:
        """Number to which etcd's revisions are added to make epochs and generation ids."""
        assert self._base is not None, "load() comes first"
        return self._base

    # ---- reading

    def load(self) -> SavedState:
        self._claim_now("stop it first; 'serve --standby' waits for its end")
        with self._refusals():
            found = self._records.read()
            saved = self._state(found)
            self._begin_with(found)
        log.info("state read", revision=saved.revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        with self._refusals():
            return self._state(self._records.read())

    def written(self) -> Written:
        self._claim_now("stop it, and any controller that stands by")
        with self._refusals():
            found = self._records.read()
            texts = tuple(records(self._root, found.texts))
            self._begin_with(found)
        return Written(texts, found.last)

    def _state(self, found: Contents) -> SavedState:
        """Return the state in the records; jobs and ends are sorted by time, because etcd sorts keys by name."""
        saved = decode(records(self._root, found.texts))
        jobs = dict(sorted(saved.jobs.items(), key=lambda job: job[1].registered_at))
        ends = dict(sorted(saved.ends.items(), key=lambda end: end[1].ended_at))
        return replace(saved, jobs=jobs, ends=ends, revision=found.last)

    def _begin_with(self, found: Contents) -> None:
        """Use these contents of etcd as the saved state. Raises ``EtcdError``."""
        self._records.adopt(found)
        self._base = found.epoch or epoch_at(time.time())

    def _why_never(self) -> str:
        """Return why this version must not claim the state of a newer version; empty if it may."""
        found = self._etcd.get(self._key("format"), self._quick_s)
        form = int(found.value) if found and found.value.isdigit() else FORMAT  # ``load`` refuses a malformed one
        return why_unreadable(form) if form > FORMAT else ""

    def _claim_now(self, else_: str) -> None:
        if not self.claim():
            raise InvalidInput.of("store", f"another controller uses {self.where} ({self.owner()}); {else_}")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise ``InvalidInput`` in place of errors of etcd and of values that cannot be read."""
        try:
            yield
        except EtcdError as error:
            raise self._cannot(error) from None
        except Malformed as error:
            raise InvalidInput.of("store", f"{error} ({self.where})") from None
        except (ValueError, zlib.error) as error:
            raise InvalidInput.of(
                "store",
                f"the state in {self.where} cannot be read: {error}. Nothing was changed. Delete its keys (etcdctl del "
                f"--prefix {self._root.decode()}) and import a backup{forget(error, '--config FILE')}",
            ) from None

    def secret(self, in_use: bool) -> bytes:
        name = self._key("lease-secret")
        with self._refusals():
            if not (found := self._etcd.get(name, START_S)):
                if in_use:
                    why = "is missing, and without it the owners of registered jobs cannot renew their leases"
                    raise InvalidInput.of("store", f"the secret of lease tokens {why} ({self.where})")
                made = secrets.token_bytes(SECRET_BYTES)
                self._etcd.transaction([self.fence(), was_created(name, 0)], [put(name, made)], START_S)
                found = self._etcd.get(name, START_S)
        if not found:
            raise self._ended()
        if len(found.value) != SECRET_BYTES:
            raise InvalidInput.of("store", f"the secret of lease tokens is damaged ({self.where})")
        return found.value

    # ---- repairing and moving

    def drop(self, job_ids: Iterable[str]) -> int:
        gone = without(self.written().records, job_ids, self.where)
        assert self._base is not None
        with self._refusals():
            return self._base + self._records.write(dict.fromkeys(gone))

    def replace(self, state: SavedState, secret: bytes, above: int) -> None:
        refuse_above(above)
        assert self._base is not None, "load() comes first"
        self._base = max(above + 1, self._base, epoch_at(time.time()))
        with self._refusals():
            before = dict.fromkeys(key for key, _ in records(self._root, self._records.texts))
            after = {key: encode(key, value) for key, value in changes(SavedState(), state).items()}
            others = {self._key("lease-secret"): secret, self._key("epoch"): str(self._base).encode()}
            self._records.write({**before, **after}, others)

    def raise_epoch(self, above: int) -> None:
        refuse_above(above)
        self.written()
        assert self._base is not None
        self._base = max(above + 1, self._base)
        self._put_numbers(epoch=self._base)

    # ---- commits

    def begin(self, lost: Callable[[], None] = lambda: None) -> int:
        assert self._base is not None, "load() comes first"
        self._lost = lost
        if self._has_ended:
            raise self._ended()
        self._base = max(self._base, epoch_at(time.time()))  # etcd may have been restored, with smaller revisions
        first, end = self._key("assign/"), self._key("assign0")
        self._put_numbers([] if self._divides else [delete_range(first, end)], format=FORMAT, epoch=self._base)
        self._commits = CommitQueue(self._write)
        return self._base + self._created

    def _put_numbers(self, others: Sequence[pb.RequestOp] = (), **numbers: int) -> None:
        """Write each number to the key with its name. Raises ``InvalidInput``. ``others``: further operations."""
        puts = [*others, *(put(self._key(name), str(value).encode()) for name, value in numbers.items())]
        with self._refusals():
            written = self._etcd.transaction([self.fence()], puts)
        if not written.succeeded:
            raise self._ended()

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        assert self._commits, "begin() comes first"
        self._commits.put(changes, done)

    def _write(self, commits: Sequence[ChangedRecords]) -> int | OSError:
        assert self._base is not None
        if not self.is_claimed:
            return OSError(self._unclaimed)
        together = {key: value for changed in commits for key, value in changed.items()}
        texts = {key: None if value is None else encode(key, value) for key, value in together.items()}
        try:
            return self._base + self._records.write(texts)
        except (EtcdError, Malformed) as error:
            return OSError(str(error))
