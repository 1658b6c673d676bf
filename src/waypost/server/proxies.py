"""The address of a caller behind proxies that the operator trusts.

Rule 1  `X-Forwarded-For` counts only on a connection from a trusted proxy; others can write it.
Rule 2  It is read from the right: each trusted proxy appended the address it saw. The first address
        that is no trusted proxy is the caller's; anything to its left is the caller's claim.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

from waypost.policy.errors import InvalidInput

PROXIES_MAX = 32
"""Addresses of `X-Forwarded-For` that are read, from the right."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    """The networks of trusted proxies. Raises `InvalidInput` unless each is an address or one."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(_parse_network(one) for one in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def caller_behind(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """Return the caller's address on a connection from `peer`, given the headers in order."""
        caller = peer
        entries = ",".join(forwarded_for).rsplit(",", PROXIES_MAX)[-PROXIES_MAX:]
        for entry in reversed(entries):
            if not self._trusts(caller):
                break
            address = _parse_entry(entry)
            if address is None:
                break
            caller = address
        return caller

    def _trusts(self, address: str) -> bool:
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in one for one in self._networks)


def plain_address(address: str) -> str:
    """Return an IPv4 address that a dual-stack socket shows as IPv6 in its usual form."""
    return address.removeprefix("::ffff:") if "." in address else address


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidInput(
            f"--trusted-proxy takes an address or a network such as 10.0.0.0/8, not {text!r:.80}"
        ) from None


@lru_cache(maxsize=1024)
def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _parse_entry(entry: str) -> str | None:
    """Return the address of one entry, which may have a port; None if it is no address."""
    entry = entry.strip()
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    parsed = _parse_address(entry)
    return None if parsed is None else str(parsed)
