"""Division of the file descriptors among switches, clients and scrapers."""

from pathlib import Path

import pytest

from controller.config import ApiConfig, Config, OpenFlowConfig
from controller.serving.descriptors import LEAST, OWN, within
from signalbox.errors import InvalidInput


@pytest.mark.parametrize("limit", [LEAST, 1024, 4096, 20_000, 1_000_000])
def test_all_shares_together_fit_and_nobody_is_left_without(limit: int) -> None:
    config = within(Config(), limit)
    api, switches = config.api, config.openflow.max_connections
    left = limit - OWN - config.metrics.max_connections
    assert min(left // 2, Config().openflow.max_connections) <= switches
    assert switches + min(api.max_connections, left // 2) <= left


def test_configured_limits_are_kept_where_descriptors_are_plenty() -> None:
    config = Config(api=ApiConfig(max_connections=100), openflow=OpenFlowConfig(max_connections=50))
    assert within(config, 20_000) == config


def test_too_few_descriptors_are_refused_with_the_remedy() -> None:
    """Connections that HAProxy may open have to fit."""
    with pytest.raises(InvalidInput, match=r"may open 100 files; at least 256 are needed \(ulimit -n\)"):
        within(Config(), 100)
    api = ApiConfig(max_connections=400, proxy_socket=Path("/p"))
    with pytest.raises(InvalidInput, match=r"at most 56 are possible: lower it, or raise the limit"):
        within(Config(api=api), LEAST)
    assert within(Config(api=api), 4096).api.max_connections == 400
