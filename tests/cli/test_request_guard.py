"""`waypost request` under the messaging guard, with limits from the environment."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.serve_process import ServeProcess, User, serving
from waypost.client import Agent, Identity, connect

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def user_with(relay: ServeProcess, home: Path, *subjects: str, **environment: str) -> User:
    user = User(relay.url, home, **environment)
    user.create_keys(*subjects)
    return user


@contextmanager
def echoing(relay: ServeProcess, key: Path) -> Iterator[None]:
    """Run an agent that answers every request with its payload."""
    connected, stop = threading.Event(), threading.Event()

    async def act() -> None:
        async with connect(relay.url, Identity.load(key)) as agent:
            connected.set()
            answering = asyncio.create_task(answer(agent))
            await asyncio.to_thread(stop.wait)
            answering.cancel()

    async def answer(agent: Agent) -> None:
        async for message in agent:
            async with message:
                await message.reply(message.payload)

    thread = threading.Thread(target=lambda: asyncio.run(act()), daemon=True)
    thread.start()
    assert connected.wait(60)
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def test_several_payloads_are_requests_one_after_another(relay: ServeProcess, home: Path) -> None:
    user = user_with(relay, home, "agent.g1.web", "agent.g1.echo")
    with echoing(relay, user.key_of("agent.g1.echo")):
        result = user("request", "agent.g1.echo", "1", "two", "[3]", "--sender", "agent.g1.web")
    assert result.stdout.splitlines() == ["1", '"two"', "[3]"]


def test_the_eleventh_request_of_a_minute_is_blocked_with_the_limit_and_its_variable(
    relay: ServeProcess, home: Path
) -> None:
    user = user_with(relay, home, "agent.g2.web", "agent.g2.echo")
    numbers = [str(number) for number in range(12)]
    with echoing(relay, user.key_of("agent.g2.echo")):
        asked = ("request", "agent.g2.echo", *numbers, "--sender", "agent.g2.web")
        result = user(*asked, exits=1)
    assert result.stdout.splitlines() == numbers[:10]
    assert result.stderr.count("at most 10 requests of one agent in 60 s") == 2
    assert "AGENT_RATE_LIMIT_PER_MIN" in result.stderr
    assert "10 of 12 requests answered, 2 blocked by the guard" in result.stderr


def test_the_rate_is_read_from_the_environment(relay: ServeProcess, home: Path) -> None:
    user = user_with(relay, home, "agent.g3.web", "agent.g3.echo", AGENT_RATE_LIMIT_PER_MIN="2")
    with echoing(relay, user.key_of("agent.g3.echo")):
        asked = ("request", "agent.g3.echo", "1", "2", "3", "--sender", "agent.g3.web")
        result = user(*asked, exits=1)
    assert result.stdout.splitlines() == ["1", "2"]
    assert "at most 2 requests of one agent in 60 s" in result.stderr


def test_the_limits_of_the_circuit_are_read_from_the_environment(
    relay: ServeProcess, home: Path
) -> None:
    user = user_with(
        relay,
        home,
        "agent.g4.web",
        AGENT_CB_FAILURE_THRESHOLD="2",
        AGENT_CB_RESET_TIMEOUT_MS="600000",
    )
    asked = ("request", "agent.g4.down", "1", "2", "3", "--sender", "agent.g4.web")
    result = user(*asked, "--timeout", "0.1", exits=1)
    assert result.stderr.count("no reply from agent.g4.down within 0.1 s") == 2
    assert "after 2 failures in a row, for 600 s" in result.stderr


def test_an_invalid_variable_is_noted_and_its_default_is_used(
    relay: ServeProcess, home: Path
) -> None:
    user = user_with(
        relay,
        home,
        "agent.g5.web",
        "agent.g5.echo",
        AGENT_RATE_LIMIT_PER_MIN="many",
        AGENT_CB_SUCCESS_THRESHOLD="-1",
    )
    with echoing(relay, user.key_of("agent.g5.echo")):
        result = user("request", "agent.g5.echo", "1", "--sender", "agent.g5.web")
    assert result.stdout == "1\n"
    assert result.stderr.splitlines() == [
        "waypost: AGENT_CB_SUCCESS_THRESHOLD='-1' is not a whole number of 1 or more: 2 is used",
        "waypost: AGENT_RATE_LIMIT_PER_MIN='many' is not a whole number of 1 or more: 10 is used",
    ]
