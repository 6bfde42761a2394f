"""Wheels in fresh environments, as users install them: from the index, without the cache of pip or the checkout.

``tests/unit/test_packaging.py`` is the shorter form: it compares each wheel with what its code imports."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.record import wait_for
from signalbox.distributions import CLIENT, CONTROLLER, OFFLINE
from tests.support.doc_pages import ROOT
from tests.support.wire.control_stand_in import Running

VERSION = (ROOT / "client/VERSION").read_text().strip()
NOT_OF_A_CLIENT = {CONTROLLER, OFFLINE, "ryu", "eventlet", "numpy", "ortools", "rustworkx", "networkx", "structlog"}
JOB = ROOT / "examples/language.json"
START_S = 60.0
VERSIONS = pytest.mark.parametrize("minor", [11, 12, 13])

pytestmark = pytest.mark.long


def find_python(minor: int) -> str:
    """Return Python 3.``minor`` from the path or from pyenv; skip the test when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python3.{minor}"), *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))]
    if sys.version_info.minor == minor:
        return sys.executable
    for python in filter(None, found):
        if subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"Python 3.{minor} is not on this machine")


@dataclass(frozen=True)
class Installed:
    """Fresh environment, and the settings of its programs."""

    folder: Path
    environ: dict[str, str]

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        argv = [str(self.folder / "bin" / program), *map(str, arguments)]
        return subprocess.run(argv, env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False)

    def signalbox(self, *arguments: object) -> str:
        done = self.run("signalbox", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def distributions(self) -> set[str]:
        code = "from importlib.metadata import distributions as d; print(*{each.name.lower() for each in d()})"
        return {*self.run("python", "-c", code).stdout.split()}


Install = Callable[[int, str], Installed]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Return a function that makes an environment of Python 3.N, and installs a distribution into it."""

    def install(minor: int, name: str) -> Installed:
        python, wheels = find_python(minor), tmp_path / "dist"
        names = (CLIENT,) if name == CLIENT else ()
        subprocess.run([ROOT / "scripts/wheels.sh", wheels, *names], check=True, capture_output=True)
        environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environ |= {"PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": str(wheels), "XDG_STATE_HOME": str(tmp_path / "state")}
        made = Installed(tmp_path / "environment", environ)
        own = minor == sys.version_info.minor  # then the pip of this environment installs, which saves seconds
        options = ["--without-pip"] if own else []
        subprocess.run([python, "-m", "venv", *options, made.folder], env=environ, check=True)
        pip = (
            [sys.executable, "-m", "pip", "--python", made.folder / "bin/python"] if own else [made.folder / "bin/pip"]
        )
        words = [*pip, "install", "--quiet", "--no-compile", "--find-links", wheels, name]
        done = subprocess.run(words, env=environ, cwd=made.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return made

    return install


@VERSIONS
def test_a_client_is_one_installation_away_from_a_registered_job(install: Install, api: Running, minor: int) -> None:
    client = install(minor, CLIENT)
    assert client.distributions() & NOT_OF_A_CLIENT == set()
    assert client.signalbox("--version") == f"{CLIENT} {VERSION}\n"
    client.signalbox("jobs", "register", JOB, "--address", api.addresses[0])
    assert "language" in client.signalbox("jobs", "list", "--address", api.addresses[0])
    absent = client.run("signalbox", "serve")
    assert (absent.returncode, "No such command 'serve'" in absent.stderr) == (2, True)
    assert "warning" not in absent.stderr


@VERSIONS
def test_a_controller_brings_its_client_and_no_tools_on_paper(install: Install, tmp_path: Path, minor: int) -> None:
    controller = install(minor, CONTROLLER)
    assert controller.signalbox("--version") == f"{CLIENT} {VERSION}\n{CONTROLLER} {VERSION}\n"
    with serving(controller, tmp_path) as address:
        controller.signalbox("jobs", "register", JOB, "--address", address)
        assert "language" in controller.signalbox("jobs", "list", "--address", address)
    assert controller.distributions() & {OFFLINE, "clarabel", "scipy"} == set()
    absent = controller.run("signalbox", "plan-file")
    assert (absent.returncode, OFFLINE in absent.stderr) == (2, True)
    assert "--workload" not in controller.signalbox("what-if", "--help")


@VERSIONS
def test_tools_on_paper_bring_their_controller_and_need_no_mininet(
    install: Install, tmp_path: Path, minor: int
) -> None:
    offline = install(minor, OFFLINE)
    assert offline.signalbox("--version") == "".join(f"{name} {VERSION}\n" for name in (CLIENT, CONTROLLER, OFFLINE))
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload/A.txt").write_text("8 12 0 1 7 1000 9 0\n12 8 1 0 7 1000 9 0\n")
    sizes = ("--leaves", 4, "--spines", 4, "--hosts-per-leaf", 4)
    assert "optimal" in offline.signalbox("plan-file", *sizes, "--workload", tmp_path / "workload")
    assert "bandwidth" in offline.signalbox("design", "--help")
    lab = offline.run("signalbox", "lab")
    assert (lab.returncode, "has no Mininet" in lab.stderr) == (1, True)


@contextmanager
def serving(controller: Installed, folder: Path) -> Iterator[str]:
    """Run the controller until it answers requests and accepts switches, for which it loads Ryu.

    Yields the address of its API."""
    described = ControllerProcess(folder)
    (folder / "signalbox.toml").write_text(described.config())
    program = (str(controller.folder / "bin/signalbox"), "serve", "--config", str(folder / "signalbox.toml"))
    argv = ["setpriv", "--pdeathsig", "KILL", *program]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(argv, env=controller.environ, cwd=folder, stdout=log, stderr=log) as process,
    ):

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", described.openflow_port)).close()
            except OSError:
                return False
            return controller.run("signalbox", "status", "--address", described.address).returncode == 0

        try:
            wait_for(ready, "the controller", START_S, 0.2)
            yield described.address
        finally:
            process.terminate()
