"""The end of a controller that no switch answers, so that another one can take over."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

import pytest

from controller.config import Config
from controller.serving.serve import hand_over
from controller.southbound.outbox import Outbox
from controller.status import StatusBoard


@pytest.mark.parametrize(("settings", "in_etcd", "stands_by", "silent_s", "ends"), [
    ({}, True, True, 3.1, True),
    ({}, True, True, 2.9, False),
    ({}, True, False, 60.0, False),
    ({}, False, True, 60.0, False),
    ({"etcd": {"lease_s": 10}}, True, True, 9.0, False),
    ({"counters": {"interval_s": 4, "window_s": 8}}, True, True, 5.0, False),
    ({"counters": {"interval_s": 60, "window_s": 90}}, True, True, 7.6, True),
])  # fmt: skip
def test_a_controller_ends_when_no_switch_answers_and_another_one_can_take_over(
    settings: dict[str, object], in_etcd: bool, stands_by: bool, silent_s: float, ends: bool
) -> None:
    board, outbox = StatusBoard(), Mock()
    board.membership = Mock() if in_etcd else None
    board.has_standby = lambda: stands_by
    hand_over(Config.model_validate(settings), board, cast(Outbox, outbox), silent_s)
    assert outbox.fail.called == ends
