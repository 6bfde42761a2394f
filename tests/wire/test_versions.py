"""Two versions of the controller side by side on one etcd: an upgrade member by member, and a refused downgrade."""

from __future__ import annotations

import signal
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from controller.store.etcd_client import Etcd
from controller.store.records import FORMAT
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import EtcdProcess
from tests.support.wire.next_version import FIELD
from tests.wire.test_members import Members

LEADER, STANDBY = pb.MEMBER_ROLE_LEADER, pb.MEMBER_ROLE_STANDBY
NEXT = ("tests.support.wire.next_version", "serve")


def formats(members: Members, asked: str) -> dict[str, int]:
    with members.client(asked) as client:
        return {member.name: member.state_format for member in client.list_members()}


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

        assert b.stop() == 0
        b.program = NEXT
        b.start("--standby")
        upgraded = {"a": FORMAT, "b": FORMAT + 1, "c": FORMAT}
        until(lambda: formats(members, "a") == upgraded)  # the former b may be listed a little longer

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
