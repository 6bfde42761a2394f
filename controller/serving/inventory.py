"""The inventory file: hosts that are declared rather than found (docs/reference/file-formats.md#inventory)."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from controller.config import read_toml
from controller.fabric.topology_state import DeclaredHost

Mac = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$", to_lower=True)]


class _Host(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ip: IPv4Address
    mac: Mac | None = None
    switch: str
    port: str


class _Inventory(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: tuple[_Host, ...] = Field(default=())


def load(path: Path | None) -> tuple[DeclaredHost, ...]:
    """The declared hosts; none without a file. Raises ``InvalidInput`` with every problem of the file."""
    if path is None:
        return ()
    hosts = read_toml(path, _Inventory).host
    return tuple(DeclaredHost(str(host.ip), host.mac, host.switch, host.port) for host in hosts)
