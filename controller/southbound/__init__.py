"""The edge to the switches: OpenFlow 1.3 on the wire, link discovery, counters.

Ryu's hub has the main thread, and nothing is monkey-patched. Only Ryu's app and its events are used, not its network
side. ``framework`` is the only file that imports Ryu or os-ken. That import takes a moment, so the API answers before
it.

In: commands of the control loop, through ``outbox``, which wakes the hub. Out: messages for the loop. Parts that
say *sans-IO* get bytes and the time, and neither read sockets nor clocks.

A connection:

- ``listener``, ``transport``, ``openflow_framing``: accept it, plain or through TLS, and cut its bytes into messages.
- ``handshake``, then ``admission``: only one connection per dpid, and only as the switch's master.
- ``connection``, ``limits``: one greenlet receives and one watches the time. Sending never waits. A peer that sends
  more than its share is not read for a while.

Its use:

- ``app``: Ryu's app, which connects messages and commands to the other files.
- ``installer``: sends a stage with a barrier per switch, and reports what was confirmed or refused.
- ``rule_reader``, ``counter_poller``, ``table_poller``: read rules, counters and table sizes.
- ``discovery``, ``ethernet_frames``: links by signed LLDP probes; frames of LLDP and ARP.
- ``openflow_encode``, ``openflow_decode``, ``openflow_parts``: rules as bytes and back. Bytes of switches are not
  trusted: every length is checked, and ``Malformed`` ends the connection, never the process.
- ``given_rules``: which entries a switch may hold, so that invented ones cost nothing.
"""
