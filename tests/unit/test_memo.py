"""The memo primitive: it calls a function again only when an input has changed."""

from __future__ import annotations

from collections.abc import Mapping

from controller.shared_map import ChangedKeys, Index, Memo, MemoPerKey, Row, SharedMap, joined, per_key, when


def test_the_same_inputs_give_the_same_object() -> None:
    memo = Memo(lambda things, number: [*things, number])
    things = {"a": 1}
    first = memo(things, 1)
    assert memo(things, 1) is first
    assert memo(things, 2) is not first
    assert memo(dict(things), 2) is not memo(things, 2), "an equal mapping is another input"


def test_plain_values_are_the_same_when_they_are_equal() -> None:
    memo = Memo(lambda pair, names: [pair, names])
    first = memo((1, "x"), frozenset({"y"}))
    assert memo((1, "x"), frozenset({"y"})) is first
    assert memo((1, "z"), frozenset({"y"})) is not first


def test_only_the_last_value_is_kept_and_none_is_a_value_like_any_other() -> None:
    calls: list[int] = []
    memo = Memo(calls.append)
    for number in (1, 1, 2, 1):
        memo(number)
    assert calls == [1, 2, 1]


class Squares:
    def __init__(self) -> None:
        self.calls: list[int] = []
        self.memo = MemoPerKey[str, int, int](self.square)

    def square(self, number: int) -> int:
        self.calls.append(number)
        return number * number

    def __call__(self, **numbers: int) -> Mapping[str, int]:
        return self.memo({name: (number,) for name, number in numbers.items()})


def test_only_keys_whose_inputs_changed_are_derived_anew() -> None:
    squares = Squares()
    assert squares(a=2, b=3) == {"a": 4, "b": 9}
    assert squares(a=2, b=4) == {"a": 4, "b": 16}
    assert squares.calls == [2, 3, 4]
    products = MemoPerKey[str, int, int, int](lambda a, b: a * b)
    assert [products({"a": pair})["a"] for pair in ((2, 3), (2, 4), (5, 4))] == [6, 8, 20]


def test_the_mapping_is_the_same_object_while_no_value_changes() -> None:
    squares = Squares()
    first = squares(a=2)
    assert squares(a=2) is first
    assert squares(a=-2) is first, "another input, the same value"
    assert squares(a=3) is not first


def test_keys_that_are_not_named_are_forgotten() -> None:
    squares = Squares()
    squares(a=2, b=3)
    assert squares(a=2) == {"a": 4}
    assert squares(a=2, b=3) == {"a": 4, "b": 9}
    assert squares.calls == [2, 3, 3]
    assert list(squares(b=3, a=2)) == ["b", "a"], "the order is that of the call"


def test_only_values_whose_sources_changed_are_derived_anew() -> None:
    calls: list[str] = []

    def joined(key: str, first: str, second: str | None) -> str | None:
        calls.append(key)
        return None if first == "none" else first + (second or "")

    derive = per_key(joined)
    firsts, seconds = SharedMap({"a": "x", "b": "y", "c": "none"}), SharedMap({"a": "1", "d": "4"})
    found = derive(firsts, seconds)
    assert found == {"a": "x1", "b": "y"}
    calls.clear()
    assert derive(firsts, seconds) is found
    assert derive(firsts.updated({"c": None}), seconds) is found, "it had no value"
    assert derive(firsts, seconds.updated({"b": "2", "d": None})) == {"a": "x1", "b": "y2"}
    assert derive(firsts.updated({"a": None}), SharedMap()) == {"b": "y"}
    assert set(calls) == {"b", "c"}


def test_what_has_changed_is_told_by_identity_and_what_is_gone_too() -> None:
    changed, beside = ChangedKeys[str](), {"a": object()}
    things: dict[str, object] = {"a": object(), "b": object()}
    assert changed(things, beside) == (["a", "b"], [])
    assert changed(things, beside) == ([], [])
    assert changed({"a": things["a"], "c": object()}, {"a": object()}) == (["c", "a"], ["b"])


def test_values_are_derived_anew_when_entries_that_they_refer_to_change() -> None:
    calls: list[frozenset[str]] = []

    def missing(names: frozenset[str], there: SharedMap[str, int]) -> tuple[str, ...] | None:
        calls.append(names)
        return tuple(sorted(names - there.keys())) or None

    def refers_to(names: frozenset[str]) -> frozenset[str]:
        return names

    derive = joined(refers_to, missing)
    ab, bc, none = frozenset("ab"), frozenset("bc"), frozenset[str]()
    wanted, there = SharedMap({1: ab, 2: bc, 3: none}), SharedMap({"a": 1, "b": 1})
    found = derive(wanted, there)
    assert found == {2: ("c",)}
    calls.clear()
    assert derive(wanted, there.updated({"d": 1})) is found
    assert calls == []
    assert derive(wanted, there.updated({"a": 2})) is found, "an entry that is another, with the same result"
    assert derive(wanted, there.updated({"b": None})) == {1: ("b",), 2: ("b", "c")}
    assert derive(wanted.updated({1: None, 3: ab}), there) == {2: ("c",)}
    assert calls.count(bc) == 2
    assert none not in calls


def test_an_index_says_who_refers_to_what() -> None:
    index = Index[str, str, str](lambda text: text, always="z")
    texts = SharedMap({"x": "ab", "y": "bc"})
    found = index(texts)
    assert found == {"a": {"x"}, "b": {"x", "y"}, "c": {"y"}, "z": set()}
    assert index(texts) is found
    assert index(texts.updated({"x": "ba"})) is found, "the same things"
    assert index(texts.updated({"x": "z"})) == {"b": {"y"}, "c": {"y"}, "z": {"x"}}
    assert index({}) == {"z": set()}


def test_a_row_is_not_derived_while_its_condition_does_not_hold() -> None:
    calls, drained, links = list[frozenset[str]](), set[str](), frozenset("ab")

    def without(links: frozenset[str], excluded: frozenset[str]) -> frozenset[str]:
        calls.append(excluded)
        return links - excluded

    row = Row(without, lambda: (links, frozenset(drained)))
    plannable = when(lambda: drained, row, lambda: links)
    assert plannable() is links
    assert calls == []
    drained.add("a")
    assert plannable() == {"b"}
    assert calls == [{"a"}]
