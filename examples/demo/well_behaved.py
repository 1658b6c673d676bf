"""Well-behaved agents: a conversation, a broadcast, and messages to an offline agent."""

import asyncio
import time

from examples.demo.demo_relay import PATIENCE_S, DemoRelay
from examples.demo.output import Outcome, print_line, print_title
from waypost.client import Agent

READERS = ("agent.reader.1", "agent.reader.2", "agent.reader.3", "agent.reader.4")
BULLETINS = 10
NOTES = 60


class ChattyPair:
    """agent.ann and agent.bob, who talk the whole time, undisturbed by the other agents.

    `pause_s` is the time between an answer and the next question.
    """

    def __init__(self, demo: DemoRelay, pause_s: float = 0.25) -> None:
        self._demo = demo
        self._pause_s = pause_s
        self.round_trips_ms: list[float] = []

    async def talk(self) -> None:
        """Talk until cancelled, within the rate limit."""
        async with self._demo.agent("agent.ann") as ann, self._demo.agent("agent.bob") as bob:
            answering = asyncio.create_task(self._answer(bob))
            try:
                while True:
                    await self._ask(ann)
                    await asyncio.sleep(self._pause_s)
            finally:
                answering.cancel()

    async def _ask(self, ann: Agent) -> None:
        began = time.perf_counter()
        sent = await self._demo.send(ann, "agent.bob", "how is it going?")
        if sent.rejected:
            await asyncio.sleep(sent.retry_after_ms / 1000)
            return
        async with await ann.receive(PATIENCE_S):
            self.round_trips_ms.append((time.perf_counter() - began) * 1000)

    async def _answer(self, bob: Agent) -> None:
        async for question in bob:
            async with question:
                await self._demo.send(bob, "agent.ann", "very well")

    def outcome(self) -> Outcome:
        """Return the number of answers, and the slowest one."""
        slowest = max(self.round_trips_ms, default=0.0)
        answers = f"{len(self.round_trips_ms)} questions answered"
        return Outcome("ann, bob", "talk the whole time", f"{answers}, slowest {slowest:.0f} ms")


async def broadcast(demo: DemoRelay) -> Outcome:
    """Send to a pattern: each matching mailbox gets a copy."""
    print_title("A broadcast to a pattern")
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(_read_bulletins(demo, one)) for one in READERS]
        async with demo.agent("agent.news") as news:
            await demo.until(lambda connected: set(READERS) <= connected)
            for number in range(1, BULLETINS + 1):
                await demo.send(news, "agent.reader.*", {"bulletin": number})
    complete = sum(one.result() for one in listening)
    print_line(f"agent.news sent {BULLETINS} bulletins to agent.reader.*")
    print_line(f"{complete} of {len(READERS)} readers received all {BULLETINS}, in order")
    return Outcome(
        "news",
        f"{BULLETINS} bulletins to agent.reader.*",
        f"{complete} of {len(READERS)} readers received all, in order",
    )


async def _read_bulletins(demo: DemoRelay, subject: str) -> bool:
    async with demo.agent(subject) as reader:
        numbers = []
        for _ in range(BULLETINS):
            async with await reader.receive(PATIENCE_S) as message:
                numbers.append(message.payload["bulletin"])
    return numbers == list(range(1, BULLETINS + 1))


async def write_to_offline_agent(demo: DemoRelay) -> Outcome:
    """Send to an offline agent: messages are stored, delivered in order, and confirmed."""
    print_title("Messages to an offline agent are stored")
    async with demo.agent("agent.day") as day:
        async with demo.agent("agent.night") as night:
            await demo.send(night, "agent.day", "good night")  # now agent.day is no unknown sender
        async with await day.receive(PATIENCE_S):
            pass
        notes = [{"subject": "agent.night", "payload": number} for number in range(NOTES)]
        sent = [one.message_id for one in await demo.send_many(day, notes) if one.delivered_to]
        print_line(f"agent.night is offline; agent.day sends {NOTES} notes, {len(sent)} are stored")
        async with demo.agent("agent.night") as night:
            found = []
            for _ in sent:
                async with await night.receive(PATIENCE_S) as message:
                    found.append(message)
            confirmations = [await day.delivered(one, PATIENCE_S) for one in sent]
    order = "in order" if [one.id for one in found] == sent else "OUT OF ORDER"
    stored = sum(one.was_stored for one in found)
    print_line(f"agent.night connects and receives {stored}, {order}, each marked was_stored")
    confirmed = sum(one.was_stored for one in confirmations)
    print_line(f"agent.day receives {confirmed} delivery_confirm frames with was_stored")
    return Outcome(
        "day, night",
        f"{NOTES} notes to an offline agent",
        f"{stored} stored, delivered {order}, confirmed to sender",
    )
