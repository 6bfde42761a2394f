"""Address prefixes: which hosts the jobs of a tenant may name.

In: prefixes, and the addresses of jobs that are to be accepted. Out: nothing, or ``HostNotAllowed`` with the first host
that is in no prefix. Pure; the cost per address depends on how many lengths of prefixes there are, not on how many
prefixes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from itertools import chain
from socket import AF_INET, AF_INET6, inet_pton
from typing import TYPE_CHECKING

from signalbox.errors import HostNotAllowed, in_entry

if TYPE_CHECKING:
    from controller.jobs.replacements import Wanted

MOST_NAMED = 8
"""Number of prefixes in an error."""


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
        number = int.from_bytes(inet_pton(family, host))  # ipaddress is slower, and there may be 32,768
        for (of_version, host_bits), networks in self._networks.items():
            if of_version == version and number >> host_bits in networks:
                return True
        return False

    def __str__(self) -> str:
        more = len(self.prefixes) - MOST_NAMED
        return ", ".join([*map(str, self.prefixes[:MOST_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def refuse_foreign_hosts(hosts: HostPrefixes | None, wanted: Sequence[Wanted]) -> None:
    """Raise ``HostNotAllowed`` for the first job that names a host outside ``hosts``; None: every host is allowed. A
    registration may keep the hosts that it names already: it was accepted before the prefixes changed."""
    if hosts is None:
        return
    for one in wanted:
        if foreign := _foreign(one, hosts):
            more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
            job_id, tenant = one.registration.job_id, one.registration.tenant
            with in_entry(one.entry):
                raise HostNotAllowed(
                    f"job '{job_id}' names {foreign[0]}{more}, which tenant '{tenant}' may not use: its hosts are "
                    f"{hosts}; an operator can add to its host_prefixes, in the file that api.tokens names",
                    {"jobId": job_id, "host": foreign[0]},
                )


def _foreign(wanted: Wanted, hosts: HostPrefixes) -> list[str]:
    """Return the addresses that the job would name anew and that are not among ``hosts``, in the order of the spec."""
    held, registration = wanted.held, wanted.registration
    named = held.spec.addresses if held and held.uid == registration.uid else frozenset[str]()
    rails = (rail.endpoints for rail in registration.spec.rails)
    addresses = dict.fromkeys(chain(registration.spec.endpoints, *rails))
    return [host for host in addresses if host not in named and host not in hosts]
