"""Members of several versions: which can be linked to the leader."""

import pytest

from controller.store.members import LinkFormats, Member, Members, common_format


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [((1, 1), (1, 1), 1), ((1, 2), (1, 1), 1), ((2, 3), (1, 2), 2), ((1, 3), (2, 3), 3), ((2, 2), (1, 1), None)],
)
def test_members_write_the_newest_format_that_both_read(one: LinkFormats, other: LinkFormats, common: int) -> None:
    assert common_format(one, other) == common_format(other, one) == common


def test_members_whose_formats_the_leader_does_not_read_cannot_hold_switches() -> None:
    old, both, new = (Member(name, name, "", "1", 0.0, link=link) for name, link in
                      (("old", (1, 1)), ("both", (1, 2)), ("new", (2, 2))))  # fmt: skip
    able = {leader.name: [one.name for one in Members((both, new, old), leader, 0.0).linkable()]
            for leader in (old, both, new)}  # fmt: skip
    assert able == {"old": ["both", "old"], "both": ["both", "new", "old"], "new": ["both", "new"]}
    assert Members((both, new, old), None, 0.0).linkable() == [both, new, old], "nobody leads"
