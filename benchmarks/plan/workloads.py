"""Workloads, fabrics and failures for which ``plan`` measures planning.

A ``Setting`` is a fabric with jobs, and has the names of the ``Failure``s that apply to it. The groups of settings are

- *published*: folders of workload files, if a folder is given, on the fabric for which they are made;
- *whole-leaf* and *fragmented*: generated workloads of the same kind, with one to five jobs and rings of 2, 4 or 8;
- irregular ones: rings of unequal sizes, uplinks half as fast as NICs, two parallel cables, a job on slower NICs, and a
  fat-tree. All but the fat-tree are variants of the published workloads or, without a folder, of whole-leaf ones.

``random_flows`` makes workloads of any size.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.planning.snapshot import ideal_communication_s
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import fat_tree, leaf_spine, spine_links, without, without_random_links
from offline.scenarios.generator import Workload, generate, jobs_of, ring_lines
from offline.scenarios.workloads import Numbering, WorkloadJob, read_workload, workload_folders
from signalbox.errors import FieldProblem, InvalidInput

LEAVES, SPINES, HOSTS_PER_LEAF = 64, 32, 32
"""Size of the fabric for which the published workloads are made (arXiv 2503.05324); generated workloads use it, too."""
LINK_BPS = 100e9
SLOW_BPS = 25e9
SEED = 1
GENERATED = 50
_RING_SIZES = (2, 4, 8)
_MOST_JOBS = 5
_K = 8
_TWO_SIZES, _THREE_SIZES = "sizes 3:1", "sizes 7:3:1"
_SIZES = {_TWO_SIZES: (3, 1), _THREE_SIZES: (7, 3, 1)}
_OVERSUBSCRIBED = "2:1 oversubscribed"
_TWO_CABLES = "two cables each"
_TWO_NIC_RATES = "100 and 25 Gbit/s NICs"
_FAT_TREE = f"fat-tree k={_K}"
IRREGULAR = (_TWO_SIZES, _THREE_SIZES, _OVERSUBSCRIBED, _TWO_CABLES, _TWO_NIC_RATES, _FAT_TREE)


class Failure(NamedTuple):
    spines: int = 0
    """Number of failed spines: those with the highest numbers, as in the publication."""
    cables: int = 0
    """Number of failed cables, drawn at random from those that are left when spines have failed."""
    of_one_job: int = 0
    """Number of failed cables at each leaf that only the first job uses."""
    max_subflows: int = 2
    """Number of subflows that split flows may have."""


ONE_JOB = "one-job"
FAILURES = {
    "none": Failure(),
    "1-spine": Failure(spines=1),
    "4-spines": Failure(spines=4),
    "8-spines": Failure(spines=8),
    "40-cables": Failure(cables=40, max_subflows=8),
    "60-cables-8-spines": Failure(spines=8, cables=60, max_subflows=8),
    ONE_JOB: Failure(of_one_job=4, max_subflows=8),
}
WHOLE_SPINES = tuple(name for name, what in FAILURES.items() if not what.cables and not what.of_one_job)


@dataclass(frozen=True, slots=True)
class Setting:
    """Fabric with jobs. Failures are applied later (``failed``)."""

    group: str
    name: str
    fabric: Fabric
    jobs: tuple[WorkloadJob, ...]
    failures: tuple[str, ...]
    """Names of the failures with which the setting is planned."""
    even: bool = False
    """Whether ``measure.closed_form`` holds when whole spines fail.

    It needs equal NICs, equal links and equal flows, and one cable between every leaf and every spine."""


@dataclass(frozen=True, slots=True)
class Workloads:
    published: tuple[Setting, ...]
    generated: tuple[Setting, ...]
    irregular: tuple[Setting, ...]


def workloads(folder: Path | None, generated: int = GENERATED, irregular: bool = True) -> Workloads:
    """Return all settings. ``generated``: number of generated workloads, half of them fragmented.

    Raises ``InvalidInput`` when the folder has no workloads, or has workloads for another fabric."""
    fabric = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    published = _published(folder, fabric) if folder else ()
    made = tuple(_generated(fabric, number) for number in range(generated))
    bases = published or tuple(setting for setting in made if setting.group == Placement.WHOLE_LEAF)
    return Workloads(published, made, _irregular(bases) if irregular else ())


def few(found: Workloads) -> Workloads:
    """Return only the last setting of every group."""
    return Workloads(
        *(
            tuple({of.group: of for of in those}.values())
            for those in (found.published, found.generated, found.irregular)
        )
    )


def failed(setting: Setting, failure: Failure) -> Fabric:
    """Return the fabric of a setting after a failure. Equal arguments always give the same fabric."""
    fabric = setting.fabric
    links: set[LinkId] = set()
    if failure.spines:
        spines = len(_spines(setting.fabric))
        links |= spine_links(setting.fabric, range(spines - failure.spines, spines))
    if failure.of_one_job:
        rng = random.Random(SEED)
        for leaf in leaves_of_one_job(setting):
            cables = [link for link in setting.fabric.links if link.dpid == leaf and link not in links]
            links |= set(rng.sample(cables, failure.of_one_job))
    if links:
        fabric = without(fabric, links)
    return without_random_links(fabric, failure.cables, SEED) if failure.cables else fabric


def leaves_of_one_job(setting: Setting) -> list[Dpid]:
    """Return the leaves whose hosts are all used by the first job alone; none if it is the only job."""
    users: defaultdict[Dpid, set[int]] = defaultdict(set)
    for number, job in enumerate(setting.jobs):
        for pair in job.pairs:
            for ip in pair:
                users[setting.fabric.hosts[ip].at.dpid].add(number)
    return sorted(leaf for leaf, jobs in users.items() if jobs == {0}) if len(setting.jobs) > 1 else []


def with_subflows(jobs: Sequence[WorkloadJob], max_subflows: int) -> tuple[WorkloadJob, ...]:
    return tuple(replace(job, max_subflows=max_subflows) for job in jobs)


def _spines(fabric: Fabric) -> list[str]:
    """Return the names of the spines or, in a fat-tree, of the cores."""
    return [switch.name for switch in fabric.switches.values() if switch.name.startswith(("spine", "core"))]


def _published(folder: Path, fabric: Fabric) -> tuple[Setting, ...]:
    found = workload_folders(folder)
    if not found:
        raise InvalidInput((FieldProblem("--workloads", f"'{folder}' holds no workload files (*.txt), at any depth"),))
    return tuple(
        _even("published", below.relative_to(folder).as_posix(), fabric, read_workload(below, fabric))
        for below in found
    )


def _generated(fabric: Fabric, number: int) -> Setting:
    """Return generated setting ``number``; even numbers are whole-leaf, odd numbers fragmented.

    An odd number has the jobs and ring sizes of the number before it."""
    placement = (Placement.WHOLE_LEAF, Placement.FRAGMENTED)[number % 2]
    pair = number // 2
    jobs, ring_size = 1 + pair % _MOST_JOBS, _RING_SIZES[pair % len(_RING_SIZES)]
    workload = generate(fabric, jobs, ring_size, placement, seed=1 + pair)
    name = f"{jobs} jobs ring {ring_size} seed {1 + pair}"
    return _even(placement.value, name, fabric, jobs_of(workload, fabric))


def _even(group: str, name: str, fabric: Fabric, jobs: tuple[WorkloadJob, ...]) -> Setting:
    setting = Setting(group, name, fabric, jobs, tuple(FAILURES), even=True)
    if leaves_of_one_job(setting):
        return setting
    return replace(setting, failures=tuple(name for name in FAILURES if name != ONE_JOB))


# ---- irregular settings


def _irregular(bases: Sequence[Setting]) -> tuple[Setting, ...]:
    if not bases:
        return ()
    slow = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS / 2)
    doubled = leaf_spine(LEAVES, SPINES // 2, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS, cables=2)
    few = ("none", "4-spines")
    settings = [
        *(_sized(_TWO_SIZES, base, few) for base in bases),
        *(_sized(_THREE_SIZES, base, few) for base in bases),
        *(Setting(_OVERSUBSCRIBED, base.name, slow, base.jobs, few) for base in bases),
        *(Setting(_TWO_CABLES, base.name, doubled, base.jobs, ("none", "40-cables")) for base in bases),
        *(_two_nic_rates(base, few) for base in bases if len(base.jobs) > 1),
        *_fat_trees(),
    ]
    return tuple(settings)


def _sized(group: str, base: Setting, failures: tuple[str, ...]) -> Setting:
    """Return the setting with unequal rings: the rings of a job send different parts of their bytes, in turn."""
    sizes = _SIZES[group]
    return Setting(group, base.name, base.fabric, tuple(_resized(job, sizes) for job in base.jobs), failures)


def _resized(job: WorkloadJob, sizes: Sequence[int]) -> WorkloadJob:
    links = list(job.virtual_links)
    for ring, members in enumerate(job.rings):
        for index in members:
            part = sizes[ring % len(sizes)]
            links[index] = replace(links[index], bytes=links[index].bytes * part // max(sizes))
    return replace(job, virtual_links=tuple(links))


def _two_nic_rates(base: Setting, failures: tuple[str, ...]) -> Setting:
    """Return the setting with slow NICs for the hosts of the last job."""
    slow = {ip for pair in base.jobs[-1].pairs for ip in pair}
    hosts = {ip: replace(host, nic_bps=SLOW_BPS) if ip in slow else host for ip, host in base.fabric.hosts.items()}
    nic_bps = {ip: host.nic_bps for ip, host in hosts.items()}
    jobs = tuple(replace(job, ideal_s=ideal_communication_s(job.virtual_links, nic_bps)) for job in base.jobs)
    return Setting(_TWO_NIC_RATES, base.name, replace(base.fabric, hosts=hosts), jobs, failures)


def _fat_trees() -> list[Setting]:
    fabric = fat_tree(_K, LINK_BPS, LINK_BPS)
    return [
        Setting(
            _FAT_TREE,
            f"{placement.value} seed {seed}",
            fabric,
            jobs_of(generate(fabric, 2, 4, placement, seed, max_rings=16), fabric),
            ("none", "1-spine", "4-spines"),
        )
        for placement in Placement
        for seed in (1, 2)
    ]


STEP_BYTES = 1 << 20
"""Bytes of a flow in each step of its ring."""


def random_flows(fabric: Fabric, flows: int, jobs: int, seed: int) -> Workload:
    """Return a workload of ``flows`` equal flows, in one ring of random hosts per job. No host is used twice.

    Raises ``InvalidInput`` when there are fewer hosts than flows, or fewer than two flows per job."""
    numbering = Numbering(fabric)
    if not 2 * jobs <= flows <= len(numbering.ips):
        message = (
            f"{flows} flows in {jobs} jobs need as many hosts (there are {len(numbering.ips)}) and two flows per job"
        )
        raise InvalidInput((FieldProblem("workload", message),))
    first = numbering.first_host
    hosts = random.Random(seed).sample(range(first, first + len(numbering.ips)), flows)
    cuts = [flows * job // jobs for job in range(jobs + 1)]
    return {
        f"job_{job}-random": ring_lines(hosts[cuts[job] : cuts[job + 1]], 0, 0, STEP_BYTES, 0, numbering)
        for job in range(jobs)
    }
