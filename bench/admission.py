"""The cost of admission alone: the policy's own code, without storage."""

import time

from bench.embedded import open_settings
from waypost.policy.admission import admit_delivery, admit_sender
from waypost.policy.breakers import CircuitBreakers
from waypost.policy.budgets import create_default_budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.rate_limits import RateWindows
from waypost.policy.tiers import Tier
from waypost.wire.events import Accepted

DECISIONS = 20_000
ROUNDS = 7
SENDERS = 1_000


def measure_admission_us() -> float:
    """Return the µs for rate limit, caps, quota, breaker and budget of one publish.

    The fastest of several rounds counts.
    """
    settings = open_settings()
    windows, mailbox, breakers = RateWindows(), Occupancy(), CircuitBreakers()
    now_ms = 1_700_000_000_000
    budget = create_default_budget(now_ms)
    arrival = Accepted(
        at_us=now_ms * 1000,
        id="",
        sender="",
        subject="agent.sink",
        endpoint="agent.sink",
        budget=budget,
        size=700,
        tier=Tier.ACTIVE,
    )
    senders = [f"agent.worker-{number}" for number in range(SENDERS)]
    for sender in senders:
        for at_ms in range(now_ms - 100, now_ms):
            windows.record(sender, at_ms)
        mailbox.add(sender, 700)
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for index in range(DECISIONS):
            sender = senders[index % SENDERS]
            admit_sender(sender, windows, settings, now_ms)
            arrival.sender = sender
            admit_delivery(arrival, mailbox, breakers, settings, now_ms)
        rounds.append(time.perf_counter() - begin)
    return min(rounds) / DECISIONS * 1_000_000
