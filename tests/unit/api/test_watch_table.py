"""Watchers of a table always end up with its content, however slowly they read and wherever they resume."""

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.api import watch_table
from controller.api.watch_table import Reader, ResumeTokens, Rows, WatchTable
from controller.status import Status
from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb

Value = tuple[str, str]
"""The owner and the MAC address of a host."""


class Encoded(Rows[str, Value]):
    """Row type that encodes hosts, and counts how often."""

    def __init__(self) -> None:
        self.rows = 0

    def of(self, _: Status) -> dict[str, Value]:
        return {}

    def row(self, ip: str, value: Value) -> bytes:
        self.rows += 1
        return pb.WatchFabricResponse(hosts=[pb.Host(ip=ip, mac=value[1])]).SerializeToString()

    def gone(self, ip: str, _: Value) -> bytes:
        return pb.WatchFabricResponse(hosts_gone=[ip]).SerializeToString()

    def owner(self, value: Value) -> str:
        return value[0]


def table_of(
    values: Mapping[str, Value] | None = None,
    remembered: int = 100,
    message_bytes: int = 1 << 20,
    encoded: Encoded | None = None,
) -> WatchTable[str, Value]:
    encoded = encoded or Encoded()
    table = WatchTable[str, Value](pb.WatchFabricResponse, encoded, remembered, message_bytes)
    table.update(values or {})
    return table


def of(mac: str, owner: str = "a") -> Value:
    return owner, mac


class Copy:
    """Client's copy of a table: it applies messages, keeps the newest token, and can resume with that token."""

    def __init__(self, table: WatchTable[str, Value], only: str | None = None) -> None:
        self.table = table
        self.only = only
        self.reader = Reader(table, only=only)
        self.hosts: dict[str, str] = {}
        self.token = ""
        self.snapshots = 0
        self.messages: list[pb.WatchFabricResponse] = []
        self.reading = False

    def read(self) -> bool:
        encoded = self.reader.message()
        if encoded is None:
            return False
        message = pb.WatchFabricResponse.FromString(encoded)
        self.messages.append(message)
        if message.snapshot:
            assert not self.reading
            self.snapshots += 1
            self.hosts = {}
        for ip in message.hosts_gone:
            self.hosts.pop(ip, None)
        self.hosts.update({host.ip: host.mac for host in message.hosts})
        self.reading = not message.resume_token
        self.token = message.resume_token or self.token
        return True

    def read_all(self) -> None:
        while self.read():
            pass

    def resume(self, token: str | None = None) -> None:
        self.token = self.token if token is None else token
        self.reader = Reader(self.table, self.token, self.only)
        self.reading = False


def read(table: WatchTable[str, Value], only: str | None = None) -> Copy:
    copy = Copy(table, only)
    copy.read_all()
    return copy


def test_who_reads_late_gets_each_row_once_in_its_newest_form() -> None:
    table = table_of({"h1": of("m1"), "h2": of("m2")})
    copy = read(table)
    for number in range(50):
        table.update({"h1": of(f"new{number}"), "h2": of("m2"), "h3": of(f"{number}")})
    table.update({"h1": of("last"), "h2": of("m2")})
    copy.read_all()
    assert [(h.ip, h.mac) for h in copy.messages[1].hosts] == [("h1", "last")]
    assert list(copy.messages[1].hosts_gone) == ["h3"]
    assert len(copy.messages) == 2


def test_a_row_is_encoded_once_for_all_watchers_and_not_again_while_it_is_the_same() -> None:
    encoded = Encoded()
    rows = {f"h{n}": of("m") for n in range(10)}
    table = table_of(rows, encoded=encoded)
    for _ in range(20):
        read(table)
    table.update({ip: (owner, mac) for ip, (owner, mac) in rows.items()})
    table.update(rows)
    assert encoded.rows == 10


def test_watchers_share_messages_of_which_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of({"h1": of("m1")})
    first, second = Reader(table).message(), Reader(table).message()
    assert first is second is not None
    monkeypatch.setattr(watch_table, "SHARED", 2)
    rows = {f"h{n}": of("m" * 20) for n in range(20)}
    table = table_of(rows, message_bytes=100)
    for _ in range(2):
        copy = Copy(table)
        copy.read_all()
        assert copy.hosts.keys() == rows.keys()
        assert len(table._shared) <= 2


def test_what_encodes_to_the_same_bytes_is_no_change() -> None:
    table = table_of({"h1": of("m1")})
    copy = read(table)
    table.update({"h1": of("m1", owner="another that is not encoded")})
    assert not copy.read()


def test_a_snapshot_is_divided_and_only_its_last_message_has_a_token() -> None:
    rows = {f"h{n}": of("m" * 20) for n in range(100)}
    copy = read(table_of(rows, message_bytes=500))
    assert len(copy.messages) > 5
    assert [m.snapshot for m in copy.messages] == [True] + [False] * (len(copy.messages) - 1)
    assert [bool(m.resume_token) for m in copy.messages] == [False] * (len(copy.messages) - 1) + [True]
    assert all(m.ByteSize() < 600 for m in copy.messages)
    assert sorted(copy.hosts) == sorted(rows)


def test_a_slow_reader_of_a_table_that_always_changes_sees_every_row() -> None:
    rows = {f"h{n}": of("m" * 20) for n in range(100)}
    table = table_of(rows, message_bytes=500)
    copy = Copy(table)
    seen: set[str] = set()
    for number in range(60):
        table.update({ip: of(f"{number:020}") for ip in rows})
        assert copy.read()
        seen |= {host.ip for host in copy.messages[-1].hosts}
    assert seen == rows.keys()
    assert copy.snapshots == 1


def test_a_row_larger_than_a_message_is_sent_alone() -> None:
    copy = read(table_of({"h1": of("m" * 1000), "h2": of("m"), "h3": of("m" * 1000)}, message_bytes=500))
    assert [[h.ip for h in m.hosts] for m in copy.messages] == [["h1"], ["h2"], ["h3"]]


def test_a_watcher_of_one_owner_hears_nothing_of_others() -> None:
    table = table_of({"h1": of("m1", "a"), "h2": of("m2", "b")})
    copy = read(table, only="a")
    table.update({"h1": of("m1", "a"), "h2": of("new", "b"), "h3": of("m3", "b")})
    assert not copy.read()
    table.update({"h3": of("m3", "b"), "h4": of("m4", "a")})
    copy.read_all()
    snapshot, changed = copy.messages
    assert [host.ip for host in snapshot.hosts] == ["h1"]
    assert ([host.ip for host in changed.hosts], list(changed.hosts_gone)) == (["h4"], ["h1"])


def test_who_resumes_gets_what_changed_meanwhile_and_no_snapshot() -> None:
    table = table_of({"h1": of("m1"), "h2": of("m2")})
    copy = read(table)
    table.update({"h2": of("m2"), "h3": of("m3")})
    copy.resume()
    copy.read_all()
    copy.resume()
    assert not copy.read(), "nothing was missed"
    assert copy.snapshots == 1
    assert ([h.ip for h in copy.messages[1].hosts], list(copy.messages[1].hosts_gone)) == (["h3"], ["h1"])


def test_rows_that_are_gone_are_remembered_without_their_values() -> None:
    table = table_of({"h1": of("m1"), "h2": of("m2")})
    table.update({"h2": of("m2")})
    assert {row.gone: row.value for row in table.listed()} == {True: None, False: of("m2")}


def test_a_token_of_another_start_or_another_owner_gives_a_snapshot() -> None:
    rows = {"h1": of("m1"), "h2": of("m2", "b")}
    before, table = table_of(rows), table_of(rows)
    of_all, of_b, from_before = read(table), read(table, "b"), read(before)
    for token, only in ((from_before.token, None), (of_b.token, None), (of_all.token, "b"), (of_b.token, "a")):
        assert table.position(token, only) is None
    assert table.position(of_b.token, "b") == table.position(of_all.token) == 1
    assert table.position(of_all.token.partition("-")[0] + "-ffff") is None, "a token from the future"
    tokens = ResumeTokens()
    token = tokens.token("one", 255)
    assert tokens.position("one", token) == 255
    assert ResumeTokens().position("one", token) is tokens.position("two", token) is tokens.position("one", "") is None


@pytest.mark.parametrize("garbage", ["x", "0123456789abcdef", "0123456789abcdef-", "0123456789ABCDEF-1", "é" * 9, "-1"])
def test_what_is_no_token_is_refused_by_name(garbage: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Reader(table_of(), garbage)
    assert [problem.path for problem in error.value.problems] == ["resume_token"]


IPS = st.sampled_from([f"h{n}" for n in range(8)])


class Watching(RuleBasedStateMachine):
    """State machine of a table and clients that read at any time.

    ``REMEMBERED`` is small, and a message holds few rows."""

    REMEMBERED = 3

    @initialize(rows=st.dictionaries(IPS, st.sampled_from("xyz")))
    def begin(self, rows: dict[str, str]) -> None:
        self.table = table_of(remembered=self.REMEMBERED, message_bytes=30)
        self.rows: dict[str, Value] = {}
        self.copies = [Copy(self.table), Copy(self.table), Copy(self.table, "even"), Copy(self.table, "odd")]
        self.removals = {0: 0}
        """Number of removed rows up to each version, including rows that were added again later."""
        self.change(rows)

    @rule(rows=st.dictionaries(IPS, st.sampled_from("xyz")))
    def change(self, rows: dict[str, str]) -> None:
        """Change the rows; each keeps its owner, as jobs keep their tenant."""
        removed = len(self.rows.keys() - rows.keys())
        self.rows = {ip: of(mac, "odd" if int(ip[1:]) % 2 else "even") for ip, mac in rows.items()}
        before = self.table.version
        self.table.update(self.rows)
        if self.table.version > before:
            self.removals[self.table.version] = self.removals[before] + removed

    @rule(who=st.integers(0, 3), messages=st.integers(1, 4))
    def read(self, who: int, messages: int) -> None:
        for _ in range(messages):
            self.copies[who].read()

    @rule(who=st.integers(0, 3), anew=st.booleans())
    def come_back(self, who: int, anew: bool) -> None:
        self.copies[who].resume("" if anew else None)

    @rule(who=st.integers(0, 3))
    def read_to_the_end(self, who: int) -> None:
        copy, snapshots = self.copies[who], self.copies[who].snapshots
        known = self.table.position(copy.token, copy.only)
        copy.read_all()
        assert copy.snapshots - snapshots <= (known is None)
        self.is_up_to_date(copy)

    @rule(who=st.integers(0, 3))
    def come_back_and_read_to_the_end(self, who: int) -> None:
        copy, snapshots = self.copies[who], self.copies[who].snapshots
        copy.resume()
        known = self.table.position(copy.token, copy.only)
        if known is None and copy.token:
            missed = self.removals[self.table.version] - self.removals[int(copy.token.partition("-")[2], 16)]
            assert missed > self.REMEMBERED
        copy.read_all()
        assert copy.snapshots - snapshots == (known is None)
        self.is_up_to_date(copy)

    def is_up_to_date(self, copy: Copy) -> None:
        assert copy.hosts == {ip: mac for ip, (owner, mac) in self.rows.items() if copy.only in (None, owner)}
        assert not copy.read()

    @invariant()
    def nothing_is_kept_of_more_rows_than_there_are_and_are_remembered(self) -> None:
        if hasattr(self, "table"):
            assert len(self.table.listed()) <= len(self.rows) + self.REMEMBERED

    @invariant()
    def a_finished_copy_has_no_row_that_was_gone_when_it_read(self) -> None:
        if hasattr(self, "table"):
            for copy in self.copies:
                for message in copy.messages:
                    assert not {host.ip for host in message.hosts} & set(message.hosts_gone)


TestWatching = Watching.TestCase
TestWatching.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
