"""Methods of the controller's API port, from the descriptors, so that additions to a proto file are included.

``METHODS`` has them by path (``/package.Service/Method``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from signalbox.v1 import signalbox_pb2 as pb

_FILES: tuple[Any, ...] = (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class Method:
    """Method of the API. ``sends_many``, ``answers_many``: whether the request or the answer is a stream."""

    path: str
    request: type[Message]
    response: type[Message]
    sends_many: bool
    answers_many: bool

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def _methods() -> Iterator[Method]:
    for file in _FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                yield Method(
                    f"/{service.full_name}/{method.name}",
                    GetMessageClass(method.input_type),
                    GetMessageClass(method.output_type),
                    method.client_streaming,
                    method.server_streaming,
                )


METHODS = {method.path: method for method in _methods()}
