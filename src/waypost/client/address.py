"""The address of a relay: the URI to connect to and the origin to sign, from a URL."""

from urllib.parse import urlsplit

import msgspec

from waypost.policy.errors import InvalidInput

CONNECT_PATH = "/v1/connect"
MISDIRECTED = 421
"""The HTTP status of a request to a name that is not the relay's."""

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_PORTS = {"ws": 80, "wss": 443}


class Address(msgspec.Struct, frozen=True):
    """`uri` is the WebSocket URI; `origin`, "host:port", is part of every proof of identity."""

    uri: str
    origin: str

    def not_its_name(self) -> str:
        """Return the error for a relay that rejects this address (`MISDIRECTED`)."""
        return (
            f"the relay at {self.uri.removesuffix(CONNECT_PATH)} does not know itself as"
            f" {self.origin}: connect to it under a name of its own, or start it with --origin"
            f" {self.origin}"
        )


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
