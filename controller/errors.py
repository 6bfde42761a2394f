"""Errors that reach a user: which field, what was wrong, what would be right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong field: ``path`` as the user wrote it (``collectives[1].bytes_per_iteration``)."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SignalboxError(Exception):
    """Base of every error that is the caller's to read."""


class InvalidInput(SignalboxError):
    """The request or file is wrong; nothing of it was applied."""

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class NotFound(SignalboxError):
    """No such job, host or switch."""


class AlreadyExists(SignalboxError):
    """The job id is taken by a job with another spec."""


class Conflict(SignalboxError):
    """The request is well formed but cannot hold beside what is already accepted."""


class Exhausted(SignalboxError):
    """A limit of the controller was reached; retry later or with less."""
