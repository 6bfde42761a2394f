"""``Store`` in etcd, for controllers on several machines: one of them is active, the others stand by.

In etcd, below a prefix, are one key per record, the secret of lease tokens, and the claim: a key with a lease, which
ends when its controller does not renew it. Every write demands that the claim still exists, so a controller whose claim
has ended writes nothing. The claim is valid until a local time that was computed before the lease was last renewed;
after that time this controller makes no change, even if etcd does not answer.

A commit with more records than one request may have is written in parts that nobody uses yet. A single request then
makes the commit valid, and its parts are applied; the next claim completes what its holder could not.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import structlog

from controller.jobs.messages import SavedState
from controller.store.commit_queue import CommitQueue
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.records import FORMAT, ChangedRecords, Key, Kind, decode, encode
from controller.store.store import Done, epoch_at, refuse_above
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

MOST_RECORDS = 100
MOST_BYTES = 1_000_000
"""Largest number of records and bytes in one request; etcd refuses 128 operations and 1.5 MB by default."""

RENEWALS = 3
"""Number of renewals within the duration of a lease."""

SECRET_BYTES = 32

Texts = Mapping[bytes, bytes | None]
"""Values of keys; None for a key that is deleted."""


class EtcdStore:
    """Store below ``prefix``. Methods are documented at ``Store``.

    ``lease_s``: whole seconds after which a controller that does not answer loses its claim."""

    def __init__(self, access: EtcdAccess, prefix: str, lease_s: int) -> None:
        self._where = f"etcd at {', '.join(access.endpoints)}, below {prefix}"
        self._etcd = Etcd(access)
        self._lease_s = lease_s
        self._root = prefix.encode()
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._id = secrets.token_hex(16).encode()
        self._lease = 0
        self._created = 0
        """Revision of etcd at which the claim was made; 0 without a claim."""
        self._valid_until = 0.0
        """Monotonic time until which the claim exists for certain."""
        self._stopping = threading.Event()
        self._renewing: threading.Thread | None = None
        self._has_standby = False
        self._commits: CommitQueue | None = None
        self._texts: dict[bytes, bytes] = {}
        """Values of all records after the commits that were reported as written."""
        self._in_doubt = False
        """Whether etcd may have other records than ``_texts``, because a write was not answered."""
        self._is_incomplete = False
        """Whether parts of a valid commit may not be applied yet."""
        self._lost: Callable[[], None] = lambda: None

    def _key(self, *names: str) -> bytes:
        return self._root + "/".join(names).encode()

    # ---- the claim

    @property
    def is_claimed(self) -> bool:
        return time.monotonic() < self._valid_until

    def claim(self, wait: bool = False) -> bool:
        while not self.is_claimed:
            try:
                revision = self._claim_once()
            except EtcdError as error:
                if not wait or not error.no_answer:
                    raise self._cannot(error) from None
                time.sleep(self._lease_s / RENEWALS)
                continue
            if self.is_claimed:
                break
            if not wait:
                return False
            self._etcd.wait_for_change(self._key("claim"), revision, self._lease_s)
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="state-claim", daemon=True)
            self._renewing.start()
        return True

    def _claim_once(self, after_own: bool = False) -> int:
        """Try to make the claim, and return etcd's revision. Raises ``EtcdError``.

        ``after_own``: succeed only if this process had the last claim."""
        began = time.monotonic()
        lease = self._etcd.grant(self._lease_s)
        free = [_compare(self._key("claim"), pb.Compare.CREATE, create_revision=0)]
        if after_own:
            free.append(_compare(self._key("claimed"), pb.Compare.VALUE, value=self._id))
        claim = json.dumps({"holder": self._holder}).encode()
        reply = self._etcd.transaction(
            free, [_put(self._key("claim"), claim, lease), _put(self._key("claimed"), self._id)]
        )
        if reply.succeeded:
            self._lease, self._created, self._valid_until = lease, reply.header.revision, began + self._lease_s
        else:
            with suppress(EtcdError):
                self._etcd.revoke(lease)
        return reply.header.revision

    def _renew(self) -> None:
        """Renew the lease until ``close``. A claim that ended is made again unless another process had one since."""
        while not self._stopping.wait(self._lease_s / RENEWALS):
            began = time.monotonic()
            try:
                if self._etcd.renew(self._lease):
                    self._valid_until = began + self._lease_s
                    self._has_standby = bool(self._etcd.keys(self._key("standby", ""))[0])
                    continue
                self._claim_once(after_own=True)
            except EtcdError as error:
                log.warning("the claim of the state cannot be renewed", why=str(error))
                continue
            if not self.is_claimed:
                self._lost()
                return
            log.warning("the claim of the state had ended, and was made again")

    def owner(self) -> str:
        try:
            found = self._etcd.get(self._key("claim"))
        except EtcdError:
            return "unknown"
        return str(json.loads(found.value)["holder"]) if found else "unknown"

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        name, stopping = self._key("standby", self._id.decode()), threading.Event()

        def show() -> None:
            lease = 0
            while not stopping.is_set():
                with suppress(EtcdError):
                    if not lease or not self._etcd.renew(lease):
                        lease = self._etcd.grant(self._lease_s)
                        self._etcd.transaction([], [_put(name, self._holder.encode(), lease)])
                stopping.wait(self._lease_s / RENEWALS)
            with suppress(EtcdError):
                self._etcd.revoke(lease)

        thread = threading.Thread(target=show, name="standby", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def has_standby(self) -> bool:
        """Return whether another controller waited when the lease was last renewed, without a call to etcd."""
        return self._has_standby

    # ---- loading

    def load(self) -> SavedState:
        if not self.claim():
            who = f"another controller uses {self._where} ({self.owner()})"
            raise InvalidInput.of("store", f"{who}; stop it, or start with --standby to take over when it ends")
        try:
            self._complete()
            saved = self._read()
        except EtcdError as error:
            raise self._cannot(error) from None
        log.info("state read", revision=saved.revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        try:
            return self._read()
        except EtcdError as error:
            raise self._cannot(error) from None

    def _read(self) -> SavedState:
        """Return the state. Raises ``EtcdError`` and ``InvalidInput``."""
        self._texts, revision, form = self._texts_now()
        if form != FORMAT:
            raise InvalidInput.of("store", f"{self._where} has format {form}; this version reads format {FORMAT}")
        begin = len(self._key("record", ""))
        try:
            records = [(_record(name[begin:].decode()), text.decode()) for name, text in self._texts.items()]
            return replace(decode(records), revision=revision)
        except ValueError as error:
            raise InvalidInput.of("store", f"the state in {self._where} cannot be read: {error}") from None

    def _texts_now(self) -> tuple[dict[bytes, bytes], int, int]:
        """Return the records with all valid commits, etcd's revision, and the format. Raises ``EtcdError``."""
        keys, revision = self._etcd.keys(self._root)
        found = {each.key: each.value for each in keys}
        texts = {name: text for name, text in found.items() if name.startswith(self._key("record", ""))}
        if self._key("valid") in found:
            for name, text in found.items():  # in the order of their keys
                if name.startswith(self._key("part", "")):
                    for operation in pb.TxnRequest.FromString(text).success:
                        if operation.HasField("request_put"):
                            texts[operation.request_put.key] = operation.request_put.value
                        else:
                            texts.pop(operation.request_delete_range.key, None)
        return texts, revision, int(found.get(self._key("format"), FORMAT))

    def secret(self, in_use: bool) -> bytes:
        """Return the secret of lease tokens, which is made when there is none and none is ``in_use``."""
        name = self._key("lease-secret")
        try:
            if not (found := self._etcd.get(name)):
                if in_use:
                    why = "is missing, and jobs are registered whose owners could not renew them without it"
                    raise InvalidInput.of("store", f"the secret of lease tokens {why} ({self._where})")
                self._etcd.transaction([self._fence()], [_put(name, secrets.token_bytes(SECRET_BYTES))])
                found = self._etcd.get(name)
        except EtcdError as error:
            raise self._cannot(error) from None
        if not found or len(found.value) != SECRET_BYTES:
            raise InvalidInput.of("store", f"the secret of lease tokens is damaged ({self._where})")
        return found.value

    # ---- commits

    def raise_epoch(self, above: int) -> None:
        refuse_above(above)
        self.load()
        try:
            self._fenced([_put(self._key("epoch"), str(above + 1).encode())])
        except EtcdError as error:
            raise self._cannot(error) from None

    def begin(self, lost: Callable[[], None] = lambda: None) -> int:
        self._lost = lost
        try:
            base = self._etcd.get(self._key("epoch"))
            first = int(base.value) if base else epoch_at(time.time())
            written = self._etcd.transaction(
                [self._fence()],
                [_put(self._key("format"), str(FORMAT).encode()), _put(self._key("epoch"), str(first).encode())],
            )
        except EtcdError as error:
            raise self._cannot(error) from None
        if not written.succeeded:
            raise InvalidInput.of("store", f"another controller has claimed {self._where} meanwhile")
        self._commits = CommitQueue(self._write)
        return first + self._created

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        assert self._commits, "begin() comes first"
        self._commits.put(changes, done)

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()
            self._commits = None
        self._stopping.set()
        if self._renewing is not None:
            self._renewing.join()
        if self.is_claimed:
            self._valid_until = 0.0
            with suppress(EtcdError):
                self._etcd.revoke(self._lease)
        self._etcd.close()

    def _write(self, commits: Sequence[ChangedRecords]) -> int | OSError:
        wanted: dict[bytes, bytes | None] = {}
        for changed in commits:
            for key, value in changed.items():
                wanted[self._key("record", key.kind, key.key)] = None if value is None else encode(key, value).encode()
        if not self.is_claimed:
            return OSError("etcd does not answer, so that this controller may have lost its claim of the state")
        try:
            if self._in_doubt:
                self._undo()
            if self._is_incomplete:
                self._complete()
            revision = self._put_all(wanted)
        except EtcdError as error:
            self._in_doubt = True
            return OSError(str(error))
        self._texts |= {name: text for name, text in wanted.items() if text is not None}
        for name, text in wanted.items():
            if text is None:
                self._texts.pop(name, None)
        return revision

    def _undo(self) -> None:
        """Bring etcd back to the last commit that was reported as written. Raises ``EtcdError``."""
        self._complete()
        found, _, _ = self._texts_now()
        back: dict[bytes, bytes | None] = {name: text for name, text in self._texts.items() if found.get(name) != text}
        self._put_all(back | dict.fromkeys(found.keys() - self._texts.keys()))
        self._in_doubt = False

    def _put_all(self, texts: Texts) -> int:
        """Write the texts, all or none, and return etcd's revision. Raises ``EtcdError``."""
        parts = list(_parts(texts))
        if len(parts) <= 1:
            return self._fenced(parts[0] if parts else [_put(self._key("touched"), b"")])
        for number, part in enumerate(parts):
            self._fenced([_put(self._key("part", f"{number:06}"), pb.TxnRequest(success=part).SerializeToString())])
        revision = self._fenced([_put(self._key("valid"), str(len(parts)).encode())])
        self._is_incomplete = True
        with suppress(EtcdError):
            return self._complete()
        return revision  # the next write applies the parts

    def _complete(self) -> int:
        """Apply the parts of a valid commit, delete all parts, and return etcd's revision. Raises ``EtcdError``."""
        parts, revision = self._etcd.keys(self._key("part", ""))
        if self._etcd.get(self._key("valid")):
            for part in parts:
                revision = self._fenced(pb.TxnRequest.FromString(part.value).success)
        if parts:
            of_all = pb.DeleteRangeRequest(key=self._key("part", ""), range_end=self._key("part0"))
            revision = self._fenced([_delete(self._key("valid")), pb.RequestOp(request_delete_range=of_all)])
        self._is_incomplete = False
        return revision

    def _fenced(self, operations: Sequence[pb.RequestOp]) -> int:
        """Carry out the operations if the claim still exists, and return etcd's revision. Raises ``EtcdError``."""
        reply = self._etcd.transaction([self._fence()], operations)
        if not reply.succeeded:
            raise EtcdError("the claim of the state has ended", None)
        return reply.header.revision

    def _fence(self) -> pb.Compare:
        return _compare(self._key("claim"), pb.Compare.CREATE, create_revision=self._created)

    def _cannot(self, error: EtcdError) -> InvalidInput:
        return InvalidInput.of("store", f"{self._where}: {error}")


def _parts(texts: Texts) -> Iterator[list[pb.RequestOp]]:
    """Divide the writes into requests that etcd accepts."""
    part: list[pb.RequestOp] = []
    size = 0
    for name, text in texts.items():
        more = len(name) + len(text or b"")
        if part and (len(part) == MOST_RECORDS or size + more > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(_delete(name) if text is None else _put(name, text))
        size += more
    if part:
        yield part


def _record(name: str) -> Key:
    kind, _, key = name.partition("/")
    return Key(Kind(kind), key)


def _put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def _delete(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))


def _compare(
    key: bytes, target: pb.Compare.CompareTarget, *, create_revision: int = 0, value: bytes = b""
) -> pb.Compare:
    compare = pb.Compare(result=pb.Compare.EQUAL, target=target, key=key)
    if target == pb.Compare.CREATE:
        compare.create_revision = create_revision
    else:
        compare.value = value
    return compare
