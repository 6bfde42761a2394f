"""Calls for operators: watches, failure analysis, drains, removal of absent parts, silences of alarms, and events."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from controller.api import audit, convert, convert_analysis, convert_fabric
from controller.api.access import CALLER
from controller.api.events import EventWatches, listed
from controller.api.guard import Context
from controller.api.leading import by_leader
from controller.api.watches import Watches
from controller.fabric.messages import DrainParts, ForgetParts, UndrainParts
from controller.fabric.parts import Part
from controller.planning.messages import Request
from controller.silence import EndSilence, SilenceAlarms
from controller.status import StatusBoard
from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc


class FabricWork(ABC, pb_grpc.ControllerServiceServicer):
    """Handlers for operators of the fabric; ``Services`` inherits them and adds all other handlers."""

    _board: StatusBoard
    _events: EventWatches
    _watches: Watches

    @abstractmethod
    async def _ask(self, message: Request) -> Any: ...

    @abstractmethod
    async def _wait(self, event: asyncio.Event) -> None: ...

    def knows_state(self) -> bool:
        """Return whether this controller is certain that no other controller has changed the state."""
        return self._board.is_active()

    async def WatchFabric(self, request: pb.WatchFabricRequest, context: Context) -> None:  # noqa: N802
        await self._watches.fabric.watch(request.resume_token, None, context.write, self._wait)

    async def WatchPlan(self, request: pb.WatchPlanRequest, context: Context) -> None:  # noqa: N802
        await self._watches.plan.watch(request.resume_token, None, context.write, self._wait)

    async def WatchAlarms(self, request: pb.WatchAlarmsRequest, context: Context) -> None:  # noqa: N802
        await self._watches.alarms.watch(request.resume_token, None, context.write, self._wait)

    async def WhatIf(self, request: pb.WhatIfRequest, _: Context) -> pb.WhatIfResponse:  # noqa: N802
        fabric = self._board.status.fabric
        message = convert_analysis.what_if_request(request, fabric)
        circuits = any(link.one_way for link in fabric.links.values()) and not message.names
        return convert_analysis.what_if_message(await self._ask(message), circuits)

    @by_leader
    async def SilenceAlarms(  # noqa: N802
        self, request: pb.SilenceAlarmsRequest, _: Context
    ) -> pb.SilenceAlarmsResponse:
        await self._ask(SilenceAlarms(convert.silence(request, CALLER.get().name, time.time())))
        return pb.SilenceAlarmsResponse()

    @by_leader
    async def EndSilence(self, request: pb.EndSilenceRequest, _: Context) -> pb.EndSilenceResponse:  # noqa: N802
        await self._ask(EndSilence(convert.silence_key(request)))
        return pb.EndSilenceResponse()

    async def ListEvents(self, request: pb.ListEventsRequest, _: Context) -> pb.ListEventsResponse:  # noqa: N802
        return listed(request, self._board.history)

    async def WatchEvents(self, request: pb.WatchEventsRequest, context: Context) -> None:  # noqa: N802
        await self._events.watch(request, context.write, self._wait)

    @by_leader
    async def Drain(self, request: pb.DrainRequest, _: Context) -> pb.DrainResponse:  # noqa: N802
        named: tuple[str, ...] = await self._ask(DrainParts(_names(request.names)))
        audit.note_parts(named)
        return pb.DrainResponse(
            drains=[part for part in convert_fabric.drains(self._board.status) if part.name in named]
        )

    @by_leader
    async def Undrain(self, request: pb.UndrainRequest, _: Context) -> pb.UndrainResponse:  # noqa: N802
        names = _names(request.names)
        await self._ask(UndrainParts(names))
        audit.note_parts(names)
        return pb.UndrainResponse(drains=convert_fabric.drains(self._board.status))

    @by_leader
    async def ForgetParts(self, request: pb.ForgetPartsRequest, _: Context) -> pb.ForgetPartsResponse:  # noqa: N802
        gone: tuple[Part, ...] = await self._ask(ForgetParts(tuple(request.names)))
        audit.note_parts([part.name for part in gone])
        return pb.ForgetPartsResponse(parts=map(convert_fabric.down_message, gone))


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without repetitions. Raises ``InvalidInput`` when there are none."""
    found = tuple(dict.fromkeys(names))
    if not found:
        raise InvalidInput.of("names", "needs at least one: a switch (spine2) or a cable (leaf1:3)")
    return found
