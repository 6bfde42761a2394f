"""Replace host names by addresses in the job specs of files that a launcher writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.host_addresses import Nics, addresses_of, host_names


def with_addresses(job: Any, given: Mapping[str, Nics]) -> Any:
    """Return the job, plain data, with addresses instead of host names in ``hosts`` and ``endpoints``.

    Hosts with several NICs become ``rails``, unless the job has its own. Texts that are not names stay, for ``job_in``
    to check. Raises ``InvalidInput`` with the field whose names have no address."""
    if not isinstance(job, dict):
        return job
    for field in ("hosts", "endpoints"):
        words = [job[field]] if isinstance(job.get(field), str) else job.get(field)
        if not isinstance(words, list) or not any(map(_is_name, words)):
            continue
        ranks = _ranks(field, words, given)
        if not all(len(nics) == len(ranks[0]) for nics in ranks):
            raise InvalidInput.of(
                field,
                "an address is a host with one address, and some of the named hosts have several: name all hosts",
            )
        first, *rails = zip(*ranks, strict=True)
        rails_of_names = {"rails": [{field: list(rail)} for rail in rails]} if rails else {}
        job = {**rails_of_names, **job, field: list(first)}
    return job


def _ranks(field: str, words: list[Any], given: Mapping[str, Nics]) -> list[Nics]:
    ranks: list[Nics] = []
    for number, word in enumerate(words):
        try:
            ranks += addresses_of(host_names(word), given) if _is_name(word) else [(word,)]
        except InvalidInput as error:
            where = f"{field}[{number}]" if len(words) > 1 else field
            raise InvalidInput(tuple(FieldProblem(where, _in_words(problem)) for problem in error.problems)) from None
    return ranks


def _in_words(problem: FieldProblem) -> str:
    return f"{problem.path} {problem.message}".strip()


def _is_name(word: object) -> bool:
    return isinstance(word, str) and any(c.isalpha() for c in word)
