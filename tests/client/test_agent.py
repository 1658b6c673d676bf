"""The asyncio client against a served relay: sending, receiving, confirming."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.client.conftest import Dial
from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from waypost import (
    AccessDenied,
    AccessRule,
    BudgetCut,
    InvalidInput,
    InvalidMessage,
    InvalidSubject,
    Reason,
)
from waypost.client import (
    Agent,
    AgentClosed,
    AlreadyConnected,
    DeliveryTimedOut,
    Identity,
    ReceiveTimedOut,
    SubjectTaken,
    WrongReceiveMode,
    connect,
)
from waypost.wire.payloads import Signal, SignalType


def signal(state: str) -> Signal:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Signal(
        type=SignalType.PROGRESS, state=state, endpoint_subject="agent.ann", timestamp=now
    )


# --- Sending and receiving -----------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_a_message_arrives_as_it_was_sent(dial: Dial, encoding: str) -> None:
    payload = {"text": "grüß dich", "numbers": [1, 2.5, None, True], "nested": {"a": []}}
    async with (
        dial("agent.ann", encoding=encoding) as ann,
        dial("agent.bob", encoding=encoding) as bob,
    ):
        result = await ann.send("agent.bob", payload, reply_to="agent.ann.answers")
        message = await bob.receive(60)
        assert (result.delivered_to, result.message_id) == (1, message.id)
        assert message.payload == payload
        assert (message.sender, message.subject) == ("agent.ann", "agent.bob")
        assert (message.reply_to, message.parent) == ("agent.ann.answers", None)
        assert (message.problem, message.sealed_by, message.was_stored) == (None, None, False)


async def test_a_message_leaves_the_relay_when_it_is_acked(
    ann: Agent, bob: Agent, relay: ListeningRelay
) -> None:
    await ann.send("agent.bob", 1)
    message = await bob.receive(60)
    assert relay.waiting("agent.bob") == 1
    await message.ack()
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_iteration_yields_messages_in_order(ann: Agent, bob: Agent) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": n} for n in range(300))
    got: list[object] = []
    async with asyncio.timeout(60):
        async for message in bob:
            async with message:
                got.append(message.payload)
            if len(got) == 300:
                break
    assert got == list(range(300))


async def test_stored_messages_come_first_and_then_it_is_live(ann: Agent, dial: Dial) -> None:
    for number in range(60):  # more than one batch
        await ann.send("agent.bob", number)
    async with dial("agent.bob") as bob:
        got = []
        for _ in range(60):
            async with await bob.receive(60) as message:
                got.append((message.payload, message.was_stored))
        assert got == [(number, True) for number in range(60)]
        assert bob.queue_status == 60
        await eventually(lambda: bob.is_live)
        await ann.send("agent.bob", "now")
        assert not (await bob.receive(60)).was_stored


async def test_a_block_that_raises_nacks_the_message(ann: Agent, bob: Agent) -> None:
    await ann.send("agent.bob", "hot")
    first = await bob.receive(60)
    with pytest.raises(ZeroDivisionError):
        async with first:
            _ = 1 / 0
    again = await bob.receive(60)
    assert (again.id, again.payload) == (first.id, "hot")


async def test_a_nack_tells_the_relay_the_error(
    ann: Agent, bob: Agent, relay: ListeningRelay
) -> None:
    sent = await ann.send("agent.bob", "hot")
    first = await bob.receive(60)
    await first.nack(error="too hot")
    second = await bob.receive(60)
    with pytest.raises(ZeroDivisionError):
        async with second:
            _ = 1 / 0
    assert (first.attempt, second.attempt) == (1, 2)
    await eventually(lambda: relay.context.relay.inspect().counts["returned"] == 2)
    texts = [step.text for step in (await relay.context.relay.explain(sent.message_id)).steps]
    assert "returned to the queue: nack: too hot" in texts
    assert "returned to the queue: nack: ZeroDivisionError: division by zero" in texts


async def test_an_invalid_delay_is_rejected_and_the_message_stays_unanswered(
    ann: Agent, bob: Agent, relay: ListeningRelay
) -> None:
    await ann.send("agent.bob", 1)
    message = await bob.receive(60)
    with pytest.raises(InvalidInput, match="delay"):
        await message.nack(-1)
    await message.ack()
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_receive_times_out_without_a_message(bob: Agent) -> None:
    with pytest.raises(ReceiveTimedOut, match="no message arrived"):
        await bob.receive(0.01)


async def test_a_reply_follows_from_its_message(ann: Agent, bob: Agent) -> None:
    sent = await ann.send("agent.bob", "hello")
    message = await bob.receive(60)
    await message.reply("hello yourself")
    reply = await ann.receive(60)
    assert (reply.parent, reply.payload, reply.sender) == (
        sent.message_id,
        "hello yourself",
        "agent.bob",
    )
    assert reply.thread == message.thread == sent.message_id
    assert reply.budget.ancestor_chain == ()


async def test_two_agents_reply_to_each_other_until_the_calls_are_spent(
    ann: Agent, bob: Agent
) -> None:
    await ann.send("agent.bob", 0, budget={"call_budget_remaining": 7}, thread="count-up")
    turns = 0
    while True:
        message = await (bob, ann)[turns % 2].receive(60)
        assert (message.payload, message.thread) == (turns, "count-up")
        turns += 1
        result = await message.reply(turns)
        if result.rejected:
            break
    assert turns == 7
    assert [(one.reason, one.detail) for one in result.rejected] == [
        (Reason.BUDGET_EXCEEDED, "call budget exhausted")
    ]


async def test_a_wish_for_a_larger_budget_is_cut_and_the_sender_knows(
    ann: Agent, bob: Agent
) -> None:
    result = await ann.send("agent.bob", 0, budget={"max_hops": 99})
    assert result.budget_cut == BudgetCut(max_hops=5)
    assert not (await ann.send("agent.bob", 0, budget={"max_hops": 2})).budget_cut


async def test_a_budget_may_be_narrowed(ann: Agent, bob: Agent) -> None:
    await ann.send("agent.bob", 0, budget={"max_hops": 2})
    assert (await bob.receive(60)).budget.max_hops == 2


async def test_the_same_id_twice_is_stored_once(ann: Agent, bob: Agent) -> None:
    first = await ann.send("agent.bob", "one", message_id="chosen-1")
    again = await ann.send("agent.bob", "one", message_id="chosen-1")
    assert first == again
    await bob.receive(60)
    with pytest.raises(ReceiveTimedOut):
        await bob.receive(0.05)


async def test_a_rejection_is_in_the_result(ann: Agent) -> None:
    result = await ann.send("nobody.here", "anyone?")
    assert result.delivered_to == 0


@pytest.mark.parametrize(
    ("subject", "payload", "error"),
    [
        ("agent..bob", 1, InvalidSubject),
        ("agent.bob", b"bytes", InvalidMessage),
        ("agent.bob", object(), InvalidMessage),
        ("_relay", 1, InvalidMessage),
    ],
)
async def test_an_invalid_message_raises(
    ann: Agent, subject: str, payload: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await ann.send(subject, payload)
    assert (await ann.send("agent.bob", "still fine")).delivered_to == 1


async def test_access_rules_raise_for_one_and_reject_for_many(
    ann: Agent, relay: ListeningRelay
) -> None:
    relay.context.relay.access.add_rule(
        AccessRule(from_="agent.ann", to="agent.secret", action="deny", priority=1)
    )
    with pytest.raises(AccessDenied):
        await ann.send("agent.secret", 1)
    wanted = [{"subject": name, "payload": 1} for name in ("agent.bob", "agent.secret")]
    allowed, denied = await ann.send_many(wanted)
    assert allowed.delivered_to == 1
    assert [one.reason for one in denied.rejected] == [Reason.ACCESS_DENIED]


async def test_one_invalid_message_of_many_fails_them_all_up_front(
    ann: Agent, relay: ListeningRelay
) -> None:
    with pytest.raises(InvalidSubject):
        await ann.send_many(
            [{"subject": "agent.bob", "payload": 1}, {"subject": "no good", "payload": 1}]
        )
    with pytest.raises(InvalidMessage, match="not a message to send"):
        await ann.send_many([{"subject": "agent.bob"}])
    assert relay.waiting("agent.bob") == 0


# --- Confirmations -------------------------------------------------------------------------------


async def test_a_sender_gets_the_confirmation_of_its_message(ann: Agent, bob: Agent) -> None:
    sent = await ann.send("agent.bob", 1)
    waiting = asyncio.create_task(ann.delivered(sent.message_id, timeout=60))
    await (await bob.receive(60)).ack()
    confirm = await waiting
    assert (confirm.message_id, confirm.recipient) == (sent.message_id, "agent.bob")
    assert await ann.delivered(sent.message_id, timeout=0.01) == confirm  # known by now


async def test_confirmations_can_be_iterated(ann: Agent, bob: Agent) -> None:
    following = ann.confirmations()
    ids = [(await ann.send("agent.bob", number)).message_id for number in range(3)]
    for _ in ids:
        await (await bob.receive(60)).ack()
    async with asyncio.timeout(60):
        assert [(await anext(following)).message_id for _ in ids] == ids


async def test_an_unconfirmed_message_times_out(ann: Agent) -> None:
    sent = await ann.send("agent.bob", 1)
    with pytest.raises(DeliveryTimedOut, match=sent.message_id):
        await ann.delivered(sent.message_id, timeout=0.01)


async def test_confirmations_are_stored_for_a_disconnected_sender(dial: Dial, bob: Agent) -> None:
    async with dial("agent.ann") as ann:
        sent = await ann.send("agent.bob", 1)
    await (await bob.receive(60)).ack()
    async with dial("agent.ann") as ann:
        confirm = await ann.delivered(sent.message_id, timeout=60)
        assert confirm.recipient == "agent.bob"
    async with dial("agent.ann") as ann:
        assert ann.queue_status == 0  # it was confirmed itself


# --- Signals and blocks --------------------------------------------------------------------------


async def test_signals_reach_sync_and_async_handlers_even_if_one_raises(
    ann: Agent, bob: Agent
) -> None:
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def broken(sender: str, signal: Signal) -> None:
        raise ValueError("a mistake")

    async def slow(sender: str, signal: Signal) -> None:
        await heard.put((sender, signal.state))

    bob.on_signal(broken)
    stop = bob.on_signal(lambda sender, signal: heard.put_nowait((sender, signal.state)))
    bob.on_signal(slow)
    assert ann.signal("agent.bob", signal("half way"))
    async with asyncio.timeout(60):
        assert [await heard.get() for _ in range(2)] == [("agent.ann", "half way")] * 2
        stop()
        ann.signal("agent.bob", signal("done"))
        assert await heard.get() == ("agent.ann", "done")
    assert heard.empty()


async def test_messages_of_a_blocked_sender_are_dropped_without_its_notice(
    ann: Agent, bob: Agent, relay: ListeningRelay
) -> None:
    first = await ann.send("agent.bob", "before")
    before = await bob.receive(60)
    bob.block("agent.ann")
    sent = await ann.send("agent.bob", "buy now")
    await eventually(lambda: bob.blocked_count == 1, "the message to arrive")
    await bob.send("agent.void", "after any ack")
    assert relay.waiting("agent.bob") == 2  # like one that is being processed
    await before.ack()
    await ann.delivered(first.message_id, timeout=60)
    await ann.delivered(sent.message_id, timeout=60)
    assert relay.waiting("agent.bob") == 0
    bob.unblock("agent.ann")
    await ann.send("agent.bob", "sorry")
    assert (await bob.receive(60)).payload == "sorry"


# --- Connecting and closing ----------------------------------------------------------------------


async def test_a_second_connection_is_rejected_and_the_first_stays(ann: Agent, dial: Dial) -> None:
    with pytest.raises(AlreadyConnected):
        async with dial("agent.ann"):
            pass
    assert (await ann.send("agent.bob", 1)).delivered_to == 1


async def test_another_key_cannot_take_a_subject(ann: Agent, relay: ListeningRelay) -> None:
    with pytest.raises(SubjectTaken):
        async with connect(relay.url, Identity.new("agent.ann")):
            pass


async def test_a_closed_agent_raises(dial: Dial) -> None:
    async with dial("agent.ann") as ann:
        waiting = asyncio.create_task(ann.receive())
        following = ann.confirmations()
        await asyncio.sleep(0)
    with pytest.raises(AgentClosed):
        await waiting
    with pytest.raises(AgentClosed):
        await ann.send("agent.bob", 1)
    assert [one async for one in ann] == []
    assert [one async for one in following] == []
    await ann.close()


async def test_a_closed_agent_yields_no_messages_that_could_not_be_acked(
    ann: Agent, dial: Dial
) -> None:
    async with dial("agent.bob") as bob:
        await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(3))
        await bob.receive(60)
    with pytest.raises(AgentClosed):
        await bob.receive(0.1)


async def test_acks_are_written_before_an_agent_disconnects(
    ann: Agent, dial: Dial, relay: ListeningRelay
) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": n} for n in range(20))
    async with dial("agent.bob") as bob:
        for _ in range(20):
            await (await bob.receive(60)).ack()
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_unacked_messages_go_to_the_next_connection(
    ann: Agent, dial: Dial, identities: Callable[[str], Identity]
) -> None:
    sent = await ann.send("agent.bob", "unfinished")
    async with dial("agent.bob") as bob:
        held = await bob.receive(60)
    async with dial("agent.bob") as bob:
        again = await bob.receive(60)
        assert again.id == held.id == sent.message_id


async def test_a_pushing_agent_cannot_fetch(ann: Agent) -> None:
    with pytest.raises(WrongReceiveMode, match="receive='push'"):
        await ann.fetch()
