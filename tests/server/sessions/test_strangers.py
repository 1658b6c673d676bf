"""A holder of many keys against one inbox: the messages of known senders stay, and theirs fit."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay, listening
from waypost import PublishResult, QosConfig
from waypost.client import Agent, Identity, Message, connect
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT
from waypost.relay.data_dir import DataDir
from waypost.relay.verify.verify import verify

ANN, BOB, CAROL, DAVE = (Identity.new(f"agent.{one}") for one in ("ann", "bob", "carol", "dave"))
SMALL_INBOX = QosConfig(enabled=True, inbox_max_bytes=60_000)
LARGE = "x" * 2500
SPENT = {"call_budget_remaining": 0}
NUMBERS = count()


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    async with listening(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    """A relay where an inbox has room for about twenty large messages."""
    async with listening(tmp_path / "data", qos=SMALL_INBOX) as running:
        yield running


@asynccontextmanager
async def connected(relay: ListeningRelay, identity: Identity) -> AsyncIterator[Agent]:
    """Connect; at the end, wait until the relay knows of it, so that the name can connect again."""
    async with connect(relay.url, identity) as agent:
        yield agent
    await eventually(lambda: not relay.context.hub.is_connected(identity.subject))


async def send(
    relay: ListeningRelay, identity: Identity, payloads: list[object], **fields: Any
) -> list[PublishResult]:
    """Send messages to `agent.bob` in one connection."""
    messages = [{"subject": "agent.bob", "payload": one, **fields} for one in payloads]
    async with connected(relay, identity) as agent:
        return await agent.send_many(messages)


async def send_as_strangers(
    relay: ListeningRelay, names: int, payloads: list[object], **fields: Any
) -> list[PublishResult]:
    """Send `payloads` under each of so many new names."""
    results = []
    for _ in range(names):
        results += await send(relay, new_name(), payloads, **fields)
    return results


def new_name() -> Identity:
    return Identity.new(f"agent.cheap{next(NUMBERS)}")


async def write_to(relay: ListeningRelay, identity: Identity) -> None:
    """Let `agent.bob` write to another agent, who is known to it from then on."""
    async with connected(relay, BOB) as bob:
        await bob.send(identity.subject, "hello")


async def fill_inbox_of_ann(relay: ListeningRelay) -> None:
    """Let `agent.dave` fill the inbox of `agent.ann` to the last byte, with 20 messages."""
    async with connected(relay, DAVE) as dave:
        await dave.send_many({"subject": "agent.ann", "payload": LARGE} for _ in range(19))
        mailbox = relay.context.relay._runtime.ledger.state.mailboxes["agent.ann"]
        overhead = mailbox.occupancy.bytes // 19 - len(LARGE)
        rest = SMALL_INBOX.inbox_max_bytes - mailbox.occupancy.bytes - overhead
        await dave.send("agent.ann", "x" * rest)
    assert mailbox.occupancy.bytes == SMALL_INBOX.inbox_max_bytes


async def received(relay: ListeningRelay, number: int) -> list[Message]:
    """Return the first messages of `agent.bob`."""
    async with connected(relay, BOB) as bob:
        return [await bob.receive(60) for _ in range(number)]


async def dead_letters(relay: ListeningRelay, sender: str = "") -> set[str]:
    """Return the ids of the dead letters, of one sender or all."""
    found = await relay.context.relay.dead_letters()
    return {one.envelope.id for one in found if sender in ("", one.envelope.sender)}


def accepted(results: list[PublishResult]) -> int:
    return sum(one.delivered_to for one in results)


async def test_many_names_evict_no_message_of_a_known_sender(small: ListeningRelay) -> None:
    await write_to(small, ANN)
    assert accepted(await send(small, ANN, [LARGE] * 9)) == 9
    await send_as_strangers(small, 30, [LARGE] * 3)
    messages = await received(small, 9)
    assert [one.sender for one in messages] == ["agent.ann"] * 9
    assert not await dead_letters(small, "agent.ann")


async def test_a_sender_that_became_known_later_keeps_its_earlier_messages(
    small: ListeningRelay,
) -> None:
    assert accepted(await send(small, ANN, [LARGE] * 9)) == 9
    await write_to(small, ANN)
    await send_as_strangers(small, 30, [LARGE] * 3)
    assert [one.sender for one in await received(small, 9)] == ["agent.ann"] * 9


async def test_a_known_sender_gets_its_room_from_strangers(small: ListeningRelay) -> None:
    await send_as_strangers(small, 10, [LARGE] * 3)
    await write_to(small, ANN)
    assert accepted(await send(small, ANN, [LARGE] * 9)) == 9


async def test_strangers_cannot_fill_the_mailbox_for_a_known_sender(relay: ListeningRelay) -> None:
    await write_to(relay, ANN)
    results = await send_as_strangers(relay, 52, [1] * 20)
    assert accepted(results) == 500
    rejected = [one.rejected[0] for one in results if one.rejected]
    assert {(str(one.reason), one.detail) for one in rejected} == {
        ("quota_exceeded", QUOTA_EXCEEDED_TEXT)
    }
    assert accepted(await send(relay, ANN, [1] * 400)) == 400


async def test_the_share_of_strangers_is_the_same_after_a_restart(relay: ListeningRelay) -> None:
    assert accepted(await send_as_strangers(relay, 26, [1] * 20)) == 500
    await relay.stop()
    await relay.start()
    assert accepted(await send(relay, new_name(), [1])) == 0
    messages = await received(relay, 1)
    assert accepted(await send(relay, new_name(), [1])) == 0
    async with connected(relay, BOB) as bob:
        message = await bob.receive(60)
        await message.ack()
    assert message.id == messages[0].id
    assert accepted(await send(relay, new_name(), [1])) == 1


# --- Notices of evictions ------------------------------------------------------------------------


async def test_the_absent_sender_of_evicted_messages_finds_a_notice(small: ListeningRelay) -> None:
    [first, second, *_] = await send(small, ANN, [LARGE] * 15)
    await write_to(small, CAROL)
    await send(small, CAROL, [LARGE] * 8)
    lost = await dead_letters(small, "agent.ann")
    assert {first.message_id, second.message_id} <= lost
    async with connected(small, ANN) as ann:
        notices = [await ann.receive(60) for _ in lost]
    assert {one.sender for one in notices} == {"_relay"}
    assert [one.eviction.message_ids for one in notices if one.eviction] == [
        [message_id] for message_id in sorted(lost)
    ]
    assert notices[0].payload["text"] == (
        f"your message {first.message_id} to agent.bob was evicted unread: its inbox is full;"
        " send again later"
    )


async def test_a_notice_about_several_messages_survives_a_restart(small: ListeningRelay) -> None:
    await send(small, ANN, [LARGE] * 19)
    await write_to(small, CAROL)
    await send(small, CAROL, [LARGE * 8])
    await small.stop()
    await small.start()
    async with connected(small, ANN) as ann:
        notice = (await ann.receive(60)).eviction
    assert notice is not None
    assert len(notice.message_ids) > 1
    assert set(notice.message_ids) == await dead_letters(small, "agent.ann")


async def test_a_notice_evicts_nothing_and_causes_no_other(small: ListeningRelay) -> None:
    await send(small, ANN, [LARGE] * 20)
    await write_to(small, CAROL)
    await fill_inbox_of_ann(small)
    await send(small, CAROL, [LARGE] * 3)
    lost = await dead_letters(small, "agent.ann")
    assert lost
    assert not await dead_letters(small, "agent.dave")
    assert small.waiting("agent.ann") == 20 + len(lost), "notices find room in a full inbox"


# --- Dead letters --------------------------------------------------------------------------------


async def test_many_names_cannot_flush_the_evicted_messages_of_a_known_sender(
    small: ListeningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.delivery.transitions.mailbox_dead_letters_max", 20)
    await write_to(small, ANN)
    await send(small, ANN, [LARGE] * 25)
    evicted = await dead_letters(small)
    assert len(evicted) > 1
    await send_as_strangers(small, 10, [1] * 10, budget=SPENT)
    assert await dead_letters(small, "agent.ann") == evicted
    assert len(await dead_letters(small)) == 20


async def test_a_stranger_with_few_dead_letters_keeps_them_among_many_names(
    small: ListeningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.delivery.transitions.mailbox_dead_letters_max", 30)
    [first] = await send(small, ANN, [1], budget=SPENT)
    assert str(first.rejected[0].reason) == "budget_exceeded"
    kept = await dead_letters(small)
    await send_as_strangers(small, 10, [1] * 10, budget=SPENT)
    assert kept <= await dead_letters(small)


async def test_dead_letters_of_a_spent_budget_are_under_the_quota(relay: ListeningRelay) -> None:
    results = await send(relay, ANN, [1] * 30, budget=SPENT)
    assert {str(one.rejected[0].reason) for one in results} == {"budget_exceeded"}
    assert len(await dead_letters(relay)) == 20
    await relay.stop()
    await relay.start()
    await send(relay, ANN, [1], budget=SPENT)
    assert len(await dead_letters(relay)) == 20


async def test_dead_letters_of_a_spent_budget_are_under_the_quota_in_bytes(
    relay: ListeningRelay,
) -> None:
    await send(relay, ANN, ["x" * 100_000] * 5, budget=SPENT)
    assert len(await dead_letters(relay)) == 2


async def test_strangers_share_a_bound_of_dead_letters_of_spent_budgets(
    relay: ListeningRelay,
) -> None:
    await send_as_strangers(relay, 26, [1] * 20, budget=SPENT)
    assert len(await dead_letters(relay)) == 500


async def test_a_purged_dead_letter_frees_its_quota(relay: ListeningRelay) -> None:
    await send(relay, ANN, [1] * 20, budget=SPENT)
    await relay.context.relay.purge_dead_letters()
    await send(relay, ANN, [1], budget=SPENT)
    assert len(await dead_letters(relay)) == 1


# --- Last-seen pairs -----------------------------------------------------------------------------


async def test_last_seen_pairs_are_bounded_and_those_of_strangers_forgotten_first(
    relay: ListeningRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.state.index.last_seen_max_pairs", 30, raising=False)
    await send(relay, ANN, [1])
    await write_to(relay, ANN)
    await send_as_strangers(relay, 60, [1])
    await relay.stop()
    connection = sqlite3.connect(tmp_path / "data" / "index.db")
    pairs = set(connection.execute("select sender, recipient from last_seen"))
    connection.close()
    assert len(pairs) <= 30
    assert {("agent.ann", "agent.bob"), ("agent.bob", "agent.ann")} <= pairs
    assert not verify(DataDir(tmp_path / "data")).findings
    await relay.start()
    assert accepted(await send(relay, ANN, [1] * 30)) == 30


async def test_a_sender_with_few_unanswered_pairs_keeps_them_among_those_of_one_with_many(
    relay: ListeningRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.state.index.last_seen_max_pairs", 30, raising=False)
    await write_to(relay, CAROL)  # who has not answered yet
    async with connected(relay, ANN) as ann:
        await ann.send_many(
            {"subject": f"agent.name{number}", "payload": 1} for number in range(60)
        )
    await relay.stop()
    await relay.start()
    assert accepted(await send(relay, CAROL, [1] * 30)) == 30
