"""Webhooks: to which URLs and addresses the relay may post, and when it tries again.

Rule 1  Only hosts that the operator names; by default there are none.
Rule 2  Only public addresses. A host in `private_hosts` may have private and loopback ones, too.
        Link-local, multicast and reserved addresses are never allowed: metadata services of clouds
        are there.
Rule 3  Only HTTPS. Plain HTTP is for private addresses of hosts in `private_hosts`.
Rule 4  Every address of a host must be allowed, not only the first.
Rule 5  A notice that fails is tried again later and later, and not endlessly.

This module does not resolve names and opens no connection.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Literal, NamedTuple

import msgspec

from waypost.policy.bounds import webhook_hosts_max, webhook_url_max_chars
from waypost.policy.errors import InvalidInput
from waypost.policy.names import parse_address

RETRY_DELAYS_MS = (5_000, 30_000, 120_000, 600_000, 1_800_000)
"""Waits before the second and each further try of a notice: 6 tries within 43 minutes."""

DEFAULT_PORTS = {"https": 443, "http": 80}

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\]"
_parse_entry = re.compile(rf"(\*\.)?({_HOST})(?::(\*|[0-9]{{1,5}}))?").fullmatch
_parse_url = re.compile(rf"(https?)://({_HOST})(?::([0-9]{{1,5}}))?(/[!-\"$-~]*)?").fullmatch
_split_url = re.compile(r"([A-Za-z]+://[^/]*)(.*)", re.DOTALL).fullmatch
_NAT64 = IPv6Network("64:ff9b::/96")
_ASSIGNED = IPv4Network("192.0.0.0/24")
"""For protocols, not for hosts; the metadata service of one cloud is there."""

NetworkKind = Literal["public", "private", "forbidden"]


class WebhooksConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Hosts that webhooks may name: a name, `*.` and a domain, or an address.

    Without a port, an entry stands for the default port of the URL; `:8443` for that one, `:*` for
    any. `private_hosts` may be in private networks, and may be reached without TLS there.
    """

    allowed_hosts: Annotated[list[str], msgspec.Meta(max_length=webhook_hosts_max)] = []
    private_hosts: Annotated[list[str], msgspec.Meta(max_length=webhook_hosts_max)] = []

    def __post_init__(self) -> None:
        """Reject an entry that is not a host."""
        for entry in (*self.allowed_hosts, *self.private_hosts):
            if len(entry) > 300 or _parse_entry(entry) is None:
                raise ValueError(
                    f"{entry!r:.80} is not a host: write it as hooks.example.com, *.example.com or"
                    " 10.0.0.7, in lower case, with :PORT or :* for other ports"
                )


class WebhookUrl(NamedTuple):
    """The parts of a valid URL; `host` has no brackets, `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class HostVerdict(NamedTuple):
    """Whether the settings allow the host of a URL; `entry` is the one that allows it."""

    allowed: bool
    entry: str = ""
    private: bool = False
    detail: str = ""


def parse_url(text: str) -> WebhookUrl:
    """Return the parts of a URL. Raises `InvalidInput`."""
    if len(text) > webhook_url_max_chars:
        raise InvalidInput(f"a webhook's URL has at most {webhook_url_max_chars:,} characters")
    parts = _split_url(text)
    found = _parse_url(parts[1].lower() + parts[2]) if parts else None
    port = int(found[3]) if found and found[3] else 0
    if found is None or port > 65_535 or (found[3] and not port):
        raise InvalidInput(
            f"{text!r:.120} is not a webhook's URL: write https://HOST[:PORT]/PATH, in ASCII,"
            " without a user name and without a fragment"
        )
    scheme, host = found[1], found[2].strip("[]")
    if ":" in host and parse_address(host) is None:
        raise InvalidInput(f"{found[2]!r} is not an IPv6 address")
    return WebhookUrl(scheme, host, port or DEFAULT_PORTS[scheme], found[4] or "/")


def check_host(url: WebhookUrl, config: WebhooksConfig) -> HostVerdict:
    """Return whether the settings allow a URL; its addresses are checked by `check_addresses`."""
    entry = _matching_entry(url, config.private_hosts)
    if entry:
        return HostVerdict(True, entry, private=True)
    entry = _matching_entry(url, config.allowed_hosts)
    if not entry:
        return HostVerdict(False, detail=_not_listed(url))
    if url.scheme != "https":
        return HostVerdict(
            False, detail="a webhook's URL begins with https://, unless its host is private"
        )
    return HostVerdict(True, entry)


def _not_listed(url: WebhookUrl) -> str:
    """Say which of the two settings would allow a host that none allows."""
    is_private = is_address(url.host) and network_kind(url.host) == "private"
    setting = "privateHosts" if is_private or url.scheme == "http" else "allowedHosts"
    public = "" if is_private or url.scheme == "https" else "; a public host needs https://"
    return (
        f"webhooks.{setting} of this relay does not have {url.host}:{url.port}: ask the operator"
        f" to add it{public}"
    )


def check_addresses(url: WebhookUrl, addresses: list[str], *, private: bool) -> str:
    """Return why the relay must not connect to a host with these addresses; "" if it may.

    `private`: the operator allows the host to be in private networks.
    """
    for address in addresses:
        kind = network_kind(address)
        if kind == "forbidden":
            return f"{url.host} has the address {address}, which no webhook may have"
        if kind == "private" and not private:
            return (
                f"{url.host} has the private address {address}: only hosts in"
                " webhooks.privateHosts may have one"
            )
        if kind == "public" and url.scheme == "http":
            return f"{url.host} has the public address {address}, which needs https://"
    return "" if addresses else f"{url.host} has no address"


def is_address(host: str) -> bool:
    """Return whether a host is given by its address."""
    return parse_address(host) is not None


def network_kind(text: str) -> NetworkKind:
    """Return the kind of network that an address belongs to."""
    address = parse_address(text)
    if address is None:
        return "forbidden"
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return network_kind(str(IPv4Address(int(address) & 0xFFFF_FFFF)))
        if address.sixtofour is not None or address.teredo is not None:
            return "forbidden"
        if address.is_site_local:
            return "private"
    if address.is_loopback:
        return "private"
    if address.is_multicast or address.is_link_local or address.is_reserved:
        return "forbidden"
    if address.is_unspecified or address in _ASSIGNED:
        return "forbidden"
    return "public" if address.is_global else "private"


def retry_delay_ms(failures: int) -> int | None:
    """Return the wait after so many failed tries of one notice; None if it is given up."""
    return RETRY_DELAYS_MS[failures - 1] if failures <= len(RETRY_DELAYS_MS) else None


def _matching_entry(url: WebhookUrl, entries: list[str]) -> str:
    """Return the first entry that stands for the host and port of `url`, or ""."""
    for entry in entries:
        found = _parse_entry(entry)
        assert found is not None, "checked when the settings were read"
        wild, host, port = found[1], found[2].strip("[]"), found[3]
        if wild:
            is_host = url.host.endswith(f".{host}") and not is_address(url.host)
        else:
            is_host = url.host == host or _is_same_address(url.host, host)
        allowed = {None: DEFAULT_PORTS[url.scheme], "*": url.port}.get(port) or int(port)
        if is_host and url.port == allowed:
            return entry
    return ""


def _is_same_address(host: str, other: str) -> bool:
    address = parse_address(host)
    return address is not None and address == parse_address(other)
