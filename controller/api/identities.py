"""Identities of callers: the tokens file with tokens, client certificates, roles, and quotas and hosts of tenants.

In: a TOML file that only the controller's user may read. Out: the ``Caller`` of a token or of a certificate's names.
The file contains only the SHA-256 of each token: a token has 256 random bits, so it cannot be guessed from its hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from controller.jobs.messages import NO_QUOTA, HostPrefixes, Quota
from controller.toml_files import TomlTable, matching, read_toml
from signalbox.errors import FieldProblem, InvalidInput, validated
from signalbox.files import of_another_user, open_to_others
from signalbox.ip_addresses import NETWORK_FORM, Network, network_of
from signalbox.jobs.spec import at_most

TOKEN_PREFIX = "sbx_"
"""Prefix of each token, so that tools that search files for secrets recognize it."""
MOST_PREFIXES = 1024
"""Largest number of address prefixes of one tenant."""
MOST_NAMED = 10
"""Largest number of entries that one log line names."""
NOBODY = (
    "gives no caller a role; perhaps the file is incomplete: add a [[token]] (signalbox token NAME "
    "--role ROLE prints one) or a [[certificate]]"
)


class Role(StrEnum):
    """Role of a caller. ``api.access`` lists the methods that each role may call."""

    OPERATOR = "operator"
    TENANT = "tenant"
    READER = "reader"


ROLES = ", ".join(f"'{role}'" for role in Role)


@dataclass(frozen=True, slots=True)
class Caller:
    """Identified caller.

    ``name``: as in the tokens file. ``tenant``: empty unless the role is ``TENANT``. ``quota``: limits of the tenant,
    which are ignored when callers are compared."""

    name: str
    role: Role
    tenant: str = ""
    quota: Quota = field(default=NO_QUOTA, compare=False)


# ---- the file

_Name = Annotated[
    str, matching("[A-Za-z0-9._@:/*=, -]{1,253}", "1 to 253 letters, digits, spaces and . _ @ : / * = , -")
]
_Tenant = Annotated[str, matching("[A-Za-z0-9._-]{1,63}", "1 to 63 letters, digits and . _ -")]
_WORD = re.compile("[A-Za-z -]{0,20}")
"""Pattern of invalid roles that an error may show. Longer text may be a token or a SHA-256."""


class _Table(TomlTable):
    """Table of the tokens file, whose errors contain no values, because a user may have written a token there."""

    model_config = ConfigDict(hide_input_in_errors=True)


class _Identity(_Table):
    """Entry that gives a role to a caller. ``tenant`` is set for the role ``TENANT`` only."""

    name: _Name
    role: Role
    tenant: _Tenant | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        if isinstance(given, str) and given not in list(Role) and _WORD.fullmatch(given):
            raise PydanticCustomError(
                "role", "must be one of {roles} (given: '{given}')", {"roles": ROLES, "given": given}
            )
        return given

    @model_validator(mode="after")
    def _tenant_for_tenants(self) -> Self:
        if (self.role is Role.TENANT) != (self.tenant is not None):
            raise PydanticCustomError("tenant", "the role 'tenant' requires a tenant; other roles allow none")
        return self


class _Token(_Identity):
    """Entry of a token. ``sha256``: SHA-256 of the token, in hexadecimal."""

    sha256: Annotated[str, matching("[0-9a-f]{64}", "the 64 digits that `signalbox token` prints")]


class _Certificate(_Identity):
    """Entry of a certificate. ``name``: common name or one of the alternative names of client certificates."""


def _prefix(given: object) -> Network:
    """Return the prefix. Raises ``PydanticCustomError`` for invalid text and for a prefix with host bits set."""
    try:
        prefix = network_of(given) if isinstance(given, str) else None
    except ValueError:
        prefix = None
    if prefix is None:
        raise PydanticCustomError("prefix", NETWORK_FORM)
    if str(given).partition("/")[0] != str(prefix.network_address):
        raise PydanticCustomError(
            "host_bits", "has address bits after the prefix length; write {prefix}", {"prefix": str(prefix)}
        )
    return prefix


_Prefix = Annotated[Network, BeforeValidator(_prefix)]


class _TenantLimits(_Table):
    """Limits of one tenant, in addition to the limits that the controller has for all tenants together.

    ``host_prefixes``: hosts that jobs of the tenant may name; without them, any host."""

    name: _Tenant
    max_jobs: int | None = Field(default=None, ge=0)
    max_virtual_links: int | None = Field(default=None, ge=0)
    max_learning_rules: int | None = Field(default=None, ge=0)
    host_prefixes: Annotated[tuple[_Prefix, ...] | None, at_most(MOST_PREFIXES), Field(min_length=1)] = None

    @property
    def quota(self) -> Quota:
        hosts = HostPrefixes(self.host_prefixes) if self.host_prefixes else None
        return Quota(self.max_jobs, self.max_virtual_links, self.max_learning_rules, hosts)


class _TokensFile(_Table):
    token: tuple[_Token, ...] = ()
    certificate: tuple[_Certificate, ...] = ()
    tenant: tuple[_TenantLimits, ...] = ()


class _Known(NamedTuple):
    digest: bytes
    caller: Caller


class Identities:
    """Contents of one tokens file.

    ``quotas_for_nobody``: tenants with a quota for whom no token or certificate exists. The name of such a tenant may
    be misspelled, or its last token was withdrawn. ``without_hosts``: tenants whose jobs may name any host.
    ``has_certificates``: whether some callers have certificates."""

    def __init__(self, file: _TokensFile) -> None:
        used = {identity.tenant for identity in (*file.token, *file.certificate) if identity.tenant}
        self.quotas_for_nobody = tuple(tenant.name for tenant in file.tenant if tenant.name not in used)
        quotas = {tenant.name: tenant.quota for tenant in file.tenant}
        self.without_hosts = tuple(sorted(name for name in used if quotas.get(name, NO_QUOTA).hosts is None))
        self._tokens = tuple(_Known(bytes.fromhex(token.sha256), _caller(token, quotas)) for token in file.token)
        self.has_certificates = bool(file.certificate)
        self._certificates = {certificate.name: _caller(certificate, quotas) for certificate in file.certificate}
        self._entries: Mapping[str, _Table] = {
            f"{table} {entry.name}": entry
            for table, entries in (("token", file.token), ("certificate", file.certificate), ("tenant", file.tenant))
            for entry in entries
        }

    @classmethod
    def load(cls, path: Path) -> Identities:
        """Return the contents of the file.

        Raises ``InvalidInput`` with all problems for invalid entries, for a file without tokens and certificates, and
        for a file that other users can read or change."""
        _refuse_open_file(path)
        file = read_toml(path, _TokensFile)
        InvalidInput.refuse(FieldProblem(f"{path}: {p.path}", p.message) for p in _problems(file))
        if not file.token and not file.certificate:
            raise InvalidInput.of(str(path), NOBODY)
        return cls(file)

    def differences(self, before: Identities) -> dict[str, object]:
        """Return the differences to the identities ``before``, for the log.

        The result has the numbers of tokens and certificates before and after, and the names of added, changed and
        withdrawn entries, such as ``token ops``."""
        old, new = before._entries, self._entries
        changes = {
            "added": [name for name in new if name not in old],
            "changed": [name for name in new if name in old and new[name] != old[name]],
            "withdrawn": [name for name in old if name not in new],
        }
        return {
            "tokens": len(self._tokens),
            "tokens_before": len(before._tokens),
            "certificates": len(self._certificates),
            "certificates_before": len(before._certificates),
        } | {change: _first(names) for change, names in changes.items() if names}

    def by_token(self, token: str) -> Caller | None:
        """Return the caller of a token, or None. The time of the comparison does not depend on which token matches."""
        digest = _digest(token)
        found = None
        for known in self._tokens:
            if hmac.compare_digest(known.digest, digest):
                found = known.caller
        return found

    def by_certificate(self, names: Iterable[str]) -> Caller | None:
        """Return the caller to whom the names belong; None if all names are unknown, or belong to different callers."""
        found = {self._certificates[name] for name in names if name in self._certificates}
        return found.pop() if len(found) == 1 else None


def new_token() -> tuple[str, str]:
    """Return a random token, and its SHA-256 in hexadecimal."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    return token, _digest(token).hex()


def token_table(name: str, role: Role, tenant: str | None, sha256: str) -> str:
    """Return an entry of the tokens file in TOML. Raises ``InvalidInput`` for values that the file does not allow."""
    given = {"name": name, "sha256": sha256, "role": role.value} | ({"tenant": tenant} if tenant else {})
    validated(_Token, given)
    # The fields contain no character that JSON or TOML would escape.
    return "\n".join(["[[token]]", *(f"{key} = {json.dumps(value)}" for key, value in given.items())])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _caller(identity: _Identity, quotas: dict[str, Quota]) -> Caller:
    return Caller(identity.name, identity.role, identity.tenant or "", quotas.get(identity.tenant or "", NO_QUOTA))


def _first(names: list[str]) -> list[str]:
    return names if len(names) <= MOST_NAMED else [*names[:MOST_NAMED], f"and {len(names) - MOST_NAMED} more"]


def _problems(file: _TokensFile) -> Iterable[FieldProblem]:
    yield from _twice("token", "name", [token.name for token in file.token])
    yield from _twice("token", "sha256", [token.sha256 for token in file.token])
    yield from _twice("certificate", "name", [certificate.name for certificate in file.certificate])
    yield from _twice("tenant", "name", [tenant.name for tenant in file.tenant])
    for i, tenant in enumerate(file.tenant):
        prefixes = [str(prefix) for prefix in tenant.host_prefixes or ()]
        yield from _twice(f"tenant[{i}].host_prefixes", "", prefixes)


def _twice(table: str, field: str, values: list[str]) -> Iterable[FieldProblem]:
    seen: set[str] = set()
    for i, value in enumerate(values):
        if value in seen:
            yield FieldProblem(f"{table}[{i}].{field}".removesuffix("."), "repeats an earlier entry; remove it")
        seen.add(value)


def _refuse_open_file(path: Path) -> None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInput.of(str(path), "is not a file")
        problem = of_another_user(path) or open_to_others(path)
    except OSError as error:
        raise InvalidInput.of(str(path), error.strerror or str(error)) from None
    if problem:
        raise InvalidInput.of(str(path), problem)
