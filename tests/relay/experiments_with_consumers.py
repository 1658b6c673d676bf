"""Experiments about leases and connected agents; `experiments` lists them with their outcomes."""

from typing import TYPE_CHECKING

from tests.relay.observing import send

if TYPE_CHECKING:
    from tests.relay.experiments import Bench


async def leased_again_after_a_second(bench: "Bench") -> int:
    await send(bench.relay)
    await bench.relay.lease("agent.a")
    bench.clock.advance_ms(1_000)
    return len(await bench.relay.lease("agent.a"))


async def abandoned_after_a_second(bench: "Bench") -> bool:
    await send(bench.relay)
    consumer, calls = bench.relay.attach("agent.a", lambda: None), list[None]()
    consumer.on_abandoned = lambda: calls.append(None)
    consumer.take(1)
    bench.clock.advance_ms(bench.relay.settings.lease_timeout_ms)
    bench.clock.advance_ms(1_000)
    consumer.detach()
    return bool(calls)
