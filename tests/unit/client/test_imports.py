"""Modules that an import of the client loads into the process of a training program."""

import subprocess
import sys

import pytest

HEAVY = {"ryu", "ortools", "numpy", "networkx", "structlog", "yaml", "controller", "offline"}


@pytest.mark.parametrize(("program", "absent"), [
    ("import signalbox", {*HEAVY, "pydantic", "grpc", "google", "typer", "rich"}),
    ("import signalbox; signalbox.join", {*HEAVY, "grpc", "google", "typer", "rich", "ctypes"}),
    ("import signalbox.client", {*HEAVY, "typer", "rich"}),
    ("import signalbox.cli", HEAVY),
])  # fmt: skip
def test_an_import_loads_no_more_than_it_needs(program: str, absent: set[str]) -> None:
    code = f"import sys; {program}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "signalbox" in loaded
    assert absent & {*loaded} == set()


def test_without_pytorch_the_import_says_what_is_missing() -> None:
    code = "import sys; sys.modules['torch'] = None; import signalbox.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: signalbox.torch needs PyTorch with torch.distributed")
