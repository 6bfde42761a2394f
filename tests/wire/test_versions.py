"""Two versions of the controller, side by side on one etcd or one after the other: upgrades, and refused downgrades."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from controller.store.etcd_client import Etcd
from controller.store.members import LINK_FORMATS
from controller.store.records import FORMAT
from mininet_topos.controller_process import ControllerProcess
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import EtcdProcess
from tests.support.wire.next_version import FIELD
from tests.wire.test_members import Members

LEADER, STANDBY = pb.MEMBER_ROLE_LEADER, pb.MEMBER_ROLE_STANDBY
LINK = LINK_FORMATS[1]
NEXT = ("tests.support.wire.next_version", "serve")


def formats(members: Members, asked: str) -> dict[str, int]:
    with members.client(asked) as client:
        return {member.name: member.state_format for member in client.list_members()}


def links(leader: ControllerProcess, member: str) -> list[int]:
    lines = (line for line in leader.log.read_text().splitlines() if "southbound of a member is linked" in line)
    return [int(re.findall(r"format=(\d+)", line)[0]) for line in lines if f"{member}/" in line]


def jobs(members: Members, asked: str) -> set[str]:
    with members.client(asked) as client, suppress(SignalboxError):
        return {str(job.spec.job_id) for job in client.list_jobs()}
    return set()


def test_members_are_upgraded_one_after_the_other_and_a_downgrade_is_refused(
    etcd: EtcdProcess, prefix: str, tmp_path: Path
) -> None:
    members = Members(tmp_path, etcd, prefix)
    a, b, c = members.by_name.values()
    with members.running():
        everyone: dict[str, int] = {"a": LEADER, "b": STANDBY, "c": STANDBY}
        until(partial(members.all_are, "a", everyone))
        with members.client("a") as client:
            token = client.register_job(ring("kept")).lease_token

        linked = len(links(a, "b"))
        assert b.stop() == 0
        b.program = NEXT
        b.start("--standby")
        upgraded = {"a": FORMAT, "b": FORMAT + 1, "c": FORMAT}
        until(lambda: formats(members, "a") == upgraded)  # the former b may be listed a little longer
        until(lambda: len(links(a, "b")) > linked)
        assert set(links(a, "b")) == {LINK}

        # c is paused, so that b takes over
        assert c.process
        c.process.send_signal(signal.SIGSTOP)
        assert a.stop() == 0
        until(lambda: members.roles("b").get("b") == LEADER)
        c.process.send_signal(signal.SIGCONT)
        with members.client("b") as client:
            client.renew_lease("kept", token)
            client.register_job(ring("new", ("10.0.3.1", "10.0.3.2")))
        with closing(Etcd(etcd.access)) as direct:
            found = direct.get(f"{prefix}record/job/new".encode())
            assert found
            assert FIELD in found.value.decode()
        until(lambda: jobs(members, "c") == {"kept", "new"})  # the older version forwards calls
        until(lambda: links(b, "c"))
        assert set(links(b, "c")) == {LINK}

        # the older version does not take over, whether it runs already or starts
        b.kill()
        until(lambda: "this controller cannot take over" in c.log.read_text())
        c.check()
        for older in (a, c):
            older.stop()
            older.start("--standby")
            assert older.process
            assert older.process.wait(60) == 1
            assert f"the state has format {FORMAT + 1}; this version reads format {FORMAT}" in older.log.read_text()
            assert "Start the version that wrote it" in older.log.read_text()

        a.program = NEXT
        a.start("--standby")
        until(lambda: members.roles("a").get("a") == LEADER)
        assert jobs(members, "a") == {"kept", "new"}
        with members.client("a") as client:
            client.renew_lease("kept", token)
        b.start("--standby")
        until(lambda: LINK + 1 in links(a, "b"))


def test_a_state_directory_of_the_version_before_is_read_and_a_downgrade_is_refused(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    present, exported = controller.program, tmp_path / "exported"
    with controller.running() as client:
        token = client.register_job(ring("kept")).lease_token
    signalbox(present, "export", exported, "--state-dir", tmp_path / "state")
    controller.program = NEXT
    with controller.running() as client:
        client.renew_lease("kept", token)
        client.register_job(ring("new", ("10.0.3.1", "10.0.3.2")))

    controller.program = present
    controller.start()
    assert controller.process
    assert controller.process.wait(60) == 1
    assert f"it has format {FORMAT + 1}; this version reads format {FORMAT}" in controller.log.read_text()
    assert "Start the version that wrote it, or restore the backup from before" in controller.log.read_text()

    controller.program = NEXT
    with controller.running() as client:
        assert {job.spec.job_id for job in client.list_jobs()} == {"kept", "new"}
        client.renew_lease("kept", token)

    newer = tmp_path / "newer"
    for directory in ("other", "third"):
        (tmp_path / directory).mkdir()
    assert signalbox(NEXT, "import", exported, "--state-dir", tmp_path / "other").returncode == 0
    assert signalbox(NEXT, "export", newer, "--state-dir", tmp_path / "other").returncode == 0
    refused = signalbox(present, "import", newer, "--state-dir", tmp_path / "third")
    assert refused.returncode == 1
    assert f"its state has format {FORMAT + 1}; this version reads format {FORMAT}" in refused.stderr


def signalbox(version: tuple[str, ...], *words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", version[0], "state", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
