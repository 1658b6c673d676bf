"""What a relay on a port says about its HTTP, and tools for models."""

from typing import Any

import pytest

from tests.mcp.models import running_model
from tests.specifications.served_relay import ServedRelay

ROUTES = {
    "POST /v1/messages",
    "GET /v1/inbox/{subject}",
    "POST /v1/inbox/{subject}/ack",
    "GET /v1/endpoints",
    "GET /v1/dead-letters",
    "GET /v1/rules",
    "GET /v1/config",
    "GET /v1/stats",
}
TYPES = {"Envelope", "Budget", "AccessRule", "PublishResult", "Rejection", "DeadLetter"}


@pytest.fixture
async def document(served: ServedRelay) -> Any:
    await served.start()
    return (await served.call("GET", "/openapi.json")).json()


def references(part: Any) -> set[str]:
    """Return every schema reference within `part`."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    found = {part["$ref"]} if isinstance(part, dict) and "$ref" in part else set()
    return found.union(*(references(one) for one in inner))


async def test_the_routes_are_described(document: Any) -> None:
    described = {f"{m.upper()} {path}" for path, some in document["paths"].items() for m in some}
    assert described >= ROUTES


async def test_every_schema_that_is_named_is_defined(document: Any) -> None:
    known = document["components"]["schemas"]
    assert references(document) <= {f"#/components/schemas/{name}" for name in known}
    assert known.keys() >= TYPES


async def test_a_model_sends_and_reads_through_tools(served: ServedRelay) -> None:
    relay = await served.start()
    async with (
        running_model(relay.url, relay.identity("agent.ann")) as ann,
        running_model(relay.url, relay.identity("agent.bob")) as bob,
    ):
        sent = await ann.send("agent.bob", "hello")
        assert [(message_id, "hello" in text) for message_id, text in await bob.read()] == [
            (sent, True)
        ]
