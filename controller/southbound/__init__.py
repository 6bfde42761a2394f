"""The edge to the switches: OpenFlow 1.3 on the wire, link discovery, counters.

Ryu's hub has the main thread, and nothing is monkey-patched. Only Ryu's app and its events are used, not its network
side. ``framework`` is the only file that imports Ryu or os-ken. That import takes a moment, and the API answers before
the import is complete.

In: commands of the control loop, through ``outbox``, which wakes the hub. Out: messages for the loop. Modules marked
*sans-IO* get bytes and the time, and neither read sockets nor clocks.

Setting up a connection:

- ``run_hub``, ``openflow_framing``: accept connections, and split the byte stream into messages.
- ``handshake``, then ``admission``: OpenFlow handshake, then one connection per dpid, with the controller as master.
- ``connection``, ``limits``: one greenlet receives and one watches the time, plain or with TLS. Sending never waits. A
  peer that sends more than its share is not read for a while.

Using a connection:

- ``app``: Ryu's app, which connects messages and commands to the other modules.
- ``installer``: sends a stage with a barrier per switch, and reports confirmed and refused changes.
- ``given_rules``: reads rules, and knows the entries that a switch may hold, so that entries that a switch invents cost
  nothing.
- ``pollers``: read counters and table sizes.
- ``discovery``, ``ethernet_frames``: discovery of links by signed LLDP probes; frames of LLDP and ARP.
- ``openflow_encode``, ``openflow_decode``: conversion between rules and bytes. Bytes of switches are not trusted: every
  length is checked, and ``Malformed`` ends the connection, never the process.
"""
