"""Assignments in etcd: which member is the holder of each switch, with the generation id of its claim.

docs/explanation/several-controllers.md#assignment describes the keys. The generation id of a switch is a base, which
never falls, plus the revision of the last change of the switch's key. So the generation id grows with each change. Only
the leader writes, and every write requires that it still has the claim of the state.

One thread watches the keys. The watch may be late. So another thread reads all keys every minute, after the watch has
failed, and when a switch waits to be claimed (``southbound.holding``).

A revision that has become smaller, of etcd or of a key, shows that etcd was restored and has old assignments again.
This member then claims no switch any more, and calls ``fail``, so that the process starts again with another id. The
revisions of keys are compared too, because writes after the restore may already have raised etcd's revision.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, NamedTuple, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field

from controller.fabric.topology import Dpid
from controller.log_limit import LimitedLog
from controller.store.assignment import Holder
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_contents import MOST_RECORDS
from controller.store.etcd_operations import delete, key, put, was_changed
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.store import LARGEST_EPOCH
from signalbox.errors import SignalboxError

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)

RECONCILE_S = 60.0
"""Seconds after which all keys are read again, and the watch is renewed."""
PAUSE_S = 0.5
"""Seconds between two attempts while etcd does not answer."""


class Assigned(NamedTuple):
    """Assignment of one switch."""

    holder: Holder
    generation: int
    """Generation id of the holder's claims."""
    revision: int
    """Revision of etcd at which the key was last changed."""


class EtcdAssignments:
    """Assignments below ``prefix``, kept up to date for the member ``own`` by two threads while the context lasts.

    ``is_live``: function that returns whether the lease of this member is valid. ``fence``: comparison in etcd that is
    true while this process has the claim of the state."""

    def __init__(
        self, access: EtcdAccess, prefix: str, own: Holder, is_live: Callable[[], bool], fence: pb.Compare
    ) -> None:
        self._etcd = Etcd(access)
        self._root = prefix.encode()
        self._prefix = key(self._root, "assign", "")
        self._own = own
        self._is_live = is_live
        self._fence = fence
        self._lock = threading.Lock()
        self._assigned: dict[Dpid, Assigned] = {}
        self._revision = 0
        self._complete = 0
        """Revision of etcd at the newest reading of all keys. A watch may report older changes later."""
        self._read_at = float("-inf")
        self._wanted = threading.Event()
        """Event that ends the pause before the next reading."""
        self._begun = threading.Event()
        """Event that begins the first watch, after the first reading."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"assignments-{name}", daemon=True)
            for name, run in (("read", self._read_always), ("watch", self._watch_always))
        ]
        self._restored = ""
        """Text that says how this process has noticed a restore of etcd from a snapshot; empty without a restore."""
        self.changed: Callable[[], None] = lambda: None
        """Function that a thread calls when the switches of this member, or their generation ids, have changed."""
        self.fail: Callable[[SignalboxError], None] = lambda _: None
        """Function that a thread calls once, when it notices that etcd was restored from a snapshot."""

    def __enter__(self) -> Self:
        self._wanted.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._wanted.set()
        self._begun.set()
        self._etcd.close()  # ends the calls of the threads
        for thread in self._threads:
            thread.join()

    def use(self, access: EtcdAccess) -> None:
        """Use this access to etcd for all later calls."""
        self._etcd.use(access)

    # ---- reading

    @property
    def newest(self) -> Mapping[Dpid, Assigned]:
        """Assignments of all switches, as far as they are known."""
        with self._lock:
            return dict(self._assigned)

    @property
    def is_read(self) -> bool:
        """Whether all assignments were read at least once."""
        return self._revision > 0

    def holders(self) -> dict[Dpid, Holder]:
        with self._lock:
            return {dpid: found.holder for dpid, found in self._assigned.items()}

    def is_assigned(self, holder: Holder, dpid: Dpid, generation: int) -> bool:
        """Return whether the member may have claimed the switch with this generation id, as far as this process knows.

        If the result is False, all keys are read again."""
        known = self._assigned.get(dpid)
        if known and (generation < known.generation or (generation, holder) == (known.generation, known.holder)):
            return True
        self._wanted.set()
        return False

    def generation(self, dpid: Dpid) -> int | None:
        found = self._assigned.get(dpid)
        return found.generation if found and found.holder == self._own else None

    def may_claim(self, dpid: Dpid, since: float) -> bool:  # noqa: ARG002
        if self._read_at > since:
            return self._is_live() and not self._restored
        self._wanted.set()
        return False

    # ---- writing

    def write(self, base: int, changes: Mapping[Dpid, Holder | None]) -> None:
        """Write new holders; None removes the assignment of a switch. Raises ``EtcdError``.

        ``base``: number to which revisions of etcd are added to make generation ids (``EtcdStore.base``). A key that
        has a larger base keeps it. If the call fails, a part of the changes may have been written."""
        changed = sorted(changes.items())
        for first in range(0, len(changed), MOST_RECORDS):
            self._write(base, changed[first : first + MOST_RECORDS])

    def _write(self, base: int, changes: Iterable[tuple[Dpid, Holder | None]]) -> None:
        compare, operations, bases = [self._fence], [], dict[Dpid, int]()
        for dpid, holder in changes:
            before = self._assigned.get(dpid)
            bases[dpid] = max(base, before.generation - before.revision if before else 0)
            compare.append(was_changed(self._key(dpid), before.revision if before else 0))
            value = (
                _Value(name=holder.name, id=holder.id, base=bases[dpid]).model_dump_json().encode() if holder else b""
            )
            operations.append(put(self._key(dpid), value) if holder else delete(self._key(dpid)))
        known = self._revision
        self._refuse_restored(known, known)
        reply = self._etcd.transaction(compare, operations)
        self._refuse_restored(known, reply.header.revision)
        if not reply.succeeded:
            self._wanted.set()
            raise EtcdError("the claim of the state has ended, or an assignment has changed meanwhile", None)
        revision = reply.header.revision
        found = {dpid: Assigned(one, bases[dpid] + revision, revision) if one else None for dpid, one in changes}
        self._take(found, revision)

    def _key(self, dpid: Dpid) -> bytes:
        return self._prefix + f"{dpid:016x}".encode()

    # ---- threads

    def _read_always(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait(RECONCILE_S)
            self._wanted.clear()
            try:
                self._read()
            except Exception as error:  # the channels may be closed at any time
                if not self._stopping.wait(PAUSE_S):
                    limited_log.warning("the assignments cannot be read from etcd", why=str(error) or repr(error))
                self._wanted.set()

    def _read(self) -> None:
        began, known, before = time.monotonic(), self._revision, self.newest
        keys, revision = self._etcd.keys(self._prefix)
        self._refuse_restored(known, revision)
        found: dict[Dpid, Assigned | None] = dict.fromkeys(self.newest)
        for each in keys:
            if (dpid := self._dpid(each.key)) is not None:
                found[dpid] = new = _assigned(each)
                self._refuse_restored(before[dpid].revision if dpid in before else 0, new.revision)
        self._take(found, revision, is_all=True)
        self._read_at = began
        self._begun.set()

    def _refuse_restored(self, known: int, revision: int) -> None:
        """Raise ``EtcdError`` if etcd was restored from a snapshot, which shows by a revision that has become smaller.

        ``known`` and ``revision``: an earlier and the present revision, both of etcd or both of the last change of one
        key. After a restore was noticed, every later call raises the error too."""
        if revision < known and not self._restored:
            self._restored = f"etcd was restored from a snapshot: revision {known} has become {revision}"
            self.fail(SignalboxError(f"{self._restored}; this controller must start again"))
        if self._restored:
            raise EtcdError(self._restored, None)

    def _watch_always(self) -> None:
        self._begun.wait()
        while not self._stopping.is_set():
            try:
                self._watch()
            except Exception as error:  # the channels may be closed at any time
                if not self._stopping.is_set():
                    limited_log.warning("the assignments cannot be watched in etcd", why=str(error) or repr(error))
                    self._wanted.set()
                    self._stopping.wait(PAUSE_S)

    def _watch(self) -> None:
        """Process all changes after the known revision as they occur, for ``RECONCILE_S``. Raises ``EtcdError``."""
        for events, revision in self._etcd.changes(self._prefix, self._revision, RECONCILE_S):
            for event in events:
                if (dpid := self._dpid(event.kv.key)) is not None:
                    new = _assigned(event.kv) if event.type == pb.Event.PUT else None
                    self._take({dpid: new}, event.kv.mod_revision)
            self._take({}, revision)
        self._wanted.set()  # also read what the watch may have missed

    def _take(self, found: Mapping[Dpid, Assigned | None], revision: int, is_all: bool = False) -> None:
        """Remember the assignments ``found`` in etcd at ``revision``, except where newer ones are known.

        None in ``found`` means that the switch has no assignment. ``is_all``: True if ``found`` has all keys, False if
        it is the change of one key."""
        with self._lock:
            own = False
            for dpid, new in found.items():
                before = self._assigned.get(dpid)
                at = new.revision if new else revision
                if new == before or at < (before.revision if before else 0) or (not is_all and at <= self._complete):
                    continue
                own = own or any(one and one.holder == self._own for one in (before, new))
                if new:
                    self._assigned[dpid] = new
                else:
                    del self._assigned[dpid]
            self._revision = max(self._revision, revision)
            if is_all:
                self._complete = max(self._complete, revision)
        if own:
            self.changed()

    def _dpid(self, name: bytes) -> Dpid | None:
        try:
            return Dpid(int(name.removeprefix(self._prefix), 16))
        except ValueError:
            return None


class _Value(BaseModel):
    """Value of a key. Fields that only newer versions know are ignored."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(max_length=300)]
    id: Annotated[str, Field(max_length=300)]
    base: Annotated[int, Field(ge=0, le=LARGEST_EPOCH)]


def _assigned(found: pb.KeyValue) -> Assigned:
    """Return the assignment in a key.

    If the value is malformed, the holder has an empty name and id, which no member has. The leader replaces such a
    value."""
    try:
        value = _Value.model_validate_json(found.value)
    except ValueError:
        return Assigned(Holder("", ""), 0, found.mod_revision)
    return Assigned(Holder(value.name, value.id), value.base + found.mod_revision, found.mod_revision)
