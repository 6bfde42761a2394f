"""Who makes a call that HAProxy hands over: HAProxy says it in header fields of its own.

In: calls that arrive at ``api.proxy_socket``, which only HAProxy may open. Out: the peer, from their metadata. The
configuration that ``controller/serving/haproxy.py`` writes deletes such fields from what a client sends before it sets
them. At any other address the fields mean nothing: calls that arrive there are never given to this module.
"""

from __future__ import annotations

from ipaddress import ip_address

from controller.api import certificate_names
from controller.api.guard import Context
from controller.api.peers import Peer

PREFIX = "x-signalbox-"
ADDRESS, PORT, TLS = f"{PREFIX}address", f"{PREFIX}port", f"{PREFIX}tls"
CERTIFICATE = f"{PREFIX}certificate-bin"
"""The client's certificate in DER. gRPC decodes the base64 of fields whose name ends so."""
_YES = "1"


def peer(context: Context) -> Peer:
    """Return who makes the call. A peer without an address, whom the gate refuses, when HAProxy does not say it in
    exactly one field of each name, or in a form that is not HAProxy's."""
    given = [(key, value) for key, value in context.invocation_metadata() or () if key.startswith(PREFIX)]
    fields = dict(given)
    if len(fields) != len(given) or not fields.keys() <= {ADDRESS, PORT, TLS, CERTIFICATE}:
        return Peer("")
    try:
        address = ip_address(str(fields[ADDRESS]))
        port = int(fields[PORT])
        encrypted = fields[TLS] == _YES
        certificate = fields.get(CERTIFICATE)
        names = certificate_names.of(certificate) if isinstance(certificate, bytes) else ()
    except (KeyError, ValueError):
        return Peer("")
    address = getattr(address, "ipv4_mapped", None) or address
    shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    return Peer(shown, private=encrypted or address.is_loopback, names=names)
