"""The launcher of controllers, and a controller that imports nothing while it serves.

An import needs a free descriptor."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from mininet_topos import controller_process
from mininet_topos.controller_process import START_S, ControllerProcess, Settings, _lives, start
from mininet_topos.lab.record import wait_for
from mininet_topos.trainer.training import announcement
from signalbox.client import Client, Unreachable
from signalbox.commands.output import fields
from signalbox.errors import SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import Algorithm
from signalbox.mapping import job_spec
from signalbox.spec_files import jobs_in
from signalbox.words import Mode
from tests.support.waiting import DEADLINE_S
from tests.support.wire.fake_switch import FakeSwitch
from tests.wire.test_roles import METHODS, requests, spec


@pytest.fixture(autouse=True)
def _no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start controllers as everybody does, not as ``preloaded_controllers``."""
    monkeypatch.setattr(controller_process, "start", start)


def test_processes_that_have_ended_and_were_not_collected_are_not_waited_for() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as leader:
        assert _lives(leader.pid)
        leader.kill()
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        assert not _lives(leader.pid)


def test_a_controller_that_does_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings={"planning": {"no_such_key": 1}})
    with pytest.raises(SignalboxError, match=r"(?s)ended with status 1.*no_such_key"), controller.running():
        pass


STOPPED_WHILE_IT_STARTS = """
import os, signal, sys
from pathlib import Path
from controller.config import load
from controller.planning.process import PlanningProcess
from controller.serving.serve import serve

def make(*given):
    planner = PlanningProcess(*given)
    os.kill(os.getpid(), signal.SIGTERM)
    return planner

sys.exit(serve(load(Path(sys.argv[1])), make_planner=make))
"""


def test_a_controller_that_is_stopped_while_it_starts_ends_with_its_planner(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    file = tmp_path / "signalbox.toml"
    file.write_text(controller.config())
    words = [sys.executable, "-c", STOPPED_WHILE_IT_STARTS, str(file)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "event=stopping" in done.stderr) == (0, True), "it has started before it ends"


OFFER = """\
job_id: recommender
hosts: 10.0.0.1-3
lease_s: 600
parallelizations:
  - name: replicas
    groups: [{name: all, ranks: [0, 1, 2]}]
    collectives: [{algorithm: all_reduce, groups: [all], bytes_per_iteration: 3 MB}]
    compute: [{seconds: 0.1}, {seconds: 0.2, phase: 0}]
  - name: model
    model: {layers: 4, hidden: 64, heads: 4, vocabulary: 100, sequence: 8, global_batch: 6}
    parallelism: {pipeline: 3}
"""

ONE_JOB: Settings = {"jobs": {"max_jobs": 1}}


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    """A controller with more saved jobs than its limit refuses to start, and changes no file.

    The last controller answers until it is stopped, and ends cleanly. gRPC's core writes no line for a compressed
    request."""
    (tmp_path / "recommender.yaml").write_text(OFFER)
    (offer,) = jobs_in(tmp_path / "recommender.yaml")
    assert [len(way.collectives) + len(way.transfers) for way in offer.spec.parallelizations] == [1, 5]
    ring = announcement("ring", ("10.0.1.1", "10.0.1.2"), Algorithm.RING_ALL_REDUCE, 1000, lease_s=600)
    controller = ControllerProcess(tmp_path, settings={"discovery": {"adoption_patience_s": 0.5}})
    with controller.running() as client:
        first = client.register_job(ring, request_id="once")
        of_offer = client.register_job(offer.spec)
        client.set_mode(Mode.SHADOW)
        alarms = alarm_times_ms(client)
        events = tmp_path / "state" / "events.jsonl"
        wait_for(lambda: events.read_text().count('"job_alarm"') == len(alarms), "the alarms in the event file")
        controller.kill()
    saved = state_files(tmp_path)
    refused = r"(?s)ended with status 1.*job 'recommender': 1 job is registered"
    with pytest.raises(SignalboxError, match=refused), replace(controller, settings=ONE_JOB).running():
        pass
    assert state_files(tmp_path) == saved
    with controller.running() as client:
        assert fields(client.get_status())["mode"] == "shadow"
        assert client.renew_lease("ring", first.lease_token) == 600.0
        again = client.register_job(ring, request_id="once")
        assert (again.job.uid, again.lease_token) == (first.job.uid, first.lease_token)
        assert again.job.register_time == first.job.register_time
        with pytest.raises(WrongLeaseToken):
            client.renew_lease("ring", f"{first.job.uid}.guessed")
        assert alarm_times_ms(client) == pytest.approx(alarms, abs=500)
        assert [event.what for event in client.list_events(kinds=["job_alarm"])] == ["alarm"] * len(alarms)
        found = client.get_job("recommender")
        assert (job_spec(found.spec), found.virtual_links) == (offer.spec, 3), "links of the first parallelization"
        client.update_job(offer.spec.of_parallelization("model"), lease_token=of_offer.lease_token)
        assert client.get_job("recommender").virtual_links == 6
        socket.create_connection(("127.0.0.1", controller.openflow_port)).close()
        with grpc.insecure_channel(controller.address) as channel:
            status: Any = channel.unary_unary("/signalbox.v1.ControllerService/GetStatus")
            with pytest.raises(grpc.RpcError, match="gzip"):
                status(b"", compression=grpc.Compression.Gzip)
        assert controller.stop() == 0
        with pytest.raises(Unreachable):
            client.get_status()
    assert controller.stop() is None
    log = controller.log.read_text()
    assert first.lease_token.partition(".")[2] not in log
    assert "disabled" not in log


def alarm_times_ms(client: Client) -> dict[str, int]:
    """Return the time when each alarm was raised, by job; there is one for each of two jobs."""
    wait_for(lambda: len(client.get_status().alarms) == 2, "the alarms")
    return {alarm.subject: alarm.raise_time.ToMilliseconds() for alarm in client.get_status().alarms}


def state_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "state").iterdir() if path.name != "lock"}


def test_a_controller_that_has_just_begun_to_listen_ends_cleanly_too(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    controller.start()
    wait_for(lambda: listens(controller), "the API", START_S)
    assert controller.stop() == 0


def listens(controller: ControllerProcess) -> bool:
    controller.check()
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(controller.address.removeprefix("unix:")) == 0


PROGRAM = "tests.support.wire.recorded_imports"
SERVING = ("control-loop", "grpc-api")
SECONDS = 1
"""Seconds for which each stream is read, because a watch without changes sends nothing."""


def test_no_method_imports_anything_in_the_threads_that_serve(tmp_path: Path) -> None:
    file = tmp_path / "imports"
    controller = ControllerProcess(tmp_path, program=(PROGRAM, str(file)))
    with controller.running() as client:
        FakeSwitch(controller.openflow_port, 7).connect().close()
        valid = requests(client.register_job(spec()).lease_token)
        with grpc.insecure_channel(controller.address) as channel:
            call_all(channel, {name: message.SerializeToString() for name, message in valid.items()})
    lines = file.read_text().splitlines() if file.exists() else []
    assert {line for line in lines if line.startswith(SERVING)} == set()


def call_all(channel: grpc.Channel, valid: Mapping[str, bytes]) -> None:
    """Call every method with a valid request, with an empty one, and with bytes that are no request."""
    with ExitStack() as stack:
        for name in sorted(METHODS, key=lambda name: name == "DeregisterJob"):
            path = f"/{METHODS[name].containing_service.full_name}/{name}"
            for data in (valid[name], b"", b"\xff\xff"):
                with suppress(grpc.RpcError):
                    if METHODS[name].server_streaming:
                        stream: Any = cast(Any, channel.unary_stream(path))(data, timeout=SECONDS)
                        stack.callback(stream.cancel)
                        next(iter(stream))
                    else:
                        cast(Any, channel.unary_unary(path))(data, timeout=DEADLINE_S)
