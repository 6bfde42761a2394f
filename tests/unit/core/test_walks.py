"""Which files of the controller changes pass: none of an extension that is not configured."""

from __future__ import annotations

from tests.support.walks import walks


def test_without_optical_switches_no_file_about_circuits_is_passed() -> None:
    for name, walk in walks().items():
        passed = walk["passed"]
        assert "core/extension.py" in passed, name
        assert [file for file in passed if "circuit" in file or file.startswith(("circuits/", "wiring/"))] == [], name
