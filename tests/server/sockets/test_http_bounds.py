"""HTTP connections of strangers: bounded in bytes, in waiting requests and in time."""

import asyncio

import pytest

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sockets.raw_connection import DeafSocket, RawConnection

GET = b"GET /healthz HTTP/1.1\r\nHost: %s\r\n%s\r\n"
CHUNKED = (
    b"POST /v1/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
)
KIB = 1024
MIB = 1024 * 1024


async def assert_serves(relay: SocketRelay) -> None:
    other = await RawConnection.open(relay.address)
    await other.send(GET % (relay.address.encode(), b"Connection: close\r\n"))
    assert (await other.response()).status == 200
    other.close()


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (b"GET /", b"x" * 8 * KIB),
        (b"GET / HTTP/1.1\r\nX: ", b"x" * 8 * KIB),
        (b"GET / HTTP/1.1\r\n", b"X: x\r\n" * KIB),
        (b"", b"\r\n" * 4 * KIB),
        (CHUNKED + b"0\r\n", b"X: x\r\n" * KIB),
        (CHUNKED + b"0\r\nX: ", b"x" * 8 * KIB),
        (CHUNKED + b"1;", b"x" * 8 * KIB),
    ],
    ids=["path", "header", "headers", "empty lines", "trailers", "trailer", "chunk extension"],
)
async def test_headers_without_end_are_rejected_at_64_kib(
    served: SocketRelay, begin: bytes, endless: bytes
) -> None:
    connection = await RawConnection.open(served.address)
    await connection.send(begin.replace(b"%s", served.address.encode()))
    for _ in range(14):  # 84 to 112 KiB
        await connection.send(endless)
    response = await connection.response()
    assert response.status == 431
    assert "at most 65,536 bytes" in response.error()
    assert response.headers["connection"] == "close"
    assert await connection.ended() == b""
    await assert_serves(served)


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        (b"X: %s\r\n" % (b"x" * 60 * KIB), 200),
        (b"X: x\r\n" * 120, 200),
        (b"X: %s\r\n" % (b"x" * 65 * KIB), 431),
        (b"X: x\r\n" * 130, 431),
    ],
    ids=["60 KiB", "120 headers", "65 KiB", "130 headers"],
)
async def test_a_complete_head_has_limits(served: SocketRelay, extra: bytes, status: int) -> None:
    connection = await RawConnection.open(served.address)
    await connection.send(GET % (served.address.encode(), extra))
    assert (await connection.response()).status == status
    connection.close()


async def test_trailers_are_dropped(served: SocketRelay) -> None:
    connection = await RawConnection.open(served.address)
    await connection.send(CHUNKED % served.address.encode() + b"0\r\nHost: elsewhere\r\n\r\n")
    assert (await connection.response()).status in (400, 422)  # an empty object is no message
    await connection.send(GET % (served.address.encode(), b""))
    assert (await connection.response()).status == 200
    connection.close()


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nX: x"], ids=["nothing", "half of the headers"]
)
async def test_a_connection_without_a_complete_request_is_closed_in_time(
    served: SocketRelay, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.http.HEAD_WAIT_S", 0.2)
    connection = await RawConnection.open(served.address)
    await connection.send(begin)
    rest = await connection.ended()
    assert rest.startswith(b"HTTP/1.1 408" if begin else b"")
    await assert_serves(served)


async def test_a_body_that_no_response_waits_for_keeps_no_connection_open(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.http.HEAD_WAIT_S", 0.2)
    connection = await RawConnection.open(served.address)
    await connection.send(GET % (served.address.encode(), b"Content-Length: 1000000\r\n") + b"x")
    assert (await connection.response()).status == 200
    await connection.send(b"x")  # stops the timer of idle connections
    assert await connection.ended() == b""


async def test_long_bodies_of_strangers_are_bounded_together(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.http.routing.arriving_bodies_max_bytes", MIB)
    head = (
        b"POST /v1/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    long = [await RawConnection.open(served.address) for _ in range(12)]
    for one in long:  # none is complete: together they are more than half a MiB
        await one.send(head % (served.address.encode(), 200 * KIB) + b" " * 100 * KIB)
    response = await long[-1].response()
    assert (response.status, response.error()) == (503, "too many long requests at once; try again")
    message = b'{"subject": "agent.a", "payload": 1}'
    short = await RawConnection.open(served.address)
    await short.send(head % (served.address.encode(), len(message)) + message)
    assert (await short.response()).status == 200
    for one in [*long, short]:
        one.close()
    await eventually(lambda: served.context.arriving.held_bytes == 0, "the bodies to be dropped")


async def test_two_requests_may_be_sent_at_once(served: SocketRelay) -> None:
    connection = await RawConnection.open(served.address)
    for _ in range(3):
        await connection.send(GET % (served.address.encode(), b"") * 2)
        assert [(await connection.response()).status for _ in range(2)] == [200, 200]
    connection.close()


async def test_requests_that_wait_for_answers_do_not_pile_up(served: SocketRelay) -> None:
    connection = await RawConnection.open(served.address)
    tasks = len(asyncio.all_tasks())
    await connection.send(GET % (served.address.encode(), b"") * 3000)
    first, second = await connection.response(), await connection.response()
    assert (first.status, second.status) == (200, 200)
    assert "connection" not in first.headers
    assert second.headers["connection"] == "close"
    assert await connection.ended() == b""
    assert len(asyncio.all_tasks()) <= tasks
    await assert_serves(served)


async def test_a_caller_that_does_not_read_its_response_is_disconnected(
    serve_relay: ServeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.http.WRITE_WAIT_S", 0.2)
    relay = await serve_relay()
    deaf = DeafSocket(relay.address)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: %s\r\n\r\n" % relay.address.encode()

    def is_reset() -> bool:
        deaf.send(request)
        return deaf.is_reset()

    await eventually(is_reset, "the connection to be cut")
    deaf.close()
    await assert_serves(relay)


async def test_a_rejected_caller_that_does_not_close_is_disconnected(
    serve_relay: ServeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.http.HEAD_WAIT_S", 0.2)
    relay = await serve_relay()
    deaf = DeafSocket(relay.address)
    deaf.send(b"not a request\r\n\r\n")
    await eventually(lambda: deaf.send(b"x") < 0 or deaf.is_reset(), "the connection to be closed")
    deaf.close()
