"""``Store`` in etcd, for controllers on several machines: one of them is active, the others stand by.

In etcd, below a prefix, are one key per record, the secret of lease tokens, and the claim: a key with a lease, which
ends when its controller does not renew it. Every write demands that the claim still has this process's value, so a
controller whose claim has ended writes nothing. The claim is valid until a local time that was computed before the
lease was last renewed; after that time this controller makes no change, even if etcd does not answer.

Every write of records also demands that the key ``commit`` is as this process knows it, and puts a new value there. So
etcd refuses a copy of an earlier write that a slow member still has, and the first write after etcd was restored.

A commit that is too large for one request is first written in parts, below keys of their own. A single request then
makes it valid: it writes the commit's id and the number of its parts to ``commit``. Only after that are the records
changed, part by part. If the controller ends meanwhile, the next one that gets the claim applies the parts.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, TypeGuard

import structlog
from google.protobuf.message import DecodeError

from controller.jobs.messages import SavedState
from controller.log_limit import LimitedLog
from controller.store.commit_queue import CommitQueue
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.records import FORMAT, ChangedRecords, Key, Kind, decode, encode
from controller.store.store import LARGEST_EPOCH, Done, epoch_at, refuse_above
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=60)

MOST_RECORDS = 100
MOST_BYTES = 1_000_000
"""Largest number of records and bytes in one request; etcd refuses 128 operations and 1.5 MB by default."""

RENEWALS = 3
"""Number of renewals within the duration of a lease."""

MOST_DIGITS = 19
"""Largest number of digits of a number in etcd."""

LEAST_QUICK_S = 0.3
"""Shortest time in seconds that a call for the claim may take at one endpoint."""

COMPRESSED_BYTES = 1 << 16
"""Size above which values are compressed. A compressed value begins with ``COMPRESSED``."""

COMPRESSED = b"x"
"""First byte of the output of zlib; neither JSON nor a part begins with it."""

SECRET_BYTES = 32

Texts = Mapping[bytes, bytes | None]
"""Values of keys; None for a key that is deleted."""

Part = Sequence[pb.RequestOp]
"""Operations of one request."""


class _Changed(EtcdError):
    """A write was refused because ``commit`` has another value than this process knows."""


class _Found(NamedTuple):
    """Contents of etcd at ``revision``."""

    texts: dict[bytes, bytes]
    """Values of all records, with the valid commit."""
    commit: int
    """Revision of the key ``commit``; 0 if there is none."""
    parts: list[Part]
    """Parts of the valid commit, which may not be applied yet."""
    has_parts: bool
    """Whether there are parts of any commit."""
    revision: int


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
        self._claim = json.dumps({"holder": self._holder, "id": self._id.decode()}).encode()
        """Value of the key ``claim`` while this process has the claim."""
        self._quick_s = max(LEAST_QUICK_S, lease_s / 6)
        """Longest time in seconds of a call for the claim, so that a silent member does not end the lease."""
        self._lease = 0
        self._created = 0
        """Revision of etcd at which the claim was made, for the epoch; 0 without a claim."""
        self._valid_until = 0.0
        """Monotonic time until which the claim exists for certain."""
        self._has_ended = False
        """Whether another process has claimed the state after this one."""
        self._has_answered = False
        self._stopping = threading.Event()
        self._check = threading.Event()
        """Ends the pause before the next renewal."""
        self._renewing: threading.Thread | None = None
        self._has_standby = False
        self._commits: CommitQueue | None = None
        self._texts: dict[bytes, bytes] = {}
        """Values of all records after the commits that were reported as written."""
        self._commit = 0
        """Last known revision of the key ``commit``; 0 if there is none."""
        self._has_loaded = False
        self._in_doubt = False
        """Whether etcd may have other records than ``_texts``, or parts that are not applied."""
        self._lost: Callable[[], None] = lambda: None

    def _key(self, *names: str) -> bytes:
        return self._root + "/".join(names).encode()

    # ---- the claim

    @property
    def is_claimed(self) -> bool:
        return time.monotonic() < self._valid_until

    def claim(self, wait: bool = False) -> bool:
        if self._renewing is not None:
            if not self.is_claimed:
                raise self._ended() if self._has_ended else self._cannot(EtcdError("etcd does not answer", None))
            return True
        while not self.is_claimed:
            try:
                is_made, revision = self._claim_once()
            except EtcdError as error:
                if not wait or not (self._has_answered or error.no_answer):
                    raise self._cannot(error) from None
                limited_log.warning("the state cannot be claimed yet", why=str(error))
                time.sleep(self._lease_s / RENEWALS)
                continue
            self._has_answered = True
            if is_made:
                continue
            if not wait:
                return False
            self._etcd.wait_for_change(self._key("claim"), revision, self._lease_s)
        self._renewing = threading.Thread(target=self._renew, name="state-claim", daemon=True)
        self._renewing.start()
        return True

    def _claim_once(self, after_own: bool = False) -> tuple[bool, int]:
        """Try to make the claim; return whether this process has it, and etcd's revision. Raises ``EtcdError``.

        ``after_own``: succeed only if this process had the last claim."""
        within_s = max(self._quick_s, self._lease_s / 2)
        began = time.monotonic()
        lease = self._etcd.grant(self._lease_s, within_s)
        free = [_was_created(self._key("claim"), 0)]
        if after_own:
            free.append(_has_value(self._key("claimed"), self._id))
        reply = self._etcd.transaction(
            free,
            [_put(self._key("claim"), self._claim, lease), _put(self._key("claimed"), self._id)],
            within_s=within_s,
        )
        if reply.succeeded:
            self._lease, self._created, self._valid_until = lease, reply.header.revision, began + self._lease_s
            return True, reply.header.revision
        found = self._etcd.get(self._key("claim"), within_s)
        if self._is_own(found):
            self._adopt(found)
            return True, reply.header.revision
        with suppress(EtcdError):
            self._etcd.revoke(lease)
        return False, reply.header.revision

    def _is_own(self, claim: pb.KeyValue | None) -> TypeGuard[pb.KeyValue]:
        return claim is not None and claim.value == self._claim

    def _adopt(self, claim: pb.KeyValue) -> None:
        """Use this process's claim, whose request may have had no answer. Raises ``EtcdError``."""
        self._lease, self._created = claim.lease, claim.create_revision
        began = time.monotonic()
        if self._etcd.renew(self._lease, self._quick_s):
            self._valid_until = began + self._lease_s

    def _renew(self) -> None:
        """Renew the lease until ``close``. A claim that ended is made again unless another process had one since."""
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
                with suppress(EtcdError):
                    self._has_standby = bool(self._etcd.keys(self._key("standby", ""), self._quick_s)[0])
            except EtcdError as error:
                pause, why = self._quick_s, str(error)
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
        """Renew the lease or make the claim again; return False if this process has lost it. Raises ``EtcdError``."""
        began = time.monotonic()
        is_alive = self._etcd.renew(self._lease, self._quick_s)
        found = self._etcd.get(self._key("claim"), self._quick_s)
        if self._is_own(found):
            if found.lease != self._lease:
                self._adopt(found)
            elif is_alive:
                self._valid_until = began + self._lease_s
            return True
        if found or not self._claim_once(after_own=True)[0]:
            return False
        log.warning("the claim of the state had ended, and was made again")
        return True

    def owner(self) -> str:
        try:
            found = self._etcd.get(self._key("claim"))
        except EtcdError:
            return "unknown"
        try:
            return str(json.loads(found.value)["holder"]) if found else "unknown"
        except (ValueError, TypeError, KeyError):
            return "unknown"

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
            found = self._found()
            saved = self._state(found)
            self._recover(found)
        except EtcdError as error:
            raise self._cannot(error) from None
        self._texts, self._has_loaded = found.texts, True
        log.info("state read", revision=saved.revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        try:
            return self._state(self._found())
        except EtcdError as error:
            raise self._cannot(error) from None

    def _state(self, found: _Found) -> SavedState:
        """Return the state in the records. Raises ``InvalidInput``."""
        begin = len(self._key("record", ""))
        try:
            records = [(_record(name[begin:].decode()), _expanded(text).decode()) for name, text in found.texts.items()]
            return replace(decode(records), revision=found.revision)
        except (ValueError, zlib.error) as error:
            raise InvalidInput.of("store", f"the state in {self._where} cannot be read: {error}") from None

    def _found(self) -> _Found:
        """Return the contents of etcd. Raises ``EtcdError``, and ``InvalidInput`` for values that are malformed."""
        keys, revision = self._etcd.keys(self._root)
        found = {each.key: each for each in keys}
        form = self._number("format", found.get(self._key("format")), FORMAT)
        if form != FORMAT:
            raise InvalidInput.of("store", f"{self._where} has format {form}; this version reads format {FORMAT}")
        texts = {name: each.value for name, each in found.items() if name.startswith(self._key("record", ""))}
        commit = found.get(self._key("commit"))
        parts = [self._part(name, found.get(name)) for name in self._names_of_parts(commit, len(found))]
        for operation in (operation for part in parts for operation in part):
            if operation.HasField("request_put"):
                texts[operation.request_put.key] = operation.request_put.value
            else:
                texts.pop(operation.request_delete_range.key, None)
        has_parts = any(name.startswith(self._key("part", "")) for name in found)
        return _Found(texts, commit.mod_revision if commit else 0, parts, has_parts, revision)

    def _names_of_parts(self, commit: pb.KeyValue | None, most: int) -> list[bytes]:
        """Return the keys of the parts of a valid commit. Raises ``InvalidInput``.

        ``most``: number of all keys."""
        if commit is None:
            return []
        try:
            data = json.loads(commit.value)
            commit_id, count = str(data["id"]), int(data["parts"])
            if not 0 <= count < most:
                raise ValueError
            return [self._part_name(commit_id, number) for number in range(count)]
        except (ValueError, TypeError, KeyError, OverflowError):
            raise self._malformed("commit", commit.value) from None

    def _part_name(self, commit_id: str, number: int) -> bytes:
        return self._key("part", commit_id, f"{number:06}")

    def _part(self, name: bytes, found: pb.KeyValue | None) -> Part:
        key = name[len(self._root) :].decode()
        if found is None:
            raise InvalidInput.of("store", f"the key {key} is missing, a part of the last commit ({self._where})")
        try:
            return pb.TxnRequest.FromString(_expanded(found.value)).success
        except (DecodeError, zlib.error):
            raise self._malformed(key, found.value) from None

    def _number(self, key: str, found: pb.KeyValue | None, default: int) -> int:
        """Return the number in a key, or the default if there is no key. Raises ``InvalidInput``."""
        if found is None:
            return default
        if not found.value.isdigit() or len(found.value) > MOST_DIGITS or int(found.value) > LARGEST_EPOCH:
            raise self._malformed(key, found.value)
        return int(found.value)

    def _malformed(self, key: str, value: bytes) -> InvalidInput:
        return InvalidInput.of("store", f"the key {key} has the malformed value {value[:40]!r} ({self._where})")

    def secret(self, in_use: bool) -> bytes:
        """Return the secret of lease tokens, which is made when there is none and none is ``in_use``."""
        name = self._key("lease-secret")
        try:
            if not (found := self._etcd.get(name)):
                if in_use:
                    why = "is missing, and jobs are registered whose owners could not renew them without it"
                    raise InvalidInput.of("store", f"the secret of lease tokens {why} ({self._where})")
                made = secrets.token_bytes(SECRET_BYTES)
                self._etcd.transaction([self._fence(), _was_created(name, 0)], [_put(name, made)])
                found = self._etcd.get(name)
        except EtcdError as error:
            raise self._cannot(error) from None
        if not found:
            raise self._ended()
        if len(found.value) != SECRET_BYTES:
            raise InvalidInput.of("store", f"the secret of lease tokens is damaged ({self._where})")
        return found.value

    # ---- commits

    def raise_epoch(self, above: int) -> None:
        refuse_above(above)
        self.load()
        try:
            self._fenced([_put(self._key("epoch"), str(max(above + 1, self._base_of_epochs())).encode())])
        except EtcdError as error:
            raise self._cannot(error) from None

    def _base_of_epochs(self) -> int:
        """Return the number below all epochs. Raises ``EtcdError`` and ``InvalidInput``."""
        return self._number("epoch", self._etcd.get(self._key("epoch")), epoch_at(time.time()))

    def begin(self, lost: Callable[[], None] = lambda: None) -> int:
        assert self._has_loaded, "load() comes first"
        self._lost = lost
        if self._has_ended:
            raise self._ended()
        try:
            first = self._base_of_epochs()
            written = self._etcd.transaction(
                [self._fence()],
                [_put(self._key("format"), str(FORMAT).encode()), _put(self._key("epoch"), str(first).encode())],
            )
        except EtcdError as error:
            raise self._cannot(error) from None
        if not written.succeeded:
            raise self._ended()
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
        self._check.set()
        if self._renewing is not None:
            self._renewing.join()
        self._valid_until = 0.0
        lease, self._lease = self._lease, 0
        if lease and not self._has_ended:
            with suppress(EtcdError):
                self._etcd.revoke(lease, self._quick_s)
        self._etcd.close()

    def _write(self, commits: Sequence[ChangedRecords]) -> int | OSError:
        if not self.is_claimed:
            return OSError("etcd does not answer, so that this controller may have lost its claim of the state")
        wanted: dict[bytes, bytes | None] = {}
        for changed in commits:
            for key, value in changed.items():
                text = None if value is None else _compressed(encode(key, value).encode())
                wanted[self._key("record", key.kind, key.key)] = text
        try:
            revision = self._write_all(wanted)
        except (EtcdError, InvalidInput) as error:
            return OSError(str(error))
        self._texts |= {name: text for name, text in wanted.items() if text is not None}
        for name, text in wanted.items():
            if text is None:
                self._texts.pop(name, None)
        return revision

    def _write_all(self, wanted: Texts) -> int:
        """Write the texts to etcd, which first gets all earlier commits. Raises ``EtcdError`` and ``InvalidInput``."""
        was_in_doubt, self._in_doubt = self._in_doubt, True  # also if there is an exception
        if was_in_doubt:
            self._undo()
        try:
            revision, is_applied = self._put_all(wanted)
        except _Changed:
            self._undo()
            revision, is_applied = self._put_all(wanted)
        self._in_doubt = not is_applied
        return revision

    def _undo(self) -> None:
        """Bring etcd back to the last commit that was reported as written.

        Raises ``EtcdError`` and ``InvalidInput``."""
        found = self._found()
        self._recover(found)
        back: dict[bytes, bytes | None] = {
            name: text for name, text in self._texts.items() if found.texts.get(name) != text
        }
        back |= dict.fromkeys(found.texts.keys() - self._texts.keys())
        if back:
            log.warning("records in etcd are not those that were saved, and are written again", count=len(back))
            if not self._put_all(back)[1]:
                raise EtcdError("parts of a commit are not applied yet", None)

    def _put_all(self, texts: Texts) -> tuple[int, bool]:
        """Write the texts, all or none; return etcd's revision, and whether all parts are applied.

        Raises ``EtcdError``."""
        parts = list(_parts(texts))
        commit_id = secrets.token_hex(8)
        if len(parts) <= 1:
            return self._change(commit_id, parts[0] if parts else ()), True
        for number, part in enumerate(parts):
            text = _compressed(pb.TxnRequest(success=part).SerializeToString())
            self._fenced([_put(self._part_name(commit_id, number), text)])
        revision = self._change(commit_id, parts=len(parts))
        with suppress(EtcdError):
            return self._apply(parts), True
        return revision, False  # the next write applies the parts

    def _recover(self, found: _Found) -> None:
        """Apply the parts of a valid commit, and delete those of others. Raises ``EtcdError``."""
        self._commit = found.commit
        if found.has_parts:
            self._apply(found.parts)

    def _apply(self, parts: Sequence[Part]) -> int:
        """Apply the parts of the valid commit, delete all parts, and return etcd's revision. Raises ``EtcdError``."""
        for part in parts:
            self._fenced(part)
        of_all = pb.DeleteRangeRequest(key=self._key("part", ""), range_end=self._key("part0"))
        return self._change(secrets.token_hex(8), [pb.RequestOp(request_delete_range=of_all)])

    def _change(self, commit_id: str, operations: Part = (), parts: int = 0) -> int:
        """Carry out the operations as the next commit, and return etcd's revision. Raises ``EtcdError``."""
        name, value = self._key("commit"), json.dumps({"id": commit_id, "parts": parts}).encode()
        try:
            self._commit = self._fenced([*operations, _put(name, value)])
        except _Changed:
            found = self._etcd.get(name)
            if found is None or found.value != value:
                raise
            self._commit = found.mod_revision  # a copy of the request was carried out
        return self._commit

    def _fenced(self, operations: Part) -> int:
        """Carry out the operations if claim and ``commit`` are as this process knows, and return etcd's revision.

        Raises ``EtcdError``."""
        is_last = pb.Compare(
            result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=self._key("commit"), mod_revision=self._commit
        )
        reply = self._etcd.transaction([self._fence(), is_last], operations)
        if reply.succeeded:
            return reply.header.revision
        if self._is_own(self._etcd.get(self._key("claim"))):
            raise _Changed("the state in etcd is not that of the last commit", None)
        self._valid_until = 0.0  # until the next renewal
        self._check.set()
        raise EtcdError("the claim of the state has ended", None)

    def _fence(self) -> pb.Compare:
        return _has_value(self._key("claim"), self._claim)

    def _ended(self) -> InvalidInput:
        return InvalidInput.of("store", f"another controller has claimed {self._where} meanwhile")

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


def _was_created(key: bytes, revision: int) -> pb.Compare:
    """Return the comparison that holds if the key was created at the revision; 0 for a key that does not exist."""
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=key, create_revision=revision)


def _has_value(key: bytes, value: bytes) -> pb.Compare:
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=value)


def _compressed(text: bytes) -> bytes:
    return zlib.compress(text) if len(text) > COMPRESSED_BYTES else text


def _expanded(value: bytes) -> bytes:
    """Return the text that ``_compressed`` has made a value of. Raises ``zlib.error``."""
    return zlib.decompress(value) if value.startswith(COMPRESSED) else value
