"""API for jobs and operators: gRPC servers, access checks, and the conversion between messages and frozen types.

In: calls. Out: messages for the control loop, each with a future for its reply. Reads are answered from the published
``Status``. Handlers decide nothing about jobs or the network.

A call passes:

- ``servers``, ``server``: gRPC on loopback and Unix sockets. Where the network reaches the API, HAProxy is in front of
  the API and limits each address. HAProxy's calls arrive at a second gRPC server, so that no other client can pose as
  HAProxy. Calls that other members forward arrive at a third one.
- ``guard``: surrounds every handler. A missing or undecodable request, an error or an exceeded time limit becomes a
  status.
- ``gate``: identifies the caller (``peers``, ``identities``, ``certificate_names``) and checks its rights (``access``).
  It counts a large request as several calls, because HAProxy counts each request once.
- ``services``, ``fabric_work``: the handlers. ``leading``: refuses calls that only the active controller may answer.
- ``convert`` and the files that begin with ``convert_``: convert messages to frozen types and back. Only job specs are
  converted by ``mapping`` of the client library, which client and controller share.
- ``errors``: converts an error into a status with details.

Streams and long answers:

- ``watches``, ``watch_table``, ``watch_rows``: streams that begin with a snapshot and continue with changes.
- ``long_work``: runs long conversions in a thread of their own, so that other calls need not wait.

A standby uses only ``servers``, ``peers``, ``errors`` and ``forwarding``, which passes each call to the leader.

``lease_tokens`` checks who may change a registration; ``audit`` writes the audit log.
"""
