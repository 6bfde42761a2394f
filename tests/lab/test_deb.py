"""The Debian package on a bare Debian with systemd: installed, started, joined by a switch, upgraded, purged."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.lab.record import wait_for
from tests.support.booted_root import Booted, booted
from tests.support.debian_root import debootstrap
from tests.support.doc_pages import ROOT

CONTROL = (ROOT / "deploy/debian/control").read_text()
CONFIG = "/etc/signalbox/signalbox.toml"
AS_OTHER = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
AS_CONTROLLER = ("runuser", "-u", "signalbox", "--")
AS_MEMBER = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--groups=signalbox")
SOCKET = "unix:/run/signalbox/api.sock"
SWITCH = """\
import contextlib
from tests.support.wire.fake_switch import FakeSwitch
switch = FakeSwitch(6653, 7).connect()
with contextlib.suppress(EOFError, ConnectionError):
    while True:
        switch.answer(switch.hear())
"""
FETCH = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
DEADLINE_S = 120.0

pytestmark = [pytest.mark.long, pytest.mark.mirror, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package without compression, which would take minutes."""
    folder = tmp_path_factory.mktemp("deb")
    environ = os.environ | {"DPKG_DEB_COMPRESSOR_TYPE": "none"}
    subprocess.run([ROOT / "scripts/deb.sh", folder], env=environ, check=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def machine(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """Run a machine with the dependencies of the package, and the package as /root/new.deb.

    Its first process is systemd."""
    (depends,) = re.findall("^Depends: (.*)$", CONTROL, re.MULTILINE)
    names = {part.split()[0] for part in depends.split(", ")}
    root = debootstrap(tmp_path_factory.mktemp("root") / "debian", (*sorted(names), "systemd-sysv"))
    (root.folder / "root/new.deb").hardlink_to(deb)
    (root.folder / "usr/sbin/policy-rc.d").unlink()  # it is a machine: packages may restart its services
    with booted(root.folder) as machine:
        yield machine
    root.remove()


def files(machine: Booted) -> set[str]:
    """Return the files of the machine, except those that dpkg, journald and the account tools write."""
    kept = ("/proc", "/sys", "/dev", "/tmp", "/run", "/var/log", "/var/lib/dpkg", "/var/cache")
    pruned = [word for folder in kept for word in ("-path", folder, "-o")][:-1]
    found = machine.run("find", "/", "(", *pruned, ")", "-prune", "-o", "-print")
    return (
        {*found.splitlines()}
        - {f"/etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow")}
        - {"/etc/.pwd.lock"}
    )


def state(machine: Booted, unit: str) -> tuple[str, str, str]:
    shown = machine.run("systemctl", "show", "--property=ActiveState,StatusText,MainPID", unit)
    values = dict(line.split("=", 1) for line in shown.splitlines())
    return values["ActiveState"], values["StatusText"], values["MainPID"]


def install(machine: Booted) -> str:
    return machine.run("dpkg", "--force-unsafe-io", "-i", "/root/new.deb")


@pytest.fixture
def switch(machine: Booted) -> Iterator[None]:
    """Run a switch that connects when the controller is there."""
    environ = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/client"}
    enter = ["nsenter", "--target", str(machine.leader), "--net", "setpriv", "--pdeathsig", "KILL"]
    with subprocess.Popen([*enter, sys.executable, "-c", SWITCH], cwd=ROOT, env=environ) as process:
        yield
        process.kill()


def test_it_is_installed_started_upgraded_and_leaves_nothing(machine: Booted, request: pytest.FixtureRequest) -> None:
    before = files(machine)
    install(machine)
    assert state(machine, "signalbox")[0] == "inactive"
    assert machine.run("sh", "-c", "systemctl is-enabled signalbox signalbox-web || true").split() == ["disabled"] * 2
    version = (ROOT / "client/VERSION").read_text().strip()
    assert f"signalbox-controller {version}\n" in machine.run(*AS_OTHER, "signalbox", "--version")
    checked = machine.run(*AS_CONTROLLER, "signalbox", "serve", "--check", "--config", CONFIG)
    assert "the configuration is valid" in checked

    machine.run("systemctl", "enable", "--now", "signalbox")
    assert state(machine, "signalbox")[:2] == ("active", "controls the switches")
    machine.run(*AS_OTHER, "signalbox", "status")
    machine.run(*AS_MEMBER, "signalbox", "status", "--address", SOCKET)
    assert "may not open the socket" in machine.run(*AS_OTHER, "signalbox", "status", "--address", SOCKET, status=7)
    request.getfixturevalue("switch")
    wait_for(lambda: "switches            1," in machine.run("signalbox", "status"), "the switch", DEADLINE_S, 0.5)

    machine.run("systemctl", "reload", "signalbox")
    log = ("journalctl", "--no-pager", "--unit", "signalbox")
    wait_for(lambda: "event=reloaded" in machine.run(*log), "the reload", DEADLINE_S, 0.5)
    machine.run("systemctl", "enable", "--now", "signalbox-web")
    page = ("python3", "-c", FETCH, "http://127.0.0.1:8080/healthz")
    wait_for(
        lambda: machine.run("sh", "-c", '"$@" || true', "sh", *page).endswith("ok\n\n"), "the page", DEADLINE_S, 0.5
    )

    stands_by_and_takes_over(machine)
    keeps_configuration_and_jobs(machine)

    machine.run("dpkg", "--remove", "signalbox-controller")
    assert "/var/lib/signalbox/state.db" in files(machine)
    machine.run("test", "-e", CONFIG)
    machine.run("dpkg", "--purge", "signalbox-controller")
    assert files(machine) - before == set()
    assert "signalbox" not in machine.run("cat", "/etc/passwd", "/etc/group")


def stands_by_and_takes_over(machine: Booted) -> None:
    machine.run("systemctl", "enable", "--now", "signalbox@standby")
    assert state(machine, "signalbox@standby")[:2] == ("active", "stands by")
    machine.run("systemctl", "kill", "--signal=KILL", "signalbox")
    wait_for(
        lambda: (
            state(machine, "signalbox@standby")[1] == "controls the switches"
            and state(machine, "signalbox")[:2] == ("active", "stands by")
        ),
        "the standby to take over, and the other one to stand by",
        DEADLINE_S,
        0.5,
    )


def keeps_configuration_and_jobs(machine: Booted) -> None:
    """Assert that an upgrade keeps configuration and jobs.

    Both instances and the page run again, with the new version."""
    job = (ROOT / "examples/language.json").read_text()
    machine.run("sh", "-c", 'printf %s "$1" | XDG_STATE_HOME=/tmp signalbox jobs register -', "sh", job)
    machine.run("sh", "-c", f"echo '# ours' >> {CONFIG}")
    units = ("signalbox", "signalbox@standby", "signalbox-web")
    processes = [state(machine, unit)[2] for unit in units]
    install(machine)
    after = [state(machine, unit) for unit in units]
    assert [active for active, _, _ in after] == ["active"] * len(units)
    assert not {*processes} & {process for _, _, process in after}
    assert "language" in machine.run("signalbox", "jobs", "list")
    assert machine.run("tail", "-n", "1", CONFIG) == "# ours\n"
