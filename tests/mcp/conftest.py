"""A served relay, and models that use the tools."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import WITHOUT_TIERS
from tests.harness.listening_relay import ListeningRelay, listening
from tests.mcp.models import Model, running_model
from waypost.client import Identity


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    async with listening(tmp_path / "data", **WITHOUT_TIERS) as running:
        yield running


@pytest.fixture
def operator_token(relay: ListeningRelay, tmp_path: Path) -> str:
    return (tmp_path / "data" / "operator-token").read_text().strip()


@pytest.fixture
def new_model(relay: ListeningRelay) -> Callable[..., Any]:
    """Start a model under a subject, with the same keys for the same subject."""
    keys: dict[str, Identity] = {}

    def start(subject: str, **more: Any) -> Any:
        identity = keys.setdefault(subject, Identity.new(subject))
        return running_model(relay.url, identity, **more)

    return start


@pytest.fixture
async def ann(new_model: Callable[..., Any]) -> AsyncIterator[Model]:
    async with new_model("agent.ann") as model:
        yield model


@pytest.fixture
async def bob(new_model: Callable[..., Any]) -> AsyncIterator[Model]:
    async with new_model("agent.bob") as model:
        yield model
