"""Loads of dimensions by formulas, compared with loads that are counted link by link."""

from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from offline.design.loads import Loads, collective_bytes
from offline.design.shape import Kind, Shape
from signalbox.jobs.spec import Algorithm


def shape(*dimensions: tuple[Kind, int]) -> Shape:
    return Shape.model_validate(
        {"dimensions": [{"name": f"d{d}", "kind": kind, "size": n} for d, (kind, n) in enumerate(dimensions)]}
    )


CUBE = shape((Kind.RING, 4), (Kind.FULLY_CONNECTED, 3), (Kind.SWITCH, 2))


@pytest.mark.parametrize("algorithm", [Algorithm.ALL_REDUCE, Algorithm.REDUCE_SCATTER, Algorithm.ALL_GATHER])
def test_a_vector_shrinks_by_the_size_of_each_dimension_and_all_of_it_is_sent(algorithm: Algorithm) -> None:
    ways = 2 if algorithm is Algorithm.ALL_REDUCE else 1
    found = collective_bytes(algorithm, 2400, (4, 3, 2), CUBE.dimensions)
    assert found == (ways * 1800, ways * 400, ways * 100)
    assert sum(found) == ways * 2400 * Fraction(23, 24)


def test_a_dimension_in_which_no_ranks_differ_carries_nothing() -> None:
    assert collective_bytes(Algorithm.ALL_REDUCE, 1200, (1, 3, 1), CUBE.dimensions) == (0, 1600, 0)
    assert collective_bytes(Algorithm.BROADCAST, 1200, (4, 1, 2), CUBE.dimensions) == (1200, 0, 1200)


def parts(size: int, span: int, apart: bool) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Divide the places of a dimension into groups of ``span`` places.

    ``apart``: whether the places of a group are at equal distances, instead of next to each other."""
    places = np.arange(size)
    return [*(places.reshape(span, -1).T if apart else places.reshape(-1, span))]


PARTS = [
    (Kind.SWITCH, 2, True, 1),
    (Kind.FULLY_CONNECTED, 4, False, 7 / 3),  # three of seven links lead to others of the group
    (Kind.RING, 4, True, 2),  # two groups, each all the way round
    (Kind.RING, 2, True, 4),
    (Kind.RING, 2, False, 2),  # one of two links
    (Kind.RING, 4, False, 2),
    (Kind.RING, 8, False, 1),
]


@pytest.mark.parametrize(("kind", "span", "apart", "times"), PARTS)
def test_groups_with_parts_of_a_dimension_cannot_use_all_of_it(
    kind: Kind, span: int, apart: bool, times: float
) -> None:
    line = shape((kind, 8))
    sent = collective_bytes(Algorithm.ALL_REDUCE, 1000, (span,), line.dimensions)
    one_by_one, everywhere = Loads(line), Loads(line)
    groups = parts(8, span, apart)
    for group in groups:
        one_by_one.add_collective(group, sent, [group])
    everywhere.add_everywhere(sent, groups[:1], [8 / span])
    for loads in (one_by_one, everywhere):
        assert loads.bytes_per_dimension() == pytest.approx((times * 2 * 1000 * (span - 1) / span,))


def test_a_group_alone_in_a_part_of_a_ring_has_the_links_of_all_its_npus() -> None:
    """A second group in the same ring shares its links; a group in the other ring does not."""
    alone = Loads(shape((Kind.RING, 6), (Kind.SWITCH, 2)))
    for ring, each in ((0, [1, 3]), (6, [0, 1, 3])):
        group = np.array(each)
        alone.add_collective(group + ring, (10.0, 0.0), [group, np.zeros(1, int)])
    assert alone.bytes_per_dimension() == (10, 0)
    alone.add_collective(np.array([2, 4]), (4.0, 0.0), [np.array([2, 4]), np.zeros(1, int)])
    assert alone.bytes_per_dimension() == (14, 0)


def test_groups_that_turn_back_leave_the_links_between_them_to_others() -> None:
    """Pairs of neighbours send 10 bytes on one of two links.

    A transfer between two pairs has a link to itself; a transfer within a pair uses the link of the pair."""
    pairs = parts(8, 2, apart=False)
    one_by_one, everywhere = (Loads(shape((Kind.RING, 8))) for _ in range(2))
    everywhere.add_everywhere((10.0,), pairs[:1], [4])
    for pair in pairs:
        one_by_one.add_collective(pair, (10.0,), [pair])
    for loads in (one_by_one, everywhere):
        loads.add_transfers(np.array([1, 2]), np.array([2, 1]), np.array([9.0, 9.0]))
        assert loads.bytes_per_dimension() == (20,)
        loads.add_transfers(np.array([3]), np.array([2]), np.array([1.0]))
        assert loads.bytes_per_dimension() == (22,)


@pytest.mark.parametrize("of", [CUBE, *(shape((kind, n)) for kind in Kind for n in (2, 5, 8))])
def test_an_all_to_all_is_what_its_transfers_put_on_the_busiest_link_of_each_dimension(of: Shape) -> None:
    """A transfer along a ring loads each link that it crosses."""
    pairs = np.array(list(permutations(range(of.npus), 2)))
    loads = Loads(of)
    loads.add_transfers(pairs[:, 0], pairs[:, 1], np.full(len(pairs), 100.0))
    sent = collective_bytes(Algorithm.ALL_TO_ALL, 100 * of.npus, of.sizes, of.dimensions)
    assert loads.bytes_per_dimension() == pytest.approx(sent)


@pytest.mark.parametrize(
    ("kind", "src", "dst", "expected"),
    [
        (Kind.SWITCH, 0, 5, 10),  # its one link
        (Kind.FULLY_CONNECTED, 0, 5, 50),  # one of five links, so that a fifth of the bandwidth counts
        (Kind.RING, 0, 2, 20),  # one of two links
        (Kind.RING, 0, 3, 10),  # half each way
        (Kind.RING, 5, 0, 20),  # the shorter way goes over the end
    ],
)
def test_a_transfer_loads_the_links_of_its_way(kind: Kind, src: int, dst: int, expected: float) -> None:
    loads = Loads(shape((kind, 6)))
    loads.add_transfers(np.array([src]), np.array([dst]), np.array([10.0]))
    assert loads.bytes_per_dimension() == (expected,)


def test_what_overlaps_adds_up_where_it_uses_the_same_links_only() -> None:
    loads = Loads(CUBE)
    loads.add_collective(np.arange(CUBE.npus), (8.0, 0.0, 0.0))
    loads.add_collective(np.array([0, 1]), (4.0, 6.0, 0.0))
    loads.add_transfers(np.array([23]), np.array([11]), np.array([5.0]))
    assert loads.bytes_per_dimension() == (12, 6, 5)


def test_groups_on_different_direct_links_of_an_npu_do_not_add_up() -> None:
    """Each group sends 12 bytes over one of three links; that loads the dimension like 36 bytes over all links."""
    pairs = [np.array(pair) for pair in ([0, 1], [2, 3], [0, 2], [1, 3])]
    loads = Loads(shape((Kind.FULLY_CONNECTED, 4)))
    for pair in pairs:
        loads.add_collective(pair, (12.0,), [pair])
    assert loads.bytes_per_dimension() == (36,)
    loads.add_collective(pairs[0], (2.0,), [pairs[0]])
    loads.add_transfers(np.array([0]), np.array([1]), np.array([1.0]))
    loads.add_transfers(np.array([0]), np.array([3]), np.array([5.0]))
    loads.add_collective(np.arange(4), (3.0,), [np.arange(4)])
    assert loads.bytes_per_dimension() == (36 + 6 + 3 * 1 + 3,)
