"""Modules that an import of the client loads: a training program has them in its process."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"ryu", "ortools", "numpy", "networkx", "structlog", "yaml", "controller", "offline"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("signalbox", {*HEAVY, "pydantic", "grpc", "google", "typer", "rich"}),
        ("signalbox.client", {*HEAVY, "typer", "rich"}),
        ("signalbox.cli", HEAVY),
    ],
)
def test_an_import_loads_no_more_than_it_needs(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "signalbox" in loaded
    assert absent & {*loaded} == set()


def test_without_pytorch_the_import_says_what_is_missing() -> None:
    code = "import sys; sys.modules['torch'] = None; import signalbox.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: signalbox.torch needs PyTorch with torch.distributed")
