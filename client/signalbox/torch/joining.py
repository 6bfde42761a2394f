"""``signalbox.torch.join``, and the job that it returns.

In ``join``, each rank sends a report about itself to all other ranks in one collective. Then rank 0 announces the job,
and each rank measures its iterations. If the traffic is not known yet, each rank records its first iterations, and rank
0 announces their traffic.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from signalbox import joining
from signalbox.errors import InvalidInput
from signalbox.ip_addresses import checked, own_address
from signalbox.job_ids import HOW_TO_NAME_THE_JOB, job_id_of_environment
from signalbox.jobs.reports import Step
from signalbox.jobs.spec import SENDS, JobSpec
from signalbox.joining import OnRoutes
from signalbox.membership import Ended
from signalbox.ranks import Exchange, RankReport, Window, endpoints_of, gradients_of, groups_of
from signalbox.torch import process_groups
from signalbox.torch.process_groups import CALLS
from signalbox.traces.flight_recorder import job_spec_of

if TYPE_CHECKING:
    from signalbox.credentials import Credentials

TRAFFIC = (*SENDS, "library")
SAMPLE_S = 0.1
"""Shortest pause in seconds between two readings of DistributedDataParallel's times. A reading takes 0.1 ms."""

MEET_S = 120.0
"""Seconds that a rank waits in ``join`` for the other ranks."""
_joins = count()

log = logging.getLogger("signalbox")

_not_compiled = getattr(torch, "_disable_dynamo", torch.compiler.disable)
"""Decorator that excludes a function from compilation, as PyTorch excludes its own functions.

``torch.compiler.disable`` imports torch._dynamo at once, which takes 3 s of processor time. This variant imports
torch._dynamo only at the function's first call. A program's first optimizer imports torch._dynamo anyway; a program
without an optimizer does not need it."""


def join(
    model_or_groups: Any = None,
    job: str | None = None,
    *,
    endpoint: str | None = None,
    address: str | None = None,
    credentials: Credentials | None = None,
    on_routes: OnRoutes | None = None,
    take_over: bool | None = None,
    strict: bool = False,
    **fields: Any,
) -> Job:
    """Announce a PyTorch program as a training job; raise nothing unless ``strict``.

    All ranks must call ``join``, after ``init_process_group`` and after wrapping the model. ``join`` returns when all
    ranks have called it. If some ranks do not call ``join`` within two minutes, it returns on the other ranks, and the
    job is not announced. Rank 0 announces the job, renews its lease until the program ends, and reports iterations.

    - ``model_or_groups``: the model or a list of models; a ``DeviceMesh``, whose dimensions name the groups; or a
      mapping of names to process groups. Other process groups that PyTorch knows are announced too.
    - ``job``: the job's id. Default: from the environment, as for ``signalbox.join``.
    - ``endpoint``: this rank's address. Default: the address of the interface in GLOO_SOCKET_IFNAME or
      NCCL_SOCKET_IFNAME, else the source address towards MASTER_ADDR or the other ranks.
    - ``fields``: other fields of the job spec. With ``collectives``, ``transfers`` or ``parallelizations`` no traffic
      is recorded.
    - ``address``, ``credentials``, ``on_routes``, ``take_over`` and ``strict``: as for ``signalbox.join``.

    The gradients of a ``DistributedDataParallel`` model are announced at once. For other programs, at first only the
    hosts are announced, and the traffic is recorded. After the first iteration the traffic is announced as provisional;
    after the fourth it is corrected.

    An iteration lasts from one step of the program's first optimizer to the next. In a program that uses ``Job.step``,
    an iteration is the time inside this context."""
    job_id = job or job_id_of_environment(os.environ)
    joined = Job(str(job_id or ""))
    try:
        reports = _gathered(model_or_groups, endpoint)
        rank = dist.get_rank()
        endpoints = endpoints_of(reports)
        if job_id is None:
            raise InvalidInput.of("job", f"the id of the job is missing: {HOW_TO_NAME_THE_JOB}")
        groups = groups_of(reports)
        known = {"groups": [group._asdict() for group in groups], **gradients_of(reports, groups)}
        if fields.get("parallelizations"):
            known = {name: value for name, value in known.items() if name not in SENDS}
        spec = JobSpec.parse({"job_id": job_id, "endpoints": endpoints, **known, **fields})
        joined._join(spec, rank, address, credentials, on_routes, None, take_over, strict and rank == 0, {})
    except Exception as error:
        joined._refuse(error, strict)
        return joined
    try:
        joined._measure(process_groups.models_of(model_or_groups), f"signalbox/{reports[0].key}", rank, spec, fields)
    except Exception as error:
        joined._log_once("cannot measure iterations", error)
    return joined


def _gathered(given: Any, endpoint: str | None) -> list[RankReport]:
    """Return the reports of all ranks.

    Raises ``InvalidInput`` without other ranks, or when a rank does not call ``join``. A rank with an error still
    takes part in the collective and reports its error, so that no other rank waits for it."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidInput.of("", "there is no process group yet; call join after torch.distributed.init_process_group")
    if dist.get_world_size() < 2:
        raise InvalidInput.of("", "the job has only one rank, so there is no traffic to announce")
    _refuse_missing_ranks()
    models: list[Any] = []
    try:
        models = process_groups.models_of(given)
        own = _own_report(given, models, endpoint)
    except Exception as error:
        own = RankReport(problem=str(error))
    bound = getattr(dist.distributed_c10d._get_default_group(), "bound_device_id", None) or torch.device("cpu")
    device = next((parameter.device for model in models for parameter in model.parameters()), bound)
    found = _all_gather(own, device)
    others = [one.endpoint for one in found if one.endpoint]
    if 0 < len(others) < len(found):  # true on all ranks or on none
        found = _all_gather(replace(own, endpoint=own.endpoint or own_address({}, "", others)), device)
    return found


def _store() -> Any:
    """Return the program's key-value store, over a new connection if the store allows it.

    A call over the program's own connection could block the program."""
    store = dist.distributed_c10d._get_default_store()
    return store.clone() if hasattr(store, "clone") else store


def _refuse_missing_ranks() -> None:
    """Raise ``InvalidInput`` on all ranks unless all of them call this function within ``MEET_S``.

    Without this check, a collective that some ranks do not call would block the others until the program ends."""
    store, ranks, key = _store(), dist.get_world_size(), f"signalbox/join/{next(_joins)}"
    if store is None:  # MPI has no store
        return
    here = store.add(f"{key}/ranks", 1)
    if here < ranks:
        with suppress(RuntimeError):  # raised after the time-out
            store.wait([key], timedelta(seconds=MEET_S))
    if store.compare_set(key, "", "all" if here == ranks else "some") != b"all":
        found = store.add(f"{key}/ranks", 0)
        text = f"all ranks must call signalbox.torch.join; {min(found, ranks)} of {ranks} did within {MEET_S:g} s"
        raise InvalidInput.of("", text)


def _own_report(given: Any, models: list[Any], endpoint: str | None) -> RankReport:
    library = str(dist.get_backend())
    if endpoint is None:
        endpoint = own_address(os.environ, library, filter(None, [os.environ.get("MASTER_ADDR")]))
    else:
        endpoint = checked(endpoint)
    gradients = process_groups.gradients_of(process_groups.data_parallel(models))
    return RankReport(endpoint, process_groups.groups_of(given), gradients, key=uuid4().hex)


def _all_gather(own: RankReport, device: torch.device) -> list[RankReport]:
    """Return the reports of all ranks, sent from the device of this rank.

    NCCL needs the device that this rank uses, which may not be the current device. ``device``: device of the rank's
    model, else the device given to ``init_process_group``."""
    found: list[Any] = [None] * dist.get_world_size()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        dist.all_gather_object(found, own)
    return found


class Job(joining.Job):
    """A joined job on any rank: a ``signalbox.Job`` that measures and reports its iterations itself.

    A program without an optimizer, or whose iterations are not optimizer steps, wraps each iteration in ``step``."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self._exchange: Exchange | None = None
        # Weak references: a live model keeps its process groups. If their threads outlive Python, the process may end
        # with SIGABRT.
        self._models: list[Any] = []
        self._timed = False
        self._sampled_s = 0.0
        self._sample_at = 0.0
        self._by_step = False
        self._optimizer: Any = lambda: None  # a weak reference
        self._began: float | None = None
        self._hook: Any = None

    def iteration(
        self, duration_s: float, communication_s: float | None = None, until_communication_s: float | None = None
    ) -> None:
        self._by_step = True
        super().iteration(duration_s, communication_s, until_communication_s)

    def step(self) -> Step:
        self._by_step = True
        return super().step()

    def begin_leaving(self) -> None:
        super().begin_leaving()
        if self._exchange:
            self._exchange.begin_leaving()

    def end_leaving(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        if self._hook:
            self._hook.remove()
        if self._exchange:
            self._exchange.end_leaving(timeout_s)
        super().end_leaving(max(0.0, deadline - time.monotonic()))

    # ---- inside

    def _refuse(self, error: Exception, strict: bool) -> None:
        """Record that the job is not announced; rank 0 raises or logs the error on behalf of all ranks."""
        self._end(Ended.REFUSED)
        first = not dist.is_initialized() or dist.get_rank() == 0
        if first and strict:
            raise error
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "job '%s' is not announced (the training continues): %s", self.id, error)

    def _measure(self, models: list[Any], key: str, rank: int, spec: JobSpec, fields: Mapping[str, Any]) -> None:
        if self._ended:
            return
        self._models = [weakref.ref(model) for model in process_groups.data_parallel(models)]
        if self._timed_by_calls(models):
            CALLS.wrap()
            self._timed = True
        if not {"collectives", "transfers", "parallelizations"} & fields.keys():
            store = _store()
            understand = partial(self._understand, spec)
            CALLS.recording = True
            self._exchange = Exchange(store, key, rank, len(spec.endpoints), CALLS.between, understand, CALLS.stop)
            self._exchange.start()
        self._hook = register_optimizer_step_post_hook(_not_compiled(lambda *given: self._stepped(*given)))

    @staticmethod
    def _timed_by_calls(models: list[Any]) -> bool:
        """Return whether the duration of a call shows how long its communication took.

        The result is False on GPUs, because a call returns before its communication begins."""
        devices = {parameter.device.type for model in models for parameter in model.parameters()}
        return devices == {"cpu"} if devices else dist.get_backend() == "gloo" or not torch.cuda.is_available()

    def _understand(self, announced: JobSpec, dumps: Mapping[int, Any], window: Window) -> None:
        bare = announced.model_copy(update={"collectives": (), "transfers": ()})
        spec = job_spec_of(dumps, bare, window.iterations)
        if spec.observed or (window.provisional and not announced.observed):
            return
        self.update(**{name: getattr(spec, name) for name in TRAFFIC}, provisional=window.provisional)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Handle a step of an optimizer; only steps of the program's first optimizer count, as long as it exists."""
        if self._by_step or self._ended:
            return
        counted = self._optimizer()
        if counted is None:
            self._optimizer, self._began = weakref.ref(optimizer), None
        elif counted is not optimizer:
            return
        now = time.perf_counter()
        if self._began is not None:
            begun_at = CALLS.begun_at() if self._timed else None
            until_s = None if begun_at is None else begun_at - self._began
            self._record(now - self._began, None, until_s)
        else:
            if self._exchange and not self._exchange.marks.count:
                self._exchange.marks.mark(time.time_ns())  # the first iteration, whose duration is unknown
            if self._timed:
                CALLS.communicated_s()
                CALLS.begun_at()
        self._wait()  # other ranks wait for this one in their next collective
        self._began = time.perf_counter()

    def _record(
        self, duration_s: float, communication_s: float | None = None, until_communication_s: float | None = None
    ) -> None:
        if self._exchange:
            self._exchange.marks.mark(time.time_ns())
        try:
            measured = self._communicated_s()
        except Exception as error:
            self._log_once("cannot measure communication times", error)
            measured = None
        communication_s = measured if communication_s is None else communication_s
        super()._record(duration_s, communication_s, until_communication_s)

    def _communicated_s(self) -> float | None:
        called_s = CALLS.communicated_s() if self._timed else 0.0
        now = time.monotonic()
        if self._models and self._membership and now >= self._sample_at:
            self._sample_at = now + SAMPLE_S
            models = [model for each in self._models if (model := each()) is not None]
            times = [model._get_ddp_logging_data().get("backward_comm_time", 0) for model in models]
            self._sampled_s = sum(times) / 1e9
        return called_s + self._sampled_s or None
