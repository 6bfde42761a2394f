"""Modules that an import of the client loads, and errors about optional ones that are missing."""

import subprocess
import sys

HEAVY = {"ryu", "ortools", "numpy", "networkx", "structlog", "yaml", "controller", "offline", "kopf", "aiohttp"}


IMPORTS = {
    "import signalbox": {*HEAVY, "pydantic", "grpc", "google", "typer", "rich"},
    "signalbox.join": {*HEAVY, "grpc", "google", "typer", "rich", "ctypes"},
    "import signalbox.client": {*HEAVY, "typer", "rich"},
    "import signalbox.cli": HEAVY,
}
"""Modules that must be absent after each statement; each needs no more than the next one."""


def test_an_import_loads_no_more_than_it_needs() -> None:
    loaded = "print(*{name.partition('.')[0] for name in sys.modules})"
    code = "\n".join(["import sys", *(f"{statement}; {loaded}" for statement in IMPORTS)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for line, absent in zip(done.stdout.splitlines(), IMPORTS.values(), strict=True):
        assert "signalbox" in line.split()
        assert absent & {*line.split()} == set()


def test_without_pytorch_or_kopf_the_error_says_what_is_missing() -> None:
    code = "import sys; sys.modules['torch'] = None; import signalbox.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: signalbox.torch needs PyTorch with torch.distributed")
    code = f"{WITHOUT}from signalbox.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: kopf is not installed: pip install --find-links dist 'signalbox-client[kubernetes]'\n"


WITHOUT = "import sys; sys.modules['kopf'] = None; sys.argv = ['signalbox', 'kubernetes']\n"
