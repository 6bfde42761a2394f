"""``signalbox support-bundle``: collects facts about a controller for a ticket, in one file without secrets.

In: the controller, and the files that the operator names. Out: a ``tar.gz`` that only its owner can read, and that
names the parts that could not be collected. It contains no file with a key, a token or a lease token, and
``without_secrets`` filters all other text.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import ssl
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import typer

from controller import config as configuration
from controller.api.identities import TOKEN_PREFIX
from controller.config import Config, MetricsConfig
from signalbox.client import Client
from signalbox.commands.connecting import ControllerCommand, connect, given_connection
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import fields, waiting
from signalbox.credentials import Credentials
from signalbox.distributions import installed
from signalbox.errors import SignalboxError
from signalbox.files import write

commands = typer.Typer()

LOG_BYTES = 8 << 20
"""Number of bytes at the end of a log that are included."""
SCRAPE_S = 10.0
FOLDER = "signalbox"
"""Folder inside the bundle."""
REMOVED = "[removed]"

_SECRETS = (
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL),
    re.compile(r"(?i)(\bbearer\s+)[^\s\"']+"),
    re.compile(rf"()\b{TOKEN_PREFIX}[\w-]+"),
    re.compile(r"()\b[\w-]+\.[A-Za-z0-9_-]{43}(?![\w-])"),  # a lease token: uid and MAC
    re.compile(r"(?i)((?:token|request_id|password|secret)[\"']?\s*[=:]\s*[\"']?)[^\s\"',}]+"),
)
"""Patterns of secrets. A match is removed, except its first group."""

Part = tuple[str, Callable[[], str]]
"""Name of a file in the bundle, and function that returns its text, or raises ``SignalboxError`` or ``OSError``."""


@commands.command("support-bundle", cls=ControllerCommand)
def support_bundle(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write, such as ticket.tar.gz; - for standard output.")
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration file of the controller, if it is on this machine."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log file of the controller; the last 8 MiB are included.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the controller's metrics.",
            show_default="as configured, else http://127.0.0.1:9464/metrics",
        ),
    ] = None,
) -> None:
    """Collect for a ticket: versions, status, fabric, plan, routes, jobs, events, metrics, settings, log.

    Only its owner can read the file. It contains addresses, names and traffic, but no secrets: no file with a key or a
    token, and no text that looks like one. Exit status 3: missing.txt and stderr name the parts that are missing."""
    settings = configuration.load(config)
    address, credentials = given_connection()
    with waiting("collecting"), connect() as client:
        parts = [
            *_of_controller(client),
            ("metrics.txt", lambda: _scraped(metrics or _url(settings.metrics), credentials)),
        ]
        if config:
            parts.append(("configuration.json", lambda: _json(_settings_in_force(settings))))
        if log:
            parts.append(("log.txt", lambda: _end_of(log)))
        tokens = [value.removeprefix("Bearer ") for _, value in credentials.metadata(address)]
        packed, missing = bundle([("versions.json", _versions), *parts], tokens)
    write(file, packed)
    for problem in missing:
        typer.echo(f"error: {problem}", err=True)
    if missing:
        raise typer.Exit(ExitStatus.PARTLY)


def bundle(parts: Iterable[Part], tokens: Sequence[str] = ()) -> tuple[bytes, list[str]]:
    """Return the parts as a ``tar.gz``, and a text for each part that failed.

    ``tokens`` are removed from all parts."""
    packed, missing = io.BytesIO(), list[str]()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:

        def add(name: str, text: str) -> None:
            data = without_secrets(text, tokens).encode(errors="replace")
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))

        for name, make in parts:
            try:
                add(name, make())
            except (SignalboxError, OSError) as error:
                missing.append(f"{name}: {error}")
        if missing:
            add("missing.txt", "\n".join(missing) + "\n")
    return packed.getvalue(), missing


def without_secrets(text: str, tokens: Iterable[str] = ()) -> str:
    """Return the text without these ``tokens``, and without anything like a private key, a token or a request id."""
    for token in tokens:
        text = text.replace(token, REMOVED)
    for secret in _SECRETS:
        text = secret.sub(rf"\1{REMOVED}", text)
    return text


# ---- parts


def _of_controller(client: Client) -> Iterator[Part]:
    yield "status.json", lambda: _json(fields(client.get_status()))
    yield "fabric.json", lambda: _json(fields(client.get_fabric()))
    yield "plan.json", lambda: _json(None if (plan := client.get_plan()) is None else fields(plan))
    yield "jobs.json", lambda: _json([fields(job) for job in client.list_jobs()])
    yield "routes.json", lambda: _json([fields(route) for route in client.list_routes()])
    yield "events.json", lambda: _json([fields(event) for event in client.list_events()])


def _versions() -> str:
    found = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "signalbox": installed(),
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted((each.name, each.version) for each in distributions())),
    }
    return _json(found)


def _settings_in_force(settings: Config) -> dict[str, Any]:
    return settings.model_dump(mode="json")


def _url(settings: MetricsConfig) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_files else 'http'}://{host}:{settings.port}/metrics"


def _scraped(url: str, credentials: Credentials) -> str:
    import urllib.request  # slow to import, and no other command needs it

    if not url.startswith(("http://", "https://")):
        raise SignalboxError(f"'{url}' is not an http:// or https:// address")
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=credentials.tls_ca)
        if credentials.tls_certificate and credentials.tls_key:
            context.load_cert_chain(credentials.tls_certificate, credentials.tls_key)
    try:
        with urllib.request.urlopen(url, timeout=SCRAPE_S, context=context) as answer:
            text: str = answer.read().decode(errors="replace")
    except OSError as error:
        raise SignalboxError(f"no answer from {url} (see --metrics): {getattr(error, 'reason', error)}") from None
    return text


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES))
        return file.read().decode(errors="replace")


def _json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"
