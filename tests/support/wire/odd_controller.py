"""Controllers of another version, or compromised ones.

``odd_controller`` sends text that a browser or terminal could run as code, figures that are not numbers, values that no
enum has, and two switches with one name. ``endless_controller`` sends without end, or never answers."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from threading import Event
from typing import Any

import grpc

from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.fabric_messages import leaf_spine

CODE = "<img src=x onerror='window.ran=1'></script><script>window.ran=2</script>{a|b}\u202e\x1b[31m"
TWICE = "br0"
"""Name of both spines."""


def _fabric() -> pb.GetFabricResponse:
    fabric = leaf_spine(3, 2)
    for switch in fabric.switches:
        switch.name = TWICE if switch.dpid > 0x100 else f"{CODE}{switch.name}"
    for number, link in enumerate(fabric.links):
        link.name = f":{CODE}{number}"
        link.rate_bps = (math.nan, math.inf, 5e8)[number % 3]
    del fabric.links[-2:]  # the second spine has one cable less
    fabric.hosts[0].ip = CODE
    fabric.drains.add(name=fabric.switches[0].name)
    return fabric


class _Odd(pb_grpc.ControllerServiceServicer, pb_grpc.JobServiceServicer):
    def GetStatus(self, *_: Any) -> pb.GetStatusResponse:  # noqa: N802
        status = pb.GetStatusResponse(version=CODE, network_efficiency=math.nan)
        status.mode = 99  # type: ignore[assignment]
        return status

    def GetJob(self, *_: Any) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=_job())

    def ListRoutes(self, *_: Any) -> pb.ListRoutesResponse:  # noqa: N802
        return pb.ListRoutesResponse(routes=[pb.ListedRoute(job_id=CODE, held=[pb.RoutePath(switches=[CODE])])])

    def Explain(self, *_: Any) -> pb.ExplainResponse:  # noqa: N802
        return pb.ExplainResponse(answer=[CODE])

    def WhatIf(self, request: pb.WhatIfRequest, _: Any) -> pb.WhatIfResponse:  # noqa: N802
        return pb.WhatIfResponse(answer=[f"asked of {name}" for name in request.names])

    def WatchFabric(self, _: Any, context: Any) -> Iterator[pb.WatchFabricResponse]:  # noqa: N802
        has = _fabric()
        message = pb.WatchFabricResponse(snapshot=True, resume_token="1", links=has.links, hosts=has.hosts)
        message.switches.extend(has.switches)
        message.drains.extend(has.drains)
        yield from _and_wait(message, context)

    def WatchJobs(self, _: Any, context: Any) -> Iterator[pb.WatchJobsResponse]:  # noqa: N802
        yield from _and_wait(pb.WatchJobsResponse(snapshot=True, resume_token="1", jobs=[_job()]), context)

    def WatchAlarms(self, _: Any, context: Any) -> Iterator[pb.WatchAlarmsResponse]:  # noqa: N802
        alarm = pb.Alarm(subject=CODE, text=CODE)
        alarm.raise_time.seconds = 2**62
        yield from _and_wait(pb.WatchAlarmsResponse(snapshot=True, resume_token="1", raised=[alarm]), context)

    def WatchEvents(self, _: Any, context: Any) -> Iterator[pb.WatchEventsResponse]:  # noqa: N802
        event = pb.Event(number=1, what=CODE, details=[pb.EventDetail(name=CODE, value=CODE)])
        yield from _and_wait(pb.WatchEventsResponse(resume_token="1", events=[event]), context)

    def WatchPlan(self, _: Any, context: Any) -> Iterator[pb.WatchPlanResponse]:  # noqa: N802
        yield from _and_wait(pb.WatchPlanResponse(resume_token="1", plan=pb.Plan(max_slowdown=math.nan)), context)


class _Endless(_Odd):
    """Controller that sends jobs and a change of the alarms without end, and never answers other calls about jobs."""

    def WatchJobs(self, _: Any, context: Any) -> Iterator[pb.WatchJobsResponse]:  # noqa: N802
        for number in count():
            if not context.is_active():
                return
            ids = (f"job{number}-{each}" for each in range(1000))
            yield pb.WatchJobsResponse(resume_token="1", jobs=[pb.Job(spec=pb.JobSpec(job_id=each)) for each in ids])

    def WatchAlarms(self, _: Any, context: Any) -> Iterator[pb.WatchAlarmsResponse]:  # noqa: N802
        while context.is_active():
            yield pb.WatchAlarmsResponse(raised=[pb.Alarm(subject="part", text="x" * 1_000_000)])

    def WatchEvents(self, *_: Any) -> Iterator[pb.WatchEventsResponse]:  # noqa: N802
        return iter(())

    def _never(self, _: Any, context: Any) -> Any:
        list(_and_wait(None, context))

    GetJob = ListRoutes = Explain = _never


def _job() -> pb.Job:
    job = pb.Job(spec=pb.JobSpec(job_id=CODE), slowdown=math.inf, missing_hosts=[CODE])
    job.demand.pairs.add(src=CODE, dst=CODE, declared_bytes=5, measured_bps=math.nan)
    return job


def _and_wait(message: Any, context: Any) -> Iterator[Any]:
    ended = Event()
    goes_on = context.add_callback(ended.set)
    yield message
    if goes_on:
        ended.wait()


@contextmanager
def odd_controller(servicer: type[_Odd] = _Odd) -> Iterator[str]:
    pool = ThreadPoolExecutor(32)
    server = grpc.server(pool)
    pb_grpc.add_ControllerServiceServicer_to_server(servicer(), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_JobServiceServicer_to_server(servicer(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        pool.shutdown()


def endless_controller() -> AbstractContextManager[str]:
    return odd_controller(_Endless)
