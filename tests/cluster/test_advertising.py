"""Whether the address that a node advertises reaches it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from waypost.cluster.advertising import check_address


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Answer one request with these bytes, and close; yields the address."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving.join()


@pytest.mark.parametrize("answer", [b"INFO {}\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}"])
def test_an_address_of_something_else_is_wrong(answer: bytes) -> None:
    with answering(answer) as address:
        wrong, unreachable = check_address(address, "this-node")
    assert "reaches something else than this node" in wrong
    assert not unreachable


def test_an_address_that_does_not_answer_may_be_right() -> None:
    with answering(b"") as address:
        wrong, unreachable = check_address(address, "this-node")
    assert not wrong
    assert "cannot be reached from this machine" in unreachable
