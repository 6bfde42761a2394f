"""API for jobs and operators: gRPC servers, access checks, and the conversion between messages and frozen types.

In: calls. Out: messages for the control loop, each with a future for its reply. Reads are answered from the published
``Status``. Handlers decide nothing about jobs or the network. A call passes:

- ``servers``, ``server``: gRPC servers for clients, for HAProxy, and for members that forward calls.
- ``guard``: surrounds every handler. An error or an exceeded time limit becomes a status (``errors``).
- ``gate``: identifies the caller (``peers``, ``identities``, ``certificate_names``) and checks its rights (``access``).
- ``services``, ``fabric_work``: the handlers. ``leading``: refuses calls that only the active controller may answer.
- ``convert`` and the files that begin with ``convert_``: convert messages to frozen types and back. Job specs are
  converted by ``mapping`` of the client library, which client and controller share.
- ``rule_purposes``: the purpose of each rule on a switch, and its text.

The other modules:

- ``watches``, ``watch_table``, ``watch_rows``: streams that begin with a snapshot and continue with changes.
- ``long_work``: runs long conversions in a thread of their own, so that other calls need not wait.
- ``forwarding``: the API of a standby, which passes each call to the leader. ``leader_link``: packets of southbounds.
- ``lease_tokens``: checks who may change a registration. ``audit``: writes the audit log.
"""
