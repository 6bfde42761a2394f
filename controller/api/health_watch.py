"""The gRPC health service, whose watchers end with the server: they are told that it stops, then let go.

grpc's own lets them wait until the server cancels them, which leaves a traceback in the log for each.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpc_health.v1 import health, health_pb2

LAST_WORD_S = 0.2
"""How long a watcher may take to be told."""


class HealthService(health.aio.HealthServicer):
    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        """Streams the status until the caller goes or the service ends."""
        watching = asyncio.create_task(super().Watch(request, context))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({watching}, timeout=LAST_WORD_S)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            ended.cancel()

    async def end(self) -> None:
        """Not serving from now on; every watcher is told so and its call ends."""
        await self.enter_graceful_shutdown()
        self._ended.set()
