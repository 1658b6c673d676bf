"""Agents that fail: a handler that raises, and a process that is killed."""

import asyncio
import sys

from examples.demo.stage import COOLDOWN_MS, PATIENCE_S, Stage
from examples.demo.telling import Outcome, say, scene
from waypost import Envelope
from waypost.client import Agent

IN_HAND = 6


class Billing:
    """A handler inside the relay's own process, and the service that it depends on."""

    def __init__(self) -> None:
        self.is_broken = True

    def charge(self, order: Envelope) -> None:
        """Fails while the service is away."""
        if self.is_broken:
            raise ConnectionError("payment service is away")


async def fail_and_recover(stage: Stage) -> Outcome:
    """A handler that fails opens its breaker; when it works again, the breaker closes."""
    scene("A failing handler opens its circuit breaker, and recovers")
    billing = Billing()
    stage.relay.register_endpoint("agent.billing")
    end = stage.relay.subscribe("agent.billing", billing.charge)
    async with stage.agent("agent.shop") as shop:
        fates = [await _order(stage, shop, billing, number) for number in range(1, 8)]
        billing.is_broken = False
        say(f"… the service is repaired, {COOLDOWN_MS / 1000:.0f} s later …")
        await asyncio.sleep(COOLDOWN_MS / 1000)
        fates += [await _order(stage, shop, billing, number) for number in range(8, 11)]
    end()
    failed = sum("failed" in one for one in fates)
    rejected = sum("refused" in one for one in fates)
    return Outcome(
        "billing",
        f"its handler fails {failed} times",
        f"breaker OPEN, {rejected} refused, circuit_open; now {_breaker(stage)}",
    )


async def _order(stage: Stage, shop: Agent, billing: Billing, number: int) -> str:
    result = await stage.send(shop, "agent.billing", {"order": number})
    await stage.relay.idle()
    if result.rejected:
        fate = f"refused, {result.rejected[0].reason}"
    else:
        fate = "delivered, handler failed" if billing.is_broken else "delivered"
    say(f"order {number:2}: {fate:26} breaker {_breaker(stage)}")
    return fate


def _breaker(stage: Stage) -> str:
    state = stage.relay.metrics().breakers.get("agent.billing")
    return "CLOSED" if state is None else state.state


async def die_and_come_back(stage: Stage) -> Outcome:
    """A process that is killed gets again what it had not confirmed, and nothing else."""
    scene("A process is killed with messages in hand")
    key = stage.key_file("agent.crash")
    async with stage.agent("agent.boss") as boss:
        tasks = [{"subject": "agent.crash", "payload": number} for number in range(IN_HAND)]
        sent = [one.message_id for one in await stage.send_many(boss, tasks)]
        victim = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.demo.crasher", stage.url, str(key), str(IN_HAND)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert victim.stdout is not None
        await asyncio.wait_for(victim.stdout.readline(), PATIENCE_S)
        await boss.delivered(sent[0], PATIENCE_S)  # the one that it has confirmed
        victim.kill()
        await victim.wait()
        say(f"agent.crash took {IN_HAND} messages, confirmed 1, and was ended with SIGKILL")
        async with stage.agent("agent.crash") as again:
            found = []
            for _ in sent[1:]:
                async with await again.receive(PATIENCE_S) as message:
                    found.append(message.id)
    same = "same ids, same order" if found == sent[1:] else "OTHERS"
    say(f"it comes back and gets {len(found)} again, {same}; the one it confirmed is done")
    return Outcome(
        "crash",
        f"killed with {len(found)} messages in hand",
        f"{len(found)} came again, {same}",
    )
