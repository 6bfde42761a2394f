"""Controllers with a real etcd: who is a member, and calls through members that stand by when the leader dies."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch
from urllib.request import urlopen

import pytest

from controller.config import Config
from controller.store import etcd_members
from controller.store.configured import membership_of, store_of
from controller.store.etcd_client import Etcd, EtcdError
from controller.store.etcd_commits import EtcdCommits
from controller.store.etcd_members import MOST_BYTES, EtcdMembership
from controller.store.etcd_operations import put
from controller.store.etcd_store import EtcdStore
from controller.store.members import Member
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from signalbox.client import Client
from signalbox.commands.exit_status import ExitStatus, exit_status
from signalbox.errors import Conflict, InvalidInput, SignalboxError, Unavailable
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.command_line import Signalbox
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import EtcdProcess, running_etcd

LEASE_S = 3
LONG_LEASE_S = 600
HOLDER = """
import sys, time
from controller.store.etcd_client import EtcdAccess
from controller.store.etcd_members import EtcdMembership
from controller.store.etcd_store import EtcdStore
from controller.store.members import Member
access, prefix, lease_s = EtcdAccess((sys.argv[1],)), sys.argv[2], int(sys.argv[3])
store = EtcdStore(access, prefix, lease_s, "a", "a:1")
store.load()
with EtcdMembership(access, prefix, lease_s, Member(store.id, "a", "a:1", "1", 7.0), store.fence()):
    time.sleep(10_000)
"""
"""Program that is a member, claims the state and keeps it."""
LEADER, STANDBY, ABSENT = pb.MEMBER_ROLE_LEADER, pb.MEMBER_ROLE_STANDBY, pb.MEMBER_ROLE_ABSENT


def membership(
    etcd: EtcdProcess, prefix: str, name: str, process: str, store: EtcdStore | None = None, lease_s: int = LEASE_S
) -> EtcdMembership:
    fence = (store or EtcdStore(etcd.access, prefix, lease_s)).fence()
    return EtcdMembership(etcd.access, prefix, lease_s, Member(process, name, f"{name}:1", "1", 7.0), fence)


def test_members_are_read_again_soon_after_failures(
    monkeypatch: pytest.MonkeyPatch, etcd: EtcdProcess, prefix: str
) -> None:
    member = membership(etcd, prefix, "a", "1", lease_s=LONG_LEASE_S)
    read, failures = member._read, [EtcdError("no answer", None)] * 3

    def fails_first() -> int:
        if failures:
            raise failures.pop()
        return read()

    monkeypatch.setattr(member, "_read", fails_first)
    with member:
        until(lambda: member.newest.all)


def test_the_end_of_a_process_ends_its_lease_and_its_claim(etcd: EtcdProcess, prefix: str) -> None:
    words = [sys.executable, "-c", HOLDER, etcd.endpoint, prefix, str(LONG_LEASE_S)]
    with subprocess.Popen(words) as holder, closing(Etcd(etcd.access)) as direct:
        try:
            until(lambda: any(b'"alive": "127' in each.value for each in direct.keys(f"{prefix}members/".encode())[0]))
            with (
                membership(etcd, prefix, "b", "2", lease_s=LONG_LEASE_S) as other,
                closing(EtcdStore(etcd.access, prefix, LONG_LEASE_S)) as second,
            ):
                until(lambda: any(watch.known for watch in other._watches.copy().values()))
                waiting = beside(second.claim, True)
                assert not waiting.done()
                holder.kill()
                assert waiting.result(DEADLINE_S)
                until(lambda: other.newest.absent.keys() == {"a"})
                assert [member.name for member in other.newest.all] == ["b"]
        finally:
            holder.kill()


def test_the_end_of_a_lease_is_noticed_at_once(etcd: EtcdProcess, prefix: str) -> None:
    with membership(etcd, prefix, "a", "1", lease_s=LONG_LEASE_S) as only, closing(Etcd(etcd.access)) as direct:
        until(lambda: only.newest.all and only.newest.all[0].alive)
        lease = only._lease
        for _ in range(2):  # two members may notice that a third one has ended
            direct.revoke(lease)
        until(lambda: only._lease not in (0, lease))


def test_a_slow_name_ends_no_lease(etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease must be renewed even while a name, with which a member finds its own address, is being resolved."""
    asked, go_on = Event(), Event()

    def resolve(*_: object, **__: object) -> NoReturn:
        asked.set()
        go_on.wait(DEADLINE_S)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with membership(etcd, prefix, "a", "1") as only:
        assert asked.wait(DEADLINE_S)
        until(only.is_live)
        first = only._valid_until
        until(lambda: only._valid_until > first + 1)
        go_on.set()


def test_a_member_that_was_taken_for_dead_is_a_member_again(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    store.load()
    with membership(etcd, prefix, "a", store.id, store) as leader, membership(etcd, prefix, "b", "2") as other:
        until(lambda: len(other.newest.all) == 2 and other.leader())
        lease, created = leader._lease, store._created
        other._end_member(other.newest.all[1])
        assert store._created == created
        until(lambda: other._lease)
        other._end_member(leader.own)
        until(lambda: leader._lease != lease and store._created > created)
        until(lambda: len(other.newest.all) == 2)
    store.close()


def test_an_absent_member_is_known_until_it_is_forgotten(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    before = time.time() - 1
    with membership(etcd, prefix, "a", store.id, store) as leader:
        store.claim()
        with membership(etcd, prefix, "b", "2"):
            until(lambda: len(leader.newest.all) == 2)
            assert not leader.newest.absent
            with pytest.raises(Conflict, match="member 'b' is running; stop it first"):
                leader.forget("b")
        until(lambda: leader.newest.absent)
        assert before < leader.newest.absent["b"] < time.time() + 1
        leader.drain("b", drains=True)
        with membership(etcd, prefix, "c", "3") as third:  # a controller that has never seen b
            until(lambda: third.newest.absent)
            assert before < third.newest.absent["b"] < time.time() + 1
        until(lambda: leader.newest.absent.keys() == {"b", "c"})
        leader.forget("b")
        assert leader.newest.absent.keys() == {"c"}
        assert not leader.newest.draining
        read = leader.newest.began
        until(lambda: leader.newest.began > read)
        assert leader.newest.absent.keys() == {"c"}
        with pytest.raises(InvalidInput, match="there is no member 'b'; members are a, c") as refused:
            leader.forget("b")
        assert exit_status(refused.value) is ExitStatus.NOT_FOUND
    store.close()


def test_a_member_is_known_from_the_moment_it_is_seen(etcd: EtcdProcess, prefix: str) -> None:
    with membership(etcd, prefix, "a", "1") as only, closing(Etcd(etcd.access)) as direct:
        until(lambda: only.newest.all)
        (known,), (present,) = (direct.keys(f"{prefix}{kind}/a".encode())[0] for kind in ("known", "members"))
        assert known.create_revision == present.create_revision


def test_a_member_that_drains_does_so_until_the_leader_ends_it(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    with membership(etcd, prefix, "a", store.id, store) as leader, membership(etcd, prefix, "b", "2") as other:
        until(lambda: leader.newest.all == other.newest.all == (leader.own, other.own))
        with pytest.raises(Unavailable, match="another controller has claimed the state"):
            leader.drain("b", drains=True)
        store.claim()
        with pytest.raises(InvalidInput, match="there is no member 'c'; members are a, b"):
            leader.drain("c", drains=True)
        leader.drain("b", drains=True)
        assert leader.newest.draining == {"b"}
        until(lambda: other.newest.draining == {"b"})
        with pytest.raises(Conflict, match="'a' is the last member that is not drained"):
            leader.drain("a", drains=True)
        with membership(etcd, prefix, "c", "3") as third:
            until(lambda: third.newest.draining == {"b"} and len(leader.newest.all) == 3)
            leader.drain("a", drains=True)
        leader.drain("b", drains=False)
        leader.drain("b", drains=False)
        until(lambda: other.newest.draining == {"a"})
        store.close()


def test_a_copy_of_a_drain_that_a_slow_endpoint_still_has_changes_nothing(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    with membership(etcd, prefix, "a", store.id, store) as leader, membership(etcd, prefix, "b", "2"):
        until(lambda: len(leader.newest.all) == 2)
        store.claim()
        transaction, copies = leader._etcd.transaction, list[Any]()

        def twice(compare: Any, *others: Any) -> Any:
            if compare:  # else the request is not a change
                copies.append((compare, *others))
                transaction(compare, *others)  # by an endpoint that answers too late
            return transaction(compare, *others)

        with patch.object(leader._etcd, "transaction", twice):
            leader.drain("b", drains=True)
        assert leader.newest.draining == {"b"}
        leader.drain("b", drains=False)
        (copy,) = copies
        assert not transaction(*copy).succeeded
        store.close()


def test_the_lease_of_a_member_that_etcd_does_not_answer_ends(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, membership(etcd, prefix, "a", "1") as only:
        assert not only.is_live()
        until(only.is_live)
        etcd.signal(signal.SIGSTOP)
        until(lambda: not only.is_live())
        with pytest.raises(Unavailable, match=r"cannot be saved .*, so it may not be in effect; try again later"):
            only.drain("a", drains=False)
        etcd.signal(signal.SIGCONT)
        until(lambda: only.is_live() and only.own in only.newest.all)  # etcd may have ended the lease before
        etcd.kill()
        with pytest.raises(Unavailable, match=r"cannot be saved .*, so it is not in effect; try again later"):
            only.drain("a", drains=False)


def test_a_lease_lasts_from_before_etcd_was_read(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced leader of etcd may still answer renewals, but no reads, so the time of the reading counts."""
    now = [1e9]
    monkeypatch.setattr(etcd_members, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    only = membership(etcd, prefix, "a", "1")
    read, delays = only._etcd.read, [LEASE_S]

    def late(*arguments: Any) -> Any:
        found = read(*arguments)
        now[0] += delays.pop() if delays else 0
        return found

    with patch.object(only._etcd, "read", late):
        only._read()
    assert not only.is_live()
    only._read()
    assert only.is_live()


def test_members_know_each_other_and_who_has_the_claim(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    a, b = membership(etcd, prefix, "a", store.id), membership(etcd, prefix, "b", "2")
    with b:
        with a:
            until(lambda: b.newest.all == (a.own, b.own))
            assert b.leader() is None
            store.claim()
            until(lambda: a.leader() == b.leader() == Member(store.id, "a", "a:1", "", 0.0))
            assert a.has_standby()
            store.close()
            until(lambda: b.leader() is None)
        until(lambda: b.newest.all == (b.own,))
        assert b.has_standby()


def test_two_processes_with_one_name_are_two_members(etcd: EtcdProcess, prefix: str) -> None:
    with membership(etcd, prefix, "a", "1") as first, membership(etcd, prefix, "a", "2") as second:
        until(lambda: {member.id for member in first.newest.all} == {first.own.id, second.own.id})


def test_a_key_that_was_deleted_is_written_again_and_a_malformed_one_is_ignored(etcd: EtcdProcess, prefix: str) -> None:
    with membership(etcd, prefix, "a", "1") as first, membership(etcd, prefix, "b", "2") as second:
        until(lambda: len(first.newest.all) == 2)
        lease = second._lease
        etcd.put(f"{prefix}members/c/3", "[1]")
        etcd.delete(f"{prefix}members/b/2")
        until(lambda: second._lease not in (0, lease))
        until(lambda: first.newest.all == (first.own, second.own))


@pytest.mark.parametrize("value", [
    "[1]",
    "[" * 100_000,
    '{"name": 5, "api": [], "version": {}, "since": "x"}',
    '{"name": "x", "api": "", "version": "", "since": NaN}',
    '{"name": "x", "api": "", "version": "", "since": 1e300}',
    '{"name": "\\ud800", "api": "", "version": "", "since": 1}',
    '{"name": "\xff", "api": "", "version": "", "since": 1}',
])  # fmt: skip
def test_a_malformed_key_hides_no_other_member(etcd: EtcdProcess, prefix: str, value: str) -> None:
    with membership(etcd, prefix, "b", "2") as only, closing(Etcd(etcd.access)) as direct:
        until(lambda: only.newest.all)
        direct.transaction([], [put(f"{prefix}members/c/3".encode(), value.encode("latin-1"))])
        before = only.newest.began
        until(lambda: only.newest.began > before)
        assert only.newest.all == (only.own,)


def test_a_member_with_fields_of_a_newer_version_is_known(etcd: EtcdProcess, prefix: str) -> None:
    newer = Member("3", "c", "c:1", "2", 1.0)
    with membership(etcd, prefix, "b", "2") as first:
        etcd.put(f"{prefix}members/c/3", '{"name": "c", "api": "c:1", "version": "2", "since": 1, "drains": false}')
        until(lambda: first.newest.all == (first.own, newer))


def test_whoever_writes_the_keys_of_members_only_redirects_no_call(etcd: EtcdProcess, prefix: str) -> None:
    """Neither a second member with the id of the leader nor another value in the leader's key changes the address."""
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    value = '{"name": "!", "api": "unix:/tmp/other", "version": "1", "since": 0}'
    with membership(etcd, prefix, "a", store.id), membership(etcd, prefix, "b", "2") as standby:
        store.claim()
        until(standby.leader)
        for name in ("!", "a"):
            etcd.put(f"{prefix}members/{name}/{store.id}", value)
        until(lambda: [member.name for member in standby.newest.all] == ["!", "!", "b"])
        assert (leader := standby.leader())
        assert (leader.id, leader.api) == (store.id, "a:1")
        store.close()


def test_only_so_many_members_are_read(etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_members, "MOST_MEMBERS", 1)
    with membership(etcd, prefix, "b", "2") as second, membership(etcd, prefix, "a", "1") as first:
        until(lambda: second.newest.all == (first.own,))
        lease, before = second._lease, second.newest.began
        until(lambda: second.newest.began > before)
        assert second._lease == lease


def test_many_bytes_below_members_hide_neither_the_leader_nor_the_state(etcd: EtcdProcess, prefix: str) -> None:
    store = EtcdStore(etcd.access, prefix, LEASE_S, "a", "a:1")
    with membership(etcd, prefix, "b", "2") as standby, closing(Etcd(etcd.access, MOST_BYTES)) as small:
        until(lambda: standby.newest.all)
        small.transaction([], [put(f"{prefix}members/c/3".encode(), bytes(MOST_BYTES + 1))])
        with pytest.raises(EtcdError, match="larger than max"):
            small.keys(prefix.encode())
        store.claim()
        until(standby.leader)
        assert standby.newest.all == (standby.own,)
        commits = EtcdCommits(small, prefix.encode(), store.fence(), store._refuse_lost)
        assert not commits.read().texts
        store.close()


def test_a_list_that_is_older_than_a_lease_names_no_leader(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        store = EtcdStore(etcd.access, prefix, LEASE_S)
        with membership(etcd, prefix, "a", store.id) as only:
            store.claim()
            until(only.leader)
            etcd.signal(signal.SIGSTOP)
            until(lambda: only.leader() is None)
            assert only.newest.leader
            etcd.signal(signal.SIGCONT)
            until(only.leader)
        store.close()


def test_the_configuration_names_the_member_and_its_address(etcd: EtcdProcess) -> None:
    endpoint = f"etcd://{etcd.endpoint}"
    found = membership_of(config := Config(store=endpoint), store_of(config))
    assert found
    assert found.own.name
    assert not found.own.api
    config = Config.model_validate({"store": endpoint, "members": {"name": "x", "api": "unix:/run/members.sock"}})
    assert (found := membership_of(config, store_of(config)))
    assert (found.own.name, found.own.api) == ("x", "unix:/run/members.sock")
    assert membership_of(Config(), store_of(Config())) is None


class Members:
    """Controllers a, b and c with the same state."""

    def __init__(self, folder: Path, etcd: EtcdProcess, prefix: str) -> None:
        self.by_name: dict[str, ControllerProcess] = {}
        self.metrics_port: dict[str, int] = {}
        for name in "abc":
            self.metrics_port[name] = reserve_port()
            settings: Settings = {
                "etcd": {"prefix": prefix, "lease_s": LEASE_S},
                "metrics": {"port": self.metrics_port[name]},
            }
            self.by_name[name] = ControllerProcess.member(folder / name, etcd.endpoint, settings)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as ends:
            for name, controller in self.by_name.items():
                ends.callback(controller.kill)
                controller.start("--standby")
                until(partial(self._is_known, name))
            yield

    def _is_known(self, name: str) -> bool:
        return name in self.roles("a")

    def client(self, name: str) -> Client:
        return Client(self.by_name[name].address)

    def roles(self, asked: str) -> dict[str, int]:
        """Return the role of each member, as the member ``asked`` reports it; empty while it has no answer."""
        self.by_name[asked].check()
        try:
            with self.client(asked) as client:
                return {member.name: member.role for member in client.list_members()}
        except SignalboxError:
            return {}

    def all_are(self, asked: str, roles: dict[str, int]) -> bool:
        return self.roles(asked) == roles

    def metric(self, name: str, metric: str) -> str | None:
        with urlopen(f"http://127.0.0.1:{self.metrics_port[name]}/metrics", timeout=60) as answer:
            lines = str(answer.read().decode()).splitlines()
        return next((line.partition(" ")[2] for line in lines if line.startswith(f"{metric} ")), None)


def test_members_answer_for_a_leader_and_replace_it(
    etcd: EtcdProcess, prefix: str, tmp_path: Path, signalbox: Signalbox
) -> None:
    members = Members(tmp_path, etcd, prefix)
    with members.running():
        everyone: dict[str, int] = {"a": LEADER, "b": STANDBY, "c": STANDBY}
        for name in everyone:
            until(partial(members.all_are, name, everyone))
            active, known, pins = (
                members.metric(name, f"signalbox_{metric}") for metric in ("active", "leader_known", "pins")
            )
            assert (active, known, pins) == (("1", "1", "0") if name == "a" else ("0", "1", None))
        with members.client("b") as client:
            token = client.register_job(ring("kept")).lease_token
        with members.client("c") as client:
            assert [job.spec.job_id for job in client.list_jobs()] == ["kept"]
            assert client.get_status().leader == "a"
        rows = signalbox("members", "--address", members.by_name["c"].address).rows
        assert [row[:2] for row in rows[2:5]] == [["a", "leader"], ["b", "standby"], ["c", "standby"]]

        members.by_name["a"].kill()
        until(
            lambda: (
                sorted(members.roles("b").values()) == sorted(members.roles("c").values()) == [LEADER, STANDBY, ABSENT]
            )
        )
        for name in "bc":
            with members.client(name) as client:
                client.renew_lease("kept", token)
                assert [job.spec.job_id for job in client.list_jobs()] == ["kept"]
                assert client.get_status().leader in ("b", "c")
        assert members.metric("b", "signalbox_active") != members.metric("c", "signalbox_active")
        standby = next(name for name in "bc" if members.metric(name, "signalbox_active") == "0")
        assert members.by_name[standby].stop() == 0


@pytest.mark.long
def test_calls_through_a_standby_are_answered_and_measured(etcd: EtcdProcess, prefix: str, tmp_path: Path) -> None:
    """Figures: seconds of a call directly and through a standby (p50, p99), memory, and seconds of a takeover."""
    members, calls, figures = Members(tmp_path, etcd, prefix), 3000, dict[str, object]()
    with members.running(), members.client("a") as direct, members.client("b") as through:
        until(partial(members.all_are, "b", {"a": LEADER, "b": STANDBY, "c": STANDBY}))
        token = direct.register_job(ring("kept")).lease_token
        for name, client in (("direct", direct), ("through b", through)):
            durations = []
            for _ in range(calls):
                began = time.perf_counter()
                client.renew_lease("kept", token)
                durations.append(time.perf_counter() - began)
            durations.sort()
            figures[name] = durations[calls // 2], durations[calls * 99 // 100]
        for name in members.by_name:
            figures[f"bytes of {name}"] = members.metric(name, "process_resident_memory_bytes")
        leader = members.by_name["a"].process
        assert leader
        leader.kill()
        began = time.monotonic()
        until(lambda: _registers(members.client("b"), members.client("c")))
        figures["takeover"] = time.monotonic() - began
    print(figures)  # noqa: T201


def _registers(*clients: Client) -> bool:
    for client in clients:
        with client, suppress(SignalboxError):
            client.register_job(ring("new", ("10.0.3.1", "10.0.3.2")))
            return True
    return False
