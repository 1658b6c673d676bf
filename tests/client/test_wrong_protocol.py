"""Servers that do not speak HTTP, such as one that expects TLS: each outcome has the same error."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.eventually import eventually
from waypost.client import Identity, connect
from waypost.client.http import HttpClient, RemoteError

TLS_ALERT = bytes.fromhex("15030300020250")
"""The answer of OpenSSL to plain HTTP: a fatal alert."""


def reset(connection: socket.socket) -> None:
    """Close with a reset, as the system does if bytes are unread."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reset_at_once(connection: socket.socket) -> None:
    reset(connection)


def reset_after_the_request(connection: socket.socket) -> None:
    connection.recv(65536)
    reset(connection)


def answer_with_an_alert(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(TLS_ALERT)


def close_without_an_answer(connection: socket.socket) -> None:
    connection.recv(65536)


BEHAVIOURS = [
    reset_at_once,
    reset_after_the_request,
    answer_with_an_alert,
    close_without_an_answer,
]
Behaviour = Callable[[socket.socket], None]


@contextmanager
def server(behaviour: Behaviour) -> Iterator[str]:
    """Treat each connection with `behaviour`; give the address."""

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                behaviour(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            thread.join(60)


@pytest.mark.parametrize("size", [1, 100_000])  # ended while it is read, or still written
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_request_has_one_error_however_the_server_ends_it(
    behaviour: Behaviour, size: int
) -> None:
    with server(behaviour) as address:
        client = HttpClient(f"http://{address}")
        with pytest.raises(RemoteError, match="is it https:// instead"):
            client.post("/v1/messages", {"payload": "x" * size}, dict)
        client.close()


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_an_agent_tries_again_however_the_server_ends_it(
    behaviour: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waypost.client")

    async def stay_connected(url: str) -> None:
        async with connect(url, Identity.new("agent.a")):
            pass

    with server(behaviour) as address:
        task = asyncio.create_task(stay_connected(f"ws://{address}"))
        hint = "is it wss:// instead?; reconnecting"
        await eventually(lambda: task.done() or hint in caplog.text, "a failed attempt")
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


# Python leaves a socket open that was reset before it got its TLS.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_over_tls_the_error_names_the_other_scheme(behaviour: Behaviour) -> None:
    with server(behaviour) as address:
        client = HttpClient(f"https://{address}")
        with pytest.raises(RemoteError, match="is it http:// instead"):
            client.get("/v1/stats", dict)
        client.close()
