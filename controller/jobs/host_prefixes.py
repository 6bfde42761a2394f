"""Address prefixes of the hosts that jobs of a tenant may name.

Checking an address takes time in proportion to the number of different prefix lengths, not of prefixes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from socket import AF_INET, AF_INET6, inet_pton

MOST_NAMED = 8
"""Largest number of prefixes that an error message names."""


@dataclass(frozen=True)
class HostPrefixes:
    """Hosts of a tenant: the addresses within any of these prefixes."""

    prefixes: tuple[IPv4Network | IPv6Network, ...]

    @cached_property
    def _networks(self) -> Mapping[tuple[int, int], set[int]]:
        """Network parts of the prefixes, by IP version and number of host bits."""
        found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for prefix in self.prefixes:
            host_bits = prefix.max_prefixlen - prefix.prefixlen
            found[prefix.version, host_bits].add(int(prefix.network_address) >> host_bits)
        return found

    def __contains__(self, host: str) -> bool:
        version, family = (6, AF_INET6) if ":" in host else (4, AF_INET)
        number = int.from_bytes(inet_pton(family, host))  # ipaddress is slower, and a job may have 32,768 addresses
        for (of_version, host_bits), networks in self._networks.items():
            if of_version == version and number >> host_bits in networks:
                return True
        return False

    def __str__(self) -> str:
        more = len(self.prefixes) - MOST_NAMED
        return ", ".join([*map(str, self.prefixes[:MOST_NAMED]), *([f"and {more} more"] if more > 0 else [])])
