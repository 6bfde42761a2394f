"""Kubernetes operator that keeps the training jobs of a cluster registered, built with kopf.

It watches a Kubernetes API server, and passes objects to ``Following``. It writes only events to the cluster: no
finalizers, no annotations and no patches."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import aiohttp
import kopf

from signalbox.errors import SignalboxError
from signalbox.keeping import Keeper
from signalbox.kubernetes.announcing import KINDS, Body, Kind
from signalbox.kubernetes.following import Following
from signalbox.membership import Ended

CHECK_S = 60.0
"""Seconds between checks whether registered jobs still exist: kopf misses deletions while it cannot watch."""
CHECK_TIMEOUT_S = 10.0
BACKOFFS_S = (1.0, 2.0, 5.0)
"""Pauses in seconds after the first, second and third failure of a request. After the fourth, kopf gives up."""
AGAIN_S = 10.0
"""Seconds until kopf is started again after it has failed."""

log = logging.getLogger("signalbox")

MakeKeeper = Callable[[Callable[[str, Ended], None]], Keeper]
"""Function that makes a keeper. Its argument is the function that the keeper calls when a registration ends."""


def run(make_keeper: MakeKeeper, namespaces: Sequence[str] = ()) -> None:
    """Keep the cluster's jobs registered until SIGTERM or SIGINT.

    ``namespaces``: namespaces to watch; empty for all. After the signal, jobs stay registered while their leases last,
    so that the next process can continue. Raises ``SignalboxError`` when no cluster is configured."""
    operator = _Operator(make_keeper)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, operator.end)
    kopf.configure()
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it would log every event of every pod
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it would log that it ignores signals
    # In the main thread kopf would handle the signals, and lose signals that arrive while it stops or starts again.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, operator.run(namespaces)).result()


class _Operator:
    def __init__(self, make_keeper: MakeKeeper) -> None:
        self._server = _server()
        self._keeper = make_keeper(self._ended)
        self._following = Following(self._keeper, _tell)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = asyncio.Event()
        self._context: contextvars.Context | None = None  # a handler's context, which kopf needs to post events

    def end(self, *_: object) -> None:
        if self._loop:
            self._loop.call_soon_threadsafe(self._signalled.set)
        else:
            self._signalled.set()

    async def run(self, namespaces: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        checks = asyncio.create_task(self._checks())
        try:
            while not self._signalled.is_set():
                await self._watch(namespaces)
        finally:
            checks.cancel()
            self._keeper.close()

    async def _watch(self, namespaces: Sequence[str]) -> None:
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=_settings(),
                standalone=True,
                clusterwide=not namespaces,
                namespaces=namespaces,
                stop_flag=self._signalled,
            )
        except Exception as error:
            log.warning("cannot watch the cluster; trying again in %g s: %s: %s", AGAIN_S, type(error).__name__, error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), AGAIN_S)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event("v1", "pods", registry=registry)(self._pod)
        for kind in KINDS.values():
            for version in kind.versions or (None,):
                on_event = kopf.on.event(kind.group, version, kind.plural, id=kind.plural, registry=registry)
                on_event(self._job_of(kind))
        return registry

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """Read the credentials again, after the API server has refused them: a pod's credentials change every hour."""
        self._server = _server()
        return self._server

    async def _pod(self, event: Any, **_: Any) -> None:
        self._context = contextvars.copy_context()
        self._following.pod(event["object"], event["type"] == "DELETED")

    def _job_of(self, kind: Kind) -> Callable[..., Any]:
        async def job(event: Any, **_: Any) -> None:
            self._context = contextvars.copy_context()
            self._following.job(kind.name, event["object"], event["type"] == "DELETED")

        return job

    def _ended(self, job_id: str, why: Ended) -> None:
        """Pass the end of a registration from a thread of the keeper to the thread of the event loop."""
        if self._loop and self._context:
            self._loop.call_soon_threadsafe(self._following.ended, job_id, why, context=self._context)

    # ---- objects whose deletion was missed

    async def _checks(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            for kind, body in self._following.kept():
                try:
                    if not await self._is_there(KINDS[kind], body):
                        self._following.job(kind, body, gone=True)
                except (aiohttp.ClientError, TimeoutError, ValueError, LookupError) as error:
                    log.info("cannot check whether %s exists: %s", body["metadata"]["name"], error)

    async def _is_there(self, kind: Kind, body: Body) -> bool:
        server, metadata = self._server, body["metadata"]
        timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT_S)
        connector = aiohttp.TCPConnector(ssl=server.as_ssl_context())
        name = {"fieldSelector": f"metadata.name={metadata['name']}"}
        url = f"{server.server}/apis/{body['apiVersion']}/namespaces/{metadata['namespace']}/{kind.plural}"
        async with (
            aiohttp.ClientSession(
                headers=server.as_http_headers(), connector=connector, timeout=timeout, raise_for_status=True
            ) as session,
            session.get(url, params=name, proxy=server.proxy_url) as answer,
        ):
            found = (await answer.json())["items"]
        return any(item["metadata"]["uid"] == metadata["uid"] for item in found)


def _server() -> kopf.ConnectionInfo:
    """Return the Kubernetes API server with the credentials of this pod, or else of the kubeconfig file.

    Raises ``SignalboxError`` when there are no credentials, or they cannot be used."""
    settings = kopf.OperatorSettings()
    try:
        found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, LookupError, ValueError, kopf.LoginError) as error:
        raise SignalboxError(f"the kubeconfig file cannot be used: {type(error).__name__}: {error}") from None
    if found is None:
        raise SignalboxError("no cluster is configured: there is neither a service account nor a kubeconfig file")
    return found


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # kopf removes finalizers of this name. Those with its default name may belong to other operators built with kopf.
    settings.persistence.finalizer = "signalbox/none"
    settings.scanning.disabled = True  # scanning needs the right to watch namespaces and custom resource definitions
    settings.networking.error_backoffs = BACKOFFS_S
    settings.posting.reporting_component = "signalbox"
    settings.posting.reporting_instance = socket.gethostname()
    settings.posting.event_name_prefix = "signalbox-"
    return settings


def _tell(body: Body, warning: bool, reason: str, message: str) -> None:
    kopf.event(body, type="Warning" if warning else "Normal", reason=reason, message=message)  # type: ignore[arg-type]
