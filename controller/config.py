"""Configuration of the controller: one TOML file that is read into a frozen object.

Unknown keys are errors. All errors are reported at once, each with its path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from controller.toml_files import TomlTable, matching, read_toml, refuse_above
from signalbox.addresses import host_and_port, listen_address
from signalbox.ip_addresses import HostAddress
from signalbox.jobs.spec import at_most
from signalbox.words import Mode, Objective, SharingObjective

MAX_S = 365 * 24 * 3600
"""Longest duration in seconds that a setting may have."""
Seconds = Annotated[float, Field(gt=0, le=MAX_S, allow_inf_nan=False)]
BitsPerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]


MOST_ADDRESSES = 64
"""Largest number of addresses that the API listens on."""


class Reloaded(StrEnum):
    """Values to which SIGHUP may change a setting. The files that settings name are always read again.

    A limit of jobs can only be raised: with a lower limit, the next start might refuse saved jobs."""

    ANY = "yes"
    """Any new value is allowed."""
    RAISED = "raised"
    """A value may only be raised."""
    REPLACED = "replaced"
    """A value may be replaced by another, but neither added nor removed."""

    def permits(self, old: Any, new: Any) -> bool:
        """Return whether SIGHUP may change the value ``old`` to ``new``."""
        match self:
            case Reloaded.RAISED:
                return bool(new > old)
            case Reloaded.REPLACED:
                return bool(new) == bool(old)
        return True


OptionalFile = Annotated[Path | None, Reloaded.REPLACED]
"""File that SIGHUP reads again; None for no file."""


class TlsFiles(NamedTuple):
    """Files for TLS."""

    certificate: Path
    private_key: Path
    ca_certificates: Path | None
    """Certificates of the authorities that sign peers' certificates; None if peers need no certificate."""


class _TlsSection(TomlTable):
    """TLS settings of a listener.

    With ``certificate`` and ``private_key`` (PEM files), peers must use TLS. With ``ca_certificates``, they must also
    present a certificate that one of these authorities signed."""

    certificate: OptionalFile = None
    """PEM file with the certificate; if it is set, only TLS is accepted. Needs private_key."""
    private_key: OptionalFile = None
    """PEM file with the certificate's key, not encrypted."""
    ca_certificates: OptionalFile = None
    """PEM file of the authorities that sign clients' certificates; if it is set, clients must present one."""
    belong_together: ClassVar[tuple[str, ...]] = ("certificate", "private_key")
    """Names of the settings that must be set together."""

    @property
    def tls_files(self) -> TlsFiles | None:
        """Files for TLS; None without TLS."""
        if self.certificate and self.private_key:
            return TlsFiles(self.certificate, self.private_key, self.ca_certificates)
        return None

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        missing = [name for name in self.belong_together if getattr(self, name) is None]
        if missing and any(getattr(self, name) for name in TlsFiles._fields):
            *first, last = self.belong_together
            message = "{first} and {last} must be set together; missing: {missing}"
            names = {"first": ", ".join(first), "last": last, "missing": ", ".join(missing)}
            raise PydanticCustomError("tls", message, names)
        return self


class OpenFlowConfig(_TlsSection):
    """Listener for switches.

    With TLS, switches must present a certificate."""

    certificate: OptionalFile = None
    """PEM file; if it is set, switches must use TLS. Needs private_key and ca_certificates."""
    ca_certificates: OptionalFile = None
    """PEM file with the authorities that sign the certificates of switches."""
    host: str = "127.0.0.1"
    """Address that switches connect to."""
    port: int = Field(default=6653, ge=1, le=65535)
    """Port that switches connect to."""
    max_connections: int = Field(default=4096, ge=2)
    """Largest number of connections; at most half, and at most 256, may be in their handshake."""
    max_address_connections: int = Field(default=1024, ge=1)
    """Largest number of connections from one address; an Open vSwitch makes one for each bridge."""
    max_ports: int = Field(default=65536, ge=1)
    """Largest number of ports of all switches together; one switch may have at most 4,096."""
    dpid_in_certificate: bool = False
    """Whether a switch's certificate must contain its dpid, such as 0x11, as a common or DNS name."""
    echo_interval_s: Seconds = 5.0
    """Seconds between the echo requests to each switch."""
    echo_misses: int = Field(default=3, ge=1)
    """Unanswered echo requests in a row that end a connection; a handshake has the same time to end."""
    barrier_timeout_s: Seconds = 10.0
    """Seconds after which a switch that has not confirmed its rules is synchronised again."""
    audit_interval_s: Annotated[Seconds, Reloaded.ANY] = 60.0
    """Seconds in which the rules of every switch are read once, and wrong ones are corrected."""
    belong_together: ClassVar[tuple[str, ...]] = TlsFiles._fields

    @model_validator(mode="after")
    def _certificates(self) -> Self:
        if self.dpid_in_certificate and not self.tls_files:
            message = "dpid_in_certificate needs certificate, private_key and ca_certificates"
            raise PydanticCustomError("tls", message)
        return self


class SocketRole(StrEnum):
    """Role of a caller that connects through a Unix socket without a token."""

    OPERATOR = "operator"
    READER = "reader"
    NONE = "none"


def _socket(path: Path) -> Path:
    """Return the path. Raises ``PydanticCustomError`` for a path that is not possible for a socket."""
    listen_address(f"unix:{path}")
    return path


def _listed(addresses: object) -> object:
    if isinstance(addresses, str):
        raise PydanticCustomError("listen", 'must be a list, such as ["127.0.0.1:50051"]')
    return addresses


class ApiConfig(_TlsSection):
    """Listeners of the API, and the limits that HAProxy enforces for clients.

    Limits named ``max_client_…`` apply to each client address. Streams (watches) do not count as calls."""

    listen: Annotated[
        tuple[Annotated[str, AfterValidator(listen_address)], ...],
        at_most(MOST_ADDRESSES),
        Field(min_length=1),
        BeforeValidator(_listed),
    ] = ("127.0.0.1:50051",)
    """Addresses for gRPC, each ``HOST:PORT`` or ``unix:PATH``. Unix sockets use no TLS."""
    proxy_socket: Annotated[Path, AfterValidator(_socket)] | None = None
    """Unix socket for calls from HAProxy, which then listens on the ``HOST:PORT`` addresses."""
    tokens: OptionalFile = None
    """TOML file of tokens. Without a file, every caller is an operator."""
    insecure: bool = False
    """Whether to allow addresses beyond loopback without TLS, or without identification of callers."""
    socket_mode: Annotated[str, matching("0[0-7]{3}", "an octal mode such as 0660, in quotes")] = "0600"
    """File mode of Unix sockets, which determines who may connect."""
    socket_role: SocketRole = SocketRole.OPERATOR
    """Role of a caller without a token at a Unix socket: operator, reader, or none."""
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    """Largest size of a request in bytes."""
    max_connections: int = Field(default=2048, ge=1)
    """Largest number of connections of all clients together, in HAProxy."""
    max_client_connections: int = Field(default=512, ge=1)
    """Largest number of connections of one address, in HAProxy."""
    max_client_connections_per_s: float = Field(default=50.0, ge=1, le=1_000_000)
    """Largest number of new connections of one address per second, in HAProxy."""
    max_client_calls: int = Field(default=512, ge=1)
    """Largest number of simultaneous calls of one address, in HAProxy."""
    max_client_streams: int = Field(default=1024, ge=1)
    """Largest number of simultaneous watches of one address, in HAProxy."""
    max_client_calls_per_s: float = Field(default=800.0, ge=1, le=1_000_000)
    """Largest number of new calls of one address per second; a large call counts as several."""
    silent_s: Seconds = Field(default=5.0, le=86_400)
    """Seconds in which a connection must finish its handshake, and in which a request must arrive."""
    stalled_s: Seconds = Field(default=30.0, le=86_400)
    """Seconds after which HAProxy ends an unfinished TLS handshake, or a call whose answer is not read."""


class MetricsConfig(_TlsSection):
    """Listener for scrapers of metrics."""

    host: str = "127.0.0.1"
    """Address of ``/metrics``."""
    port: int = Field(default=9464, ge=0, le=65535)
    """Port of ``/metrics``; 0 for a free port, which the log names."""
    max_connections: int = Field(default=16, ge=1, le=64)
    """Largest number of connections at a time; a further one closes the oldest."""


class DiscoveryConfig(TomlTable):
    """Settings of the discovery of links and hosts."""

    probe_interval_s: Seconds = 1.0
    """Seconds between the LLDP probes of a port; more if max_probes_per_s requires it."""
    link_timeout_s: Seconds = 5.0
    """Seconds without LLDP after which a link whose ports are up is lost; three probes must be missing."""
    max_probes_per_s: float = Field(default=1250.0, ge=1, allow_inf_nan=False)
    """LLDP probes per second of all ports; new ports may cause four times as many in addition."""
    hold_down_s: Seconds = 2.0
    """Seconds for which a link that came back is not used; doubled with each further failure."""
    max_hold_down_s: Seconds = 60.0
    """Largest hold-down in seconds. A link that works for four hold-downs gets the shortest one again."""
    edge_after_s: Seconds = 2.5
    """Seconds for which a port must be up without LLDP before it counts as an edge port."""
    adoption_patience_s: Seconds = 15.0
    """Seconds for which a starting controller waits for switches and links that installed rules use."""
    punt_rate_pps: int = Field(default=50, ge=1)
    """Largest number of LLDP and ARP packets per second from one port to the controller."""

    @model_validator(mode="after")
    def _holds_down(self) -> Self:
        refuse_above(self.hold_down_s, self.max_hold_down_s, "hold_down_s", "max_hold_down_s")
        return self


class LinkCapacity(TomlTable):
    """Capacity of one link; overrides the capacities in ``FabricConfig``."""

    switch: str
    """Name of the switch where the link begins."""
    port: str
    """Name of the port where the link begins."""
    bps: BitsPerSecond
    """Capacity of the link in bit/s."""


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def station_mac(text: str) -> str:
    """Return the MAC address in lower case. Raises ``PydanticCustomError`` if it is no unicast address."""
    if not re.fullmatch(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", text.lower()):
        raise PydanticCustomError("mac", "must be a unicast MAC address, such as 02:00:00:00:01:01")
    return text.lower()


class GatewayConfig(TomlTable):
    """A router at an edge port."""

    ip: HostAddress
    """Address of the router in the fabric."""
    mac: Annotated[str, AfterValidator(station_mac)]
    """MAC address to which hosts send; with VRRP, the virtual MAC address that routers share."""


class FabricConfig(TomlTable):
    """Capacities, prefixes, inventory and gateways of the fabric.

    Capacities override the speeds that ports report; a veth always reports 10 Gbit/s."""

    link_bps: BitsPerSecond | None = None
    """Capacity of every link between switches in bit/s; default: the speed that the port reports."""
    host_link_bps: BitsPerSecond | None = None
    """Capacity of every link to a host in bit/s; default: the speed that the port reports."""
    link: tuple[LinkCapacity, ...] = ()
    leaf_prefix_length: int = Field(default=24, ge=8, le=32)
    """Length of the address prefixes that leaves own, each with one rule; 32 means one rule per host."""
    inventory: Path | None = None
    """TOML file that declares hosts, switches and cables."""
    gateway: tuple[GatewayConfig, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if twice := _repeated(gateway.mac for gateway in self.gateway):
            message = "{macs} is the mac of two gateways; write routers that share a MAC address as one gateway"
            raise PydanticCustomError("gateway", message, {"macs": ", ".join(twice)})
        if twice := _repeated(gateway.ip for gateway in self.gateway):
            raise PydanticCustomError(
                "gateway", "gateways must have different ips; used twice: {ips}", {"ips": ", ".join(twice)}
            )
        if twice := _repeated(f"{link.switch}:{link.port}" for link in self.link):
            raise PydanticCustomError(
                "link", "{ports} has two entries in link; leave out one of them", {"ports": ", ".join(twice)}
            )
        return self


FIBRE = re.compile(r"0x[0-9a-f]{1,16}:[0-9]{1,10}")
MOST_FIBRES = 4096
"""Largest number of fibres of an optical switch."""
MOST_PORT = 0xFFFF_FF00
"""Largest port number: OFPP_MAX (OpenFlow 1.3.5, A.2.1)."""


def fibre_end(text: str) -> tuple[int, int]:
    """Return the dpid and the port number in text such as ``0x1:2``."""
    dpid, _, port = text.partition(":")
    return int(dpid, 16), int(port)


def _fibre(text: str) -> str:
    dpid, port = fibre_end(text) if FIBRE.fullmatch(text) else (0, 0)
    if text and not (dpid and 0 < port <= MOST_PORT):
        raise PydanticCustomError("fibre", "must be a server's dpid and port, such as 0x1:2, or empty")
    return text


def _some_fibres(fibres: object) -> object:
    if isinstance(fibres, list | tuple) and not 1 <= len(fibres) <= MOST_FIBRES:
        raise PydanticCustomError("fibres", "must have 1 to {most} ports", {"most": MOST_FIBRES})
    return fibres


class OpticalSwitch(TomlTable):
    """An optical switch."""

    dpid: int = Field(ge=1, lt=1 << 64)
    """Dpid of the optical switch, a number."""
    fibres: Annotated[tuple[Annotated[str, AfterValidator(_fibre)], ...], BeforeValidator(_some_fibres)]
    """Server's dpid and port, as ``"0x1:2"``, at each port from port 1 on; ``""`` for a port without a fibre."""


class CircuitsConfig(TomlTable):
    """Optical switches, and the ports of servers with which fibres connect them."""

    dark_s: Seconds = 0.01
    """Seconds for which a port passes no light while an optical switch connects it elsewhere."""
    fixed: bool = False
    """Whether circuits stay until their job ends, as with patch panels. Lost circuits are not replaced."""
    drain_s: Annotated[float, Field(ge=0, le=MAX_S, allow_inf_nan=False)] = 0.1
    """Seconds for which packets queued for a circuit may still leave before the circuit is removed."""
    switch: tuple[OpticalSwitch, ...] = ()

    @property
    def fibres(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Server's dpid and port, by dpid and port of the optical switch."""
        return {
            (switch.dpid, number): fibre_end(fibre)
            for switch in self.switch
            for number, fibre in enumerate(switch.fibres, start=1)
            if fibre
        }

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        dpids = [f"{switch.dpid:#x}" for switch in self.switch]
        ends = [fibre for switch in self.switch for fibre in switch.fibres if fibre]
        servers = [
            (f"{fibre_end(fibre)[0]:#x}", at)
            for at, switch in zip(dpids, self.switch, strict=True)
            for fibre in switch.fibres
            if fibre
        ]
        if twice := _repeated(dpids):
            raise _wrong_fibres("switch {what} is configured twice", twice)
        if twice := _repeated(ends):
            raise _wrong_fibres("{what} is at two ports; an interface has one pair of fibres", twice)
        if twice := _repeated(f"{server} at {at}" for server, at in servers):
            raise _wrong_fibres("server {what} has two interfaces; a server has one at each optical switch", twice)
        if both := sorted({server for server, _ in servers} & {*dpids}):
            raise _wrong_fibres(
                "{what} is configured as an optical switch and as a server; give the dpid to one of them", both
            )
        return self


def _wrong_fibres(message: str, what: list[str]) -> PydanticCustomError:
    return PydanticCustomError("fibres", message, {"what": ", ".join(what)})


class CountersConfig(TomlTable):
    """Settings of the counters."""

    interval_s: Seconds = 2.0
    """Seconds between readings of the counters; counters of new jobs are read more often."""
    window_s: Seconds = 6.0
    """Seconds over which rates are averaged; unannounced traffic also over 1/3 and 2/3 of this time."""
    noise_fraction: Annotated[float, Reloaded.ANY] = Field(default=0.1, ge=0, lt=1)
    """Fraction of a link's capacity below which unannounced traffic is ignored."""
    table_alarm_fraction: Annotated[float, Reloaded.ANY] = Field(default=0.9, gt=0, le=1)
    """Fraction of a switch's table that must be filled to raise an alarm."""

    @model_validator(mode="after")
    def _a_window_has_samples(self) -> Self:
        refuse_above(self.interval_s, self.window_s, "interval_s", "window_s")
        return self


class PlanningConfig(TomlTable):
    """Settings of the planner."""

    mode: Mode = Mode.PLANNED
    """ecmp, planned, or shadow (plans without pins). A mode set by ``signalbox mode`` takes precedence."""
    objective: Objective = Objective.ITERATION
    """Slowdown of a job with several phases: that of its iteration, or of its slowest phase."""
    time_limit_s: Annotated[Seconds, Reloaded.ANY] = 2.0
    """Time limit in seconds for planning once; the best plan found by then is used."""
    interval_s: Annotated[Seconds, Reloaded.ANY] = 10.0
    """Seconds between plans; the next plan starts earlier when jobs become slower."""
    debounce_s: Annotated[float, Reloaded.ANY] = Field(default=0.2, ge=0, le=MAX_S)
    """Seconds without a change after which a plan starts; repairs start at once."""
    min_gain: Annotated[float, Reloaded.ANY] = Field(default=0.02, ge=0, lt=1)
    """Fraction by which a new plan must reduce the largest slowdown among those that it changes."""
    max_moves: Annotated[int, Reloaded.ANY] = Field(default=256, ge=0)
    """Largest number of flows that a planning cycle moves; each equal subflow counts, repairs do not."""
    max_paths: int = Field(default=64, ge=1)
    """Largest number of candidate paths between two distant switches."""
    ecmp_draws: Annotated[int, Reloaded.ANY] = Field(default=200, ge=1)
    """Number of random hash functions with which the slowdown under ECMP is estimated for each plan."""


class ContentionConfig(TomlTable):
    """Settings for jobs that share links after routing: time shifts, and classes of priority."""

    slots: bool = False
    """Whether jobs that announce keeps_slots get slots, so that their bursts do not meet."""
    classes: Literal[0, 2, 3] = 0
    """Number of classes of priority; 0 when all jobs have the same priority."""
    floor: float = Field(default=0.1, gt=0, le=0.3)
    """Fraction of each link that every class but the first keeps."""
    objective: SharingObjective = SharingObjective.WORST
    """Quantity to minimize: worst slowdown, work lost per second (gpu-seconds), or a weighted mean."""
    declared_work: bool = True
    """Whether work_per_iteration and weight of job specs count; else work is GPUs x computing time."""
    dscp: tuple[Annotated[int, Field(ge=0, le=63)], ...] = Field(default=(10, 18, 26), min_length=3, max_length=3)
    """DSCP of the packets of each class, the first class first."""
    max_wait: float = Field(default=0.02, gt=0, le=0.1)
    """Longest wait before an iteration, as a fraction of the planned iteration."""
    max_stretch: float = Field(default=0.1, ge=0, le=1)
    """Largest fraction by which an iteration in slots is planned longer than it is alone."""
    max_jitter: float = Field(default=0.15, gt=0, le=1)
    """Relative spread of compute times above which a job gets no slot."""

    @property
    def is_used(self) -> bool:
        return self.slots or self.classes > 0

    @field_validator("dscp")
    @classmethod
    def _different(cls, dscp: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(dscp)) < len(dscp):
            raise PydanticCustomError("dscp", "gives two classes the same DSCP: each class needs one of its own")
        return dscp


class JobsConfig(TomlTable):
    """Limits of jobs."""

    max_jobs: Annotated[int, Reloaded.RAISED] = Field(default=2000, ge=1)
    """Largest number of jobs; a controller with more saved jobs does not start."""
    max_virtual_links: Annotated[int, Reloaded.RAISED] = Field(default=200_000, ge=1)
    """Largest total of virtual links or connections; 8 names (addresses, ranks, groups) count as one."""
    orphan_lease_s: Seconds = 60.0
    """Seconds for which a restarted controller keeps pins of unknown jobs."""
    max_learning_rules: Annotated[int, Reloaded.RAISED] = Field(default=4032, ge=0)
    """Largest number of host pairs counted at a time to learn jobs; 4,032 are all pairs of 64 hosts."""


NAMES_IN_ETCD = ("assign", "draining", "event", "known", "members", "part", "record", "section", "standby")
"""First parts of the keys that a store and its members have in etcd (``store.etcd_contents``, ``etcd_members``)."""


def _prefix(text: str) -> str:
    if not re.fullmatch(r"/([!-.0-~]+/)+", text):
        raise PydanticCustomError("prefix", "must begin and end with /, such as /signalbox/")
    if taken := set(text.split("/")) & set(NAMES_IN_ETCD):
        what = "must not contain {name}, a name that Signalbox gives to its own keys"
        raise PydanticCustomError("prefix", what, {"name": f"/{min(taken)}/"})
    return text


class EtcdConfig(TomlTable):
    """Access to etcd, used when ``store`` has addresses of etcd."""

    ca_certificates: OptionalFile = None
    """PEM file of the authorities that sign the certificates of etcd; if it is set, TLS is used."""
    certificate: OptionalFile = None
    """PEM file with the certificate of this client. Needs private_key and ca_certificates."""
    private_key: OptionalFile = None
    """PEM file with the certificate's key, not encrypted."""
    user: Annotated[str, Reloaded.REPLACED] = ""
    """User name for etcd. Needs password_file."""
    password_file: OptionalFile = None
    """File with the user's password, which only its owner can read."""
    prefix: Annotated[str, AfterValidator(_prefix)] = "/signalbox/"
    """Beginning of all keys; each fabric needs its own."""
    lease_s: int = Field(default=3, ge=2, le=60)
    """Seconds without an answer from the active controller after which another one takes over."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.certificate) != bool(self.private_key) or (self.certificate and not self.ca_certificates):
            raise PydanticCustomError("tls", "certificate needs private_key and ca_certificates")
        if bool(self.user) != bool(self.password_file):
            raise PydanticCustomError("user", "user and password_file must be set together")
        return self


def _called_by_others(address: str) -> str:
    """Return the address. Raises ``PydanticCustomError`` if other members cannot call it."""
    if not address.startswith("unix:"):
        host, port = host_and_port(address)
        if port == 0 or host in ("0.0.0.0", "::"):
            message = "must be an address and a port at which the other members can call this controller"
            raise PydanticCustomError("members", message)
    return address


class MembersConfig(_TlsSection):
    """Settings of a controller that shares its state with others in etcd.

    If ``api`` is set, members divide the switches among themselves, and a standby forwards calls to the leader. The
    leader identifies a member by its certificate, and trusts the identities of clients that a member reports."""

    name: Annotated[str, matching("[A-Za-z0-9._-]{1,63}", "1 to 63 letters, digits and . _ -")] | None = None
    """Name of this controller, as ``signalbox members`` prints it; default: the name of the host."""
    api: Annotated[str, AfterValidator(listen_address), AfterValidator(_called_by_others)] | None = None
    """``HOST:PORT`` or ``unix:PATH`` that the leader opens for other members. --standby with etcd needs it."""
    certificate: OptionalFile = None
    """PEM file with the certificate of this member. If api is ``HOST:PORT``, all three files are needed."""
    ca_certificates: OptionalFile = None
    """PEM file with the authorities that sign the certificates of members."""
    certificate_names: tuple[str, ...] | None = None
    """Names of members' certificates; others are refused. If api is ``HOST:PORT``, one name is needed."""
    belong_together: ClassVar[tuple[str, ...]] = TlsFiles._fields

    @model_validator(mode="after")
    def _proves_who_calls(self) -> Self:
        if self.api and not self.api.startswith("unix:") and not (self.tls_files and self.certificate_names):
            message = "api as HOST:PORT needs certificate, private_key, ca_certificates and certificate_names"
            raise PydanticCustomError("members", message)
        return self


SQLITE = "sqlite"
ETCD = "etcd://"


def _store(text: str) -> str:
    form = 'must be "sqlite" or addresses of etcd, such as "etcd://10.0.0.1:2379,10.0.0.2:2379"'
    if text != SQLITE and not text.startswith(ETCD):
        raise PydanticCustomError("store", form)
    for address in text.removeprefix(ETCD).split(",") if text != SQLITE else ():
        try:
            host_and_port(address)
        except ValueError:
            raise PydanticCustomError("store", form + "; {address} is not HOST:PORT", {"address": address}) from None
    return text


class LogConfig(TomlTable):
    """Log on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Reloaded.ANY] = "info"
    """Least severe lines that are written: debug, info, warning or error."""
    json_lines: bool = False
    """Whether each line is a JSON object, instead of ``key=value``."""


class Config(TomlTable):
    """All settings; see docs/reference/configuration.md."""

    openflow: OpenFlowConfig = OpenFlowConfig()
    api: ApiConfig = ApiConfig()
    metrics: MetricsConfig = MetricsConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    fabric: FabricConfig = FabricConfig()
    circuits: CircuitsConfig = CircuitsConfig()
    counters: CountersConfig = CountersConfig()
    planning: PlanningConfig = PlanningConfig()
    contention: ContentionConfig = ContentionConfig()
    jobs: JobsConfig = JobsConfig()
    log: LogConfig = LogConfig()
    etcd: EtcdConfig = EtcdConfig()
    members: MembersConfig = MembersConfig()
    store: Annotated[str, AfterValidator(_store)] = SQLITE
    """``sqlite``: the state is saved in state_dir. ``etcd://HOST:PORT,...``: it is saved in etcd."""
    state_dir: Path | None = None
    """Directory of the saved state and events. Without it and etcd, a restart forgets all jobs."""

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        """Addresses of etcd; empty if the state is saved elsewhere."""
        return tuple(self.store.removeprefix(ETCD).split(",")) if self.store.startswith(ETCD) else ()

    @property
    def saved_in(self) -> str:
        """Name of the setting that says where the state is saved."""
        return "state_dir" if self.store == SQLITE else "store"

    @model_validator(mode="after")
    def _circuits_or_contention(self) -> Self:
        if self.circuits.switch and self.contention.is_used:
            message = "contention cannot be combined with circuits.switch: on circuits, set no slots and no classes"
            raise PydanticCustomError("contention", message)
        return self

    @model_validator(mode="after")
    def _members_in_etcd(self) -> Self:
        if self.members.api and not self.etcd_endpoints:
            raise PydanticCustomError("members", "members.api needs a store in etcd, where members find each other")
        return self


def reloaded_settings() -> Iterator[tuple[str, str, Reloaded]]:
    """Yield each setting that SIGHUP may change: section, name, and allowed values."""
    for section, of_section in Config.model_fields.items():
        for name, field in getattr(of_section.annotation, "model_fields", {}).items():
            yield from ((section, name, marker) for marker in field.metadata if isinstance(marker, Reloaded))


def with_settings(running: Config, wanted: Config) -> Config:
    """Return the running configuration, with the values of ``wanted`` for the settings that SIGHUP may change."""
    sections: dict[str, TomlTable] = {}
    for section, name, how in reloaded_settings():
        old, new = getattr(getattr(running, section), name), getattr(getattr(wanted, section), name)
        if how.permits(old, new):
            found = sections.get(section, getattr(running, section))
            sections[section] = found.model_copy(update={name: new})
    return running.model_copy(update=sections)


def load(path: Path | None) -> Config:
    """Return the configuration in ``path``, or the defaults. Raises ``InvalidInput`` with all problems of the file."""
    return read_toml(path, Config) if path else Config()
