"""Mailboxes created by the first message to a subject."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns import counting_turns
from waypost import AccessRule, Relay, Settings
from waypost.policy.rate_limits import RateLimitConfig
from waypost.server.mailbox_factory import MailboxFactory
from waypost.testing import ManualClock


@pytest.fixture
def factories() -> list[MailboxFactory]:
    """The factory that the relay uses, once a test has created it."""
    return []


@pytest.fixture
async def relay(
    tmp_path: Path, clock: ManualClock, factories: list[MailboxFactory]
) -> AsyncIterator[Relay]:
    settings = Settings(
        storage="journal",
        durability="async",
        watch_files=False,
        default_ttl_ms=60_000,
        rate_limit=RateLimitConfig(max_per_window=10),
    )
    async with Relay(
        tmp_path / "data",
        settings=settings,
        clock=clock,
        create_mailbox=lambda subject: any(one.create(subject) for one in factories),
    ) as opened:
        yield opened


def names(relay: Relay) -> list[str]:
    return [endpoint.subject for endpoint in relay.list_endpoints()]


async def test_other_tasks_run_while_many_mailboxes_are_created(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    factories.append(MailboxFactory(relay, 1000))
    drafts = [
        {"subject": f"agent.new{n}", "payload": n, "sender": f"agent.s{n % 50}"} for n in range(400)
    ]
    results, turns = await counting_turns(relay.publish_many(drafts))
    assert [one.delivered_to for one in results] == [1] * 400
    assert turns >= 400 // 4 - 1


async def test_a_message_creates_the_mailbox_of_its_subject(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    factories.append(MailboxFactory(relay, 10))
    result = await relay.publish("agent.new", 1, sender="agent.a")
    assert result.delivered_to == 1
    assert names(relay) == ["agent.new"]


@pytest.mark.parametrize("subject", ["team.x", "agent", "agents.x", "agent.*", "agent.>", "_relay"])
async def test_only_literal_subjects_under_agent_get_one(
    relay: Relay, factories: list[MailboxFactory], subject: str
) -> None:
    factories.append(MailboxFactory(relay, 10))
    result = await relay.publish(subject, 1, sender="agent.a")
    assert (result.delivered_to, names(relay)) == (0, [])


async def test_without_a_factory_no_mailbox_is_created(relay: Relay) -> None:
    result = await relay.publish("agent.new", 1, sender="agent.a")
    assert (result.delivered_to, names(relay)) == (0, [])


async def test_a_rate_limited_sender_creates_no_mailboxes(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    factories.append(MailboxFactory(relay, 100))
    drafts = [{"subject": f"agent.n{n}", "payload": n, "sender": "agent.a"} for n in range(20)]
    await relay.publish_many(drafts)
    assert len(names(relay)) == 10


async def test_a_denied_sender_creates_no_mailbox(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    factories.append(MailboxFactory(relay, 10))
    relay.access.add_rule(AccessRule("agent.a", "agent.new", "deny"))
    await relay.publish_many([{"subject": "agent.new", "payload": 1, "sender": "agent.a"}])
    assert names(relay) == []


async def test_there_is_a_bound(
    relay: Relay, factories: list[MailboxFactory], caplog: pytest.LogCaptureFixture
) -> None:
    factories.append(MailboxFactory(relay, 2))
    delivered = [
        (await relay.publish(f"agent.n{n}", 1, sender="agent.a")).delivered_to for n in range(6)
    ]
    assert delivered == [1, 1, 0, 0, 0, 0]
    warned = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warned) == 3  # of 4 rejections: the 1st, 2nd and 4th


async def test_empty_mailboxes_are_removed_to_make_room(
    relay: Relay, factories: list[MailboxFactory], clock: ManualClock
) -> None:
    factories.append(MailboxFactory(relay, 2))
    for n in range(2):
        await relay.publish(f"agent.n{n}", 1, sender="agent.a")
    clock.advance_ms(60_001)
    relay.sweep()
    result = await relay.publish("agent.late", 1, sender="agent.a")
    assert result.delivered_to == 1
    assert names(relay) == ["agent.late"]


async def test_mailboxes_with_messages_are_never_removed(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    factories.append(MailboxFactory(relay, 1))
    await relay.publish("agent.full", "keep me", sender="agent.a")
    await relay.publish("agent.late", 1, sender="agent.a")
    [kept] = await relay.lease("agent.full")
    assert kept.payload == "keep me"


async def test_the_mailbox_of_an_authenticated_agent_is_never_removed(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    mailboxes = MailboxFactory(relay, 1)
    factories.append(mailboxes)
    await relay.publish("agent.here", 1, sender="agent.a")
    mailboxes.open_for("agent.here")
    [got] = await relay.lease("agent.here")
    await relay.ack("agent.here", got.id)
    await relay.publish("agent.late", 1, sender="agent.a")
    assert names(relay) == ["agent.here"]


async def test_an_authenticated_agent_gets_a_mailbox_beyond_the_bound(
    relay: Relay, factories: list[MailboxFactory]
) -> None:
    mailboxes = MailboxFactory(relay, 1)
    factories.append(mailboxes)
    for subject in ("team.x", "team.y"):
        mailboxes.open_for(subject)
    assert names(relay) == ["team.x", "team.y"]


async def test_mailboxes_of_an_earlier_run_are_removed_unless_their_agent_is_known(
    relay: Relay,
    factories: list[MailboxFactory],
) -> None:
    for subject in ("agent.known", "agent.never-came", "team.x"):
        relay.register_endpoint(subject)
    factories.append(MailboxFactory(relay, 3, {"agent.known", "team.x"}.__contains__))
    await relay.publish("agent.late", 1, sender="agent.a")
    assert names(relay) == ["agent.known", "team.x", "agent.late"]
