"""Dialogues: two agents take turns, and every conversation still ends."""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import events, reasons, send
from waypost import Envelope, HousekeepingConfig, InvalidMessage, PublishResult, Reason, Relay

Answer = Callable[[Relay, Envelope, str], object]


async def leased(relay: Relay, subject: str) -> Envelope:
    (envelope,) = await relay.lease(subject)
    await relay.ack(subject, envelope.id)
    return envelope


async def turn(relay: Relay, me: str, message: Envelope) -> PublishResult:
    return await send(relay, to=message.reply_to or message.sender, sender=me, parent=message)


@pytest.fixture
def relay_of_four(relay: Relay) -> Relay:
    for name in "abcd":
        relay.register_endpoint(f"agent.{name}")
    return relay


async def test_a_dialogue_ends_when_its_calls_are_spent(relay_of_four: Relay) -> None:
    relay, turns = relay_of_four, 1
    result = await send(relay, to="agent.b", sender="agent.a")
    first = result.message_id
    while result.delivered_to:
        me = ("agent.a", "agent.b")[turns % 2]
        message = await leased(relay, me)
        assert message.thread == first
        assert message.answer == (turns % 2 == 0)
        assert message.budget.call_budget_remaining == 10 - turns
        result = await turn(relay, me, message)
        turns += 1
    assert turns == 11
    assert reasons(result) == [Reason.BUDGET_EXCEEDED]
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "call budget exhausted"


async def test_two_handlers_that_answer_each_other_end(relay_of_four: Relay) -> None:
    relay = relay_of_four

    async def answer(envelope: Envelope) -> None:
        await turn(relay, envelope.subject, envelope)

    relay.subscribe("agent.*", answer)
    await send(relay, to="agent.b", sender="agent.a")
    await relay.idle()
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.reason == "call budget exhausted"
    assert relay.metrics().events["accepted"] == 10


async def test_a_request_may_follow_from_the_reply_to_another(relay_of_four: Relay) -> None:
    relay = relay_of_four

    async def answer(envelope: Envelope) -> None:
        await turn(relay, "agent.b", envelope)

    relay.subscribe("agent.b", answer)
    reply = await relay.request("agent.b", 0, sender="agent.a", thread="questions")
    for calls_left in (6, 4, 2, 0):
        reply = await relay.request("agent.b", 0, sender="agent.a", parent=reply)
        assert reply.budget.call_budget_remaining == calls_left
        assert (reply.thread, reply.budget.hop_count) == ("questions", 0)


async def test_an_answer_along_a_chain_reaches_an_asker_that_was_asked_itself(
    relay_of_four: Relay,
) -> None:
    relay = relay_of_four
    await send(relay, to="agent.b", sender="agent.a")
    asked = await leased(relay, "agent.b")
    await send(relay, to="agent.c", sender="agent.b", parent=asked)
    await turn(relay, "agent.c", await leased(relay, "agent.c"))
    answer = await leased(relay, "agent.b")
    assert answer.budget.ancestor_chain == ("agent.b",)
    assert (await turn(relay, "agent.b", asked)).delivered_to == 1
    final = await leased(relay, "agent.a")
    assert (final.budget.hop_count, final.budget.ancestor_chain) == (0, ())


async def test_of_a_broadcast_each_recipient_answers_for_itself(relay_of_four: Relay) -> None:
    relay = relay_of_four
    sent = await send(relay, to="agent.*", sender="team.lead")
    relay.register_endpoint("team.lead")
    for name in "abcd":
        me = f"agent.{name}"
        assert (await turn(relay, me, await leased(relay, me))).delivered_to == 1
    answers = await relay.lease("team.lead")
    assert {(one.thread, one.answer) for one in answers} == {(sent.message_id, True)}
    assert {one.budget.call_budget_remaining for one in answers} == {8}


async def test_a_sender_cannot_make_another_agents_message_its_question(
    relay_of_four: Relay,
) -> None:
    relay = relay_of_four
    await send(relay, to="agent.b", sender="agent.a")
    question = await leased(relay, "agent.b")
    await send(relay, to="agent.a", sender="agent.c", parent=question)
    message = await leased(relay, "agent.a")
    assert not message.answer
    assert message.budget.ancestor_chain == ("agent.b", "agent.a")


async def test_an_answer_is_marked_in_the_journal_and_nothing_else_is(
    relay_of_four: Relay, data: Path
) -> None:
    relay = relay_of_four
    first = await send(relay, to="agent.b", sender="agent.a")
    await turn(relay, "agent.b", await leased(relay, "agent.b"))
    question, answer = events(data, "accepted")
    assert "thread" not in question
    assert "answer" not in question
    assert (answer["thread"], answer["answer"]) == (first.message_id, True)
    assert answer["budget"]["hop_count"] == 0


@pytest.mark.parametrize("storage", ["maildir", "journal"])
async def test_a_dialogue_goes_on_after_a_restart(start: Start, storage: str) -> None:
    relay = await start(storage=storage)
    for name in "ab":
        relay.register_endpoint(f"agent.{name}")
    first = await send(relay, to="agent.b", sender="agent.a")
    await turn(relay, "agent.b", await leased(relay, "agent.b"))
    relay = await start(storage=storage)
    answer = await leased(relay, "agent.a")
    assert (answer.thread, answer.answer) == (first.message_id, True)
    assert (await turn(relay, "agent.a", answer)).delivered_to == 1
    assert (await leased(relay, "agent.b")).thread == first.message_id


async def test_a_chosen_thread_is_checked_like_an_id(relay_of_four: Relay) -> None:
    for bad in ("", "a b", "a/b", "x" * 201):
        with pytest.raises(InvalidMessage, match="invalid thread"):
            await send(relay_of_four, thread=bad)


async def test_a_follow_up_has_the_thread_of_its_parent_whatever_it_asks_for(
    relay_of_four: Relay,
) -> None:
    relay = relay_of_four
    await send(relay, to="agent.b", sender="agent.a", thread="release-42")
    question = await leased(relay, "agent.b")
    await send(relay, to="agent.a", sender="agent.b", parent=question, thread="mine")
    await send(relay, to="agent.c", sender="agent.b", parent=question, thread="mine")
    for me in ("agent.a", "agent.c"):
        assert (await leased(relay, me)).thread == "release-42"


async def test_a_thread_is_found_as_a_whole_over_segments_and_restarts(start: Start) -> None:
    small = HousekeepingConfig(segment_max_bytes=4096)
    relay = await start(housekeeping=small)
    for name in "ab":
        relay.register_endpoint(f"agent.{name}")
    result = await send(relay, to="agent.b", sender="agent.a")
    first = result.message_id
    for number in range(6):
        me = ("agent.b", "agent.a")[number % 2]
        await turn(relay, me, await leased(relay, me))
        await send(relay, "x" * 2000, to="agent.b", sender="agent.z", message_id=f"other-{number}")
        await relay.ack("agent.b", f"other-{number}")
        await relay.seal_journal()
        if number == 2:
            relay = await start(housekeeping=small)
    found = await relay.inspect().thread(first)
    assert [one.sender for one in found.messages] == ["agent.a", "agent.b"] * 3 + ["agent.a"]
    assert [one.outcome for one in found.messages] == ["acked"] * 6 + ["pending"]
    assert [one.calls_left for one in found.messages] == list(range(10, 3, -1))
    assert [one.answer for one in found.messages] == [False, True] * 3 + [False]
    assert (await relay.explain(found.messages[3].id)).thread == first


async def test_a_journal_written_before_answers_returned_opens_and_goes_on(
    start: Start, data: Path
) -> None:
    earlier = Path(__file__).parents[1] / "journals" / "before_dialogues"
    await asyncio.to_thread(shutil.copytree, earlier, data)
    await asyncio.to_thread(data.chmod, 0o700)
    relay = await start(storage="journal")
    assert [one.reason for one in await relay.dead_letters()] == [
        "cycle detected: agent.b already in chain"
    ]
    unread = await leased(relay, "agent.b")
    assert (unread.thread, unread.answer) == ("unread", False)
    assert (await turn(relay, "agent.b", unread)).delivered_to == 1
    answer = await leased(relay, "agent.a")
    assert (answer.thread, answer.answer) == ("unread", True)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_agents_answer_no_budget_grows(
    relay_of_four: Relay, data: Path, seed: int
) -> None:
    relay, chance = relay_of_four, random.Random(seed)
    names = [f"agent.{name}" for name in "abcd"]
    await send(relay, to="agent.b", sender="agent.a")
    got: list[tuple[str, Envelope]] = []
    for _ in range(60):
        for me in names:
            got += [(me, one) for one in await relay.lease(me)]
        me, message = chance.choice(got)
        back = [message.sender, message.reply_to or message.sender]
        to = chance.choice([*back, *names])
        reply_to = chance.choice([None, *names])
        await send(relay, to=to, sender=me, parent=message, reply_to=reply_to)
    arrivals = {one["id"]: one for one in events(data, "accepted")}
    for one in arrivals.values():
        budget = one["budget"]
        assert budget["hop_count"] < budget["max_hops"]
        assert len(set(budget["ancestor_chain"])) == len(budget["ancestor_chain"])
        parent = arrivals.get(one.get("parent"))
        if parent is not None:
            before = parent["budget"]
            assert budget["call_budget_remaining"] < before["call_budget_remaining"]
            assert budget["ttl"] <= before["ttl"]
            assert one["thread"] == parent.get("thread", parent["id"])
