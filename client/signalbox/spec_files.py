"""Read job specs from files: YAML, JSON or TOML, one job or several.

Errors name the file, line and column of the field. For TOML only syntax errors have a line. docs/reference/job-spec.md
describes the fields."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.file_forms import job_in
from signalbox.files import MAX_FIELDS, MAX_LISTS, MAX_VALUES, called, read_text
from signalbox.jobs.spec import JobSpec
from signalbox.toml_text import table

if TYPE_CHECKING:
    from signalbox.yaml_text import Node

MAX_SPEC_BYTES = 16 << 20
"""Largest size in bytes of a file with job specs."""

MAX_JOBS = 10_000
"""Largest number of jobs in one file."""

PlaceOf = Callable[[str], str]
"""Function that takes the path of a field in a job, and returns its place: ``FILE:LINE:COLUMN``, or only ``FILE``."""


@dataclass(frozen=True)
class JobInPlace:
    """Job of a file, and the places of its fields. ``spec`` has no short forms."""

    spec: JobSpec
    place_of: PlaceOf

    @contextmanager
    def errors_placed(self) -> Iterator[None]:
        """Add places in the file to errors about this job that are raised inside the block, also by the controller."""
        with placed(self.place_of):
            yield


def jobs_in(path: Path, prepared: Callable[[Any], Any] = lambda job: job) -> list[JobInPlace]:
    """Return the jobs of the file, at least one. Raises ``InvalidInput`` with the problems of all jobs.

    ``prepared``: function that changes a job's data before they are checked; for example, it replaces names of hosts by
    addresses."""
    name = called(path)
    found: list[JobInPlace] = []
    problems: list[FieldProblem] = []
    for data, place_of in data_in(path, name):
        try:
            with placed(place_of):
                found.append(JobInPlace(job_in(prepared(data)), place_of))
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(tuple(problems))
    if not found:
        raise InvalidInput.of(name, "there is no job in this file")
    twice = [job for job, times in Counter(job.spec.job_id for job in found).items() if times > 1]
    InvalidInput.refuse(
        FieldProblem(name, f"'{job}' is the id of several jobs in this file; each needs an id of its own")
        for job in twice
    )
    return found


@contextmanager
def part_of_a_job(path: Path, known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the only job in a file, which may be incomplete.

    An error about these fields that is raised inside the ``with`` block gets the places of the fields in the file.
    ``known``: fields that the file must not have, each with the reason. Raises ``InvalidInput``."""
    name = called(path)
    found = data_in(path, name)
    if len(found) != 1 or not isinstance(found[0][0], dict):
        raise InvalidInput.of(name, "must be one object with fields of a job spec")
    ((given, place_of),) = found
    with placed(place_of):
        InvalidInput.refuse(FieldProblem(field, why) for field, why in known.items() if field in given)
    with placed(lambda field: place_of(field) if re.split(r"[.\[]", field)[0] in given else ""):
        yield dict(given)


def job_of_text(
    text: str, name: str, known: Mapping[str, str], completed: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> JobSpec:
    """Return the job of a YAML text without the fields that the caller knows.

    - ``name``: name of the text in errors
    - ``known``: fields that the text must not have, each with the reason
    - ``completed``: function that adds the known fields

    Raises ``InvalidInput`` with the places of the wrong fields."""
    nodes = _nodes(text, name)
    if len(nodes) > 1 or not all(isinstance(node.data, dict) for node in nodes):
        raise InvalidInput.of(name, "must be one object with fields of a job spec")
    given, place_of = {}, None
    if nodes:
        given, place_of = nodes[0].data, partial(_place, name, partial(_same, nodes[0]), "")
    with placed(place_of or (lambda _: name)):
        InvalidInput.refuse(FieldProblem(field, why) for field, why in known.items() if field in given)
        return job_in(completed(given))


@contextmanager
def placed(place_of: PlaceOf) -> Iterator[None]:
    """Add places in the file to the errors raised inside, and sort the problems of an error by place.

    Problems without a field come last, such as the note that more problems exist."""
    try:
        yield
    except InvalidInput as error:
        found = [(place_of(problem.path), problem) for problem in error.problems]
        found.sort(key=lambda of: (not of[1].path, _line_and_column(of[0])))
        raise InvalidInput(tuple(_with_place(problem, place) for place, problem in found)) from None


def _line_and_column(place: str) -> tuple[int, ...]:
    found = re.search(r":(\d+):(\d+)$", place)
    return tuple(map(int, found.groups())) if found else ()


def _with_place(problem: FieldProblem, place: str) -> FieldProblem:
    return replace(problem, path=": ".join(filter(None, (place, problem.path))))


def data_in(path: Path, name: str) -> list[tuple[Any, PlaceOf]]:
    """Return each job in a file: its data, and the function that finds the places of its fields.

    The function also reads files of other things than jobs. ``name``: name of the file in errors. Raises
    ``InvalidInput``."""
    text = read_text(path, MAX_SPEC_BYTES)
    form = FORMS.get(path.suffix.lower()) or _form_of(text)
    if form == "toml":
        found = _jobs(table(text, name), lambda: None, name)
    elif form == "json":
        found = _jobs(_json(text, name), cache(lambda: _json_root(text, name)), name)
    else:
        found = [job for node in _nodes(text, name) for job in _jobs(node.data, partial(_same, node), name)]
    if len(found) > MAX_JOBS:
        raise InvalidInput.of(name, f"at most {MAX_JOBS} jobs are allowed (given: {len(found)})")
    return found


def _jobs(data: Any, root: Callable[[], Node | None], name: str) -> list[tuple[Any, PlaceOf]]:
    if isinstance(data, list):
        return [(job, partial(_place, name, root, f"[{i}]")) for i, job in enumerate(data)]
    return [(data, partial(_place, name, root, ""))]


def _place(name: str, root: Callable[[], Node | None], job: str, path: str) -> str:
    node = root()
    return ":".join((name, *map(str, node.place_of(f"{job}.{path}")))) if node else name


def _same(node: Node) -> Node:
    return node


FORMS = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
"""Formats by the ending of a file's name. For other endings the format is guessed from the text."""


def _form_of(text: str) -> str:
    """Return the format of a text, as guessed from its first line that is not a comment.

    JSON begins with a bracket, TOML with a name and an equals sign. Any other text counts as YAML."""
    first = next((line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")), "")
    if first.startswith(("{", "[")):
        return "json"
    return "toml" if re.match(r"[\w\"'.-]+\s*=", first) else "yaml"


def _nodes(text: str, name: str) -> list[Node]:
    from signalbox.yaml_text import documents  # a slow import that only some files need

    try:
        return documents(text)
    except InvalidInput as error:
        (problem,) = error.problems
        raise InvalidInput.of(f"{name}:{problem.path}", problem.message) from None


def _json(text: str, name: str) -> Any:
    if text.count(",") + text.count(":") > MAX_VALUES:
        raise InvalidInput.of(name, f"at most {MAX_VALUES} values are allowed, including names of fields")
    if text.count("[") + text.count("{") > MAX_LISTS:
        raise InvalidInput.of(name, f"at most {MAX_LISTS} lists and objects are allowed")
    try:
        return json.loads(text, object_pairs_hook=_object_without_repeats)
    except json.JSONDecodeError as error:
        raise InvalidInput.of(f"{name}:{error.lineno}:{error.colno}", f"not JSON: {error.msg}") from None
    except RecursionError:
        raise InvalidInput.of(name, "lists and objects are nested too deeply") from None
    except ValueError as error:
        # The YAML reader also finds a repeated field, too many fields, or a number that is too long, with its place.
        _nodes(_as_yaml(text), name)
        raise InvalidInput.of(name, str(error)) from None


def _json_root(text: str, name: str) -> Node | None:
    try:
        (root,) = _nodes(_as_yaml(text), name)
    except (InvalidInput, ValueError):
        return None  # the text has, for example, a control character, which YAML forbids
    return root


def _as_yaml(text: str) -> str:
    """Return a JSON text as YAML, in which each field keeps its line and column.

    Tabs and surrogates, which YAML forbids, become spaces."""
    return re.sub(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", "\\\\u0020", text.replace("\t", " "))


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ``ValueError`` for a repeated name, and for more than ``MAX_FIELDS`` fields.

    Python's JSON reader would use the last value of a repeated name."""
    if len(pairs) > MAX_FIELDS:
        raise ValueError(f"at most {MAX_FIELDS} fields are allowed in an object (given: {len(pairs)})")
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"'{cut(twice)}' appears twice in one object")
    return found
