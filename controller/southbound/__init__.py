"""Southbound: the edge to the switches, with OpenFlow 1.3 on the wire, link discovery, and counters.

Ryu's hub, which runs greenlets, has the main thread, and nothing is monkey-patched. Only Ryu's app and events are used,
and not its network code. ``framework`` is the only file that imports Ryu or os-ken. This import takes a moment, and the
API answers before the import is complete.

In: commands of the control loop, through ``outbox``, which wakes the hub. Out: messages for the loop. Modules marked
*sans-IO* are given bytes and the time, and do not read sockets or clocks.

Setting up a connection:

- ``run_hub``, ``openflow_framing``: accept connections, and split the byte stream into messages.
- ``handshake``, then ``admission``: OpenFlow handshake, then one connection per dpid, with the controller as master.
- ``connection``, ``limits``: one greenlet of a connection receives, and one watches the time. Sending never waits.
  Reading from a peer pauses for a while when the peer sends more than its share.

Using a connection:

- ``app``: Ryu's app, which connects messages and commands to the other modules.
- ``installer``: sends a stage with a barrier per switch, and reports confirmed and refused changes.
- ``given_rules``: reads the rules of switches. It knows which entries the controller has sent to a switch. A switch may
  invent other entries, but these cost the control loop next to nothing.
- ``pollers``: read counters and table sizes.
- ``discovery``, ``ethernet_frames``: discovery of links by signed LLDP probes; frames of LLDP and ARP.
- ``openflow_encode``, ``openflow_decode``: conversion between rules and bytes. Bytes of switches are not trusted: every
  length is checked, and ``Malformed`` ends the connection, never the process."""
