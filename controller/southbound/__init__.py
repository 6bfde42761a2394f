"""Southbound: the edge to the switches, with OpenFlow 1.3 on the wire, link discovery, and counters.

In: commands of the control loop, through ``outbox``, which wakes the hub. Out: messages for the loop. Ryu's hub, which
runs greenlets, has the main thread, and nothing is monkey-patched. Only Ryu's app and events are used, not its network
code. ``framework`` is the only file that imports Ryu or os-ken. The import takes a moment, and the API answers before
the import is complete. Modules marked *sans-IO* are given bytes and the time, and do not read sockets or clocks.

Setting up a connection:

- ``run_hub``, ``openflow_framing``: accept connections, and split the byte stream into messages.
- ``handshake``, then ``admission``: OpenFlow handshake, then one connection per dpid, with the controller as master.
- ``connection``, ``limits``: receive and send, so that no peer delays other peers.

Using a connection:

- ``app``: Ryu's app, which connects messages and commands to the other modules.
- ``installer``: sends a stage with a barrier per switch. ``given_rules``: reads the rules of switches.
- ``pollers``: read counters and table sizes.
- ``discovery``, ``ethernet_frames``: discovery of links by signed LLDP probes; frames of LLDP and ARP.
- ``openflow_encode``, ``openflow_decode``: conversion between rules and bytes.

Bytes of switches are not trusted: every length is checked, and ``Malformed`` ends the connection, never the process.
"""
