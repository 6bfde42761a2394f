"""What the API reads of files and SIGHUP replaces: its certificate and authorities, and who callers are.

In: the configuration. Out: what counts now, also before there is a server. One that runs is told of new identities.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from controller.api.certificates import Certificates
from controller.api.identities import Identities
from controller.config import ApiConfig
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)


class ApiFiles:
    """``identities``: None where no file names them. ``replaced``: called with each that takes their place, in the
    thread that does so. Raises ``InvalidInput`` for what cannot be read, as the two methods do."""

    def __init__(self, config: ApiConfig) -> None:
        self.certificates = Certificates(config.tls_files)
        self.identities = _identities(config.tokens)
        self.replaced: Callable[[Identities | None], None] = lambda _: None

    def prepare_certificates(self, config: ApiConfig) -> Callable[[], None]:
        """Reads the files; what is returned has new connections use them, from any thread."""
        return self.certificates.prepare(config.tls_files)

    def prepare_identities(self, config: ApiConfig) -> Callable[[], dict[str, object]]:
        """Reads the file; what is returned makes it count, from any thread, and returns what is different, for the
        log."""
        new, before = _identities(config.tokens), self.identities

        def take() -> dict[str, object]:
            self.identities = new
            self.replaced(new)
            return new.differences(before) if new and before else {}

        return take


def _identities(tokens: Path | None) -> Identities | None:
    if tokens is None:
        return None
    try:
        found = Identities.load(tokens)
    except InvalidInput as error:
        raise error.within("api.tokens") from None
    if found.quotas_for_nobody:
        log.warning("quotas for nobody", file=str(tokens), tenants=found.quotas_for_nobody)
    return found
