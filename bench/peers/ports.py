"""Ports for servers that need a number, also in tests: to choose first, and to listen on later.

They are outside the range from which the system takes the ports of outgoing connections and of
servers that listen on port 0. Inside it, a connection of any program may get the port before the
server does, and a client that waits for the server may connect to itself.
"""

import socket
from random import Random

FIRST, LAST = 10_000, 32_767  # the system's own begin at 32768 on Linux, at 49152 on macOS

_choose = Random().randint  # not the seeded one: two processes would choose the same
_given: set[int] = set()


def free_port() -> int:
    """Return a port without a listener, another one for each call of this process."""
    while True:
        port = _choose(FIRST, LAST)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def free_ports(count: int) -> list[int]:
    """Return different ports without a listener."""
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
