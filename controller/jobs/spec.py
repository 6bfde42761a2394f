"""What a job announces, validated: endpoints, parallel groups, collectives.

Owns the meaning of a job spec. In: plain data (from protobuf, JSON or a test). Out: a frozen ``JobSpec``, or
``InvalidInput`` with every wrong field by path.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address
from typing import Annotated, Any, NewType, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from controller.errors import FieldProblem, InvalidInput, field_problems

JobId = NewType("JobId", str)

MAX_ENDPOINTS = 4096
MAX_GROUPS = 4096
MAX_COLLECTIVES = 256
MAX_BYTES = 1 << 50
MAX_PHASE = 1000
MAX_SUBFLOWS = 16
MIN_LEASE_S = 1.0
MAX_LEASE_S = 86_400.0


class Algorithm(StrEnum):
    """How a collective moves its bytes; ``collectives`` gives each one's virtual links."""

    RING_ALL_REDUCE = "ring_all_reduce"
    RING_REDUCE_SCATTER = "ring_reduce_scatter"
    RING_ALL_GATHER = "ring_all_gather"
    HALVING_DOUBLING_ALL_REDUCE = "halving_doubling_all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    PIPELINE_SEND = "pipeline_send"


class Transport(StrEnum):
    """What carries the bytes: where a switch finds the ports that tell subflows apart. ``roce_v2`` is UDP to port 4791
    with the source port as entropy (InfiniBand specification, annex A17)."""

    TCP = "tcp"
    ROCE_V2 = "roce_v2"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False)


def _ipv4(text: str) -> str:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        raise PydanticCustomError("ipv4", "'{text}' is not an IPv4 address such as 10.0.1.2", {"text": text}) from None
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_reserved:
        raise PydanticCustomError("ipv4_unicast", "{text} is not the address of a host", {"text": text})
    return str(address)


def _job_id(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", text):
        raise PydanticCustomError(
            "job_id",
            "must have 1 to 63 lower-case letters, digits, '.', '_' and '-', a letter or digit at both ends",
        )
    return text


class ParallelGroup(_Frozen):
    """Ranks (indices into ``endpoints``) that communicate with each other, in ring or pipeline order."""

    name: str = Field(min_length=1, max_length=63)
    ranks: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=2, max_length=MAX_ENDPOINTS)


class Collective(_Frozen):
    """One collective that every named group runs once per iteration.

    ``bytes_per_iteration``: the size M of the buffer per rank (ring and halving-doubling all-reduce, reduce-scatter,
    all-gather: the full vector; all-to-all: what one rank sends in all, its own share counted; broadcast and
    pipeline send: what passes each hop). Collectives of one ``phase`` overlap in time, phases do not.
    """

    algorithm: Algorithm
    groups: tuple[str, ...] = Field(min_length=1, max_length=MAX_GROUPS)
    bytes_per_iteration: int = Field(ge=1, le=MAX_BYTES)
    phase: int = Field(default=0, ge=0, le=MAX_PHASE)


class JobSpec(_Frozen):
    """A job's traffic. ``endpoints``: one IPv4 address per rank. ``max_subflows``: into how many pieces, told apart by
    source port (``source_ports``), the job can divide each virtual link; 1 keeps them whole. ``transport``: of its
    connections; whole flows are routed whatever it is. ``lease_s``: seconds without renewal after which the job is
    forgotten."""

    job_id: Annotated[str, AfterValidator(_job_id)]
    endpoints: tuple[Annotated[str, AfterValidator(_ipv4)], ...] = Field(min_length=2, max_length=MAX_ENDPOINTS)
    groups: tuple[ParallelGroup, ...] = Field(default=(), max_length=MAX_GROUPS)
    collectives: tuple[Collective, ...] = Field(default=(), max_length=MAX_COLLECTIVES)
    max_subflows: int = Field(default=1, ge=1, le=MAX_SUBFLOWS)
    transport: Transport = Transport.TCP
    lease_s: float = Field(default=60.0, ge=MIN_LEASE_S, le=MAX_LEASE_S, allow_inf_nan=False)

    @property
    def observed(self) -> bool:
        return not self.collectives

    @classmethod
    def parse(cls, data: Any) -> Self:
        """``data``: a mapping of the field names. Raises ``InvalidInput`` naming every wrong field."""
        try:
            spec = cls.model_validate(data)
        except ValidationError as error:
            raise InvalidInput(field_problems(error, cls)) from None
        InvalidInput.refuse(spec._cross_checks())
        return spec

    def _cross_checks(self) -> list[FieldProblem]:
        problems = [
            FieldProblem("endpoints", f"{ip} appears {count} times; one rank per address")
            for ip, count in Counter(self.endpoints).items()
            if count > 1
        ]
        names = Counter(group.name for group in self.groups)
        for g, group in enumerate(self.groups):
            where = f"groups[{g}]"
            if names[group.name] > 1:
                problems.append(FieldProblem(f"{where}.name", f"'{group.name}' is used by {names[group.name]} groups"))
            for r, rank in enumerate(group.ranks):
                if rank >= len(self.endpoints):
                    message = f"rank {rank} has no endpoint; ranks go from 0 to {len(self.endpoints) - 1}"
                    problems.append(FieldProblem(f"{where}.ranks[{r}]", message))
            if len(set(group.ranks)) < len(group.ranks):
                problems.append(FieldProblem(f"{where}.ranks", "a rank appears twice"))
        known = ", ".join(sorted(names)[:8])
        for c, collective in enumerate(self.collectives):
            for g, name in enumerate(collective.groups):
                if name not in names:
                    path = f"collectives[{c}].groups[{g}]"
                    problems.append(FieldProblem(path, f"no group is called '{name}'; there are: {known}"))
        return problems
