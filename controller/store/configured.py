"""Choice of the store: a database in the state directory, etcd, or none."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version

from controller.config import Config, EtcdConfig
from controller.jobs.messages import SavedState
from controller.store import lease_secret
from controller.store.assignment import Holder
from controller.store.etcd_assignments import EtcdAssignments
from controller.store.etcd_client import EtcdAccess
from controller.store.etcd_members import EtcdMembership
from controller.store.etcd_store import EtcdStore
from controller.store.members import LINK_FORMATS, Member
from controller.store.records import FORMAT, ChangedRecords, Written
from controller.store.sqlite_store import FILE, SqliteStore
from controller.store.store import Done, Store, epoch_at
from signalbox.credentials import client_problems
from signalbox.errors import InvalidInput
from signalbox.files import of_another_user, open_to_others

STATE_FILES = (FILE, lease_secret.FILE)
"""Files of the store in the state directory, which only their owner may read."""


class NothingSaved:
    """``Store`` of a controller without ``state_dir``, which saves nothing, and reports each commit as done."""

    is_claimed = True
    where = "no state_dir"
    events = None

    def claim(self, wait: bool = False) -> bool:  # noqa: ARG002
        return True

    def owner(self) -> str:
        return "none"

    def standing_by(self) -> AbstractContextManager[None]:
        return nullcontext()

    def has_standby(self) -> bool:
        return False

    def load(self) -> SavedState:
        return SavedState()

    look = load

    def secret(self, in_use: bool) -> None:
        pass

    def raise_epoch(self, above: int) -> None:  # noqa: ARG002
        raise InvalidInput.of("state_dir", "is missing; without it, the clock alone determines generation ids")

    def written(self) -> Written:
        raise InvalidInput.of("state_dir", "is missing, so no state is saved")

    def drop(self, job_ids: Iterable[str]) -> int:  # noqa: ARG002
        return self.written().revision

    def replace(self, state: SavedState, secret: bytes, above: int) -> None:  # noqa: ARG002
        self.written()

    def begin(self, lost: Callable[[], None]) -> int:  # noqa: ARG002
        return epoch_at(time.time())

    def commit(self, changes: ChangedRecords, done: Done) -> None:  # noqa: ARG002
        done(0)

    def close(self) -> None:
        pass


def store_of(config: Config) -> Store:
    """Return the store that the configuration names. The call makes no connection and changes nothing.

    Raises ``InvalidInput`` for an invalid file in the section ``etcd``."""
    if config.etcd_endpoints:
        etcd, access = config.etcd, _access(config.etcd_endpoints, config.etcd)
        return EtcdStore(access, etcd.prefix, etcd.lease_s, _member_name(config), config.members.api or "")
    return SqliteStore(config.state_dir) if config.state_dir else NothingSaved()


def prepare_access(
    store: Store,
    config: Config,
    membership: EtcdMembership | None = None,
    assignments: EtcdAssignments | None = None,
) -> Callable[[], None]:
    """Read the files of the section ``etcd`` again, and return a function that puts their contents to use.

    The files are, for example, certificates. The function passes their contents to the store, the membership and the
    assignments, for all later calls of etcd. Raises ``InvalidInput`` for an invalid file, and if etcd does not accept
    the new contents."""
    if not isinstance(store, EtcdStore):
        return lambda: None
    access = _access(config.etcd_endpoints, config.etcd)
    use = store.prepare(access)

    def take() -> None:
        use()
        if membership:
            membership.use(access)
        if assignments:
            assignments.use(access)

    return take


def membership_of(config: Config, store: Store) -> EtcdMembership | None:
    """Return the membership of the controller that uses the store; None if the state is not in etcd.

    Raises ``InvalidInput`` for an invalid file in the section ``etcd``."""
    if not isinstance(store, EtcdStore):
        return None
    installed = version("signalbox-controller")
    own = Member(store.id, _member_name(config), config.members.api or "", installed, time.time(), FORMAT, LINK_FORMATS)
    access = _access(config.etcd_endpoints, config.etcd)
    return EtcdMembership(access, config.etcd.prefix, config.etcd.lease_s, own, store.fence())


def assignments_of(
    config: Config, store: Store, membership: EtcdMembership | None
) -> tuple[EtcdAssignments, Callable[[], int]] | None:
    """Return the assignments of switches to members, and a function that returns the base of generation ids.

    The base is a number that is added to a revision of etcd; the function can be called after the state was loaded.
    Returns None if only the leader is master of switches: the members then have no assignments.

    Raises ``InvalidInput`` for an invalid file in the section ``etcd``."""
    if not isinstance(store, EtcdStore) or membership is None or not config.members.api:
        return None
    own = Holder(membership.own.name, membership.own.id)
    access = _access(config.etcd_endpoints, config.etcd)
    assignments = EtcdAssignments(access, config.etcd.prefix, own, membership.is_live, store.fence())
    return assignments, lambda: store.base


def _member_name(config: Config) -> str:
    return config.members.name or socket.gethostname()


def _access(endpoints: tuple[str, ...], etcd: EtcdConfig) -> EtcdAccess:
    if etcd.ca_certificates:
        names = "etcd.ca_certificates", "etcd.certificate", "etcd.private_key"
        InvalidInput.refuse(client_problems(etcd.ca_certificates, etcd.certificate, etcd.private_key, names))
    texts = {}
    for name in ("ca_certificates", "certificate", "private_key", "password_file"):
        if path := getattr(etcd, name):
            try:
                texts[name] = path.read_bytes()
                secret = name in ("private_key", "password_file")
                problem = (of_another_user(path) or open_to_others(path)) if secret else None
            except OSError as error:
                problem = error.strerror or str(error)
            if problem:
                raise InvalidInput.of(f"etcd.{name}", f"{path}: {problem}")
    try:
        password = texts.pop("password_file", b"").decode().rstrip("\n")
    except ValueError:
        raise InvalidInput.of("etcd.password_file", f"{etcd.password_file} is not text in UTF-8") from None
    return EtcdAccess(endpoints, **texts, user=etcd.user, password=password)
