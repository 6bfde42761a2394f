"""Commits to the state in etcd. A commit is made as a whole or not at all.

In: texts of records. Out: etcd's revision with these records, or an error.

Every write requires that the claim has this process's value. Every write of records also changes the key ``commit``.
The write requires that the key still has the last revision that this process knows. So etcd refuses a delayed copy of
an earlier write, and the first write after etcd was restored.

A commit that is too large for one request is first written in parts, to keys of their own. A single request then makes
the commit valid, by writing its id and the number of its parts to ``commit``. After that, the parts are applied to the
records. If the controller ends meanwhile, the next controller with the claim applies the parts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from controller.store.etcd_client import START_S, Etcd, EtcdError
from controller.store.etcd_contents import Contents, Texts, compressed, contents, name_of_part, names, parts, values
from controller.store.etcd_operations import Operations, delete_range, key, put, was_changed
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.records import Key

log = structlog.get_logger(__name__)


class _Changed(EtcdError):
    """etcd has refused a write, because another writer has changed the key ``commit`` since this process last did."""


class EtcdCommits:
    """Commits below ``root``. Only one thread at a time may call the methods.

    ``fence``: comparison in etcd that is true while this process has the claim. ``refuse_lost``: raises ``EtcdError``
    if the claim has ended."""

    def __init__(self, etcd: Etcd, root: bytes, fence: pb.Compare, refuse_lost: Callable[[], None]) -> None:
        self._etcd = etcd
        self._root = root
        self._fence = fence
        self._refuse_lost = refuse_lost
        self.texts: dict[bytes, bytes] = {}
        """Values of the keys of all records, after all commits that were reported as written."""
        self._commit = 0
        """Last known revision of the key ``commit``; 0 if there is none."""
        self._in_doubt = False
        """Whether the records in etcd may differ from ``texts``, or there may be parts that are not applied."""

    def read(self) -> Contents:
        """Return the state in etcd. Raises ``EtcdError`` and ``Malformed``.

        Keys below ``members/`` are not read, because they do not belong to the state. Other users of etcd may be
        allowed to write them, and could write so many that reading them takes too long."""
        keys, revision = self._etcd.keys(self._root, START_S, without=key(self._root, "members", ""))
        return contents(self._root, keys, revision)

    def adopt(self, found: Contents) -> None:
        """Use these contents as the saved state.

        Apply the parts of an earlier controller's commit that are not applied yet. Raises ``EtcdError``."""
        self._recover(found)
        self.texts = found.texts

    def write(self, changes: Mapping[Key, str | None], others: Mapping[bytes, bytes] | None = None) -> int:
        """Write records, all or none, and return etcd's revision. Raises ``EtcdError`` and ``Malformed``.

        ``changes``: text by record; None removes a record. ``others``: values of further keys to write in the same
        commit."""
        wanted: dict[bytes, bytes | None] = {}
        for record, text in changes.items():
            wanted |= dict.fromkeys(names(self._root, record, self.texts))
            wanted |= values(self._root, record, text) if text is not None else {}
        together: Texts = {**wanted, **(others or {})}
        was_in_doubt, self._in_doubt = self._in_doubt, True  # also if there is an exception
        if was_in_doubt:
            self._undo()
        try:
            revision, is_applied = self._put_all(together)
        except _Changed:
            self._undo()
            revision, is_applied = self._put_all(together)
        self._in_doubt = not is_applied
        self.texts |= {name: text for name, text in wanted.items() if text is not None}
        for name in (name for name, value in wanted.items() if value is None):
            self.texts.pop(name, None)
        return revision

    def settle(self, within_s: float) -> None:
        """Write the saved records again if etcd has been restored from a snapshot since the last commit.

        Raises ``EtcdError`` and ``Malformed``."""
        found = self._etcd.get(key(self._root, "commit"), within_s)
        if (found.mod_revision if found else 0) != self._commit:
            self.write({})

    def _undo(self) -> None:
        """Restore the records in etcd to ``texts``. Raises ``EtcdError`` and ``Malformed``."""
        found = self.read()
        self._recover(found)
        back: dict[bytes, bytes | None] = {
            name: text for name, text in self.texts.items() if found.texts.get(name) != text
        }
        back |= dict.fromkeys(found.texts.keys() - self.texts.keys())
        if back:
            log.warning("records in etcd differ from the saved records, and are written again", count=len(back))
            if not self._put_all(back)[1]:
                raise EtcdError("parts of a commit are not applied yet", None)

    def _put_all(self, texts: Texts) -> tuple[int, bool]:
        """Write the texts, all or none; return etcd's revision, and whether all parts are applied.

        Raises ``EtcdError``."""
        of_all = list(parts(texts))
        commit_id = secrets.token_hex(8)
        if len(of_all) <= 1:
            return self._change(commit_id, of_all[0] if of_all else ()), True
        for number, part in enumerate(of_all):
            text = compressed(pb.TxnRequest(success=part).SerializeToString())
            self._fenced([put(key(self._root, name_of_part(commit_id, number)), text)])
        revision = self._change(commit_id, count=len(of_all))
        with suppress(EtcdError):
            return self._apply(of_all), True
        return revision, False  # the next write applies the parts

    def _recover(self, found: Contents) -> None:
        """Apply the parts of a valid commit, and delete the parts of other commits. Raises ``EtcdError``."""
        self._commit = found.commit
        if found.has_parts:
            self._apply(found.parts)

    def _apply(self, of_all: Sequence[Operations]) -> int:
        """Apply the parts of the valid commit, delete all parts, and return etcd's revision. Raises ``EtcdError``."""
        for part in of_all:
            self._fenced(part)
        return self._change(secrets.token_hex(8), [delete_range(key(self._root, "part/"), key(self._root, "part0"))])

    def _change(self, commit_id: str, operations: Operations = (), count: int = 0) -> int:
        """Carry out the operations as the next commit, and return etcd's revision. Raises ``EtcdError``.

        ``count``: number of the commit's parts."""
        name, value = key(self._root, "commit"), json.dumps({"id": commit_id, "parts": count}).encode()
        try:
            self._commit = self._fenced([*operations, put(name, value)])
        except _Changed:
            found = self._etcd.get(name)
            if found is None or found.value != value:
                raise
            self._commit = found.mod_revision  # a copy of the request was carried out
        return self._commit

    def _fenced(self, operations: Operations) -> int:
        """Carry out the operations in one transaction, and return etcd's revision.

        etcd refuses them if this process has lost the claim, or if the revision of the key ``commit`` is not
        ``_commit``. Raises ``EtcdError``."""
        is_last = was_changed(key(self._root, "commit"), self._commit)
        reply = self._etcd.transaction([self._fence, is_last], operations)
        if reply.succeeded:
            return reply.header.revision
        self._refuse_lost()
        raise _Changed("the state in etcd has changed since the last commit", None)
