"""Requests that cannot be accepted: each is answered with the problem shape."""

import asyncio
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.policy.errors import WaypostError
from waypost.relay import errors as relay_errors
from waypost.server.context import ServeOptions
from waypost.server.http import routing
from waypost.server.http.errors import STATUSES, rejection_of
from waypost.server.identity import errors as identity_errors

AS_JSON = {"Content-Type": "application/json"}


def problem(answered: Any) -> tuple[int, str]:
    assert answered.headers["content-type"] == "application/json"
    body = answered.json()
    assert set(body) <= {"error", "reason", "retry_after_ms"}
    assert body["error"]
    return answered.status_code, body["reason"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"subject": "agent.b"}',
        b'{"subject": 7, "payload": 1}',
        b'{"subject": "agent.b", "payload": 1, "surprise": 1}',
        b'{"subject": "not a subject", "payload": 1}',
        b'{"subject": "agent.b", "payload": 1, "budget": {"ttl": -1}}',
        b'{"subject": "agent.b", "payload": 1, "budget": {"ttl": 1e300}}',
        b'{"subject": "agent.b", "payload": 1, "message_id": "../x"}',
        b'{"subject": "agent.b", "payload": 1, "parent": {"id": "a b", "budget": {"ttl": 1}}}',
        b'{"messages": []}',
        b'{"messages": [{"subject": "agent.b"}]}',
        b'{"messages": [], "subject": "agent.b", "payload": 1}',
        b'{"subject": "agent.b", "payload": "\xff"}',
        b'{"subject": "agent.b", "payload": "\\ud800"}',
        b'{"subject": "agent.b", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"subject": "agent.b", "payload": ' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"\xff": 1}',
    ],
)
async def test_an_invalid_body_is_400(served: HttpRelay, content: bytes) -> None:
    answered = await served.call("POST", "/v1/messages", content=content, headers=AS_JSON)
    assert problem(answered) == (400, "invalid")


async def test_the_error_of_one_message_names_that_message(served: HttpRelay) -> None:
    answered = await served.call(
        "POST", "/v1/messages", json={"subject": "agent.b", "payload": 1, "reply_to": 5}
    )
    assert "$.reply_to" in answered.json()["error"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=ten",
        "limit=1.5",
        "limit=",
        "limit=null",
        "limit=1&limit=2",
        "wait=-1",
        "wait=nan",
        "wait=inf",
        "max_size_bytes=-1",
        "max_size_bytes=99999999999999999999",
        "surprise=1",
        "subject=agent.b",
    ],
)
async def test_an_invalid_query_is_400(served: HttpRelay, query: str) -> None:
    token = await served.token("agent.b")
    answered = await served.call("GET", f"/v1/inbox/agent.b?{query}", token=token)
    assert problem(answered) == (400, "invalid")


@pytest.mark.parametrize("subject", ["a..b", "agent.*", "%20", "x" * 300, "%ff", "a%00b"])
async def test_a_path_without_a_valid_subject_is_400(served: HttpRelay, subject: str) -> None:
    answered = await served.call("GET", f"/v1/inbox/{subject}", token=served.operator)
    assert problem(answered) == (400, "invalid")


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nothing", "/v2/messages", "/v1/messages/", "/v1/inbox/a/b/c", "//"]
)
async def test_an_unknown_path_is_404(served: HttpRelay, path: str) -> None:
    answered = await served.call("GET", f"http://relay.test:8080{path}")
    assert problem(answered) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/messages", "GET, POST"),
        ("PATCH", "/v1/rules", "DELETE, GET, POST"),
        ("DELETE", "/v1/inbox/batch", "GET, POST"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_an_unsupported_method_is_405(
    served: HttpRelay, method: str, path: str, allowed: str
) -> None:
    answered = await served.call(method, path)
    assert problem(answered) == (405, "method_not_allowed")
    assert answered.headers["allow"] == allowed


async def test_head_of_an_inbox_leases_nothing(served: HttpRelay) -> None:
    await served.publish("agent.b")
    answered = await served.call("HEAD", "/v1/inbox/agent.b", token=served.operator)
    assert (answered.status_code, answered.headers["allow"]) == (405, "GET")
    assert served.relay.metrics().by_status["leased"] == 0


async def test_head_works_where_get_has_no_side_effects(served: HttpRelay) -> None:
    assert (await served.call("HEAD", "/healthz")).status_code == 200


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_anything_but_json_is_415(served: HttpRelay, media_type: str) -> None:
    answered = await served.call(
        "POST",
        "/v1/messages",
        content=b'{"subject":"agent.b","payload":1}',
        headers={"Content-Type": media_type},
    )
    assert problem(answered) == (415, "unsupported_media_type")


async def test_json_may_state_its_charset(served: HttpRelay) -> None:
    answered = await served.call(
        "POST",
        "/v1/messages",
        content=b'{"subject":"agent.b","payload":1}',
        headers={"Content-Type": "Application/JSON; charset=utf-8"},
    )
    assert answered.status_code == 200


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
async def test_a_body_over_the_limit_is_413(serve: Serve, more: int, status: int) -> None:
    content = b'{"subject":"agent.b","payload":1}'
    served = await serve(ServeOptions(body_max_bytes=len(content)))
    answered = await served.call(
        "POST", "/v1/messages", content=content + b" " * more, headers=AS_JSON
    )
    assert answered.status_code == status


async def test_a_body_that_grows_past_the_limit_is_413(serve: Serve) -> None:
    served = await serve(ServeOptions(body_max_bytes=1000))

    async def pieces() -> Any:
        for _ in range(5):
            yield b" " * 300

    answered = await served.call("POST", "/v1/messages", content=pieces(), headers=AS_JSON)
    assert problem(answered) == (413, "too_large")


async def test_a_body_that_is_announced_as_too_large_is_not_read(serve: Serve) -> None:
    served = await serve(ServeOptions(body_max_bytes=1000))
    read: list[int] = []

    async def pieces() -> Any:
        read.append(1001)
        yield b" " * 1001

    headers = {**AS_JSON, "Content-Length": "1001"}
    answered = await served.call("POST", "/v1/messages", content=pieces(), headers=headers)
    assert problem(answered) == (413, "too_large")
    assert read == []


async def test_bodies_without_messages_are_small(served: HttpRelay) -> None:
    content = b" " * (routing.SMALL_BODY_MAX_BYTES + 1)
    answered = await served.call(
        "PUT", "/v1/config", token=served.operator, content=content, headers=AS_JSON
    )
    assert problem(answered) == (413, "too_large")


async def test_a_payload_over_its_own_limit_is_400(serve: Serve) -> None:
    served = await serve(max_payload_bytes=10)
    answered = await served.publish("agent.b", "x" * 9)
    assert problem(answered) == (400, "invalid")


async def test_a_body_that_never_ends_is_408(
    served: HttpRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "BODY_WAIT_MAX_S", 0.01)

    async def pieces() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    answered = await served.call("POST", "/v1/messages", content=pieces(), headers=AS_JSON)
    assert problem(answered) == (408, "too_slow")


async def test_a_relay_that_is_not_open_yet_is_503(served: HttpRelay) -> None:
    del served.app.state.context
    assert problem(await served.publish("agent.b")) == (503, "stopped")


async def test_a_relay_that_is_closed_is_503(served: HttpRelay) -> None:
    await served.relay.close()
    assert problem(await served.publish("agent.b")) == (503, "stopped")


async def test_an_internal_error_is_500_without_details(
    served: HttpRelay, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken() -> str:
        raise ZeroDivisionError("secret detail")

    served.context.authenticator.challenge = mistaken  # type: ignore[method-assign]
    answered = await served.call("POST", "/v1/auth/challenge")
    assert problem(answered) == (500, "internal")
    assert "secret" not in answered.text
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("module", [relay_errors, identity_errors])
def test_every_error_class_has_a_status(module: Any) -> None:
    ours = {
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, WaypostError)
        and one.__module__ == module.__name__
    }
    at_start_only = {
        identity_errors.IdentitiesDamaged,
        identity_errors.SecretUnusable,
        relay_errors.LogUnusable,
        relay_errors.LogLost,
    }
    assert ours - at_start_only <= {kind for kind, _, _ in STATUSES}


def test_subclasses_come_first_in_the_table() -> None:
    kinds = [kind for kind, _, _ in STATUSES]
    for at, kind in enumerate(kinds):
        assert not any(issubclass(later, kind) for later in kinds[at + 1 :]), kind


def test_an_error_may_quote_invalid_unicode() -> None:
    assert rejection_of(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")).status == 400
    assert rejection_of(relay_errors.UnknownEndpoint("\udcff")).problem.error.isprintable()
