"""Pages of long lists: the size of a page, and the token with which a client requests the next page."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb

MAX_PAGE = 1000
"""Largest number of items in one answer."""

MAX_PAGE_BYTES = 1 << 20
"""Largest size of one answer in bytes, unless a single item is larger; gRPC clients accept 4 MiB by default."""

_KIND = "after"

Listing = pb.ListJobsRequest | pb.ListRoutesRequest | pb.ListRulesRequest
"""Request for a page of a list."""


def page(request: Listing) -> tuple[int, str]:
    """Return the number of items to list, and the key after which the page begins (empty for the first page).

    Raises ``InvalidInput`` for a negative number, and for a token that is not from ``page_token``."""
    size = page_size(request)
    if not request.page_token:
        return size, ""
    try:
        version, _, after = base64.b64decode(request.page_token, b"-_", validate=True).decode("ascii").partition(":")
    except ValueError:
        version, after = "", ""
    if version != _KIND or not after:
        call = request.DESCRIPTOR.name.removesuffix("Request")
        raise InvalidInput.of("page_token", f"is not a token that {call} returned; omit it for the first page")
    return size, after


def page_size(request: Listing | pb.ListEventsRequest) -> int:
    """Return the number of items to list. Raises ``InvalidInput`` for a negative number."""
    if request.page_size < 0:
        raise InvalidInput.of("page_size", f"must be at least 0 (given: {request.page_size})")
    return min(request.page_size or MAX_PAGE, MAX_PAGE)


def page_token(last: str) -> str:
    """Return the token of the page that begins after the item with this key."""
    return base64.urlsafe_b64encode(f"{_KIND}:{last}".encode()).decode()


def filled(items: Iterable[tuple[str, bytes]], size: int) -> tuple[list[bytes], str]:
    """Return as many of the items as fit into a page of ``size``, at least one, and the token of the next page.

    The token is empty after the last item. ``items`` yields the key of each item, and a serialized answer that contains
    only this item. ``items`` must serialize an item only on request, because other threads cannot run during a
    serialization. Concatenated serialized messages are one message (see ``watch_table``)."""
    parts: list[bytes] = []
    taken, last = 0, ""
    for key, part in items:
        taken += len(part)
        if parts and (len(parts) == size or taken > MAX_PAGE_BYTES):
            return parts, page_token(last)
        parts.append(part)
        last = key
    return parts, ""
