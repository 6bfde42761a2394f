"""Lists in pages: how much a page has, and the opaque token with which the next one begins."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb

MAX_PAGE = 1000
"""Items in one answer."""

MAX_PAGE_BYTES = 1 << 20
"""Of one answer: gRPC's clients take 4 MiB unless they are told otherwise."""

_KIND = "after"

Listing = pb.ListJobsRequest | pb.ListRoutesRequest | pb.ListRulesRequest
"""Requests for a page."""


def page(request: Listing) -> tuple[int, str]:
    """How many items to list, and the key that they come after, empty for the first page. Raises ``InvalidInput`` for a
    negative number, and for a token that ``page_token`` has not made."""
    size = page_size(request)
    if not request.page_token:
        return size, ""
    try:
        version, _, after = base64.b64decode(request.page_token, b"-_", validate=True).decode("ascii").partition(":")
    except ValueError:
        version, after = "", ""
    if version != _KIND or not after:
        call = request.DESCRIPTOR.name.removesuffix("Request")
        raise InvalidInput.of("page_token", f"is none that {call} has returned; begin without one")
    return size, after


def page_size(request: Listing | pb.ListEventsRequest) -> int:
    """Return how many items to list. Raises ``InvalidInput`` for a negative number."""
    if request.page_size < 0:
        raise InvalidInput.of("page_size", f"must be at least 0 (given: {request.page_size})")
    return min(request.page_size or MAX_PAGE, MAX_PAGE)


def page_token(last: str) -> str:
    """For the page that follows the one whose last item has this key."""
    return base64.urlsafe_b64encode(f"{_KIND}:{last}".encode()).decode()


def filled(items: Iterable[tuple[str, bytes]], size: int) -> tuple[list[bytes], str]:
    """As many of the items as fit into a page of ``size``, at least one, and the token for the next page, empty after
    the last. ``items``: with their keys, each serialized as an answer with it alone; those
    beyond the page are not made.

    They are serialized one at a time, because serializing does not let other threads run: serialized parts, one after
    the other, are one message (``watch_table``)."""
    parts: list[bytes] = []
    taken, last = 0, ""
    for key, part in items:
        taken += len(part)
        if parts and (len(parts) == size or taken > MAX_PAGE_BYTES):
            return parts, page_token(last)
        parts.append(part)
        last = key
    return parts, ""
