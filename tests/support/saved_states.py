"""Saved states with an example of everything, and commits of a store."""

from concurrent.futures import Future

from controller.circuits.job_wiring import JobWiring
from controller.fabric.drains import Drain
from controller.fabric.parts import (
    DECLARED,
    UNKNOWN_DPID,
    End,
    Part,
    PartKey,
    PartKind,
    cable_key,
    host_key,
    switch_key,
)
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import Arrangement, EndReason, JobEnd, Registration, SavedState
from controller.silence import Silence
from controller.store.etcd_contents import MOST_RECORDS
from controller.store.records import changes
from controller.store.store import Store
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import Mode
from tests.support.by_id import registered
from tests.support.job_specs import job_spec, sends
from tests.support.waiting import DEADLINE_S

CABLE = frozenset((PortRef(Dpid(1), PortNo(3)), PortRef(Dpid(7), PortNo(1))))
NOTHING = SavedState()


def commit(store: Store, before: SavedState, after: SavedState) -> int | OSError:
    done: Future[int | OSError] = Future()
    store.commit(changes(before, after), done.set_result)
    return done.result(DEADLINE_S)


def save(store: Store, before: SavedState, after: SavedState) -> int:
    revision = commit(store, before, after)
    assert isinstance(revision, int), revision
    return revision


def spec(job_id: str) -> JobSpec:
    return job_spec(job_id, ["10.0.0.1", "10.0.0.2"], sends("all_to_all", 1 << 50, phase=2), lease_s=7.5)


def job(job_id: str, tenant: str = "", request_id: str = "") -> Registration:
    return Registration(spec(job_id), f"{job_id}-1", tenant, 1e9, request_id)


def full() -> SavedState:
    transfers = JobSpec.parse(
        {
            "job_id": "c",
            "endpoints": ["10.0.0.1", "10.0.0.2"],
            "rails": [{"endpoints": ["10.1.0.1", "10.1.0.2"]}],
            "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 5, "phase": 1, "step": 2}],
            "library": "gloo",
            "striping": "even",
            "reports_connections": True,
        }
    )
    links = VirtualLink("10.0.0.1", "10.0.0.2", 0, 7), VirtualLink("10.0.0.2", "10.0.0.1", 1, 9)
    silences = Silence("host_down", "", 1e9, 2e9), Silence("link_down", "a 1>b", 1e9, None, "x", "y")
    return SavedState(
        registered(
            job("b"),
            job("a", tenant="red", request_id="once"),
            Registration(transfers, "c-1", "", 1e9),
            Registration(offer(), "offer-1", "", 1e9, arrangement=arrangement(), revision=2**40),
        ),
        Mode.SHADOW,
        {("10.0.0.1", "10.0.0.2"): (0.1, 0.2, 0.7), ("10.0.0.2", "10.0.0.1"): (1 / 3, 2 / 3)},
        {JobId("a"): VirtualLinks(links)},
        {JobId("c"): frozenset({Connected("10.0.0.1", 5000, "10.0.0.2", 6000)})},
        {f"b-{n}": JobEnd(JobId("b"), f"b-{n}", "red", how, 1e9 + n, f"r{n}") for n, how in enumerate(EndReason)},
        {drain.name: drain for drain in (Drain(Dpid(7), "spine2", 1e9), Drain(CABLE, "leaf1:3>spine2", 2e9))},
        {one.key: one for one in silences},
        {part.key: part for part in parts()},
    )


def offer() -> JobSpec:
    """Return an offer of two parallelizations, one of which computes in phase 2 and outside of all phases."""
    first, second = ({"groups": one.groups, "collectives": one.collectives} for one in map(spec, "bc"))
    compute = [{"seconds": 0.1}, {"seconds": 0.2, "phase": 2}]
    ways = [{"name": "one", **first, "compute": compute}, {"name": "two", **second}]
    return JobSpec.parse({"job_id": "offer", "endpoints": ["10.2.0.1", "10.2.0.2"], "parallelizations": ways})


def arrangement() -> Arrangement:
    a, b = PortRef(Dpid(1), PortNo(2)), PortRef(Dpid(2**63), PortNo(3))
    return JobWiring("two", offer().of_parallelization("two"), ((a, b), (b, a)), 0.25, 0.2, 0.5).arrangement


def parts() -> list[Part]:
    """Return parts of every kind, with a cable that was never seen, and a name with a space."""
    leaf, spine = PortRef(Dpid(1), PortNo(3)), PortRef(Dpid(2**64 - 1), PortNo(1))
    nowhere = PortRef(UNKNOWN_DPID, PortNo(0))
    return [
        Part(switch_key(Dpid(1)), (End(PortRef(Dpid(1), PortNo(0)), "leaf 1"),), 1e9 + 0.125),
        Part(cable_key(leaf, spine), (End(leaf, "leaf 1", "eth3"), End(spine, "spine1", "eth1"))),
        Part(host_key("10.0.0.1"), (End(leaf, "leaf 1", "eth3"),), 1e9),
        Part(PartKey(PartKind.LINK, f"{DECLARED}a b>c (cable 2)"), (End(nowhere, "a b"), End(nowhere, "c")), 1e9),
    ]


MANY = SavedState(registered(*(job(f"job{number}") for number in range(2 * MOST_RECORDS + 50))))
"""State with more records than one transaction of etcd may contain."""
