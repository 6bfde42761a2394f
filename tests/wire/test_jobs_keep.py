"""``signalbox jobs keep`` against the real API server and the real controller process."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from controller.jobs.ends import EndReason
from signalbox.jobs.spec import JobId
from tests.support.command_line import Signalbox, signalbox
from tests.support.waiting import until
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.keeping import keeping

__all__ = ("signalbox",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def write(folder: Path, job_id: str, hosts: str = "n[1-2]", lease_s: float = 600.0) -> None:
    (folder / ".new").write_text(f"job_id: {job_id}\nhosts: {hosts}\nlease_s: {lease_s}\n")
    (folder / ".new").rename(folder / f"{job_id}.yaml")


@pytest.fixture
def addresses(tmp_path: Path) -> Path:
    path = tmp_path / "addresses.yaml"
    path.write_text("n[1-4]: 10.0.1-4.1\n")
    return path


def uids(api: Running) -> dict[str, str]:
    return {str(job_id): job.uid for job_id, job in api.control.registry.jobs.items()}


def endpoints(api: Running, job_id: str) -> tuple[str, ...]:
    return api.control.registry.jobs[JobId(job_id)].spec.endpoints


def test_jobs_follow_their_files_through_restarts_of_the_daemon(tmp_path: Path, folder: Path, addresses: Path) -> None:
    with running_api() as api, ExitStack() as daemons:
        daemon = partial(keeping, folder, api.addresses[0], tmp_path, tmp_path / "log", "--addresses", addresses)
        keep = daemons.enter_context(daemon())
        for job in ("stays", "changes", "goes"):
            write(folder, job)
        until(lambda: len(uids(api)) == 3)
        (folder / "wrong.yaml").write_text("job_id: wrong\nhosts: 7\n")
        until(lambda: f"WARNING {folder}/wrong.yaml:2:1: hosts: " in keep.log.read_text())
        first = uids(api)
        assert keep.end(signal.SIGTERM) == 0
        assert uids(api) == first, "a daemon that stops for a while releases nothing"

        write(folder, "changes", "n[3-4]")
        (folder / "goes.yaml").unlink()
        (folder / "wrong.yaml").unlink()
        keep = daemons.enter_context(daemon())
        until(lambda: endpoints(api, "changes") == ("10.0.3.1", "10.0.4.1"))
        until(lambda: "goes" not in uids(api))
        keep.kill()

        keep = daemons.enter_context(daemon())
        (folder / "stays.yaml").unlink()
        until(lambda: set(uids(api)) == {"changes"})
        assert uids(api)["changes"] == first["changes"]
        assert keep.end(signal.SIGINT) == 0
        assert {end.reason for end in api.control.registry.ends.certain} == {EndReason.DEREGISTERED}


def test_jobs_exchange_hosts_when_their_files_do_while_it_is_away(
    tmp_path: Path, folder: Path, addresses: Path
) -> None:
    sends = "transfers: [{src: 0, dst: 1, bytes_per_iteration: 1000}]\n"

    def write_both(first: str, second: str) -> None:
        for job_id, hosts in (("one", first), ("two", second)):
            (folder / ".new").write_text(f"job_id: {job_id}\nhosts: {hosts}\nlease_s: 600\n{sends}")
            (folder / ".new").rename(folder / f"{job_id}.yaml")

    with running_api() as api, ExitStack() as daemons:
        daemon = partial(keeping, folder, api.addresses[0], tmp_path, tmp_path / "log", "--addresses", addresses)
        keep = daemons.enter_context(daemon())
        write_both("n[1-2]", "n[3-4]")
        until(lambda: len(uids(api)) == 2)
        before = uids(api)
        keep.end()
        write_both("n[3-4]", "n[1-2]")
        daemons.enter_context(daemon())
        until(lambda: endpoints(api, "one") == ("10.0.3.1", "10.0.4.1"))
        assert endpoints(api, "two") == ("10.0.1.1", "10.0.2.1")
        assert uids(api) == before


@pytest.mark.parametrize("more", [[], ["--addresses", "missing.yaml"], ["--tls-ca", "missing.pem"]])
def test_what_cannot_work_ends_it_at_once(signalbox: Signalbox, tmp_path: Path, more: list[str]) -> None:
    found = signalbox("jobs", "keep", tmp_path if more else tmp_path / "missing", "--address", "127.0.0.1:1", *more)
    assert found.status != 0
    assert "missing" in found.err
