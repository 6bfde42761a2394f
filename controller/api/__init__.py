"""The edge to jobs and operators: the gRPC server, who may call what, and the only converter to messages.

In: calls. Out: messages for the control loop, each with a future for its reply; reads are answered from the published
``Status``. Handlers decide nothing about jobs or the network.

A call passes:

- ``servers``, ``server``: gRPC on loopback and Unix sockets. Where the network reaches the API, HAProxy is in front of
  the API and limits each address. HAProxy's calls arrive at a second gRPC server, so that no other client can pose as
  HAProxy. Calls that other members forward arrive at a third one.
- ``guard``: around every handler: requests that never arrive, broken bytes, errors and time limits become a status.
- ``gate``: identifies the caller (``peers``, ``identities``, ``certificate_names``) and checks its rights (``access``).
  It charges the caller for the additional cost of a large request, since HAProxy only counts requests.
- ``services``, ``fabric_work``: the handlers. ``leading``: refuses calls that only the active controller may answer.
- ``convert`` and the files that begin with ``convert_``: messages to frozen types and back. Only job specs are
  converted elsewhere, in the client's ``mapping``, for both sides.
- ``errors``: an error as a status with details.

Streams and long answers:

- ``watches``, ``watch_table``, ``watch_rows``: streams that begin with a snapshot and continue with changes.
- ``long_work``: conversions beside the API's loop, so that only the calls that need them wait.

A standby has only ``servers``, ``peers`` and ``errors`` of these; its ``forwarding`` passes each call to the leader.

``lease_tokens`` checks who may change a registration; ``audit`` writes the audit log.
"""
