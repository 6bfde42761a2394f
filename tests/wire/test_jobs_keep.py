"""``signalbox jobs keep`` against the real API server and the real controller process."""

import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from controller.jobs.messages import EndReason
from signalbox.jobs.spec import JobId
from tests.support.command_line import Signalbox
from tests.support.waiting import until
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.keeping import keeping


def write(folder: Path, job_id: str, hosts: str = "n[1-2]", sends: bool = False) -> None:
    transfers = "transfers: [{src: 0, dst: 1, bytes_per_iteration: 1000}]\n" if sends else ""
    (folder / ".new").write_text(f"job_id: {job_id}\nhosts: {hosts}\nlease_s: 600\n{transfers}")
    (folder / ".new").rename(folder / f"{job_id}.yaml")


def uids(api: Running) -> dict[str, str]:
    return {str(job_id): job.uid for job_id, job in api.control.registry.jobs.items()}


def endpoints(api: Running, job_id: str) -> tuple[str, ...]:
    return api.control.registry.jobs[JobId(job_id)].spec.endpoints


def test_jobs_follow_their_files_through_restarts_of_the_daemon(tmp_path: Path) -> None:
    """Jobs ``one`` and ``two`` exchange hosts when their files do while the daemon is away."""
    folder, addresses = tmp_path / "jobs", tmp_path / "addresses.yaml"
    folder.mkdir()
    addresses.write_text("n[1-4]: 10.0.1-4.1\n")
    with running_api() as api, ExitStack() as daemons:
        daemon = partial(keeping, folder, api.addresses[0], tmp_path, tmp_path / "log", "--addresses", addresses)
        keep = daemons.enter_context(daemon())
        write(folder, "one", "n[1-2]", sends=True)
        write(folder, "two", "n[3-4]", sends=True)
        write(folder, "goes")
        until(lambda: len(uids(api)) == 3)
        (folder / "wrong.yaml").write_text("job_id: wrong\nhosts: 7\n")
        until(lambda: f"WARNING {folder}/wrong.yaml:2:1: hosts: " in keep.log.read_text())
        first = uids(api)
        assert keep.end(signal.SIGTERM) == 0
        assert uids(api) == first, "a daemon that stops for a while releases nothing"

        write(folder, "one", "n[3-4]", sends=True)
        write(folder, "two", "n[1-2]", sends=True)
        (folder / "goes.yaml").unlink()
        (folder / "wrong.yaml").unlink()
        keep = daemons.enter_context(daemon())
        until(lambda: endpoints(api, "one") == ("10.0.3.1", "10.0.4.1"))
        assert endpoints(api, "two") == ("10.0.1.1", "10.0.2.1")
        until(lambda: "goes" not in uids(api))
        keep.kill()

        keep = daemons.enter_context(daemon())
        (folder / "one.yaml").unlink()
        until(lambda: set(uids(api)) == {"two"})
        assert uids(api)["two"] == first["two"]
        assert keep.end(signal.SIGINT) == 0
        assert {end.reason for end in api.control.registry.ends.certain} == {EndReason.DEREGISTERED}


@pytest.mark.parametrize("more", [[], ["--addresses", "missing.yaml"], ["--tls-ca", "missing.pem"]])
def test_what_cannot_work_ends_it_at_once(signalbox: Signalbox, tmp_path: Path, more: list[str]) -> None:
    found = signalbox("jobs", "keep", tmp_path if more else tmp_path / "missing", "--address", "127.0.0.1:1", *more)
    assert found.status != 0
    assert "missing" in found.err
