"""The names of a served relay: hosts that requests and proofs may name, and pages that may call it.

Rule 1  A relay knows its names from its operator, its certificate and its socket, never from a
        request: the author of a request writes its Host header.
Rule 2  A Host header must be one of the names, and a proof must name the host of its request.
Rule 3  A request with an Origin header is a web page's; the page must be the relay's own.

An origin is `host:port` in lower case, always with the port, as agents sign it.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.types import Scope

from waypost.policy.errors import InvalidInput
from waypost.server.proxies import plain_address

_PORTS = {"http": 80, "https": 443}
_PAGE_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_SCOPE_KEY = "waypost.origins"

_match_origin = re.compile(
    r"(?:(https?|wss?)://)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?/?"
).fullmatch


class Origin(msgspec.Struct, frozen=True):
    """A name of the relay. `schemes` are those of its pages; an IPv6 `host` has brackets."""

    host: str
    port: int
    schemes: tuple[str, ...] = ("http", "https")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the relay under this name."""
        scheme = self.schemes[0]
        return f"{scheme}://{self.host if self.port == _PORTS[scheme] else self}"


class _Table(NamedTuple):
    """The origins that a Host header means, and the Origin headers of the relay's own pages."""

    hosts: dict[bytes, tuple[str, ...]]
    pages: frozenset[bytes]


class Origins:
    """The names of one relay.

    With `reached`, they include the address of this machine at which a connection arrived, and
    `localhost` if that is a loopback address: to other machines, those are names of their own.
    """

    def __init__(self, own: Iterable[Origin], *, reached: bool = False) -> None:
        self.own = tuple(dict.fromkeys(own))
        self._hosts, self._pages = _table(self.own)
        self._reached = reached

    def __str__(self) -> str:
        names = [str(one) for one in self.own]
        return ", ".join([*names, "any address of this machine"] if self._reached else names)

    def of_host(self, host: bytes, reached: tuple[str, int] | None) -> tuple[str, ...]:
        """Return the origins of this relay that a Host header means, on a connection that arrived
        at the address `reached`; none if it names another host."""
        host = host.lower()
        found = self._hosts.get(host)
        if found is None and self._reached and reached is not None:
            found = _table_of_address(*reached).hosts.get(host)
        return found or ()

    def is_own_page(self, origin: bytes, reached: tuple[str, int] | None) -> bool:
        """Return whether an Origin header names a page of this relay."""
        if origin in self._pages:
            return True
        return self._reached and reached is not None and origin in _table_of_address(*reached).pages


def own_origins(
    address: tuple[str, int], given: Iterable[str] = (), certificate: Path | None = None
) -> Origins:
    """Return the names of a relay that listens at `address`: those `given`, or the defaults.

    By default they are the address it listens on and the names of its certificate. On a loopback
    address that includes `localhost`; on another one, the host name of this machine. On all
    addresses, the address at which a connection arrives counts instead.
    """
    host, port = address
    schemes = ("https",) if certificate else ("http", "https")
    named = [parse_origin(one, port, schemes) for one in given]
    if named:
        return Origins(named)
    hosts = [*_default_hosts(host), *(_certificate_hosts(certificate) if certificate else ())]
    return Origins(
        (Origin(one, port, schemes) for one in hosts),
        reached=ipaddress.ip_address(host).is_unspecified,
    )


def parse_origin(text: str, port: int, schemes: tuple[str, ...] = ("http", "https")) -> Origin:
    """Parse a URL without a path, or HOST[:PORT]. A URL without a port has that of its scheme, a
    host without a port has `port`. Raises `InvalidInput`."""
    found = _match_origin(text.strip().lower())
    if found is None:
        raise _not_an_origin(text)
    scheme, host, port_text = found.groups()
    if scheme:
        schemes = (_PAGE_SCHEMES[scheme],)
        port = _PORTS[schemes[0]]
    if port_text:
        port = int(port_text)
    if not 0 < port < 65536:
        raise _not_an_origin(text)
    try:
        return Origin(_bracketed(host.strip("[]")) if "[" in host else host, port, schemes)
    except ValueError:
        raise _not_an_origin(text) from None


def put_origins(scope: Scope, origins: tuple[str, ...]) -> None:
    """Note which origins of this relay the request of `scope` was sent to."""
    scope[_SCOPE_KEY] = origins


def origins_of(scope: Scope) -> tuple[str, ...]:
    """Return the origins that a proof in this request may name; none before `put_origins`."""
    found: tuple[str, ...] = scope.get(_SCOPE_KEY, ())
    return found


def _table(own: Iterable[Origin]) -> _Table:
    hosts: dict[bytes, tuple[str, ...]] = {}
    pages: set[bytes] = set()
    for one in own:
        spelled = [str(one), one.host] if one.port in _PORTS.values() else [str(one)]
        for host in spelled:
            key = host.encode()
            hosts[key] = tuple(dict.fromkeys((*hosts.get(key, ()), str(one))))
        for scheme in one.schemes:
            pages.add(f"{scheme}://{one}".encode())
            if one.port == _PORTS[scheme]:
                pages.add(f"{scheme}://{one.host}".encode())
    return _Table(hosts, frozenset(pages))


@lru_cache(maxsize=64)
def _table_of_address(address: str, port: int) -> _Table:
    return _table(Origin(one, port) for one in _local_hosts(plain_address(address)))


def _default_hosts(address: str) -> list[str]:
    parsed = ipaddress.ip_address(address)
    if parsed.is_unspecified:
        return _machine_names()
    return [*_local_hosts(address), *([] if parsed.is_loopback else _machine_names())]


def _local_hosts(address: str) -> list[str]:
    host = _bracketed(address.partition("%")[0])
    return [host, "localhost"] if host in ("127.0.0.1", "[::1]") else [host]


def _machine_names() -> list[str]:
    name = socket.gethostname().lower()
    found = _match_origin(name)
    return [name] if found is not None and found[2] == name else []


def _certificate_hosts(certificate: Path) -> list[str]:
    """Return the names in a certificate; a name with a wildcard is not one name."""
    from cryptography import x509

    try:
        names = (
            x509.load_pem_x509_certificate(certificate.read_bytes())
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
    except (ValueError, x509.ExtensionNotFound):
        return []
    hosts = [one.lower() for one in names.get_values_for_type(x509.DNSName) if "*" not in one]
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*hosts, *(_bracketed(str(one)) for one in addresses)]


def _bracketed(address: str) -> str:
    """Return an address as in a URL, in its usual form. Raises `ValueError`."""
    parsed = ipaddress.ip_address(address)
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


def _not_an_origin(text: str) -> InvalidInput:
    return InvalidInput(
        "--origin takes the URL of the relay, or HOST:PORT, such as https://relay.example;"
        f" not {text!r:.80}"
    )
