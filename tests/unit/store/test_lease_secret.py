"""The secret of lease tokens in a file: it outlives the process, and a damaged one is refused and left as it is."""

import os
import subprocess
from pathlib import Path

import pytest

from controller.api.lease_tokens import LeaseTokens
from controller.store.lease_secret import SECRET_BYTES, secret_in
from signalbox.errors import InvalidInput

UID = "f31d4a67-9f4a-4a3a-8a3c-0f5e3d1f2b11"


def tokens(directory: Path, in_use: bool = False) -> LeaseTokens:
    return LeaseTokens(secret_in(directory, in_use))


def test_the_secret_outlives_the_process_in_a_file_for_its_owner(tmp_path: Path) -> None:
    (tmp_path / "lease.new").write_bytes(b"half")  # from a process that ended while it made a secret
    old = os.umask(0)
    try:
        token = tokens(tmp_path).token(UID)
    finally:
        os.umask(old)
    assert tokens(tmp_path).uid(token) == UID
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777, file.stat().st_size) == ("lease.key", 0o600, 40)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tokens(tmp_path)
    file = tmp_path / "lease.key"
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match=rf"state_dir: {file}, the secret of .* \(mode 0644\): chmod 600 {file}"):
        tokens(tmp_path)


def test_a_secret_with_one_wrong_bit_or_cut_anywhere_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    token = tokens(tmp_path).token(UID)
    file = tmp_path / "lease.key"
    whole = file.read_bytes()
    flipped = [(int.from_bytes(whole) ^ 1 << bit).to_bytes(len(whole)) for bit in range(8 * len(whole))]
    cut = [whole[:length] for length in range(len(whole)) if length != SECRET_BYTES]
    for damaged in (*flipped, *cut, whole + b"\0"):
        file.write_bytes(damaged)
        with pytest.raises(InvalidInput, match=r"state_dir: .*lease.key is damaged.* Restore it from a copy"):
            tokens(tmp_path)
        assert file.read_bytes() == damaged
    file.write_bytes(whole[:SECRET_BYTES])  # only the checksum is lost
    assert tokens(tmp_path).uid(token) == UID
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("left", "said"),
    [([], "/lease.key is missing.* Restore it"), (["lease.key"], "create a new one as the controller's")],
)
def test_a_lost_or_damaged_secret_is_given_up_only_as_the_error_tells(
    tmp_path: Path, left: list[str], said: str
) -> None:
    """Owners of jobs may hold tokens that the secret signed."""
    for name in left:
        (tmp_path / name).touch(0o600)
    with pytest.raises(InvalidInput, match=rf"state_dir: .*{said}") as refused:
        tokens(tmp_path, in_use=True)
    assert [path.name for path in tmp_path.iterdir()] == left
    subprocess.run(["bash", "-c", str(refused.value).rpartition(": ")[2]], check=True)
    made = tokens(tmp_path, in_use=True)
    assert made.uid(tokens(tmp_path, in_use=True).token(UID)) == UID


def test_the_secret_of_an_older_version_gets_a_checksum_and_its_tokens_stay_right(tmp_path: Path) -> None:
    secret, file = bytes(range(SECRET_BYTES)), tmp_path / "lease.key"
    file.write_bytes(secret)
    file.chmod(0o600)
    token = LeaseTokens(secret).token(UID)
    assert tokens(tmp_path, in_use=True).uid(token) == UID
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (40, 0o600)
    file.write_bytes(file.read_bytes().replace(b"\x07", b"\x06"))
    with pytest.raises(InvalidInput, match="is damaged"):
        tokens(tmp_path, in_use=True)
