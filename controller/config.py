"""The configuration: one TOML file, read once into a frozen object.

Unknown keys are errors and all errors are reported at once, each with its path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from controller.toml_files import Table, matching, read_toml, refuse_above
from signalbox.addresses import listen_address
from signalbox.jobs.spec import at_most
from signalbox.words import Strategy

MAX_S = 365 * 24 * 3600
Seconds = Annotated[float, Field(gt=0, le=MAX_S, allow_inf_nan=False)]
BitsPerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]


MOST_ADDRESSES = 64
"""Addresses that the API listens on."""


class Reloaded(StrEnum):
    """What SIGHUP takes over of a setting that is marked so, besides certificates and tokens: another value, or only a
    larger one. A lowered limit might refuse what is saved at the next start, which says so."""

    ANY = "yes"
    RAISED = "raised"


class TlsFiles(NamedTuple):
    """``ca_certificates`` None: peers need no certificate."""

    certificate: Path
    private_key: Path
    ca_certificates: Path | None


class _TlsSection(Table):
    """A listener. With ``certificate`` and ``private_key`` (PEM files) peers must use TLS; with ``ca_certificates``
    they must also show a certificate that one of these authorities signed."""

    certificate: Path | None = None
    private_key: Path | None = None
    ca_certificates: Path | None = None
    belong_together: ClassVar[tuple[str, ...]] = ("certificate", "private_key")
    """All of them, or no TLS at all."""

    @property
    def tls_files(self) -> TlsFiles | None:
        """None without TLS."""
        if self.certificate and self.private_key:
            return TlsFiles(self.certificate, self.private_key, self.ca_certificates)
        return None

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        missing = [name for name in self.belong_together if getattr(self, name) is None]
        if missing and any(getattr(self, name) for name in TlsFiles._fields):
            *first, last = self.belong_together
            message = "{first} and {last} belong together; missing: {missing}"
            names = {"first": ", ".join(first), "last": last, "missing": ", ".join(missing)}
            raise PydanticCustomError("tls", message, names)
        return self


class OpenFlowConfig(_TlsSection):
    """Echo checks: a switch that misses ``echo_misses`` echoes in a row is disconnected. With TLS switches must show a
    certificate, with ``dpid_in_certificate`` one that names their dpid. ``max_address_connections``: one Open vSwitch
    connects all its bridges from one address. ``max_ports``: of all switches."""

    host: str = "127.0.0.1"
    port: int = Field(default=6653, ge=1, le=65535)
    max_connections: int = Field(default=4096, ge=2)
    max_address_connections: int = Field(default=1024, ge=1)
    max_ports: int = Field(default=65536, ge=1)
    dpid_in_certificate: bool = False
    echo_interval_s: Seconds = 5.0
    echo_misses: int = Field(default=3, ge=1)
    barrier_timeout_s: Seconds = 10.0
    audit_interval_s: Annotated[Seconds, Reloaded.ANY] = 60.0
    belong_together: ClassVar[tuple[str, ...]] = TlsFiles._fields

    @model_validator(mode="after")
    def _certificates(self) -> Self:
        if self.dpid_in_certificate and not self.tls_files:
            message = "dpid_in_certificate needs certificate, private_key and ca_certificates"
            raise PydanticCustomError("tls", message)
        return self


class SocketRole(StrEnum):
    """What a caller is that comes through a Unix socket without a token."""

    OPERATOR = "operator"
    READER = "reader"
    NONE = "none"


def _socket(path: Path) -> Path:
    """Raises ``PydanticCustomError`` for a path that no socket can have."""
    listen_address(f"unix:{path}")
    return path


class ApiConfig(_TlsSection):
    """``listen``: gRPC addresses, ``HOST:PORT`` or ``unix:PATH``; TLS is for the first kind only. ``tokens``: a TOML
    file of identities (``api.identities``). ``insecure``: listen beyond loopback although anyone who connects is an
    operator or could read what others send. ``proxy_socket``: HAProxy listens at the addresses of the first kind in the
    controller's place, and hands calls over through this Unix socket.

    ``max_connections``, of all clients, and ``max_client_…``, of one address, are limits of HAProxy; calls are at one
    time, and streams are no calls. ``silent_s``: how long a client may take over the first bytes of a connection, and
    over the request of a call. ``stalled_s``: how long it may not read what HAProxy sends."""

    listen: Annotated[
        tuple[Annotated[str, AfterValidator(listen_address)], ...], at_most(MOST_ADDRESSES), Field(min_length=1)
    ] = ("127.0.0.1:50051",)
    proxy_socket: Annotated[Path, AfterValidator(_socket)] | None = None
    tokens: Path | None = None
    insecure: bool = False
    socket_mode: Annotated[str, matching("0[0-7]{3}", "an octal mode such as 0660, in quotes")] = "0600"
    socket_role: SocketRole = SocketRole.OPERATOR
    max_message_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    max_connections: int = Field(default=2048, ge=1)
    max_client_connections: int = Field(default=512, ge=1)
    max_client_connections_per_s: float = Field(default=50.0, ge=1, le=1_000_000)
    max_client_calls: int = Field(default=512, ge=1)
    max_client_streams: int = Field(default=1024, ge=1)
    max_client_calls_per_s: float = Field(default=800.0, ge=1, le=1_000_000)
    silent_s: Seconds = Field(default=5.0, le=86_400)
    stalled_s: Seconds = Field(default=30.0, le=86_400)


class MetricsConfig(_TlsSection):
    """``max_connections``: the newest ends the oldest when there are more."""

    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65535)
    max_connections: int = Field(default=16, ge=1, le=64)


class DiscoveryConfig(Table):
    """``link_timeout_s``: silence after which a link whose ports are up is lost, when three probes were missed by then.
    ``max_probes_per_s``: large fabrics are probed less often than every ``probe_interval_s`` to keep it.
    ``hold_down_s``: how long a link that came back stays excluded, twice as long each time, ``max_hold_down_s`` at
    most, until it has held for four times as long as it was last excluded. ``edge_after_s``: how long a port must have
    been up without LLDP before it may be an edge port. ``adoption_patience_s``: how long a started controller waits for
    switches and links that installed rules name before it changes any of them. ``punt_rate_pps``: LLDP and ARP packets
    per second a port may hand to the controller."""

    probe_interval_s: Seconds = 1.0
    link_timeout_s: Seconds = 5.0
    max_probes_per_s: float = Field(default=1250.0, ge=1, allow_inf_nan=False)
    hold_down_s: Seconds = 2.0
    max_hold_down_s: Seconds = 60.0
    edge_after_s: Seconds = 2.5
    adoption_patience_s: Seconds = 15.0
    punt_rate_pps: int = Field(default=50, ge=1)

    @model_validator(mode="after")
    def _holds_down(self) -> Self:
        refuse_above(self.hold_down_s, self.max_hold_down_s, "hold_down_s", "max_hold_down_s")
        return self


class LinkCapacity(Table):
    """Capacity of the link that leaves ``switch`` (its name) through ``port`` (its name)."""

    switch: str
    port: str
    bps: BitsPerSecond


def _repeated(names: Iterable[str]) -> list[str]:
    """Return the names that are there more than once, in order."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def station_mac(text: str) -> str:
    """A MAC address that is no group's, in lower case. Raises ``PydanticCustomError`` with what would be right."""
    if not re.fullmatch(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", text.lower()):
        raise PydanticCustomError("mac", "must be the MAC address of one station, such as 02:00:00:00:01:01")
    return text.lower()


class GatewayConfig(Table):
    """A router at an edge port: its IPv4 address in the fabric, and the MAC address that hosts send to."""

    ip: IPv4Address
    mac: Annotated[str, AfterValidator(station_mac)]


class FabricConfig(Table):
    """Capacities override what ports report (a veth always says 10 Gbit/s). ``leaf_prefix_length``: leaves own prefixes
    of this length, 32 for host routes only. ``inventory``: a TOML file with ``[[host]]`` tables."""

    link_bps: BitsPerSecond | None = None
    host_link_bps: BitsPerSecond | None = None
    link: tuple[LinkCapacity, ...] = ()
    leaf_prefix_length: int = Field(default=24, ge=8, le=32)
    inventory: Path | None = None
    gateway: tuple[GatewayConfig, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if twice := _repeated(gateway.mac for gateway in self.gateway):
            message = "{macs} is in gateway twice; routers that share a MAC address are one gateway"
            raise PydanticCustomError("gateway", message, {"macs": ", ".join(twice)})
        if twice := _repeated(str(gateway.ip) for gateway in self.gateway):
            raise PydanticCustomError("gateway", "{ips} is in gateway twice", {"ips": ", ".join(twice)})
        if twice := _repeated(f"{link.switch}:{link.port}" for link in self.link):
            raise PydanticCustomError("link", "{ports} is in link twice", {"ports": ", ".join(twice)})
        return self


FIBRE = re.compile(r"0x[0-9a-f]{1,16}:[0-9]{1,10}")
MOST_FIBRES = 4096
MOST_PORT = 0xFFFF_FF00
"""OFPP_MAX (OpenFlow 1.3.5, A.2.1)."""


def fibre_end(text: str) -> tuple[int, int]:
    """Dpid and port of ``0x1:2``."""
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


class OpticalSwitch(Table):
    """``fibres``: what is at each of its ports, from 1: the dpid and port of a server's interface, or nothing."""

    dpid: int = Field(ge=1, lt=1 << 64)
    fibres: Annotated[tuple[Annotated[str, AfterValidator(_fibre)], ...], BeforeValidator(_some_fibres)]


class CircuitsConfig(Table):
    """Optical switches, and which interfaces of servers their ports have fibres to. ``dark_s``: while one connects a
    port elsewhere, that port is dark so long. ``fixed``: the circuits of a job stay as they are until it leaves, as
    with patch panels; what is lost of them is routed around. ``drain_s``: how long packets that are queued for a
    circuit may take to leave before it goes dark."""

    dark_s: Seconds = 0.01
    fixed: bool = False
    drain_s: Annotated[float, Field(ge=0, le=MAX_S, allow_inf_nan=False)] = 0.1
    switch: tuple[OpticalSwitch, ...] = ()

    @property
    def fibres(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By dpid and port of an optical switch those of a server."""
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
            raise _wrong_fibres("switch {what} is there twice", twice)
        if twice := _repeated(ends):
            raise _wrong_fibres("{what} is at two ports; an interface has one pair of fibres", twice)
        if twice := _repeated(f"{server} at {at}" for server, at in servers):
            raise _wrong_fibres("{what} has two interfaces; a server has one at each optical switch", twice)
        if both := sorted({server for server, _ in servers} & {*dpids}):
            raise _wrong_fibres("{what} is an optical switch and a server", both)
        return self


def _wrong_fibres(message: str, what: list[str]) -> PydanticCustomError:
    return PydanticCustomError("fibres", message, {"what": ", ".join(what)})


class CountersConfig(Table):
    """``window_s``: rates are taken over the samples of this long, background over one, two and three thirds of it.
    ``noise_fraction``: measured background below this share of a link's capacity is ignored. ``table_alarm_fraction``:
    of the entries that fit into a table, from which on it is nearly full."""

    interval_s: Seconds = 2.0
    window_s: Seconds = 6.0
    noise_fraction: Annotated[float, Reloaded.ANY] = Field(default=0.1, ge=0, lt=1)
    table_alarm_fraction: Annotated[float, Reloaded.ANY] = Field(default=0.9, gt=0, le=1)

    @model_validator(mode="after")
    def _a_window_has_samples(self) -> Self:
        refuse_above(self.interval_s, self.window_s, "interval_s", "window_s")
        return self


class PlanningConfig(Table):
    """``debounce_s``: quiet time after a change before planning. ``min_gain``: relative gain at the first differing
    level that makes a new plan worth its moves. ``max_moves``: pinned flows moved per cycle."""

    strategy: Strategy = Strategy.PLANNED
    time_limit_s: Annotated[Seconds, Reloaded.ANY] = 2.0
    interval_s: Annotated[Seconds, Reloaded.ANY] = 10.0
    debounce_s: Annotated[float, Reloaded.ANY] = Field(default=0.2, ge=0, le=MAX_S)
    min_gain: Annotated[float, Reloaded.ANY] = Field(default=0.02, ge=0, lt=1)
    max_moves: Annotated[int, Reloaded.ANY] = Field(default=256, ge=0)
    max_paths: int = Field(default=64, ge=1)
    ecmp_draws: Annotated[int, Reloaded.ANY] = Field(default=200, ge=1)


class JobsConfig(Table):
    """``max_virtual_links``: of all jobs together; each takes about 400 bytes of memory. ``orphan_lease_s``: how long
    pins of jobs that a restarted controller does not know are kept.
    ``max_learning_rules``: pairs of hosts that are counted at one time to learn what jobs send; 4,032 are all pairs of
    64 hosts."""

    max_jobs: Annotated[int, Reloaded.RAISED] = Field(default=2000, ge=1)
    max_virtual_links: Annotated[int, Reloaded.RAISED] = Field(default=200_000, ge=1)
    orphan_lease_s: Seconds = 60.0
    max_learning_rules: Annotated[int, Reloaded.RAISED] = Field(default=4032, ge=0)


class LogConfig(Table):
    """Log lines go to stderr. ``json_lines``: one JSON object per line."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Reloaded.ANY] = "info"
    json_lines: bool = False


class Config(Table):
    """Everything that can be set; see docs/reference/configuration.md."""

    openflow: OpenFlowConfig = OpenFlowConfig()
    api: ApiConfig = ApiConfig()
    metrics: MetricsConfig = MetricsConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    fabric: FabricConfig = FabricConfig()
    circuits: CircuitsConfig = CircuitsConfig()
    counters: CountersConfig = CountersConfig()
    planning: PlanningConfig = PlanningConfig()
    jobs: JobsConfig = JobsConfig()
    log: LogConfig = LogConfig()
    state_dir: Path | None = None


def reloaded_settings() -> Iterator[tuple[str, str, Reloaded]]:
    """Section and name of each setting that is marked, and how."""
    for section, of_section in Config.model_fields.items():
        for name, field in getattr(of_section.annotation, "model_fields", {}).items():
            yield from ((section, name, marker) for marker in field.metadata if isinstance(marker, Reloaded))


def with_settings(running: Config, wanted: Config) -> Config:
    """What is running, with the settings of ``wanted`` that SIGHUP takes over."""
    sections: dict[str, Table] = {}
    for section, name, how in reloaded_settings():
        old, new = getattr(getattr(running, section), name), getattr(getattr(wanted, section), name)
        if how is Reloaded.ANY or new > old:
            found = sections.get(section, getattr(running, section))
            sections[section] = found.model_copy(update={name: new})
    return running.model_copy(update=sections)


def load(path: Path | None) -> Config:
    """The configuration in ``path``, or the defaults. Raises ``InvalidInput`` with every problem of the file."""
    return read_toml(path, Config) if path else Config()
