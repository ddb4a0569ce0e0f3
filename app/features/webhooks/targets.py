"""Where a webhook may go: to nothing private, unless the operator allows it."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from app.settings import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# What ipaddress may hold for global: IPv4 written as IPv6, a network's own NAT64, what was site-local once, protocols'
# own addresses, and relays.
_RESERVED: Final = tuple(
    map(ipaddress.ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24", "192.88.99.0/24"))
)
_LOOKUPS: Final = ThreadPoolExecutor(8, "webhook-lookup")  # a name server that is silent holds up no other work


class BlockedError(Exception):
    """A name or address that no request is sent to."""


class Allowed(msgspec.Struct, frozen=True):
    """What an operator allows besides addresses that are public: host names, in lower case, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def covers(self, host: str, address: Address) -> bool:
        """Whether a request for this host may go to this address of it."""
        inner = carried(address)
        if host.lower() in self.hosts or any(one in net for net in self.networks for one in (address, inner)):
            return True
        return _is_public(address) and _is_public(inner)


def carried(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does; else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in net for net in _RESERVED)


async def addresses_of(host: str, port: int, allowed: Allowed) -> list[str]:
    """The addresses of a host that a request may go to, one at least: connect to these, and look up no more. Raises
    BlockedError; OSError where there is no such name."""
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    fit = [one for one in addresses if allowed.covers(host, ipaddress.ip_address(one))]
    if not fit:
        raise BlockedError(f"{host} is {addresses[0]}, which is not public: HOLDFAST_WEBHOOK_ALLOW can allow it")
    return fit
