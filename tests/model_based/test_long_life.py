"""Long simulated runs: hundreds of steps each, weighted like real use."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.seeds import seeded
from tests.model_based.choices import (
    BUDGETS,
    CHANGES,
    DELAYS_S,
    ENDPOINTS,
    IDS,
    PATTERNS,
    PAUSES_MS,
    RESTARTS,
    SENDERS,
)
from tests.model_based.life import Life
from tests.model_based.lives import ForgetfulLife, LifeInFiles

STEPS = 250


def publish(life: Life, chance: random.Random) -> None:
    life.publish(
        subject=chance.choice(PATTERNS),
        sender=chance.choice(SENDERS),
        size=chance.randrange(700),
        budget=chance.choice([None, None, None, *BUDGETS]),
        parent=chance.randrange(8),
        message_id=chance.choice([None, None, None, None, *IDS]),
    )


def flood(life: Life, chance: random.Random) -> None:
    endpoint, sender = chance.choice(ENDPOINTS), chance.choice(SENDERS)
    life.flood(endpoint, sender, chance.randrange(2, 8), chance.randrange(700))


def publish_many(life: Life, chance: random.Random) -> None:
    life.publish_many(chance.choices(PATTERNS, k=chance.randrange(1, 6)), chance.choice(SENDERS))


def consume(life: Life, chance: random.Random) -> None:
    endpoint = chance.choice(ENDPOINTS)
    life.lease(endpoint, chance.randrange(1, 6), chance.random() < 0.1)
    if chance.random() < 0.6:
        life.ack(endpoint, chance.randrange(1, 4))
    elif chance.random() < 0.6:
        life.nack(endpoint, chance.choice(DELAYS_S))


def subscribe(life: Life, chance: random.Random) -> None:
    life.subscribe(chance.choice(PATTERNS), chance.random() < 0.5)


def unsubscribe(life: Life, chance: random.Random) -> None:
    for number in list(life.model.handlers):
        life.unsubscribe(number)


def change_endpoint(life: Life, chance: random.Random) -> None:
    act = life.register if chance.random() < 0.7 else life.unregister
    act(chance.choice(ENDPOINTS))


ACTS: dict[Callable[[Life, random.Random], Any], int] = {
    publish: 30,
    flood: 8,
    publish_many: 6,
    consume: 22,
    lambda life, chance: life.advance(chance.choice(PAUSES_MS)): 14,
    lambda life, chance: life.change_settings(chance.choice(CHANGES)): 3,
    lambda life, chance: life.restart(chance.choice(RESTARTS)): 3,
    lambda life, chance: life.redrive(chance.randrange(3)): 4,
    lambda life, chance: life.sweep(): 2,
    lambda life, chance: life.purge(): 1,
    lambda life, chance: life.rebuild_index(): 1,
    lambda life, chance: life.signal(chance.choice(ENDPOINTS)): 1,
    subscribe: 2,
    unsubscribe: 4,
    change_endpoint: 5,
}


def live(kind: type[Life], chance: random.Random) -> Counter[str]:
    """Simulate one run; return the number of events by kind."""
    life = kind()
    try:
        for act in chance.choices(list(ACTS), list(ACTS.values()), k=STEPS):
            act(life, chance)
            life.everything_adds_up()
    finally:
        life.end()
    seen = Counter(event.get("reason", event["kind"]) for event in life.events)
    return seen + Counter(id_taken=life.ids_taken)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Life, LifeInFiles, ForgetfulLife])
def test_the_accounts_of_a_long_run_agree_at_every_step(kind: type[Life]) -> None:
    with seeded() as chance:
        seen: Counter[str] = Counter()
        for _ in range(4):
            seen += live(kind, chance)
    # A run without these events would prove little.
    for rare in (
        "quota_exceeded",
        "backpressure",
        "rate_limited",
        "budget_exceeded",
        "redriven",
        "id_taken",
    ):
        assert seen[rare], f"{rare} never happened: {seen}"
