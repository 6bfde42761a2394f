"""Cases of parametrised tests of which ``make test`` runs a few and the long tests all."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def with_long(quick: Sequence[Any], every: Iterable[Any]) -> list[Any]:
    """Return the quick cases, and every other case with the mark ``long``; a case with several values is a tuple."""
    others = [each for each in every if each not in quick]
    values = (each if isinstance(each, tuple) else (each,) for each in others)
    return [*quick, *(pytest.param(*each, marks=pytest.mark.long) for each in values)]
