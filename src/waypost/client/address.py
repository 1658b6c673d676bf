"""The address of a relay: the URI to connect to and the origin to sign, from a URL."""

from urllib.parse import urlsplit

import msgspec

from waypost.policy.errors import InvalidInput

CONNECT_PATH = "/v1/connect"
MISDIRECTED = 421
"""The HTTP status of a request to a name that is not the relay's."""

NODES_MAX = 64

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_PORTS = {"ws": 80, "wss": 443}


class Address(msgspec.Struct, frozen=True):
    """`uri` is the WebSocket URI; `origin`, "host:port", is part of every proof of identity."""

    uri: str
    origin: str

    @property
    def host(self) -> str:
        """The host name or address, without the port."""
        return self.origin.rpartition(":")[0]

    @property
    def http_url(self) -> str:
        """The URL of the relay's HTTP interface."""
        return f"http{self.uri.removeprefix('ws').removesuffix(CONNECT_PATH)}"

    def not_its_name(self) -> str:
        """Return the error for a relay that rejects this address (`MISDIRECTED`)."""
        return (
            f"the relay at {self.uri.removesuffix(CONNECT_PATH)} does not know itself as"
            f" {self.origin}: connect to it under a name of its own, or start it with --origin"
            f" {self.origin}"
        )


def parse_addresses(urls: str) -> tuple[Address, ...]:
    """Parse the URL of a relay, or the URLs of its nodes, separated by commas.

    Raises `InvalidInput`, also if some have TLS and others not, or for more than `NODES_MAX`.
    """
    parts = str(urls).split(",")
    if len(parts) > NODES_MAX:
        raise InvalidInput(f"{len(parts):,} addresses of one relay: name {NODES_MAX} at most")
    found = tuple(dict.fromkeys(parse_address(one.strip()) for one in parts))
    if len({one.uri.partition(":")[0] for one in found}) > 1:
        raise InvalidInput(f"addresses of one relay with TLS and without: {urls!r:.200}")
    return found


def parse_address(url: str) -> Address:
    """Parse the URL of a relay: http, https, ws or wss, with or without the path.

    Raises `InvalidInput` for anything else.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        raise InvalidInput(f"not the address of a relay: {url!r:.200}") from None
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not host or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidInput(
            f"not the address of a relay: {url!r:.200}; expected http://HOST:PORT or wss://HOST"
        )
    name = f"[{host}]" if ":" in host else host
    origin = f"{name}:{port or _PORTS[scheme]}".lower()
    path = parts.path.rstrip("/")
    if not path.endswith(CONNECT_PATH):
        path += CONNECT_PATH
    return Address(uri=f"{scheme}://{origin}{path}", origin=origin)
