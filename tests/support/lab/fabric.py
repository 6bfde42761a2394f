"""Jobs and routes of a lab that has a running controller."""

from collections.abc import Sequence
from contextlib import closing

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.lab import Lab
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.job_specs import job_spec, sends
from tests.support.lab.pings import address

Fabric = tuple[Lab, ControllerProcess, Client]
LEASE_S = 600.0


def ring(lab: Lab, job_id: str, hosts: Sequence[str]) -> JobSpec:
    """Return the spec of a ring over the hosts, with a lease that does not end during a test."""
    ips = [address(lab, host) for host in hosts]
    return job_spec(job_id, ips, sends("ring_all_reduce", 10**6), lease_s=LEASE_S)


def pinned(client: Client, job_id: str) -> int:
    return client.get_job(job_id).pinned


def routes(client: Client, job_id: str) -> Sequence[pb.Route]:
    with closing(client.watch_routes(job_id)) as updates:
        return next(updates).routes
