"""Find the process groups of a rank, and the gradients that its models all-reduce over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from signalbox.errors import InvalidInput
from signalbox.ranks import UNNAMED, Gradients, Group

_UNTOLD = {"": UNNAMED, "undefined": UNNAMED, "default_pg": "default"}
"""Names of groups that the program does not describe, by the description that PyTorch then sets."""


def models_of(given: Any) -> list[nn.Module]:
    """Return the models in ``given``; empty for groups. Raises ``InvalidInput`` for anything but models and groups."""
    if given is None or isinstance(given, Mapping | DeviceMesh | dist.ProcessGroup):
        return []
    models = [given] if isinstance(given, nn.Module) else list(given) if isinstance(given, list | tuple) else [None]
    if not all(isinstance(model, nn.Module) for model in models):
        text = "must be a model, a list of models, a DeviceMesh, or a mapping of names to process groups"
        raise InvalidInput.of("model_or_groups", f"{text} (given: {type(given).__name__})")
    return models


def groups_of(given: Any) -> tuple[Group, ...]:
    """Return the groups in ``given`` with their names, then all groups of this rank that PyTorch has."""
    return (*_given(given), *(Group(_described(group), ranks_of(group)) for group in known()))


def known() -> list[Any]:
    """Return the process groups of this rank."""
    return list(dist.distributed_c10d._world.pg_map)


def ranks_of(group: Any) -> tuple[int, ...]:
    """Return the group's members in its order, as ranks of the default group."""
    return tuple(dist.get_process_group_ranks(group))


def _given(given: Any) -> Iterator[Group]:
    if isinstance(given, DeviceMesh):
        names = given.mesh_dim_names or [f"dim-{number}" for number in range(given.ndim)]
        yield from (Group(name, ranks_of(given.get_group(name))) for name in names)
    elif isinstance(given, dist.ProcessGroup):
        yield Group(_described(given), ranks_of(given))
    elif isinstance(given, Mapping):
        for name, group in given.items():
            if isinstance(group, DeviceMesh):
                yield Group(str(name), ranks_of(group.get_group()))
            elif isinstance(group, dist.ProcessGroup):
                yield Group(str(name), ranks_of(group))
            elif group is not dist.GroupMember.NON_GROUP_MEMBER:
                text = f"must be a process group or a DeviceMesh of one dimension (given: {type(group).__name__})"
                raise InvalidInput.of(f"model_or_groups['{name}']", text)


def _described(group: Any) -> str:
    """Return the group's description; a DeviceMesh describes the groups of its dimensions as ``mesh_data``."""
    text = str(getattr(group, "group_desc", ""))
    return _UNTOLD.get(text, text.removeprefix("mesh_"))


def data_parallel(models: Iterable[nn.Module]) -> list[nn.parallel.DistributedDataParallel]:
    """Return the ``DistributedDataParallel`` modules among the models and inside them."""
    found = [part for model in models for part in model.modules()]
    return [part for part in found if isinstance(part, nn.parallel.DistributedDataParallel)]


def gradients_of(models: Iterable[nn.parallel.DistributedDataParallel]) -> tuple[Gradients, ...]:
    """Return the gradients of each model; 0 bytes when a communication hook of the model sends other data."""
    found = []
    for model in models:
        group = model.process_group
        parameters = list(_reduced(model))
        backend = group._get_backend(parameters[0].device).name() if parameters else ""
        size = 0 if _hooked(model) else sum(parameter.numel() * _width(model, parameter) for parameter in parameters)
        found.append(Gradients(ranks_of(group), size, backend))
    return tuple(found)


def _reduced(model: nn.parallel.DistributedDataParallel) -> Iterator[nn.Parameter]:
    ignored = model.parameters_to_ignore
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and name not in ignored:
            yield parameter


def _width(model: nn.parallel.DistributedDataParallel, parameter: nn.Parameter) -> int:
    """Return the bytes of one element of the parameter's gradient, as it is all-reduced."""
    reduced = getattr(getattr(model, "mixed_precision", None), "reduce_dtype", None)
    return int(reduced.itemsize if reduced is not None else parameter.element_size())


def _hooked(model: nn.parallel.DistributedDataParallel) -> bool:
    return bool(getattr(model, "_comm_hooks", ()))
