"""Messages between relays that share all subjects."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.harness.partitions import Cluster, cluster_of_three, name_in, turns
from waypost import AccessDenied, AccessRule, Envelope, InvalidMessage, RequestRejected
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.reasons import Reason
from waypost.policy.tiers import QosConfig, TierLimits
from waypost.relay.errors import OtherPartition
from waypost.relay.relay import Draft, Relay

A, B, C = name_in(0), name_in(1), name_in(2)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three relays with the endpoints A, B and C."""
    async with cluster_of_three(tmp_path) as opened:
        for name in (A, B, C):
            opened.relay(name).register_endpoint(name)
        yield opened


async def send(cluster: Cluster, sender: str, to: str, **fields: object):
    return await cluster.relay(sender).publish(to, {"n": 1}, sender=sender, **fields)


async def received(cluster: Cluster, subject: str) -> list[Envelope]:
    """Return and acknowledge all messages of a mailbox."""
    relay, found = cluster.relay(subject), list[Envelope]()
    while some := await relay.lease(subject, 50):
        await relay.ack(subject, [one.id for one in some])
        found += some
    return found


def kinds(relay: Relay) -> list[str]:
    """Return the kinds of the events in the state's counts, in the order of their first."""
    return [kind for kind in relay._runtime.ledger.state.counts if "breaker" not in kind]


async def test_a_message_reaches_an_endpoint_of_another_partition(cluster: Cluster) -> None:
    result = await send(cluster, A, B, reply_to=A)
    assert (result.delivered_to, result.rejected) == (1, [])
    [message] = await received(cluster, B)
    assert (message.id, message.sender, message.payload) == (result.message_id, A, {"n": 1})
    assert message.reply_to == A
    assert message.budget.ancestor_chain == (B,)
    await eventually(lambda: not cluster.undecided(), "the decision at the sender's side")
    assert kinds(cluster.relay(A)) == ["forwarded", "decided"]
    assert kinds(cluster.relay(B)) == ["accepted", "leased", "acked"]


async def test_a_message_within_a_partition_is_one_commit_as_before(cluster: Cluster) -> None:
    neighbour = A.replace("worker", "neighbour")
    result = await send(cluster, neighbour, A)
    assert result.delivered_to == 1
    assert kinds(cluster.relay(A)) == ["accepted"]
    assert cluster.carrier.carried == 0


async def test_a_large_payload_is_forwarded_whole(cluster: Cluster) -> None:
    payload = "x" * 100_000
    await cluster.relay(A).publish(B, payload, sender=A)
    [message] = await received(cluster, B)
    assert message.payload == payload


async def test_no_recipient_in_the_other_partition_is_an_empty_result(cluster: Cluster) -> None:
    result = await send(cluster, A, name_in(1, 1))
    assert (result.delivered_to, result.rejected) == (0, [])
    assert result.message_id


async def test_senders_and_endpoints_belong_to_one_relay(cluster: Cluster) -> None:
    with pytest.raises(OtherPartition, match="belongs to partition 0"):
        await cluster.relay(B).publish(B, 1, sender=A)
    with pytest.raises(OtherPartition):
        cluster.relay(B).register_endpoint(A)


async def test_a_publish_counts_once_in_the_rate_window(tmp_path: Path) -> None:
    limit = RateLimitConfig(max_per_window=3, window_secs=60)
    async with cluster_of_three(tmp_path, rate_limit=limit) as cluster:
        for name in (A, B, C):
            cluster.relay(name).register_endpoint(name)
        results = [await send(cluster, A, to) for to in (B, C, A, B)]
        assert [result.delivered_to for result in results] == [1, 1, 1, 0]
        assert results[3].rejected[0].reason is Reason.RATE_LIMITED
        for number in range(3):
            await cluster.crash_and_open(number)
        windows = [relay._runtime.ledger.state.windows for relay in cluster.carrier.relays.values()]
        now_ms = cluster.clock.now_us // 1000
        assert [one.count(A, now_ms, 60_000) for one in windows] == [3, 0, 0]


async def test_the_recipients_side_decides_caps_and_quotas(tmp_path: Path) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(2, 10_000), tier2=TierLimits(3, 10_000))
    async with cluster_of_three(tmp_path, qos=qos) as cluster:
        for name in (A, B):
            cluster.relay(name).register_endpoint(name)
        strangers = [await send(cluster, A, B) for _ in range(3)]
        assert [one.delivered_to for one in strangers] == [1, 1, 0]
        assert strangers[2].rejected[0].reason is Reason.QUOTA_EXCEEDED
        await send(cluster, B, A)  # recorded at the side of B, where the tier of A is looked up
        assert (await send(cluster, A, B)).delivered_to == 1


async def test_a_pattern_reaches_every_partition_and_the_result_is_the_sum(
    cluster: Cluster,
) -> None:
    result = await send(cluster, A, "agent.>", message_id="the-id")
    assert result.delivered_to == 3
    for name in (A, B, C):
        assert [one.id for one in await received(cluster, name)] == [result.message_id]
    again = await send(cluster, A, "agent.>", message_id="the-id")
    assert again.delivered_to == 3
    assert await received(cluster, C) == []


async def test_the_recipients_of_a_pattern_know_its_sender(cluster: Cluster) -> None:
    await send(cluster, A, "agent.>")
    await eventually(lambda: not cluster.undecided(), "the decisions at the sender's side")
    pairs = cluster.relay(A)._runtime.ledger.state.last_seen
    assert all(pairs.get((A, name)) is not None for name in (B, C))


async def test_the_fan_out_is_limited_in_each_partition(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path, max_fanout=1) as cluster:
        for name in (A, B, name_in(1, 1), C):
            cluster.relay(name).register_endpoint(name)
        result = await send(cluster, A, "agent.>")
        assert result.delivered_to == 2
        assert [one.reason for one in result.rejected] == [Reason.FANOUT_EXCEEDED]


async def test_access_rules_hold_at_the_senders_side_and_for_patterns(cluster: Cluster) -> None:
    for relay in cluster.carrier.relays.values():
        relay.access.add_rule(AccessRule(from_=A, to=B, action="deny", priority=1))
    with pytest.raises(AccessDenied):
        await send(cluster, A, B)
    assert (await send(cluster, A, "agent.>")).delivered_to == 2
    assert await received(cluster, B) == []


async def test_a_request_is_answered_from_another_partition(cluster: Cluster) -> None:
    async def answer(message: Envelope) -> None:
        relay = cluster.relay(B)
        await relay.publish(message.reply_to or "", "pong", sender=B, parent=message)

    cluster.relay(B).subscribe(B, answer)
    reply = await cluster.relay(A).request(B, "ping", sender=A)
    assert (reply.payload, reply.sender, reply.answer) == ("pong", B, True)
    with pytest.raises(RequestRejected):
        await cluster.relay(A).request(name_in(2, 5), "ping", sender=A)


async def test_answers_return_along_the_chain_and_cycles_are_found(cluster: Cluster) -> None:
    await send(cluster, A, B)
    [question] = await received(cluster, B)
    await send(cluster, B, C, parent=question)
    [further] = await received(cluster, C)
    assert further.budget.ancestor_chain == (B, C)
    back = await send(cluster, C, B, parent=further)
    assert back.delivered_to == 1
    [answer] = await received(cluster, B)
    assert (answer.answer, answer.budget.ancestor_chain) == (True, (B,))
    on = await send(cluster, C, A, parent=further)
    [third] = await received(cluster, A)
    assert on.delivered_to == 1
    cycle = await send(cluster, A, B, parent=third)
    assert [one.reason for one in cycle.rejected] == [Reason.BUDGET_EXCEEDED]


async def test_an_unavailable_partition_is_reported_and_the_message_arrives_later(
    cluster: Cluster,
) -> None:
    await cluster.close(1)
    publishing = asyncio.create_task(send(cluster, A, B, message_id="later"))
    await turns()
    assert not publishing.done()
    await cluster.pass_time(11_000)
    result = await publishing
    assert (result.message_id, result.delivered_to) == ("later", 0)
    assert [one.reason for one in result.rejected] == [Reason.PARTITION_UNAVAILABLE]
    assert result.retry_after_ms > 0

    retry = asyncio.create_task(send(cluster, A, B, message_id="later"))
    await turns()
    await cluster.open(1)
    await cluster.pass_time(4_000)
    assert (await retry).delivered_to == 1
    assert [one.id for one in await received(cluster, B)] == ["later"]
    assert (await send(cluster, A, B, message_id="later")).delivered_to == 1
    assert await received(cluster, B) == []


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_message_that_was_not_decided_is_carried_after_a_restart(
    cluster: Cluster, cleanly: bool
) -> None:
    cluster.carrier.fault = lambda origin, partition: "lost"
    publishing = asyncio.create_task(send(cluster, A, B, message_id="m"))
    await turns()
    assert cluster.undecided() == 1
    await (cluster.close(0) if cleanly else cluster.crash(0))
    publishing.cancel()
    cluster.carrier.fault = lambda origin, partition: ""
    await cluster.open(0)
    assert (await send(cluster, A, B, message_id="m")).delivered_to == 1
    assert [one.id for one in await received(cluster, B)] == ["m"]


@pytest.mark.parametrize("storage", ["journal", "maildir"])
async def test_a_decision_whose_answer_was_lost_is_not_made_again(
    tmp_path: Path, storage: str
) -> None:
    async with cluster_of_three(tmp_path, storage=storage) as cluster:
        cluster.relay(B).register_endpoint(B)
        cluster.carrier.fault = lambda origin, partition: "unanswered"
        publishing = asyncio.create_task(send(cluster, A, B))
        [message] = await cluster.relay(B).lease(B, wait=5)
        await cluster.relay(B).ack(B, message.id)
        await cluster.crash_and_open(1)  # what was decided is in its journal
        cluster.carrier.fault = lambda origin, partition: ""
        await cluster.pass_time(4_000)
        result = await publishing
        assert (result.message_id, result.delivered_to) == (message.id, 1)
        assert await received(cluster, B) == []


async def test_a_rejection_is_not_turned_into_a_delivery_by_a_late_copy(tmp_path: Path) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(1, 10_000))
    async with cluster_of_three(tmp_path, qos=qos) as cluster:
        cluster.relay(B).register_endpoint(B)
        await send(cluster, A, B)
        cluster.carrier.fault = lambda origin, partition: "late"
        rejected = await send(cluster, A, B, message_id="m")
        assert rejected.rejected[0].reason is Reason.QUOTA_EXCEEDED
        assert len(await received(cluster, B)) == 1
        await cluster.carrier.deliver_copies()
        assert await received(cluster, B) == []
        assert (await send(cluster, A, B, message_id="m")).delivered_to == 1  # it may be retried
        assert [one.id for one in await received(cluster, B)] == ["m"]
        await cluster.carrier.deliver_copies()
        assert await received(cluster, B) == []


async def test_a_late_copy_of_an_earlier_attempt_does_not_undo_a_later_rejection(
    tmp_path: Path,
) -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(1, 10_000))
    async with cluster_of_three(tmp_path, qos=qos) as cluster:
        cluster.relay(B).register_endpoint(B)
        await send(cluster, A, B)
        cluster.carrier.fault = lambda origin, partition: "late"
        assert (await send(cluster, A, B, message_id="m")).delivered_to == 0
        cluster.carrier.fault = lambda origin, partition: ""
        assert (await send(cluster, A, B, message_id="m")).delivered_to == 0  # a retry, rejected
        assert len(await received(cluster, B)) == 1  # there is room now
        await cluster.carrier.deliver_copies()
        assert await received(cluster, B) == []


async def test_a_forwarded_id_is_remembered_until_it_cannot_come_again(tmp_path: Path) -> None:
    week_ms = 7 * 86_400_000
    async with cluster_of_three(tmp_path, default_ttl_ms=week_ms) as cluster:
        cluster.relay(B).register_endpoint(B)
        cluster.carrier.fault = lambda origin, partition: "unanswered"
        publishing = asyncio.create_task(send(cluster, A, B))
        await turns()
        assert len(await received(cluster, B)) == 1
        await cluster.crash(0)
        publishing.cancel()
        cluster.clock.now_us += (week_ms - 60_000) * 1000  # without a sweep in each second
        cluster.relay(B).sweep()
        await cluster.close(1)
        await cluster.open(1)
        cluster.carrier.fault = lambda origin, partition: ""
        await cluster.open(0)
        await eventually(lambda: not cluster.undecided(), "the decision")
        assert await received(cluster, B) == []


async def test_a_message_leaves_the_outbox_when_its_time_to_live_is_over(cluster: Cluster) -> None:
    await cluster.close(1)
    publishing = asyncio.create_task(send(cluster, A, B, message_id="m", budget={"ttl": 0}))
    await turns()
    await cluster.pass_time(1_000)
    result = await publishing
    assert [one.reason for one in result.rejected] == [Reason.PARTITION_UNAVAILABLE]
    assert "time to live" in result.rejected[0].detail
    assert cluster.undecided() == 0


async def test_an_id_of_another_sender_is_taken_in_the_other_partition(cluster: Cluster) -> None:
    await send(cluster, A, B, message_id="m")
    with pytest.raises(InvalidMessage, match="is taken"):
        await send(cluster, C, B, message_id="m")
    assert len(await received(cluster, B)) == 1


async def test_a_submitted_message_is_decided_later(cluster: Cluster) -> None:
    relay = cluster.relay(A)
    result = relay.submit(Draft(B, 1, sender=A))
    assert result.delivered_to == 0
    assert (await relay.decided(result)).delivered_to == 1
    near = relay.submit(Draft(A, 1, sender=A))
    assert (await relay.decided(near)).delivered_to == 1
    many = await relay.publish_many([Draft(to, 1, sender=A) for to in (A, B, C)])
    assert [one.delivered_to for one in many] == [1, 1, 1]


async def test_a_scheduled_message_waits_in_the_partition_of_its_recipient(
    cluster: Cluster,
) -> None:
    assert (await send(cluster, A, B, delay=60)).delivered_to == 1
    assert cluster.undecided() == 0
    assert await received(cluster, B) == []
    await cluster.pass_time(61_000, step_ms=1_000)
    assert len(await received(cluster, B)) == 1


async def test_the_sender_of_an_evicted_message_is_notified_in_its_partition(
    tmp_path: Path,
) -> None:
    qos = QosConfig(enabled=True, inbox_max_bytes=2_000)
    async with cluster_of_three(tmp_path, qos=qos) as cluster:
        for name in (A, B):
            cluster.relay(name).register_endpoint(name)
        first = await cluster.relay(A).publish(B, "x" * 1_000, sender=A)
        assert (await cluster.relay(A).publish(B, "y" * 1_000, sender=A)).delivered_to == 1
        await eventually(lambda: not cluster.undecided(), "the notice")
        [notice] = await received(cluster, A)
        assert notice.sender == "_relay"
        assert first.message_id in str(notice.payload)


async def test_hostile_messages_of_another_partition_are_not_stored(cluster: Cluster) -> None:
    await send(cluster, A, B, message_id="m")
    cluster.carrier.fault = lambda origin, partition: "late"
    await send(cluster, A, B, message_id="m2")
    [(_, _, [message])] = cluster.carrier.copies
    relay = cluster.relay(C)
    [wrong_way] = await relay.decide_forwarded(0, [message])
    assert "has no endpoints in partition 2" in wrong_way.error
    [forged] = await cluster.relay(B).decide_forwarded(2, [message])
    assert "is not a sender of partition 2" in forged.error
    message.sender = "not a subject"
    [invalid] = await cluster.relay(B).decide_forwarded(0, [message])
    assert "invalid subject" in invalid.error


async def test_the_history_shows_both_decisions(cluster: Cluster) -> None:
    result = await send(cluster, A, B)
    await eventually(lambda: not cluster.undecided(), "the decision at the sender's side")
    there = await cluster.relay(A).explain(result.message_id)
    texts = [step.text for step in there.steps if step.kind != "check"]
    assert texts == [f"{A} -> {B}: forwarded to partition 1", "stored in 1"]
