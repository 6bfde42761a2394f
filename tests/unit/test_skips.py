"""A skipped test that is not on the list of skips fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import MAY_SKIP

ROOT = Path(__file__).resolve().parents[2]


LISTED = "tests/unit/client/test_socket_bytes.py::test_ipv6_is_left_out"
FILES = {
    "tests/unit/test_inside.py": "import pytest\ndef test_a(): pytest.skip('reason 1')",
    "tests/unit/test_marked.py": "import pytest\n@pytest.mark.skipif(True, reason='reason 2')\ndef test_a(): pass",
    "tests/unit/test_module.py": "import pytest\npytest.skip('reason 3', allow_module_level=True)",
    LISTED.partition("::")[0]: f"""
import pytest
def {LISTED.partition("::")[2]}(): pytest.skip('no IPv6')
def test_other(): pytest.skip('reason 4')
""",
}


def test_a_skip_that_is_not_on_the_list_fails(tmp_path: Path) -> None:
    """The tests run with the settings of these tests."""
    assert LISTED in MAY_SKIP
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    argv += ["--rootdir", str(tmp_path), "--continue-on-collection-errors", str(tmp_path)]
    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "2 failed, 1 skipped, 2 errors" in found
    for place, reason in zip(("inside", "marked", "module", "socket_bytes"), range(1, 5), strict=True):
        assert re.search(rf"test_{place}.py\S* may not be skipped; .*reason {reason}", found)


@pytest.mark.parametrize("listed", MAY_SKIP)
def test_what_is_on_the_list_exists(listed: str) -> None:
    file, _, name = listed.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
