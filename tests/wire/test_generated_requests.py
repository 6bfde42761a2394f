"""A few hundred generated requests of fixed seeds; the benchmark ``api-requests`` sends any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.api_requests.cases import case
from benchmarks.api_requests.command import run
from benchmarks.api_requests.raw import KEPT, KEPT_RAW, raw, send_raw
from benchmarks.api_requests.sending import Sender
from benchmarks.api_requests.values import METHODS, Known
from controller.api.access import RULES
from tests.support.wire.control_stand_in import running_api

NOT_IN_STAND_IN = ("Explain", "WhatIf", "GetPlanProof")


def test_a_request_is_the_same_every_time() -> None:
    assert [case(7, number, Known()) for number in range(300)] == [case(7, number, Known()) for number in range(300)]
    assert [raw(7, number) for number in range(50)] == [raw(7, number) for number in range(50)]
    assert case(7, 1, Known()) != case(8, 1, Known())


def test_requests_of_every_kind_go_to_every_method() -> None:
    cases = [case(3, number, Known()) for number in range(8000)]
    assert RULES.keys() < METHODS.keys()
    for path in METHODS:
        assert {"correct", "one field changed", "bytes"} <= {one.what for one in cases if one.path == path}, path


def test_where_there_are_hosts_and_a_plan_nothing_is_a_defect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, known = tmp_path / "api.sock", Known()
    with running_api(f"unix:{path}", max_message_bytes=1 << 20), Sender(f"unix:{path}", known) as sender:
        generated = (case(11, number, known) for number in range(200))
        for sent in (*KEPT, *generated):
            if not sent.path.endswith(NOT_IN_STAND_IN):
                assert (sender.send(sent).wrong(sent), str(sent)) == ("", str(sent))
        for frames in (*KEPT_RAW, *(raw(11, number) for number in range(15))):
            if frames.path.endswith(NOT_IN_STAND_IN):
                continue
            assert (frames.wrong(send_raw(str(path), frames)), str(frames)) == ("", str(frames))
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


@pytest.mark.parametrize(("count", "kills"), [(100, 0), pytest.param(3000, 5, marks=pytest.mark.long)])
def test_a_controller_answers_all_and_forgets_nothing_when_it_is_killed(count: int, kills: int) -> None:
    """The controller is killed once more at the end, while a job is being registered."""
    result = run(seed=4, count=count, kills=kills)
    assert result.failures == []
    assert result.bad_lines == 0
    assert min(result.restored) > 0
