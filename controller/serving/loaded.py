"""Contents of all files other than the state: certificates, identities of callers, the inventory, settings.

A standby reads the files before it waits, so it can take over even if a file has become invalid meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from controller.api.files import ApiFiles, Certificates
from controller.config import Config
from controller.core.messages import NewSettings
from controller.observability import logs
from controller.planning.process import OnCrash, PlanningProcess, Put
from controller.serving import inventory, preflight
from controller.serving.reload import Prepare, TakeOver
from controller.serving.southbound_process import SouthboundProcess
from controller.serving.validity import CertificatesInUse
from controller.southbound.process_messages import NewFiles
from controller.status import StatusBoard
from controller.store.store import StateAway, Store
from controller.tls import TlsContext
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

Configure = Callable[[], None]


def _logging(config: Config) -> Configure:
    return partial(logs.configure, json=config.log.json_lines, level=config.log.level)


class Loaded:
    """Contents of the files.

    ``prepare``: functions to call at each SIGHUP. ``declared``: contents of the inventory. ``logging``: function that
    configures logging in any process. Raises ``InvalidInput`` for an invalid file."""

    def __init__(self, config: Config, board: StatusBoard) -> None:
        self.openflow_tls = TlsContext("openflow", config.openflow.tls_files)
        self.metrics_tls = TlsContext("metrics", config.metrics.tls_files)
        self.api = ApiFiles(config.api)
        self.members_tls = Certificates("members", config.members.tls_files)
        self.declared = inventory.load(config.fabric.inventory)
        self.logging = _logging(config)
        self._planning: PlanningProcess | None = None
        self.southbound: SouthboundProcess | None = None
        """Process of the southbound, to which changed settings are passed."""
        self._settings, self._settings_lock = config, threading.Lock()
        self._put: Callable[[NewSettings], None] | None = None
        board.planning_replaced = lambda: self._planning.replaced if self._planning else 0
        certificates = CertificatesInUse(config, board)
        self._waits_for: Store | None = None
        self.prepare: tuple[Prepare, ...] = (
            certificates.prepare,
            lambda new: self.openflow_tls.prepare(new.openflow.tls_files),
            lambda new: self.metrics_tls.prepare(new.metrics.tls_files),
            lambda new: self.api.certificates.prepare(new.api.tls_files),
            lambda new: self.members_tls.prepare(new.members.tls_files),
            lambda new: self.api.prepare_identities(new.api),
            self._prepare_inventory,
            self._check_saved,
            lambda new: partial(self._apply_logging, _logging(new)),
            lambda new: partial(self._tell_southbound, new),
            lambda new: partial(self._apply_settings, new),
        )

    def planning_process(self, put: Put, on_crash: OnCrash) -> PlanningProcess:
        """Return a new planning process, whose logging follows changed settings."""
        self._planning = PlanningProcess(put, on_crash, self.logging)
        return self._planning

    def controlling(self, put: Callable[[NewSettings], None]) -> Config:
        """Return the present settings for a new control loop. ``put``: called with all later settings."""
        with self._settings_lock:
            self._put = put
            return self._settings

    def _apply_settings(self, config: Config) -> None:
        with self._settings_lock:
            self._settings = config
            if self._put:
                self._put(NewSettings(config))

    def _apply_logging(self, configure: Configure) -> None:
        self.logging = configure
        configure()
        if self._planning:
            self._planning.configure(configure)

    def _tell_southbound(self, config: Config) -> None:
        if self.southbound:
            self.southbound.write(NewFiles(self.logging, config.openflow.tls_files))

    @contextmanager
    def waiting(self, store: Store) -> Iterator[None]:
        """Reload the inventory and check the saved state at each SIGHUP, while this process waits for ``store``.

        An active controller does neither, because it has already read both."""
        self._waits_for = store
        try:
            yield
        finally:
            self._waits_for = None

    def _prepare_inventory(self, config: Config) -> TakeOver:
        if self._waits_for is None:
            return lambda: None
        try:
            declared = inventory.load(config.fabric.inventory)
        except InvalidInput as error:
            raise error.within("fabric.inventory") from None
        return partial(setattr, self, "declared", declared)

    def _check_saved(self, config: Config) -> TakeOver:
        """Check that this controller could start with the saved state, unless it is about to read the state anyway.

        While etcd does not answer, nothing is checked; the controller checks the saved state when it can read it."""
        if self._waits_for and not self._waits_for.is_claimed:
            try:
                preflight.check_saved(config)
            except StateAway as away:
                log.warning("the saved jobs were not checked against the new settings", why=str(away))
        return lambda: None
