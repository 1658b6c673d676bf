"""The address of a cluster: the NATS servers it is on, and its name there."""

from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from waypost.policy.bounds import cluster_name_max_chars
from waypost.policy.errors import InvalidInput

_EXAMPLE = "nats://HOST:4222,HOST:4222/NAME"
_SCHEMES = ("nats", "tls")

NODE_FILE = "node.json"
"""The file that says whose the data directory of a node is."""


class ClusterAddress(NamedTuple):
    """Where a cluster is."""

    servers: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        """Return it for messages and logs: without users and passwords."""
        scheme, mark, _ = self.servers[0].partition("://")
        hosts = (without_user(one).removeprefix(scheme + mark) for one in self.servers)
        return f"{scheme}{mark}{','.join(hosts)}/{self.name}"


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a node as its operator gives them."""

    cluster: str
    node: str
    advertise: str
    monitoring: tuple[str, ...] = ()


def parse_cluster(text: str) -> ClusterAddress:
    """Parse `nats://HOST:PORT,…/NAME`; each server may have a user and a password.

    Raises `InvalidInput`.
    """
    scheme, mark, rest = text.partition("://")
    hosts, slash, name = rest.rpartition("/")
    is_name = name.replace("-", "").isalnum() and name.isascii()
    if scheme not in _SCHEMES or not mark or not slash or not hosts:
        raise InvalidInput(f"not the address of a cluster: expected {_EXAMPLE}")
    if not is_name or len(name) > cluster_name_max_chars:
        raise InvalidInput(
            f"a cluster's name has up to {cluster_name_max_chars} letters, digits and hyphens, not"
            f" {name!r:.80}"
        )
    servers = tuple(f"{scheme}://{one.removeprefix(scheme + '://')}" for one in hosts.split(","))
    for server in servers:
        try:
            parts = urlsplit(server)
            is_server = bool(parts.hostname) and parts.port != 0 and not parts.path
        except ValueError:
            is_server = False
        if not is_server:
            raise InvalidInput(f"not the address of a NATS server: expected {_EXAMPLE}")
    return ClusterAddress(servers, name)


def without_user(server: str) -> str:
    """Return the address of a server for messages and logs: without user and password."""
    scheme, mark, rest = server.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
