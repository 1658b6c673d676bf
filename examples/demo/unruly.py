"""Agents that do not behave, out of malice or by mistake, and what the relay lets them do."""

from collections import Counter

import httpx

from examples.demo.stage import MAILBOX_MAX, PATIENCE_S, Stage
from examples.demo.telling import Outcome, say, scene
from waypost import AccessDenied, PublishResult
from waypost.client import Agent, Identity, SubjectTaken, connect

FLOOD = 500
WORK = 90
STRANGERS = 30
TRIES = 5


async def run_in_circles(stage: Stage) -> tuple[Outcome, str]:
    """Two agents that answer each other for ever, were it not for the budget of the message."""
    scene("A loop is stopped by its budget")
    async with stage.agent("agent.ping") as ping, stage.agent("agent.pong") as pong:
        await stage.send(pong, "agent.ping", "your turn")
        players: dict[str, Agent] = {"agent.ping": ping, "agent.pong": pong}
        here, there = "agent.ping", "agent.pong"
        hops = 0
        while True:
            async with await players[here].receive(PATIENCE_S) as message:
                hops = message.budget.hop_count
                say(f"{here} → {there}: your turn (hop {hops})")
                result = await stage.send(players[here], there, "your turn", parent=message)
            if result.rejected:
                break
            here, there = there, here
    why = result.rejected[0].detail
    say(f"stopped: {why}")
    outcome = Outcome("ping, pong", "answer each other for ever", f"stopped at hop {hops}: cycle")
    return outcome, result.message_id


async def flood(stage: Stage) -> Outcome:
    """One agent sends far more than its share, to one that knows it well."""
    scene("A flood is stopped by its limit")
    async with stage.agent("agent.flooder") as flooder, stage.agent("agent.victim") as victim:
        await stage.send(victim, "agent.flooder", "hello")
        async with await flooder.receive(PATIENCE_S):
            pass
        messages = [{"subject": "agent.victim", "payload": number} for number in range(FLOOD)]
        results = await stage.send_many(flooder, messages)
        delivered = sum(one.delivered_to for one in results)
        for _ in range(delivered):
            await (await victim.receive(PATIENCE_S)).ack()
    rejected = [one for one in results if one.rejected]
    say(f"agent.flooder sent {FLOOD} at once: {_counts(results)}")
    if rejected:
        wait_s = rejected[-1].retry_after_ms / 1000
        say(f"{rejected[-1].rejected[0].detail}; it may try again in {wait_s:.0f} s")
    return Outcome("flooder", f"{FLOOD} messages at once", _counts(results))


async def fill_up(stage: Stage) -> Outcome:
    """An agent that is slow to confirm has a mailbox with an end, and loses nothing for it."""
    scene("A slow consumer's mailbox has an end")
    workers = ("agent.worker.1", "agent.worker.2")
    results: list[PublishResult] = []
    async with stage.agent("agent.slow") as slow:
        for subject in workers:
            await stage.send(slow, subject, "send me your work")
        for subject in workers:
            async with stage.agent(subject) as worker:
                async with await worker.receive(PATIENCE_S):
                    pass
                work = [{"subject": "agent.slow", "payload": number} for number in range(WORK)]
                results += await stage.send_many(worker, work)
        kept = [one.message_id for one in results if one.delivered_to]
        say(f"two workers sent {len(results)} to agent.slow: {_counts(results)}")
        got = []
        for _ in kept:
            async with await slow.receive(PATIENCE_S) as message:
                got.append(message.id)
    order = "in order" if got == kept else "OUT OF ORDER"
    say(f"its mailbox takes {MAILBOX_MAX}; in its own time it read all {len(got)}, {order}")
    return Outcome("slow", f"{len(results)} messages while it reads none", _counts(results))


async def come_without_a_key(stage: Stage) -> Outcome:
    """Whoever does not say who they are is a stranger, and all strangers share one small quota."""
    scene("An anonymous stranger has a small quota")
    statuses: Counter[int] = Counter()
    error = ""
    async with httpx.AsyncClient(base_url=stage.url) as http:
        for number in range(STRANGERS):
            body = {"subject": "agent.desk", "payload": {"question": number}}
            answer = await http.post("/v1/messages", json=body)
            statuses[answer.status_code] += 1
            if answer.is_success:
                found = answer.json()
                stage.confirm(found["message_id"], found["delivered_to"])
            else:
                stage.attempts += 1
                error = answer.json()["error"]
    kept, rejected = statuses[200], statuses[429]
    say(f"{STRANGERS} POST /v1/messages without a token: {kept} kept, {rejected} answered with 429")
    say(f'"{error}"')
    return Outcome(
        "a stranger",
        f"{STRANGERS} messages without a key",
        f"{kept} kept, {rejected} refused, quota_exceeded",
    )


async def break_rules(stage: Stage) -> Outcome:
    """The operator forbids one agent to write to another. Others still may."""
    scene("An access rule keeps somebody out")
    token = stage.operator_token.read_text().strip()
    rule = {"from": "agent.spy", "to": "agent.vault", "action": "deny", "priority": 10}
    async with httpx.AsyncClient(base_url=stage.url) as http:
        answer = await http.post(
            "/v1/rules", json=rule, headers={"Authorization": f"Bearer {token}"}
        )
        answer.raise_for_status()
    rejected = 0
    async with stage.agent("agent.vault") as vault, stage.agent("agent.spy") as spy:
        for _ in range(TRIES):
            stage.attempts += 1
            try:
                await spy.send("agent.vault", "open up")
            except AccessDenied:
                rejected += 1
        async with stage.agent("agent.shop") as shop:
            await stage.send(shop, "agent.vault", "takings of today")
        async with await vault.receive(PATIENCE_S) as message:
            say(f"agent.spy wrote to agent.vault {TRIES} times: {rejected} refused, access_denied")
            say(f"meanwhile agent.vault has mail from {message.sender}")
    return Outcome("spy", f"{TRIES} messages to agent.vault", f"{rejected} refused, access_denied")


async def steal_a_name(stage: Stage) -> Outcome:
    """A name belongs to the first key that proved itself under it."""
    scene("A name belongs to its first key")
    try:
        async with connect(stage.url, Identity.new("agent.ann")):
            came = "let in"
    except SubjectTaken as problem:
        came = "turned away, subject_taken"
        say(f"a new key says to be agent.ann: {problem}")
    return Outcome("a thief", "says to be agent.ann", came)


def _counts(results: list[PublishResult]) -> str:
    """ "100 delivered, 400 refused, rate_limited"."""
    rejected = Counter(one.rejected[0].reason for one in results if one.rejected)
    delivered = sum(1 for one in results if one.delivered_to)
    told = [f"{number} refused, {reason}" for reason, number in rejected.items()]
    return ", ".join([f"{delivered} delivered", *told])
