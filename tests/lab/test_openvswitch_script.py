"""scripts/openvswitch.sh with daemons in directories of the test; the machine's own daemons are not touched."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lab.waits import wait_for
from tests.support.waiting import ended, line

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "openvswitch.sh"
OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"

HELD_OVS_CTL = f"""#!/bin/sh
unset OVS_PKGDATADIR
case "$*" in
    *start)
        touch "$OVS_RUNDIR/begun"
        until [ -e "$OVS_RUNDIR/go-on" ]; do sleep 0.01; done
        ;;
esac
exec {OVS_CTL} "$@"
"""
"""Script that waits before it starts the daemons."""

OTHERS = (signal.SIGINT, signal.SIGHUP)
TIDY_COMMAND = """
import os, signal, sys

def tidy(*_):
    os.write(1, b"cleaned up\\n")
    sys.exit(5)

assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "SIGINT is ignored here"
signal.signal(signal.SIGINT, tidy)
signal.signal(signal.SIGTERM, tidy)
os.write(1, b"up\\n")  # a handler may not print while a print is under way
signal.pause()
"""


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Yield environment variables with which Open vSwitch has all files under ``tmp_path``; it does not run yet."""
    places = {"OVS_RUNDIR": "run", "OVS_DBDIR": "db", "OVS_SYSCONFDIR": "etc", "OVS_LOGDIR": "log"}
    for place in (*places.values(), "etc/openvswitch"):
        (tmp_path / place).mkdir(exist_ok=True)
    environment = os.environ | {name: str(tmp_path / place) for name, place in places.items()}
    yield environment
    subprocess.run([OVS_CTL, "stop"], env=environment, check=True, capture_output=True)


def script(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False)


def is_running(environment: Mapping[str, str]) -> bool:
    return script(environment, "status").returncode == 0


def start_by_hand(environment: Mapping[str, str], *options: str) -> None:
    given = ["--system-id=random", "--no-mlockall", "--no-record-hostname", *options]
    subprocess.run([OVS_CTL, *given, "start"], env=environment, check=True, capture_output=True)


@contextmanager
def tidy_command(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run ``TIDY_COMMAND`` in a session of its own, with its output as pipe; yield the process when it is up."""
    argv = [str(SCRIPT), "run", sys.executable, "-c", TIDY_COMMAND]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as command:
        assert line(command) == "up\n"
        yield command
        assert ended(command)[1] == "cleaned up\n"


def test_the_command_finds_open_vswitch_up_and_passes_its_status_on(private: Mapping[str, str]) -> None:
    done = script(private, "run", "sh", "-c", "ovs-vsctl get Open_vSwitch . ovs_version && exit 7")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.startswith('"')
    assert not is_running(private)


def test_daemons_of_somebody_else_are_used_and_left_alone(private: Mapping[str, str]) -> None:
    start_by_hand(private)
    assert script(private, "run", "ovs-vsctl", "show").returncode == 0
    assert script(private, "stop").returncode == 0
    assert is_running(private)


def test_of_two_commands_at_once_the_last_one_stops_the_daemons(private: Mapping[str, str]) -> None:
    first = subprocess.Popen(
        [SCRIPT, "run", "bash", "-c", "echo up; read -r"],
        env=private, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert line(first) == "up\n"
    assert script(private, "run", "ovs-vsctl", "show").returncode == 0
    assert is_running(private)
    first.communicate("\n", timeout=30)
    assert not is_running(private)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_the_daemons_still_stop(private: Mapping[str, str], how: int) -> None:
    with tidy_command(private) as command:
        if how == signal.SIGINT:  # a terminal sends it to all
            os.killpg(command.pid, how)
        else:
            command.send_signal(how)
    assert command.wait(60) == 5
    assert not is_running(private)


@pytest.mark.parametrize("how", [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.long) for n in OTHERS)])
def test_a_signal_while_open_vswitch_starts_ends_all(private: Mapping[str, str], tmp_path: Path, how: int) -> None:
    held = tmp_path / "scripts" / "ovs-ctl"
    held.parent.mkdir()
    held.write_text(HELD_OVS_CTL)
    held.chmod(0o755)
    environment = {**private, "OVS_PKGDATADIR": str(tmp_path)}
    run = Path(private["OVS_RUNDIR"])
    with subprocess.Popen(
        ["env", "--default-signal=INT,TERM,HUP", SCRIPT, "run", "echo", "not run"],  # also under nohup
        env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as command:  # fmt: skip
        wait_for((run / "begun").exists, "the start")
        os.killpg(command.pid, how)
        (run / "go-on").touch()
        assert ended(command)[:2] == (128 + how, "")
    assert not is_running(private)
    assert not (run / "ovsdb-server.pid").exists()


def test_a_start_that_was_half_done_is_stopped(private: Mapping[str, str]) -> None:
    marked = {**private, "SIGNALBOX_STARTED_THIS": "yes"}
    start_by_hand(marked, "--no-ovs-vswitchd")
    assert Path(private["OVS_RUNDIR"], "ovsdb-server.pid").exists()
    assert script(private, "stop").returncode == 0
    assert not Path(private["OVS_RUNDIR"], "ovsdb-server.pid").exists()


def test_after_a_sigkill_the_command_ends_and_the_next_use_stops_the_daemons(private: Mapping[str, str]) -> None:
    with tidy_command(private) as command:
        command.kill()
    assert is_running(private)
    assert script(private, "run", "true").returncode == 0
    assert not is_running(private)
