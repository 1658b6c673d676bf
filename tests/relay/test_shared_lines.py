"""Messages leased or acknowledged together share one line of the journal, and nothing else."""

import json
from pathlib import Path
from typing import Any

from tests.relay.conftest import Start
from tests.relay.observing import drafts, events, payloads, send
from waypost import Relay
from waypost.relay.data_dir import DataDir
from waypost.relay.inspection.search import SearchQuery
from waypost.relay.verify.verify import verify
from waypost.testing import ManualClock


def lines(data: Path, kind: str) -> list[dict[str, Any]]:
    [segment] = (data / "journal").glob("*.open")
    found = [json.loads(line) for line in segment.read_bytes().splitlines()]
    return [line for line in found if line["kind"] == kind]


async def kinds(relay: Relay, message_id: str) -> list[str]:
    steps = (await relay.explain(message_id)).steps
    return [step.kind for step in steps if step.kind != "check"]


async def test_messages_taken_and_acknowledged_together_are_one_line(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3))
    ids = [envelope.id for envelope in await relay.lease("agent.a")]
    await relay.ack("agent.a", ids)
    assert [line["ids"] for line in lines(data, "leased")] == [ids]
    assert [line["ids"] for line in lines(data, "acked")] == [ids]


async def test_events_of_a_shared_line_have_their_own_numbers(start: Start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3))
    await relay.ack("agent.a", [envelope.id for envelope in await relay.lease("agent.a")])
    await send(relay)
    numbers = [event["seq"] for event in events(data)]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_deliveries_of_different_attempts_have_their_own_lines(
    start: Start, data: Path, clock: ManualClock
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(2))
    await relay.nack("agent.a", [envelope.id for envelope in await relay.lease("agent.a")])
    await relay.publish_many(drafts(2))
    assert len(await relay.lease("agent.a")) == 4
    await relay.idle()
    assert [(len(line["ids"]), line.get("attempt", 1)) for line in lines(data, "leased")] == [
        (2, 1),
        (2, 2),
        (2, 1),
    ]


async def test_each_message_of_a_shared_line_has_its_own_history(start: Start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3))
    first, second, third = [envelope.id for envelope in await relay.lease("agent.a")]
    await relay.ack("agent.a", [first, third])
    assert await kinds(relay, first) == ["accepted", "leased", "acked"]
    assert await kinds(relay, second) == ["accepted", "leased"]
    reopened = await start()
    assert await kinds(reopened, third) == ["accepted", "leased", "acked"]


async def test_what_was_acknowledged_together_is_gone_after_a_restart(start: Start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many([{**draft, "payload": n} for n, draft in enumerate(drafts(4))])
    ids = [envelope.id for envelope in await relay.lease("agent.a")]
    await relay.ack("agent.a", ids[:3])
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == [3]


async def test_verify_finds_nothing_wrong_with_shared_lines(start: Start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(5))
    await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a", limit=4)])
    await relay.close()
    assert verify(DataDir(data)).findings == []


async def test_a_search_finds_what_became_of_messages_of_a_shared_line(start: Start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3))
    ids = [envelope.id for envelope in await relay.lease("agent.a")]
    await relay.ack("agent.a", ids)
    found = await relay.inspect().search(SearchQuery(sender="agent.b"))
    assert {(one.id, one.outcome) for one in found.messages} == {(one, "acked") for one in ids}
