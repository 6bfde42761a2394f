"""Measurements of single links, for tests."""

from collections.abc import Mapping

import numpy as np

from controller.fabric.link_load import LinkLoad, in_use
from controller.fabric.topology import LinkId


def bytes_total(load: LinkLoad, link: LinkId) -> int | None:
    row = load._links.row_of.get(link)
    return None if row is None else int(load._links.last(np.array([row]))[0])


def rate_bps(load: LinkLoad, link: LinkId) -> float | None:
    """Return the rate over the window, or over the samples so far; None before the second sample."""
    row = load._links.row_of.get(link)
    found = np.nan if row is None else load._links.recent_bps(np.array([row]), load._window_s)[0]
    return None if np.isnan(found) else float(found)


def background_of(load: LinkLoad) -> Mapping[LinkId, float]:
    return in_use(load.measured, load.measured.beyond_bps)
