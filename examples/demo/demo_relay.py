"""The relay of the demo: served on a free port, with agents that connect to it.

It records which messages the relay confirmed to senders. The relay runs in this process with its
own listening socket: agents use the network, and one handler runs in the process, as in a program
that embeds a relay.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from waypost import BackpressureConfig, CircuitBreakerConfig, PublishResult, Relay
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.server import SERVED_SETTINGS, Listen, open_context, serve

PATIENCE_S = 60.0
COOLDOWN_MS = 1_000
MAILBOX_MAX = 150
# Two dozen agents, the relay and Spark may share one core.
OPTIONS = ClientOptions(connect_timeout_s=PATIENCE_S, handshake_timeout_s=PATIENCE_S)
SETTINGS = msgspec.structs.replace(
    SERVED_SETTINGS,
    # Smaller than the defaults, so that the demo need not wait for a breaker or a full mailbox.
    circuit_breaker=CircuitBreakerConfig(cooldown_ms=COOLDOWN_MS),
    backpressure=BackpressureConfig(max_mailbox_size=MAILBOX_MAX),
)


class DemoRelay:
    """A served relay and the keys of its agents.

    `confirmed` maps the id of each confirmed message to the number of its mailboxes.
    """

    def __init__(self, context: ServerContext, data_dir: Path, url: str) -> None:
        self._context = context
        self.relay: Relay = context.relay
        self.data_dir = data_dir
        self.url = url
        self.attempts = 0
        self.confirmed: dict[str, int] = {}
        self._identities: dict[str, Identity] = {}

    @property
    def operator_token(self) -> Path:
        """The file with the operator's token."""
        return self.data_dir / "operator-token"

    def identity(self, subject: str) -> Identity:
        """Return the keys of an agent, those of an earlier run if there was one."""
        if subject not in self._identities:
            file = self.data_dir / "demo-keys" / f"{subject}.key"
            if file.exists():
                self._identities[subject] = Identity.load(file)
            else:
                self._identities[subject] = Identity.new(subject)
                self._identities[subject].save(file)
        return self._identities[subject]

    def key_file(self, subject: str) -> Path:
        """Return the key file of an agent, for another process."""
        self.identity(subject)
        return self.data_dir / "demo-keys" / f"{subject}.key"

    @asynccontextmanager
    async def agent(self, subject: str) -> AsyncIterator[Agent]:
        """Connect an agent for the block."""
        await self.until(lambda connected: subject not in connected)  # it may be closing
        async with connect(self.url, self.identity(subject), options=OPTIONS) as agent:
            yield agent

    async def until(self, holds: Callable[[set[str]], bool]) -> None:
        """Wait until a condition holds for the connected subjects."""
        hub = self._context.hub
        async with asyncio.timeout(PATIENCE_S):
            while not holds({one.subject for one in hub.connected()}):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def send(self, agent: Agent, subject: str, payload: object, **more: Any) -> PublishResult:
        """Send as `agent`, and record the confirmation."""
        return self.record(await agent.send(subject, payload, **more))

    async def send_many(
        self, agent: Agent, messages: Iterable[Mapping[str, Any]]
    ) -> list[PublishResult]:
        """Send many messages at once, and record the confirmations."""
        return [self.record(one) for one in await agent.send_many(messages)]

    def record(self, result: PublishResult) -> PublishResult:
        """Record a confirmed result."""
        self.confirm(result.message_id, result.delivered_to)
        return result

    def confirm(self, message_id: str, delivered_to: int) -> None:
        """Record that `delivered_to` mailboxes accepted a message."""
        self.attempts += 1
        if delivered_to:
            self.confirmed[message_id] = delivered_to


@asynccontextmanager
async def open_demo_relay(data_dir: Path) -> AsyncIterator[DemoRelay]:
    """Serve the relay in `data_dir` for the block; if the relay stops first, cancel the block."""
    block = asyncio.current_task()
    assert block is not None
    options = ServeOptions(pipeline_command=(sys.executable, "-P", "-m", "waypost"))
    async with open_context(data_dir, options, settings=SETTINGS) as context:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # The server passes its stop signal on to the previous handler.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        serving = asyncio.create_task(serve(context, Listen(port=0), ready.set_result))

        def cancel_block(_: object) -> None:
            block.cancel()

        serving.add_done_callback(cancel_block)
        try:
            yield DemoRelay(context, data_dir, await ready)
        finally:
            serving.remove_done_callback(cancel_block)
            if not serving.done():
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait([serving])
            signal.signal(signal.SIGTERM, before)
