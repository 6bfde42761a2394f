"""Certificates for tests, made with the openssl command as an operator would make them (docs/how-to/use-tls.md)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    certificate: Path
    private_key: Path


class Authority:
    """``certificate``: what those it signs for must know of it."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self.certificate, self._key = self._make(name, "/CN=authority")

    def sign(self, name: str, password: str | None = None) -> Certificate:
        """``password``: encrypts the private key."""
        signing = ["-CA", str(self.certificate), "-CAkey", str(self._key), "-addext", "basicConstraints=CA:FALSE"]
        return self._make(f"{self._name}-{name}", f"/CN={name}", *signing, password=password)

    def _make(self, file: str, subject: str, *options: str, password: str | None = None) -> Certificate:
        made = Certificate(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        files = ["-keyout", str(made.private_key), "-out", str(made.certificate)]
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        command = ["openssl", "req", "-x509", *curve, *secret, "-days", "2", "-subj", subject, *files, *options]
        subprocess.run(command, check=True, capture_output=True)
        return made
