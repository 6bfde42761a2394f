"""Error messages about values from other programs: which values are repeated, and in which form."""

import pytest

from signalbox.errors import (
    MAX_SHOWN_CHARS,
    MAX_TEXT_CHARS,
    FieldProblem,
    InvalidInput,
    NotFound,
    SignalboxError,
    cut,
    no_such_job,
)

RED = "\x1b[31mred\u202e\x07"
ESCAPED = r"\x1b[31mred\u202e\x07"


@pytest.mark.parametrize(
    "error",
    [
        NotFound("none", about={"jobId": RED}),
        no_such_job(RED),
        InvalidInput.of(RED, f"'{RED}' is wrong"),
        InvalidInput.of("a", RED).within(RED).under(RED),
        InvalidInput((FieldProblem(f"a\nerror: {RED}", "b\nc"),)),
    ],
)
def test_no_error_has_what_a_terminal_obeys(error: SignalboxError) -> None:
    said = str(error) + "".join(error.about.values())
    assert ESCAPED in said
    assert said.isprintable()


def test_long_values_are_shortened_but_many_problems_told_whole_with_their_lines() -> None:
    assert str(no_such_job("a" * 100_000)).startswith(f"there is no job '{'a' * (MAX_SHOWN_CHARS - 3)}...'; ")
    said = str(InvalidInput.of("b" * 30_000_000, f"'{'a' * 30_000_000}' is wrong; choose another name"))
    assert len(said) < 2 * MAX_TEXT_CHARS + 100
    assert said.endswith("is wrong; choose another name")
    assert cut("\n" * 100) == r"\n" * (MAX_SHOWN_CHARS - 3) + "..."
    problems = tuple(FieldProblem(f"field{number}", "x" * 1000) for number in range(50))
    error = InvalidInput(problems)
    assert str(error) == "; ".join(map(str, problems))
    assert str(SignalboxError("its log ends:\none\ntwo")).count("\n") == 2
