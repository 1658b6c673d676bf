"""Relays served over HTTP: real directories, no sockets, a manual clock."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.server.http.http_relay import ORIGIN, HttpRelay, behind_gate
from waypost import Settings
from waypost.policy.tiers import WEEK_MS, QosConfig
from waypost.server.context import ServeOptions
from waypost.server.server import make_app, open_context
from waypost.testing import ManualClock

Serve = Callable[..., Awaitable[HttpRelay]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def serve(data: Path, clock: ManualClock) -> AsyncIterator[Serve]:
    """Serve a relay on `data`; keywords are fields of `Settings`."""
    async with AsyncExitStack() as stack:

        async def start(options: ServeOptions | None = None, **fields: object) -> HttpRelay:
            defaults = {"watch_files": False, "durability": "async", "storage": "journal"}
            served_ones = {"default_ttl_ms": WEEK_MS, "qos": QosConfig(enabled=True)}
            settings = Settings(**{**defaults, **served_ones, **fields})
            context = await stack.enter_async_context(
                open_context(data, options, settings=settings, clock=clock)
            )
            app = make_app(context)
            client = await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app=behind_gate(app)),
                    base_url=f"http://{ORIGIN}",
                )
            )
            operator = (data / "operator-token").read_text().strip()
            return HttpRelay(app, context, clock, client, operator)

        yield start


@pytest.fixture
async def served(serve: Serve) -> HttpRelay:
    """A served relay with the default limits."""
    return await serve()
