"""Mappings that share unchanged entries behave like dictionaries."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys

import pytest

from controller.shared_map import FEW, SharedMap, differing, unequal, updated


def drawn(draw: random.Random, keys: int) -> dict[str, object | None]:
    """Return changes of some random keys: a new value, or None to remove the key."""
    names = [f"key {draw.randrange(keys)}" for _ in range(draw.choice([0, 1, 5, keys]))]
    return {name: None if draw.random() < 0.3 else object() for name in names}


@pytest.mark.parametrize("keys", [20, 2 * FEW])
@pytest.mark.parametrize("seed", range(5))
def test_one_that_is_made_from_another_has_what_a_dictionary_has(seed: int, keys: int) -> None:
    draw = random.Random(seed)
    expected: dict[str, object] = {}
    found: SharedMap[str, object] = SharedMap()
    for _ in range(30):
        before, was = found, expected
        changes = drawn(draw, keys)
        expected = {key: value for key, value in {**expected, **changes}.items() if value is not None}
        found = found.updated(changes)
        assert found == expected
        assert expected == found
        assert SharedMap(expected) == found
        assert found == SharedMap(expected)
        assert (found == before) is (expected == was)
        assert dict(found.items()) == {**found} == expected
        assert {*found} == expected.keys()
        assert {*map(id, found.values())} == {*map(id, expected.values())}
        assert len(found) == len(expected)
        assert all(found[key] is found.get(key) is value and key in found for key, value in expected.items())
        assert found.get("no key") is None
        assert "no key" not in found
        with pytest.raises(KeyError):
            found["no key"]
        assert before == was, "what it was made from stays as it was"


@pytest.mark.parametrize("keys", [20, 2 * FEW])
def test_equal_entries_become_the_same_objects(keys: int) -> None:
    wanted = SharedMap({number: f"value {number}" for number in range(keys)})
    held = SharedMap({number: "".join(["value ", str(number)]) for number in range(keys)})
    assert [*unequal(held, wanted)]
    assert held.like(wanted) is wanted
    other = held.updated({3: "another"})
    like = other.like(wanted)
    assert like == other
    ((left, _),) = unequal(like, wanted)
    assert left[3] == "another"
    assert other.like(other) is other


def test_nothing_is_made_where_nothing_changes() -> None:
    entries = {"a": 1}
    assert updated(entries, {}) is entries
    shared = SharedMap(entries)
    assert shared.updated({}) is shared
    assert SharedMap.of(shared) is shared
    assert not [*unequal(shared, shared)]
    assert not [*unequal(shared, SharedMap(shared))], "they have the same pieces"


def test_of_two_that_were_made_from_one_only_the_changes_are_looked_at() -> None:
    common = SharedMap({number: str(number) for number in range(4 * FEW)})
    one, other = common.updated({5: "five"}).updated({6: None, 7: "7"}), common.updated({8: "eight", 5: "FIVE"})
    ((old, new),) = unequal(one, other)
    assert (old, new) == ({5: "five", 7: "7", 8: "8"}, {5: "FIVE", 6: "6", 7: "7", 8: "eight"})
    assert [*unequal(other, one)] == [(new, old)]


@pytest.mark.parametrize("keys", [20, 2 * FEW])
@pytest.mark.parametrize("seed", range(5))
def test_the_difference_of_any_two_of_a_family_is_that_of_dictionaries(seed: int, keys: int) -> None:
    draw = random.Random(seed)
    family: list[SharedMap[str, object]] = [SharedMap()]
    for _ in range(60):
        parent = draw.choice(family[-4:])
        family.append(
            parent.updated(drawn(draw, keys)) if draw.random() < 0.9 else SharedMap.of(parent.like(family[-1]))
        )
        one, other = draw.choice(family), draw.choice(family)
        for before in (one, dict(one.items()), SharedMap(dict(one.items()))):
            assert {key: (was, now) for key, was, now in differing(before, other)} == {
                key: (one.get(key), other.get(key)) for key in {*one, *other} if one.get(key) is not other.get(key)
            }
        assert SharedMap(dict(one.items())).become(other) == other


def test_one_that_is_pickled_is_divided_anew_where_hashes_are_others() -> None:
    shared = SharedMap({f"key {number}": number for number in range(4 * FEW)})
    program = "import pickle, sys; found = pickle.load(sys.stdin.buffer); print(sum(found[key] for key in found))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(shared), env=environment, capture_output=True, check=True
    )
    assert int(done.stdout) == sum(range(4 * FEW))
