"""Names of agents: who may bind one, how many, how fast, and when an unused one expires.

Rule 1  `open`: the first key that authenticates as a free name owns it. `reserved`: a name that
        matches a reserved pattern is usable only with a key that the operator bound to it.
        `closed`: so is every name.
Rule 2  Keys cost nothing, so a bound for each key is no bound: names are also counted by network,
        and in total. Only names that were bound are counted.
Rule 3  A name expires only if it was never used since it was bound; see `is_expired`.

This module does not know who is authenticated, or what counts as use.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Literal

import msgspec

from waypost.policy.bounds import crowded_identities_max, reserved_patterns_max
from waypost.policy.rate_limits import PositiveInt, RateWindows
from waypost.policy.subjects import matches_pattern, validate_pattern

DAY_MS = 24 * 3_600_000
CROWDED_EXPIRY_MS = 3_600_000
WINDOW_MS = 60_000
_EVERYONE = ""
_NETWORKS_MAX = 10_000


class NamesConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Names that agents may bind at a served relay. `reserved` are patterns."""

    policy: Literal["open", "reserved", "closed"] = "open"
    reserved: Annotated[list[str], msgspec.Meta(max_length=reserved_patterns_max)] = []
    max_per_key: PositiveInt = 100
    new_per_minute: PositiveInt = 600
    new_per_address_minute: PositiveInt = 120
    unused_expiry_ms: PositiveInt = 30 * DAY_MS

    def __post_init__(self) -> None:
        """Reject an invalid pattern."""
        for pattern in self.reserved:
            validate_pattern(pattern)


class NameVerdict(msgspec.Struct, frozen=True):
    """Whether a name may be bound. `retry_after_ms` is 0 if waiting does not help."""

    allowed: bool
    detail: str = ""
    retry_after_ms: int = 0


_ALLOWED = NameVerdict(True)


def needs_operator(subject: str, config: NamesConfig) -> bool:
    """Return whether only a key that the operator bound may authenticate as `subject`."""
    if config.policy == "open":
        return False
    if config.policy == "closed":
        return True
    return any(matches_pattern(subject, pattern) for pattern in config.reserved)


def is_expired(bound_at_ms: int, now_ms: int, bound: int, config: NamesConfig) -> bool:
    """Return whether an unused name expires; `bound` is the number of all names.

    When there is little room left, it expires after an hour: a flood of names must not keep
    others out for a month.
    """
    age_ms = now_ms - bound_at_ms
    if bound > crowded_identities_max and age_ms >= CROWDED_EXPIRY_MS:
        return True
    return age_ms >= config.unused_expiry_ms


class NewNames:
    """The names bound within the last minute: in total, and by network."""

    def __init__(self) -> None:
        self._windows = RateWindows()

    def check(self, held: int, address: str, config: NamesConfig, now_ms: int) -> NameVerdict:
        """Return whether a key with `held` names may bind another from `address` now."""
        if held >= config.max_per_key:
            return NameVerdict(
                False, f"this key holds {held:,} names, and names.maxPerKey allows no more"
            )
        limits = [(_EVERYONE, config.new_per_minute, "names.newPerMinute")]
        if address:
            network = network_of(address)
            limits.append((network, config.new_per_address_minute, "names.newPerAddressMinute"))
        for window, limit, setting in limits:
            if self._windows.count(window, now_ms, WINDOW_MS) >= limit:
                wait_ms = self._windows.retry_after_ms(window, now_ms, WINDOW_MS, limit)
                text = f"too many new names: {setting} allows {limit:,} a minute"
                return NameVerdict(False, text, max(1, wait_ms))
        return _ALLOWED

    def record(self, address: str, now_ms: int) -> None:
        """Count a name that was bound from `address`; empty if the address is unknown."""
        if len(self._windows) > _NETWORKS_MAX:
            self._windows.sweep(now_ms, WINDOW_MS)
        self._windows.record(_EVERYONE, now_ms)
        if address:
            self._windows.record(network_of(address), now_ms)


def is_loopback(host: str) -> bool:
    """Return whether a host, given by name or address, is this machine."""
    address = parse_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def network_of(address: str) -> str:
    """Return what counts as one network: an IPv4 address, or the /64 of an IPv6 address.

    This machine is one network, too: a local program may use any of its loopback addresses.
    """
    found = parse_address(address)
    if found is None:
        return address
    if found.is_loopback:
        return "loopback"
    if not isinstance(found, IPv6Address):
        return str(found)
    return f"{IPv6Address(int(found) >> 64 << 64)}/64"


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, IPv4 also where it is written as IPv6; None if it is none."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped
