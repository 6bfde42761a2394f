"""The launcher of the lab and the benchmarks, with real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from mininet_topos.controller_process import START_S, ControllerProcess, _lives
from mininet_topos.lab.record import wait_for
from mininet_topos.trainer.announcement import announcement
from signalbox.client import Client, Unreachable
from signalbox.commands.output import fields
from signalbox.errors import NotFound, SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import Algorithm
from signalbox.spec_files import jobs_in
from signalbox.spec_messages import job_spec
from signalbox.words import Strategy


def test_a_controller_answers_until_it_is_stopped_and_ends_cleanly(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings={"planning": {"strategy": "shadow"}})
    with controller.running() as client:
        assert fields(client.get_status())["strategy"] == "shadow"
        socket.create_connection(("127.0.0.1", controller.openflow_port)).close()
        assert controller.stop() == 0
    assert controller.stop() is None
    with Client(controller.address) as client, pytest.raises(Unreachable):
        client.get_status()


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


def test_a_start_over_a_lowered_limit_is_refused_with_the_jobs_named_and_changes_nothing(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings={"jobs": {"max_jobs": 3}})
    with controller.running() as client:
        for number in range(3):
            peers = (f"10.{number}.0.1", f"10.{number}.0.2")
            client.register_job(announcement(f"job{number}", peers, Algorithm.RING_ALL_REDUCE, 1000, lease_s=600))
        controller.kill()
    database = tmp_path / "state" / "state.db"
    before = {path.name: path.read_bytes() for path in database.parent.iterdir() if path.name != "lock"}
    lowered = replace(controller, settings={"jobs": {"max_jobs": 2}})
    refused = r"(?s)ended with status 1.*job 'job2': 2 jobs are registered"
    with pytest.raises(SignalboxError, match=refused), lowered.running():
        pass
    assert {path.name: path.read_bytes() for path in database.parent.iterdir() if path.name != "lock"} == before
    with controller.running() as client:
        assert [job.spec.job_id for job in client.list_jobs()] == ["job0", "job1", "job2"]


def test_owners_keep_their_jobs_across_restarts_and_register_anew_when_the_state_is_lost(tmp_path: Path) -> None:
    spec = announcement("job", ("10.0.0.1", "10.0.0.2"), Algorithm.RING_ALL_REDUCE, 1000, lease_s=600)
    controller = ControllerProcess(tmp_path)
    with controller.running() as client:
        first = client.register_job(spec, request_id="once")
        client.set_strategy(Strategy.SHADOW)
        controller.kill()
    with controller.running() as client:
        assert fields(client.get_status())["strategy"] == "shadow"
        assert client.renew_lease("job", first.lease_token) == 600.0
        again = client.register_job(spec, request_id="once")
        assert (again.job.uid, again.lease_token) == (first.job.uid, first.lease_token)
        assert again.job.register_time == first.job.register_time
        with pytest.raises(WrongLeaseToken):
            client.renew_lease("job", f"{first.job.uid}.guessed")
    rmtree(tmp_path / "state")
    with controller.running() as client:
        with pytest.raises(NotFound, match="there is no job 'job'"):
            client.renew_lease("job", first.lease_token)
        assert client.register_job(spec, lease_token=first.lease_token).job.uid != first.job.uid
    assert first.lease_token.partition(".")[2] not in controller.log.read_text()


OFFER = """\
job_id: recommender
hosts: 10.0.0.1-3
lease_s: 600
strategies:
  - name: replicas
    groups: [{name: all, ranks: [0, 1, 2]}]
    collectives: [{algorithm: all_reduce, groups: [all], bytes_per_iteration: 3 MB}]
    compute: [{seconds: 0.1}, {seconds: 0.2, phase: 0}]
  - name: model
    model: {layers: 4, hidden: 64, heads: 4, vocabulary: 100, sequence: 8, global_batch: 6}
    parallelism: {pipeline: 3}
"""


def test_a_job_keeps_its_strategies_across_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "recommender.yaml"
    file.write_text(OFFER)
    (job,) = jobs_in(file)
    assert [len(way.collectives) + len(way.transfers) for way in job.spec.strategies] == [1, 5]
    controller = ControllerProcess(tmp_path)
    command = [sys.executable, "-m", "signalbox", "jobs", "register", str(file), "--address", controller.address]
    state_home = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "home")}
    with controller.running():
        done = subprocess.run(command, env=state_home, capture_output=True, text=True, check=True)
        assert "2 strategies" in done.stdout
        controller.kill()
    with controller.running() as client:
        (listed,) = client.list_jobs()
        found = client.get_job("recommender")
        assert job_spec(found.spec) == job_spec(listed.spec) == job.spec
        assert found.virtual_links == 3, "those of the first strategy"
        client.update_job(job.spec.of_strategy("model"), lease_token=lease_token(tmp_path / "home"))
        assert client.get_job("recommender").virtual_links == 6


def lease_token(state_home: Path) -> str:
    """The only one that was kept."""
    (kept,) = (path for path in state_home.rglob("*") if path.is_file())
    return kept.read_text().strip()


def test_an_alarm_that_goes_on_over_a_restart_keeps_its_time_and_begins_once(tmp_path: Path) -> None:
    spec = announcement("job", ("10.0.0.1", "10.0.0.2"), Algorithm.RING_ALL_REDUCE, 1000, lease_s=600)
    controller = ControllerProcess(tmp_path, settings={"discovery": {"adoption_patience_s": 0.5}})
    since = []
    for _ in range(2):
        with controller.running() as client:
            client.register_job(spec, request_id="once")
            wait_for(lambda: len(client.get_status().alarms) > 0, "an alarm")
            since.append(client.get_status().alarms[0].raise_time.ToMilliseconds())
            assert [event.what for event in client.list_events(kinds=["job_alarm"])] == ["alarm"]
    assert since[1] == pytest.approx(since[0], abs=500)


def test_a_controller_that_has_just_begun_to_listen_ends_cleanly_too(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    controller.start()
    wait_for(lambda: listens(controller), "the API", START_S)
    assert controller.stop() == 0


def listens(controller: ControllerProcess) -> bool:
    controller.check()
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(controller.address.removeprefix("unix:")) == 0
