"""Agents that behave, and what they may expect: answers, copies, mail that waits."""

import asyncio
import time

from examples.demo.stage import PATIENCE_S, Stage
from examples.demo.telling import Outcome, say, scene
from waypost.client import Agent

READERS = ("agent.reader.1", "agent.reader.2", "agent.reader.3", "agent.reader.4")
BULLETINS = 10
NOTES = 60


class ChattyPair:
    """agent.ann and agent.bob, who talk all the while; nothing that others do should disturb them.

    `pause_s` lies between an answer and the next question.
    """

    def __init__(self, stage: Stage, pause_s: float = 0.25) -> None:
        self._stage = stage
        self._pause_s = pause_s
        self.round_trips_ms: list[float] = []

    async def talk(self) -> None:
        """Go on until cancelled, within the rate that everyone has."""
        async with self._stage.agent("agent.ann") as ann, self._stage.agent("agent.bob") as bob:
            answering = asyncio.create_task(self._answer(bob))
            try:
                while True:
                    await self._ask(ann)
                    await asyncio.sleep(self._pause_s)
            finally:
                answering.cancel()

    async def _ask(self, ann: Agent) -> None:
        began = time.perf_counter()
        sent = await self._stage.send(ann, "agent.bob", "how is it going?")
        if sent.rejected:
            await asyncio.sleep(sent.retry_after_ms / 1000)
            return
        async with await ann.receive(PATIENCE_S):
            self.round_trips_ms.append((time.perf_counter() - began) * 1000)

    async def _answer(self, bob: Agent) -> None:
        async for question in bob:
            async with question:
                await self._stage.send(bob, "agent.ann", "very well")

    def outcome(self) -> Outcome:
        """How it went for them."""
        slowest = max(self.round_trips_ms, default=0.0)
        answers = f"{len(self.round_trips_ms)} questions, as many answers"
        return Outcome("ann, bob", "talk all the while", f"{answers}, slowest {slowest:.0f} ms")


async def broadcast(stage: Stage) -> Outcome:
    """One message to a pattern is one for each mailbox that it matches."""
    scene("A broadcaster writes to a pattern")
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(_read_bulletins(stage, one)) for one in READERS]
        async with stage.agent("agent.news") as news:
            await stage.until(lambda there: set(READERS) <= there)
            for number in range(1, BULLETINS + 1):
                await stage.send(news, "agent.reader.*", {"bulletin": number})
    pleased = sum(one.result() for one in listening)
    say(f"agent.news sent {BULLETINS} bulletins to agent.reader.*")
    say(f"{pleased} of {len(READERS)} readers got all {BULLETINS} of them, in order")
    return Outcome(
        "news",
        f"{BULLETINS} bulletins to agent.reader.*",
        f"{pleased} of {len(READERS)} readers got them all, in order",
    )


async def _read_bulletins(stage: Stage, subject: str) -> bool:
    async with stage.agent(subject) as reader:
        numbers = []
        for _ in range(BULLETINS):
            async with await reader.receive(PATIENCE_S) as message:
                numbers.append(message.payload["bulletin"])
    return numbers == list(range(1, BULLETINS + 1))


async def catch_up(stage: Stage) -> Outcome:
    """Mail for an agent that is away waits, comes in order, and its sender learns of it."""
    scene("Mail waits for an agent that is away")
    async with stage.agent("agent.day") as day:
        async with stage.agent("agent.night") as night:
            await stage.send(night, "agent.day", "good night")  # now they know each other
        async with await day.receive(PATIENCE_S):
            pass
        notes = [{"subject": "agent.night", "payload": number} for number in range(NOTES)]
        sent = [one.message_id for one in await stage.send_many(day, notes) if one.delivered_to]
        say(f"agent.night is away; agent.day sends {NOTES} notes, {len(sent)} are kept")
        async with stage.agent("agent.night") as night:
            found = []
            for _ in sent:
                async with await night.receive(PATIENCE_S) as message:
                    found.append(message)
            told = [await day.delivered(one, PATIENCE_S) for one in sent]
    order = "in order" if [one.id for one in found] == sent else "OUT OF ORDER"
    stored = sum(one.was_stored for one in found)
    say(f"agent.night comes back and gets {stored}, {order}, each marked was_stored")
    say(f"agent.day is told of {sum(one.was_stored for one in told)}: delivery_confirm, was_stored")
    return Outcome(
        "day, night",
        f"{NOTES} notes to one who is away",
        f"{stored} kept, given {order} as was_stored, sender told",
    )
