"""Commands at a hostile relay: they show what it sends, obey none of it, and end."""

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect

from tests.cli.hostile_relay import Answer, hostile_relay, json_answer
from tests.cli.serve_process import User
from waypost.cli.remote.responses import DeadLetterResponse, PeekResponse
from waypost.client import http_transport
from waypost.wire.history_bodies import MessageHistoryResponse, Thread
from waypost.wire.http_bodies import ConfigState, EndpointList, RuleList
from waypost.wire.stats_bodies import RelayStats

HOSTILE = "\x1b]52;c;aGk=\x07\x9b2J\u202etxt.exe\u2066\u200b\U000e0041\nwaypost: all is well"
ESCAPED = r"\x1b]52;c;aGk=\x07\x9b2J\u202etxt.exe\u2066\u200b\U000e0041\nwaypost: all is well"


def operator(url: str, home: Path) -> User:
    return User(url, home, WAYPOST_OPERATOR_TOKEN="token")


def assert_harmless(*outputs: str) -> None:
    for output in outputs:
        unsafe = [one for one in output if not one.isprintable() and one != "\n"]
        assert not unsafe, ascii(output)
        assert "\nwaypost: all is well" not in output


def test_an_error_text_of_the_relay_is_one_escaped_line(tmp_path: Path) -> None:
    problem = {"error": HOSTILE, "reason": HOSTILE, "retry_after_ms": 0}
    for status in ("400 Bad", "403 Forbidden", "429 Later", "500 Internal"):
        with hostile_relay(json_answer(problem, status)) as url:
            result = operator(url, tmp_path)("endpoints", exits=2 if status[:3] == "400" else 1)
        assert ESCAPED in result.stderr
        assert result.stderr.count("\n") == 1
        assert_harmless(result.stdout, result.stderr)


def hostile_value(kind: Any) -> Any:
    """Return a valid value of a msgspec type, with hostile text wherever text may be."""
    match kind:
        case inspect.StructType(fields=fields):
            return {one.encode_name: hostile_value(one.type) for one in fields}
        case inspect.ListType(item_type=item):
            return [hostile_value(item)]
        case inspect.VarTupleType(item_type=item):
            return [hostile_value(item)]
        case inspect.TupleType(item_types=items):
            return [hostile_value(item) for item in items]
        case inspect.DictType(value_type=value):
            statuses = ("pending", "leased", "dead", HOSTILE)
            return {name: hostile_value(value) for name in statuses}
        case inspect.UnionType(types=types):
            return hostile_value(types[0])
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.DateTimeType():
            return "2026-01-01T00:00:00Z"
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case _:
            return HOSTILE


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("rules", "list"), RuleList),
        (("explain", "some-id"), MessageHistoryResponse),
        (("thread", "some-id"), Thread),
        (("inbox", "agent.a"), PeekResponse),
        (("endpoints",), EndpointList),
        (("stats",), RelayStats),
        (("dead-letters", "list"), DeadLetterResponse),
        (("dead-letters", "list", "--group"), DeadLetterResponse),
        (("config", "show"), ConfigState),
        (("config", "check"), ConfigState),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else one.__name__,
)
def test_no_field_of_an_answer_controls_the_terminal(
    tmp_path: Path, arguments: tuple[str, ...], answer: Any
) -> None:
    document = {"count": 1}  # the answer to every request of the command
    for kind in (RelayStats, answer):
        document |= hostile_value(inspect.type_info(kind))
    document.pop("next", None)
    with hostile_relay(json_answer(document)) as url:
        code = 1 if arguments[0] in ("config", "rules") else 0  # it reports problems
        text = operator(url, tmp_path)(*arguments, exits=code)
        printed = operator(url, tmp_path)(*arguments, "--json", exits=code)
    assert_harmless(text.stdout, text.stderr, printed.stdout, printed.stderr)
    assert HOSTILE in texts_of(json.loads(printed.stdout))


def texts_of(document: Any) -> set[str]:
    """Return every text in a document."""
    if isinstance(document, dict):
        return set().union(*(texts_of(one) for one in (*document, *document.values())))
    if isinstance(document, list):
        return set().union(*(texts_of(one) for one in document))
    return {document} if isinstance(document, str) else set()


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    while True:
        connection.sendall(chunk)


def compressed(connection: socket.socket) -> None:
    body = gzip.compress(b" " * (1 << 24))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def dripping_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    drip(connection, b"X-Header: 1\r\n")


def dripping_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    drip(connection, b" ")


def drip(connection: socket.socket, bytes_: bytes) -> None:
    """Send `bytes_` again and again, until the other side has gone."""
    connection.settimeout(0.05)
    while True:
        connection.sendall(bytes_)
        try:
            if not connection.recv(1):
                return
        except TimeoutError:
            pass


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (endless, "it is larger than 8 MiB"),
        (compressed, "it is compressed"),
        (dripping_headers, "timed out"),
        (dripping_body, "timed out"),
        (json_answer([[[]]]), "unexpected response"),
        (lambda connection: connection.sendall(b"X" * 10_000_000), "is not a relay"),
    ],
    ids=["endless", "compressed", "dripping headers", "dripping body", "other JSON", "no HTTP"],
)
def test_an_answer_has_a_size_and_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, text: str
) -> None:
    monkeypatch.setattr(http_transport, "ANSWER_MAX_BYTES", 8 << 20)
    if text == "timed out":
        monkeypatch.setattr(http_transport, "EXCHANGE_TIMEOUT_S", 1.0)
    with hostile_relay(answer) as url:
        result = operator(url, tmp_path)("rules", "list", exits=1)
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_deeply_nested_answer_is_one_sentence(tmp_path: Path) -> None:
    body = b"[" * 100_000
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with hostile_relay(lambda connection: connection.sendall(head + body)) as url:
        result = operator(url, tmp_path)("config", "show", exits=1)
    assert "unexpected response" in result.stderr
