"""The stage: a served relay on a free port, agents that connect to it, and a list of all that the
relay has confirmed to them.

The relay runs in this process, with its own listening socket: what agents do goes over the network,
and one handler can live inside, as in a program that embeds a relay.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from waypost import BackpressureConfig, CircuitBreakerConfig, PublishResult, Relay
from waypost.client import Agent, Identity, connect
from waypost.server.context import ServerContext
from waypost.server.server import SERVED_SETTINGS, Listen, open_context, serve

PATIENCE_S = 30.0
COOLDOWN_MS = 1_000
MAILBOX_MAX = 150
SETTINGS = msgspec.structs.replace(
    SERVED_SETTINGS,
    # A demo has no half minute to wait for a breaker, nor a thousand messages for a full mailbox.
    circuit_breaker=CircuitBreakerConfig(cooldown_ms=COOLDOWN_MS),
    backpressure=BackpressureConfig(max_mailbox_size=MAILBOX_MAX),
)


class Stage:
    """Where the relay is, and who has been there. `confirmed`: id → mailboxes that took it."""

    def __init__(self, services: ServerContext, data_dir: Path, url: str) -> None:
        self._services = services
        self.relay: Relay = services.relay
        self.data_dir = data_dir
        self.url = url
        self.attempts = 0
        self.confirmed: dict[str, int] = {}
        self._identities: dict[str, Identity] = {}

    @property
    def operator_token(self) -> Path:
        """The file that makes an operator."""
        return self.data_dir / "operator-token"

    def identity(self, subject: str) -> Identity:
        """The keys of an agent, kept from the last time if there was one."""
        if subject not in self._identities:
            file = self.data_dir / "demo-keys" / f"{subject}.key"
            if file.exists():
                self._identities[subject] = Identity.load(file)
            else:
                self._identities[subject] = Identity.new(subject)
                self._identities[subject].save(file)
        return self._identities[subject]

    def key_file(self, subject: str) -> Path:
        """Where those keys are, for a process of its own."""
        self.identity(subject)
        return self.data_dir / "demo-keys" / f"{subject}.key"

    @asynccontextmanager
    async def agent(self, subject: str) -> AsyncIterator[Agent]:
        """An agent, connected for the block."""
        await self.until(lambda there: subject not in there)  # it may have gone a moment ago
        async with connect(self.url, self.identity(subject)) as agent:
            yield agent

    async def until(self, holds: Callable[[set[str]], bool]) -> None:
        """Wait until something holds of those who are connected."""
        hub = self._services.hub
        async with asyncio.timeout(PATIENCE_S):
            while not holds({one.subject for one in hub.connected()}):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def send(self, agent: Agent, subject: str, payload: object, **more: Any) -> PublishResult:
        """Send as `agent`, and keep in mind what was confirmed."""
        return self.note(await agent.send(subject, payload, **more))

    async def send_many(
        self, agent: Agent, messages: Iterable[Mapping[str, Any]]
    ) -> list[PublishResult]:
        """The same for many at once."""
        return [self.note(one) for one in await agent.send_many(messages)]

    def note(self, result: PublishResult) -> PublishResult:
        """Keep in mind what was confirmed."""
        self.confirm(result.message_id, result.delivered_to)
        return result

    def confirm(self, message_id: str, delivered_to: int) -> None:
        """The relay has answered that so many mailboxes took it."""
        self.attempts += 1
        if delivered_to:
            self.confirmed[message_id] = delivered_to


@asynccontextmanager
async def open_stage(data_dir: Path) -> AsyncIterator[Stage]:
    """Serve the relay in `data_dir` until the block ends. If the relay ends first, so does it."""
    block = asyncio.current_task()
    assert block is not None
    async with open_context(data_dir, settings=SETTINGS) as services:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # The server passes a signal that ends it on to whoever handled it before.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        serving = asyncio.create_task(serve(services, Listen(port=0), ready.set_result))

        def ended(_: object) -> None:
            block.cancel()

        serving.add_done_callback(ended)
        try:
            yield Stage(services, data_dir, await ready)
        finally:
            serving.remove_done_callback(ended)
            if not serving.done():
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait([serving])
            signal.signal(signal.SIGTERM, before)
