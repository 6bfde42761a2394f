"""Names of drained parts: finding many names needs no more passes over all parts and links than finding one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controller.fabric.drains import Drain, forwarding_links, links_named, links_of_parts
from controller.fabric.parts import End, Part, cable_key
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortNo, PortRef
from signalbox.errors import InvalidInput


class Read(list[Part]):
    """List of parts that counts in ``times`` how often the whole list was read."""

    times = 0

    def __iter__(self) -> Iterator[Part]:
        self.times += 1
        return super().__iter__()


def down(number: int) -> Part:
    a, b = PortRef(Dpid(1), PortNo(number)), PortRef(Dpid(2), PortNo(number))
    ends = (End(a, "leaf1", f"leaf1-eth{number}"), End(b, "spine1", f"spine1-eth{number}"))
    return Part(cable_key(a, b), ends, down_since=1.0)


def times_read(names: list[str]) -> int:
    parts = Read(down(number) for number in range(1, 5))
    with pytest.raises(InvalidInput) as raised:
        links_named(names, Fabric(), parts)
    assert len(raised.value.problems) == len(names)
    return parts.times


def test_what_is_down_is_looked_at_as_often_for_many_names_as_for_one() -> None:
    assert times_read([f"leaf1:{number}" for number in range(10, 60)]) == times_read(["leaf1:10"])


def test_what_is_down_is_named_by_either_end_by_its_ports_and_together() -> None:
    names = ["leaf1:3", "leaf1:leaf1-eth3", "leaf1:3>spine1", "spine1:3", "spine1:3>leaf1", "leaf1:spine1"]
    for name in names:
        assert links_named([name], Fabric(), [down(3)]) == frozenset()


class Links(dict[LinkId, Link]):
    """Dictionary of links that counts in ``times`` how often all links were read."""

    times = 0

    def values(self):  # type: ignore[no-untyped-def]
        self.times += 1
        return super().values()


def test_links_are_looked_at_as_often_for_many_switches_as_for_one() -> None:
    between = [(PortRef(Dpid(1), PortNo(n)), PortRef(Dpid(n), PortNo(1))) for n in range(2, 8)]
    links = Links({LinkId(*a): Link(a, b, 1e9) for pair in between for a, b in (pair, pair[::-1])})
    drains = {str(n): Drain(Dpid(n), str(n), 0.0) for n in range(2, 8)}
    of_parts = {name: {link.id for link in of} for name, of in links_of_parts(drains, links).items()}
    assert of_parts == {str(n): {LinkId(Dpid(1), PortNo(n)), LinkId(Dpid(n), PortNo(1))} for n in range(2, 8)}
    assert links.times == 1


@pytest.mark.parametrize("one_way", [True, False])
def test_a_circuit_is_empty_whatever_leaves_by_the_port_that_it_arrives_at(one_way: bool) -> None:
    a, b, c = (PortRef(Dpid(n), PortNo(2)) for n in (1, 2, 3))
    links = {LinkId(*a): Link(a, b, 1.0, one_way), LinkId(*b): Link(b, c if one_way else a, 1.0, one_way)}
    left = forwarding_links(links, frozenset([LinkId(*a)]), [LinkId(*b)])
    assert links.keys() - left.keys() == ({LinkId(*a)} if one_way else set())
