"""A served relay with a manual clock, and receivers on real ports of this machine."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import served_settings
from tests.server.http.http_relay import ORIGIN, HttpRelay, behind_gate
from tests.server.webhooks.receiver import Receiver, receiving
from waypost.policy.tiers import QosConfig
from waypost.policy.webhooks import WebhooksConfig
from waypost.server.server import make_app, open_context
from waypost.testing import ManualClock

HERE = WebhooksConfig(private_hosts=["127.0.0.1:*"])


class WebhookRelay:
    """A relay that can be restarted, and its agents, which keep their keys."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.clock = ManualClock()
        self._stack = AsyncExitStack()
        self._identities: dict[str, Any] = {}
        self.http: HttpRelay

    async def start(self, webhooks: WebhooksConfig = HERE, **fields: Any) -> None:
        settings = served_settings(webhooks=webhooks, qos=QosConfig(), **fields)
        context = await self._stack.enter_async_context(
            open_context(self.data, settings=settings, clock=self.clock)
        )
        app = make_app(context)
        transport = httpx.ASGITransport(app=behind_gate(app))
        client = await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url=f"http://{ORIGIN}")
        )
        operator = (self.data / "operator-token").read_text().strip()
        self.http = HttpRelay(app, context, self.clock, client, operator)
        self.http._identities = self._identities

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self, webhooks: WebhooksConfig = HERE) -> None:
        await self.stop()
        await self.start(webhooks)

    async def set(self, subject: str, url: str, **fields: Any) -> httpx.Response:
        token = await self.http.token(subject)
        body = {"url": url, **fields}
        return await self.http.call("PUT", f"/v1/webhooks/{subject}", token=token, json=body)

    async def must_set(self, subject: str, url: str, **fields: Any) -> str:
        """Set a webhook and return its secret."""
        done = await self.set(subject, url, **fields)
        assert done.status_code == 200, done.text
        return str(done.json()["secret"])

    async def show(self, subject: str) -> Any:
        token = await self.http.token(subject)
        return (await self.http.call("GET", f"/v1/webhooks/{subject}", token=token)).json()

    async def test(self, subject: str) -> Any:
        token = await self.http.token(subject)
        return (await self.http.call("POST", f"/v1/webhooks/{subject}/test", token=token)).json()

    async def passes_until(self, condition: Callable[[], object], expected: str) -> None:
        """Let time pass, a second at a time, until the condition holds."""

        def step() -> object:
            self.clock.advance_ms(1000)
            return condition()

        await eventually(step, expected)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[WebhookRelay]:
    one = WebhookRelay(tmp_path / "data")
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one
