"""Watches over real gRPC: snapshot, changes, resuming, slow readers."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.alarms import Alarm
from controller.api import services, watches
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, PortNo, PortRef, Switch
from controller.jobs.messages import Registration, SavedState
from controller.planning.problem import FlowId
from controller.status import LinkStatus, Status
from signalbox.client import Client, Unreachable, resuming
from signalbox.errors import Gone, NotAllowed, NotFound, SignalboxError
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import AlarmKind
from tests.support import waiting
from tests.support.waiting import DEADLINE_S, beside
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import BACK, H1, H2, SPINE2, VIA_SPINE, Running, running_api
from tests.wire.test_roles import client as caller
from tests.wire.test_roles import tokens_file


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish changes so often that no test waits."""
    monkeypatch.setattr(watches, "SPACING_S", 0.01)


def publish(api: Running, change: Callable[[Status], Status]) -> None:
    done = threading.Event()
    api.control.put(lambda: setattr(api.control, "status", change(api.control.status)))
    api.control.put(done.set)
    assert done.wait(60)


def until(watch: Iterator[Any], found: Callable[[Any], bool]) -> Any:
    return next(message for message in watch if found(message))


def cables(count: int, rate_bps: float = 1e9) -> Callable[[Status], Status]:
    """Return a change to a fabric of two switches with ``count`` cables, all with this rate."""
    links = [
        Link(PortRef(Dpid(src), PortNo(n)), PortRef(Dpid(3 - src), PortNo(n)), 1e11)
        for src in (1, 2)
        for n in range(1, count + 1)
    ]
    switches = {Dpid(d): Switch(Dpid(d), f"switch-with-a-long-name-{d}", {}) for d in (1, 2)}
    fabric = Fabric(8, switches, {link.id: link for link in links})
    figures = {link.id: LinkStatus(0, rate_bps + link.src.port, 0.0) for link in links}
    return lambda status: replace(status, fabric=fabric, switches={}, links=figures)


def test_watching_jobs_sends_all_then_new_and_changed_ones_and_those_that_end(api: Running, client: Client) -> None:
    client.register_job(ring())
    watch = client.watch_jobs()
    snapshot = next(watch)
    assert snapshot.snapshot
    assert [job.spec.job_id for job in snapshot.jobs] == ["ring"]

    api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    api.control.set_route(FlowId(H2, H1), BACK)
    changed = until(watch, lambda m: m.jobs and m.jobs[0].pinned == 2)
    assert not changed.snapshot
    assert changed.jobs[0].state == pb.JOB_STATE_PINNED

    client.register_job(ring("other", endpoints=("10.0.5.1", "10.0.5.2")))
    new = next(watch)
    assert [(job.spec.job_id, job.state) for job in new.jobs] == [("other", pb.JOB_STATE_PENDING)]

    client.deregister_job("ring")
    ended = next(watch)
    assert ([end.job_id for end in ended.ended], list(ended.jobs)) == (["ring"], [])
    watch.close()


def test_a_job_that_is_taken_over_ends_and_its_next_registration_is_another_job(api: Running, client: Client) -> None:
    first = client.register_job(ring()).job
    watch = client.watch_jobs()
    routes = client.watch_routes("ring")
    assert next(watch).jobs[0].uid == first.uid
    next(routes)
    with Client(api.addresses[0]) as other:
        second = other.register_job(ring(), take_over=True).job
    told = next(watch)
    assert [job.uid for job in told.jobs] == [second.uid]
    if not told.ended:
        told = next(watch)
    assert [(end.uid, end.reason) for end in told.ended] == [(first.uid, pb.JOB_END_REASON_TAKEN_OVER)]
    with pytest.raises(NotFound, match="taken over"):
        next(routes)
    watch.close()


def test_a_tenant_watches_its_own_jobs_only(tmp_path: Path) -> None:
    with running_api(tokens=tokens_file(tmp_path), socket_role="none") as api, ExitStack() as clients:
        blue, red, reader = (clients.enter_context(caller(api, tmp_path, name)) for name in ("blue", "red", "reader"))
        blue.register_job(ring())
        of_blue, of_red, of_all = blue.watch_jobs(), red.watch_jobs(), reader.watch_jobs()
        snapshots = [next(watch) for watch in (of_blue, of_red, of_all)]
        assert [[job.tenant for job in snapshot.jobs] for snapshot in snapshots] == [["blue"], [], ["blue"]]

        red.register_job(ring("other", endpoints=("10.0.5.1", "10.0.5.2")))
        blue.deregister_job("ring")
        assert [end.job_id for end in until(of_blue, lambda message: message.ended).ended] == ["ring"]
        told = next(of_red)
        assert ([job.spec.job_id for job in told.jobs], list(told.ended)) == (["other"], [])
        until(of_all, lambda message: message.ended)

        with_blues_token = next(red.watch_jobs(snapshots[0].resume_token))
        assert with_blues_token.snapshot
        assert [job.tenant for job in with_blues_token.jobs] == ["red"]
        with pytest.raises(NotAllowed) as error:
            next(red.watch_fabric())
        assert error.value.about == {"role": "tenant"}


def test_watching_the_fabric_sends_all_then_rates_and_what_goes(api: Running, client: Client) -> None:
    watch = client.watch_fabric()
    snapshot = next(watch)
    now = client.get_fabric()
    assert snapshot.snapshot
    assert list(snapshot.switches) == list(now.switches)
    assert sorted(snapshot.links, key=lambda link: link.name) == sorted(now.links, key=lambda link: link.name)
    assert list(snapshot.hosts) == list(now.hosts)
    assert list(snapshot.parts_down) == list(now.parts_down)
    assert [(part.kind, part.name, part.id) for part in now.parts_down] == [(pb.PART_KIND_SWITCH, "spine2", "0xc")]

    publish(api, lambda status: replace(status, links={VIA_SPINE[0]: LinkStatus(2000, 3e6, 5e5)}))
    changed = next(watch)
    assert [(link.name, link.rate_bps, link.background_bps) for link in changed.links] == [("leaf1:1>spine1", 3e6, 5e5)]
    assert not changed.switches
    assert not changed.hosts

    def lose(status: Status) -> Status:
        fabric = status.fabric
        links = {key: link for key, link in fabric.links.items() if link.id != BACK[0]}
        switches = {dpid: switch for dpid, switch in fabric.switches.items() if switch.name != "spine1"}
        left = Fabric(9, switches, links, {H1: Host(H1, "02:00:00:00:09:09", fabric.hosts[H1].at, 5e6)})
        return replace(status, fabric=left)

    publish(api, lose)
    gone = next(watch)
    assert [(at.dpid, at.port) for at in gone.links_gone] == [BACK[0][:2]]
    assert list(gone.switches_gone) == [11]
    assert list(gone.hosts_gone) == [H2]
    assert [host.mac for host in gone.hosts] == ["02:00:00:00:09:09"]
    assert not gone.parts_down

    later = replace(SPINE2, down_since=2e9)
    publish(api, lambda status: replace(status, down_parts={later.key: later}))
    assert [part.down_time.seconds for part in next(watch).parts_down] == [2_000_000_000]
    assert [part.name for part in client.forget_parts(["spine2"])] == ["spine2"]
    back = next(watch)
    assert [(part.kind, part.id) for part in back.parts_back] == [(pb.PART_KIND_SWITCH, "0xc")]
    assert not back.parts_down
    watch.close()


def test_watching_the_plan_sends_none_then_each(client: Client) -> None:
    watch = client.watch_plan()
    assert not next(watch).HasField("plan")
    client.replan()
    assert next(watch).plan == client.get_plan()
    watch.close()


def test_watching_alarms_sends_all_then_those_raised_and_over(api: Running, client: Client) -> None:
    watch = client.watch_alarms()
    first = next(watch)
    assert [(alarm.kind, alarm.subject) for alarm in first.raised] == [(pb.ALARM_KIND_FOREIGN_RULES, "spine1")]

    def alarms(*alarms: Alarm) -> Callable[[Status], Status]:
        return lambda status: replace(status, alarms={alarm.key: alarm for alarm in alarms})

    more = Alarm(AlarmKind.FOREIGN_RULES, "spine1", {"rules": 3})
    lost = Alarm(AlarmKind.MASTERSHIP_LOST, "leaf1", since=5.0)
    publish(api, alarms(more, lost))
    second = next(watch)
    assert [alarm.text for alarm in second.raised] == [
        "spine1 holds 3 foreign rules, which Signalbox did not make",
        "another controller is the master of leaf1, with a newer generation id; Signalbox does not use the switch",
    ]
    assert second.raised[0].raise_time == first.raised[0].raise_time
    publish(api, alarms(replace(lost)))
    third = next(watch)
    assert ([alarm.subject for alarm in third.ended], list(third.raised)) == (["spine1"], [])
    watch.close()


def test_a_watch_that_resumes_is_told_what_it_missed(api: Running, client: Client) -> None:
    client.register_job(ring())
    token, routes = next(client.watch_jobs()).resume_token, next(client.watch_routes("ring"))
    resumed = client.watch_routes("ring", routes.resume_token)
    api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    later = next(resumed)
    assert later.generation == routes.generation + 1
    assert later.resume_token != routes.resume_token
    client.register_job(ring("other", endpoints=("10.0.5.1", "10.0.5.2")))
    client.deregister_job("ring")
    message = next(client.watch_jobs(token))
    assert not message.snapshot
    assert [job.spec.job_id for job in message.jobs] == ["other"]
    assert [end.job_id for end in message.ended] == ["ring"]


def test_a_token_of_before_a_restart_gives_a_snapshot(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"
    with running_api(address) as api, Client(address) as client:
        client.register_job(ring())
        tokens = next(client.watch_alarms()).resume_token, next(client.watch_routes("ring")).resume_token
        assert api.control.board.status.jobs
        saved = SavedState(jobs={job_id: job.registration for job_id, job in api.control.registry.jobs.items()})
    with running_api(address) as api, Client(address) as client:
        api.control.registry.take_saved(saved, time.monotonic())
        publish(api, lambda status: status)
        assert next(client.watch_alarms(tokens[0])).snapshot
        message = next(client.watch_routes("ring", tokens[1]))
        assert message.routes
        assert message.uid == client.get_job("ring").uid


def test_routes_go_on_with_the_same_registration_or_not_at_all(client: Client) -> None:
    uid = client.register_job(ring()).job.uid
    first = next(client.watch_routes("ring"))
    assert first.uid == uid
    new = client.register_job(ring(max_subflows=2), take_over=True).job.uid
    for given in ({"resume_token": first.resume_token}, {"uid": uid}, {"resume_token": first.resume_token, "uid": uid}):
        with pytest.raises(NotFound, match="'ring' was taken over by another registration") as error:
            next(client.watch_routes("ring", **given))
        assert error.value.reason is Gone.JOB_TAKEN_OVER
    assert next(client.watch_routes("ring")).uid == new
    assert next(client.watch_routes("ring", first.resume_token, uid=new)).uid == new
    client.deregister_job("ring")
    with pytest.raises(NotFound) as error:
        next(client.watch_routes("ring", uid=new))
    assert error.value.reason is Gone.JOB_DEREGISTERED


def test_routes_of_an_unknown_registration_are_not_given(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resume token may come from a controller that was started with another state."""
    monkeypatch.setattr(services, "UNKNOWN_S", 0.05)
    client.register_job(ring())
    address = f"unix:{tmp_path}/api.sock"
    with running_api(address), Client(address) as other:
        other.register_job(ring())
        token = next(other.watch_routes("ring")).resume_token
    with pytest.raises(
        NotFound, match="registration of job 'ring' is not known; another registration has the id now"
    ) as error:
        next(client.watch_routes("ring", token))
    assert error.value.reason is Gone.NO_SUCH_JOB


def test_routes_are_resumed_when_it_is_certain_whose_they_are(api: Running, client: Client) -> None:
    """A take-over that is not on disk yet may fail, and then the old registration continues."""
    client.register_job(ring())
    first = next(client.watch_routes("ring"))
    jobs = api.control.status.jobs
    overtaken = {job_id: replace(job, registration=Registration(ring())) for job_id, job in jobs.items()}
    api.control.board.publish(replace(api.control.status, jobs=overtaken))
    watch = client.watch_routes("ring", first.resume_token)
    received = beside(next, watch)
    waiting.until(lambda: api.control.board._listeners)
    api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    message = received.result(DEADLINE_S)
    assert (message.uid, message.generation) == (first.uid, first.generation + 1)
    watch.close()


def test_a_client_goes_on_after_a_restart(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"
    lost: list[SignalboxError] = []
    with Client(address) as client:
        with running_api(address):
            client.register_job(ring())
            watch = resuming(client.watch_jobs, lost.append, pause=lambda _: None)
            assert len(next(watch).jobs) == 1
            received = beside(next, watch)
        with running_api(address):
            message = received.result(DEADLINE_S)
            assert message.snapshot
            assert not message.jobs
            assert isinstance(lost[0], Unreachable)
            watch.close()


def test_a_client_that_never_reached_the_controller_is_told_at_once(tmp_path: Path) -> None:
    with Client(f"unix:{tmp_path}/none.sock") as client, pytest.raises(Unreachable):
        next(resuming(client.watch_jobs))


def test_no_one_listens_when_all_watchers_have_gone(api: Running, client: Client) -> None:
    client.register_job(ring())

    def opened() -> list[Generator[Any, None, None]]:
        return [client.watch_jobs(), client.watch_fabric(), client.watch_plan(), client.watch_alarms()]

    streams = [*opened(), *opened(), client.watch_routes("ring"), client.watch_routes("ring")]
    for watch in streams:
        next(watch)
    assert len(api.control.board._listeners) == 5
    for watch in streams:
        watch.close()
    waiting.until(lambda: not api.control.board._listeners)


def test_a_reader_that_never_reads_delays_no_other_and_may_leave(api: Running, client: Client, controller: Any) -> None:
    publish(api, cables(1000))
    silent = [controller.WatchFabric(pb.WatchFabricRequest()) for _ in range(5)]
    watch = client.watch_fabric()
    until(watch, lambda message: message.resume_token)
    for number in range(1, 9):
        publish(api, cables(1000, rate_bps=number * 1e6))
        message = until(watch, lambda message: message.resume_token)
    first: LinkId = min(api.control.status.fabric.links)
    assert message.links
    assert api.control.status.links[first].rate_bps == 8e6 + 1
    watch.close()
    for stream in silent:
        stream.cancel()
    waiting.until(lambda: not api.control.board._listeners)


def test_watchers_that_leave_while_they_are_written_to_put_nothing_into_the_log(
    api: Running, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for round_number in range(2):
        channels = [grpc.insecure_channel(api.addresses[0], [("grpc.use_local_subchannel_pool", 1)]) for _ in range(8)]
        stubs: list[Any] = [pb_grpc.ControllerServiceStub(channel) for channel in channels]  # type: ignore[no-untyped-call]
        streams = [stub.WatchFabric(pb.WatchFabricRequest()) for stub in stubs for _ in range(12)]
        for stream in streams:
            next(stream)
        for number in range(6):
            publish(api, cables(500, rate_bps=(10 * round_number + number) * 1e6))
        for channel in channels:
            channel.close()
    waiting.until(lambda: not api.control.board._listeners)
    assert not caplog.records
    assert "request failed" not in capsys.readouterr().out
