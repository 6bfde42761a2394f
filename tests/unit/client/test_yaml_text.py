"""YAML text read as plain data, with the line and column of each field and item."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from signalbox.errors import InvalidInput
from signalbox.files import MAX_DEPTH
from signalbox.yaml_text import documents, dump


def data_of(text: str) -> Any:
    (node,) = documents(text)
    return node.data


def wrong(text: str) -> str:
    with pytest.raises(InvalidInput) as error:
        documents(text)
    return str(error.value)


@pytest.mark.parametrize(("word", "value"), [
    ("no", "no"), ("yes", "yes"), ("on", "on"), ("1:30", "1:30"), ("2026-11-24", "2026-11-24"),
    ("10.0.1.1", "10.0.1.1"), ("10.0.1-4.1", "10.0.1-4.1"), ("1.2.3", "1.2.3"), ("<<", "<<"), ("'7'", "7"),
    ("'null'", "null"), ("7", 7), ("-7", -7), ("1_000_000", 1_000_000), ("0x1F", 31), ("0o17", 15), ("1e9", 1e9),
    ("1.5", 1.5), ("true", True), ("False", False), ("~", None), ("", None),
])  # fmt: skip
def test_words_mean_what_they_do_in_yaml_1_2(word: str, value: object) -> None:
    found = data_of(f"a: {word}\n")["a"]
    assert (found, type(found)) == (value, type(value))


def test_every_field_and_item_has_a_place() -> None:
    text = """\
# a job
job_id: a
groups:
  - name: dp
    ranks: [0,
            1]
"""
    (node,) = documents(text)
    assert node.data == {"job_id": "a", "groups": [{"name": "dp", "ranks": [0, 1]}]}
    places = {
        "job_id": (2, 1), "groups[0]": (4, 5), "groups[0].ranks": (5, 5), "groups[0].ranks[1]": (6, 13),
        "groups[0].color": (4, 5), "groups[3].name": (3, 1), "lease_s": (2, 1), "": (2, 1),
    }  # fmt: skip
    assert {path: node.place_of(path) for path in places} == places


def test_documents_are_apart_and_an_alias_is_a_copy_with_a_place_up_to_a_limit() -> None:
    (node,) = documents("a: &hosts [x, y]\nb: *hosts\nc: [*hosts]\n")
    assert node.data == {"a": ["x", "y"], "b": ["x", "y"], "c": [["x", "y"]]}
    assert (node.place_of("b"), node.place_of("c[0]")) == ((2, 1), (3, 5))
    assert [node.data for node in documents("---\na: 1\n---\n---\n- b\n...\n")] == [{"a": 1}, ["b"]]
    assert wrong("---\na: &x 1\n---\nb: *x\n") == "4:4: the alias *x refers to no complete anchor before it"
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, MAX_DEPTH)]
    assert "values are allowed, including each repetition by an alias" in wrong("a0: &a0 [x]\n" + "".join(lines))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: 'a' appears twice in one object, first in line 1"),
        ("a: 010\n", "1:4: write 010 without leading zeros, or as text in quotes"),
        ("1: a\n", "1:1: the name of a field must be text; put it in quotes"),
        ("? [a]\n: b\n", "1:3: the name of a field must be text; put it in quotes"),
        ("a: !!str 7\n", "1:4: tags such as !!str are not allowed; put text that could be a number in quotes"),
        ("a: &x [*x]\n", "1:8: the alias *x refers to no complete anchor before it"),
        (f"a: {'9' * 5000}\n", "1:4: a number of 5000 digits is too long"),
        ("a:\n\t- b\n", "2:1: not YAML: a tab; indent with spaces"),
        ("a:\r\n  - 1\r\n\t- 2\r\n", "3:1: not YAML: a tab; indent with spaces"),
        ("a: @b\n", "1:4: not YAML: while scanning"),
        ("ab: \x07\n", "1:5: not YAML: the character U+0007 is not allowed"),
        ("a: [1, 2\n", "2:1: not YAML: "),
        ("- " * 100_000, "1:65: at most 32 lists and objects may be nested"),
    ],
)
def test_what_is_wrong_has_a_place(text: str, problem: str) -> None:
    assert wrong(text).startswith(problem)


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8),
    st.sampled_from(
        ["no", "1e9", "010", "0o17", "1_0", "1:30", "null", "~", "", "a b", "- a", "a: b", "#", "2026-11-24"]
    ),
)


@settings(max_examples=30)
@given(
    st.recursive(TEXTS | st.integers() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))
)
def test_what_is_written_is_read_as_it_was(data: Any) -> None:
    """The client's reader and a reader of YAML 1.1 return the same data."""
    assert data_of(dump({"a": data})) == yaml.safe_load(dump({"a": data})) == {"a": data}
