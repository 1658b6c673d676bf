"""A server that answers commands with whatever a test wants, over a real socket."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = Callable[[socket.socket], None]


@contextmanager
def hostile_relay(answer: Answer, requests: list[bytes] | None = None) -> Iterator[str]:
    """Answer each request on one port with `answer`; yield the URL. Requests go to `requests`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # the block has ended
            with connection:
                try:
                    request = connection.recv(65536)
                    if requests is not None:
                        requests.append(request)
                    answer(connection)
                except OSError:
                    pass  # the command has closed its side

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def json_answer(document: Any, status: str = "200 OK") -> Answer:
    """Answer with a JSON document, and close the connection."""
    body = json.dumps(document, ensure_ascii=False).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return lambda connection: connection.sendall(head.encode() + body)
