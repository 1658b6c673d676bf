"""Random histories of small relays: the real relay on a manual clock.

Settings are so tight that every limit is reached within a few hundred steps.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from waypost import BackpressureConfig, CircuitBreakerConfig, Draft, QosConfig, Relay, Settings
from waypost.policy.errors import WaypostError
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.settings import HousekeepingConfig
from waypost.policy.tiers import TierLimits
from waypost.relay.delivery.consumer import Consumer
from waypost.testing import ManualClock
from waypost.wire.envelopes import Envelope

AGENTS = [f"agent.{name}" for name in ("a", "b", "c", "d", "e")]
ENDPOINTS = AGENTS[:4]
SENDERS = [*AGENTS, "agent.flood", "_relay", "_anonymous"]
SUBJECTS = [*ENDPOINTS, "agent.*", "agent.>", "agent.nobody"]

_PLAIN = Settings(storage="journal", durability="async", watch_files=False, default_ttl_ms=60_000)
_BREAKER = CircuitBreakerConfig(failure_threshold=2, cooldown_ms=2000, success_to_close=1)
_TIERS = QosConfig(
    enabled=True,
    tier1=TierLimits(2, 900),
    tier2=TierLimits(3, 1500),
    tier3=TierLimits(5, 3000),
    bidirectional_window_ms=15_000,
    inbox_max_bytes=2500,
    strangers=TierLimits(3, 1200),
)
_OLD_TIERS = msgspec.structs.replace(_TIERS, overflow="evict_heaviest", strangers=None)
_HOUSEKEEPING = HousekeepingConfig(sweep_interval_ms=3000, breaker_idle_ms=20_000)
_RATE = RateLimitConfig(
    window_secs=5,
    max_per_window=6,
    anonymous_max_per_window=9,
    per_sender_overrides={"agent.f": 3},
)


def _settings(**fields: object) -> Settings:
    return msgspec.structs.replace(
        _PLAIN, circuit_breaker=_BREAKER, housekeeping=_HOUSEKEEPING, **fields
    )


STRICT = _settings(
    rate_limit=_RATE, backpressure=BackpressureConfig(max_mailbox_size=6), qos=_TIERS
)
SETTINGS = [
    STRICT,
    _settings(rate_limit=_RATE, backpressure=BackpressureConfig(max_mailbox_size=4), max_hops=2),
    _settings(
        rate_limit=RateLimitConfig(enabled=False), qos=_TIERS, relay_messages=TierLimits(3, 900)
    ),
    _settings(backpressure=BackpressureConfig(max_mailbox_size=8), max_fanout=3),
    _settings(rate_limit=_RATE, qos=_OLD_TIERS),
]
RELOADED = [
    b'{"reliability": {"rateLimit": {"maxPerWindow": 4}, "backpressure": {"maxMailboxSize": 3}}}',
    b'{"qos": {"tier1": {"maxEnvelopes": 1}, "inboxMaxBytes": 1500}, "maxHops": 3, "maxFanout": 2}',
    b'{"reliability": {"circuitBreaker": {"failureThreshold": 1}}, "qos": {"overflow": "reject"}}',
    b'{"qos": {"strangers": {"maxEnvelopes": 2, "maxBytes": 700}, "tier1": {"maxEnvelopes": 2}}}',
]


def delivered_to(envelope: Envelope) -> str:
    """Return a mailbox that got the message; an answer adds nothing to the chain."""
    return envelope.subject if envelope.answer else envelope.budget.ancestor_chain[-1]


class RandomHistory:
    """One relay, driven through random steps."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data = data
        self.random = random.Random(seed)
        self.settings = SETTINGS[seed % len(SETTINGS)]
        self.clock = ManualClock(1_767_225_600_000_000 + seed * 7_654_321)
        self.seen: list[Envelope] = []
        self.relay: Relay

    async def run(self, steps: int) -> None:
        """Take `steps` steps, then seal the journal."""
        await self._open()
        kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._publish, 60),
            (self._consume, 14),
            (self._connect, 8),
            (self._request, 3),
            (self._cancel, 2),
            (self._subscribe, 3),
            (self._reset_breaker, 2),
            (self._wait, 16),
            (self._dead_letters, 3),
            (self._reload, 1),
            (self._restart, 1),
            (self._register_again, 1),
            (self._restore_pair, 1),
        ]
        actions = [action for action, weight in kinds for _ in range(weight)]
        for _ in range(steps):
            await self.random.choice(actions)()
            await self.relay.idle()
        await self.relay.seal_journal()
        await self.relay.close()

    async def _open(self) -> None:
        self.relay = Relay(self.data, settings=self.settings, clock=self.clock)
        await self.relay.open()
        for endpoint in ENDPOINTS:
            self.relay.register_endpoint(endpoint)
        self.workers: list[Consumer] = []
        self.stop: Callable[[], None] | None = None
        if self.random.random() < 0.8:
            self.stop = self.relay.subscribe("agent.d", self._handle)

    def _handle(self, envelope: Envelope) -> None:
        self.seen.append(envelope)
        if self.random.random() < 0.5:
            raise ConnectionError("away")

    async def _publish(self) -> None:
        draw = self.random
        for _ in range(draw.choice((1, 1, 2, 8))):
            parent = draw.choice(self.seen) if self.seen and draw.random() < 0.3 else None
            soon_ms = self.clock.now_us // 1000 + 3000
            budget = {"ttl": soon_ms, "max_hops": 99} if draw.random() < 0.2 else None  # cut
            chosen = f"m-{draw.randrange(60)}" if draw.random() < 0.2 else None
            delay = draw.choice((0.0004, 0.2, 2.0, 30.0)) if draw.random() < 0.15 else None
            try:
                sender, subject = draw.choice(SENDERS), draw.choice(SUBJECTS)
                if parent is not None and draw.random() < 0.6:  # as if it answered
                    sender, subject = delivered_to(parent), parent.sender
                draft = Draft(
                    subject,
                    "x" * draw.randrange(400),
                    sender=sender,
                    network=draw.choice(("", "n1", "n2")) if sender == "_anonymous" else "",
                    parent=parent,
                    budget=budget,
                    message_id=chosen,
                    delay=delay,
                )
                await self.relay.publish_draft(draft)
            except WaypostError:
                pass  # an id in use, a chain that is too long: nothing is recorded
            self.clock.advance_us(draw.randrange(3000))

    async def _consume(self) -> None:
        endpoint = self.random.choice(ENDPOINTS)
        got = await self.relay.lease(endpoint, limit=self.random.randrange(1, 6))
        self.seen.extend(got)
        ids = [one.id for one in got]
        draw = self.random.random()
        if draw < 0.6:
            await self.relay.ack(endpoint, ids)
        elif draw < 0.8:
            delay, error = self.random.choice((0.0, 1.5)), self.random.choice(("", "no: really"))
            await self.relay.nack(endpoint, ids, delay, error)
        elif draw < 0.9:
            self.relay.claims.release(endpoint, ids)
        elif draw < 0.95:
            await self.relay.extend(endpoint, ids, 60)
        else:
            await self.relay.release_leases(endpoint)

    async def _connect(self) -> None:
        """Connect a worker of a pool, let one take messages and fail with some, or disconnect it.

        It may keep messages for so long that it is stuck.
        """
        if len(self.workers) < self.random.randrange(1, 3):
            self.workers.append(self.relay.attach("agent.b", lambda: None, shared=True))
            return
        worker = self.random.choice(self.workers)
        taken = [one.envelope.id for one in worker.take(3)]
        draw = self.random.random()
        if draw < 0.3:
            worker.ack(taken)
        elif draw < 0.6:
            worker.nack(taken, 0.0, self.random.choice(("", "away")))
        elif draw < 0.8:
            worker.detach()
            self.workers.remove(worker)
        elif draw < 0.9:
            worker.extend(taken, 60)

    async def _request(self) -> None:
        """Ask an agent that fails with an error, or not at all."""
        asked = self.relay.request("agent.c", "?", sender="agent.a", timeout=0.5)
        asking = asyncio.ensure_future(asked)
        await self.relay.idle()
        if self.random.random() < 0.8:
            got = await self.relay.lease("agent.c")
            await self.relay.nack("agent.c", [one.id for one in got], error="cannot")
        self.clock.advance_ms(500)
        await asyncio.gather(asking, return_exceptions=True)

    async def _cancel(self) -> None:
        """Cancel a scheduled message, if there is one."""
        scheduled = self.relay.inspect().scheduled()
        if scheduled:
            await self.relay.cancel(self.random.choice(scheduled).id)

    async def _subscribe(self) -> None:
        """End the subscription, sometimes before its last message was handled, or begin one."""
        if self.stop is None:
            self.stop = self.relay.subscribe("agent.d", self._handle)
            return
        publishing = asyncio.ensure_future(self.relay.publish("agent.d", "late", sender="agent.a"))
        await asyncio.sleep(0)
        self.stop()
        self.stop = None
        await publishing

    async def _reset_breaker(self) -> None:
        await self.relay.reset_breaker(self.random.choice(("agent.b", "agent.d")))

    async def _wait(self) -> None:
        self.clock.advance_ms(self.random.choice((10, 300, 1000, 2500, 40_000)))

    async def _dead_letters(self) -> None:
        dead_letters = await self.relay.dead_letters()
        chosen = {one.envelope.id for one in dead_letters if self.random.random() < 0.5}
        await self.relay.redrive(chosen)
        if self.random.random() < 0.2:
            await self.relay.purge_dead_letters()

    async def _reload(self) -> None:
        (self.data / "config.json").write_bytes(self.random.choice(RELOADED))
        self.relay._runtime.settings.reload()

    async def _restart(self) -> None:
        await self.relay.close()
        self.clock.advance_ms(50)
        await self._open()

    async def _register_again(self) -> None:
        self.relay.unregister_endpoint("agent.c")
        await self._publish()
        self.relay.register_endpoint("agent.c")

    async def _restore_pair(self) -> None:
        seen_ms = self.clock.now_us // 1000 - self.random.randrange(30_000)
        await self.relay.remember_pairs([(*self.random.sample(AGENTS, 2), seen_ms)])
