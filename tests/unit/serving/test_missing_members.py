"""Members that are overdue or without a link, as the leader finds them."""

from dataclasses import replace

from controller.serving.missing_members import OVERDUE_S, MissingMembersWatch
from controller.store.assignment import Holder
from controller.store.members import Member, Members, MissingMembers

A, B = (Member(name.upper(), name, "", "1", 0.0) for name in "ab")
BOTH = Members((A, B), A, 0.0)


class Leader:
    """Watch of a leader, whose links and members a test sets."""

    def __init__(self) -> None:
        self.unlinked: set[Holder] = set()
        self.put: list[MissingMembers] = []
        self.watch = MissingMembersWatch(self.put.append)
        self.look(BOTH, 0.0)

    def look(self, members: Members, now: float) -> list[MissingMembers]:
        self.put.clear()
        self.watch.look(members, self.unlinked, now)
        return self.put


def test_a_member_without_a_link_is_missing_until_it_is_linked() -> None:
    leader = Leader()
    leader.unlinked = {Holder("b", "B")}
    assert leader.look(BOTH, OVERDUE_S) == [MissingMembers(unlinked=frozenset({"b"}))]
    assert leader.look(BOTH, 1.0 + OVERDUE_S) == []
    leader.unlinked.clear()
    assert leader.look(BOTH, 2.0 + OVERDUE_S) == [MissingMembers()]


def test_a_new_process_has_time_for_its_first_link() -> None:
    leader = Leader()
    leader.unlinked = {Holder("a", "A")}
    assert leader.look(BOTH, OVERDUE_S - 1.0) == []
    restarted = replace(BOTH, all=(replace(A, id="other"), B))
    leader.unlinked = {Holder("a", "other")}
    assert leader.look(restarted, OVERDUE_S) == []
    assert leader.look(restarted, 2 * OVERDUE_S - 1.0) == []
    assert leader.look(restarted, 2 * OVERDUE_S) == [MissingMembers(unlinked=frozenset({"a"}))]


def test_an_absent_member_is_overdue_after_a_while_unless_it_drains() -> None:
    leader = Leader()
    gone = Members((A,), A, 0.0, absent={"b": 7.0})
    assert leader.look(gone, 1.0) == []
    assert leader.look(gone, 1.0 + OVERDUE_S) == [MissingMembers({"b": 7.0})]
    assert leader.look(replace(gone, draining=frozenset({"b"})), 2.0 + OVERDUE_S) == [MissingMembers()]
    assert leader.look(gone, 3.0 + OVERDUE_S) == [MissingMembers({"b": 7.0})]
    assert leader.look(BOTH, 4.0 + OVERDUE_S) == [MissingMembers()]
    assert leader.look(gone, 5.0 + OVERDUE_S) == []
