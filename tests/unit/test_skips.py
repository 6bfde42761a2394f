"""A skipped test that is not on the list of skips fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import MAY_SKIP

ROOT = Path(__file__).resolve().parents[2]


def outcome(folder: Path, file: str, text: str) -> str:
    """Return the outcome that pytest reports for a file, with the settings of these tests."""
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text(text)
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    argv += ["-c", "/dev/null", str(folder / file)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("import pytest\ndef test_a(): pytest.skip('no reason')", "1 failed"),
        ("import pytest\n@pytest.mark.skipif(True, reason='no reason')\ndef test_a(): pass", "1 error"),
        ("import pytest\npytest.skip('no reason', allow_module_level=True)", "1 error"),
    ],
)
def test_a_skip_that_is_not_on_the_list_fails(tmp_path: Path, text: str, counted: str) -> None:
    found = outcome(tmp_path, "tests/unit/test_any.py", text)
    assert counted in found
    assert "test_any.py" in found
    assert "may not be skipped" in found
    assert "no reason" in found


def test_a_skip_on_the_list_is_one(tmp_path: Path) -> None:
    listed = "tests/unit/client/test_socket_bytes.py::test_ipv6_is_left_out"
    file, _, name = listed.partition("::")
    assert listed in MAY_SKIP
    text = f"import pytest\ndef {name}(): pytest.skip('no IPv6')\ndef test_other(): pytest.skip('no reason')"
    assert "1 failed, 1 skipped" in outcome(tmp_path, file, text)


@pytest.mark.parametrize("listed", MAY_SKIP)
def test_what_is_on_the_list_exists(listed: str) -> None:
    file, _, name = listed.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
