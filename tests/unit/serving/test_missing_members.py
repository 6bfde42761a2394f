"""Members that are overdue or without a link, as the leader finds them."""

from dataclasses import replace

from controller.serving.missing_members import OVERDUE_S, MissingMembersWatch
from controller.store.members import Member, Members, MissingMembers

LINK_S = 5.0
A, B = (Member(name.upper(), name, "", "1", 0.0) for name in "ab")
BOTH = Members((A, B), A, 0.0)


class Leader:
    """Watch of a leader, whose links and members a test sets."""

    def __init__(self) -> None:
        self.linked = {"a/A", "b/B"}
        self.put: list[MissingMembers] = []
        self.watch = MissingMembersWatch(lambda: self.linked, self.put.append, LINK_S)
        self.look(BOTH, 0.0)

    def look(self, members: Members, now: float) -> list[MissingMembers]:
        self.put.clear()
        self.watch.look(members, now)
        return self.put


def test_a_member_without_a_link_is_missing_after_a_while_until_it_is_linked() -> None:
    leader = Leader()
    leader.linked.remove("b/B")
    assert leader.look(BOTH, 1.0) == []
    assert leader.look(BOTH, LINK_S) == [MissingMembers(unlinked=frozenset({"b"}))]
    assert leader.look(BOTH, LINK_S + 1) == []
    leader.linked.add("b/B")
    assert leader.look(BOTH, LINK_S + 2) == [MissingMembers()]


def test_a_member_of_a_new_process_has_time_for_its_link() -> None:
    leader = Leader()
    again = replace(B, id="C")
    assert leader.look(replace(BOTH, all=(A, again)), 100.0) == []
    assert leader.look(replace(BOTH, all=(A, again)), 100.0 + LINK_S) == [MissingMembers(unlinked=frozenset({"b"}))]


def test_an_absent_member_is_overdue_after_a_while_unless_it_drains() -> None:
    leader = Leader()
    gone = Members((A,), A, 0.0, absent={"b": 7.0})
    assert leader.look(gone, 1.0) == []
    assert leader.look(gone, 1.0 + OVERDUE_S) == [MissingMembers({"b": 7.0})]
    assert leader.look(replace(gone, draining=frozenset({"b"})), 2.0 + OVERDUE_S) == [MissingMembers()]
    assert leader.look(gone, 3.0 + OVERDUE_S) == [MissingMembers({"b": 7.0})]
    assert leader.look(BOTH, 4.0 + OVERDUE_S) == [MissingMembers()]
    assert leader.look(gone, 5.0 + OVERDUE_S) == []
