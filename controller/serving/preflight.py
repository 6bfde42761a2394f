"""Checks of a configuration before anything is started.

Out: ``InvalidInput`` with every problem, if any; sentences about settings that work but are unwise. The checks leave no
file behind and open no port, so that the configuration of a running controller can be checked too.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from controller import tls
from controller.api.identities import Identities
from controller.api.listening import socket_path
from controller.config import Config
from controller.fabric.parts import Declared
from controller.serving import exposure, haproxy, inventory, validity
from controller.serving.validity import TLS_SECTIONS
from controller.store import lease_secret
from controller.store.configured import STATE_FILES, store_of
from controller.store.disk import full
from signalbox.addresses import host_and_port
from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.files import of_another_user, open_to_others, replaceable


def check(config: Config, stand_by: bool = False) -> None:
    """Check that addresses resolve, files can be read, and directories can be written. Raises ``InvalidInput``.

    ``stand_by``: whether the controller is to stand by if another one is active."""
    InvalidInput.refuse([*(cannot_stand_by(config) if stand_by else ()), *_problems(config)])


def cannot_stand_by(config: Config) -> Iterator[FieldProblem]:
    """Yield a problem for each setting that is missing for a controller that may stand by."""
    if config.etcd_endpoints and not config.members.api:
        yield FieldProblem(
            "members.api",
            "is missing; with the state in etcd, --standby needs an address for calls between members, such as "
            "10.0.0.1:50052; leave out --standby for a single controller",
        )
    if not config.etcd_endpoints and not config.state_dir:
        yield FieldProblem(
            "state_dir", "is missing; --standby needs state_dir or etcd, where a claim decides who is active"
        )


def doubts(config: Config) -> Iterator[str]:
    """Yield a sentence for each setting that works but is unwise."""
    proxy_socket = config.api.proxy_socket
    for address in (*config.api.listen, *([f"unix:{proxy_socket}"] if proxy_socket else [])):
        path = socket_path(address)
        with suppress(OSError):
            if path and (problem := replaceable(path.parent)):
                yield f"{address}: other users could replace the socket and receive tokens: {problem}"
    yield from exposure.unguarded(config.api)
    if config.state_dir and config.saved_in != "state_dir":
        yield f"state_dir: has no effect, because the state is saved in {config.store}"
    if config.api.tokens:
        identities = Identities.load(config.api.tokens)
        for tenant in identities.quotas_for_nobody:
            yield f"{config.api.tokens}: no token or certificate has tenant '{tenant}', so its quota has no effect"
        for tenant in identities.without_hosts:
            yield f"{config.api.tokens}: tenant '{tenant}' has no host_prefixes, so its jobs may name any host"
        if identities.has_certificates and not config.api.ca_certificates:
            yield f"{config.api.tokens}: [[certificate]] entries have no effect without api.ca_certificates"


def check_saved(config: Config) -> None:
    """Raise ``InvalidInput`` if a controller with this configuration would refuse the saved jobs or their lease secret.

    The check does not claim the state, so another controller may be using it."""
    from controller import extensions  # slow to import, and other commands do not need them
    from controller.core import state

    with closing(store_of(config)) as store:
        saved = store.look()
    extensions.configured(config, state.initial(config, saved, Declared(), 0.0), 0.0)
    if config.state_dir and config.saved_in == "state_dir":
        lease_secret.check(config.state_dir, bool(saved.jobs))


def check_dates(config: Config) -> None:
    """Raise ``InvalidInput`` for certificates that are not valid now.

    A controller starts even with invalid certificates, because it can repair the fabric while no client accepts its
    certificate."""
    InvalidInput.refuse(validity.problems(config, time.time()))


def _problems(config: Config) -> Iterator[FieldProblem]:
    if config.state_dir:
        yield from _cannot_write("state_dir", config.state_dir)
        yield from _open_state(config.state_dir)
    yield from _cannot_resolve("openflow.host", config.openflow.host)
    for section in TLS_SECTIONS:
        try:
            tls.server_context(section, getattr(config, section).tls_files)
        except InvalidInput as error:
            yield from error.problems
    yield from _cannot_resolve("metrics.host", config.metrics.host)
    for i, address in enumerate(config.api.listen):
        where = f"api.listen[{i}]"
        if path := socket_path(address):
            yield from _socket_problems(where, path)
        else:
            yield from _cannot_resolve(where, host_and_port(address)[0])
    if config.api.proxy_socket:
        yield from _socket_problems("api.proxy_socket", config.api.proxy_socket)
        yield from haproxy.problems(config.api)
    if config.members.api:
        if path := socket_path(config.members.api):
            yield from _socket_problems("members.api", path)
        else:
            yield from _cannot_resolve("members.api", host_and_port(config.members.api)[0])
    yield from _same_address(config)
    yield from exposure.problems(config.api)
    try:
        if config.api.tokens:
            Identities.load(config.api.tokens)
    except InvalidInput as error:
        yield from error.within("api.tokens").problems
    try:
        inventory.load(config.fabric.inventory)
    except InvalidInput as error:
        yield from error.within("fabric.inventory").problems


def _cannot_resolve(where: str, host: str) -> Iterator[FieldProblem]:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        yield FieldProblem(where, f"'{cut(host)}' cannot be resolved to an address")


def _same_address(config: Config) -> Iterator[FieldProblem]:
    """Yield a problem for each address that two listeners share: the path of a socket, or a port of an address.

    Listeners may share port 0, which stands for any free port."""
    ports: list[tuple[str, str, int]] = [
        ("openflow.port", config.openflow.host, config.openflow.port),
        ("metrics.port", config.metrics.host, config.metrics.port),
    ]
    paths: dict[Path, str] = {}
    listeners = [(f"api.listen[{i}]", address) for i, address in enumerate(config.api.listen)]
    if config.members.api:
        listeners.append(("members.api", config.members.api))
    for where, address in listeners:
        if path := socket_path(address):
            first = paths.setdefault(path.resolve(), where)
            if first != where:
                yield FieldProblem(where, f"is the address of {first} too")
        else:
            ports.append((where, *host_and_port(address)))
    if config.api.proxy_socket and (holder := paths.get(config.api.proxy_socket.resolve())):
        yield FieldProblem("api.proxy_socket", f"is the address of {holder} too")
    for number, (where, host, port) in enumerate(ports):
        for first, other, taken in ports[:number]:
            if port == taken != 0 and _overlap(host, other):
                yield FieldProblem(where, f"port {port} of this address is also the port of {first}")
                break


def _overlap(*hosts: str) -> bool:
    """Return whether two hosts have an address in common.

    A wildcard has all addresses. A host that cannot be resolved has none."""
    try:
        found = [{entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)} for host in hosts]
    except (OSError, UnicodeError):
        return False
    return bool(found[0] & found[1]) or any(addresses & {"0.0.0.0", "::"} for addresses in found)


def _cannot_write(where: str, directory: Path) -> Iterator[FieldProblem]:
    """Yield a problem if no file can be written in the directory or, if it is missing, where it would be created.

    A file is written as a test, because permissions show neither read-only mounts nor the rights of root."""
    existing = next((path for path in (directory, *directory.parents) if path.exists()), directory)
    try:
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        yield FieldProblem(where, f"cannot write in {directory}: {full(existing, error) or error.strerror or error}")


def _socket_problems(where: str, path: Path) -> Iterator[FieldProblem]:
    yield from _cannot_write(where, path.parent)
    with suppress(OSError):
        if path.exists() and not path.is_socket():
            yield FieldProblem(where, f"{path} exists and is not a socket; name a free path")


def _open_state(directory: Path) -> Iterator[FieldProblem]:
    """Yield a problem when other users could read or replace files of the state directory.

    Missing files cause no problem: the controller creates them with the right permissions."""
    with suppress(OSError):
        if problem := replaceable(directory):
            yield FieldProblem("state_dir", f"{problem}; or name a directory in it, which the controller creates")
    for name in STATE_FILES:
        path = directory / name
        with suppress(OSError):
            if problem := of_another_user(path) or open_to_others(path):
                yield FieldProblem(f"state_dir: {path}", problem)
