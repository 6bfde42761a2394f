"""A circuit fabric as messages of the API, and a job wired on it."""

from google.protobuf.duration_pb2 import Duration

from signalbox.v1 import signalbox_pb2 as pb
from tests.support.fabric_messages import link


def rings(servers: int, steps: tuple[int, ...]) -> pb.GetFabricResponse:
    """Return a fabric in which each server sends over circuits to other servers.

    Each server has its host at port 1. Interface k of server n, port 1 + k, sends to server n + ``steps[k - 1]``,
    modulo the number of servers."""
    names = {n: f"server{n}" for n in range(1, servers + 1)}
    found = pb.GetFabricResponse(
        switches=[pb.Switch(dpid=n, name=name, in_sync=True) for n, name in names.items()],
        hosts=[pb.Host(ip=f"10.0.{n}.1", at=pb.PortRef(dpid=n, port=1), switch_name=names[n]) for n in names],
    )
    for port, step in enumerate(steps, start=2):
        for n, name in names.items():
            to = (n + step - 1) % servers + 1
            found.links.append(link((n, port), (to, port), f"{name}:{port}>{names[to]}", 0.25))
            found.links[-1].one_way = True
    return found


def optical_switches(fabric: pb.GetFabricResponse) -> None:
    """Add the optical switches of ``rings``: interface k of server n is connected to port n of ``optical<k>``."""
    for each in fabric.links:
        number = each.src.port - 1
        if number > len(fabric.optical_switches):
            fabric.optical_switches.add(dpid=0x100 + number, name=f"optical{number}", connected=True)
        fabric.optical_switches[-1].fibres.add(port=each.src.dpid, interface=each.src, up=True, out_port=each.dst.dpid)


def wired_job(fabric: pb.GetFabricResponse) -> pb.Job:
    return pb.Job(
        spec=pb.JobSpec(job_id="ring", endpoints=[host.ip for host in fabric.hosts], lease=Duration(seconds=60)),
        state=pb.JOB_STATE_PINNED,
        lease_left=Duration(seconds=60),
        wiring=pb.Wiring(
            parallelization="hybrid",
            circuits=[pb.Circuit(src=each.src, dst=each.dst) for each in fabric.links],
            iteration=Duration(nanos=220_000_000),
            iteration_bound=Duration(nanos=210_000_000),
            iteration_alternative=Duration(nanos=437_900_000),
        ),
    )


WIRED = (
    "for parallelization hybrid; an iteration takes 0.22 s by the model "
    "(at least 0.21 s with any routes; 0.4379 s on one switch of the same cost)"
)
"""Description of the wiring of ``wired_job``, as the client prints it."""


def unwired_job(why: str) -> pb.Job:
    return pb.Job(
        spec=pb.JobSpec(job_id="waits", endpoints=["10.0.1.1", "10.0.2.1"], lease=Duration(seconds=60)),
        state=pb.JOB_STATE_PENDING,
        lease_left=Duration(seconds=60),
        wiring=pb.Wiring(unwired=why),
    )
