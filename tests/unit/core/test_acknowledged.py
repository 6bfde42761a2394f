"""Acknowledged changes are in memory and on disk, and survive a restart, for any requests and any disk errors."""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from controller.core.messages import Command, Message
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    Registration,
    SavedState,
    SaveState,
    StateNotSaved,
    StateSaved,
    UpdateJob,
    UpdateJobs,
)
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import started
from tests.unit.core.test_commits import CONFIG

HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
RINGS = [HOSTS, HOSTS[::-1], HOSTS[:3], HOSTS[1:], [HOSTS[0], HOSTS[2]]]
JOBS = ("a", "b", "c")

Request = RegisterJob | UpdateJobs | DeregisterJob


class Attempts(FakeFabric):
    """Fabric whose commits reach the disk, or fail, when the test says so.

    ``model``: the registrations acknowledged so far."""

    def __init__(self, seed: int) -> None:
        super().__init__(4, 2, 1)
        self.draw = random.Random(seed)
        self.writing: list[SavedState] = []
        self.asked: dict[int, tuple[Future[Any], Request]] = {}
        self.model: dict[JobId, Registration] = {}
        self.ended: set[str] = set()
        self.refused = self.acknowledged = self.exchanged = 0

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, SaveState):
            self.writing.append(command.state)
            return []
        return super()._carry_out(command)

    def finish(self, written: bool) -> None:
        """End the oldest commit; ``written``: whether the state reaches the disk or the commit fails."""
        state = self.writing.pop(0)
        if written:
            self.saved = state
            self.commits += 1
        self.send(StateSaved(self.commits) if written else StateNotSaved("a fault"))
        self.take_replies()

    def ask(self) -> None:
        job_id, ring = JobId(self.draw.choice(JOBS)), self.draw.choice(RINGS)
        spec = ring_job(job_id, ring, lease_s=80_000, reports_connections=self.draw.random() < 0.3)
        held = self.loop.state.jobs.jobs.get(job_id)
        owner = held.uid if held and self.draw.random() < 0.7 else ""
        message: Request = self.draw.choice(
            (
                RegisterJob(spec, owner),
                RegisterJob(held.spec if held else spec, owner, take_over=True),
                RegisterJob(spec, owner, take_over=True),
                UpdateJobs((UpdateJob(spec, owner=owner),)),
                DeregisterJob(job_id, owner),
            )
        )
        if len(self.loop.state.jobs.jobs) > 1 and self.draw.random() < 0.4:
            message = self.several_updates()
        self.asked[id(message.reply)] = message.reply, message
        self.send(message)
        self.take_replies()

    def several_updates(self) -> UpdateJobs:
        """Return updates of several existing jobs: each gets the traffic of another job of the set, or any traffic."""
        held = self.loop.state.jobs.jobs
        jobs = self.draw.sample(sorted(held), self.draw.randint(2, len(held)))
        exchange = self.draw.random() < 0.7
        updates = []
        for number, job_id in enumerate(jobs):
            other = held[jobs[number - 1]].spec if exchange else ring_job("any", self.draw.choice(RINGS))
            owner = held[job_id].uid if self.draw.random() < 0.95 else ""
            spec = ring_job(job_id, [*other.endpoints], lease_s=80_000, reports_connections=other.reports_connections)
            updates.append(UpdateJob(spec, owner=owner, entry=f"jobs[{number}]"))
        return UpdateJobs(tuple(updates))

    def take_replies(self) -> None:
        """Read the replies in the order of the requests."""
        values = {id(reply.future): reply.value for reply in self.replies}
        self.replies.clear()
        for key in [key for key in self.asked if key in values]:
            _, message = self.asked.pop(key)
            value = values[key]
            if isinstance(value, SignalboxError):
                self.refused += 1
                continue
            self.acknowledged += 1
            if isinstance(message, UpdateJobs):
                assert value == tuple(self.model[update.job_id].uid for update in message.updates)
                for update in message.updates:
                    held = self.model[update.job_id]
                    revision = held.revision + (update.spec != held.spec)
                    self.model[update.job_id] = replace(held, spec=update.spec, revision=revision)
                self.exchanged += len(message.updates) > 1
                continue
            job_id = message.job_id if isinstance(message, DeregisterJob) else JobId(message.spec.job_id)
            before = self.model.pop(job_id, None)
            if isinstance(message, RegisterJob):
                renewed = before is not None and before.uid == value
                self.model[job_id] = before if before and renewed else message.registration
            if before and self.model.get(job_id, message) is not before and before.uid != value:
                self.ended.add(before.uid)

    def check(self) -> None:
        assert not self.asked
        assert {job_id: job.registration for job_id, job in self.loop.state.jobs.jobs.items()} == self.model
        assert self.saved.jobs == self.model
        ends = [end.uid for end in self.status.job_ends]
        assert len(ends) == len(set(ends))
        assert set(ends) == self.ended
        assert self.loop.state.demand.demands.keys() == self.model.keys()
        for job_id, job in self.status.jobs.items():
            declared = self.loop.state.demand.demands[job_id].declared.keys()
            assert declared == {flow.pair for flow in job.routes}


@pytest.mark.parametrize("seed", with_long([0, 1, 10, 11], range(12)))
def test_what_was_acknowledged_is_there(seed: int) -> None:
    fabric = started(Attempts(seed), config=CONFIG)
    for _ in range(30):
        for _ in range(fabric.draw.randrange(5)):
            fabric.ask()
        fabric.run(fabric.draw.choice((0.1, 1.0, 6.0)))
        while fabric.writing and fabric.draw.random() < 0.8:
            fabric.finish(written=fabric.draw.random() < 0.6)
    for _ in range(4):
        fabric.run(6)
        while fabric.writing:
            fabric.finish(written=True)
    fabric.check()
    assert fabric.acknowledged > 5
    assert fabric.refused > 5
    assert fabric.exchanged
    fabric.start(CONFIG)
    assert {job_id: job.registration for job_id, job in fabric.loop.state.jobs.jobs.items()} == fabric.model
