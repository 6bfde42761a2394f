"""TLS of the listeners: the controller's certificate, and the authorities that sign those of peers.

In: the files that the configuration names. Out: the context that new connections are wrapped in, or the problem of each
file. Imports no framework, so that a configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from controller.config import TlsFiles
from signalbox.certificate_files import CERTIFICATE, KEY, no_password, problem, refuse_open
from signalbox.errors import InvalidInput


class TlsContext:
    """Of one listener, named by its section of the configuration. ``current``: for new connections, None without TLS.
    Raises ``InvalidInput`` like ``server_context``."""

    def __init__(self, section: str, files: TlsFiles | None) -> None:
        self._section = section
        self.current = server_context(section, files)

    def prepare(self, files: TlsFiles | None) -> Callable[[], None]:
        """Reads the files; what is returned has new connections use them, from any thread."""
        return partial(setattr, self, "current", server_context(self._section, files))


def server_context(section: str, files: TlsFiles | None) -> ssl.SSLContext | None:
    """None without files. With authorities peers must show a certificate that one of them signed; names in it are not
    compared here. Raises ``InvalidInput`` with the problem of every file."""
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    problems = []
    if files.ca_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        where = f"{section}.ca_certificates"
        problems.append(problem(where, CERTIFICATE, files.ca_certificates, context.load_verify_locations))
    # Loading it as an authority checks a certificate without its key.
    where = f"{section}.certificate"
    problems.append(problem(where, CERTIFICATE, files.certificate, scratch.load_verify_locations))
    problems.append(problem(f"{section}.private_key", KEY, files.private_key, refuse_open))
    if not any(problems):
        load_key = partial(context.load_cert_chain, files.certificate, password=no_password)
        problems.append(problem(f"{section}.private_key", KEY, files.private_key, load_key))
    InvalidInput.refuse(filter(None, problems))
    return context
