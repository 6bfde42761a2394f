"""Gate before every handler: identifies the caller and checks its role.

In: the method of a call, and the caller's token or client certificate. Out: an error, or the answer of the handler,
which runs with ``CALLER`` set. The gate writes the audit log, charges large requests (``Debts``), and ends a stream
when the caller's identity is withdrawn.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import islice
from typing import Any

import structlog

from controller.api.access import CALLER, OPEN_TO_ALL, RULES, OtherTenants, Rule, refuse_other_tenants
from controller.api.audit import AuditLog, noting
from controller.api.errors import NoLeader, code_of
from controller.api.guard import Context, Handler
from controller.api.identities import Caller, Identities, Role
from controller.api.peers import Peer
from controller.config import SocketRole
from controller.status import StatusBoard
from signalbox.errors import Exhausted, InvalidInput, NotAllowed, Unauthenticated, cut, in_entry

_REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
"""Status codes of refused calls. The audit log has refused calls of all methods."""
_SCHEME = "Bearer "
MAX_ENTRIES = 256
"""Largest number of jobs in one request. While the control loop checks them, it answers no other call."""
_WITHOUT_TOKEN = ("take_over", "force")
"""Boolean request fields with which a caller may change a job without its lease token; the audit log shows them."""

COST: ContextVar[Callable[[float], None]] = ContextVar("cost", default=lambda _calls: None)
"""Function that adds a number of calls to the debt of the current caller (``Debts``)."""


class Debts:
    """Debt of each client for large requests, each of which is charged as several additional calls.

    HAProxy limits the number of requests, but does not see their contents. A large request therefore adds several calls
    to its client's debt. The debt decreases by ``per_s`` calls per second, and a client that owes more than ``per_s``
    calls is refused. ``now`` is in monotonic seconds."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._paid_at: dict[str, float] = {}

    def charge(self, client: str, calls: float, now: float) -> None:
        """Add ``calls`` to the debt of the client."""
        self._paid_at = {known: at for known, at in self._paid_at.items() if at > now}
        self._paid_at[client] = max(now, self._paid_at.get(client, now)) + calls / self._per_s

    def refuse_debtor(self, client: str, now: float) -> None:
        """Raise ``Exhausted`` for a client that owes more than ``per_s`` calls."""
        wait_s = self._paid_at.get(client, now) - now - 1.0
        if wait_s > 0:
            most = f"{self._per_s:g} calls per second (api.max_client_calls_per_s)"
            text = f"{client} has exceeded the limit of {most}; retry later"
            about = {"limit": "api.max_client_calls_per_s", "limitValue": f"{self._per_s:g}"}
            raise Exhausted(text, client, wait_s, about)


class Gate:
    """Identification and access check of calls.

    ``board``: for the tenant of each job. ``identities``: None if none are configured. ``socket_role``: role of a
    caller that uses a Unix socket without a token. ``peer_of``: returns the peer of a call. Several gates share
    ``debts`` and ``audit``. For use in the server's loop only."""

    def __init__(
        self,
        board: StatusBoard,
        identities: Identities | None,
        socket_role: SocketRole,
        peer_of: Callable[[Context], Peer],
        debts: Debts,
        audit: AuditLog | None = None,
    ) -> None:
        self.peer = peer_of
        self._board = board
        self._identities = identities
        self._socket_role = socket_role
        self._debts = debts
        self._audit = audit or AuditLog()
        self._streams: dict[asyncio.Future[None], tuple[Context, Caller]] = {}

    def replace(self, identities: Identities | None) -> None:
        """Put new identities in force, and end the streams whose caller has changed or is no longer known."""
        self._identities = identities
        for withdrawn, (context, caller) in self._streams.items():
            try:
                same = self._identify(self.peer(context), context) == caller
            except (Unauthenticated, NoLeader):
                same = False
            if not same and not withdrawn.done():
                withdrawn.set_result(None)

    def behind(self, method: str, handler: Handler, streams: bool) -> Handler:
        """Return the handler of the method (``/package.Service/Method``) behind this gate.

        It raises ``Unauthenticated``, ``NotAllowed``, ``Exhausted``, ``InvalidInput`` and ``NotFound`` before the
        handler sees the request."""
        if method.startswith(OPEN_TO_ALL):
            return handler
        rule = RULES.get(method, Rule(frozenset()))
        name = method.rpartition("/")[2]

        async def admitted(request: Any, context: Context) -> Any:
            peer = self.peer(context)
            structlog.contextvars.bind_contextvars(peer=peer.address)  # in the log lines of this call
            caller: Caller | None = None
            code, why, noted, is_refusal = "OK", "", noting(), False
            try:
                caller = self._identify(peer, context)
                client = caller.name or peer.host
                self._debts.refuse_debtor(client, time.monotonic())
                self._check(name, rule, caller, request)
                CALLER.set(caller)
                COST.set(lambda calls: self._debts.charge(client, calls, time.monotonic()))
                if streams:
                    return await self._stream(handler, request, context, caller)
                return await handler(request, context)
            except BaseException as error:
                code = code_of(error).name
                is_refusal = code in _REFUSALS or isinstance(error, OtherTenants)
                if is_refusal:
                    why = "the job belongs to another tenant" if isinstance(error, OtherTenants) else str(error)
                raise
            finally:
                if rule.audited or is_refusal:
                    more = {field: True for field in _WITHOUT_TOKEN if getattr(request, field, False)} | noted
                    if caller is None and peer.names:
                        more["certificate"] = _shown(peer.names)
                    for job_id in [_job_id(entry) for _, entry in _entries(request)] or [""]:
                        self._audit.record(caller, name, job_id or "", peer.address, code, why, more)

        return admitted

    # ---- identification

    def _identify(self, peer: Peer, context: Context) -> Caller:
        if not peer.address:
            raise Unauthenticated("the caller is unknown: HAProxy or a member must name it in valid header fields")
        given = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        if given and self._identities:
            if len(given) > 1 or not isinstance(given[0], str) or not given[0].startswith(_SCHEME):
                raise Unauthenticated("the metadata 'authorization' must occur once, as 'Bearer TOKEN'")
            if not peer.private:
                raise Unauthenticated("a token is accepted only through TLS, a Unix socket or loopback")
            caller = self._identities.by_token(given[0].removeprefix(_SCHEME))
            if caller is None:
                raise Unauthenticated(
                    "the token is not known: the file that api.tokens names has no [[token]] with its SHA-256"
                )
            return caller
        if peer.socket:
            role = peer.socket_role or self._socket_role
            if role is SocketRole.NONE:
                raise Unauthenticated("a token is required at this socket (--token-file)")
            return Caller("", Role(role.value))
        if self._identities is None:
            return Caller(next(iter(peer.names), ""), Role.OPERATOR)
        caller = self._identities.by_certificate(peer.names)
        if caller is None:
            raise Unauthenticated(self._why_unidentified(peer))
        return caller

    def _why_unidentified(self, peer: Peer) -> str:
        """Return why the peer's certificate identifies no caller, and how an operator can change that."""
        if not peer.names:
            return "a token is required (--token-file); client certificates are accepted only with api.ca_certificates"
        if any(self._identities and self._identities.by_certificate([name]) for name in peer.names):
            return f"the names of this client certificate belong to different callers: {_shown(peer.names)}"
        return (
            f"no role belongs to this client certificate: add a [[certificate]] with one of its names "
            f"({_shown(peer.names)}) to the file that api.tokens names"
        )

    # ---- access

    def _check(self, method: str, rule: Rule, caller: Caller, request: Any) -> None:
        """Check the caller's role and the jobs that the request names.

        Raises ``NotAllowed``, ``InvalidInput`` for a request without a job id or with too many entries, and
        ``NotFound``."""
        if caller.role not in rule.roles:
            allowed = ", ".join(sorted(rule.roles)) or "none"
            text = f"the role '{caller.role}' may not call {method}; roles that may: {allowed}"
            raise NotAllowed(text, {"role": caller.role})
        if not rule.of_job:
            return
        entries = _entries(request)
        if len(entries) > MAX_ENTRIES:
            raise InvalidInput.of("jobs", f"at most {MAX_ENTRIES} are allowed (given: {len(request.jobs)})")
        if not entries:
            raise InvalidInput.of("jobs", "is missing")
        for name, entry in entries:
            if (job_id := _job_id(entry)) is not None:
                with in_entry(name):
                    _refuse_unnamed(entry, job_id)
                    refuse_other_tenants(caller, job_id, self._board.status)

    async def _stream(self, handler: Any, request: Any, context: Context, caller: Caller) -> None:
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[withdrawn] = context, caller
        sending = asyncio.ensure_future(_send_all(handler, request, context))
        try:
            await asyncio.wait({sending, withdrawn}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
                return
            raise Unauthenticated("the identity that opened this stream is no longer valid")
        finally:
            del self._streams[withdrawn]
            await _stop(sending)


def _shown(names: Iterable[str]) -> str:
    """Return the names of a certificate for a message or the log, with control characters escaped."""
    return cut(ascii(", ".join(names))[1:-1])


async def _send_all(handler: Any, request: Any, context: Context) -> None:
    if inspect.isasyncgenfunction(handler):
        async for response in handler(request, context):
            await context.write(response)
    else:
        await handler(request, context)


async def _stop(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _entries(request: Any) -> list[tuple[str, Any]]:
    """Return the entries of a request as (name, entry): one for each job.

    Errors refer to an entry by its name, such as ``jobs[1]``. A request without a list of jobs counts as one entry,
    whose name is empty. At most ``MAX_ENTRIES`` + 1 entries are returned, which is enough to see that a request has too
    many."""
    if not hasattr(request, "jobs"):
        return [("", request)]
    return [(f"jobs[{n}]", entry) for n, entry in enumerate(islice(request.jobs, MAX_ENTRIES + 1))]


def _job_id(request: Any) -> str | None:
    """Return the id of the job that a request or an entry names, or None.

    None also stands for a request that could not be decoded."""
    found = request.spec if hasattr(request, "spec") else request
    return getattr(found, "job_id", None)


def _refuse_unnamed(request: Any, job_id: str) -> None:
    in_spec = hasattr(request, "spec")
    if in_spec and not request.HasField("spec"):
        raise InvalidInput.of("spec", "is missing")
    if not job_id:
        raise InvalidInput.of("spec.job_id" if in_spec else "job_id", "is missing")
