"""Read MLCommons Chakra execution traces: the traffic of each rank's communication nodes.

There is one ``.et`` file per rank. The first message of a file is ``GlobalMetadata``, all further messages are
``Node``; before each message is its length, a varint. Versions 0.0.4 and 1.0.1 write the same fields. ``chakra_schema``
has the schema of mlcommons/chakra, its licence, and the output of ``make proto`` for it.

Files differ in the type of an attribute, so any integer type is accepted. ``comm_size`` is the size of the rank's own
input in bytes. In a node that sends or receives, ``comm_type`` is ignored, because files write the value of the node's
field ``type`` into it. A CPU node without ``comm_type`` is left out: it only starts a kernel, whose own node has
``comm_type``.

The schema has no process groups. An attribute ``pg_name`` names one of the groups that the user gives. Without this
attribute all ranks take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessages

from signalbox.errors import InvalidInput, cut
from signalbox.files import called, opened
from signalbox.jobs.spec import JobSpec
from signalbox.traces.calls import (
    GATHER,
    MAX_CALLS,
    REDUCE,
    SCATTER,
    SEND,
    Call,
    Kind,
    TooManyCalls,
    file_of_rank,
    per_iteration,
    refuse_incomplete,
    with_amounts,
)

MAX_MESSAGE_BYTES = 16 << 20
"""Largest size of a message in bytes.

A node has some hundred bytes, or kilobytes when it refers to many other nodes."""

_SEND, _RECEIVE, _COLLECTIVE = 5, 6, 7
"""Values of a node's field ``type``."""

_COLLECTIVES = {
    0: "all_reduce",
    1: REDUCE,
    2: "all_gather",
    3: GATHER,
    4: SCATTER,
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
    9: "barrier",
}
"""Operations by the value of the attribute ``comm_type``."""

_INTEGERS = ("int32_val", "int64_val", "uint32_val", "uint64_val", "sint32_val", "sint64_val")


def _messages() -> tuple[Any, Any]:
    """Return the message classes ``GlobalMetadata`` and ``Node``.

    They are made here, so that they cannot conflict with classes that a program has made from the same schema."""
    schema = resources("signalbox.traces.chakra_schema").joinpath("et_def.binpb").read_bytes()
    classes = GetMessages(FileDescriptorSet.FromString(schema).file)
    return classes["ChakraProtoMsg.GlobalMetadata"], classes["ChakraProtoMsg.Node"]


_Metadata, _Node = _messages()


def job_spec(files: Sequence[Path], given: JobSpec, iterations: int | None = None) -> JobSpec:
    """Return the job spec of the traces. Raises ``InvalidInput`` and ``OSError``.

    - ``given``: spec with the addresses of all ranks, and with the groups that the traces name
    - ``iterations``: number of iterations in each trace; None means 1"""
    ranks = tuple(range(len(given.endpoints)))
    calls: dict[int, list[Call]] = {}
    left = MAX_CALLS
    for rank, file in file_of_rank(files).items():
        try:
            calls[rank] = list(_calls(file, rank, given, left))
        except InvalidInput as error:
            raise error.within(called(file)) from None
        left -= len(calls[rank])
    refuse_incomplete(calls, len(ranks))
    return with_amounts(given, per_iteration(calls, iterations or 1), {ranks: "all"}, given.library)


def _calls(file: Path, rank: int, given: JobSpec, at_most: int) -> Iterator[Call]:
    with opened(file) as stream:
        parts = _messages_in(stream)
        _check_metadata(next(parts, b""))
        for number, part in enumerate(parts):
            node = _parsed(_Node, part, f"node {number}")
            if node.type in (_SEND, _RECEIVE, _COLLECTIVE):
                try:
                    call = _call(node, rank, given)
                except InvalidInput as error:
                    raise error.within(f"node {node.id} ('{cut(node.name)}')") from None
                if call and call.bytes:
                    at_most -= 1
                    if at_most < 0:
                        raise TooManyCalls.in_trace()
                    yield call


def _messages_in(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of each message of the file, without its length. Raises ``InvalidInput``."""
    at = 0
    while first := stream.read(1):
        length = shift = 0
        byte = first[0]
        while byte & 0x80 and shift < 28:
            length |= (byte & 0x7F) << shift
            shift += 7
            more = stream.read(1)
            if not more:
                raise InvalidInput.of(f"byte {at}", "the file ends in the middle of a length field; is it truncated?")
            byte = more[0]
        length |= byte << shift
        if length > MAX_MESSAGE_BYTES:
            raise InvalidInput.of(
                f"byte {at}",
                f"a message of {length} bytes; at most {MAX_MESSAGE_BYTES} are allowed. Is it a Chakra trace (.et)?",
            )
        part = stream.read(length)
        if len(part) < length:
            raise InvalidInput.of(
                f"byte {at}", f"a message of {length} bytes, but {len(part)} follow; is it truncated?"
            )
        yield part
        at += 1 + shift // 7 + length


def _parsed(kind: Any, part: bytes, where: str) -> Any:
    try:
        return kind.FromString(part)
    except DecodeError:
        raise InvalidInput.of(where, "is not a message of a Chakra trace") from None


def _check_metadata(part: bytes) -> None:
    """Raise ``InvalidInput`` unless the message is the first one of a trace.

    The first message has a version or an attribute ``schema``."""
    metadata = _parsed(_Metadata, part, "byte 0")
    if not metadata.version and not any(attribute.name == "schema" for attribute in metadata.attr):
        raise InvalidInput.of("byte 0", "no metadata with a version: this is not a Chakra trace")


def _call(node: Any, rank: int, given: JobSpec) -> Call | None:
    """Return the call of a node; None if the node sends nothing, or is a CPU node that only starts a kernel."""
    attributes = {attribute.name: attribute for attribute in node.attr}
    size = _number(attributes, "comm_size")
    if node.type != _COLLECTIVE:
        peer_name = "comm_dst" if node.type == _SEND else "comm_src"
        peer = _rank(_needed(_number(attributes, peer_name), peer_name), given, peer_name)
        pair = (rank, peer) if node.type == _SEND else (peer, rank)
        return Call(Kind(SEND, pair), _needed(size, "comm_size")) if peer != rank else None
    number = _number(attributes, "comm_type")
    if number is None and size is None and "is_cpu_op" in attributes and attributes["is_cpu_op"].bool_val:
        return None
    what = _COLLECTIVES.get(_needed(number, "comm_type"))
    if what is None:
        raise InvalidInput.of("comm_type", f"must be from 0 to {max(_COLLECTIVES)} (given: {number})")
    if what == "barrier":
        return None
    ranks = _group(attributes, rank, given)
    size = _needed(size, "comm_size")
    return Call(Kind(what, ranks), size * len(ranks) if what in ("all_gather", GATHER) else size)


def _group(attributes: Mapping[str, Any], rank: int, given: JobSpec) -> tuple[int, ...]:
    """Return the participating ranks; the first rank counts as the root of a broadcast, which traces do not record."""
    name = attributes["pg_name"].string_val if "pg_name" in attributes else ""
    if not name:
        if "involved_dim" in attributes and not all(attributes["involved_dim"].bool_list.values):
            message = "only some ranks take part, and no pg_name names their group; record pg_name, or give transfers"
            raise InvalidInput.of("involved_dim", message)
        return tuple(range(len(given.endpoints)))
    groups = {group.name: group.ranks for group in given.groups}
    if name not in groups:
        known = ", ".join(list(groups)[:8]) or "none"
        raise InvalidInput.of("pg_name", f"no group is called '{cut(name)}'; groups of --spec: {known}")
    if rank not in groups[name]:
        raise InvalidInput.of("pg_name", f"rank {rank} is not in group '{cut(name)}'")
    return groups[name]


def _number(attributes: Mapping[str, Any], name: str) -> int | None:
    if name not in attributes:
        return None
    attribute = attributes[name]
    found = [getattr(attribute, kind) for kind in _INTEGERS if attribute.HasField(kind)]
    if len(found) != 1 or found[0] < 0:
        raise InvalidInput.of(name, "must be a whole number, at least 0")
    return int(found[0])


def _needed(value: int | None, name: str) -> int:
    if value is None:
        raise InvalidInput.of(name, "is missing")
    return value


def _rank(number: int, given: JobSpec, name: str) -> int:
    if number >= len(given.endpoints):
        message = f"rank {number} has no endpoint; ranks go from 0 to {len(given.endpoints) - 1}"
        raise InvalidInput.of(name, message)
    return number
