"""Experiments about limits of senders, messages and workers; `experiments` lists outcomes."""

from contextlib import suppress
from typing import TYPE_CHECKING

from waypost import Draft, InvalidMessage
from waypost.policy.signal_limits import SignalWindows
from waypost.relay.errors import PoolFull

if TYPE_CHECKING:
    from tests.relay.experiments import Bench


async def a_second_ahead_is_taken(bench: "Bench") -> bool:
    return await is_taken(bench, Draft("agent.a", 1, sender="agent.b", delay=1))


async def ten_characters_are_taken(bench: "Bench") -> bool:
    return await is_taken(bench, Draft("agent.a", "x" * 10, sender="agent.b"))


async def is_taken(bench: "Bench", draft: Draft) -> bool:
    try:
        return (await bench.relay.publish_draft(draft)).delivered_to == 1
    except InvalidMessage:
        return False


async def senders_of_patterns(bench: "Bench") -> int:
    drafts = [Draft("agent.*", 1, sender=sender) for sender in ("agent.c", "_anonymous")]
    return sum(one.delivered_to == 2 for one in await bench.relay.publish_many(drafts))


async def signals_admitted(bench: "Bench") -> int:
    admit, limits = SignalWindows().admit, bench.relay.settings.signals
    signals = [("agent.b", "agent.c")[number % 2] for number in range(300)]
    admitted = [admit("agent.a", [to], at * 10, limits)[0] for at, to in enumerate(signals)]
    return sum(map(len, admitted))


async def signal_max_bytes(bench: "Bench") -> int:
    return bench.relay.settings.signals.max_bytes


async def accepted_of_a_network(bench: "Bench") -> int:
    drafts = [Draft("agent.a", 1, sender="_anonymous", network="n1")] * 5
    return sum(one.delivered_to for one in await bench.relay.publish_many(drafts))


async def workers_of_a_pool(bench: "Bench") -> int:
    attached = 0
    for _ in range(3):
        with suppress(PoolFull):
            bench.relay.attach("agent.a", lambda: None, shared=True)
            attached += 1
    return attached
