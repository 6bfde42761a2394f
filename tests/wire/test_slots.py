"""Slots of two joined programs, whose jobs share an uplink: from their reports over gRPC to their next boundaries."""

import json
from types import SimpleNamespace

import pytest

import signalbox
from controller.config import Config
from controller.planning.verify import verify
from signalbox.client import Client
from signalbox.live.timeline import timelines
from tests.support.fake_fabric import FABRIC_BPS
from tests.support.waiting import until
from tests.support.wire.served_fabric import ServedFabric

COMPUTE_S = SENDING_S = 10.0
"""Times that the programs report, which are much longer than what they really take."""
BYTES = 6_000_000
"""Size of an all-reduce over two ranks, which takes about 10 s at 5 Mbit/s."""
CONFIG = {"contention": {"slots": True}, "fabric": {"link_bps": FABRIC_BPS, "host_link_bps": FABRIC_BPS}}


@pytest.fixture
def fabric() -> ServedFabric:
    """Fabric whose two leaves have one uplink."""
    fabric = ServedFabric(2, 1, 2)
    fabric.start(Config.model_validate(CONFIG))
    fabric.run(5)
    fabric.all_speak()
    return fabric


def test_slots_of_a_plan_reach_the_programs_that_keep_them(
    fabric: ServedFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("signalbox.jobs.reports.time", SimpleNamespace(perf_counter=lambda: clock.now))
    ring = {"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": BYTES}

    def train() -> None:
        for job in jobs:
            with job.step() as step:
                clock.now += COMPUTE_S
                with step.communication():
                    clock.now += SENDING_S
        fabric.change(lambda: fabric.run(1))

    with fabric.served() as address, Client(address) as client:
        jobs = [
            signalbox.join(
                name,
                endpoints=[f"10.0.1.{host}", f"10.0.2.{host}"],
                groups=[{"name": "dp", "ranks": [0, 1]}],
                collectives=[ring],
                lease_s=86_400,
                address=address,
                strict=True,
            )
            for name, host in (("one", 1), ("two", 2))
        ]

        def have_slots() -> bool:
            train()
            return all(job._waits.has_slot for job in jobs)

        until(have_slots)
        slots = [job._waits._slot for job in jobs]
        assert [slot and slot.period_s for slot in slots] == pytest.approx([COMPUTE_S + SENDING_S] * 2, rel=0.05)
        assert [slot and slot.max_wait_s for slot in slots] == pytest.approx([0.02 * 20] * 2, rel=0.05)
        timings = [client.get_job(name).timing for name in ("one", "two")]
        assert all(timing.guaranteed.ToSeconds() < timing.promised.ToSeconds() for timing in timings)
        starts = sorted(timing.slots[0].start for timing in timings)
        assert starts[1] - starts[0] == pytest.approx(0.5, abs=0.1)
        answer = client.explain("one").answer
        assert [each for each in answer if each.startswith("Its slot helps it: without slots, an iteration takes")]
        assert [each for each in answer if each.startswith("Slots help job 'two' (")]
        said, _ = verify(json.loads(client.get_plan_proof().document))
        assert "worst slowdown of an iteration 1.0" in said
        (drawn,) = timelines(client.get_plan())
        assert {lane.job_id for lane in drawn.lanes if lane.slots} == {"one", "two"}
        for job in jobs:
            job.leave()
