"""Misbehaving agents, by mistake or on purpose, and how the relay stops them."""

from collections import Counter

import httpx

from examples.demo.demo_relay import MAILBOX_MAX, OPTIONS, PATIENCE_S, DemoRelay
from examples.demo.output import Outcome, print_line, print_title
from waypost import AccessDenied, PublishResult
from waypost.client import Agent, Identity, SubjectTaken, connect

LOOP_SHOWN = 3
FLOOD = 500
WORK = 90
ANONYMOUS_MESSAGES = 30
ATTEMPTS = 5


async def loop(demo: DemoRelay) -> tuple[Outcome, str]:
    """Let two agents answer each other until the budget of their conversation stops them."""
    print_title("A loop is stopped by its budget")
    async with demo.agent("agent.ping") as ping, demo.agent("agent.pong") as pong:
        await demo.send(pong, "agent.ping", "your turn")
        players: dict[str, Agent] = {"agent.ping": ping, "agent.pong": pong}
        sender, recipient = "agent.ping", "agent.pong"
        calls = 0
        while True:
            async with await players[sender].receive(PATIENCE_S) as message:
                calls += 1
                if calls <= LOOP_SHOWN:
                    left = message.budget.call_budget_remaining
                    print_line(f"{sender} → {recipient}: your turn ({left} calls left)")
                result = await demo.send(players[sender], recipient, "your turn", parent=message)
            if result.rejected:
                break
            sender, recipient = recipient, sender
    print_line(f"… stopped: {result.rejected[0].detail}")
    outcome = f"stopped after {calls} calls: budget_exceeded"
    return Outcome("ping, pong", "answer each other endlessly", outcome), result.message_id


async def flood(demo: DemoRelay) -> Outcome:
    """Send far more than the rate limit, to an agent that has written to the sender."""
    print_title("A flood is stopped by its rate limit")
    async with demo.agent("agent.flooder") as flooder, demo.agent("agent.victim") as victim:
        await demo.send(victim, "agent.flooder", "hello")
        async with await flooder.receive(PATIENCE_S):
            pass
        messages = [{"subject": "agent.victim", "payload": number} for number in range(FLOOD)]
        results = await demo.send_many(flooder, messages)
        delivered = sum(one.delivered_to for one in results)
        for _ in range(delivered):
            await (await victim.receive(PATIENCE_S)).ack()
    rejected = [one for one in results if one.rejected]
    print_line(f"agent.flooder sent {FLOOD} at once: {_counts(results)}")
    if rejected:
        wait_s = rejected[-1].retry_after_ms / 1000
        print_line(f"{rejected[-1].rejected[0].detail}; retry after {wait_s:.0f} s")
    return Outcome("flooder", f"{FLOOD} messages at once", _counts(results))


async def fill_mailbox(demo: DemoRelay) -> Outcome:
    """Fill the mailbox of a slow consumer: more is rejected, and nothing stored is lost."""
    print_title("The mailbox of a slow consumer is bounded")
    workers = ("agent.worker.1", "agent.worker.2")
    results: list[PublishResult] = []
    async with demo.agent("agent.slow") as slow:
        for subject in workers:
            await demo.send(slow, subject, "send me your work")
        for subject in workers:
            async with demo.agent(subject) as worker:
                async with await worker.receive(PATIENCE_S):
                    pass
                work = [{"subject": "agent.slow", "payload": number} for number in range(WORK)]
                results += await demo.send_many(worker, work)
        stored = [one.message_id for one in results if one.delivered_to]
        print_line(f"two workers sent {len(results)} to agent.slow: {_counts(results)}")
        received = []
        for _ in stored:
            async with await slow.receive(PATIENCE_S) as message:
                received.append(message.id)
    order = "in order" if received == stored else "OUT OF ORDER"
    print_line(f"its mailbox holds {MAILBOX_MAX}; later it read all {len(received)}, {order}")
    return Outcome("slow", f"{len(results)} messages while it reads none", _counts(results))


async def send_anonymously(demo: DemoRelay) -> Outcome:
    """Send without a key: all anonymous senders share one small quota."""
    print_title("Anonymous senders share a small quota")
    statuses: Counter[int] = Counter()
    error = ""
    async with httpx.AsyncClient(base_url=demo.url) as http:
        for number in range(ANONYMOUS_MESSAGES):
            body = {"subject": "agent.desk", "payload": {"question": number}}
            response = await http.post("/v1/messages", json=body)
            statuses[response.status_code] += 1
            if response.is_success:
                result = response.json()
                demo.confirm(result["message_id"], result["delivered_to"])
            else:
                demo.attempts += 1
                error = response.json()["error"]
    accepted, rejected = statuses[200], statuses[429]
    print_line(
        f"{ANONYMOUS_MESSAGES} POST /v1/messages without a token:"
        f" {accepted} accepted, {rejected} with status 429"
    )
    print_line(f'"{error}"')
    return Outcome(
        "anonymous",
        f"{ANONYMOUS_MESSAGES} messages without a key",
        f"{accepted} delivered, {rejected} rejected: quota_exceeded",
    )


async def send_despite_rule(demo: DemoRelay) -> Outcome:
    """Send against an access rule: it denies one sender, and no other."""
    print_title("An access rule denies a sender")
    token = demo.operator_token.read_text().strip()
    rule = {"from": "agent.spy", "to": "agent.vault", "action": "deny", "priority": 10}
    async with httpx.AsyncClient(base_url=demo.url) as http:
        response = await http.post(
            "/v1/rules", json=rule, headers={"Authorization": f"Bearer {token}"}
        )
        response.raise_for_status()
    rejected = 0
    async with demo.agent("agent.vault") as vault, demo.agent("agent.spy") as spy:
        for _ in range(ATTEMPTS):
            demo.attempts += 1
            try:
                await spy.send("agent.vault", "open up")
            except AccessDenied:
                rejected += 1
        async with demo.agent("agent.shop") as shop:
            await demo.send(shop, "agent.vault", "takings of today")
        async with await vault.receive(PATIENCE_S) as message:
            print_line(f"agent.spy wrote to agent.vault {ATTEMPTS} times: {rejected} rejected")
            print_line(f"meanwhile agent.vault received a message from {message.sender}")
    return Outcome(
        "spy", f"{ATTEMPTS} messages to agent.vault", f"{rejected} rejected: access_denied"
    )


async def claim_a_taken_subject(demo: DemoRelay) -> Outcome:
    """Connect with a new key under a taken subject, which belongs to its first key."""
    print_title("A subject belongs to its first key")
    try:
        async with connect(demo.url, Identity.new("agent.ann"), options=OPTIONS):
            result = "ACCEPTED"
    except SubjectTaken as problem:
        result = "rejected: subject_taken"
        print_line(f"a new key claims to be agent.ann: {problem}")
    return Outcome("impostor", "claims to be agent.ann", result)


def _counts(results: list[PublishResult]) -> str:
    """Format counts: "100 delivered, 400 rejected: rate_limited"."""
    rejected = Counter(one.rejected[0].reason for one in results if one.rejected)
    delivered = sum(1 for one in results if one.delivered_to)
    rejections = [f"{number} rejected: {reason}" for reason, number in rejected.items()]
    return ", ".join([f"{delivered} delivered", *rejections])
