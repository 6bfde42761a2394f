"""Modules that imports load, and commands of other distributions."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from signalbox.cli import PANELS, command_tree, main
from signalbox.credentials import NO_CREDENTIALS, Credentials
from signalbox.distributions import CLIENT, CONTROLLER, OFFLINE, installed
from tests.support.command_line import Signalbox, runs
from tests.support.repository_names import commands, options_of

ADDS = """
def add_to(app):
    @app.command()
    def greet():
        print("hello")

    @app.command("status")
    def another_status():
        print("not the client's")
"""


@pytest.fixture
def signalbox(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Signalbox]:
    """Yield a function that looks for commands anew at each call, as each process does."""

    def anew() -> None:
        command_tree.cache_clear()
        main()

    yield runs("signalbox", anew, capsys, monkeypatch)
    command_tree.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which Python finds modules and distributions."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(site: Path, name: str, code: str) -> None:
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 7\n")
    (info / "entry_points.txt").write_text(f"[signalbox.commands]\n{name} = {name}:add_to\n")


def test_a_distribution_adds_commands_and_replaces_none(signalbox: Signalbox, site: Path) -> None:
    assert "No such command 'greet'" in signalbox("greet").err
    install(site, "greeting", ADDS)
    assert signalbox("greet").out == "hello\n"
    assert "greet" in signalbox("--help").out
    assert "not the client's" not in signalbox("status", "--address", "unix:/nowhere").out
    assert [*installed()] == [CLIENT, "greeting", CONTROLLER, OFFLINE]
    assert "greeting 7" in signalbox("--version").out.splitlines()


def test_commands_are_listed_by_what_they_are_for(signalbox: Signalbox) -> None:
    listed = signalbox("--help").out
    places = [listed.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    words = listed[places[0] :].split()
    assert words.index("jobs") < words.index("status") < words.index("drain") < words.index("serve")


@pytest.mark.parametrize(("command", "distribution"), [("serve", CONTROLLER), ("plan-file", OFFLINE)])
def test_a_command_of_a_missing_distribution_says_what_to_install(
    signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch, command: str, distribution: str
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints(()))
    found = signalbox(command)
    said = " ".join(found.err.replace("│", " ").split())
    assert (found.status, f"No such command '{command}'" in said) == (2, True)
    assert f"pip install --find-links dist {distribution}" in said
    assert distribution not in signalbox(f"{command}s").err


def test_one_that_cannot_be_loaded_takes_no_other_command_along_and_is_named_only_where_it_matters(
    signalbox: Signalbox, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "broken", "import no_such_module")
    install(site, "greeting", ADDS)
    warning = (
        "warning: the commands 'broken' of broken 7 are missing, because they cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_module'\n"
    )
    listed = signalbox("--help")
    assert ("greet" in listed.out, "serve" in listed.out, listed.err) == (True, True, warning)
    assert signalbox("greet") == type(listed)(0, "hello\n", warning)
    assert signalbox("break").err.startswith(warning)
    assert signalbox("jobs", "--help").err == ""
    assert signalbox("--version").err == ""
    monkeypatch.setenv("_SIGNALBOX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "signalbox\n")
    monkeypatch.setenv("COMP_CWORD", "1")
    completed = signalbox()
    assert {"jobs", "serve"} <= set(completed.out.split())
    assert completed.err == ""


OPTIONS = {"--tls-ca", "--tls-certificate", "--tls-key", "--token-file"}


def test_where_there_is_an_address_there_are_credentials() -> None:
    of_commands = {path: options_of(command) for path, command in commands().items()}
    asking = {path for path, options in of_commands.items() if "--address" in options}
    assert {"status", "jobs renew", "what-if", "mode", "run"} <= asking
    asking.remove("run")  # ``run`` and the program that it starts read the credentials from the environment
    assert {path for path, options in of_commands.items() if options >= OPTIONS} == asking


def test_programs_take_them_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Credentials.of_environment() == NO_CREDENTIALS
    for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN_FILE"):
        monkeypatch.setenv(f"SIGNALBOX_{name}", f"/{name}")
    names = [Path("/TLS_CA"), Path("/TLS_CERTIFICATE"), Path("/TLS_KEY"), Path("/TOKEN_FILE")]
    assert Credentials.of_environment() == Credentials(*names)


HEAVY = {"ryu", "ortools", "numpy", "networkx", "structlog", "yaml", "controller", "offline", "kopf", "aiohttp"}


IMPORTS = {
    "import signalbox": {*HEAVY, "pydantic", "grpc", "google", "typer", "rich"},
    "signalbox.join": {*HEAVY, "grpc", "google", "typer", "rich", "ctypes"},
    "import signalbox.client": {*HEAVY, "typer", "rich"},
    "import signalbox.cli": HEAVY,
}
"""Modules that must be absent after each import statement. Each statement loads no more than the next one."""


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
