"""Failing agents: a handler that raises, and a process that is killed."""

import asyncio
import sys

from examples.demo.demo_relay import COOLDOWN_MS, PATIENCE_S, DemoRelay
from examples.demo.output import Outcome, print_line, print_title
from waypost import Envelope
from waypost.client import Agent

UNACKED = 6


class Billing:
    """A handler in the relay's own process, and the service it depends on."""

    def __init__(self) -> None:
        self.is_broken = True

    def charge(self, order: Envelope) -> None:
        """Handle an order. Raises `ConnectionError` while the service is down."""
        if self.is_broken:
            raise ConnectionError("payment service is down")


async def fail_and_recover(demo: DemoRelay) -> Outcome:
    """Fail until the breaker opens, then recover until it closes."""
    print_title("A failing handler opens its circuit breaker, and recovers")
    billing = Billing()
    demo.relay.register_endpoint("agent.billing")
    unsubscribe = demo.relay.subscribe("agent.billing", billing.charge)
    async with demo.agent("agent.shop") as shop:
        results = [await _order(demo, shop, billing, number) for number in range(1, 8)]
        billing.is_broken = False
        print_line(f"… the service is repaired, {COOLDOWN_MS / 1000:.0f} s later …")
        await asyncio.sleep(COOLDOWN_MS / 1000)
        results += [await _order(demo, shop, billing, number) for number in range(8, 11)]
    unsubscribe()
    failed = sum("failed" in one for one in results)
    rejected = sum("rejected" in one for one in results)
    return Outcome(
        "billing",
        f"its handler fails {failed} times",
        f"breaker OPEN, {rejected} rejected: circuit_open; now {_breaker(demo)}",
    )


async def _order(demo: DemoRelay, shop: Agent, billing: Billing, number: int) -> str:
    result = await demo.send(shop, "agent.billing", {"order": number})
    await demo.relay.idle()
    if result.rejected:
        text = f"rejected: {result.rejected[0].reason}"
    else:
        text = "delivered, handler failed" if billing.is_broken else "delivered"
    print_line(f"order {number:2}: {text:26} breaker {_breaker(demo)}")
    return text


def _breaker(demo: DemoRelay) -> str:
    state = demo.relay.metrics().breakers.get("agent.billing")
    return "CLOSED" if state is None else state.state


async def kill_and_reconnect(demo: DemoRelay) -> Outcome:
    """Kill a process: after reconnecting it receives exactly its unacknowledged messages."""
    print_title("A process is killed with unacknowledged messages")
    key = demo.key_file("agent.crash")
    async with demo.agent("agent.boss") as boss:
        tasks = [{"subject": "agent.crash", "payload": number} for number in range(UNACKED)]
        sent = [one.message_id for one in await demo.send_many(boss, tasks)]
        victim = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.demo.crasher",
            demo.url,
            str(key),
            str(UNACKED),
            stdout=asyncio.subprocess.PIPE,
        )
        assert victim.stdout is not None
        await asyncio.wait_for(victim.stdout.readline(), PATIENCE_S)
        await boss.delivered(sent[0], PATIENCE_S)  # the one that it acknowledged
        victim.kill()
        await victim.wait()
        print_line(f"agent.crash received {UNACKED} messages, acknowledged 1, and got SIGKILL")
        async with demo.agent("agent.crash") as again:
            found = []
            for _ in sent[1:]:
                async with await again.receive(PATIENCE_S) as message:
                    found.append(message.id)
    same = "same ids, same order" if found == sent[1:] else "DIFFERENT ONES"
    print_line(f"after reconnecting it receives {len(found)} again, {same}")
    return Outcome(
        "crash",
        f"killed with {len(found)} unacked messages",
        f"{len(found)} redelivered, {same}",
    )
