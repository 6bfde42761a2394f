"""Lists in pages: how much a page has, and the opaque token with which the next one begins."""

from __future__ import annotations

import base64

from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.errors import InvalidInput
from controller.jobs.spec import JobId

MAX_PAGE = 1000
"""Jobs in one answer."""

MAX_PAGE_BYTES = 1 << 20
"""Of one answer: gRPC's clients take 4 MiB unless they are told otherwise."""

_KIND = "after"


def page(request: pb.ListJobsRequest) -> tuple[int, str]:
    """How many jobs to list, and the id that they come after. Raises ``InvalidInput`` for a negative number, and for a
    token that ``page_token`` has not made."""
    if request.page_size < 0:
        raise InvalidInput.of("page_size", f"must be at least 0 (given: {request.page_size})")
    size = min(request.page_size or MAX_PAGE, MAX_PAGE)
    if not request.page_token:
        return size, ""
    try:
        version, _, after = base64.b64decode(request.page_token, b"-_", validate=True).decode("ascii").partition(":")
    except ValueError:
        version, after = "", ""
    if version != _KIND or not after:
        raise InvalidInput.of("page_token", "is none that ListJobs has returned; begin without one")
    return size, after


def page_token(last: JobId) -> str:
    """For the page that follows the one whose last job this is."""
    return base64.urlsafe_b64encode(f"{_KIND}:{last}".encode()).decode()
