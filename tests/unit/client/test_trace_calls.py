"""The iteration of a trace, and which of its calls overlap."""

import pytest

from signalbox.errors import InvalidInput
from signalbox.traces.calls import Amount, Call, Kind, per_iteration

A, B, C = (Kind("all_reduce", (0, 1), name) for name in "abc")


def calls(text: str, sizes: dict[str, int] | None = None) -> list[Call]:
    """Return a call per letter, of 1 byte where ``sizes`` has no size."""
    return [Call(Kind("all_reduce", (0, 1), letter), (sizes or {}).get(letter, 1)) for letter in text]


def both(text: str, iterations: int | None = None) -> dict[Kind, Amount]:
    return per_iteration({0: calls(text), 1: calls(text)}, iterations)


@pytest.mark.parametrize(("text", "counts"), [
    ("aabaabaab", {"a": 2, "b": 1}),
    ("xyzaabcaabcaabcaabc", {"a": 2, "b": 1, "c": 1}),
    ("aaaaaa", {"a": 1}),
    ("bcabcabcabca", {"a": 1, "b": 1, "c": 1}),
    ("abcabcabcabcz", {"a": 1, "b": 1, "c": 1}),
], ids=["from the start", "after a start", "one call", "begun and ended within one", "before an end"])  # fmt: skip
def test_the_iteration_is_what_repeats(text: str, counts: dict[str, int]) -> None:
    assert {kind.tag: amount.bytes for kind, amount in both(text).items()} == counts


def test_calls_that_do_not_repeat_are_refused_unless_the_number_of_iterations_is_given() -> None:
    with pytest.raises(InvalidInput, match=r"rank 0: the 4 calls of the rank do not repeat.*--iterations"):
        both("abcd")
    with pytest.raises(InvalidInput, match="do not repeat"):
        both("abcdefghaa")
    assert {kind.tag: amount.bytes for kind, amount in both("abaab", 2).items()} == {"a": 2, "b": 1}


def test_calls_that_alternate_or_begin_while_another_is_under_way_share_a_phase() -> None:
    """The calls b and c begin before the previous call has ended; d begins when all have ended."""
    found = both("abacc" * 3)
    assert {kind.tag: amount.phase for kind, amount in found.items()} == {"a": 0, "b": 0, "c": 1}
    assert list(found) == [A, B, C]
    made = [Call(kind, 8, overlaps) for kind, overlaps in ((A, False), (B, True), (C, True))]
    last = Call(Kind("all_reduce", (0, 1), "d"), 8)
    found = per_iteration({rank: [*made, last] * 2 for rank in (0, 1)}, 2)
    assert [amount.phase for amount in found.values()] == [0, 0, 0, 1]


def test_phases_agree_between_ranks_of_which_none_sees_all() -> None:
    first, second, last = Kind("send", (0, 1)), Kind("send", (1, 2)), Kind("all_reduce", (0, 1, 2))
    traces = {0: [first, last], 1: [first, second, last], 2: [second, last]}
    found = per_iteration({rank: [Call(kind, 8) for kind in kinds * 2] for rank, kinds in traces.items()})
    assert {kind: amount.phase for kind, amount in found.items()} == {first: 0, second: 1, last: 2}


def test_what_overlaps_on_one_rank_does_on_the_others_and_a_contradictory_order_is_one_phase() -> None:
    overlapping = [Call(A, 1), Call(B, 1, overlaps=True), Call(C, 1)] * 2
    others = [Call(A, 1), Call(B, 1), Call(C, 1)] * 2
    for ranks in ((overlapping, others), (others, overlapping)):
        found = per_iteration(dict(enumerate(ranks)), 2)
        assert {kind: amount.phase for kind, amount in found.items()} == {A: 0, B: 0, C: 1}
    found = per_iteration({0: calls("ab" * 3), 1: calls("ba" * 3)})
    assert {amount.phase for amount in found.values()} == {0}


def test_ranks_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        InvalidInput, match="rank 1: sends 7 bytes per iteration in all_reduce of ranks 0, 1, but rank 0 sends"
    ):
        per_iteration({0: calls("aa"), 1: calls("aa", {"a": 7})})
    with pytest.raises(InvalidInput, match="rank 1: made no all_reduce of ranks 0, 1, but rank 0 did"):
        per_iteration({0: calls("aa"), 1: []})


def test_long_traces_take_linear_time() -> None:
    """A rank without a trace does what the others do."""
    assert per_iteration({0: calls("b" + "a" * 60_000)}) == {A: Amount(1, 0)}
