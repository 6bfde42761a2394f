"""A lease token is made from the secret and names one registration; nothing else is one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
from pathlib import Path

import pytest

from controller.api.lease_tokens import LeaseTokens
from controller.errors import InvalidInput
from controller.jobs.messages import new_uid

UID = "f31d4a67-9f4a-4a3a-8a3c-0f5e3d1f2b11"


def test_a_token_is_the_uid_and_its_mac() -> None:
    secret = bytes(range(32))
    mac = base64.urlsafe_b64encode(hmac.new(secret, UID.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    tokens = LeaseTokens(secret)
    assert tokens.token(UID) == f"{UID}.{mac}"
    assert tokens.uid(tokens.token(UID)) == UID


def test_nothing_else_is_a_token() -> None:
    tokens = LeaseTokens.of(None)
    token, other = tokens.token(UID), tokens.token(new_uid())
    mac = token.partition(".")[2]
    wrong = ["", ".", UID, f"{UID}.", f".{mac}", token[:-1], f"{token}=", f"{token}A", token.upper(), f" {token}"]
    wrong += [f"{UID}.{other.partition('.')[2]}", LeaseTokens.of(None).token(UID), "x" * 10_000, "é.\U0001f511"]
    wrong += [token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(len(token))]
    assert [tokens.uid(one) for one in wrong] == [None] * len(wrong)


def test_the_secret_outlives_the_process_in_a_file_for_its_owner(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = LeaseTokens.of(tmp_path).token(UID)
    finally:
        os.umask(old)
    assert LeaseTokens.of(tmp_path).uid(token) == UID
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777, file.stat().st_size) == ("lease.key", 0o600, 32)


def test_a_process_that_ends_while_it_makes_the_secret_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "lease.new").write_bytes(b"half")
    token = LeaseTokens.of(tmp_path).token(UID)
    assert LeaseTokens.of(tmp_path).uid(token) == UID


def test_a_secret_that_others_can_read_or_that_is_damaged_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    LeaseTokens.of(tmp_path)
    file = tmp_path / "lease.key"
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match=rf"state_dir: {file}, the secret of .* \(mode 0644\): chmod 600 {file}"):
        LeaseTokens.of(tmp_path)
    file.chmod(0o600)
    file.write_bytes(b"short")
    with pytest.raises(InvalidInput, match=r"has 5 bytes and not 32\. Restore it"):
        LeaseTokens.of(tmp_path)
    assert file.read_bytes() == b"short"


def test_no_new_secret_is_made_while_tokens_of_a_lost_one_are_in_use(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"state_dir: .*/lease.key is missing.* Restore it") as refused:
        LeaseTokens.of(tmp_path, in_use=True)
    assert list(tmp_path.iterdir()) == []
    subprocess.run(["bash", "-c", str(refused.value).rpartition(": ")[2]], check=True)
    made = LeaseTokens.of(tmp_path, in_use=True)
    assert made.uid(LeaseTokens.of(tmp_path).token(UID)) == UID


def test_neither_tokens_nor_the_secret_are_shown() -> None:
    tokens = LeaseTokens(b"s" * 32)
    assert "s" * 4 not in repr(tokens)
    assert repr(tokens) == str(tokens) == object.__repr__(tokens)
