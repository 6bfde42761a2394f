"""Speed of registrations: jobs per second, and the time until their flows are pinned, for several numbers of members.

The first arrangement is a single controller with its state in SQLite. The others are members that divide the switches
and keep their state in one etcd. Each of 32 clients registers its next job when the previous one is acknowledged. The
clients are spread over the members, so most calls are forwarded to the leader. Switches are in memory (``switches``),
and every flow gets a path without a solver.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.api_load.clients import Clients, placed_jobs
from benchmarks.api_load.setting import PROGRAM, SETTINGS, fabric_of, hosts_of
from benchmarks.measures import Spread, usage
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.support.wire.etcd import EtcdProcess, running_etcd

FABRIC = "16x8x32"
CLIENTS = 32
"""Number of clients, and of registrations at the same time (``clients.AT_ONCE``)."""
SINGLE = 20
"""Number of jobs that are registered one by one: each when the previous one is pinned."""
BATCHES = 5
"""Number of batches of jobs; a batch begins when all flows of the previous batch are pinned."""
WAIT_S = 120.0
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Registrations:
    """Figures of one arrangement. ``members``: 0 for a single controller with SQLite."""

    members: int
    jobs: int
    per_s: float
    """Acknowledged registrations per second in the median batch."""
    ratio: float
    """``per_s`` relative to that of the first arrangement (SQLite)."""
    answer_ms: Spread | None
    """Milliseconds until a registration is acknowledged, while all clients register."""
    all_pinned_s: float
    """Seconds from the first registration of a batch until all its flows are pinned, in the median batch."""
    one_answer_ms: Spread | None
    """Milliseconds until a registration is acknowledged, while no other client calls."""
    one_pinned_ms: Spread | None
    """Milliseconds from a registration until the flows of its job are pinned, while no other client calls."""
    cpu_ms: dict[str, float]
    """CPU time per job in milliseconds, until its flows are pinned: of the leader, of the other members, of etcd."""


@dataclass
class Arrangement:
    """Running controllers and their clients, and the measurements so far. The first controller leads.

    ``members``: 0 for a single controller with SQLite."""

    members: int
    controllers: Sequence[ControllerProcess]
    etcd: EtcdProcess | None = None
    singles: list[tuple[float, float]] = field(default_factory=list)
    """Seconds until each job registered one by one was acknowledged, and until it was pinned."""
    answers_s: list[float] = field(default_factory=list)
    batches: list[tuple[float, float]] = field(default_factory=list)
    """Seconds until the last job of each batch was acknowledged, and until all its flows were pinned."""
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        return [controller.address for controller in self.controllers]

    def begin(self, seed: int) -> None:
        """Create the clients. Must be called in the event loop that runs them."""
        self._clients = Clients(self.addresses, CLIENTS, placed_jobs(seed, list(fabric_of(FABRIC).hosts)), seed)

    async def one(self) -> None:
        """Register a job, and wait until its flows are pinned."""
        began = time.perf_counter()
        (took_s,) = await self._clients.register(1)
        await _until(partial(self._clients.pinned, next(reversed(self._clients.jobs))))
        self.singles.append((took_s, time.perf_counter() - began))

    async def batch(self, jobs: int) -> None:
        """Register ``jobs`` jobs, ``CLIENTS`` at a time, and wait until all flows are pinned."""
        before, began = self._used(), time.perf_counter()
        self.answers_s += await self._clients.register(jobs)
        answered_s = time.perf_counter() - began
        await _until(partial(asyncio.to_thread, self._are_pinned))
        self.batches.append((answered_s, time.perf_counter() - began))
        for name, used_s in self._used().items():
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + used_s - before[name]

    async def end(self) -> None:
        await self._clients.close()

    def _are_pinned(self) -> bool:
        with Client(self.addresses[0]) as client:
            status = client.get_status()
        waiting = status.jobs_pending + status.jobs_unplanned + status.jobs_without_path
        is_in_sync = status.switches_in_sync == status.switches
        return status.jobs == len(self._clients.jobs) and not waiting and is_in_sync

    def _used(self) -> dict[str, float]:
        """Return the CPU seconds so far of the leader, of all other members, and of etcd."""
        leader, *others = (usage(controller.process).cpu_s for controller in self.controllers)
        etcd = usage(self.etcd.process).cpu_s if self.etcd else 0.0
        return {"leader": leader, "others": sum(others), "etcd": etcd}

    def figures(self, jobs: int, first_per_s: float | None) -> Registrations:
        """Return the figures. ``jobs``: jobs per batch.

        ``first_per_s``: ``per_s`` of the first arrangement, if there is one."""
        per_s = jobs / median(answered_s for answered_s, _ in self.batches)
        one_answer, one_pinned = zip(*self.singles, strict=True)
        return Registrations(
            members=self.members,
            jobs=jobs * len(self.batches),
            per_s=per_s,
            ratio=per_s / (first_per_s or per_s),
            answer_ms=_ms(self.answers_s),
            all_pinned_s=median(pinned_s for _, pinned_s in self.batches),
            one_answer_ms=_ms(one_answer),
            one_pinned_ms=_ms(one_pinned),
            cpu_ms={name: 1000 * cpu_s / jobs / len(self.batches) for name, cpu_s in self.cpu_s.items()},
        )


def measured(members: Sequence[int], jobs: int, seed: int, tell: Callable[[str], None]) -> list[Registrations]:
    """Return the figures with SQLite, and then those with each number of members.

    All arrangements run at the same time, and take turns in being measured. When other programs slow the machine
    down, they therefore slow down every arrangement."""
    with ExitStack() as stack:
        arrangements = []
        for count in (0, *members):
            tell(f"starting {count} members" if count else "starting a single controller")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-load-"))
            arrangements.append(stack.enter_context(_running(count, Path(folder))))
        tell("registering jobs")
        asyncio.run(_measure(arrangements, jobs // BATCHES, seed))
    found: list[Registrations] = []
    for here in arrangements:
        found.append(here.figures(jobs // BATCHES, found[0].per_s if found else None))
    return found


async def _measure(arrangements: Sequence[Arrangement], jobs: int, seed: int) -> None:
    for here in arrangements:
        here.begin(seed)
        await here.one()  # the first plan waits for the planner's imports
        here.singles.clear()
    for _ in range(SINGLE):
        for here in arrangements:
            await here.one()
    for _ in range(BATCHES):
        for here in arrangements:
            await here.batch(jobs)
    for here in arrangements:
        await here.end()


def _ms(seconds: Sequence[float]) -> Spread | None:
    return Spread.of([1000 * took for took in seconds])


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds. Raises ``SignalboxError`` after ``WAIT_S``."""
    ends = time.monotonic() + WAIT_S
    while not await condition():
        if time.monotonic() > ends:
            raise SignalboxError(f"not every job was pinned within {WAIT_S:.0f} s")
        await asyncio.sleep(POLL_S)


# ---- controllers


@contextmanager
def _running(members: int, folder: Path) -> Iterator[Arrangement]:
    """Run the controllers; yield them once every member has its switches.

    ``members``: 0 for one controller with SQLite."""
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder / "etcd")) if members else None
        settings = {**SETTINGS, **hosts_of(FABRIC, folder)}
        controllers = [_controller(folder / f"m{number + 1}", settings, etcd) for number in range(max(1, members))]
        here = Arrangement(members, controllers, etcd)
        for number, controller in enumerate(here.controllers):
            options = ["--measured", str(controller.folder / "measured.json"), "--fabric", FABRIC]
            controller.start(*options, *(["--standby"] if etcd else []))
            stack.callback(controller.kill)
            wait_for(partial(_answers, here, number), f"controller {number + 1}", WAIT_S)
        wait_for(partial(_is_divided, here), "the division of the switches", WAIT_S)
        yield here


def _controller(folder: Path, settings: Settings, etcd: EtcdProcess | None) -> ControllerProcess:
    if etcd:  # on a busy machine no claim must expire
        return ControllerProcess.member(folder, etcd.endpoint, {**settings, "etcd": {"lease_s": 30}}, PROGRAM)
    folder.mkdir()
    return ControllerProcess(folder, settings=settings, program=PROGRAM)


def _answers(here: Arrangement, number: int) -> bool:
    """Return whether controller ``number``, counted from 0, answers.

    With etcd it must also list all members started so far."""
    here.controllers[number].check()
    try:
        with Client(here.addresses[number]) as client:
            client.get_status()
            return not here.etcd or len(client.list_members()) == number + 1
    except SignalboxError:
        return False


def _is_divided(here: Arrangement) -> bool:
    """Return whether every switch has its rules, and every member holds its share of the switches."""
    for controller in here.controllers:
        controller.check()
    with Client(here.addresses[0]) as client:
        status = client.get_status()
        held = [member.switches for member in client.list_members()]
    switches = len(fabric_of(FABRIC).switches)
    return status.switches_in_sync == switches and (not here.etcd or (0 not in held and sum(held) == switches))
