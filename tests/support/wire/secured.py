"""An API with TLS and tokens, and clients of it, with certificates made for the test."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple, Self

from signalbox.client import Client
from signalbox.credentials import NO_CREDENTIALS, Credentials
from tests.support.wire.certificates import Authority, Certificate

TOKEN = "sbx_operator"


def token_table(name: str, token: str, role: str = "operator") -> str:
    """Return the table of a token in TOML. A token with the role ``tenant`` is for the tenant of the same name."""
    sha256 = hashlib.sha256(token.encode()).hexdigest()
    tenant = f'tenant = "{name}"\n' if role == "tenant" else ""
    return f'[[token]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{sha256}"\n{tenant}'


TOKENS = f"""
{token_table("ops", TOKEN)}
[[certificate]]
name = "scheduler"
role = "reader"

[[certificate]]
name = "10.9.9.9"
role = "reader"
"""


def secret_file(file: Path, content: str) -> Path:
    file.touch(0o600)
    file.write_text(content)
    return file


class Secured(NamedTuple):
    """Files of a secured API.

    ``settings``: TLS settings of the server, without authorities.
    ``tokens``: file of ``TOKENS``."""

    directory: Path
    ours: Authority
    other: Authority
    tokens: Path
    settings: dict[str, Any]

    @classmethod
    def made(cls, directory: Path) -> Self:
        """Make the files in the directory; the key is where HAProxy looks for it."""
        ours, other = Authority(directory, "ours"), Authority(directory, "other")
        server = ours.sign("controller", also="IP:127.0.0.1,DNS:localhost")
        key = Path(f"{server.certificate}.key")
        server.private_key.rename(key)
        tokens = secret_file(directory / "tokens.toml", TOKENS)
        return cls(directory, ours, other, tokens, {"certificate": server.certificate, "private_key": key})

    def token_file(self, token: str = TOKEN) -> Path:
        return secret_file(self.directory / "token", token + "\n")

    def credentials(self, shown: Certificate | None = None, token: str | None = None) -> Credentials:
        own = shown or (None, None)
        return Credentials(str(self.ours.certificate), own[0], own[1], self.token_file(token) if token else None)


def status_of(address: str, credentials: Credentials = NO_CREDENTIALS) -> object:
    with Client(address, timeout_s=10, credentials=credentials) as client:
        return client.get_status()
