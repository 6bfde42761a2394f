"""Exit statuses of commands; docs/reference/command-line.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from signalbox.client import Unreachable
from signalbox.errors import (
    NO_SUCH_NAME,
    WRONG_USAGE,
    AlreadyExists,
    Conflict,
    Exhausted,
    InvalidInput,
    NotAllowed,
    NotFound,
    SignalboxError,
    Unauthenticated,
    Unavailable,
    WrongLeaseToken,
)


class ExitStatus(IntEnum):
    """Exit status of a command."""

    ERROR = 1
    """Any other error, such as a wrong file; one line each on stderr, at most 16 per file."""
    USAGE = 2
    """Wrong usage."""
    PARTLY = 3
    """Done or found only in part; the output names the rest."""
    NOT_CHECKABLE = 4
    """Partly verified: some slowdowns have no proof in the file, only the claim of a solver."""
    NOT_FOUND = 5
    """No such job, part, member, alarm or silence; or the part is down, or the job has ended."""
    NOT_ALLOWED = 6
    """Refused for good: no valid token or certificate, a wrong role, host or lease token."""
    NO_ANSWER = 7
    """No answer: the controller is away or stopping, refuses the connection, or takes too long."""
    REFUSED = 8
    """Refused for now: an id is taken, a limit reached, hosts would be cut off, data are missing."""


_OF: Mapping[type[BaseException], ExitStatus] = {
    NotFound: ExitStatus.NOT_FOUND,
    Unauthenticated: ExitStatus.NOT_ALLOWED,
    NotAllowed: ExitStatus.NOT_ALLOWED,
    WrongLeaseToken: ExitStatus.NOT_ALLOWED,
    Unreachable: ExitStatus.NO_ANSWER,
    AlreadyExists: ExitStatus.REFUSED,
    Conflict: ExitStatus.REFUSED,
    Exhausted: ExitStatus.REFUSED,
    Unavailable: ExitStatus.REFUSED,
    SignalboxError: ExitStatus.ERROR,
}
"""Exit status by class of error. Any other class has the status of its nearest base class in this table."""


def exit_status(error: SignalboxError) -> ExitStatus:
    """Return the exit status of a command that ends with this error.

    Among several problems, an unknown name gives ``NOT_FOUND``; else a wrong option gives ``USAGE``."""
    reasons = {problem.reason for problem in error.problems} if isinstance(error, InvalidInput) else ()
    if NO_SUCH_NAME in reasons:
        return ExitStatus.NOT_FOUND
    if WRONG_USAGE in reasons:
        return ExitStatus.USAGE
    return next(_OF[kind] for kind in type(error).__mro__ if kind in _OF)
