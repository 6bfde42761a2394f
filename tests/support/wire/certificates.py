"""Certificates for tests, made with openssl as an operator would make them (docs/how-to/use-tls.md)."""

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Certificate(NamedTuple):
    certificate: Path
    private_key: Path

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.certificate.read_text())


class Authority:
    """Certificate authority; ``certificate`` is the file that its peers must trust."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self.certificate, self._key = self._make(name, "/CN=authority")

    def sign(self, name: str, password: str | None = None, also: str = "", file: str = "") -> Certificate:
        """Sign a certificate.

        ``name``: the common name.
        ``password``: password that encrypts the private key.
        ``also``: alternative names, such as ``IP:127.0.0.1``.
        ``file``: base name of the files."""
        signing = [*self._signing, "-addext", "basicConstraints=CA:FALSE"]
        if also:
            signing += ["-addext", f"subjectAltName={also}"]
        return self._make(f"{self._name}-{file or name}", f"/CN={name}", *signing, password=password)

    def sign_expired(self, name: str) -> Certificate:
        made = self._files(f"{self._name}-{name}-expired")
        request = made.certificate.with_suffix(".csr")
        _openssl("req", "-new", *_KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", made.private_key, "-out", request)
        days = ["-set_serial", "7", "-days", "-1"]
        _openssl("x509", "-req", "-in", request, *self._signing, *days, "-out", made.certificate)
        return made

    @property
    def _signing(self) -> list[str]:
        return ["-CA", str(self.certificate), "-CAkey", str(self._key)]

    def _files(self, name: str) -> Certificate:
        return Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")

    def _make(self, file: str, subject: str, *options: str, password: str | None = None) -> Certificate:
        made = self._files(file)
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        files = ["-keyout", str(made.private_key), "-out", str(made.certificate)]
        _openssl("req", "-x509", *_KEY, *secret, "-days", "2", "-subj", subject, *files, *options)
        return made


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
